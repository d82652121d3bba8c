//! Door `http`: publishing, topics and server-sent events for whoever speaks HTTP/1.1, and what those who operate a
//! node ask of it (`docs/listeners.md`).
//!
//! `connection` serves one connection, `gate` turns away what must not come in before anything of it is read, `routes`
//! says who answers what; at one path a connection becomes a WebSocket (`socket`). Whatever is refused is a [`Problem`](problem::Problem), made from the one table of errors.
//!
//! Invariants:
//! - A request never makes its thread wait: what takes long waits as a task, or is done by another thread.
//! - A stream of events whose client does not read holds one chunk, and nothing of a log.
//! - Memory for a body is charged to the node's budget while it is held.
//!
//! Limits: [`HttpLimits`](crate::HttpLimits), `sessions_max`, `control_bytes_max`.
//!
//! Not here: what the text of an event, an id or a query looks like ([`dunlin::wire::http`]); TLS, which has begun before
//! `connection` does; credentials, for which `gate` is the place.

mod batch;
mod body;
mod connection;
mod context;
mod event_stream;
mod events;
mod finding;
mod gate;
mod health;
mod itself;
mod kv;
mod metrics;
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
mod topics;

pub(crate) use connection::{refusal, serve};
pub(crate) use health::missing;
pub(crate) use metrics::Process;
pub(crate) use page::is_built_in as has_page;
pub(crate) use subscriptions::{departure_json, subscription_json};
pub(crate) use surveys::Surveys;
