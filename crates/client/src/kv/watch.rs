//! Watches of keys.
//!
//! The cluster publishes all changes of keys in a topic, and a watch subscribes to this topic. The sequence number of a
//! record in the topic is the number of a revision.

#[cfg(feature = "tokio")]
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use dunlin_control::{KeyEvent, KeyEvents, prefix_end};
use dunlin_topic::{
    self as topic, Notice, OnGap, Position, Start, Subscribe, SubscribeError, SubscribeOptions,
};

use super::{Kv, KvEntry, KvError};
use crate::client::Client;
use crate::subscriber::Subscriber;

/// The topic in which the cluster publishes all changes of keys.
const CHANGES_TOPIC: &str = "$kv";

/// The first revision that a watch receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WatchFrom {
    /// The next revision after the beginning of the watch.
    #[default]
    Now,
    /// The revision with this number in this epoch. Both numbers come from [`Kv::revision`] or from a [`Change`]. If
    /// the cluster has a different epoch by now, the revision's number stands for another change, and the watch fails
    /// with [`WatchError::Restarted`].
    Revision {
        /// The epoch.
        epoch: u32,
        /// The number of the revision.
        revision: u64,
    },
    /// The oldest revision that the cluster still has.
    Oldest,
}

/// The keys that were written or deleted in one revision, as a watch receives them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The epoch of the revision.
    pub epoch: u32,
    /// The number of the revision.
    pub revision: u64,
    /// The changed keys.
    pub events: Vec<KeyChange>,
}

/// A changed key: its new entry, or only its name if the key was deleted.
pub type KeyChange = Result<KvEntry, Vec<u8>>;

