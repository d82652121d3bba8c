//! A Dunlin node without sockets. All listeners use this crate, and other programs can embed it.
//!
//! A [`Node`] owns the topics of one process, their memory budget and its clock. Publishing and subscribing work as
//! over the network, through [`topic::Publish`] and
//! [`topic::Subscribe`].
//!
//! ```
//! use dunlin::{Config, Node};
//! use dunlin::topic::{Publish, Start, Subscribe, SubscribeOptions};
//!
//! let node = Node::start(Config::default())?;
//! node.publisher("greetings")?.publish("hello")?;
//! let from_the_first = SubscribeOptions { start: Start::Earliest, ..Default::default() };
//! let mut subscriber = node.subscribe("greetings", &from_the_first)?;
//! let hello = subscriber.next()?;
//! # drop(hello);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Invariants:
//! - A subject has at most one owner: a topic whose pattern overlaps that of another topic is refused.
//! - An epoch is never used twice for a topic's name.
//! - Reserved subjects (`$…` of the system, `_INBOX.…` of sessions) match only patterns that begin with the subject's
//!   first token.
//!
//! Sockets and protocols are in the crate `server`; the layout of logs on disk is in the crate `journal`.

mod access;
mod clock;
mod config;
mod control;
mod deleted;
mod epoch;
mod error;
mod groups;
mod inbox;
mod node;
mod node_topic;
mod owner;
mod ownership;
mod refusal;
mod registry;
mod reply;
mod request;
mod respond;
mod select;
mod simulation;
pub mod space;
mod storage;
mod survey;
mod tasks;
mod waiting;

pub use access::{
    AccessExtent, Action, KeyPattern, KeyRule, Permissions, SubjectRule, TaskRule, User, Users, WorkScope,
};
pub use clock::{CLOCK, now_ns, steady_ns};
pub use config::{Config, NodeLimits};
pub use control::{Consistency, ControlError, ControlGroup, ControlLimits, KV, block_on, find_cluster_log};
pub use dunlin_control as state;
pub use dunlin_feed as feed;
pub use dunlin_journal as journal;
pub use dunlin_raft as raft;
pub use dunlin_raft::Leadership;
pub use dunlin_tasks as scheduler;
pub use dunlin_topic as topic;
pub use dunlin_topic::{DeadLetterTarget, Reply, RequestError};
pub use dunlin_wire as wire;
pub use error::TopicError;
pub use groups::{
    ClaimedRecord, DroppedDeadLetters, EarlierMembership, GroupInfo, GroupKind, JoinError, ShareMember,
    ShareOptions, StaleClaim, WorkEvent, WorkMember, WorkOptions,
};
pub use inbox::Inbox;
pub use node::{Node, STATES};
pub use node_topic::NODE_TOPIC;
pub use owner::OwningTopic;
pub use ownership::{
    ClusterCommandError, InFlightBatch, Interest, InterestQuery, MirrorFeed, MirrorFeedOutcome,
    MirrorFeedStart, NODE_PROTOCOL, Ownership, OwnershipLimits, PeerNodes, PublisherPresence,
    RemoteMemberOptions, RemoteMembership, is_mirror, last_flight,
};
pub use refusal::Refused;
pub use registry::{LogSearch, LogsToRead, TopicPage};
pub use request::Requester;
pub use respond::{Request, Responder, ResponderExecutor, ResponderTask};
pub use select::{MissingTopicPolicy, SelectedLogs, log_of_position};
pub use simulation::{Simulation, SimulationReport};
pub use storage::{RecoveredTopic, RefusedTopic, StorageError};
pub use survey::{SubscriptionInfo, Survey, TopicDiskUse, TopicSurvey, TopicTotals, subscribers_of};
pub use tasks::{TASKS, TaskShard, Tasks, TasksError, TasksLimits, WorkerAttachment, WorkerOrderQueue};
pub use waiting::{CursorFuture, NodeFuture, TopicFuture, forbid_waiting};
