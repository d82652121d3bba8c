//! Encodes and decodes the messages of Dunlin's own protocol (`docs/protocol.md`).
//!
//! A connection begins with a [`Preamble`] from each side. After this, both sides send messages, each with a header of
//! 8 bytes and a body, padded to a multiple of 8 bytes. Messages contain records as [`frame`](dunlin_frame) lays them
//! out, without another encoding.
//!
//! Invariants:
//! - Decoding copies nothing: a message and its lists refer to the bytes from which they were decoded.
//! - Each length that the other side states is checked against [`DecoderLimits`] before it is used. No memory is
//!   allocated in proportion to such a length.
//! - Decoding any bytes returns a message, [`DecodeOutcome::Need`] or a [`WireError`].
//! - Decoding an encoded message gives the same message. `tests/golden` contains the bytes of an example of each
//!   message.
//!
//! The module [`nats`] has the client protocol of NATS. Other crates have the sockets and execute the messages.

mod code;
mod control;
mod decoder;
mod error;
mod from_client;
mod from_node;
mod group;
mod header;
mod hello;
pub mod http;
mod layout;
mod limits;
mod list;
mod message;
pub mod nats;
mod publish;
mod run;
mod state;
mod subscribe;
mod tasks;
mod topic;
mod version;

pub use code::{CODES, CodeRow, ErrorCode, GrpcStatus, Refusal, RetryAdvice};
pub use control::{Control, ControlKind, ControlResult, U32PrefixedBytes};
pub use decoder::{DecodeOutcome, Decoder};
pub use error::WireError;
pub use from_client::FromClient;
pub use from_node::FromNode;
pub use group::{
    Claim, ClaimedRecord, ClaimedRecords, Deliver, GroupKind, JoinGroup, Nack, NackedToken, Settle, Settled,
};
pub use header::{HEADER_BYTES, KINDS, KindRow, MESSAGE_ALIGN, MessageHeader, MessageKind};
pub use hello::{ALL_ANSWERED, Goodbye, Hello, NO_CLUSTER, Ping, Welcome};
pub use layout::OptionalText;
pub use limits::DecoderLimits;
pub use list::MessageList;
pub use publish::{
    AckKind, ExpectTopic, FLAG_ACK, FLAG_EXPECT, FLAG_QUIET, LastAcknowledged, NO_PRODUCER, OpenPublisher,
    PRESENT, Publish, PublishHeader, PublishRefused, Published, PublisherOpened, PublisherRefused,
    PublisherTopic,
};
pub use run::{Batch, RUN_HEAD_BYTES, batch_head, publish_head};
pub use state::{Checksum, Follow, PublisherStatus, Resync, SNAPSHOT_HEAD_BYTES, SnapshotPart};
pub use subscribe::{
    Advance, ChannelPosition, Credit, Deleted, EpochChanged, GapMessage, Heartbeat, Lagging, Log,
    LogPosition, OnGap, PLACEMENT, Position, Resume, StartAt, Subscribe, Subscribed, SubscriptionEnded,
};
pub use tasks::{TaskCommandResult, TaskOrders, Tasks, TasksKind, TasksResult};
pub use topic::{
    CreateTopic, CreateTopicWithSettings, GroupState, ListTopics, ListedTopic, LogState, NamedTopic,
    RequestRefused, Setting, Settings, SubscriberState, TopicConfig, TopicState, Topics, UNKNOWN,
    UNKNOWN_COUNT, WhenFull,
};
pub use version::{MAGIC, PREAMBLE_BYTES, Preamble, VERSION, VERSION_MIN};
