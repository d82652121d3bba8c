//! Handles a client's requests to create, delete, list and describe topics.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, PoisonError};

use dunlin::topic::{
    ConfigError, DurableOptions, LogInfo, Pattern, Position, ReducerConfig, StateInfo, Subject,
    SubscriberInfo, Topic, TopicConfig,
};
use dunlin::wire::{
    CreateTopic, CreateTopicWithSettings, ErrorCode, FromNode, GroupKind, GroupState, ListTopics,
    ListedTopic, LogState, MessageList, NamedTopic, RequestRefused, Setting, Settings, SubscriberState,
    TopicState, Topics, UNKNOWN, UNKNOWN_COUNT,
};
use dunlin::{GroupInfo, Refused, RefusedTopic, TopicError, TopicFuture};

use super::Session;
use super::access::LoginState;
use super::preparation::Preparation;
use super::translate::{config_from_wire, config_to_wire, position_to_wire};
use crate::figures::{
    ClusterFigures, FiguresRequest, OwnerFigures, SUBSCRIBERS_SHOWN, TopicClients, TopicFigures,
};
use crate::peers::interest::{self, INTEREST};
use crate::session::turn::COMMAND_WORK;

/// If the topic name in DESCRIBE_SETTINGS has this prefix, a subject follows. The client then asks whether the subject
/// has subscribers.
pub(super) const HAS_SUBSCRIBER: &str = "$DUNLIN.heard.";
/// If the topic name in DESCRIBE_SETTINGS has this prefix, a topic's name follows. The client then asks which groups of
/// this topic have dead letters that are not stored yet.
pub(super) const PENDING_DEAD_LETTERS: &str = "$DUNLIN.dead.";

/// Name of the setting that makes a topic durable, with its acknowledgement level as the value.
const DURABLE: &str = "durable";
const DURABLE_MEMORY: &str = "durable.memory_bytes";
/// Name of the setting that withholds some records from subscribers, for tests.
const TEST_LOSS_EVERY: &str = "test_loss_every";

impl Session {
    pub(super) fn create_topic(&mut self, create: &CreateTopic<'_>) {
        let created = self.prepared.take().unwrap_or_else(|| {
            let created = self.node.create_topic(create.config.name, self.config_of(create), create.or_same);
            created.map(drop).map_err(|error| Refused::from(&error))
        });
        self.send_outcome(create.request, created);
    }

    pub(super) fn config_of(&self, create: &CreateTopic<'_>) -> TopicConfig {
        config_from_wire(&create.config, &self.node.config().topic)
    }

    pub(super) fn create_topic_with_settings(&mut self, create: &CreateTopicWithSettings<'_>) {
        let created = self.prepared.take().unwrap_or_else(|| {
            let created = self
                .config_with_settings(create)
                .and_then(|config| self.node.create_topic(create.config.name, config, create.or_same));
            created.map(drop).map_err(|error| Refused::from(&error))
        });
        self.send_outcome(create.request, created);
    }

    pub(super) fn config_with_settings(
        &self,
        create: &CreateTopicWithSettings<'_>,
    ) -> Result<TopicConfig, TopicError> {
        let mut config = config_from_wire(&create.config, &self.node.config().topic);
        if create.config.retain_bytes == 0 && create.settings.iter().any(|setting| setting.name == DURABLE) {
            config.retention.bytes = DurableOptions::RETENTION_BYTES_DEFAULT;
        }
        apply_settings(&mut config, create.settings.iter()).map_err(TopicError::Config)?;
        Ok(config)
    }

