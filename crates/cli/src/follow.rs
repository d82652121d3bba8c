//! Reads the events of a subscriber and writes them to the output, for `dunlin sub` and `dunlin log dump`.

mod member;

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use dunlin_client::Client;
use dunlin_topic::{Event, Subscribe, SubscribeError};

use crate::format::EventPrinter;
use crate::outage::OutageReport;
use crate::signals::StopFlag;

pub use member::{MemberLoop, RecordHandling};

/// When a subscribing command stops by itself, and how long it pauses after each record.
#[derive(Debug, Clone, Copy, Default)]
pub struct StopRules {
    /// Maximum number of records that all subscribers of the command receive together.
    pub count: Option<u64>,
    /// The time without events after which the command stops.
    pub idle: Option<Duration>,
    /// The pause after each record.
    pub sleep: Option<Duration>,
}

/// The output that several subscribers of one command share.
#[derive(Debug)]
pub struct FollowOutput<W> {
    pub rules: StopRules,
    pub writer: EventPrinter,
    out: Mutex<W>,
    written: AtomicU64,
    stop: StopFlag,
    /// The client of the subscribers; `None` if outages of its connection are not reported.
    client: Option<Client>,
}

/// Interval at which an idle subscriber checks whether to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The maximum number of events that a subscriber writes before another subscriber may use the output.
const BATCH_EVENTS_MAX: u32 = 1024;

/// The number of events that one call of [`write_batch`](FollowOutput::write_batch) wrote.
struct EventCount(u32);

impl<W: Write> FollowOutput<W> {
    pub fn new(rules: StopRules, writer: EventPrinter, out: W, stop: StopFlag) -> FollowOutput<W> {
        FollowOutput { rules, writer, out: Mutex::new(out), written: AtomicU64::new(0), stop, client: None }
    }

    /// Makes this output report on standard error when the connection of `client`, the subscribers' client, is lost or
    /// restored.
    pub fn with_client(self, client: Client) -> FollowOutput<W> {
        FollowOutput { client: Some(client), ..self }
    }

    /// Writes all events of the subscriber until one of [`StopRules`] or a signal ends the command. Waits while the
    /// connection is lost.
    pub fn follow(&self, subscriber: &mut impl Subscribe) -> Result<()> {
        self.run_loop(
            subscriber,
            |subscriber| self.write_batch(subscriber),
            |subscriber, timeout| subscriber.wait(Some(timeout)).map(drop),
        )
    }

    /// Like [`follow`](FollowOutput::follow), for a member of a group.
    pub fn follow_member(&self, member_loop: &mut MemberLoop<'_>) -> Result<()> {
        self.run_loop(
            member_loop,
            |member_loop| member_loop.handle_batch(self),
            |member_loop, timeout| member_loop.wait(timeout),
        )
    }

    fn run_loop<S>(
        &self,
        source: &mut S,
        batch: impl Fn(&mut S) -> Result<EventCount>,
        wait: impl Fn(&mut S, Duration) -> Result<(), SubscribeError>,
    ) -> Result<()> {
        let mut idle_since = Instant::now();
        let mut outage = OutageReport::default();
        while !self.is_over() {
            match batch(source) {
                Ok(EventCount(0)) => {}
                Ok(_) => {
                    idle_since = Instant::now();
                    if self.client.is_none() {
                        outage.report_restored();
                    }
                    continue;
                }
                Err(error) => match error.downcast() {
                    Ok(error) => outage.handle_error(error, self.writer.errors)?,
                    Err(error) => return Err(error),
                },
            }
            if let Some(client) = &self.client {
                outage.check_connection(client, self.writer.errors)?;
            }
            let idle_time = idle_since.elapsed();
            if self.rules.idle.is_some_and(|idle| idle_time >= idle) {
                break;
            }
            let remaining = self
                .rules
                .idle
                .map_or(POLL_INTERVAL, |idle| idle.saturating_sub(idle_time).min(POLL_INTERVAL));
            if let Err(error) = wait(source, remaining) {
                outage.handle_error(error, self.writer.errors)?;
            }
        }
        Ok(self.out().flush()?)
    }

    fn is_over(&self) -> bool {
        self.stop.is_set() || self.remaining() == Some(0)
    }

    /// The number of records that may still be written; `None` without a limit.
    fn remaining(&self) -> Option<u64> {
        self.rules.count.map(|count| count.saturating_sub(self.written.load(Ordering::Relaxed)))
    }

    fn count_record(&self) {
        self.written.fetch_add(1, Ordering::Relaxed);
    }

    /// Writes the events that have already arrived, at most [`BATCH_EVENTS_MAX`].
    fn write_batch(&self, subscriber: &mut impl Subscribe) -> Result<EventCount> {
        let mut out = self.out();
        for events in 0..BATCH_EVENTS_MAX {
            if self.is_over() {
                return Ok(EventCount(events));
            }
            let Some(event) = subscriber.try_next()? else {
                out.flush()?;
                return Ok(EventCount(events));
            };
            match event {
                Event::Record(record) => {
                    self.writer.record(&record, None, &mut *out)?;
                    self.count_record();
                    if let Some(sleep) = self.rules.sleep {
                        out.flush()?;
                        drop(out);
                        self.stop.sleep(sleep);
                        return Ok(EventCount(events + 1));
                    }
                }
                Event::Notice(notice) => {
                    self.writer.notice(&notice, &mut *out, &mut std::io::stderr())?;
                    out.flush()?;
                }
            }
        }
        Ok(EventCount(BATCH_EVENTS_MAX))
    }

    fn out(&self) -> MutexGuard<'_, W> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    fn into_out(self) -> W {
        self.out.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use dunlin::{Config, Node};
    use dunlin_topic::{Publish, Start, SubscribeOptions, TopicConfig};

    use super::*;
    use crate::console::TextPainter;
    use crate::format::Format;

    fn follow(node: &Node, rules: StopRules) -> String {
        let writer = EventPrinter {
            format: Format::Text,
            delimiter: "\n".into(),
            several_logs: false,
            is_terminal: false,
            interpreters: Default::default(),
            paint: TextPainter::PLAIN,
            errors: TextPainter::PLAIN,
        };
        let options = SubscribeOptions { start: Start::Earliest, ..SubscribeOptions::default() };
        let mut subscriber = node.subscribe("ticks", &options).unwrap();
        let follow = FollowOutput::new(rules, writer, Vec::new(), StopFlag::never());
        follow.follow(&mut subscriber).unwrap();
        String::from_utf8(follow.into_out()).unwrap()
    }

    fn node() -> Node {
        let node = Node::start(Config::default()).unwrap();
        node.create_topic("ticks", TopicConfig::default(), false).unwrap();
        let mut publisher = node.publisher("ticks").unwrap();
        for tick in 1..=5 {
            publisher.publish(format!("tick {tick}").as_str()).unwrap();
        }
        node
    }

    #[test]
    fn output_of_records_ends_after_the_requested_count() {
        let text = follow(&node(), StopRules { count: Some(2), ..StopRules::default() });
        assert_eq!(text, "1 tick 1\n2 tick 2\n");
    }

    #[test]
    fn record_output_ends_when_no_record_arrives_in_time() {
        let text =
            follow(&node(), StopRules { idle: Some(Duration::from_millis(1)), ..StopRules::default() });
        assert_eq!(text.lines().count(), 5);
    }
}
