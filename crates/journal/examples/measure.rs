//! Measures how fast this machine's disk stores a log.
//!
//! Run the example with `cargo run --release -p dunlin-journal --example measure -- DIR`.
//!
//! The example first measures the disk without a journal: each step is a write as large as a commit, and a sync. This
//! measurement is repeated for files that are preallocated in four different ways. The example then measures commits to
//! a journal, and how long reading the whole journal takes.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use dunlin_journal::{CommitLoad, JournalConfig, measure_commits, measure_replay};

const COMMIT_BYTES: usize = 64 * 272 + 48;
const COMMITS: usize = 3_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::args().nth(1).unwrap_or_else(|| "target/journal-measure".to_owned());
    let dir = Path::new(&dir);
    std::fs::create_dir_all(dir)?;
    for preallocation in ["nothing", "fallocate", "zeros", "zeros, not synced"] {
        measure_disk(&dir.join("bare"), preallocation)?;
    }
    let begin = Instant::now();
    let now = || begin.elapsed().as_nanos() as u64;
    for (in_flight, payload_bytes, commits) in
        [(64, 256, 8_000), (1, 256, 8_000), (64, 1024, 4_000), (1024, 256, 1_000)]
    {
        for ahead_bytes in [1 << 10, 1 << 20, 4 << 20] {
            let log = dir.join("log");
            let _ = std::fs::remove_dir_all(&log);
            let config = JournalConfig { ahead_bytes, ..JournalConfig::default() };
            let load = CommitLoad { payload_bytes, in_flight, commits };
            let mut measured = measure_commits(&log, &load, config, now)?;
            measured.commits_ns.sort_unstable();
            let at =
                |q: f64| measured.commits_ns[((measured.commits_ns.len() - 1) as f64 * q) as usize] / 1000;
            println!(
                "journal {in_flight:>4} x {payload_bytes:>4} B, {:>4} KiB ahead: {:>9.0} records/s {:>6.1} MB/s, commit p10 {} p50 {} p99 {} max {} us",
                ahead_bytes >> 10,
                measured.records_per_s(),
                measured.bytes_per_s() / 1e6,
                at(0.1),
                at(0.5),
                at(0.99),
                at(1.0)
            );
        }
        let replayed = measure_replay(&dir.join("log"), now)?;
        println!(
            "replay  {:.2} GB/s, {:.1} M records/s",
            replayed.bytes_per_s() / 1e9,
            replayed.records_per_s() / 1e6
        );
    }
    std::fs::remove_dir_all(dir)?;
    Ok(())
}

fn measure_disk(path: &Path, preallocation: &str) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    let bytes = COMMITS * COMMIT_BYTES;
    match preallocation {
        "fallocate" => rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes as u64)?,
        "zeros" | "zeros, not synced" => file.write_all(&vec![0; bytes])?,
        _ => {}
    }
    if preallocation != "zeros, not synced" {
        file.sync_all()?;
    }
    let block = vec![7; COMMIT_BYTES];
    let mut elapsed_us = Vec::new();
    let start = Instant::now();
    for commit in 0..COMMITS {
        let begin = Instant::now();
        file.write_all_at(&block, (commit * COMMIT_BYTES) as u64)?;
        file.sync_data()?;
        elapsed_us.push(begin.elapsed().as_micros());
    }
    let per_s = COMMITS as f64 / start.elapsed().as_secs_f64();
    elapsed_us.sort_unstable();
    println!(
        "bare disk, {preallocation:<18}: {per_s:>6.0} commits/s of {COMMIT_BYTES} B, p10 {} p50 {} p99 {} us",
        elapsed_us[COMMITS / 10],
        elapsed_us[COMMITS / 2],
        elapsed_us[COMMITS * 99 / 100]
    );
    Ok(())
}