    pub(super) fn describe_settings(&mut self, describe: NamedTopic<'_>) {
        if let Some(subject) = describe.topic.strip_prefix(HAS_SUBSCRIBER) {
            return self.send_subscriber_query_result(describe.request, subject);
        }
        if let Some(pattern) = describe.topic.strip_prefix(INTEREST) {
            return self.describe_interest(describe.request, pattern);
        }
        if let Some(topic) = describe.topic.strip_prefix(PENDING_DEAD_LETTERS) {
            return self.describe_dead_letters(describe.request, topic);
        }
        let Some(topic) = self.node.topic(describe.topic) else {
            return self.refuse_request(describe.request, &self.node.missing_topic_error(describe.topic));
        };
        let mut settings = settings_of(&topic, !self.shared.is_elsewhere(&topic));
        if let Some(owner) = self.shared.owner_of(&topic) {
            settings.extend(owner.settings());
        }
        let lines: Vec<_> = settings.iter().map(|(name, value)| Setting { name, value }).collect();
        let settings = Settings { request: describe.request, settings: MessageList::new(&lines) };
        self.outbound.push(FromNode::Settings(settings));
    }

    /// Responds whether the subject of a client's request has a subscriber. The client asks this before it sends the
    /// request.
    fn send_subscriber_query_result(&mut self, request: u32, subject: &str) {
        let result = match self.prepared.take() {
            Some(result) => result,
            // The query needed no preparation, so its result is available at once.
            None => self
                .query_subscribers(subject)
                .and_then(|mut query| subscriber_or_refusal(subject, query.try_take().unwrap_or(Ok(true)))),
        };
        match result {
            Ok(()) => {
                let settings = MessageList::new(&[]);
                self.outbound.push(FromNode::Settings(Settings { request, settings }));
            }
            Err(refused) => self.refuse_request(request, &refused),
        }
    }

    /// Queries whether any node of the cluster has a subscriber to the subject. Fails if the client may not publish to
    /// the subject.
    pub(super) fn query_subscribers(&self, subject: &str) -> Result<TopicFuture<bool>, Refused> {
        let parsed = Subject::parse(subject);
        let subject = parsed.map_err(|error| Refused::new(ErrorCode::Subject, error.to_string()))?;
        self.node.may_publish(subject).map_err(|error| Refused::from(&error))?;
        Ok(self.node.has_subscriber_async(&Pattern::from(subject)))
    }

    /// Responds to another node that asks whether this node has subscribers.
    fn describe_interest(&mut self, request: u32, pattern: &str) {
        let is_node = matches!(self.login_state, LoginState::Node) || self.shared.access.is_none();
        let pattern = match Pattern::parse(pattern) {
            Ok(pattern) if is_node => pattern,
            Ok(_) => {
                let refused = Refused::new(ErrorCode::Forbidden, "only nodes may query subscribers this way");
                return self.refuse_request(request, &refused);
            }
            Err(error) => {
                let refused = Refused::new(ErrorCode::Subject, error.to_string());
                return self.refuse_request(request, &refused);
            }
        };
        let mut interest = self.node.local_interest(&pattern);
        let user = self.shared.access.as_ref().and_then(|access| access.user_of_inbox(pattern.as_str()));
        interest.inbox_user = user.or(interest.inbox_user);
        let settings = interest::encode_interest(&interest);
        let lines: Vec<_> = settings.into_iter().map(|(name, value)| Setting { name, value }).collect();
        self.outbound.push(FromNode::Settings(Settings { request, settings: MessageList::new(&lines) }));
    }

    /// Responds with the groups of a topic whose dead letters could not all be stored. For each group, states how many
    /// dead letters are not stored, and the error with which one of them was refused.
    fn describe_dead_letters(&mut self, request: u32, topic: &str) {
        let Some(found) = self.node.topic(topic) else {
            return self.refuse_request(request, &self.node.missing_topic_error(topic));
        };
        let owner = self.take_figures().of(&self.shared, &found).owner;
        let groups = owner.map_or_else(Vec::new, |owner| owner.groups);
        let text = |group: &GroupInfo| match &group.dead_letter_error {
            Some(error) => format!("{} {error}", group.pending_dead_letters),
            None => group.pending_dead_letters.to_string(),
        };
        let pending = groups.iter().filter(|group| group.pending_dead_letters > 0).take(self.lines_max());
        let texts: Vec<_> = pending.map(|group| (&group.name, text(group))).collect();
        let lines: Vec<_> = texts.iter().map(|(name, value)| Setting { name, value }).collect();
        self.outbound.push(FromNode::Settings(Settings { request, settings: MessageList::new(&lines) }));
    }

