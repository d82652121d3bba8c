//! Finds or creates the topic that owns a subject.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use dunlin_topic::{DurableOptions, Pattern, PublishError, Retention, SERVICES, Subject, Topic, TopicConfig};

use super::Node;
use crate::access::Action;
use crate::clock::{now_ns, steady_ns};
use crate::error::TopicError;
use crate::inbox::Inbox;
use crate::owner::OwningTopic;
use crate::registry::{cost_of, is_reserved, is_service_subject};
use crate::select::MissingTopicPolicy;
use crate::waiting::{self, ARRIVAL_MAX};

/// The least memory that a log with one record takes, bytes.
const SEGMENT_BYTES_MIN: usize = 4 << 10;

impl Node {
    /// Returns the topic to which a record with this subject is published. Creates a topic if no topic owns the subject
    /// and `auto_create` is set.
    pub fn owning_topic(&self, subject: Subject<'_>) -> Result<Arc<Topic>, TopicError> {
        self.may_publish(subject)?;
        let owner = self.0.registry.owner(subject).or_else(|| self.reply_topic(subject));
        owner.map_or_else(|| self.find_owning_topic(subject), Ok)
    }

    /// Like [`owning_topic`](Node::owning_topic), but for a record that is not a reply. The caller has checked the
    /// user's permission.
    pub(crate) fn find_owning_topic(&self, subject: Subject<'_>) -> Result<Arc<Topic>, TopicError> {
        self.find_owning_topic_or_durable(subject, None)
    }

    /// Like [`find_owning_topic`](Node::find_owning_topic). If this call creates the topic, and new topics are not
    /// durable by default, the topic gets the durability `durable`.
    pub(crate) fn find_owning_topic_or_durable(
        &self,
        subject: Subject<'_>,
        durable: Option<DurableOptions>,
    ) -> Result<Arc<Topic>, TopicError> {
        self.owning_topic_or_new(subject, durable, |_| Ok(())).map(OwningTopic::into_topic)
    }

    /// The configuration of a topic that is created because no topic owns a subject.
    fn auto_created_config(&self, durable: Option<DurableOptions>) -> TopicConfig {
        let config = TopicConfig { pattern: None, ..self.0.config.topic.clone() };
        if durable.is_none() || config.durable.is_some() {
            return config;
        }
        let retention = Retention { bytes: DurableOptions::RETENTION_BYTES_DEFAULT, ..config.retention };
        TopicConfig { durable, retention, ..config }
    }

    /// Returns the topic that owns the subject, even if only the cluster and not this node knows the topic yet. Creates
    /// no topic.
    pub(crate) fn agreed_topic(&self, subject: Subject<'_>) -> Result<Arc<Topic>, TopicError> {
        match (self.0.registry.owner(subject), self.ownership()) {
            (Some(topic), _) => Ok(topic),
            (None, Some(ownership)) if !is_reserved(subject.as_str()) => {
                ownership.find_agreed(self, subject.as_str())
            }
            (None, _) => Err(TopicError::Unknown(subject.as_str().to_owned())),
        }
    }

    /// Returns the topic that owns the subject, after a permission check. Creates no topic.
    pub fn existing_topic(&self, subject: Subject<'_>) -> Result<OwningTopic, TopicError> {
        self.may_publish(subject)?;
        self.agreed_topic(subject).map(OwningTopic::of)
    }

    /// Returns the destination of a record with a payload of `payload_bytes`: the topic that owns the subject or, for a
    /// reply, the inbox. If neither exists, creates a topic if `auto_create` is set. A new topic that refuses the
    /// record is removed again.
    pub fn owning_topic_for(
        &self,
        subject: Subject<'_>,
        payload_bytes: usize,
    ) -> Result<OwningTopic, TopicError> {
        self.may_publish(subject)?;
        match self.0.registry.owner(subject).or_else(|| self.reply_topic(subject)) {
            Some(topic) => Ok(OwningTopic::of(topic)),
            None => self.owning_topic_or_new_for(subject, payload_bytes),
        }
    }

