//! Client for Dunlin nodes over TCP, TLS and Unix sockets.
//!
//! A [`Client`] holds one connection to a node, or to one of several nodes of a cluster. The client creates
//! publishers and subscribers ([`Publish`](dunlin_topic::Publish), [`Subscribe`](dunlin_topic::Subscribe)),
//! members of groups ([`Member`]), requests and replies ([`Requester`], [`Responder`]), keys, leases and
//! locks ([`Kv`]), tasks and workers ([`Tasks`], [`Worker`]) and the entities of a world ([`space`]). The
//! client reconnects by itself: subscriptions continue at their positions, and publishers send unanswered
//! records again.
//!
//! ```no_run
//! use dunlin_client::{Client, ClientOptions};
//! use dunlin_topic::{Event, Publish, Subscribe, SubscribeOptions};
//!
//! let client = Client::connect("dunlin://localhost", ClientOptions::default())?;
//! let mut subscriber = client.subscribe("orders.>", SubscribeOptions::default())?;
//! client.publisher("orders.eu")?.publish(b"one")?;
//! if let Event::Record(record) = subscriber.next()? {
//!     println!("{} {}", record.position, record.subject());
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Guarantees:
//! - A thread that waits for anything reads and writes the connection. The client starts threads of its own only for
//!   [`Lease::start_renewal`], for each [`Attachment`], and for publishers that [`send`](dunlin_topic::Publish::send)
//!   without waiting.
//! - If records are missing, the subscriber receives a gap that covers them, even if the node does not report a gap.
//! - A subscription holds at most twice its credit ([`ClientLimits::credit_bytes`]) and one message in unread bytes,
//!   besides snapshots of states. It does not delay other subscriptions.
//! - A wait ends with an error at most two heartbeats after the last message from the node. The next call
//!   tries again.
//!
//! The crate `dunlin-wire` defines the bytes of the protocol, `dunlin-topic` the meaning of records and
//! notices.

mod address;
mod backoff;
mod chunk;
mod client;
mod continuity;
mod credentials;
mod disconnect_reason;
mod drive;
mod flusher;
mod follow;
mod group;
mod inbox;
mod interrupt;
mod kv;
mod lane;
mod limits;
mod link;
mod outbox;
mod pending_request;
mod publisher;
mod publishing;
#[cfg(feature = "tokio")]
mod reactor;
mod refusal;
mod relay;
mod request;
mod respond;
mod session;
mod socket;
pub mod space;
mod subscriber;
mod tasks;
pub mod tls;
mod topics;
pub mod worker_launch;

pub use address::{Address, AddressError, PORT_DEFAULT};
pub use client::{Client, ClientOptions, ConnectError};
pub use credentials::Credentials;
pub use disconnect_reason::DisconnectReason;
pub use dunlin_control as state;
pub use dunlin_tasks as scheduler;
pub use dunlin_topic as topic;
pub use dunlin_topic::{DeadLetterTarget, Reply, RequestError};
pub use dunlin_wire::{ErrorCode, RetryAdvice};
pub use group::{ClaimSettler, Group, GroupEvent, GroupKind, GroupOptions, Member, Settlement};
pub use interrupt::interruptible;
pub use kv::{
    Change, HeldLock, KeyChange, Kv, KvEntry, KvError, KvPage, Lease, LeaseHandle, LeaseLostError,
    PendingCommand, PendingQuery, Transaction, TransactionResult, Watch, WatchError, WatchFrom, WriteResult,
};
pub use limits::ClientLimits;
pub use publisher::{ProducerIdentity, Publisher, PublisherOptions};
pub use refusal::RefusedError;
pub use relay::{Relay, RelayBatch, RelayCallback, RelayOutcome};
pub use request::Requester;
pub use respond::Responder;
pub use session::Disconnection;
pub use subscriber::Subscriber;
pub use tasks::{
    AssignedTask, Attachment, AttachmentLoad, PendingTaskCommands, Submission, Task, TaskFailure, TaskPage,
    TaskUsage, Tasks, TasksError, Worker, WorkerOptions, WorkerStopHandle,
};
pub use topics::{
    CallError, GroupDescription, LogDescription, SubscriptionDescription, TopicDescription, TopicSummary,
};
pub use worker_launch::WorkerLaunch;
