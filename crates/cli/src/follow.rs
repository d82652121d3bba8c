//! Reading and writing out: what `sub` and `log dump` do with a subscriber.

use std::io::Write;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use dunlin_topic::{Event, Subscribe};

use crate::format::Writer;
use crate::outage::Outage;
use crate::signals::Stop;

/// When to stop, and how fast to go.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rules {
    /// Records, all subscribers together.
    pub count: Option<u64>,
    /// Nothing came for so long.
    pub idle: Option<Duration>,
    /// After each record.
    pub sleep: Option<Duration>,
}

/// What several subscribers write to.
#[derive(Debug)]
pub struct Follow<W> {
    pub rules: Rules,
    pub writer: Writer,
    out: Mutex<W>,
    written: AtomicU64,
    stop: Stop,
}

/// How often a reader with nothing to read looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(100);
/// Events written before others may write.
const TURN_EVENTS: u32 = 1024;

impl<W: Write> Follow<W> {
    pub fn new(rules: Rules, writer: Writer, out: W, stop: Stop) -> Follow<W> {
        Follow { rules, writer, out: Mutex::new(out), written: AtomicU64::new(0), stop }
    }

    /// Writes everything until it is time to stop. A lost connection is waited out.
    pub fn follow(&self, subscriber: &mut impl Subscribe) -> Result<()> {
        let mut quiet_since = Instant::now();
        let mut outage = Outage::default();
        while !self.is_over() {
            match self.turn(subscriber) {
                Ok(0) => {}
                Ok(_) => {
                    quiet_since = Instant::now();
                    outage.over();
                    continue;
                }
                Err(error) => match error.downcast() {
                    Ok(error) => outage.wait_out(error, self.writer.errors)?,
                    Err(error) => return Err(error),
                },
            }
            let quiet = quiet_since.elapsed();
            if self.rules.idle.is_some_and(|idle| quiet >= idle) {
                break;
            }
            let left = self.rules.idle.map_or(LOOK, |idle| idle.saturating_sub(quiet).min(LOOK));
            if let Err(error) = subscriber.wait(Some(left)) {
                outage.wait_out(error, self.writer.errors)?;
            }
        }
        Ok(self.out().flush()?)
    }

    fn is_over(&self) -> bool {
        self.stop.is_set()
            || self.rules.count.is_some_and(|count| self.written.load(Ordering::Relaxed) >= count)
    }

    /// Writes what is there; how many events it was.
    fn turn(&self, subscriber: &mut impl Subscribe) -> Result<u32> {
        let mut out = self.out();
        for events in 0..TURN_EVENTS {
            if self.is_over() {
                return Ok(events);
            }
            let Some(event) = subscriber.try_next()? else {
                out.flush()?;
                return Ok(events);
            };
            match event {
                Event::Record(record) => {
                    self.writer.record(&record, &mut *out)?;
                    self.written.fetch_add(1, Ordering::Relaxed);
                    if let Some(sleep) = self.rules.sleep {
                        out.flush()?;
                        drop(out);
                        thread::sleep(sleep);
                        return Ok(events + 1);
                    }
                }
                Event::Notice(notice) => {
                    self.writer.notice(&notice, &mut *out, &mut std::io::stderr())?;
                    out.flush()?;
                }
            }
        }
        Ok(TURN_EVENTS)
    }

    fn out(&self) -> std::sync::MutexGuard<'_, W> {
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
    use crate::console::Paint;
    use crate::format::Format;

    fn follow(node: &Node, rules: Rules) -> String {
        let writer = Writer {
            format: Format::Text,
            delimiter: "\n".into(),
            many: false,
            paint: Paint::PLAIN,
            errors: Paint::PLAIN,
        };
        let options = SubscribeOptions { start: Start::Earliest, ..SubscribeOptions::default() };
        let mut subscriber = node.subscribe("ticks", &options).unwrap();
        let follow = Follow::new(rules, writer, Vec::new(), Stop::never());
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
    fn it_ends_after_the_count_that_was_asked_for() {
        let text = follow(&node(), Rules { count: Some(2), ..Rules::default() });
        assert_eq!(text, "1 tick 1\n2 tick 2\n");
    }

    #[test]
    fn it_ends_when_nothing_has_come_for_long_enough() {
        let text = follow(&node(), Rules { idle: Some(Duration::from_millis(1)), ..Rules::default() });
        assert_eq!(text.lines().count(), 5);
    }
}