    /// Like [`owning_topic_for`](Node::owning_topic_for), but for a record that is not a reply.
    pub fn owning_topic_for_no_reply(
        &self,
        subject: Subject<'_>,
        payload_bytes: usize,
    ) -> Result<OwningTopic, TopicError> {
        self.may_publish(subject)?;
        self.owning_topic_or_new_for(subject, payload_bytes)
    }

    fn owning_topic_or_new_for(
        &self,
        subject: Subject<'_>,
        payload_bytes: usize,
    ) -> Result<OwningTopic, TopicError> {
        self.owning_topic_or_new(subject, None, |config| {
            let bytes_max = config.record_bytes_max as usize;
            if payload_bytes > bytes_max {
                let refused = PublishError::RecordTooLarge { bytes: payload_bytes, bytes_max };
                return Err(TopicError::Record(Box::new(refused)));
            }
            let budget = self.charge_budget();
            let needed = cost_of(subject.as_str(), config.partitions) + payload_bytes.max(SEGMENT_BYTES_MIN);
            if budget.room() < needed as u64 {
                let (requested, used, limit) = (needed as u64, budget.used(), budget.limit());
                return Err(TopicError::Record(Box::new(PublishError::BudgetSpent {
                    requested,
                    used,
                    limit,
                })));
            }
            Ok(())
        })
    }

    fn owning_topic_or_new(
        &self,
        subject: Subject<'_>,
        durable: Option<DurableOptions>,
        check: impl FnOnce(&TopicConfig) -> Result<(), TopicError>,
    ) -> Result<OwningTopic, TopicError> {
        if let Some(topic) = self.0.registry.owner(subject) {
            return Ok(OwningTopic::of(topic));
        }
        // No topic is created for the subject of an inbox. A reply may arrive after the requester's session, and with
        // it the inbox, has ended.
        if subject.is_system() {
            return Err(TopicError::Reserved(subject.as_str().to_owned()));
        }
        let remote_inbox = || self.ownership().and_then(|ownership| ownership.inbox(subject.as_str()));
        if is_reserved(subject.as_str())
            && let Some(inbox) = remote_inbox()
        {
            return Ok(OwningTopic::of(inbox));
        }
        let services = is_service_subject(subject);
        if !(self.0.config.auto_create || services) || is_reserved(subject.as_str()) {
            return Err(TopicError::Unknown(subject.as_str().to_owned()));
        }
        let (name, config) = if services {
            // All subjects that begin with [`SERVICES`] share one topic, because most of these subjects are used only
            // for a short time.
            let limits = &self.0.config.limits;
            (SERVICES, limits.inbox(format!("{SERVICES}.>"), limits.inbox_bytes_max))
        } else {
            (subject.as_str(), self.auto_created_config(durable))
        };
        check(&config)?;
        let until_ns = steady_ns().saturating_add(ARRIVAL_MAX.as_nanos() as u64);
        let (mut pause, mut is_second) = (Duration::from_millis(1), false);
        loop {
            match self.create_charged(name, config.clone(), false, true) {
                Ok(topic) => return Ok(OwningTopic::created(topic, self)),
                Err(TopicError::Exists(_) | TopicError::Overlaps(_)) => {}
                Err(refused) => return Err(refused),
            }
            // The name or the subject is taken: either another client has created a topic for the subject first, or a
            // topic with this name owns other subjects.
            if let Some(topic) = self.0.registry.owner(subject) {
                return Ok(OwningTopic::of(topic));
            }
            // No topic owns the subject: either the topic was deleted just now, or another node has created one that
            // this node does not know yet. Try again.
            let may_wait = waiting::is_allowed();
            let is_over = if may_wait { steady_ns() >= until_ns } else { is_second };
            if self.0.registry.get(name).is_some() || is_over {
                return Err(TopicError::Unknown(subject.as_str().to_owned()));
            }
            is_second = true;
            if may_wait {
                // Double the pause after each attempt, because each attempt sends a request to the cluster.
                thread::sleep(pause);
                pause *= 2;
            }
        }
    }