/// Why a watch of keys failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// Revisions before `oldest` were compacted before this watch received them.
    #[error("revisions {missed} to {} were compacted: read the keys, and watch from revision {oldest}", oldest - 1)]
    Compacted {
        /// The first revision that this watch missed.
        missed: u64,
        /// The oldest revision that can still be read.
        oldest: u64,
    },
    /// The cluster has a new epoch, whose revisions are numbered from the beginning. Read the keys again, and watch
    /// from `revision`.
    #[error("revisions have restarted at {revision}: read the keys, and watch from this revision")]
    Restarted {
        /// The first revision of the new epoch.
        revision: u64,
    },
    /// The subscription failed. After a lost connection, the next call tries again.
    #[error(transparent)]
    Subscribe(#[from] SubscribeError),
    /// The watch could not begin, because the keys could not be read. A watch first reads one key, to check the user's
    /// permission.
    #[error(transparent)]
    Kv(#[from] KvError),
}

/// A subscription to the changes of keys. It returns the changes of one revision at a time.
#[derive(Debug)]
pub struct Watch {
    subscriber: Subscriber,
    prefix: Vec<u8>,
    revision: u64,
}

impl Kv {
    /// Watches all keys that begin with `prefix`. Fails if the user may not read all of them.
    pub fn watch(&self, prefix: impl AsRef<[u8]>, from: WatchFrom) -> Result<Watch, WatchError> {
        // If the user may not read some of the keys, the watch would not receive their changes, and no notice would say
        // so. In this case, this read of the keys fails.
        self.stale().range(prefix.as_ref(), prefix_end(prefix.as_ref()), 1)?;
        let start = match from {
            WatchFrom::Now => Start::Latest,
            WatchFrom::Oldest => Start::Earliest,
            WatchFrom::Revision { epoch, revision } => {
                Start::After(Position { epoch, seq: revision.saturating_sub(1) })
            }
        };
        let options = SubscribeOptions { start, on_gap: OnGap::Fail, ..SubscribeOptions::default() };
        let client = Client { shared: self.shared.clone() };
        let subscriber = client.subscribe(CHANGES_TOPIC, options)?;
        Ok(Watch { subscriber, prefix: prefix.as_ref().to_vec(), revision: 0 })
    }
}

impl Watch {
    /// Waits for the next change, without a time limit.
    #[expect(clippy::should_implement_trait, reason = "`next` fails, and may be called again afterwards")]
    pub fn next(&mut self) -> Result<Change, WatchError> {
        loop {
            if let Some(change) = self.next_timeout(Duration::from_secs(3_600))? {
                return Ok(change);
            }
        }
    }

    /// Returns the next change; `None` if none arrives within `timeout`.
    pub fn next_timeout(&mut self, timeout: Duration) -> Result<Option<Change>, WatchError> {
        let until = Instant::now().checked_add(timeout);
        loop {
            let remaining = until.map_or(timeout, |until| until.saturating_duration_since(Instant::now()));
            let Some(event) = self.subscriber.next_timeout(remaining)? else { return Ok(None) };
            let Some(change) = decode_change(&event, &self.prefix)? else { continue };
            self.revision = change.revision;
            if !change.events.is_empty() {
                return Ok(Some(change));
            }
        }
    }

    /// Returns the next change if one has arrived, otherwise `None`.
    pub fn try_next(&mut self) -> Result<Option<Change>, WatchError> {
        loop {
            let Some(event) = self.subscriber.try_next()? else { return Ok(None) };
            let Some(change) = decode_change(&event, &self.prefix)? else { continue };
            self.revision = change.revision;
            if !change.events.is_empty() {
                return Ok(Some(change));
            }
        }
    }

    /// Waits in async code until [`try_next`](Self::try_next) may return a change.
    #[cfg(feature = "tokio")]
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), WatchError>> {
        self.subscriber.poll_ready(cx).map_err(WatchError::from)
    }

    /// Async form of [`next`](Self::next).
    #[cfg(feature = "tokio")]
    pub async fn changed(&mut self) -> Result<Change, WatchError> {
        loop {
            let event = self.subscriber.next_async().await?;
            let Some(change) = decode_change(&event, &self.prefix)? else { continue };
            self.revision = change.revision;
            if !change.events.is_empty() {
                return Ok(change);
            }
        }
    }

    /// The last revision that this watch has received, even if the revision changed none of the watched keys; 0 before
    /// the first revision.
    pub fn revision(&self) -> u64 {
        self.revision
    }
}

/// Returns the changes that a record makes to keys that begin with `prefix`. The list of changes is empty if the record
/// changes no such key. Returns `None` for a notice, and fails if the notice ends the watch.
fn decode_change(event: &topic::Event<'_>, prefix: &[u8]) -> Result<Option<Change>, WatchError> {
    let record = match event {
        topic::Event::Record(record) => record,
        topic::Event::Notice(Notice::Gap(gap)) => {
            return Err(WatchError::Compacted { missed: gap.first, oldest: gap.last + 1 });
        }
        topic::Event::Notice(Notice::EpochChanged(changed)) => {
            return Err(WatchError::Restarted { revision: changed.new_first.seq });
        }
        topic::Event::Notice(Notice::Deleted { .. }) => return Err(SubscribeError::Closed.into()),
        topic::Event::Notice(_) => return Ok(None),
    };
    let mut events = Vec::new();
    for event in KeyEvents::new(record.payload()).map_err(KvError::from)? {
        match event.map_err(KvError::from)? {
            KeyEvent::Put { key, item } if key.starts_with(prefix) => {
                let (created, modified, version, lease) =
                    (item.created, item.modified, item.version, item.lease);
                let value = item.value;
                events.push(Ok(KvEntry { key: key.to_vec(), value, created, modified, version, lease }));
            }
            KeyEvent::Deleted { key } if key.starts_with(prefix) => events.push(Err(key.to_vec())),
            KeyEvent::Put { .. } | KeyEvent::Deleted { .. } => {}
        }
    }
    let Position { epoch, seq } = record.position;
    Ok(Some(Change { epoch, revision: seq, events }))
}
