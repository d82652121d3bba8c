//! `write URL SUBJECT [seed=N] [writer=N] [producer=N] [from=N] [count=N] [mode=mixed|batch|pipeline] [batch=N]
//! [pause=US]`: publishes numbered records, and writes its ledger to standard output.
//!
//! Runs until the test stops it, or until it has attempted to publish `count` records. Then publishes further records,
//! each with the next number, until one of them is acknowledged; this is the last record. A record whose call fails
//! counts as attempted, and is not published again.

use std::io::Write as _;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use dunlin_client::topic::{Draft, Publish, PublishError, Receipt};
use dunlin_client::{Client, ClientOptions, ProducerIdentity, Publisher, PublisherOptions};

use super::{option, stop_flag};
use crate::content::{BYTES_MIN, TestPayload};
use crate::seed::SeededRandom;

/// The longest time that a call may take: two heartbeats, and more because the machine may be busy.
const CALL_MAX: Duration = Duration::from_secs(30);

struct Writer {
    publisher: Publisher,
    writer: u32,
    seed: SeededRandom,
    n: u64,
}

/// Runs the role `write`, which publishes records.
pub fn run(arguments: &[String]) -> Result<()> {
    let stop = stop_flag();
    let client = Client::connect(&arguments[0], ClientOptions::default())?;
    let producer: u64 = option(arguments, "producer", 0)?;
    let identity = (producer > 0).then_some(ProducerIdentity { producer, epoch: 1 });
    let publisher =
        client.publisher_with(&arguments[1], PublisherOptions { identity, ..PublisherOptions::default() })?;
    let writer = option(arguments, "writer", 1)?;
    let seed = SeededRandom::new(option(arguments, "seed", 1)?);
    let from: u64 = option(arguments, "from", 1)?;
    let count: u64 = option(arguments, "count", u64::MAX)?;
    let mode: String = option(arguments, "mode", "mixed".to_owned())?;
    let batch: u64 = option(arguments, "batch", 30)?;
    let pause = Duration::from_micros(option(arguments, "pause", 500)?);
    let mut writer = Writer { publisher, writer, seed, n: from - 1 };
    while !stop.load(Ordering::Relaxed) && writer.n < count {
        let records = if mode == "mixed" { writer.seed.between(1, batch) } else { batch };
        let records = records.min(count - writer.n);
        let start = Instant::now();
        match (mode.as_str(), writer.seed.between(0, 2)) {
            ("batch", _) | ("mixed", 0) => writer.publish_in_batch(records)?,
            ("pipeline", _) | ("mixed", 1) => writer.publish_pipelined(records)?,
            _ => writer.publish_singly(records.min(3))?,
        }
        if start.elapsed() > 4 * CALL_MAX {
            print_line(&format!("hang {} ms", start.elapsed().as_millis()))?;
        }
        std::thread::sleep(pause);
    }
    writer.finish()
}

/// Writes a line immediately, so that no line of the ledger is lost if this process is killed.
fn print_line(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

impl Writer {
    fn content(&self, n: u64, last: bool) -> Vec<u8> {
        let content = TestPayload { writer: self.writer, n, last };
        // The size follows from the record's number. A record that is published a second time therefore has the same
        // content as before.
        content.encode(BYTES_MIN + (SeededRandom::new(n).draw() % 500) as usize)
    }

    fn publish_in_batch(&mut self, records: u64) -> Result<()> {
        let (first, last) = (self.n + 1, self.n + records);
        self.n = last;
        print_line(&format!("try {last}"))?;
        let contents: Vec<_> = (first..=last).map(|n| self.content(n, false)).collect();
        let drafts: Vec<Draft<'_>> = contents.iter().map(|content| content.as_slice().into()).collect();
        let outcome = self.run_timed(|publisher| publisher.publish_batch(&drafts))?;
        print_outcome(first, last, outcome)
    }

    fn publish_singly(&mut self, records: u64) -> Result<()> {
        for _ in 0..records {
            self.n += 1;
            print_line(&format!("try {}", self.n))?;
            let content = self.content(self.n, false);
            let outcome = self.run_timed(|publisher| publisher.publish(content.as_slice()))?;
            print_outcome(self.n, self.n, outcome)?;
        }
        Ok(())
    }

    fn publish_pipelined(&mut self, records: u64) -> Result<()> {
        let (first, last) = (self.n + 1, self.n + records);
        self.n = last;
        print_line(&format!("try {last}"))?;
        for n in first..=last {
            let content = self.content(n, false);
            if let Err(error) = self.run_timed(|publisher| publisher.send(content.as_slice()))? {
                return print_line(&format!("err {error}"));
            }
        }
        match self.run_timed(Publisher::flush)? {
            Ok(_) => print_line(&format!("acks {first} {last}")),
            Err(error) => print_line(&format!("err {error}")),
        }
    }

    fn finish(&mut self) -> Result<()> {
        for _ in 0..20 {
            self.n += 1;
            print_line(&format!("try {}", self.n))?;
            let content = self.content(self.n, true);
            let outcome = self.run_timed(|publisher| publisher.publish(content.as_slice()))?;
            let done = outcome.is_ok();
            print_outcome(self.n, self.n, outcome)?;
            if done {
                return print_line(&format!("last {}", self.n));
            }
        }
        bail!("the last record was not accepted")
    }

    /// Makes a call. If the call takes longer than [`CALL_MAX`], prints a line `hang` with its duration.
    fn run_timed<T>(&mut self, call: impl FnOnce(&mut Publisher) -> T) -> Result<T> {
        let start = Instant::now();
        let outcome = call(&mut self.publisher);
        if start.elapsed() > CALL_MAX {
            print_line(&format!("hang {} ms", start.elapsed().as_millis()))?;
        }
        Ok(outcome)
    }
}

fn print_outcome(first: u64, last: u64, outcome: Result<Receipt, PublishError>) -> Result<()> {
    match outcome {
        // The records had already been appended before. The receipt contains only the position of the last one, so the
        // ledger gets no positions for the records.
        Ok(receipt) if receipt.duplicate => print_line(&format!("acks {first} {last}")),
        Ok(receipt) => {
            let at = receipt.position;
            print_line(&format!("ack {first} {last} {} {}", at.epoch, at.seq))
        }
        Err(error) => print_line(&format!("err {error}")),
    }
}