    /// Creates topics for these subjects, in this order and with one request to the cluster, and waits for the
    /// response. The second value of each pair is the payload size of the record for the subject. If the cluster
    /// refuses a topic, the error is returned later, when the record is published.
    pub(crate) fn precreate_topics(&self, subjects: Vec<(String, usize)>) {
        let Some(ownership) = self.ownership().filter(|_| self.0.config.auto_create) else { return };
        let config = TopicConfig { pattern: None, ..self.0.config.topic.clone() };
        let limits = self.0.config.topic_limits(&config);
        let config = TopicConfig { limits, ..config };
        let mut room = self.charge_budget().room();
        let mut needs_creation = |(subject, payload_bytes): &(String, usize)| {
            let Ok(parsed) = Subject::parse(subject) else { return false };
            let is_special = is_reserved(subject)
                || parsed.is_system()
                || subject.starts_with(SERVICES)
                || Inbox::has_client_prefix(subject);
            if is_special || self.may_publish(parsed).is_err() || self.0.registry.owner(parsed).is_some() {
                return false;
            }
            let needed = cost_of(subject, config.partitions) + (*payload_bytes).max(SEGMENT_BYTES_MIN);
            room = room.saturating_sub(needed as u64);
            let fits = room > 0 && *payload_bytes <= config.record_bytes_max as usize;
            fits && self.user().is_none_or(|user| user.reserve_topic(subject, true).is_ok())
        };
        let to_create = subjects.into_iter().filter(|subject| needs_creation(subject));
        let names: Vec<String> = to_create.map(|(subject, _)| subject).collect();
        if names.is_empty() {
            return;
        }
        let created = ownership.create_together(self, &names, &config);
        let Some(user) = self.user() else { return };
        for (name, created) in names.iter().zip(created) {
            match created {
                Ok(topic) => user.confirm_topic(&topic),
                Err(_) => user.release_topic(name),
            }
        }
    }

    /// Whether the topic's configuration is the one with which the node automatically creates a topic of this name.
    pub fn would_auto_create(&self, topic: &Topic) -> bool {
        let config = &self.0.config;
        let limits = config.topic_limits(&config.topic);
        let created = TopicConfig { pattern: None, limits, ..config.topic.clone() };
        config.auto_create && **topic.config() == created
    }

    /// Removes a topic that was created for a record, after the record was refused. Keeps the topic if another caller
    /// uses it.
    pub(crate) fn remove_if_unused(&self, topic: &Arc<Topic>) {
        if self.ownership().is_some() {
            // Other nodes of the cluster may know the topic already, so keep it.
            return;
        }
        let epoch = topic.logs().iter().map(|log| log.last().epoch).max().unwrap_or(0);
        self.0.epochs.record_deleted(topic.name(), epoch, now_ns());
        if self.0.registry.remove_unused(topic) {
            topic.close();
            if topic.config().durable.is_some() {
                let (node, topic) = (self.unguarded(), Arc::clone(topic));
                // If the disk fails during this removal, an empty topic remains on disk.
                self.0.waiters.run(move || {
                    let _one_at_a_time = node.lock_durable_topics();
                    drop(node.0.storage.as_ref().map(|storage| storage.delete(&topic)));
                });
            }
        }
    }

    /// Returns the topic that owns the subject or, if the pattern has wildcards, the topic with exactly this pattern.
    /// `missing` says whether to create a topic for a subject without one.
    pub fn owning_topic_or_pattern(
        &self,
        pattern: &Pattern,
        missing: MissingTopicPolicy,
    ) -> Result<Arc<Topic>, TopicError> {
        if pattern.is_literal() {
            let subject = Subject::parse(pattern.as_str())?;
            if missing != MissingTopicPolicy::Refuse || is_reserved(pattern.as_str()) {
                return self.owning_topic(subject);
            }
            self.may_publish(subject)?;
            return self.agreed_topic(subject);
        }
        self.may(Action::Publish, pattern)?;
        let remote_inbox =
            || self.ownership()?.inbox(pattern.as_str()).filter(|inbox| inbox.pattern() == pattern.as_str());
        let topic = self.0.registry.of_pattern(pattern).or_else(remote_inbox);
        topic.ok_or_else(|| TopicError::Unknown(pattern.as_str().to_owned()))
    }
}
