//! Measures how fast the disk allows durable writes at best (the floor): sequential writes to one file, with a sync
//! after each write. This module can also measure how many bytes are written to the disk while a cluster is under load.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Result;

use crate::clock::monotonic_ns;
use crate::payload::FILLER;
use crate::point::RunSample;
use crate::scratch_disk::ScratchDisk;
use crate::stats::Latencies;

/// The size of a large write in bytes. For such writes, the disk's throughput is the limit.
pub const LARGE_BYTES: usize = 1 << 20;
/// The size of a small write in bytes. A node's log makes such a write for a single request.
pub const SMALL_BYTES: usize = 4 << 10;

/// Appends `bytes` bytes to a file and calls fdatasync, again and again until `time` is over.
pub fn measure(bytes: usize, time: Duration) -> Result<RunSample> {
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
    Ok(RunSample::new()
        .with("bytes_per_s", per_s * bytes as f64)
        .with("ops_per_s", per_s)
        .and(latencies.sample()))
}

const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);

/// Measures how many bytes are written to a disk, with the disk's counter in the operating system. The operating
/// system's counters for processes cannot be used: with large folios in the page cache, they count a small write as a
/// whole folio.
pub struct DiskWatch {
    samples: JoinHandle<Vec<DiskSample>>,
    stop: Sender<()>,
}

/// A time in ns, and the number of bytes that have been written to the disk up to that time.
type DiskSample = (u64, u64);

impl DiskWatch {
    /// Starts to observe the disk of the scratch directory. Returns `None` if the operating system counts no writes for
    /// that disk, as for a container's file system.
    pub fn start() -> Result<Option<Self>> {
        let dir = ScratchDisk::new()?;
        let device = std::fs::metadata(dir.path())?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let path = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"));
        if bytes_written(&path).is_none() {
            return Ok(None);
        }
        let (stop, stopped) = channel();
        let samples = thread::spawn(move || {
            let mut samples = Vec::new();
            while stopped.recv_timeout(SAMPLE_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                samples.extend(bytes_written(&path).map(|bytes| (monotonic_ns(), bytes)));
            }
            samples
        });
        Ok(Some(Self { samples, stop }))
    }

    /// Stops the observation. Returns the highest rate over any period of length `window`, in bytes per second.
    pub fn max_bytes_per_s(self, window: Duration) -> Option<f64> {
        let _ = self.stop.send(());
        max_bytes_per_s(&self.samples.join().ok()?, window)
    }
}

fn max_bytes_per_s(samples: &[DiskSample], window: Duration) -> Option<f64> {
    let per_s = |(from, (start_ns, before)): (usize, &DiskSample)| {
        let spans_window = |(now_ns, _): &&DiskSample| now_ns - start_ns >= window.as_nanos() as u64;
        let (now_ns, bytes) = samples[from..].iter().find(spans_window)?;
        Some((bytes - before) as f64 * 1e9 / (now_ns - start_ns) as f64)
    };
    samples.iter().enumerate().filter_map(per_s).max_by(f64::total_cmp)
}

/// Returns the number of bytes written to a device. `stat` is the path of the device's file `stat`, in which the
/// seventh field counts sectors of 512 bytes (see Documentation/block/stat.rst of the kernel).
fn bytes_written(stat: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(stat).ok()?;
    Some(text.split_whitespace().nth(6)?.parse::<u64>().ok()? * 512)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn highest_write_rate_is_measured_over_the_busiest_window() {
        let seconds = |at: u64, bytes: u64| (at * 1_000_000_000, bytes);
        let samples = [seconds(0, 0), seconds(1, 10), seconds(2, 110), seconds(3, 230), seconds(4, 231)];
        assert_eq!(max_bytes_per_s(&samples, Duration::from_secs(2)), Some(110.0));
        assert_eq!(
            max_bytes_per_s(&samples, Duration::from_secs(5)),
            None,
            "the samples span less than five seconds"
        );
    }
}