    pub(super) fn delete_topic(&mut self, delete: NamedTopic<'_>) {
        let deleted = self
            .prepared
            .take()
            .unwrap_or_else(|| self.node.delete_topic(delete.topic).map_err(|error| Refused::from(&error)));
        self.send_outcome(delete.request, deleted);
    }

    fn send_outcome(&mut self, request: u32, outcome: Result<(), Refused>) {
        match outcome {
            Ok(()) => self.outbound.push(FromNode::Done { request }),
            Err(refused) => self.refuse_request(request, &refused),
        }
    }

    fn refuse_request(&mut self, request: u32, refused: &Refused) {
        let refusal = refused.as_wire();
        self.outbound.push(FromNode::RequestRefused(RequestRefused { request, refusal }));
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
        if pattern.as_ref().is_some_and(|pattern| !pattern.is_literal()) {
            self.commands.add_scan(self.node.topic_count());
        }
        let fit = self.lines_max();
        let topics_max = fit.min(list.topics_max as usize);
        let page = self.node.topics(pattern.as_ref(), list.after, topics_max);
        let cluster_figures = self.take_figures();
        let mut lines: Vec<_> = page
            .topics
            .iter()
            .map(|topic| topic_line(topic, &cluster_figures.of(&self.shared, topic)))
            .collect();
        // Topics that could not be opened come last, so they are added only on the last page.
        let refused = if page.more { Vec::new() } else { self.node.refused_topics() };
        let matches_pattern =
            |refused: &&RefusedTopic| match (&pattern, Subject::parse_existing(&refused.name)) {
                (Some(pattern), Ok(name)) => pattern.matches(name),
                (pattern, _) => pattern.is_none(),
            };
        lines.extend(
            refused.iter().filter(matches_pattern).take(fit - lines.len().min(fit)).map(refused_topic_line),
        );
        self.commands.add(COMMAND_WORK * lines.len());
        let topics = Topics { request: list.request, more: page.more, topics: MessageList::new(&lines) };
        self.outbound.push(FromNode::Topics(topics));
    }

    /// Number of topics that fit in one message. Each has a line with up to two names and 64 more bytes.
    fn lines_max(&self) -> usize {
        self.shared.limits.control_bytes_max as usize / (2 * dunlin::topic::SUBJECT_BYTES_MAX + 64)
    }

    /// Requests the figures of the listed topics from the other nodes; `None` if there are no other nodes.
    pub(super) fn figures_for_list(&self, list: &ListTopics<'_>) -> Option<Preparation> {
        let pattern = match list.pattern {
            "" => None,
            pattern => Some(Pattern::parse(pattern).ok()?),
        };
        let topics_max = self.lines_max().min(list.topics_max as usize);
        self.figures_for(|| self.node.topics(pattern.as_ref(), list.after, topics_max).topics)
    }

    /// Requests the figures of one topic from the other nodes; `None` if there are no other nodes.
    pub(super) fn figures_for_topic(&self, name: &str) -> Option<Preparation> {
        self.figures_for(|| self.node.topic(name).into_iter().collect())
    }

    fn figures_for(&self, topics: impl FnOnce() -> Vec<Arc<Topic>>) -> Option<Preparation> {
        let names = || topics().iter().map(|topic| topic.name().to_owned()).collect();
        let request =
            self.shared.request_figures(|| FiguresRequest { names: names(), ..FiguresRequest::default() })?;
        let figures = Arc::clone(&self.figures);
        Some(Box::pin(async move {
            let cluster_figures = request.await;
            *figures.lock().unwrap_or_else(PoisonError::into_inner) = cluster_figures;
            Ok(())
        }))
    }

