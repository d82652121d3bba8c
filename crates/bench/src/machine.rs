//! Describes the machine, the commit and the time of a benchmark run.

use std::process::Command;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

/// The processor, memory and kernel of the machine on which a benchmark ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineDescription {
    /// The name of the processor.
    pub processor: String,
    /// The number of cores that this process may use.
    pub cores: u64,
    /// The size of the memory in bytes.
    pub memory_bytes: u64,
    /// The name and the version of the kernel.
    pub kernel: String,
}

impl MachineDescription {
    /// Describes this machine. A property that cannot be found out is empty.
    pub fn current() -> Self {
        Self {
            processor: proc_field("/proc/cpuinfo", "model name").unwrap_or_default(),
            cores: std::thread::available_parallelism().map_or(0, |cores| cores.get() as u64),
            memory_bytes: proc_field("/proc/meminfo", "MemTotal").and_then(|text| kib(&text)).unwrap_or(0),
            kernel: read("/proc/sys/kernel/ostype") + " " + &read("/proc/sys/kernel/osrelease"),
        }
    }
}

impl std::fmt::Display for MachineDescription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let gib = self.memory_bytes as f64 / (1u64 << 30) as f64;
        write!(f, "{}, {} cores, {gib:.0} GiB, {}", self.processor, self.cores, self.kernel)
    }
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn proc_field(path: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_once(':').map(|(_, value)| value.trim().to_owned())
}

fn kib(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Returns the current time in UTC, such as `2026-11-20T11:40:02Z`.
pub fn now_utc() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

/// Returns the commit that is checked out, followed by `+` if files were changed since that commit. Returns `unknown`
/// outside a checkout.
pub fn commit() -> String {
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else { return "unknown".to_owned() };
    // The benchmarks themselves change stored runs and the report, so changes of these files are ignored.
    let changed =
        git(&["status", "--porcelain", "--untracked-files=no", "--", ":!bench-runs", ":!docs/benchmarks.md"]);
    if changed.is_some_and(|changed| !changed.is_empty()) { commit + "+" } else { commit }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_description_has_cores_memory_and_kernel() {
        let machine = MachineDescription::current();
        assert!(machine.cores >= 1);
        assert!(machine.memory_bytes > 1 << 20);
        assert!(machine.kernel.starts_with("Linux"));
    }

    #[test]
    fn dates_sort_correctly_as_text() {
        let now = now_utc();
        assert_eq!(now.len(), "2026-11-20T11:40:02Z".len());
        assert!(now.ends_with('Z'));
    }
}
