//! Keys and values, leases and locks of the cluster.
//!
//! Invariants:
//! - Most commands are sent only once, even if the connection is lost. If the response is lost, the result is
//!   [`Unknown`](KvError::Unknown), and the node may still carry out the command later, even after a read that does not
//!   show the command's effect. Only a conditional write, such as [`Kv::cas`], can be repeated safely. Queries, and the
//!   few commands whose repetition has no further effect, are sent again on the next connection.
//! - Reads are linearizable, except through [`Kv::stale`].

mod error;
mod lease;
mod lock;
mod pending_command;
mod pending_query;
mod transaction;
mod watch;

use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin_control::{
    ControlCommand, ControlQuery, ControlQueryResult, ControlReply, FoundKey, FoundKeys, LeaseState,
    prefix_end,
};
use dunlin_wire::ControlKind;

use crate::client::{Client, SharedClient};
pub use error::KvError;
pub use lease::{Lease, LeaseHandle, LeaseLostError};
pub use lock::HeldLock;
pub use pending_command::PendingCommand;
pub use pending_query::PendingQuery;
pub use transaction::{Transaction, TransactionResult};
pub use watch::{Change, KeyChange, Watch, WatchError, WatchFrom};

/// A handle to read and write the keys of the node's cluster. Clones are cheap.
#[derive(Debug, Clone)]
pub struct Kv {
    shared: Arc<SharedClient>,
    query_kind: ControlKind,
}

/// A key with its value, its lease, and the revisions in which it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvEntry {
    /// The key.
    pub key: Vec<u8>,
    /// The value.
    pub value: Arc<[u8]>,
    /// The revision in which the key was created.
    pub created: u64,
    /// The revision of the key's last write.
    pub modified: u64,
    /// The number of writes since the key was created.
    pub version: u64,
    /// The number of the lease on which the key depends; 0 for no lease. When the lease ends, the key is deleted.
    pub lease: u64,
}

/// One page of the keys and values of a range, in the order of the keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvPage {
    /// The last revision of the cluster when the page was read.
    pub revision: u64,
    /// The keys and values.
    pub entries: Vec<KvEntry>,
    /// Whether the range has more keys after the last key of this page.
    pub more: bool,
}

/// The result of writing or deleting keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteResult {
    /// The revision of the change. If nothing changed, the last revision of the cluster.
    pub revision: u64,
    /// How many keys were written or deleted.
    pub keys: u64,
}

impl Client {
    /// Returns a handle for keys and values, leases and locks.
    pub fn kv(&self) -> Kv {
        Kv { shared: Arc::clone(&self.shared), query_kind: ControlKind::Query }
    }
}

impl Kv {
    /// Returns a handle with stale reads: the node answers them from its own state and does not ask the leader.
    pub fn stale(&self) -> Kv {
        Kv { query_kind: ControlKind::StaleQuery, ..self.clone() }
    }