    fn take_figures(&self) -> ClusterFigures {
        std::mem::take(&mut *self.figures.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn describe_topic(&mut self, describe: NamedTopic<'_>) {
        let Some(topic) = self.node.topic(describe.topic) else {
            return self.refuse_request(describe.request, &self.node.missing_topic_error(describe.topic));
        };
        let TopicFigures { owner, clients } = self.take_figures().of(&self.shared, &topic);
        let (logs, infos) = owner.map(|owner| (owner.logs, owner.groups)).unwrap_or_default();
        let logs: Vec<_> = logs.into_iter().map(|(partition, info)| log_state(partition, info)).collect();
        let groups: Vec<_> = infos.iter().map(group_state).collect();
        let unknown = TopicClients {
            publishers: UNKNOWN_COUNT,
            subscribers_total: UNKNOWN_COUNT,
            ..TopicClients::default()
        };
        let clients = clients.unwrap_or(unknown);
        let subscribers: Vec<_> = clients
            .subscribers
            .iter()
            .take(SUBSCRIBERS_SHOWN)
            .map(|(_, subscriber)| subscriber_state(subscriber))
            .collect();
        self.outbound.push(FromNode::Topic(TopicState {
            request: describe.request,
            config: config_to_wire(topic.name(), topic.pattern(), topic.config()),
            publishers: clients.publishers,
            subscribers_total: clients.subscribers_total,
            logs: MessageList::new(&logs),
            subscribers: MessageList::new(&subscribers),
            groups: MessageList::new(&groups),
        }));
    }
}

/// Refuses a request whose subject has no subscriber. If the other nodes cannot be queried, the subject counts as one
/// with a subscriber.
pub(super) fn subscriber_or_refusal(
    subject: &str,
    has_subscriber: Result<bool, TopicError>,
) -> Result<(), Refused> {
    if has_subscriber.unwrap_or(true) { Ok(()) } else { Err(Refused::new(ErrorCode::NoResponder, subject)) }
}

/// Applies settings, which are pairs of name and value, to a topic's configuration.
fn apply_settings<'a>(
    config: &mut TopicConfig,
    settings: impl Iterator<Item = Setting<'a>>,
) -> Result<(), ConfigError> {
    let (mut options, mut seen) = (BTreeMap::new(), HashSet::new());
    for setting in settings {
        if !seen.insert(setting.name) {
            return Err(ConfigError::Unfit("a setting occurs twice"));
        }
        match setting.name.strip_prefix("reducer.") {
            Some(option) => drop(options.insert(option.to_owned(), setting.value.to_owned())),
            None if setting.name == "reducer" => {
                config.reducer =
                    Some(ReducerConfig { kind: setting.value.to_owned(), options: BTreeMap::new() });
            }
            None if setting.name == TEST_LOSS_EVERY => {
                let every = setting
                    .value
                    .parse()
                    .map_err(|_| ConfigError::Unfit("test_loss_every must be a number of at least 1"))?;
                config.test_loss_every = Some(every);
            }
            None if setting.name.starts_with(DURABLE) => set_durable(config, &setting)?,
            None => return Err(ConfigError::Unfit("unknown setting")),
        }
    }
    match &mut config.reducer {
        Some(reducer) => reducer.options = options,
        None if options.is_empty() => {}
        None => return Err(ConfigError::Unfit("options reducer.* need the setting reducer")),
    }
    Ok(())
}

fn set_durable(config: &mut TopicConfig, setting: &Setting<'_>) -> Result<(), ConfigError> {
    let durable = config.durable.get_or_insert_default();
    match setting.name {
        DURABLE => {
            let level = setting.value.parse();
            durable.acknowledge =
                level.map_err(|_| ConfigError::Unfit("durable must be memory, written or synced"))?;
        }
        DURABLE_MEMORY => {
            let bytes = setting.value.parse();
            durable.memory_bytes =
                bytes.map_err(|_| ConfigError::Unfit("durable.memory_bytes must be a number"))?;
        }
        _ => return Err(ConfigError::Unfit("unknown setting")),
    }
    Ok(())
}

/// Returns a topic's settings as names and values. If this node owns the topic (`is_here`), adds the state of each log.
fn settings_of(topic: &Topic, is_here: bool) -> Vec<(String, String)> {
    let mut settings = durable_settings_of(topic, is_here);
    let every = topic.config().test_loss_every.map(|every| (TEST_LOSS_EVERY.to_owned(), every.to_string()));
    settings.extend(every);
    let Some(reducer) = &topic.config().reducer else { return settings };
    settings.push(("reducer".to_owned(), reducer.kind.clone()));
    settings.extend(reducer.options.iter().map(|(name, value)| (format!("reducer.{name}"), value.clone())));
    for log in topic.logs().iter().filter(|_| is_here) {
        if let Some((position, StateInfo { entries, bytes, checksum })) = log.state_info() {
            let value = format!("at {position}: {entries} entries, {bytes} bytes, checksum {checksum:016x}");
            settings.push((format!("reducer/{}", log.name().partition), value));
        }
    }
    settings
}

fn durable_settings_of(topic: &Topic, is_here: bool) -> Vec<(String, String)> {
    let Some(durable) = &topic.config().durable else { return Vec::new() };
    let mut settings = vec![
        (DURABLE.to_owned(), durable.acknowledge.to_string()),
        (DURABLE_MEMORY.to_owned(), durable.memory_bytes.to_string()),
    ];
    for log in topic.logs().iter().filter(|_| is_here) {
        let info = log.info();
        let Some(stored) = info.stored else { continue };
        let oldest = Position { epoch: stored.oldest_epoch, seq: info.oldest_seq };
        let synced = Position { epoch: info.epoch, seq: stored.synced_seq };
        let mut value = format!("from {oldest} synced through {synced}, {} bytes on disk", stored.bytes);
        if stored.full {
            value.push_str(", the disk is full");
        }
        if stored.failed {
            value.push_str(", the disk failed");
        }
        settings.push((format!("{DURABLE}/{}", log.name().partition), value));
    }
    settings
}

/// Creates the list's line for a topic that could not be opened. The line states 0 partitions.
fn refused_topic_line(refused: &RefusedTopic) -> ListedTopic<'_> {
    ListedTopic {
        name: &refused.name,
        pattern: &refused.pattern,
        partitions: 0,
        reliable: false,
        records: 0,
        bytes: 0,
        appended: 0,
        subscribers: 0,
    }
}

fn topic_line<'t>(topic: &'t Topic, TopicFigures { owner, clients }: &TopicFigures) -> ListedTopic<'t> {
    ListedTopic {
        name: topic.name(),
        pattern: topic.pattern(),
        partitions: topic.config().partitions,
        reliable: topic.config().reliable.is_some(),
        records: owner.as_ref().map_or(UNKNOWN, OwnerFigures::records),
        bytes: owner.as_ref().map_or(UNKNOWN, OwnerFigures::bytes),
        appended: owner.as_ref().map_or(UNKNOWN, OwnerFigures::appended),
        subscribers: clients.as_ref().map_or(UNKNOWN_COUNT, |clients| clients.subscribers_total),
    }
}

fn subscriber_state(subscriber: &SubscriberInfo) -> SubscriberState<'_> {
    SubscriberState {
        name: &subscriber.name,
        partition: subscriber.partition,
        position: position_to_wire(subscriber.position),
        lag: subscriber.lag,
        missed: subscriber.missed,
        registered: subscriber.registered,
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
        bytes: info.stored.map_or(info.bytes, |stored| stored.bytes),
        last_append_ns: info.last_append_ns,
    }
}
