//! Converts topics and their figures to messages of `dunlin.v1`.

use dunlin::topic::{LogInfo, Pattern, SubscriberInfo, Topic};
use dunlin::wire::ErrorCode;
use dunlin::{GroupInfo, GroupKind, Node, Refused};

use super::proto::dunlin as v1;
use super::translate::{config_from, config_of};
use crate::figures::{OwnerFigures, SUBSCRIBERS_SHOWN, TopicFigures};
use crate::shared::SharedServer;

pub(super) async fn create(node: &Node, request: &v1::CreateTopicRequest) -> Result<(), Refused> {
    let defaults = &node.config().topic;
    let config = match &request.config {
        Some(config) => config_from(config, defaults)?,
        None => config_from(&v1::TopicConfig::default(), defaults)?,
    };
    let created = node.create_topic_async(&request.name, config, request.or_same).await;
    created.map(drop).map_err(|error| Refused::from(&error))
}

pub(super) async fn list(
    shared: &SharedServer,
    node: &Node,
    request: &v1::ListTopicsRequest,
) -> Result<v1::ListTopicsResponse, Refused> {
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
    let figures = shared.figures_of(&page.topics).await;
    let topics = page.topics.iter().map(|topic| topic_line(topic, figures.of(shared, topic))).collect();
    Ok(v1::ListTopicsResponse { topics, more: page.more })
}

pub(super) async fn describe(
    shared: &SharedServer,
    node: &Node,
    name: &str,
) -> Result<v1::DescribeTopicResponse, Refused> {
    let topic = node.topic(name).ok_or_else(|| node.missing_topic_error(name))?;
    let figures = shared.figures_of(std::slice::from_ref(&topic)).await;
    let TopicFigures { owner, clients } = figures.of(shared, &topic);
    let is_unknown = owner.is_none() || clients.is_none();
    let (logs, groups) = owner.map(|owner| (owner.logs, owner.groups)).unwrap_or_default();
    let clients = clients.unwrap_or_default();
    Ok(v1::DescribeTopicResponse {
        name: topic.name().to_owned(),
        config: Some(config_of(&topic)),
        publishers: clients.publishers,
        subscribers_total: clients.subscribers_total,
        logs: logs.iter().map(log_state).collect(),
        subscribers: clients
            .subscribers
            .iter()
            .take(SUBSCRIBERS_SHOWN)
            .map(|(_, subscriber)| subscriber_state(subscriber))
            .collect(),
        groups: groups.iter().map(group_state).collect(),
        figures_unknown: is_unknown,
    })
}

fn topic_line(topic: &Topic, TopicFigures { owner, clients }: TopicFigures) -> v1::ListedTopic {
    v1::ListedTopic {
        name: topic.name().to_owned(),
        pattern: topic.pattern().to_owned(),
        partitions: topic.config().partitions.into(),
        reliable: topic.config().reliable.is_some(),
        durable: topic.config().durable.is_some(),
        records: owner.as_ref().map_or(0, OwnerFigures::records),
        bytes: owner.as_ref().map_or(0, OwnerFigures::bytes),
        appended: owner.as_ref().map_or(0, OwnerFigures::appended),
        waiting: clients.as_ref().map_or(0, |clients| clients.waiting),
        figures_unknown: owner.is_none() || clients.is_none(),
    }
}

fn log_state((partition, info): &(u16, LogInfo)) -> v1::LogState {
    v1::LogState {
        partition: (*partition).into(),
        epoch: info.epoch,
        first_seq: info.oldest_seq,
        last_seq: info.next_seq - 1,
        bytes: info.stored.map_or(info.bytes, |stored| stored.bytes),
        last_append_ns: info.last_append_ns,
    }
}

fn subscriber_state(subscriber: &SubscriberInfo) -> v1::SubscriberState {
    v1::SubscriberState {
        name: subscriber.name.clone(),
        partition: subscriber.partition.into(),
        epoch: subscriber.position.epoch,
        seq: subscriber.position.seq,
        lag: subscriber.lag,
        missed: subscriber.missed,
        registered: subscriber.registered,
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
        pending_dead_letters: info.pending_dead_letters,
        dead_letter_error: info.dead_letter_error.clone().unwrap_or_default(),
    }
}
