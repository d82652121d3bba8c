//! Publishing what a person gave: texts, lines and whole files, at a pace.

use std::io::{BufRead, BufReader, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dunlin_topic::{Draft, Meta, Payload, Publish, Receipt};

use crate::signals::Stop;

/// Sends records of one kind to one publisher.
#[derive(Debug)]
pub struct Feed<'a, P> {
    publisher: P,
    meta: Meta<'a>,
    pace: Option<Pace>,
    stop: Stop,
    sent: u64,
    last: Option<Receipt>,
}

/// So many records a second, at most.
#[derive(Debug)]
struct Pace {
    between: Duration,
    due: Instant,
}

impl<'a, P: Publish> Feed<'a, P> {
    pub fn new(publisher: P, meta: Meta<'a>, per_second: Option<f64>, stop: Stop) -> Feed<'a, P> {
        let pace =
            per_second.map(|rate| Pace { between: Duration::from_secs_f64(1.0 / rate), due: Instant::now() });
        Feed { publisher, meta, pace, stop, sent: 0, last: None }
    }

    /// Sends one record when its time has come; false when it is time to stop.
    pub fn send(&mut self, payload: &[u8]) -> Result<bool> {
        if !self.wait()? {
            return Ok(false);
        }
        self.publisher.send(Draft { meta: self.meta, payload: Payload::Copied(payload) })?;
        self.sent += 1;
        Ok(true)
    }

    /// Publishes one record if `last_seq` is still the log's last.
    pub fn send_expecting(&mut self, last_seq: u64, payload: &[u8]) -> Result<()> {
        let draft = Draft { meta: self.meta, payload: Payload::Copied(payload) };
        self.last = Some(self.publisher.publish_expecting(last_seq, draft)?);
        self.sent += 1;
        Ok(())
    }

    /// Sends each line. Before it waits for more of them, everything has been acknowledged: `idle` says when that is.
    pub fn send_lines(&mut self, lines: impl Read, idle: Option<&AtomicBool>) -> Result<bool> {
        let mut lines = BufReader::with_capacity(64 << 10, lines);
        let mut line = Vec::new();
        loop {
            line.clear();
            if !lines.buffer().contains(&b'\n') {
                self.flush()?;
                idle.inspect(|idle| idle.store(true, Ordering::SeqCst));
            }
            let bytes = lines.read_until(b'\n', &mut line).context("cannot read lines")?;
            idle.inspect(|idle| idle.store(false, Ordering::SeqCst));
            if bytes == 0 {
                return Ok(true);
            }
            if !self.send(line.strip_suffix(b"\n").unwrap_or(&line))? {
                return Ok(false);
            }
        }
    }

    /// Waits until everything is acknowledged.
    pub fn flush(&mut self) -> Result<()> {
        if let Some(receipt) = self.publisher.flush()? {
            self.last = Some(receipt);
        }
        Ok(())
    }

    /// How many records, and the last one's receipt.
    pub fn finish(mut self) -> Result<(u64, Option<Receipt>)> {
        self.flush()?;
        Ok((self.sent, self.last))
    }

    fn wait(&mut self) -> Result<bool> {
        let Some(due) = self.pace.as_ref().map(|pace| pace.due) else { return Ok(!self.stop.is_set()) };
        let now = Instant::now();
        if now < due {
            // Whoever asked for a pace wants to see each record in its time, not in a batch.
            self.flush()?;
        }
        while let Some(left) = due.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            if self.stop.is_set() {
                return Ok(false);
            }
            thread::sleep(left.min(Duration::from_millis(50)));
        }
        if let Some(pace) = &mut self.pace {
            // What was missed by over a second is not caught up with.
            pace.due = pace.due.max(now.checked_sub(Duration::from_secs(1)).unwrap_or(now)) + pace.between;
        }
        Ok(!self.stop.is_set())
    }
}

#[cfg(test)]
mod tests {
    use dunlin::{Config, Node};
    use dunlin_topic::{Event, Start, Subscribe, SubscribeOptions};

    use super::*;

    fn payloads(node: &Node) -> Vec<Vec<u8>> {
        let options = SubscribeOptions { start: Start::Earliest, ..SubscribeOptions::default() };
        let mut subscriber = node.subscribe("ticks", &options).unwrap();
        let mut payloads = Vec::new();
        while let Some(event) = subscriber.try_next().unwrap() {
            if let Event::Record(record) = event {
                payloads.push(record.payload().to_vec());
            }
        }
        payloads
    }

    #[test]
    fn each_line_is_a_record_without_its_newline_and_nothing_else_is_taken_away() {
        let node = Node::start(Config::default()).unwrap();
        let mut feed = Feed::new(node.publisher("ticks").unwrap(), Meta::default(), None, Stop::never());
        feed.send_lines(&b"one\r\n\nthree"[..], None).unwrap();
        let (sent, last) = feed.finish().unwrap();
        assert_eq!((sent, last.unwrap().position.seq), (3, 3));
        assert_eq!(payloads(&node), [&b"one\r"[..], b"", b"three"]);
    }

    #[test]
    fn a_pace_is_kept() {
        let node = Node::start(Config::default()).unwrap();
        let mut feed =
            Feed::new(node.publisher("ticks").unwrap(), Meta::default(), Some(200.0), Stop::never());
        let start = Instant::now();
        for _ in 0..11 {
            feed.send(b"tick").unwrap();
        }
        assert!(start.elapsed() >= Duration::from_millis(45), "{:?}", start.elapsed());
        assert_eq!(feed.finish().unwrap().0, 11);
    }
}
