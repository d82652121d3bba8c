//! The HTTP listener. It serves publishing, topics and server-sent events over HTTP/1.1, and endpoints for operators
//! (`docs/listeners.md`).
//!
//! `connection` serves one connection, `gate` checks requests before their body is read, and `routes` maps paths to
//! handlers. At two paths, a connection can become a WebSocket (`socket`). Every refusal is a
//! [`Problem`](problem::Problem), whose code is in the table of errors.
//!
//! Invariants:
//! - A request never blocks its thread: long work waits asynchronously, or runs on another thread.
//! - If a client does not read its stream of events, one chunk of the stream stays in memory, but no segment of a log.
//! - The memory that a request's head and body take is charged to the memory budget until it is freed (`head_reads`,
//!   `body`).
//!
//! Limits: [`HttpLimits`](crate::HttpLimits), `sessions_max`, `control_bytes_max`. Beyond `sessions_max`, up to 32
//! connections at a time may send a health probe.
//!
//! The formats of events, ids and queries are in [`dunlin::wire::http`].

mod batch;
mod body;
mod connection;
mod context;
mod event_stream;
mod events;
mod gate;
mod head_reads;
mod health;
mod kv;
mod limited;
mod metrics;
mod node_report;
mod page;
mod paths;
mod problem;
mod publish;
mod query;
mod report;
mod routes;
mod settings;
mod socket;
mod subscriptions;
mod surveys;
mod tasks;
mod topic_filter;
mod topics;

pub(crate) use connection::{refusal, serve};
pub(crate) use health::missing;
pub(crate) use metrics::ProcessFigures;
pub(crate) use page::is_built_in as has_page;
pub(crate) use subscriptions::{departure_json, subscription_json};
pub(crate) use surveys::Surveys;
