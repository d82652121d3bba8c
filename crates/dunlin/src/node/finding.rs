//! From a subject to the topic that owns it, which may be made for it.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use dunlin_topic::{Pattern, PublishError, SERVICES, Subject, Topic, TopicConfig};

use super::Node;
use crate::access::Action;
use crate::clock::{now_ns, steady_ns};
use crate::error::TopicError;
use crate::inbox::Inbox;
use crate::owner::Owner;
use crate::registry::{cost_of, is_reserved};
use crate::select::Missing;
use crate::waiting;

/// Maximum time until a node hears of a topic that another node has created.
const HEARD_WITHIN: Duration = Duration::from_secs(2);
/// What a log's first record takes of the budget at least.
const SEGMENT_BYTES_MIN: usize = 4 << 10;

impl Node {
    /// The topic that owns the subject, to publish to it; creates one where the node does that.
    pub fn owner(&self, subject: Subject<'_>) -> Result<Arc<Topic>, TopicError> {
        self.may_publish(subject)?;
        let owner = self.0.registry.owner(subject).or_else(|| self.reply_topic(subject));
        owner.map_or_else(|| self.find_owner(subject), Ok)
    }

    /// [`owner`](Node::owner) of a record that is no reply, for a caller that has checked the permission.
    pub(crate) fn find_owner(&self, subject: Subject<'_>) -> Result<Arc<Topic>, TopicError> {
        self.owner_or_new(subject, |_| Ok(())).map(Owner::keep)
    }

    /// The topic that owns the subject, or that the cluster has agreed on for it; none is made.
    pub(crate) fn agreed_owner(&self, subject: Subject<'_>) -> Result<Arc<Topic>, TopicError> {
        match (self.0.registry.owner(subject), self.ownership()) {
            (Some(topic), _) => Ok(topic),
            (None, Some(ownership)) if !is_reserved(subject.as_str()) => {
                ownership.agreed(self, subject.as_str())
            }
            (None, _) => Err(TopicError::Unknown(subject.as_str().to_owned())),
        }
    }

    /// The topic that owns the subject; none is made where there is none.
    pub fn existing_owner(&self, subject: Subject<'_>) -> Result<Owner, TopicError> {
        self.may_publish(subject)?;
        self.agreed_owner(subject).map(Owner::of)
    }

    /// The destination of a record with a payload of this size: the topic that owns its subject, or else, for a reply, the
    /// [reply inbox](crate::reply) that takes it. Without either, the node creates a topic if it may, unless the topic would refuse the
    /// record. A topic that then refuses it is removed again.
    pub fn owner_for(&self, subject: Subject<'_>, payload_bytes: usize) -> Result<Owner, TopicError> {
        self.may_publish(subject)?;
        let owner = self.0.registry.owner(subject).or_else(|| self.reply_topic(subject));
        owner.map_or_else(|| self.owner_or_new_for(subject, payload_bytes), |topic| Ok(Owner::of(topic)))
    }

    /// [`owner_for`](Node::owner_for) of a record that is no reply.
    pub fn owner_for_no_reply(
        &self,
        subject: Subject<'_>,
        payload_bytes: usize,
    ) -> Result<Owner, TopicError> {
        self.may_publish(subject)?;
        self.owner_or_new_for(subject, payload_bytes)
    }

    fn owner_or_new_for(&self, subject: Subject<'_>, payload_bytes: usize) -> Result<Owner, TopicError> {
        self.owner_or_new(subject, |config| {
            let bytes_max = config.record_bytes_max as usize;
            if payload_bytes > bytes_max {
                let refused = PublishError::RecordTooLarge { bytes: payload_bytes, bytes_max };
                return Err(TopicError::Record(Box::new(refused)));
            }
            let budget = self.charged();
            let needed = cost_of(subject.as_str(), config.partitions) + payload_bytes.max(SEGMENT_BYTES_MIN);
            if budget.room() < needed as u64 {
                let (asked, used, limit) = (needed as u64, budget.used(), budget.limit());
                return Err(TopicError::Record(Box::new(PublishError::BudgetSpent { asked, used, limit })));
            }
            Ok(())
        })
    }

