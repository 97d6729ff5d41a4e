//! The program: everything is in [`turnstream`].

use std::process::ExitCode;

/// Turns make and drop many small values: docs/measurements/speed.md has the gain.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    turnstream::main(std::env::args_os())
}
