//! Creates, lists and describes topics.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin_control::{ControlCommand, ControlReply};
use dunlin_topic::{AckLevel, OnFull, Position, ReliableOptions, Retention, TopicConfig};
use dunlin_wire::{
    CreateTopic, CreateTopicWithSettings, DecodeOutcome, Decoder, ErrorCode, FromClient, FromNode,
    ListTopics, ListedTopic, MessageKind, MessageList, NamedTopic, Setting, TopicState, UNKNOWN,
    UNKNOWN_COUNT, WhenFull,
};

use crate::client::{Client, SharedClient};
use crate::follow::lock;
use crate::interrupt::is_interrupted;
use crate::kv::KvError;
use crate::pending_request::repeat_while_lost;
use crate::refusal::RefusedError;

/// The number of topics on one page of a list.
const PAGE_TOPICS: u32 = 1_000;
/// The prefix with which a client asks for the groups of a topic that have dead letters which were not stored yet. The
/// client requests the settings of a topic, with this prefix before the topic's name.
const PENDING_DEAD_LETTERS: &str = "$DUNLIN.dead.";
/// How many requests for settings the client sends before it waits for the first response.
const SETTINGS_AHEAD: usize = 256;

/// Why a request about topics failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The node refused the request with this error.
    #[error(transparent)]
    Refused(#[from] RefusedError),
    /// There is no connection, so the request was not sent.
    #[error("not connected to a node, and the request was not sent: {0}")]
    Disconnected(String),
    /// The response was lost: the node may have carried out the request, or may do so later.
    #[error(
        "the node may have carried out the request, or may still do so: {0}; repeat the request only if a \
         repetition does no harm"
    )]
    Unknown(String),
}

/// A topic in a list of topics, with its counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicSummary {
    /// The topic's name.
    pub name: String,
    /// The pattern of the subjects that the topic owns.
    pub pattern: String,
    /// The number of partitions; 0 if the topic is on disk and could not be opened.
    pub partitions: u16,
    /// Whether the topic is reliable: publishers wait for its registered subscribers.
    pub reliable: bool,
    /// The number of retained records. This field and the next three are `None` if the count is unknown, because a node
    /// does not respond.
    pub records: Option<u64>,
    /// The size of the retained records in bytes.
    pub bytes: Option<u64>,
    /// How many records were appended in the present epochs of the topic's logs, including records that are no longer
    /// retained.
    pub appended: Option<u64>,
    /// The number of present subscriptions, at all nodes together.
    pub subscribers: Option<u32>,
}

/// The configuration, partitions, subscriptions and groups of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicDescription {
    /// The topic's name.
    pub name: String,
    /// The topic's configuration.
    pub config: TopicConfig,
    /// The number of publishers, at all nodes together; `None` if a node does not respond.
    pub publishers: Option<u32>,
    /// The number of subscriptions, at all nodes together; `None` if a node does not respond. The list `subscribers`
    /// may contain only some of them.
    pub subscribers_total: Option<u32>,
    /// A description of each partition's log; empty if the topic's owner does not respond.
    pub logs: Vec<LogDescription>,
    /// The subscriptions with the largest lag, the largest first.
    pub subscribers: Vec<SubscriptionDescription>,
    /// The topic's groups.
    pub groups: Vec<GroupDescription>,
    /// Further settings and status values, as pairs of a name and a value.
    pub settings: Vec<(String, String)>,
}

/// The log of one partition of a topic: its retained records and their size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogDescription {
    /// The partition's number.
    pub partition: u16,
    /// The position of the oldest retained record. If no record is retained, the position of the next record.
    pub first: Position,
    /// The sequence number of the last appended record.
    pub last_seq: u64,
    /// The size of the retained records in bytes.
    pub bytes: u64,
    /// The time of the last append in nanoseconds since the Unix epoch; 0 if nothing was appended.
    pub last_append_ns: u64,
}

