//! The topic of what happens to tasks: one record for each event, on every node, under the same numbers.
//!
//! A record is one JSON object; its subject is the topic's name and the tenant's: `$tasks.TENANT`, or `$tasks._` for a tenant whose
//! name cannot be part of a subject.

use std::fmt::Write;
use std::sync::Arc;

use bytes::Bytes;
use dunlin_tasks::{Event, Failure, Happened, State};
use dunlin_topic::{Draft, Meta, Payload, Position, PublishError, Retention, Subject, Topic, TopicConfig};

use crate::clock::now_ns;
use crate::error::TopicError;
use crate::node::Node;

/// The topic's name.
pub const TASKS: &str = "$tasks";
const PATTERN: &str = "$tasks.>";
/// The last token of the subject of tenants whose names cannot be one.
const UNNAMED: &str = "_";

/// Whether a pattern is for events of tasks.
pub(crate) fn is_of_tasks(pattern: &str) -> bool {
    pattern.strip_prefix(TASKS).is_some_and(|rest| rest.starts_with('.'))
}

/// The end at which the topic is written.
#[derive(Debug)]
pub(super) struct History {
    /// `None` where nothing is kept.
    topic: Option<Arc<Topic>>,
    epoch: u32,
    /// Events there have been.
    count: u64,
    text: String,
    /// Where each event's text ends, and whose it is.
    parts: Vec<(usize, u32)>,
}

impl History {
    /// Makes the topic; in epoch 0 until it is known which there is.
    pub(super) fn open(node: &Node, bytes: u64) -> Result<History, TopicError> {
        let topic = match bytes {
            0 => None,
            bytes => {
                let retention = Retention { bytes, records: None, age: None };
                let pattern = Some(PATTERN.to_owned());
                let config = TopicConfig { retention, pattern, ..TopicConfig::default() };
                Some(node.create_at(TASKS, config, 0)?)
            }
        };
        Ok(History { topic, epoch: 0, count: 0, text: String::new(), parts: Vec::new() })
    }

    /// Takes the topic away again.
    pub(super) fn close(node: &Node) {
        node.registry().remove(TASKS);
    }

    /// The epoch, and how many events there have been.
    pub(super) fn stands(&self) -> (u32, u64) {
        (self.epoch, self.count)
    }

    /// The next event is the one after `count`, of this epoch; readers of others are told.
    pub(super) fn move_on(&mut self, epoch: u32, count: u64) {
        (self.epoch, self.count) = (epoch, count);
        if let Some(topic) = &self.topic {
            topic.logs()[0].move_on(Position { epoch, seq: count + 1 });
        }
    }

    /// Adds events. Where they find no room, readers are told a gap.
    pub(super) fn record(&mut self, state: &State, events: &[Event]) {
        self.count += events.len() as u64;
        let Some(topic) = &self.topic else { return };
        self.text.clear();
        self.parts.clear();
        for event in events {
            write_event(&mut self.text, state, event);
            self.parts.push((self.text.len(), event.tenant));
        }
        let (text, mut tails) = (self.text.as_bytes(), Tails::default());
        self.parts.iter().for_each(|(_, tenant)| tails.learn(state, *tenant));
        let mut at = 0;
        let drafts: Vec<Draft<'_>> = self
            .parts
            .iter()
            .map(|&(end, tenant)| {
                let payload = Payload::Copied(&text[at..end]);
                at = end;
                Draft { meta: Meta { subject_tail: tails.of(tenant), ..Meta::default() }, payload }
            })
            .collect();
        match topic.append_drafts(now_ns(), 0, false, drafts.iter()) {
            // The node has stopped, and with it all who read.
            Ok(_) | Err(PublishError::Closed) => {}
            Err(_no_room) => {
                topic.logs()[0].move_on(Position { epoch: self.epoch, seq: self.count + 1 });
            }
        }
    }
}

/// The tails of tenants' subjects, as far as they were needed.
#[derive(Default)]
struct Tails(Vec<(u32, String)>);

