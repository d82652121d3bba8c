//! Metrics of the process, under the names that Prometheus' own client libraries use.

use std::fs;

use super::exposition::Exposition;
use super::exposition::MetricKind::{Counter, Gauge};

pub(super) fn write(out: &mut Exposition) {
    if let Some(bytes) = resident_bytes() {
        out.metric(Gauge, "process_resident_memory_bytes", "Resident memory.", bytes);
    }
    if let Some(seconds) = cpu_seconds() {
        out.metric(Counter, "process_cpu_seconds_total", "CPU time, user and system.", seconds);
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        out.metric(Gauge, "process_open_fds", "Open file descriptors.", open.count());
    }
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    if let Some(limit) = limit {
        out.metric(Gauge, "process_max_fds", "File descriptors that may be open.", limit);
    }
    if let Some(seconds) = start_seconds() {
        out.metric(
            Gauge,
            "process_start_time_seconds",
            "Start of the process, in seconds since 1970.",
            seconds,
        );
    }
}

/// Memory, CPU time, threads and open files of the process. A figure is `None` if the operating system does not provide
/// it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ProcessFigures {
    pub(crate) rss_bytes: Option<u64>,
    /// CPU time of the process, seconds.
    pub(crate) cpu_s: Option<f64>,
    pub(crate) threads: Option<u64>,
    pub(crate) open_files: Option<usize>,
}

impl ProcessFigures {
    pub(crate) fn now() -> ProcessFigures {
        ProcessFigures {
            rss_bytes: resident_bytes(),
            cpu_s: cpu_seconds(),
            threads: stat(17),
            open_files: fs::read_dir("/proc/self/fd").ok().map(Iterator::count),
        }
    }
}

fn resident_bytes() -> Option<u64> {
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

fn cpu_seconds() -> Option<f64> {
    let ticks: u64 = [11, 12].iter().map(|&at| stat(at)).sum::<Option<u64>>()?;
    Some(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

fn start_seconds() -> Option<f64> {
    let boot = fs::read_to_string("/proc/stat").ok()?;
    let boot: f64 = boot.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(boot + stat(19)? as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Reads a number from `/proc/self/stat`. `at` counts the fields that follow the process name, from 0; the name itself
/// may contain spaces. `None` if the field cannot be read.
fn stat(at: usize) -> Option<u64> {
    let line = fs::read_to_string("/proc/self/stat").ok()?;
    line.rsplit_once(')')?.1.split_whitespace().nth(at)?.parse().ok()
}
