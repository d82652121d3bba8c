//! Pins threads to processor cores.
//!
//! Spinning threads are pinned, so that the two sides of a measurement, such as publisher and subscriber, never share a
//! core by chance. The threads of comparison measurements, such as those of bare sockets, are pinned too. A thread or
//! process inherits the pinning of the thread that starts it.

use anyhow::{Context, Result, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Keeps the calling thread on one processor core until the value is dropped.
#[derive(Debug)]
pub struct CpuPin {
    previous: CpuSet,
}

/// Whether the two sides of a measurement each run on a fixed processor core, or on any core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CorePinning {
    /// The kernel may run both sides on any core.
    Free,
    /// Each side runs on a core of its own.
    Apart,
}

impl CorePinning {
    /// Returns the value for the parameter `pin` of a measurement.
    pub fn name(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Apart => "apart",
        }
    }

    /// Parses the value of the parameter `pin` of a measurement.
    pub fn parse(text: &str) -> Result<Self> {
        match text {
            "free" => Ok(Self::Free),
            "apart" => Ok(Self::Apart),
            other => anyhow::bail!("unknown value pin={other}: use pin=free or pin=apart"),
        }
    }

    /// Pins the calling thread to the core of side 0 or side 1 of a measurement; does nothing for
    /// [`CorePinning::Free`]. On a machine with one core, both sides share that core; a warning before the run says so.
    pub fn side(self, side: usize) -> Result<Option<CpuPin>> {
        match self {
            Self::Free => Ok(None),
            Self::Apart if usable()? == 1 => CpuPin::to_nth(0).map(Some),
            Self::Apart => CpuPin::to_nth(side).map(Some),
        }
    }
}

impl CpuPin {
    /// Pins the calling thread to the core with index `nth` among the cores that the thread may use.
    pub fn to_nth(nth: usize) -> Result<Self> {
        let previous =
            sched_getaffinity(None).context("cannot read the CPU cores that this process may use")?;
        let allowed: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| previous.is_set(*cpu)).collect();
        ensure!(
            nth < allowed.len(),
            "core {nth} is not available: this process may use {} cores",
            allowed.len()
        );
        let mut only = CpuSet::new();
        only.set(allowed[nth]);
        sched_setaffinity(None, &only).context("cannot pin a thread to a CPU core")?;
        Ok(Self { previous })
    }
}

/// Returns the number of cores that the calling thread may use.
fn usable() -> Result<u32> {
    Ok(sched_getaffinity(None).context("cannot read the CPU cores that this process may use")?.count())
}

impl Drop for CpuPin {
    fn drop(&mut self) {
        // The previous set of cores was valid, so a failure is not expected, and is ignored.
        let _ = sched_setaffinity(None, &self.previous);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropping_a_cpu_pin_restores_the_affinity_of_the_thread() {
        let previous = sched_getaffinity(None).unwrap().count();
        let pinned = CpuPin::to_nth(0).unwrap();
        assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
        drop(pinned);
        assert_eq!(sched_getaffinity(None).unwrap().count(), previous);
    }

    #[test]
    fn benchmark_client_and_node_can_be_pinned_to_a_single_core() {
        // Restricts this thread to one core, as the command `taskset -c 0` does for a process.
        let _only = CpuPin::to_nth(0).unwrap();
        assert!(
            CorePinning::Apart.side(0).unwrap().is_some() && CorePinning::Apart.side(1).unwrap().is_some()
        );
    }

    #[test]
    fn pinning_to_a_missing_core_is_an_error() {
        assert!(CpuPin::to_nth(100_000).is_err());
    }
}
