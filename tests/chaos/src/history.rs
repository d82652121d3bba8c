//! What clients asked and were told, with times.

use std::time::Instant;

use serde_json::{Value, json};

/// The count of nanoseconds that all clients of a run share.
#[derive(Debug, Clone, Copy)]
pub struct Clock(Instant);

impl Clock {
    /// It is 0 now.
    pub fn start() -> Clock {
        Clock(Instant::now())
    }

    /// How late it is, ns.
    pub fn now(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}

/// Keys of a group.
pub const KEYS: usize = 3;

/// What a key holds, and the revision that wrote it; 0 where it is not there.
pub type Held = (String, u64);

/// What is asked of the keys of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// What the key holds.
    Get(usize),
    /// What all hold.
    Range,
    /// Writes.
    Put(usize, String),
    /// Writes if it stands at this revision.
    Cas(usize, String, u64),
    /// Deletes.
    Delete(usize),
    /// Writes both if the first stands at this revision, else reads both.
    Move(usize, usize, String, u64),
}

/// What was answered.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answered {
    /// The revision that a change took, or at which a key stands that was not as expected.
    pub revision: u64,
    /// Something was changed.
    pub done: bool,
    /// What was read.
    pub items: Vec<Held>,
}

/// One operation.
#[derive(Debug, Clone)]
pub struct Operation {
    /// Who asked.
    pub client: u64,
    /// The keys' group.
    pub group: String,
    /// What.
    pub asked: Asked,
    /// When it was asked, ns.
    pub call: u64,
    /// What was answered, and when, ns; nothing where the answer was lost.
    pub answered: Option<(u64, Answered)>,
}

impl Operation {
    /// The revision it took, if it is known to have taken one.
    pub fn revision(&self) -> Option<u64> {
        let (_, answered) = self.answered.as_ref()?;
        let changes = match self.asked {
            Asked::Put(..) => true,
            Asked::Cas(..) | Asked::Delete(_) | Asked::Move(..) => answered.done,
            Asked::Get(_) | Asked::Range => false,
        };
        changes.then_some(answered.revision)
    }

    /// What it wrote to which keys; nothing where it deleted.
    pub fn writes(&self) -> Vec<(usize, Option<&str>)> {
        match &self.asked {
            Asked::Get(_) | Asked::Range => vec![],
            Asked::Put(key, value) | Asked::Cas(key, value, _) => vec![(*key, Some(value))],
            Asked::Delete(key) => vec![(*key, None)],
            Asked::Move(key, other, value, _) => vec![(*key, Some(value)), (*other, Some(value))],
        }
    }

    /// As the checker reads it.
    pub fn line(&self) -> Value {
        let (kind, key, value, expect, other) = match &self.asked {
            Asked::Get(key) => ("get", *key, "", 0, 0),
            Asked::Range => ("range", 0, "", 0, 0),
            Asked::Put(key, value) => ("put", *key, value.as_str(), 0, 0),
            Asked::Cas(key, value, expect) => ("cas", *key, value.as_str(), *expect, 0),
            Asked::Delete(key) => ("delete", *key, "", 0, 0),
            Asked::Move(key, other, value, expect) => ("move", *key, value.as_str(), *expect, *other),
        };
        let out = self.answered.as_ref().map(|(_, answered)| {
            let item = |(value, revision): &Held| json!({"value": value, "revision": revision});
            let items: Vec<Value> = answered.items.iter().map(item).collect();
            json!({"revision": answered.revision, "done": answered.done, "items": items})
        });
        json!({
            "client": self.client, "group": self.group, "call": self.call,
            "return": self.answered.as_ref().map(|(end, _)| end), "kind": kind, "key": key,
            "value": value, "expect": expect, "other": other, "out": out,
        })
    }
}

/// The bytes of a key.
pub fn key(group: &str, index: usize) -> Vec<u8> {
    format!("{group}/{index}").into_bytes()
}