/// A subscription to one partition of a topic, with its position and lag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriptionDescription {
    /// The name that the subscriber has given to the subscription.
    pub name: String,
    /// The partition's number.
    pub partition: u16,
    /// The position of the last record that was delivered to the subscriber.
    pub position: Position,
    /// How many records the subscriber has still to read.
    pub lag: u64,
    /// How many records the subscriber has missed.
    pub missed: u64,
    /// Whether the subscriber is registered, so that publishers of a reliable topic wait for it.
    pub registered: bool,
}

/// A group of a topic, with counts of its members and records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupDescription {
    /// The group's name.
    pub name: String,
    /// Whether it is a work group, in which members have to acknowledge records.
    pub work: bool,
    /// The number of members.
    pub members: u32,
    /// The number of records that wait for a member.
    pub waiting: u64,
    /// The number of records that members have claimed, but not acknowledged yet.
    pub claimed: u64,
    /// The number of dead letters that were not stored in the topic for dead letters yet. 0 if the node's version does
    /// not report it.
    pub pending_dead_letters: u64,
    /// Why the topic for dead letters refused a dead letter that still waits to be stored: an error code and a text.
    /// `None` if there is no such refusal.
    pub dead_letter_error: Option<String>,
}

impl Client {
    /// Creates a topic. With `accept_same`, a topic that already exists with the same name and configuration is not an
    /// error.
    pub fn create_topic(&self, name: &str, config: &TopicConfig, accept_same: bool) -> Result<(), CallError> {
        let created = with_create(name, config, accept_same, |create| self.shared.call(create))?;
        lock(&self.shared.session).topic_created(name, config);
        drop(created);
        Ok(())
    }

    /// Deletes a topic with all its records.
    pub fn delete_topic(&self, topic: &str) -> Result<(), CallError> {
        lock(&self.shared.session).topic_deleted(topic);
        self.shared.call(|request| FromClient::DeleteTopic(NamedTopic { request, topic })).map(drop)
    }

    /// Moves a topic with its records to another node. Returns the epoch in which the topic continues at its new owner.
    pub fn move_topic(&self, topic: &str, node: u64) -> Result<u32, KvError> {
        let command = ControlCommand::Move { topic: topic.as_bytes(), node, epoch: 0 };
        match self.kv().begin(&command)?.wait()? {
            ControlReply::Placed { epoch, .. } => Ok(epoch),
            _ => Err(KvError::Unknown("the node sent an unexpected response".to_owned())),
        }
    }

    /// Lists the topics whose names match `pattern`, in the order of their names. An empty pattern matches all topics.
    pub fn topics(&self, pattern: &str) -> Result<Vec<TopicSummary>, CallError> {
        let mut found: Vec<TopicSummary> = Vec::new();
        loop {
            let after = found.last().map_or(String::new(), |last| last.name.clone());
            let request_page = |request| {
                FromClient::ListTopics(ListTopics {
                    request,
                    topics_max: PAGE_TOPICS,
                    pattern,
                    after: &after,
                })
            };
            let bytes = self.shared.query(request_page)?;
            let Some(FromNode::Topics(page)) = self.shared.decode_response(&bytes) else {
                return Err(unexpected_response());
            };
            found.extend(page.topics.iter().map(summary));
            if !page.more || page.topics.is_empty() {
                return Ok(found);
            }
        }
    }

    /// Describes a topic.
    pub fn describe_topic(&self, topic: &str) -> Result<TopicDescription, CallError> {
        let bytes = self.shared.query(|request| FromClient::DescribeTopic(NamedTopic { request, topic }))?;
        match self.shared.decode_response(&bytes) {
            Some(FromNode::Topic(state)) => {
                let mut description = description(&state);
                description.take_settings(self.topic_settings(topic)?);
                if description.groups.iter().any(|group| group.work) {
                    description.take_dead_letters(&self.pending_dead_letters(topic)?);
                }
                Ok(description)
            }
            _ => Err(unexpected_response()),
        }
    }

    /// Returns the settings of a topic (such as `durable` and `reducer`) and its status values, as pairs of a name and
    /// a value.
    pub fn topic_settings(&self, topic: &str) -> Result<Vec<(String, String)>, CallError> {
        let bytes =
            self.shared.query(|request| FromClient::DescribeSettings(NamedTopic { request, topic }))?;
        self.shared.read_settings(&bytes)
    }

