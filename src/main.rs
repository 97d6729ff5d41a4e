//! The program: everything is in [`turnstream::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    turnstream::cli::main(std::env::args_os())
}
