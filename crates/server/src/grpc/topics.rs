//! Topics as `dunlin.v1` describes them.

use std::sync::Arc;

use dunlin::topic::{Log, Pattern, ReaderInfo, Topic};
use dunlin::wire::ErrorCode;
use dunlin::{GroupInfo, GroupKind, Node, Refused};

use super::proto::dunlin as v1;
use super::translate::{config_from, config_of};

/// The slowest readers that a description shows.
const READERS_SHOWN: usize = 20;

pub(super) async fn create(node: &Node, request: &v1::CreateTopicRequest) -> Result<(), Refused> {
    let defaults = &node.config().topic;
    let config = match &request.config {
        Some(config) => config_from(config, defaults)?,
        None => config_from(&v1::TopicConfig::default(), defaults)?,
    };
    let created = node.create_topic_async(&request.name, config, request.or_same).await;
    created.map(drop).map_err(|error| Refused::from(&error))
}

pub(super) fn list(node: &Node, request: &v1::ListTopicsRequest) -> Result<v1::ListTopicsResponse, Refused> {
    let pattern = match request.pattern.as_str() {
        "" => None,
        pattern => {
            let parsed = Pattern::parse(pattern);
            Some(parsed.map_err(|error| Refused::new(ErrorCode::Subject, error.to_string()))?)
        }
    };
    let topics_max = match request.topics_max {
        0 => usize::MAX,
        topics_max => topics_max as usize,
    };
    let page = node.topics(pattern.as_ref(), &request.after, topics_max);
    let topics = page.topics.iter().map(|topic| line(topic)).collect();
    Ok(v1::ListTopicsResponse { topics, more: page.more })
}

pub(super) fn describe(node: &Node, name: &str) -> Result<v1::DescribeTopicResponse, Refused> {
    let topic = node.topic(name).ok_or_else(|| Refused::new(ErrorCode::NoTopic, name))?;
    let readers = topic.readers();
    Ok(v1::DescribeTopicResponse {
        name: topic.name().to_owned(),
        config: Some(config_of(&topic)),
        publishers: topic.publishers(),
        readers_total: (readers.len() as u32).max(waiting(&topic)),
        logs: topic.logs().iter().map(log_state).collect(),
        readers: readers.iter().take(READERS_SHOWN).map(reader_state).collect(),
        groups: node.groups(&topic).iter().map(group_state).collect(),
    })
}

fn line(topic: &Topic) -> v1::TopicLine {
    let mut line = v1::TopicLine {
        name: topic.name().to_owned(),
        pattern: topic.pattern().to_owned(),
        partitions: topic.config().partitions.into(),
        reliable: topic.config().reliable.is_some(),
        durable: topic.config().durable.is_some(),
        waiting: waiting(topic),
        ..v1::TopicLine::default()
    };
    for info in topic.logs().iter().map(|log| log.info()) {
        line.records += info.next_seq - info.oldest_seq;
        line.bytes += info.stored.map_or(info.bytes, |stored| stored.bytes);
        line.appended += info.next_seq - 1;
    }
    line
}

/// Readers that have read everything.
pub(super) fn waiting(topic: &Topic) -> u32 {
    topic.logs().iter().map(|log| log.info().waiting as u32).sum()
}

fn log_state(log: &Arc<Log>) -> v1::LogState {
    let info = log.info();
    v1::LogState {
        partition: log.name().partition.into(),
        epoch: info.epoch,
        first_seq: info.oldest_seq,
        last_seq: info.next_seq - 1,
        bytes: info.stored.map_or(info.bytes, |stored| stored.bytes),
        last_append_ns: info.last_append_ns,
    }
}

fn reader_state(reader: &ReaderInfo) -> v1::ReaderState {
    v1::ReaderState {
        name: reader.name.clone(),
        partition: reader.partition.into(),
        epoch: reader.position.epoch,
        seq: reader.position.seq,
        behind: reader.behind,
        lost: reader.lost,
        registered: reader.registered,
    }
}

fn group_state(info: &GroupInfo) -> v1::GroupState {
    v1::GroupState {
        name: info.name.clone(),
        kind: match info.kind {
            GroupKind::Share => v1::GroupKind::Share,
            GroupKind::Work => v1::GroupKind::Work,
        }
        .into(),
        members: info.members.len() as u32,
        waiting: info.waiting,
        claimed: info.claimed,
    }
}