    fn owner_or_new(
        &self,
        subject: Subject<'_>,
        check: impl FnOnce(&TopicConfig) -> Result<(), TopicError>,
    ) -> Result<Owner, TopicError> {
        if let Some(topic) = self.0.registry.owner(subject) {
            return Ok(Owner::of(topic));
        }
        // Whoever answers a request may find the asker's inbox gone with its session.
        if subject.is_system() {
            return Err(TopicError::Reserved(subject.as_str().to_owned()));
        }
        let elsewhere = || self.ownership().and_then(|ownership| ownership.inbox(subject.as_str()));
        if is_reserved(subject.as_str())
            && let Some(inbox) = elsewhere()
        {
            return Ok(Owner::of(inbox));
        }
        let services = subject.as_str().strip_prefix(SERVICES).is_some_and(|rest| rest.starts_with('.'));
        if !(self.0.config.auto_create || services) || is_reserved(subject.as_str()) {
            return Err(TopicError::Unknown(subject.as_str().to_owned()));
        }
        let (name, config) = if services {
            // One topic of all services' subjects: each service has some of its own, which are soon of no use to anybody.
            let limits = &self.0.config.limits;
            (SERVICES, limits.inbox(format!("{SERVICES}.>"), limits.inbox_bytes_max))
        } else {
            (subject.as_str(), TopicConfig { pattern: None, ..self.0.config.topic.clone() })
        };
        check(&config)?;
        let until_ns = steady_ns().saturating_add(HEARD_WITHIN.as_nanos() as u64);
        let (mut pause, mut is_second) = (Duration::from_millis(1), false);
        loop {
            match self.create_within(name, config.clone(), false, true) {
                Ok(topic) => return Ok(Owner::made(topic, self)),
                Err(TopicError::Exists(_) | TopicError::Overlaps(_)) => {}
                Err(refused) => return Err(refused),
            }
            // Another client was faster, or the name belongs to a topic that owns other subjects.
            if let Some(topic) = self.0.registry.owner(subject) {
                return Ok(Owner::of(topic));
            }
            // The topic was deleted just now, or another node has created it and this one has yet to hear of it.
            let may_wait = waiting::is_allowed();
            let is_over = if may_wait { steady_ns() >= until_ns } else { is_second };
            if self.0.registry.get(name).is_some() || is_over {
                return Err(TopicError::Unknown(subject.as_str().to_owned()));
            }
            is_second = true;
            if may_wait {
                // Each attempt is a question to the cluster: the pauses double, so that there are few.
                thread::sleep(pause);
                pause *= 2;
            }
        }
    }

    /// Has the topics of subjects made that are about to be published to, in this order and by one question; waits for the cluster. What it
    /// refuses, or leaves to be refused, shows when it is published to. With each subject comes its record's payload in bytes.
    pub(crate) fn make_ahead(&self, subjects: Vec<(String, usize)>) {
        let Some(ownership) = self.ownership().filter(|_| self.0.config.auto_create) else { return };
        let config = TopicConfig { pattern: None, ..self.0.config.topic.clone() };
        let limits = self.0.config.topic_limits(&config);
        let config = TopicConfig { limits, ..config };
        let mut room = self.charged().room();
        let mut is_to_be_made = |(subject, payload_bytes): &(String, usize)| {
            let Ok(parsed) = Subject::parse(subject) else { return false };
            let is_special = is_reserved(subject)
                || parsed.is_system()
                || subject.starts_with(SERVICES)
                || Inbox::has_own_prefix(subject);
            if is_special || self.may_publish(parsed).is_err() || self.0.registry.owner(parsed).is_some() {
                return false;
            }
            let needed = cost_of(subject, config.partitions) + (*payload_bytes).max(SEGMENT_BYTES_MIN);
            room = room.saturating_sub(needed as u64);
            let is_taken = room > 0 && *payload_bytes <= config.record_bytes_max as usize;
            is_taken && self.user().is_none_or(|user| user.begin_topic(subject, true).is_ok())
        };
        let wanted = subjects.into_iter().filter(|one| is_to_be_made(one));
        let names: Vec<String> = wanted.map(|(subject, _)| subject).collect();
        if names.is_empty() {
            return;
        }
        let made = ownership.create_together(self, &names, &config);
        let Some(user) = self.user() else { return };
        for (name, made) in names.iter().zip(made) {
            match made {
                Ok(topic) => user.made_topic(&topic),
                Err(_) => user.no_topic(name),
            }
        }
    }

    /// Whether this node makes such a topic by itself, when its name is published to.
    pub fn makes_by_itself(&self, topic: &Topic) -> bool {
        let config = &self.0.config;
        let limits = config.topic_limits(&config.topic);
        let made = TopicConfig { pattern: None, limits, ..config.topic.clone() };
        config.auto_create && **topic.config() == made
    }

    /// Takes back a topic that was made for what came to nothing, unless somebody uses it.
    pub(crate) fn take_back(&self, topic: &Arc<Topic>) {
        if self.ownership().is_some() {
            // Others know of it by now.
            return;
        }
        let epoch = topic.logs().iter().map(|log| log.last().epoch).max().unwrap_or(0);
        self.0.epochs.used(topic.name(), epoch, now_ns());
        if self.0.registry.remove_unused(topic) {
            topic.close();
            if topic.config().durable.is_some() {
                let (node, topic) = (self.unguarded(), Arc::clone(topic));
                // What stays of it on a disk that fails is an empty topic.
                self.0.waiters.run(move || {
                    let _one_at_a_time = node.storing();
                    drop(node.0.storage.as_ref().map(|storage| storage.delete(&topic)));
                });
            }
        }
    }

    /// The topic that owns the subject, or whose very pattern this is. A subject that no topic owns gets one, if the node
    /// creates them and `missing` says so.
    pub fn owner_or_pattern(&self, pattern: &Pattern, missing: Missing) -> Result<Arc<Topic>, TopicError> {
        if pattern.is_literal() {
            let subject = Subject::parse(pattern.as_str())?;
            if missing != Missing::Refuse || is_reserved(pattern.as_str()) {
                return self.owner(subject);
            }
            self.may_publish(subject)?;
            return self.agreed_owner(subject);
        }
        self.may(Action::Publish, pattern)?;
        let elsewhere =
            || self.ownership()?.inbox(pattern.as_str()).filter(|inbox| inbox.pattern() == pattern.as_str());
        let topic = self.0.registry.of_pattern(pattern).or_else(elsewhere);
        topic.ok_or_else(|| TopicError::Unknown(pattern.as_str().to_owned()))
    }
}
