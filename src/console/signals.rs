//! SIGTERM and SIGINT: the first asks for a clean stop, a second one stops at once.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// A flag that the first signal sets. A second signal ends the process with code 1.
///
/// # Errors
/// Where the system refuses the handlers.
pub fn stop_on_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first signal finds the flag unset and passes.
        flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop))
            .and_then(|_| flag::register(signal, Arc::clone(&stop)))
            .context("signal handlers could not be installed")?;
    }
    Ok(stop)
}

/// A flag that SIGINT sets, for who is to clear it once the work ended that was to end. A second
/// SIGINT before that ends the process, with what a shell gives for it.
///
/// # Errors
/// Where the system refuses the handlers.
pub fn interruptions() -> anyhow::Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    flag::register_conditional_shutdown(SIGINT, 128 + SIGINT, Arc::clone(&interrupted))
        .and_then(|_| flag::register(SIGINT, Arc::clone(&interrupted)))
        .context("signal handlers could not be installed")?;
    Ok(interrupted)
}