    /// Returns the groups of a topic that have dead letters which were not stored yet. Each entry is the name of a
    /// group, and a text with the number of these dead letters and the reason.
    fn pending_dead_letters(&self, topic: &str) -> Result<Vec<(String, String)>, CallError> {
        match self.topic_settings(&format!("{PENDING_DEAD_LETTERS}{topic}")) {
            // A node of an earlier version does not know this query.
            Err(CallError::Refused(_)) => Ok(Vec::new()),
            response => response,
        }
    }

    /// Returns the settings of each topic in `topics`, like [`topic_settings`](Client::topic_settings). Sends many
    /// requests before it waits for their responses, so that few round trips are needed.
    pub fn settings_of_topics(&self, topics: &[&str]) -> Vec<Result<Vec<(String, String)>, CallError>> {
        let mut settings = Vec::with_capacity(topics.len());
        for topics in topics.chunks(SETTINGS_AHEAD) {
            let until = Some(Instant::now() + Duration::from_millis(self.shared.limits.answer_ms_max));
            let send_one = |topic: &&str| {
                self.shared
                    .send_request(|request| FromClient::DescribeSettings(NamedTopic { request, topic }))
            };
            let requests: Vec<_> = topics.iter().map(send_one).collect();
            let read = |bytes: Vec<u8>| self.shared.read_settings(&bytes);
            let responses = topics.iter().zip(requests).map(|(topic, request)| {
                match request.and_then(|request| request.wait(until)) {
                    Err(CallError::Unknown(_)) if !is_interrupted() && until > Some(Instant::now()) => {
                        self.topic_settings(topic)
                    }
                    response => response.and_then(read),
                }
            });
            settings.extend(responses);
        }
        settings
    }
}

impl SharedClient {
    pub(crate) fn read_settings(&self, bytes: &[u8]) -> Result<Vec<(String, String)>, CallError> {
        match self.decode_response(bytes) {
            Some(FromNode::Settings(settings)) => {
                let owned = |setting: Setting<'_>| (setting.name.to_owned(), setting.value.to_owned());
                Ok(settings.settings.iter().map(owned).collect())
            }
            _ => Err(unexpected_response()),
        }
    }
}

impl TopicDescription {
    fn take_settings(&mut self, settings: Vec<(String, String)>) {
        for (name, value) in &settings {
            match name.as_str() {
                "durable" => {
                    let level = value.parse().unwrap_or(AckLevel::Memory);
                    self.config.durable.get_or_insert_default().acknowledge = level;
                }
                "durable.memory_bytes" => {
                    let durable = self.config.durable.get_or_insert_default();
                    durable.memory_bytes = value.parse().unwrap_or(durable.memory_bytes);
                }
                "test_loss_every" => self.config.test_loss_every = value.parse().ok(),
                _ => {}
            }
            match name.strip_prefix("reducer") {
                Some("") => self.config.reducer.get_or_insert_default().kind.clone_from(value),
                Some(option) if option.starts_with('.') => {
                    let options = &mut self.config.reducer.get_or_insert_default().options;
                    options.insert(option[1..].to_owned(), value.clone());
                }
                _ => {}
            }
        }
        self.settings = settings;
    }

    fn take_dead_letters(&mut self, pending: &[(String, String)]) {
        for (name, text) in pending {
            let Some(group) = self.groups.iter_mut().find(|group| group.name == *name) else { continue };
            let (count, error) = text
                .split_once(' ')
                .map_or((text.as_str(), None), |(count, error)| (count, Some(error.to_owned())));
            (group.pending_dead_letters, group.dead_letter_error) = (count.parse().unwrap_or(0), error);
        }
    }
}

