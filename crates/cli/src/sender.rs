//! Publishes texts, lines and whole files. The user can limit the rate.
//!
//! If the connection is lost, the client keeps the records that have no response yet, and later sends them again with
//! the same record numbers, so that no record is appended twice. If the node has no room for records, it refuses them.
//! The sender then pauses, and sends the refused records again in order. Each further pause is longer.

use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use dunlin_topic::{Draft, Payload, Publish, PublishError, Receipt, RecordMeta};

use crate::console::{TextPainter, grouped};
use crate::input::{Chunk, Input, RECORD_BYTES_MAX};
use crate::outage::OutageReport;
use crate::signals::StopFlag;

/// A publisher that counts acknowledged records and can send refused records again.
pub trait CountingPublisher: Publish {
    fn acknowledged_records(&self) -> u64;

    fn send_refused_again(&mut self) -> Result<(), PublishError>;
}

impl CountingPublisher for dunlin_client::Publisher {
    fn acknowledged_records(&self) -> u64 {
        dunlin_client::Publisher::acknowledged_records(self)
    }

    fn send_refused_again(&mut self) -> Result<(), PublishError> {
        dunlin_client::Publisher::send_refused_again(self)
    }
}

/// Publishes records with the same key and headers through one publisher.
#[derive(Debug)]
pub struct RecordSender<'a, P> {
    publisher: P,
    meta: RecordMeta<'a>,
    rate_limit: Option<RateLimit>,
    stop: StopFlag,
    errors: TextPainter,
    outage: OutageReport,
    no_room: NoRoomClock,
    sent: u64,
    last: Option<Receipt>,
}

/// Measures since when the node has had no room for records, and how long to wait before the next attempt.
#[derive(Debug)]
struct NoRoomClock {
    /// How long the node may have no room before the command fails; `None` for no limit.
    patience: Option<Duration>,
    /// The time since which the node has had no room; `None` while it has room.
    since: Option<Instant>,
    /// The pause before the next attempt.
    pause: Duration,
    /// How many records had been acknowledged when the node last refused a record.
    acknowledged: u64,
}

/// The shortest pause between two attempts. Each pause is twice the previous one, up to `PAUSE_MAX`.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// The numbers of sent and of acknowledged records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendCounts {
    pub sent: u64,
    pub acknowledged: u64,
    /// The receipt of the last acknowledged record.
    pub last: Option<Receipt>,
}

/// A limit on the number of records sent per second.
#[derive(Debug)]
struct RateLimit {
    interval: Duration,
    due: Instant,
}

