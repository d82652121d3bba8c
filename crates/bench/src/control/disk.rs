//! The disk's floor: one file written from front to back, each write synced before the next; and what processes write beside it.

use std::fs::OpenOptions;
use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::clock::monotonic_ns;
use crate::payload::FILLER;
use crate::point::Sample;
use crate::scratch_disk::ScratchDisk;
use crate::stats::Latencies;

/// What a log that is written as fast as the disk takes it is written in.
pub const LARGE_BYTES: usize = 1 << 20;
/// What a single small commit takes.
pub const SMALL_BYTES: usize = 4 << 10;

/// Writes of so many bytes, one fdatasync each.
pub fn measure(bytes: usize, time: Duration) -> Result<Sample> {
    let dir = ScratchDisk::new()?;
    let path = dir.path().join("sequential");
    let mut file = OpenOptions::new().create_new(true).write(true).open(&path)?;
    let block: Vec<u8> = FILLER.to_le_bytes().into_iter().cycle().take(bytes).collect();
    let (start_ns, mut latencies, mut writes) = (monotonic_ns(), Latencies::default(), 0_u64);
    let (end_ns, mut before_ns) = (start_ns + time.as_nanos() as u64, start_ns);
    while before_ns < end_ns {
        file.write_all(&block)?;
        file.sync_data()?;
        let after_ns = monotonic_ns();
        latencies.record(after_ns - before_ns);
        (before_ns, writes) = (after_ns, writes + 1);
    }
    let per_s = writes as f64 * 1e9 / (before_ns - start_ns) as f64;
    Ok(Sample::new()
        .with("bytes_per_s", per_s * bytes as f64)
        .with("ops_per_s", per_s)
        .and(latencies.sample()))
}

/// What processes have had written to disks since they began, bytes.
pub fn written(processes: &[u32]) -> Result<u64> {
    let of = |process: &u32| {
        let path = format!("/proc/{process}/io");
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
        let bytes = text.lines().find_map(|line| line.strip_prefix("write_bytes: ")?.parse::<u64>().ok());
        bytes.with_context(|| format!("{path} has no write_bytes"))
    };
    processes.iter().map(of).sum()
}