impl Tails {
    fn learn(&mut self, state: &State, tenant: u32) {
        if let Err(at) = self.0.binary_search_by_key(&tenant, |(tenant, _)| *tenant) {
            let name = state.tenant_name(tenant).and_then(|name| std::str::from_utf8(name).ok());
            let tail = name.filter(|name| Subject::parse(name).is_ok()).unwrap_or(UNNAMED);
            self.0.insert(at, (tenant, tail.to_owned()));
        }
    }

    fn of(&self, tenant: u32) -> &str {
        let found = self.0.binary_search_by_key(&tenant, |(tenant, _)| *tenant);
        found.map_or(UNNAMED, |at| &self.0[at].1)
    }
}

fn write_event(out: &mut String, state: &State, event: &Event) {
    let tenant = state.tenant_name(event.tenant).map_or(&b""[..], |name| name);
    let at_ms = state.unix_ms_of(event.at_ms);
    // Writing to text cannot fail.
    let _ = write!(out, "{{\"task\":\"{:x}\",\"tenant\":", event.task);
    write_text(out, tenant);
    let _ = write!(out, ",\"at_ms\":{at_ms},\"event\":");
    let _ = match event.what {
        Happened::Submitted => write!(out, "\"submitted\""),
        Happened::Started { worker: 0, .. } => write!(out, "\"publishing\""),
        Happened::Started { worker, token } => {
            write!(out, "\"started\",\"worker\":\"{worker:x}\",\"token\":{token}")
        }
        Happened::Progressed { permille } => write!(out, "\"progressed\",\"permille\":{permille}"),
        Happened::Completed { cpu_us, run_us } => {
            write!(out, "\"completed\",\"cpu_us\":{cpu_us},\"run_us\":{run_us}")
        }
        Happened::Retrying { why, delay_ms } => {
            write!(out, "\"retrying\",\"why\":\"{}\",\"delay_ms\":{delay_ms}", word(why))
        }
        Happened::Lost { times } => write!(out, "\"lost\",\"times\":{times}"),
        Happened::Dead { why } => write!(out, "\"dead\",\"why\":\"{}\"", word(why)),
        Happened::Cancelled => write!(out, "\"cancelled\""),
        Happened::Redriven => write!(out, "\"redriven\""),
        Happened::Discarded => write!(out, "\"discarded\""),
    };
    out.push('}');
}

fn word(why: Failure) -> &'static str {
    match why {
        Failure::Failed => "failed",
        Failure::TimedOut => "timed_out",
        Failure::Deadline => "deadline",
        Failure::Poisoned => "poisoned",
    }
}

/// As JSON has text (RFC 8259, section 7); bytes that are none show as `U+FFFD`.
fn write_text(out: &mut String, bytes: &[u8]) {
    out.push('"');
    for char in String::from_utf8_lossy(bytes).chars() {
        match char {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            control if control < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

/// What stands before the state in a snapshot: a version, the epoch, and how many events there have been.
pub(super) fn write_head((epoch, count): (u32, u64)) -> Vec<u8> {
    [&[1][..], &epoch.to_le_bytes(), &count.to_le_bytes()].concat()
}

/// Reads it.
pub(super) fn read_head(block: &Bytes) -> Option<(u32, u64)> {
    let (epoch, count) = block.strip_prefix(&[1])?.split_first_chunk()?;
    Some((u32::from_le_bytes(*epoch), u64::from_le_bytes(count.try_into().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_comes_back_as_it_was_and_no_part_of_it_does() {
        let head = Bytes::from(write_head((7, 9)));
        assert_eq!(read_head(&head), Some((7, 9)));
        (0..head.len()).for_each(|len| assert_eq!(read_head(&head.slice(..len)), None));
    }

    #[test]
    fn text_is_json_whatever_is_in_it() {
        let mut out = String::new();
        write_text(&mut out, b"a\"b\\c\n\xff");
        assert_eq!(out, "\"a\\\"b\\\\c\\u000a\u{fffd}\"");
    }
}
