//! Watching: a subscription to the topic of changes, whose sequence is the revision.

#[cfg(feature = "tokio")]
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use dunlin_control::{Event, Events, prefix_end};
use dunlin_topic::{
    self as topic, Notice, OnGap, Position, Start, Subscribe, SubscribeError, SubscribeOptions,
};

use super::{Entry, Kv, KvError};
use crate::client::Client;
use crate::subscriber::Subscriber;

/// The topic of changes.
const KV: &str = "$kv";

/// Where a watch begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WatchFrom {
    /// With the next revision.
    #[default]
    Now,
    /// With a revision. In another epoch than the one in which it was seen ([`Kv::revision`], [`Change::epoch`]) the watch says
    /// [`WatchError::Restarted`]: the same numbers are other revisions there.
    Revision {
        /// The epoch.
        epoch: u32,
        /// The revision.
        revision: u64,
    },
    /// With the oldest revision that is held.
    Oldest,
}

/// What one revision changed of what is watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The epoch in which the revision is one.
    pub epoch: u32,
    /// The revision.
    pub revision: u64,
    /// Keys that were written.
    pub events: Vec<KeyChange>,
}

/// What became of a key: what it holds now, or the key that was deleted.
pub type KeyChange = Result<Entry, Vec<u8>>;

/// Why a watch was refused, or has ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// Revisions are not held any more: history was given up before this watch came to it.
    #[error("revisions {missed} to {} are not held any more: read the keys, and watch on from revision {oldest}", oldest - 1)]
    Compacted {
        /// The first that is missing.
        missed: u64,
        /// The oldest that is held.
        oldest: u64,
    },
    /// Revisions have begun anew: keys may be others than before. Read them, and watch on from this one.
    #[error("revisions have begun anew, with {revision}: read the keys, and watch on from there")]
    Restarted {
        /// Where they go on.
        revision: u64,
    },
    /// The subscription failed; after a loss of the connection the next call goes on trying.
    #[error(transparent)]
    Subscribe(#[from] SubscribeError),
    /// What was asked of the cluster first failed.
    #[error(transparent)]
    Kv(#[from] KvError),
}

/// Tells what changes, revision by revision.
#[derive(Debug)]
pub struct Watch {
    subscriber: Subscriber,
    prefix: Vec<u8>,
    revision: u64,
}

impl Kv {
    /// Watches all keys that begin with `prefix`; refused to who may not read all of them.
    pub fn watch(&self, prefix: impl AsRef<[u8]>, from: WatchFrom) -> Result<Watch, WatchError> {
        // The topic of changes shows what one may see, which does not say of what one may not that it is kept back.
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
        let subscriber = client.subscribe(KV, options)?;
        Ok(Watch { subscriber, prefix: prefix.as_ref().to_vec(), revision: 0 })
    }
}

impl Watch {
    /// The next change, however long it takes.
    #[expect(clippy::should_implement_trait, reason = "it fails, and may be called again after that")]
    pub fn next(&mut self) -> Result<Change, WatchError> {
        loop {
            if let Some(change) = self.next_timeout(Duration::from_secs(3_600))? {
                return Ok(change);
            }
        }
    }

    /// The next change, or `None` after so long without one.
    pub fn next_timeout(&mut self, timeout: Duration) -> Result<Option<Change>, WatchError> {
        let until = Instant::now().checked_add(timeout);
        loop {
            let left = until.map_or(timeout, |until| until.saturating_duration_since(Instant::now()));
            let Some(event) = self.subscriber.next_timeout(left)? else { return Ok(None) };
            let Some(change) = change(&event, &self.prefix)? else { continue };
            self.revision = change.revision;
            if !change.events.is_empty() {
                return Ok(Some(change));
            }
        }
    }

    /// The next change, if it is there.
    pub fn try_next(&mut self) -> Result<Option<Change>, WatchError> {
        loop {
            let Some(event) = self.subscriber.try_next()? else { return Ok(None) };
            let Some(change) = change(&event, &self.prefix)? else { continue };
            self.revision = change.revision;
            if !change.events.is_empty() {
                return Ok(Some(change));
            }
        }
    }

    /// Ready when there may be a change, of whatever keys.
    #[cfg(feature = "tokio")]
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), WatchError>> {
        self.subscriber.poll_ready(cx).map_err(WatchError::from)
    }

    /// The same for tasks.
    #[cfg(feature = "tokio")]
    pub async fn changed(&mut self) -> Result<Change, WatchError> {
        loop {
            let event = self.subscriber.next_async().await?;
            let Some(change) = change(&event, &self.prefix)? else { continue };
            self.revision = change.revision;
            if !change.events.is_empty() {
                return Ok(change);
            }
        }
    }

    /// The last revision that was seen, of whatever keys; 0 before there was one.
    pub fn revision(&self) -> u64 {
        self.revision
    }
}

/// What an event of the topic says of the keys that begin with `prefix`.
fn change(event: &topic::Event<'_>, prefix: &[u8]) -> Result<Option<Change>, WatchError> {
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
    for event in Events::new(record.payload()).map_err(KvError::from)? {
        match event.map_err(KvError::from)? {
            Event::Put { key, item } if key.starts_with(prefix) => {
                let (created, modified, version, lease) =
                    (item.created, item.modified, item.version, item.lease);
                let value = item.value;
                events.push(Ok(Entry { key: key.to_vec(), value, created, modified, version, lease }));
            }
            Event::Deleted { key } if key.starts_with(prefix) => events.push(Err(key.to_vec())),
            Event::Put { .. } | Event::Deleted { .. } => {}
        }
    }
    let Position { epoch, seq } = record.position;
    Ok(Some(Change { epoch, revision: seq, events }))
}
