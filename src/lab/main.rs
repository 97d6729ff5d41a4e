//! Runs `turnstream-lab`; see [`turnstream_lab`].

use std::process::ExitCode;

fn main() -> ExitCode {
    turnstream_lab::main(std::env::args_os())
}