    /// Reads a key. Returns `None` if it does not exist.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<KvEntry>, KvError> {
        Ok(self.page(&ControlQuery::Get { key: key.as_ref() })?.entries.pop())
    }

    /// Writes a key. Returns the revision of the write.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<u64, KvError> {
        self.put_with_lease(key, value, 0)
    }

    /// Writes a key that depends on the lease with the number `lease`; 0 for no lease. When the lease ends, the key is
    /// deleted. Returns the revision of the write.
    pub fn put_with_lease(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        lease: u64,
    ) -> Result<u64, KvError> {
        let (key, value) = (key.as_ref(), value.as_ref());
        Ok(self.write(&ControlCommand::Put { key, value, lease })?.revision)
    }

    /// Writes a key if its last write was in the revision `expect`, or, with 0, if the key does not exist. Returns the
    /// revision of the write. If the condition does not hold, fails with [`KvError::Moved`].
    pub fn cas(&self, key: impl AsRef<[u8]>, expect: u64, value: impl AsRef<[u8]>) -> Result<u64, KvError> {
        let (key, value) = (key.as_ref(), value.as_ref());
        Ok(self.write(&ControlCommand::PutIf { key, value, lease: 0, expect })?.revision)
    }

    /// Deletes a key. A key that does not exist is not an error.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<WriteResult, KvError> {
        self.write(&ControlCommand::Delete { key: key.as_ref() })
    }

    /// Deletes a key if its last write was in the revision `expect`. Otherwise, fails with [`KvError::Moved`].
    pub fn delete_if(&self, key: impl AsRef<[u8]>, expect: u64) -> Result<WriteResult, KvError> {
        self.write(&ControlCommand::DeleteIf { key: key.as_ref(), expect })
    }

    /// Deletes keys from `start` up to and excluding `end`; an empty `end` means no end. The number of keys that one
    /// call deletes is limited: repeat the call until it reports 0 deleted keys.
    pub fn delete_range(
        &self,
        start: impl AsRef<[u8]>,
        end: impl AsRef<[u8]>,
    ) -> Result<WriteResult, KvError> {
        self.write(&ControlCommand::DeleteRange { start: start.as_ref(), end: end.as_ref() })
    }

    /// Writes several keys in one revision. Returns this revision.
    pub fn batch(&self, puts: &[(&[u8], &[u8])]) -> Result<u64, KvError> {
        let transaction = puts.iter().fold(Transaction::new(), |all, (key, value)| all.put(key, value));
        Ok(self.transact(&transaction)?.revision)
    }

    /// Reads up to `limit` keys from `start` up to and excluding `end`. An empty `end` means no end; a `limit` of 0
    /// means the largest possible limit. To read the next page, use as `start` the last key of this page with a zero
    /// byte appended.
    pub fn range(
        &self,
        start: impl AsRef<[u8]>,
        end: impl AsRef<[u8]>,
        limit: u32,
    ) -> Result<KvPage, KvError> {
        self.page(&ControlQuery::Range { start: start.as_ref(), end: end.as_ref(), limit })
    }

    /// Reads all keys that begin with `prefix`, page by page. A later page may include changes made after the
    /// first page was read.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Vec<KvEntry>, KvError> {
        self.read_prefix(prefix.as_ref(), || self.response_timeout())
    }

    /// Like [`prefix`](Self::prefix), but fails if the keys were not read by the time `until`.
    pub(crate) fn prefix_until(&self, prefix: &str, until: Instant) -> Result<Vec<KvEntry>, KvError> {
        let remaining = || until.saturating_duration_since(Instant::now());
        self.read_prefix(prefix.as_bytes(), || remaining().min(self.response_timeout()))
    }

    /// Reads all keys that begin with `prefix`, page by page. Before each page, `page_timeout` returns how long the
    /// page may take.
    fn read_prefix(
        &self,
        prefix: &[u8],
        page_timeout: impl Fn() -> Duration,
    ) -> Result<Vec<KvEntry>, KvError> {
        let (mut start, end) = (prefix.to_vec(), prefix_end(prefix));
        let mut entries: Vec<KvEntry> = Vec::new();
        loop {
            let query = ControlQuery::Range { start: &start, end: &end, limit: 0 };
            let page = KvPage::from_answer(self.query_within(&query, page_timeout())?)?;
            entries.extend(page.entries);
            match entries.last() {
                Some(last) if page.more => start = [&last.key[..], &[0]].concat(),
                _ => return Ok(entries),
            }
        }
    }

    /// Reads the state of a lease; `None` if the lease does not exist.
    pub fn lease_state(&self, lease: u64) -> Result<Option<LeaseState>, KvError> {
        match self.query(&ControlQuery::Lease { lease })? {
            ControlQueryResult::Leases { mut leases, .. } => Ok(leases.pop()),
            _ => Err(KvError::unexpected_response()),
        }
    }

    /// Reads the last revision of the cluster. Returns the epoch of revisions, and the number of the revision in this
    /// epoch.
    pub fn revision(&self) -> Result<(u32, u64), KvError> {
        match self.query(&ControlQuery::Status)? {
            ControlQueryResult::Status { epoch, revision, .. } => Ok((epoch, revision)),
            _ => Err(KvError::unexpected_response()),
        }
    }

    /// Sends a query of any kind, and waits for its response.
    pub fn query(&self, query: &ControlQuery<'_>) -> Result<ControlQueryResult, KvError> {
        self.query_within(query, self.response_timeout())
    }

    fn query_within(
        &self,
        query: &ControlQuery<'_>,
        timeout: Duration,
    ) -> Result<ControlQueryResult, KvError> {
        let mut bytes = Vec::new();
        query.encode(&mut bytes);
        let answer = self.retry_until_answered(self.query_kind, &bytes, timeout)?;
        Ok(ControlQueryResult::decode(&answer)?)
    }

    /// Sends a command of any kind once, and waits for its response.
    pub fn command(&self, command: &ControlCommand<'_>) -> Result<ControlReply, KvError> {
        self.begin(command)?.wait()
    }

    fn write(&self, command: &ControlCommand<'_>) -> Result<WriteResult, KvError> {
        match self.command(command)? {
            ControlReply::Changed { revision, keys } => Ok(WriteResult { revision, keys }),
            _ => Err(KvError::unexpected_response()),
        }
    }

    fn page(&self, query: &ControlQuery<'_>) -> Result<KvPage, KvError> {
        KvPage::from_answer(self.query(query)?)
    }

    pub(crate) fn response_timeout(&self) -> Duration {
        Duration::from_millis(self.shared.limits.answer_ms_max)
    }
}

impl KvPage {
    pub(crate) fn from_answer(answer: ControlQueryResult) -> Result<KvPage, KvError> {
        match answer {
            ControlQueryResult::Found { revision, found: FoundKeys { items, more } } => {
                Ok(KvPage { revision, entries: items.into_iter().map(KvEntry::from).collect(), more })
            }
            _ => Err(KvError::unexpected_response()),
        }
    }
}

impl From<FoundKey> for KvEntry {
    fn from(FoundKey { key, item }: FoundKey) -> KvEntry {
        let (created, modified, version, lease) = (item.created, item.modified, item.version, item.lease);
        KvEntry { key: key.to_vec(), value: item.value, created, modified, version, lease }
    }
}
