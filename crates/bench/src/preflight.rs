//! Checks whether the conditions on this machine would distort measurements. Warnings about such conditions are printed
//! before a run, and are stored with the run.
//!
//! Only [`PreflightReport::collect`] reads `/proc` and `/sys`. The warnings are computed from the returned report, so
//! that tests can check them. A warning never stops a run.

use std::time::Duration;

/// The conditions on this machine, such as other load, that may distort the figures of the next benchmark run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PreflightReport {
    /// Whether this program was compiled without optimisation.
    pub debug_build: bool,
    /// Whether the user asked for fewer and shorter runs.
    pub quick: bool,
    /// The number of cores that this process may use.
    pub cores: u64,
    /// The load average of the last minute.
    pub load: Option<f64>,
    /// The share of a short time during which other virtual machines used this machine's processor (steal).
    pub steal_share: Option<f64>,
    /// The frequency governor of the processor.
    pub governor: Option<String>,
}

const STEAL_WINDOW: Duration = Duration::from_millis(200);
const LOAD_WARNED_PER_CORE: f64 = 0.25;
const STEAL_WARNED: f64 = 0.01;
const CORES_WANTED: u64 = 4;

impl PreflightReport {
    /// Collects the conditions. The call takes a fifth of a second, because steal is measured over time.
    pub fn collect(quick: bool) -> Self {
        let before = read_stat();
        std::thread::sleep(STEAL_WINDOW);
        let after = read_stat();
        Self {
            debug_build: cfg!(debug_assertions),
            quick,
            cores: std::thread::available_parallelism().map_or(0, |cores| cores.get() as u64),
            load: read("/proc/loadavg").and_then(|text| text.split(' ').next()?.parse().ok()),
            steal_share: before.zip(after).map(|(before, after)| steal_share(&before, &after)),
            governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
                .map(|text| text.trim().to_owned()),
        }
    }

    /// Returns the warnings, for printing with the figures.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.debug_build {
            warnings.push("debug build: figures mean nothing; build with --release".to_owned());
        }
        if self.quick {
            warnings.push("quick mode: few short runs, refused by the report".to_owned());
        }
        if self.cores < CORES_WANTED {
            warnings.push(format!(
                "servers, clients and the kernel share {} cores: compare ratios, not absolute figures",
                self.cores
            ));
        }
        if let Some(load) = self.load.filter(|load| *load > LOAD_WARNED_PER_CORE * self.cores as f64) {
            warnings.push(format!("load average {load:.2} before the start: other programs were running"));
        }
        if let Some(steal) = self.steal_share.filter(|steal| *steal > STEAL_WARNED) {
            warnings.push(format!("{:.1} % of the time was stolen by other virtual machines", steal * 100.0));
        }
        if let Some(governor) = self.governor.as_deref().filter(|governor| *governor != "performance") {
            warnings.push(format!("CPU governor `{governor}`: the clock may change during a run"));
        }
        warnings
    }
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// Returns the numbers in the first line of `/proc/stat`, which are user, nice, system, idle, iowait, irq, softirq and
/// steal.
fn read_stat() -> Option<Vec<u64>> {
    let text = read("/proc/stat")?;
    text.lines().next()?.strip_prefix("cpu ")?.split_whitespace().map(|number| number.parse().ok()).collect()
}

fn steal_share(before: &[u64], after: &[u64]) -> f64 {
    const STEAL: usize = 7;
    let totals = |numbers: &[u64]| {
        (numbers.iter().take(STEAL + 1).sum::<u64>(), numbers.get(STEAL).copied().unwrap_or(0))
    };
    let ((all_before, steal_before), (all_after, steal_after)) = (totals(before), totals(after));
    let all = all_after.saturating_sub(all_before);
    if all == 0 { 0.0 } else { steal_after.saturating_sub(steal_before) as f64 / all as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idle_machine() -> PreflightReport {
        PreflightReport {
            cores: 16,
            load: Some(0.1),
            steal_share: Some(0.0),
            governor: Some("performance".into()),
            ..PreflightReport::default()
        }
    }

    #[test]
    fn idle_machine_gets_no_warning() {
        assert_eq!(idle_machine().warnings(), Vec::<String>::new());
    }

    #[test]
    fn each_cause_of_distorted_results_gets_one_warning() {
        let troubles = [
            (PreflightReport { debug_build: true, ..idle_machine() }, "debug build"),
            (PreflightReport { quick: true, ..idle_machine() }, "quick mode"),
            (PreflightReport { cores: 2, ..idle_machine() }, "2 cores"),
            (PreflightReport { load: Some(9.0), ..idle_machine() }, "load average 9.00"),
            (PreflightReport { steal_share: Some(0.05), ..idle_machine() }, "5.0 %"),
            (PreflightReport { governor: Some("powersave".into()), ..idle_machine() }, "powersave"),
        ];
        for (observed, text) in troubles {
            let warnings = observed.warnings();
            assert_eq!(warnings.len(), 1, "{observed:?}");
            assert!(warnings[0].contains(text), "{warnings:?}");
        }
    }

    #[test]
    fn share_of_stolen_cpu_time_is_computed_from_two_samples() {
        let before = [100, 0, 100, 100, 0, 0, 0, 10, 0, 0];
        let after = [140, 0, 120, 120, 0, 0, 0, 30, 0, 0];
        assert_eq!(steal_share(&before, &after), 0.2);
        assert_eq!(steal_share(&before, &before), 0.0);
    }
}