/// Returns the settings of a configuration that are sent as pairs of a name and a value.
fn settings(config: &TopicConfig) -> Vec<(String, String)> {
    let mut settings = Vec::new();
    if let Some(durable) = &config.durable {
        settings.push(("durable".to_owned(), durable.acknowledge.to_string()));
        settings.push(("durable.memory_bytes".to_owned(), durable.memory_bytes.to_string()));
    }
    settings.extend(config.test_loss_every.map(|every| ("test_loss_every".to_owned(), every.to_string())));
    if let Some(reducer) = &config.reducer {
        settings.push(("reducer".to_owned(), reducer.kind.clone()));
        settings
            .extend(reducer.options.iter().map(|(name, value)| (format!("reducer.{name}"), value.clone())));
    }
    settings
}

/// Calls `with`, and returns its result. The argument is a function that returns the message to create the topic, for a
/// request with the given number.
fn with_create<R>(
    name: &str,
    config: &TopicConfig,
    accept_same: bool,
    with: impl for<'a> FnOnce(Box<dyn FnOnce(u32) -> FromClient<'a> + 'a>) -> R,
) -> R {
    let settings = settings(config);
    let config = config_to_wire(name, config);
    if settings.is_empty() {
        return with(Box::new(move |request| {
            FromClient::CreateTopic(CreateTopic { request, or_same: accept_same, config })
        }));
    }
    let settings: Vec<_> = settings.iter().map(|(name, value)| Setting { name, value }).collect();
    let settings = MessageList::new(&settings);
    with(Box::new(move |request| {
        FromClient::CreateTopicWithSettings(CreateTopicWithSettings {
            request,
            or_same: accept_same,
            config,
            settings,
        })
    }))
}

pub(crate) fn encode_create(
    name: &str,
    config: &TopicConfig,
    accept_same: bool,
    request: u32,
    out: &mut Vec<u8>,
) {
    with_create(name, config, accept_same, |create| create(request).encode(out));
}

fn unexpected_response() -> CallError {
    CallError::Unknown("the node sent an unexpected response".to_owned())
}

impl SharedClient {
    /// Fails if the protocol version of the present connection does not have messages of this kind. Succeeds if there
    /// is no connection.
    pub(crate) fn check_version(&self, kind: MessageKind) -> Result<(), CallError> {
        let session = lock(&self.session);
        if !session.is_up || session.version >= kind.since() {
            return Ok(());
        }
        let (numbers, text) =
            ([1, session.version.into(), 0], "the node's version does not support this request".to_owned());
        Err(CallError::Refused(RefusedError { code: ErrorCode::Version, numbers, text }))
    }

    /// Sends a request, and waits for its response. Returns the bytes of the response. The response DONE has no bytes.
    pub(crate) fn call<'a>(
        self: &Arc<SharedClient>,
        request: impl FnOnce(u32) -> FromClient<'a>,
    ) -> Result<Vec<u8>, CallError> {
        let until = Instant::now() + Duration::from_millis(self.limits.answer_ms_max);
        self.send_request(request)?.wait(Some(until))
    }

    /// Like [`call`](SharedClient::call), for a request that changes nothing. If the connection is lost before the
    /// response, the request is sent again.
    pub(crate) fn query<'a>(
        self: &Arc<SharedClient>,
        request: impl Fn(u32) -> FromClient<'a>,
    ) -> Result<Vec<u8>, CallError> {
        let until = Instant::now() + Duration::from_millis(self.limits.answer_ms_max);
        let is_lost = |error: &CallError| matches!(error, CallError::Unknown(_)) && !is_interrupted();
        repeat_while_lost(until, is_lost, || self.send_request_until(until, &request)?.wait(Some(until)))
    }

    /// Decodes the bytes of a response, which the client has already checked when it received them.
    pub(crate) fn decode_response<'b>(&self, bytes: &'b [u8]) -> Option<FromNode<'b>> {
        let limits = dunlin_wire::DecoderLimits {
            run_bytes_max: self.limits.run_bytes_max,
            control_bytes_max: self.limits.control_bytes_max,
        };
        match Decoder::new(limits).next_from_node(bytes) {
            Ok(DecodeOutcome::Message(message, _)) => Some(message),
            _ => None,
        }
    }
}

