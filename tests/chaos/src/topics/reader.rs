//! The subscribers of a run. Each subscriber reads one topic through one node, and keeps a trace of the events that it
//! receives.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use dunlin_client::topic::{
    Event, Notice, OnGap, Position, Start, Subscribe, SubscribeError, SubscribeOptions,
};
use dunlin_client::{Client, ClientOptions, Subscriber};

use super::publisher::record_number;
use crate::nemesis::PATIENCE;

const EVENTS_MAX: usize = 1_000;
const IDLE: Duration = Duration::from_millis(50);

/// An event that a subscriber received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReaderEvent {
    /// A record: its position, and its number.
    Record(Position, u64),
    /// A gap: the epoch, and the first and last missing sequence number.
    Gap(u32, u64, u64),
    /// The end of an epoch. The values are the epoch that ended, the last sequence number that the subscriber received
    /// in this epoch, the last sequence number that is known to exist in this epoch, and the position at which the next
    /// epoch begins.
    Epoch(u32, u64, Option<u64>, Position),
    /// An error that must never happen.
    Wrong(String),
}

/// The trace of one subscriber: all events that it received.
#[derive(Debug, Clone)]
pub struct SubscriberTrace {
    /// The name of the topic that the subscriber reads.
    pub topic: &'static str,
    /// The node through which the subscriber reads, counted from 0.
    pub node: usize,
    /// The events, in order.
    pub events: Vec<ReaderEvent>,
}

/// The position of each topic's last record. It is set after all records are published.
pub type TopicEnds = OnceLock<BTreeMap<&'static str, Position>>;

/// Reads until the subscriber has received the topic's last record, or until `stop` is set. Returns the subscriber's
/// trace.
pub fn read(
    topic: &'static str,
    node: usize,
    url: &str,
    ends: &TopicEnds,
    stop: &AtomicBool,
) -> Result<SubscriberTrace> {
    let mut subscriber = subscribe(topic, url)?;
    let (mut trace, mut at) = (SubscriberTrace { topic, node, events: vec![] }, Position::default());
    while !stop.load(Ordering::Relaxed) {
        let events = &mut trace.events;
        let drained = subscriber.drain(EVENTS_MAX, |event| record_event(topic, &event, events, &mut at));
        match drained {
            Ok(0) => {}
            Ok(_) => continue,
            Err(SubscribeError::Connection(_)) => std::thread::sleep(IDLE),
            Err(error) => bail!("the subscriber of {topic} at node {} failed: {error}", node + 1),
        }
        if ends.get().is_some_and(|ends| ends.get(topic).is_none_or(|end| at >= *end)) {
            break;
        }
        match subscriber.wait(Some(IDLE)) {
            Ok(_) | Err(SubscribeError::Connection(_)) => {}
            Err(error) => bail!("the subscriber of {topic} at node {} failed: {error}", node + 1),
        }
    }
    Ok(trace)
}

fn subscribe(topic: &str, url: &str) -> Result<Subscriber> {
    let name = format!("reads {topic}");
    let deadline = Instant::now() + PATIENCE;
    loop {
        let options = SubscribeOptions {
            name: name.clone(),
            start: Start::Earliest,
            on_gap: OnGap::Oldest,
            ..SubscribeOptions::default()
        };
        let client = Client::connect(url, ClientOptions { name: name.clone(), ..ClientOptions::default() });
        let subscribed =
            client.map_err(anyhow::Error::from).and_then(|client| Ok(client.subscribe(topic, options)?));
        match subscribed {
            Ok(subscriber) => return Ok(subscriber),
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_) => std::thread::sleep(IDLE),
        }
    }
}

fn record_event(topic: &str, event: &Event<'_>, events: &mut Vec<ReaderEvent>, at: &mut Position) {
    let what = match event {
        Event::Record(record) => {
            *at = record.position;
            match record_number(topic, record.payload()) {
                Some(number) => ReaderEvent::Record(record.position, number),
                None => ReaderEvent::Wrong(format!(
                    "the record at {} is none that was published",
                    record.position
                )),
            }
        }
        Event::Notice(Notice::Gap(gap)) => {
            *at = Position { epoch: gap.epoch, seq: gap.last };
            ReaderEvent::Gap(gap.epoch, gap.first, gap.last)
        }
        Event::Notice(Notice::EpochChanged(change)) => {
            ReaderEvent::Epoch(change.old, change.last_seen, change.known_through, change.new_first)
        }
        Event::Notice(Notice::Lagging(_)) => return,
        // The subscriber requests all records, so the node must not skip any.
        Event::Notice(Notice::Advance { through, .. }) if *through > *at => {
            ReaderEvent::Wrong(format!("nothing of interest is said to lie between {at} and {through}"))
        }
        Event::Notice(Notice::Advance { .. }) => return,
        Event::Notice(other) => ReaderEvent::Wrong(format!("{other:?}")),
    };
    events.push(what);
}