impl<'a, P: CountingPublisher> RecordSender<'a, P> {
    /// Creates a sender. `errors` colours the warnings on standard error.
    pub fn new(
        publisher: P,
        meta: RecordMeta<'a>,
        per_second: Option<f64>,
        patience: Option<Duration>,
        stop: StopFlag,
        errors: TextPainter,
    ) -> RecordSender<'a, P> {
        let rate_limit = per_second
            .map(|rate| RateLimit { interval: Duration::from_secs_f64(1.0 / rate), due: Instant::now() });
        let no_room = NoRoomClock { patience, since: None, pause: PAUSE_MIN, acknowledged: 0 };
        RecordSender {
            publisher,
            meta,
            rate_limit,
            stop,
            errors,
            outage: OutageReport::default(),
            no_room,
            sent: 0,
            last: None,
        }
    }

    /// Sends one record when the rate limit allows it. Returns `false` if the command has to end.
    pub fn send(&mut self, payload: &[u8]) -> Result<bool> {
        if !self.wait_until_due()? {
            return Ok(false);
        }
        let meta = self.meta;
        // An error other than `LeftOut` means that the publisher has not taken the record, so `retry` sends it again.
        let send = |publisher: &mut P| publisher.send(Draft { meta, payload: Payload::Copied(payload) });
        match self.retry(send) {
            Ok(sent) => {
                self.sent += u64::from(sent.is_some());
                Ok(sent.is_some())
            }
            Err(refused) if is_left_out(&refused) => {
                self.sent += 1;
                // An error here is ignored: the counts show how many records were not acknowledged.
                let _ = self.flush();
                Err(refused.context(format!("ended after {} records", grouped(self.sent))))
            }
            Err(error) => Err(error),
        }
    }

    /// Publishes one record on the condition that the log's last record still has the sequence number `last_seq`.
    pub fn send_expecting(&mut self, last_seq: u64, payload: &[u8]) -> Result<()> {
        let draft = Draft { meta: self.meta, payload: Payload::Copied(payload) };
        let outcome = self.publisher.publish_expecting(last_seq, draft);
        self.sent += u64::from(matches!(outcome, Ok(_) | Err(PublishError::Unknown(_))));
        match outcome {
            Ok(receipt) => self.last = Some(receipt),
            // The response has not arrived. The client sends the record again, and `flush` waits for the response.
            Err(PublishError::Unknown(why)) => {
                self.outage.report_once(&why, self.errors)?;
                self.flush()?;
            }
            Err(refused) => return Err(refused.into()),
        }
        Ok(())
    }

    /// Sends each line as a record. Waits until all sent records are acknowledged before it waits for more input.
    /// Returns `false` if the command has to end.
    pub fn send_lines(&mut self, lines: &Input) -> Result<bool> {
        const CONTEXT: &str = "cannot read lines";
        let mut partial_line = Vec::new();
        loop {
            let chunk = match lines.try_next().context(CONTEXT)? {
                Chunk::None => {
                    self.flush()?;
                    lines.next().context(CONTEXT)?
                }
                chunk => chunk,
            };
            let Chunk::Bytes(chunk) = chunk else { break };
            let mut lines = chunk.split_inclusive(|byte| *byte == b'\n');
            for line in &mut lines {
                let Some(end) = line.strip_suffix(b"\n") else {
                    partial_line.extend_from_slice(line);
                    if partial_line.len() > RECORD_BYTES_MAX {
                        // An error here is ignored: the counts show how many records were not acknowledged.
                        let _ = self.flush();
                        bail!("a line has more than {RECORD_BYTES_MAX} bytes");
                    }
                    break;
                };
                let sent = if partial_line.is_empty() {
                    self.send(end)?
                } else {
                    partial_line.extend_from_slice(end);
                    let sent = self.send(&partial_line)?;
                    partial_line.clear();
                    sent
                };
                if !sent {
                    return Ok(false);
                }
            }
        }
        if self.stop.is_set() {
            return Ok(false);
        }
        if partial_line.is_empty() { Ok(true) } else { self.send(&partial_line) }
    }

    /// Waits until all sent records are acknowledged.
    pub fn flush(&mut self) -> Result<()> {
        match self.retry(P::flush)? {
            Some(receipt) => self.last = receipt.or(self.last),
            None => return Err(PublishError::Unknown("the connection is lost".to_owned()).into()),
        }
        Ok(())
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> SendCounts {
        SendCounts { sent: self.sent, acknowledged: self.publisher.acknowledged_records(), last: self.last }
    }

    /// Calls `attempt` until the node can be reached and has room. Returns `None` if the command has to end before
    /// that.
    fn retry<T>(&mut self, mut attempt: impl FnMut(&mut P) -> Result<T, PublishError>) -> Result<Option<T>> {
        loop {
            match attempt(&mut self.publisher) {
                Ok(done) => {
                    self.outage.report_restored();
                    if self.no_room.since.is_some() {
                        self.no_room.reset_after_ack(self.publisher.acknowledged_records());
                    }
                    return Ok(Some(done));
                }
                Err(PublishError::Unknown(_)) if self.stop.is_set() => return Ok(None),
                Err(PublishError::Unknown(why)) => self.outage.report_once(&why, self.errors)?,
                Err(refused) => {
                    // If a new record were sent now, the publisher would discard the refused records, so these are sent
                    // again first.
                    let mut refused = Some(refused);
                    while let Some(why) = refused {
                        match why {
                            PublishError::Unknown(_) if self.stop.is_set() => return Ok(None),
                            PublishError::Unknown(why) => self.outage.report_once(&why, self.errors)?,
                            why => self.wait_for_room(why)?,
                        }
                        refused = self.publisher.send_refused_again().err();
                    }
                }
            }
        }
    }

    /// Waits before the next attempt. If another attempt makes no sense or the command has to end, returns `refused` as
    /// an error instead.
    fn wait_for_room(&mut self, refused: PublishError) -> Result<()> {
        let acknowledged = self.publisher.acknowledged_records();
        if !has_no_room(&refused) || self.stop.is_set() || !self.no_room.may_wait(acknowledged) {
            return Err(refused.into());
        }
        if self.no_room.since.is_none() {
            self.no_room.since = Some(Instant::now());
            let what = if matches!(refused, PublishError::OwnerAway(_)) { "not taken:" } else { "no room:" };
            let mark = self.errors.warning(what);
            writeln!(std::io::stderr(), "{mark} {refused}; retrying")?;
        }
        self.stop.sleep(self.no_room.pause);
        self.no_room.pause = (self.no_room.pause * 2).min(PAUSE_MAX);
        Ok(())
    }

    fn wait_until_due(&mut self) -> Result<bool> {
        let Some(due) = self.rate_limit.as_ref().map(|rate_limit| rate_limit.due) else {
            return Ok(!self.stop.is_set());
        };
        let now = Instant::now();
        if now < due {
            // A rate limit spreads the records over time, so a record is sent at once and does not wait for the next
            // ones.
            self.flush()?;
        }
        while let Some(left) = due.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            if self.stop.is_set() {
                return Ok(false);
            }
            thread::sleep(left.min(Duration::from_millis(50)));
        }
        if let Some(rate_limit) = &mut self.rate_limit {
            // A sender that is late may catch up by at most 1 s, so that it does not exceed the rate for long.
            rate_limit.due = rate_limit.due.max(now.checked_sub(Duration::from_secs(1)).unwrap_or(now))
                + rate_limit.interval;
        }
        Ok(!self.stop.is_set())
    }
}

