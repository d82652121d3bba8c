//! Keys and values, leases and locks of the cluster.
//!
//! Invariants:
//! - What changes something is sent once. Where its answer is lost it is [`Unknown`](KvError::Unknown): whoever asked reads what
//!   there is, and decides anew. Questions, and what may be asked twice, are asked again on the next connection.
//! - What is read is as fresh as all that was answered to anybody, but through [`Kv::stale`].

mod asking;
mod error;
mod lease;
mod lock;
mod questioning;
mod transaction;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use dunlin_control::{Answer, Command, Found, LeaseState, Pair, Query, Reply, prefix_end};
use dunlin_wire::ControlKind;

use crate::client::{Client, Shared};
pub use asking::Asking;
pub use error::KvError;
pub use lease::{Lease, LeaseLost, LeasePulse};
pub use lock::Lock;
pub use questioning::Questioning;
pub use transaction::{Transacted, Transaction};
pub use watch::{Change, KeyChange, Watch, WatchError, WatchFrom};

/// Keys and values of the cluster that the node is part of. Cloning costs little.
#[derive(Debug, Clone)]
pub struct Kv {
    shared: Arc<Shared>,
    questions: ControlKind,
}

/// A key and what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Arc<[u8]>,
    /// The revision that created it.
    pub created: u64,
    /// The revision that last wrote it.
    pub modified: u64,
    /// How often it was written since it was created.
    pub version: u64,
    /// It goes when this lease ends; 0 for none.
    pub lease: u64,
}

/// Some keys of a range, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The last revision when they were looked for.
    pub revision: u64,
    /// The keys.
    pub entries: Vec<Entry>,
    /// There are more after the last of them.
    pub more: bool,
}

/// What a command has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// The revision; the last there was where nothing was changed.
    pub revision: u64,
    /// Keys written or deleted.
    pub keys: u64,
}

impl Client {
    /// Keys and values, leases and locks.
    pub fn kv(&self) -> Kv {
        Kv { shared: Arc::clone(&self.shared), questions: ControlKind::Question }
    }
}

impl Kv {
    /// Questions are answered as the node has it, which may be late, and without a word to the others.
    pub fn stale(&self) -> Kv {
        Kv { questions: ControlKind::StaleQuestion, ..self.clone() }
    }

    /// What a key holds.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Entry>, KvError> {
        Ok(self.page(&Query::Get { key: key.as_ref() })?.entries.pop())
    }

    /// Writes a key.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<u64, KvError> {
        self.put_under(key, value, 0)
    }

    /// Writes a key that goes when the lease ends; 0 for none.
    pub fn put_under(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        lease: u64,
    ) -> Result<u64, KvError> {
        let (key, value) = (key.as_ref(), value.as_ref());
        Ok(self.write(&Command::Put { key, value, lease })?.revision)
    }

    /// Writes a key if it was last written by revision `expect`, 0 for a key that is not there; else
    /// [`KvError::Moved`].
    pub fn cas(&self, key: impl AsRef<[u8]>, expect: u64, value: impl AsRef<[u8]>) -> Result<u64, KvError> {
        let (key, value) = (key.as_ref(), value.as_ref());
        Ok(self.write(&Command::PutIf { key, value, lease: 0, expect })?.revision)
    }

    /// Deletes a key, if it is there.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<Written, KvError> {
        self.write(&Command::Delete { key: key.as_ref() })
    }

    /// Deletes a key if it was last written by revision `expect`.
    pub fn delete_if(&self, key: impl AsRef<[u8]>, expect: u64) -> Result<Written, KvError> {
        self.write(&Command::DeleteIf { key: key.as_ref(), expect })
    }

    /// Deletes the keys from `start` up to, not including, `end`, to the last where that is empty; at most as many as the
    /// cluster deletes at once. None are left when it says that it deleted none.
    pub fn delete_range(&self, start: impl AsRef<[u8]>, end: impl AsRef<[u8]>) -> Result<Written, KvError> {
        self.write(&Command::DeleteRange { start: start.as_ref(), end: end.as_ref() })
    }

    /// Writes all of these in one revision.
    pub fn batch(&self, puts: &[(&[u8], &[u8])]) -> Result<u64, KvError> {
        let transaction = puts.iter().fold(Transaction::new(), |all, (key, value)| all.put(key, value));
        Ok(self.transact(&transaction)?.revision)
    }

    /// The first keys from `start` up to, not including, `end`, to the last where that is empty; as many as may be where
    /// `limit` is 0. The next page begins after the last key: at it with a zero byte behind.
    pub fn range(&self, start: impl AsRef<[u8]>, end: impl AsRef<[u8]>, limit: u32) -> Result<Page, KvError> {
        self.page(&Query::Range { start: start.as_ref(), end: end.as_ref(), limit })
    }

    /// All keys that begin with `prefix`, asked for page by page; what changes meanwhile is in the pages after it.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Vec<Entry>, KvError> {
        let (mut start, end) = (prefix.as_ref().to_vec(), prefix_end(prefix.as_ref()));
        let mut entries: Vec<Entry> = Vec::new();
        loop {
            let page = self.range(&start, &end, 0)?;
            entries.extend(page.entries);
            match entries.last() {
                Some(last) if page.more => start = [&last.key[..], &[0]].concat(),
                _ => return Ok(entries),
            }
        }
    }

    /// What is known of a lease; `None` for one that is not there.
    pub fn lease_state(&self, lease: u64) -> Result<Option<LeaseState>, KvError> {
        match self.question(&Query::Lease { lease })? {
            Answer::Leases { mut leases, .. } => Ok(leases.pop()),
            _ => Err(KvError::odd()),
        }
    }

    /// The epoch and the last revision.
    pub fn revision(&self) -> Result<(u32, u64), KvError> {
        match self.question(&Query::Status)? {
            Answer::Status { epoch, revision, .. } => Ok((epoch, revision)),
            _ => Err(KvError::odd()),
        }
    }

    /// Asks what has no answer of its own here.
    pub fn question(&self, query: &Query<'_>) -> Result<Answer, KvError> {
        let mut bytes = Vec::new();
        query.encode(&mut bytes);
        let answer = self.again_and_again(self.questions, &bytes, self.patience())?;
        Ok(Answer::decode(&answer)?)
    }

    /// Has the cluster take a command in; once.
    pub fn command(&self, command: &Command<'_>) -> Result<Reply, KvError> {
        self.begin(command)?.wait()
    }

    fn write(&self, command: &Command<'_>) -> Result<Written, KvError> {
        match self.command(command)? {
            Reply::Changed { revision, keys } => Ok(Written { revision, keys }),
            _ => Err(KvError::odd()),
        }
    }

    fn page(&self, query: &Query<'_>) -> Result<Page, KvError> {
        match self.question(query)? {
            Answer::Found { revision, found: Found { items, more } } => {
                Ok(Page { revision, entries: items.into_iter().map(Entry::from).collect(), more })
            }
            _ => Err(KvError::odd()),
        }
    }

    fn patience(&self) -> Duration {
        Duration::from_millis(self.shared.limits.answer_ms_max)
    }
}

impl From<Pair> for Entry {
    fn from(Pair { key, item }: Pair) -> Entry {
        let (created, modified, version, lease) = (item.created, item.modified, item.version, item.lease);
        Entry { key: key.to_vec(), value: item.value, created, modified, version, lease }
    }
}
