//! Topics: creating, deleting, listing, describing.

use std::sync::Arc;

use dunlin::topic::{LogInfo, Pattern, Position, Topic};
use dunlin::wire::{
    CreateTopic, ErrorCode, FromNode, GroupKind, GroupState, List, ListTopics, LogState, NamedTopic,
    ReaderState, RequestRefused, TopicLine, TopicState, Topics,
};
use dunlin::{GroupInfo, ReaderInfo, Refused, TopicError};

use super::Session;
use super::translate::{config_from_wire, config_to_wire, position_to_wire};

/// The slowest readers that a description shows.
const READERS_SHOWN: usize = 20;

impl Session {
    pub(super) fn create_topic(&mut self, create: &CreateTopic<'_>) {
        let node = &self.shared.node;
        let config = config_from_wire(&create.config, &node.config().topic);
        let created = node.create_topic(create.config.name, config, create.or_same).map(drop);
        self.answer(create.request, created);
    }

    pub(super) fn delete_topic(&mut self, delete: NamedTopic<'_>) {
        let deleted = self.shared.node.delete_topic(delete.topic);
        self.answer(delete.request, deleted);
    }

    fn answer(&mut self, request: u32, outcome: Result<(), TopicError>) {
        match outcome {
            Ok(()) => self.outbound.say(FromNode::Done { request }),
            Err(error) => self.refuse_request(request, &Refused::from(&error)),
        }
    }

    fn refuse_request(&mut self, request: u32, refused: &Refused) {
        let refusal = refused.as_wire();
        self.outbound.say(FromNode::RequestRefused(RequestRefused { request, refusal }));
    }

    pub(super) fn list_topics(&mut self, list: &ListTopics<'_>) {
        let pattern = match list.pattern {
            "" => None,
            pattern => match Pattern::parse(pattern) {
                Ok(pattern) => Some(pattern),
                Err(error) => {
                    let refused = Refused::new(ErrorCode::Subject, error.to_string());
                    return self.refuse_request(list.request, &refused);
                }
            },
        };
        // A line is at most two names and 64 bytes.
        let fit = self.shared.limits.control_bytes_max as usize / (2 * dunlin::topic::SUBJECT_BYTES_MAX + 64);
        let topics_max = fit.min(list.topics_max as usize);
        let page = self.shared.node.topics(pattern.as_ref(), list.after, topics_max);
        let lines: Vec<_> = page.topics.iter().map(line).collect();
        let topics = Topics { request: list.request, more: page.more, topics: List::new(&lines) };
        self.outbound.say(FromNode::Topics(topics));
    }

    pub(super) fn describe_topic(&mut self, describe: NamedTopic<'_>) {
        let Some(topic) = self.shared.node.topic(describe.topic) else {
            let refused = Refused::new(ErrorCode::NoTopic, describe.topic);
            return self.refuse_request(describe.request, &refused);
        };
        let logs: Vec<_> =
            topic.logs().iter().map(|log| log_state(log.name().partition, log.info())).collect();
        let all_readers = self.shared.node.readers(&topic);
        let readers: Vec<_> = all_readers.iter().take(READERS_SHOWN).map(reader_state).collect();
        let infos = self.shared.node.groups(&topic);
        let groups: Vec<_> = infos.iter().map(group_state).collect();
        self.outbound.say(FromNode::Topic(TopicState {
            request: describe.request,
            config: config_to_wire(topic.name(), topic.pattern(), topic.config()),
            publishers: 0,
            readers_total: (all_readers.len() as u32).max(waiting(&topic)),
            logs: List::new(&logs),
            readers: List::new(&readers),
            groups: List::new(&groups),
        }));
    }
}

fn line(topic: &Arc<Topic>) -> TopicLine<'_> {
    let mut line = TopicLine {
        name: topic.name(),
        pattern: topic.pattern(),
        partitions: topic.config().partitions,
        reliable: topic.config().reliable.is_some(),
        records: 0,
        bytes: 0,
        appended: 0,
        readers: waiting(topic),
    };
    for info in topic.logs().iter().map(|log| log.info()) {
        line.records += info.next_seq - info.oldest_seq;
        line.bytes += info.bytes;
        line.appended += info.next_seq - 1;
    }
    line
}

/// Readers that have read everything, of this process and others.
fn waiting(topic: &Topic) -> u32 {
    topic.logs().iter().map(|log| log.info().waiting as u32).sum()
}

fn reader_state(reader: &ReaderInfo) -> ReaderState<'_> {
    ReaderState {
        name: &reader.name,
        partition: reader.partition,
        position: position_to_wire(reader.position),
        behind: reader.behind,
        lost: reader.lost,
        registered: reader.registered,
    }
}

fn group_state(info: &GroupInfo) -> GroupState<'_> {
    GroupState {
        name: &info.name,
        kind: match info.kind {
            dunlin::GroupKind::Share => GroupKind::Share,
            dunlin::GroupKind::Work => GroupKind::Work,
        },
        members: info.members.len() as u32,
        waiting: info.waiting,
        claimed: info.claimed,
    }
}

fn log_state(partition: u16, info: LogInfo) -> LogState {
    LogState {
        partition,
        first: position_to_wire(Position { epoch: info.epoch, seq: info.oldest_seq }),
        last_seq: info.next_seq - 1,
        bytes: info.bytes,
        last_append_ns: info.last_append_ns,
    }
}