impl NoRoomClock {
    fn may_wait(&mut self, acknowledged: u64) -> bool {
        if self.since.is_some() {
            self.reset_after_ack(acknowledged);
        }
        self.acknowledged = acknowledged;
        self.patience
            .is_none_or(|patience| self.since.map_or(Duration::ZERO, |since| since.elapsed()) < patience)
    }

    /// If the node has acknowledged records since its last refusal, it had room again: clears `since`. The node may
    /// still refuse records that were sent later.
    fn reset_after_ack(&mut self, acknowledged: u64) {
        if acknowledged > self.acknowledged {
            (self.since, self.pause) = (None, PAUSE_MIN);
        }
    }
}

/// Whether the error concerns only an earlier record. In this case, the record of the failed call was sent.
fn is_left_out(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(PublishError::LeftOut { .. }))
}

fn has_no_room(refused: &PublishError) -> bool {
    matches!(
        refused,
        PublishError::Full { .. }
            | PublishError::BudgetSpent { .. }
            | PublishError::DiskBehind { .. }
            | PublishError::OwnerBehind { .. }
            | PublishError::OwnerAway(_)
            | PublishError::DiskFull(_)
    )
}

#[cfg(test)]
mod tests {
    use dunlin::{Config, Node};
    use dunlin_topic::{Event, Start, Subscribe, SubscribeOptions};

    use super::*;

    impl CountingPublisher for dunlin_topic::Publisher {
        fn acknowledged_records(&self) -> u64 {
            0
        }

        /// Does nothing: the node refuses a record before this publisher takes it, so the publisher has no refused
        /// records.
        fn send_refused_again(&mut self) -> Result<(), PublishError> {
            Ok(())
        }
    }

    fn sender(node: &Node, per_second: Option<f64>) -> RecordSender<'static, dunlin_topic::Publisher> {
        let publisher = node.publisher("ticks").unwrap();
        RecordSender::new(
            publisher,
            RecordMeta::default(),
            per_second,
            None,
            StopFlag::never(),
            TextPainter::PLAIN,
        )
    }

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
    fn each_input_line_becomes_one_record_without_its_newline() {
        let node = Node::start(Config::default()).unwrap();
        let mut sender = sender(&node, None);
        sender.send_lines(&Input::new(&b"one\r\n\nthree"[..], StopFlag::never())).unwrap();
        sender.flush().unwrap();
        let counts = sender.counts();
        assert_eq!((counts.sent, counts.last.unwrap().position.seq), (3, 3));
        assert_eq!(payloads(&node), [&b"one\r"[..], b"", b"three"]);
    }

    #[test]
    fn overlong_line_is_refused_after_earlier_lines_are_sent() {
        let node = Node::start(Config::default()).unwrap();
        let mut sender = sender(&node, None);
        let lines = std::io::Read::chain(&b"one\n"[..], std::io::repeat(b'x'));
        let refused = sender.send_lines(&Input::new(lines, StopFlag::never())).unwrap_err();
        assert_eq!(refused.to_string(), "a line has more than 16777216 bytes");
        assert_eq!(payloads(&node), [b"one"]);
    }

    #[test]
    fn records_are_sent_no_faster_than_the_given_rate() {
        let node = Node::start(Config::default()).unwrap();
        let mut sender = sender(&node, Some(200.0));
        let start = Instant::now();
        for _ in 0..11 {
            sender.send(b"tick").unwrap();
        }
        assert!(start.elapsed() >= Duration::from_millis(45), "{:?}", start.elapsed());
        assert_eq!(sender.counts().sent, 11);
    }
}
