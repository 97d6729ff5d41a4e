//! Where a decoder computes its products: on this machine's cores, or on an accelerator that holds
//! the matrices and receives rows. Everything else, including attention and its cache, runs on the
//! cores.

use candle_core::Device;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::KeyProblem;

/// The device that computes the products of rows with weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProductsOn {
    /// This machine's cores.
    #[default]
    Cpu,
    /// The first NVIDIA GPU that `CUDA_VISIBLE_DEVICES` leaves visible.
    Cuda,
}

impl ProductsOn {
    /// Checks that this build supports the device.
    ///
    /// # Errors
    /// The program was built without the required feature.
    pub(super) fn check(self) -> Result<(), KeyProblem> {
        match self {
            Self::Cuda if !cfg!(feature = "cuda") => Err(KeyProblem::new(
                "products_on",
                "is \"cuda\", and this turnstream was built without it; build it with \
                 --features cuda, or write \"cpu\""
                    .to_owned(),
            )),
            Self::Cpu | Self::Cuda => Ok(()),
        }
    }

    /// Opens the accelerator; `None` for the cores.
    ///
    /// # Errors
    /// The driver's error.
    pub(super) fn open(self) -> candle_core::Result<Option<Device>> {
        match self {
            Self::Cpu => Ok(None),
            Self::Cuda => Device::new_cuda(0).map(Some),
        }
    }
}
