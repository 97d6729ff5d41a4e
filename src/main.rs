//! The program: everything is in [`turnstream`].

use std::process::ExitCode;

fn main() -> ExitCode {
    turnstream::main(std::env::args_os())
}
