//! Ctrl-C and SIGTERM: the first asks, the second insists.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// What a shell reports of a program that Ctrl-C ended.
const INTERRUPTED: i32 = 130;

/// Set when it is time to end.
#[derive(Debug, Clone)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Listens from now on.
    pub fn on_signal() -> Result<Stop> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // In this order: a second signal finds the flag of the first.
            flag::register_conditional_shutdown(signal, INTERRUPTED, Arc::clone(&stop))
                .and_then(|_| flag::register(signal, Arc::clone(&stop)))
                .context("cannot listen for signals")?;
        }
        Ok(Stop(stop))
    }

    /// Until the flag that comes back is lowered, a signal ends the process at once: for waits that cannot be
    /// interrupted, while nothing would be lost.
    pub fn unless_idle(&self) -> Result<Arc<AtomicBool>> {
        let idle = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            flag::register_conditional_shutdown(signal, INTERRUPTED, Arc::clone(&idle))
                .context("cannot listen for signals")?;
        }
        Ok(idle)
    }

    #[cfg(test)]
    pub fn never() -> Stop {
        Stop(Arc::new(AtomicBool::new(false)))
    }

    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