fn config_to_wire<'a>(name: &'a str, config: &'a TopicConfig) -> dunlin_wire::TopicConfig<'a> {
    let reliable = config.reliable.as_ref();
    dunlin_wire::TopicConfig {
        name,
        pattern: config.pattern.as_deref().unwrap_or(""),
        partitions: config.partitions,
        retain_bytes: config.retention.bytes,
        retain_records: config.retention.records.unwrap_or(0),
        retain_ms: config.retention.age.map_or(0, |age| age.as_millis() as u64),
        record_bytes_max: config.record_bytes_max,
        reliable_subscribers_max: reliable.map_or(0, |reliable| reliable.subscribers_max.into()),
        wait_ms_max: reliable.map_or(0, |reliable| reliable.wait_max.as_millis() as u32),
        when_full: match reliable.map(|reliable| reliable.on_full) {
            Some(OnFull::Evict) => WhenFull::Evict,
            Some(OnFull::Refuse) | None => WhenFull::Refuse,
        },
    }
}

fn config_from_wire(config: &dunlin_wire::TopicConfig<'_>) -> TopicConfig {
    let reliable = (config.reliable_subscribers_max > 0).then(|| ReliableOptions {
        subscribers_max: config.reliable_subscribers_max.try_into().unwrap_or(u16::MAX),
        wait_max: Duration::from_millis(config.wait_ms_max.into()),
        on_full: match config.when_full {
            WhenFull::Refuse => OnFull::Refuse,
            WhenFull::Evict => OnFull::Evict,
        },
    });
    let retention = Retention {
        bytes: config.retain_bytes,
        records: (config.retain_records > 0).then_some(config.retain_records),
        age: (config.retain_ms > 0).then(|| Duration::from_millis(config.retain_ms)),
    };
    TopicConfig {
        pattern: (!config.pattern.is_empty()).then(|| config.pattern.to_owned()),
        partitions: config.partitions,
        retention,
        record_bytes_max: config.record_bytes_max,
        reliable,
        ..TopicConfig::default()
    }
}

fn summary(line: ListedTopic<'_>) -> TopicSummary {
    TopicSummary {
        name: line.name.to_owned(),
        pattern: line.pattern.to_owned(),
        partitions: line.partitions,
        reliable: line.reliable,
        records: known(line.records),
        bytes: known(line.bytes),
        appended: known(line.appended),
        subscribers: known_count(line.subscribers),
    }
}

fn known(count: u64) -> Option<u64> {
    (count != UNKNOWN).then_some(count)
}

fn known_count(count: u32) -> Option<u32> {
    (count != UNKNOWN_COUNT).then_some(count)
}

fn description(state: &TopicState<'_>) -> TopicDescription {
    let position = |at: dunlin_wire::Position| Position { epoch: at.epoch, seq: at.seq };
    let log = |log: dunlin_wire::LogState| LogDescription {
        partition: log.partition,
        first: position(log.first),
        last_seq: log.last_seq,
        bytes: log.bytes,
        last_append_ns: log.last_append_ns,
    };
    let subscriber = |subscriber: dunlin_wire::SubscriberState<'_>| SubscriptionDescription {
        name: subscriber.name.to_owned(),
        partition: subscriber.partition,
        position: position(subscriber.position),
        lag: subscriber.lag,
        missed: subscriber.missed,
        registered: subscriber.registered,
    };
    let group = |group: dunlin_wire::GroupState<'_>| GroupDescription {
        name: group.name.to_owned(),
        work: group.kind == dunlin_wire::GroupKind::Work,
        members: group.members,
        waiting: group.waiting,
        claimed: group.claimed,
        pending_dead_letters: 0,
        dead_letter_error: None,
    };
    TopicDescription {
        name: state.config.name.to_owned(),
        config: config_from_wire(&state.config),
        publishers: known_count(state.publishers),
        subscribers_total: known_count(state.subscribers_total),
        logs: state.logs.iter().map(log).collect(),
        subscribers: state.subscribers.iter().map(subscriber).collect(),
        groups: state.groups.iter().map(group).collect(),
        settings: Vec::new(),
    }
}
