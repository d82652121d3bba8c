//! Dunlin's client: [`Publish`](dunlin_topic::Publish) and [`Subscribe`](dunlin_topic::Subscribe)
//! over TCP and Unix sockets.
//!
//! ```no_run
//! use dunlin_client::{Client, Options};
//! use dunlin_topic::{Event, Publish, Subscribe, SubscribeOptions};
//!
//! let client = Client::connect("dunlin://localhost", Options::default())?;
//! let mut subscriber = client.subscribe("orders.>", SubscribeOptions::default())?;
//! client.publisher("orders.eu")?.publish(b"one")?;
//! if let Event::Record(record) = subscriber.next()? {
//!     println!("{} {}", record.position, record.subject());
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Invariants:
//! - No thread is started, but one for each [lease](Lease::keep) whose holder asks for it, those of [workers](Attachment), and one for each client that
//!   sends without waiting (`flusher`). Whoever waits drives the connection (`drive`), one at a time, and the
//!   others are woken when something came for them or when it is their turn.
//! - What does not join up is told as a gap, whoever forgot to tell it (`continuity`).
//! - Unread bytes of a subscription are bounded by the credit it grants, and it holds up no other.
//! - A wait ends, at the latest, two heartbeats after the last sign of life: with an error that
//!   says so, after which the next call goes on trying.
//!
//! Not here: the bytes (`dunlin-wire`) and what records and notices mean (`dunlin-topic`).

mod address;
mod asked;
mod backoff;
mod chunk;
mod client;
mod continuity;
mod credentials;
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
pub mod started;
mod subscriber;
mod tasks;
pub mod tls;
mod topics;
mod why;

pub use address::{Address, AddressError, PORT_DEFAULT};
pub use client::{Client, ConnectError, Options};
pub use credentials::Credentials;
pub use dunlin_control as state;
pub use dunlin_tasks as scheduler;
pub use dunlin_topic as topic;
pub use dunlin_topic::{Reply, RequestError};
pub use dunlin_wire::{ErrorCode, Retry};
pub use group::{Claimed, Group, GroupKind, GroupOptions, Member, Settlement, Settler};
pub use interrupt::interruptible;
pub use kv::{
    Asking, Change, Entry, KeyChange, Kv, KvError, Lease, LeaseLost, LeasePulse, Lock, Page, Questioning,
    Transacted, Transaction, Watch, WatchError, WatchFrom, Written,
};
pub use limits::Limits;
pub use publisher::{Identity, Publisher, PublisherOptions};
pub use refusal::Refused;
pub use relay::{Relay, Relayed, RunToRelay, Told};
pub use request::Requester;
pub use respond::Responder;
pub use session::Away;
pub use started::StartedByNode;
pub use subscriber::Subscriber;
pub use tasks::{
    Attachment, AttachmentLoad, Given, Submitted, Task, TaskFailed, TaskPage, Tasks, TasksAsking, TasksError,
    Used, Worker, WorkerOptions, WorkerStop,
};
pub use topics::{
    AskError, GroupDescription, LogDescription, ReaderDescription, TopicDescription, TopicSummary,
};
pub use why::Why;
