//! Prepares messages that need the cluster or a disk before they can be handled. Another thread does this work. The
//! session reads nothing until the work is done, and then handles the message.

use std::pin::Pin;
use std::task::{Context, Poll};

use dunlin::topic::{Pattern, Start};
use dunlin::wire::{FromClient, GroupKind, StartAt};
use dunlin::{Node, Refused, TopicFuture};

use super::Session;
use super::groups::work_options;
use super::subscription::ResumePositions;
use super::topics::{HAS_SUBSCRIBER, PENDING_DEAD_LETTERS, subscriber_or_refusal};

/// The work that must be done before a message is handled.
pub(super) type Preparation = Pin<Box<dyn Future<Output = PreparationResult> + Send>>;

pub(super) type PreparationResult = Result<(), Refused>;

/// The state of the preparation for which the session's next message waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PreparationStatus {
    None,
    Pending,
    Done,
}

impl Session {
    pub(super) fn poll_preparation(&mut self, cx: &mut Context<'_>) -> PreparationStatus {
        let Some(preparation) = &mut self.preparation else { return PreparationStatus::None };
        match preparation.as_mut().poll(cx) {
            Poll::Pending => PreparationStatus::Pending,
            Poll::Ready(result) => {
                (self.preparation, self.prepared) = (None, Some(result));
                PreparationStatus::Done
            }
        }
    }

    /// If the message needs preparation, starts it. Returns whether the message must wait.
    pub(super) fn begin_preparation(&mut self, message: &FromClient<'_>) -> bool {
        let is_complete = matches!(
            message,
            FromClient::CreateTopic(_)
                | FromClient::CreateTopicWithSettings(_)
                | FromClient::DeleteTopic(_)
                | FromClient::ListTopics(_)
                | FromClient::DescribeTopic(_)
                | FromClient::DescribeSettings(_)
        );
        if self.prepared.as_ref().is_some_and(|result| is_complete || result.is_err()) {
            return false;
        }
        self.preparation = self.preparation_for(message);
        self.preparation.is_some()
    }

    fn preparation_for(&self, message: &FromClient<'_>) -> Option<Preparation> {
        let node = &self.node;
        match message {
            FromClient::OpenPublisher(open) => {
                let pattern = Pattern::parse(open.subject).ok()?;
                if self.from_node {
                    return preparation(node.prepare_forwarded(&pattern));
                }
                preparation(node.prepare_publish(&pattern, self.missing_topic_policy(open.publisher)))
            }
            FromClient::Subscribe(subscribe) => {
                let resumed = self.resuming.get(&subscribe.subscription).filter(|_| self.from_node);
                if let Some((topic, epoch)) = resumed.and_then(ResumePositions::placement)
                    && node.select_to_feed(topic, epoch).is_ok()
                {
                    return None;
                }
                let pattern = Pattern::parse(subscribe.pattern).ok()?;
                let starts_with_state =
                    self.following.get(&subscribe.subscription).is_some_and(|options| options.start);
                let start = if starts_with_state { Start::Snapshot } else { Start::Latest };
                let resumes = matches!(subscribe.start, StartAt::Resume);
                preparation(node.prepare_select(&pattern, self.unknown_topic_policy(start, resumes)))
            }
            FromClient::JoinGroup(join) => preparation(match join.kind {
                GroupKind::Share => node.prepare_share(join.topic, join.group),
                GroupKind::Work => node.prepare_work(join.topic, join.group, &work_options(join)),
            }),
            FromClient::CreateTopic(create) => {
                let config = self.config_of(create);
                (!node.creates_at_once(&config))
                    .then(|| node.create_topic_async(create.config.name, config, create.or_same))
                    .and_then(preparation)
            }
            FromClient::CreateTopicWithSettings(create) => {
                let config =
                    self.config_with_settings(create).ok().filter(|config| !node.creates_at_once(config))?;
                preparation(node.create_topic_async(create.config.name, config, create.or_same))
            }
            FromClient::DescribeSettings(describe) => {
                if let Some(topic) = describe.topic.strip_prefix(PENDING_DEAD_LETTERS) {
                    return self.figures_for_topic(topic);
                }
                let subject = describe.topic.strip_prefix(HAS_SUBSCRIBER)?;
                let query = self.query_subscribers(subject).ok()?.into_pending()?;
                let subject = subject.to_owned();
                Some(Box::pin(async move { subscriber_or_refusal(&subject, query.await) }))
            }
            FromClient::DeleteTopic(delete) => (!node.deletes_at_once(delete.topic))
                .then(|| node.delete_topic_async(delete.topic))
                .and_then(preparation),
            FromClient::ListTopics(list) => self.figures_for_list(list),
            FromClient::DescribeTopic(describe) => self.figures_for_topic(describe.topic),
            FromClient::Control(_) if node.control_if_any().is_none() => {
                let start = |node: Node| async move { node.control_async().await.map(drop) };
                let started = start(node.clone());
                Some(Box::pin(async move { started.await.map_err(|error| Refused::from(&error)) }))
            }
            FromClient::Tasks(_) if node.tasks_if_any().is_none() => {
                let start = |node: Node| async move { node.tasks_async().await.map(drop) };
                let started = start(node.clone());
                Some(Box::pin(async move { started.await.map_err(|error| Refused::from(&error)) }))
            }
            _ => None,
        }
    }
}

fn preparation<T: Send + 'static>(future: TopicFuture<T>) -> Option<Preparation> {
    let future = future.into_pending()?;
    Some(Box::pin(async move { future.await.map(drop).map_err(|error| Refused::from(&error)) }))
}
