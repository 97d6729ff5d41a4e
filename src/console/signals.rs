//! SIGTERM and SIGINT: the first asks for a clean stop, the second stops at once.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// Returns a flag that the first signal sets. A second signal ends the process with code 1.
///
/// # Errors
/// The system refuses the handlers.
pub fn stop_on_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // The order matters: at the first signal the flag is unset, so the shutdown handler does
        // nothing.
        flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop))
            .and_then(|_| flag::register(signal, Arc::clone(&stop)))
            .context("signal handlers could not be installed")?;
    }
    Ok(stop)
}

/// Returns a flag that SIGINT sets. The caller clears it once the interrupted work has ended. A
/// second SIGINT before that ends the process, with the exit code that a shell uses.
///
/// # Errors
/// The system refuses the handlers.
pub fn interruptions() -> anyhow::Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    flag::register_conditional_shutdown(SIGINT, 128 + SIGINT, Arc::clone(&interrupted))
        .and_then(|_| flag::register(SIGINT, Arc::clone(&interrupted)))
        .context("signal handlers could not be installed")?;
    Ok(interrupted)
}
