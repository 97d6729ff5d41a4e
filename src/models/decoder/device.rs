//! Where a decoder's products are computed: here, or on an accelerator that holds the matrices and
//! is sent rows. Everything between two products, attention and its keys and values among it,
//! stays here.

use candle_core::Device;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::KeyProblem;

/// What computes the products of rows with weights.
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
    /// # Errors
    /// This program was built without what it takes.
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

    /// The accelerator, opened; `None` where there is none to open.
    ///
    /// # Errors
    /// What the driver says.
    pub(super) fn open(self) -> candle_core::Result<Option<Device>> {
        match self {
            Self::Cpu => Ok(None),
            Self::Cuda => Device::new_cuda(0).map(Some),
        }
    }
}
