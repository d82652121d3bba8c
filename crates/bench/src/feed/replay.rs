//! Replays a recording into an order book on one core. The replay reads files, checks every block, and applies every
//! record.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use dunlin::topic::frame::{Frame, RecordMeta};
use dunlin_feed::{Book, Instruments, InstrumentsText, Scale, Simulator};
use dunlin_journal::{AppendBatch, Journal, JournalConfig, Position, Reader, RealDisk, ScanItem};

use crate::clock::monotonic_ns;
use crate::point::{BenchContext, RunSample};
use crate::sockets::unused_path;

const NAME: &str = "md.BTC-USD";
/// The number of records in a block of the recording. In a busy feed, a journal commits about as many records together.
const BLOCK_RECORDS: u32 = 512;

/// Writes a recording with `updates` updates, and measures its replay.
pub fn measure(_: &BenchContext, updates: u64) -> Result<RunSample> {
    let folder = unused_path("replay");
    let measured = write(&folder, updates).and_then(|sum| replay(&folder, updates, sum));
    // If the removal fails, the operating system removes the temporary directory later.
    let _ = std::fs::remove_dir_all(&folder);
    measured
}

/// Writes the recording. Returns the checksum of the order book after the last update.
fn write(folder: &Path, updates: u64) -> Result<u64> {
    let file = InstrumentsText::scenario("baseline_1x1_10k")
        .context("there is no built-in scenario `baseline_1x1_10k`")?;
    let instruments: Instruments = file.parse()?;
    let mut simulator = Simulator::new(&instruments, 123);
    let mut book = Book::new(Scale::default());
    let opened = Journal::open(Arc::new(RealDisk), folder, NAME, JournalConfig::default());
    let (mut journal, _) = opened.context("cannot make a recording")?;
    let (mut payload, mut frames, mut count) = (Vec::new(), Vec::new(), 0);
    for seq in 1..=updates {
        payload.clear();
        match seq {
            1 => simulator.whole_book(0, &mut payload),
            _ => {
                simulator.update(0, &mut payload);
            }
        }
        book.apply_payload(seq, &payload)?;
        add_frame(&payload, seq, &mut frames)?;
        count += 1;
        if count == BLOCK_RECORDS || seq == updates {
            let first_seq = seq + 1 - u64::from(count);
            let parts: [&[u8]; 1] = [&frames];
            let (first_time_ns, last_time_ns) = (first_seq, seq);
            journal.append(&AppendBatch {
                epoch: 1,
                first_seq,
                count,
                first_time_ns,
                last_time_ns,
                frames: &parts,
            })?;
            (count, _) = (0, frames.clear());
        }
    }
    journal.close().context("cannot end a recording")?;
    Ok(dunlin::topic::Reducer::checksum(&book))
}

fn add_frame(payload: &[u8], time_ns: u64, frames: &mut Vec<u8>) -> Result<()> {
    let meta = RecordMeta { event_time_ns: Some(time_ns), ..RecordMeta::default() };
    let measured = meta.measure(payload.len())?;
    let at = frames.len();
    frames.resize(at + measured.padded(), 0);
    meta.encode(measured, time_ns, payload, &mut frames[at..]);
    Ok(())
}

fn replay(folder: &Path, updates: u64, sum: u64) -> Result<RunSample> {
    let start_ns = monotonic_ns();
    let reader = Reader::open(Arc::new(RealDisk), folder).context("cannot open the recording")?;
    let mut scan = reader.scan(Position::default());
    let mut book = Book::new(Scale::default());
    let (mut seq, mut bytes) = (0, 0);
    while let Some(item) = scan.next()? {
        let ScanItem::Records(records) = item else { bail!("the recording has a gap after record {seq}") };
        bytes += records.frames.len();
        let mut rest = records.frames;
        while let Some((frame, frame_bytes)) = Frame::split(rest) {
            seq += 1;
            book.apply_payload(seq, frame.payload())?;
            rest = &rest[frame_bytes..];
        }
    }
    let elapsed_ns = monotonic_ns() - start_ns;
    ensure!(seq == updates, "{seq} of {updates} records arrived");
    ensure!(
        dunlin::topic::Reducer::checksum(&book) == sum,
        "the replayed book differs from the recorded one"
    );
    let per_s = |count: f64| count * 1e9 / elapsed_ns.max(1) as f64;
    Ok(RunSample::new()
        .with("events_per_s", per_s(seq as f64))
        .with("bytes_per_s", per_s(bytes as f64))
        .with("event_ns", elapsed_ns as f64 / seq as f64))
}
