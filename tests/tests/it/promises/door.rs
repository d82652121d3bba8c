//! What the suite asks of every way into a node.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;

use super::trial::Started;

/// A way into a node.
pub trait Door: Sync {
    /// As it is called in `docs/listeners.md`.
    fn name(&self) -> &'static str;

    /// Where its clients connect to; `None` in process. Connections that are to be cut go through a proxy.
    fn address(&self, node: &Started) -> Option<SocketAddr>;

    /// Why a promise is not kept here, if that is so. It is written into the table.
    fn not_offered(&self, _promise: &str) -> Option<&'static str> {
        None
    }

    /// How a promise is kept, where that needs a word. It is written into the table.
    fn remark(&self, _promise: &str) -> Option<&'static str> {
        None
    }

    /// Somebody who comes in, by `address` where there is one.
    fn enter(&self, node: &Started, address: Option<SocketAddr>) -> Result<Box<dyn Visitor>>;
}

/// Somebody who came in through a door. What a door does not offer stays as it is here.
pub trait Visitor {
    /// Publishes, and waits until it is answered. The sequence, where the door tells it.
    fn publish(&mut self, message: &Message<'_>) -> Result<Option<u64>>;

    fn subscribe(&mut self, wish: &Wish<'_>) -> Result<Box<dyn Reader>>;

    /// The first answer to a request.
    fn request(&mut self, _subject: &str, _payload: &[u8]) -> Result<Vec<u8>> {
        anyhow::bail!("there are no requests through this door")
    }

    /// Answers every request with its payload in upper case, until the visitor is dropped.
    fn answer(&mut self, _subject: &str) -> Result<()> {
        anyhow::bail!("there are no requests through this door")
    }

    /// Becomes a member that shares the topic's records.
    fn join(&mut self, _topic: &str, _group: &str) -> Result<Box<dyn Reader>> {
        anyhow::bail!("there are no groups through this door")
    }
}

/// What is published.
#[derive(Debug, Clone, Copy, Default)]
pub struct Message<'a> {
    pub subject: &'a str,
    pub payload: &'a [u8],
    pub headers: &'a [(&'a str, &'a str)],
}

/// What a subscription asks for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wish<'a> {
    pub subject: &'a str,
    /// From the oldest record still held, instead of from now on.
    pub from_earliest: bool,
    /// The state of a stateful topic, then what follows it.
    pub with_state: bool,
}

/// Somebody who reads. It takes nothing from the door between two calls.
pub trait Reader {
    /// What comes next; [`Seen::Nothing`] after `patience`. An error is one that the door told.
    fn next(&mut self, patience: Duration) -> Result<Seen>;
}

/// What a reader is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    Record(Taken),
    /// Records that this reader missed, the first and the last.
    Gap(u64, u64),
    /// A warning that records will be missed.
    Lagging,
    /// The topic began anew.
    Anew,
    /// A state, in the place of the records up to this one.
    State(u64),
    /// The door ends the connection and says why.
    CutOff(String),
    /// Nothing came.
    Nothing,
}

/// A record as a reader has it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Taken {
    pub subject: String,
    /// Where the door tells it.
    pub seq: Option<u64>,
    pub payload: Vec<u8>,
    pub headers: Vec<(String, String)>,
}
