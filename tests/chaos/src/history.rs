//! The history of a run: all requests of clients with their responses, and the times of both.

use std::time::Instant;

use serde_json::{Value, json};

/// The clock of a run, which all clients of the run share. It counts ns.
#[derive(Debug, Clone, Copy)]
pub struct RunClock(Instant);

impl RunClock {
    /// Creates a clock that starts at 0.
    pub fn start() -> RunClock {
        RunClock(Instant::now())
    }

    /// Returns the time since the start of the clock, in ns.
    pub fn now(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}

/// The number of keys in each group of keys.
pub const KEYS: usize = 3;

/// A key's value and its revision; the revision is 0 if the key does not exist.
pub type KeyState = (String, u64);

/// A request to read or write the keys of one group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyRequest {
    /// Reads a key.
    Get(usize),
    /// Reads all keys of the group.
    Range,
    /// Writes a key.
    Put(usize, String),
    /// Writes a key if it has the given revision (compare and swap).
    Cas(usize, String, u64),
    /// Deletes a key.
    Delete(usize),
    /// If the first key has the given revision, writes both keys. Otherwise reads both keys.
    Move(usize, usize, String, u64),
}

/// A response to a [`KeyRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyResponse {
    /// The revision of the change. If the request's condition failed, the present revision of the key.
    pub revision: u64,
    /// Whether a key was changed.
    pub done: bool,
    /// The keys that were read.
    pub items: Vec<KeyState>,
}

/// One request of a client, its response, and the times of the request and of the response.
#[derive(Debug, Clone)]
pub struct Operation {
    /// The client's number.
    pub client: u64,
    /// The group to which the keys belong.
    pub group: String,
    /// The request.
    pub request: KeyRequest,
    /// The time of the request, in ns.
    pub call: u64,
    /// The time of the response in ns, and the response; `None` if the response was lost.
    pub response: Option<(u64, KeyResponse)>,
}

impl Operation {
    /// Returns the revision of the change; `None` if the request changed nothing, or if its response was lost.
    pub fn revision(&self) -> Option<u64> {
        let (_, response) = self.response.as_ref()?;
        let changes = match self.request {
            KeyRequest::Put(..) => true,
            KeyRequest::Cas(..) | KeyRequest::Delete(_) | KeyRequest::Move(..) => response.done,
            KeyRequest::Get(_) | KeyRequest::Range => false,
        };
        changes.then_some(response.revision)
    }

    /// Returns the keys that the request writes, each with its new value. For a key that the request deletes, the value
    /// is `None`.
    pub fn writes(&self) -> Vec<(usize, Option<&str>)> {
        match &self.request {
            KeyRequest::Get(_) | KeyRequest::Range => vec![],
            KeyRequest::Put(key, value) | KeyRequest::Cas(key, value, _) => vec![(*key, Some(value))],
            KeyRequest::Delete(key) => vec![(*key, None)],
            KeyRequest::Move(key, other, value, _) => vec![(*key, Some(value)), (*other, Some(value))],
        }
    }

    /// Converts the operation to the JSON that the linearizability checker reads.
    pub fn to_json(&self) -> Value {
        let (kind, key, value, expect, other) = match &self.request {
            KeyRequest::Get(key) => ("get", *key, "", 0, 0),
            KeyRequest::Range => ("range", 0, "", 0, 0),
            KeyRequest::Put(key, value) => ("put", *key, value.as_str(), 0, 0),
            KeyRequest::Cas(key, value, expect) => ("cas", *key, value.as_str(), *expect, 0),
            KeyRequest::Delete(key) => ("delete", *key, "", 0, 0),
            KeyRequest::Move(key, other, value, expect) => ("move", *key, value.as_str(), *expect, *other),
        };
        let out = self.response.as_ref().map(|(_, response)| {
            let item = |(value, revision): &KeyState| json!({"value": value, "revision": revision});
            let items: Vec<Value> = response.items.iter().map(item).collect();
            json!({"revision": response.revision, "done": response.done, "items": items})
        });
        json!({
            "client": self.client, "group": self.group, "call": self.call,
            "return": self.response.as_ref().map(|(end, _)| end), "kind": kind, "key": key,
            "value": value, "expect": expect, "other": other, "out": out,
        })
    }
}

/// Returns the name of the key with this index in a group.
pub fn key(group: &str, index: usize) -> Vec<u8> {
    format!("{group}/{index}").into_bytes()
}
