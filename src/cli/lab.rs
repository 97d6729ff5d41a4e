//! Hands commands to `turnstream-lab`, the program that measures and trains.

use std::env;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::anyhow;
use turnstream_console::{Exit, Usage};

/// The name of that program.
const LAB: &str = "turnstream-lab";

/// A command of `turnstream-lab`, with its flags and arguments, which are not read here.
#[derive(Clone, Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub struct HandedOver {
    #[arg(hide = true, num_args = 0.., trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl HandedOver {
    /// Whether the last line on standard output is to be a JSON object.
    pub(crate) fn json(&self) -> bool {
        self.arguments.iter().any(|argument| argument == "--json")
    }

    /// Replaces this process by `turnstream-lab`, with the whole command line. Prefers the program
    /// beside this one to the one on the path.
    ///
    /// # Errors
    /// There is no such program, or it cannot be started.
    pub(crate) fn execute(&self) -> anyhow::Result<Exit> {
        let beside = env::current_exe().ok().map(|program| program.with_file_name(LAB));
        let lab = beside.filter(|lab| lab.is_file()).unwrap_or_else(|| PathBuf::from(LAB));
        let error = Command::new(&lab).args(env::args_os().skip(1)).exec();
        Err(match error.kind() {
            ErrorKind::NotFound => {
                let what = format!("this is a command of {LAB}, which is not installed");
                let remedy =
                    "put it beside turnstream; `cargo build --release -p turnstream-lab` makes it";
                Usage::new(what, remedy).into()
            }
            _ => anyhow!("{} cannot be started: {error}", lab.display()),
        })
    }
}
