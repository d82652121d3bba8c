//! Defines [`ControlState`], which applies commands to keys, leases, locks and owners of topics.

use std::ops::Bound;

use imbl::{OrdMap, OrdSet};

use crate::command::{ControlCommand, KeyOperation};
use crate::effects::ControlEffects;
use crate::error::ControlRefusal;
use crate::item::{Key, KeyItem, Value};
use crate::lease::{Lease, LeaseInfo};
use crate::limits::ControlStateLimits;
use crate::lock;
use crate::lock::LockQueue;
use crate::placement::TopicIndex;
use crate::reply::{ControlReply, FoundKey, FoundKeys};
use crate::revision_builder::RevisionBuilder;
use crate::room::Growth;

/// The prefix of system keys.
pub(crate) const SYSTEM_KEYS: &[u8] = b"$";
/// The end of the range of all system keys.
pub(crate) const SYSTEM_KEYS_END: &[u8] = b"%";

/// Maximum number of items for which a range reserves memory in advance.
const ITEMS_AT_ONCE: usize = 1_024;

/// All keys, leases, locks and owners of topics that a cluster agrees on. A clone is cheap, because the clone and the
/// original share all data that neither of them has changed.
#[derive(Debug, Clone, Default)]
pub struct ControlState {
    pub(crate) keys: OrdMap<Key, KeyItem>,
    pub(crate) leases: OrdMap<u64, Lease>,
    /// The number of leases of each user.
    pub(crate) lease_counts: OrdMap<Value, u64>,
    pub(crate) tenant_lease_counts: OrdMap<Value, u64>,
    /// The end time and the number of each lease, in the order of the end times.
    pub(crate) ends: OrdSet<(u64, u64)>,
    pub(crate) queues: OrdMap<Key, LockQueue>,
    pub(crate) limits: ControlStateLimits,
    pub(crate) epoch: u32,
    pub(crate) revision: u64,
    pub(crate) now_ms: u64,
    /// The number of the lease that was granted last.
    pub(crate) lease_last: u64,
    /// The last ticket that a waiting lease received. All queues draw their tickets from this one counter.
    pub(crate) ticket_last: u64,
    /// Bytes of clients' keys, of locks and of leases that wait for locks.
    pub(crate) bytes: u64,
    pub(crate) tenant_bytes: OrdMap<Value, u64>,
    /// The tenant whose command is being applied.
    pub(crate) writer: Option<Value>,
    pub(crate) cluster_bytes: u64,
    /// An index of the topics, built from their keys.
    pub(crate) topics: TopicIndex,
}

/// The origin of a command: a client, or a node of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandSource {
    Client,
    /// A node of the cluster.
    System,
}

impl ControlState {
    /// An empty state.
    pub fn new(limits: ControlStateLimits) -> ControlState {
        ControlState { limits, ..ControlState::default() }
    }

    /// An empty state that numbers its leases from `lease_last + 1`. A node that loses its state in a restart uses this
    /// function: the node's clients may still use lease numbers from before the restart, so new leases must have other
    /// numbers.
    pub fn with_leases_after(lease_last: u64) -> ControlState {
        ControlState { lease_last, ..ControlState::default() }
    }

    /// The epoch of the revisions; 0 if no epoch has begun yet.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The number of the last revision; 0 if there is none yet.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The cluster's time: ms since the cluster began, as counted by its leaders.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Approximate bytes of clients' keys with their overhead, limited by
    /// [`state_bytes_max`](ControlStateLimits::state_bytes_max).
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Approximate bytes of the cluster's keys: topics and members. Their limit is separate, so that a cluster full
    /// of clients' keys can still create and move topics.
    pub fn cluster_bytes(&self) -> u64 {
        self.cluster_bytes
    }

    /// Number of keys, system keys included.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The limits of the state, such as the maximum size of a value.
    pub fn limits(&self) -> ControlStateLimits {
        self.limits
    }

    /// The value and the properties of a key; `None` if the key does not exist.
    pub fn get(&self, key: &[u8]) -> Option<&KeyItem> {
        self.keys.get(key)
    }

    /// Returns at most `limit` keys, from `start` up to, but not including, `end`. An empty `end` means no end; a
    /// `limit` of 0 means the state's limit.
    pub fn range(&self, start: &[u8], end: &[u8], limit: u32) -> FoundKeys {
        self.range_within(start, end, limit, self.limits.range_bytes_max, 1)
    }

    /// Like [`ControlState::range`], but limits the size of the keys to `bytes_max`. Returns at least `keys_min` keys
    /// even if they are larger.
    pub(crate) fn range_within(
        &self,
        start: &[u8],
        end: &[u8],
        limit: u32,
        bytes_max: u64,
        keys_min: usize,
    ) -> FoundKeys {
        let keys_max = self.limits.range_keys_max;
        let limit = if limit == 0 { keys_max } else { limit.min(keys_max) } as usize;
        let items = Vec::with_capacity(limit.min(self.keys.len()).min(ITEMS_AT_ONCE));
        let mut found = FoundKeys { items, more: false };
        let mut bytes = 0;
        for (key, item) in self.between(start, end) {
            bytes += item.bytes(key);
            let full = found.items.len() >= keys_min && bytes > bytes_max;
            if full || found.items.len() == limit {
                found.more = true;
                break;
            }
            found.items.push(FoundKey { key: Key::from_slice(key), item: item.clone() });
        }
        found
    }

    pub(crate) fn between(&self, start: &[u8], end: &[u8]) -> impl Iterator<Item = (&Key, &KeyItem)> {
        let is_empty = !end.is_empty() && end <= start;
        let end = if end.is_empty() { Bound::Unbounded } else { Bound::Excluded(end) };
        // The map would panic if the range ended before it begins.
        let range = (!is_empty).then(|| self.keys.range::<_, [u8]>((Bound::Included(start), end)));
        range.into_iter().flatten()
    }

    /// The status of a lease; `None` if the lease does not exist.
    pub fn lease(&self, lease: u64) -> Option<LeaseInfo> {
        self.leases.get(&lease).map(|found| found.info(self.now_ms))
    }

    /// All leases, in the order in which they were granted.
    pub fn leases(&self) -> impl Iterator<Item = (u64, LeaseInfo)> {
        self.leases.iter().map(|(lease, found)| (*lease, found.info(self.now_ms)))
    }

    /// The end time of the lease that ends first, in ms of the cluster's time; `None` if there are no leases.
    pub fn next_lease_end_ms(&self) -> Option<u64> {
        self.ends.get_min().map(|&(end_ms, _)| end_ms)
    }

    /// Whether more than `count` leases and keys would end at `now_ms`: the leases that are due at that time, and the
    /// keys that end with these leases.
    pub fn has_more_due(&self, now_ms: u64, count: usize) -> bool {
        if self.next_lease_end_ms().is_none_or(|end_ms| end_ms > now_ms) {
            return false;
        }
        let due = self.ends.range(..=(now_ms, u64::MAX)).take(count + 1);
        let ended =
            |&(_, lease): &(u64, u64)| 1 + self.leases.get(&lease).map_or(0, |found| found.keys.len());
        due.map(ended).sum::<usize>() > count
    }

    /// Whether these encoded commands may together delete more than `count` keys, by ranges or by ending leases.
    pub fn deletes_more<'c>(&self, commands: impl Iterator<Item = &'c [u8]>, count: usize) -> bool {
        let mut left = count + 1;
        commands.filter_map(ControlCommand::decode_deletion).any(|command| {
            left = left.saturating_sub(self.deleted_keys(&command, left));
            left == 0
        })
    }

    /// The number of keys that the command may delete, by ranges or by ending a lease. Counting the keys of ranges
    /// stops at `max`.
    fn deleted_keys(&self, command: &ControlCommand<'_>, max: usize) -> usize {
        let in_range = |start: &[u8], end: &[u8], max: usize| self.between(start, end).take(max).count();
        match command {
            ControlCommand::DeleteRange { start, end } => in_range(start, end, max),
            ControlCommand::Revoke { lease } => self.leases.get(lease).map_or(0, |found| found.keys.len()),
            ControlCommand::Transaction { then, otherwise, .. }
            | ControlCommand::System { then, otherwise, .. } => {
                then.iter().chain(otherwise).fold(0, |count, operation| match operation {
                    KeyOperation::DeleteRange { start, end } => count + in_range(start, end, max - count),
                    _ => count,
                })
            }
            _ => 0,
        }
    }

    /// Sets the cluster's time, and ends the leases that are due by then. The time never decreases: an earlier `now_ms`
    /// counts as the present time.
    pub fn advance(&mut self, now_ms: u64, effects: &mut ControlEffects) {
        self.now_ms = self.now_ms.max(now_ms);
        while let Some(&(end_ms, lease)) = self.ends.get_min().filter(|&&(end_ms, _)| end_ms <= self.now_ms) {
            debug_assert!(self.leases.contains_key(&lease), "lease {lease}, due at {end_ms}, exists");
            let mut revision_builder = RevisionBuilder::begin(self, effects);
            revision_builder.end_lease(lease);
            revision_builder.end();
        }
    }

    /// Applies a command, and adds its effects to `effects`.
    pub fn apply(
        &mut self,
        command: &ControlCommand<'_>,
        effects: &mut ControlEffects,
    ) -> Result<ControlReply, ControlRefusal> {
        match *command {
            ControlCommand::Put { key, value, lease } => self.put(key, value, lease, effects),
            ControlCommand::PutIf { key, value, lease, expect } => {
                self.check_revision(key, expect)?;
                self.put(key, value, lease, effects)
            }
            ControlCommand::Delete { key } => self.delete(key, effects),
            ControlCommand::DeleteIf { key, expect } => {
                self.check_revision(key, expect)?;
                self.delete(key, effects)
            }
            ControlCommand::DeleteRange { start, end } => {
                check_range(start, end)?;
                let mut revision_builder = RevisionBuilder::begin(self, effects);
                revision_builder.delete_range(start, end);
                Ok(revision_builder.changed())
            }
            ControlCommand::Transaction { ref compare, ref then, ref otherwise } => {
                self.transact(CommandSource::Client, compare, then, otherwise, effects)
            }
            ControlCommand::System { ref compare, ref then, ref otherwise } => {
                self.transact(CommandSource::System, compare, then, otherwise, effects)
            }
            ControlCommand::Grant { ttl_ms } => self.grant(ttl_ms, None),
            ControlCommand::KeepAlive { ref leases } => self.keep_alive(leases),
            ControlCommand::Revoke { lease } => self.revoke(lease, effects),
            ControlCommand::Acquire { name, lease, value, wait } => {
                self.acquire(name, lease, value, wait, effects)
            }
            ControlCommand::Release { name, lease } => self.release(name, lease, effects),
            ControlCommand::Proclaim { name, lease, value } => self.proclaim(name, lease, value, effects),
            ControlCommand::Enlist { node, lease, value } => self.enlist(node, lease, value, effects),
            ControlCommand::Place { ref request } => self.place(request, effects),
            ControlCommand::Move { topic, node, epoch } => self.move_topic(topic, node, epoch, effects),
            ControlCommand::Remove { topic } => self.remove_topic(topic, effects),
            ControlCommand::Limit { limits } => {
                self.limits = limits;
                Ok(ControlReply::Done)
            }
            ControlCommand::Begin { epoch } => self.begin_epoch(epoch),
            ControlCommand::BeginRestored { epoch, skipped } => {
                self.begin_epoch(epoch)?;
                self.revision = self.revision.saturating_add(skipped);
                self.lease_last = self.lease_last.saturating_add(skipped);
                Ok(ControlReply::Done)
            }
            ControlCommand::OfTenant { tenant, .. } => {
                self.apply_for_tenant(tenant, &command.without_tenant(), effects)
            }
            ControlCommand::ByUser { user, all_leases, .. } => {
                self.apply_for_user(user, all_leases, &command.unbound(), effects)
            }
        }
    }

    fn begin_epoch(&mut self, epoch: u32) -> Result<ControlReply, ControlRefusal> {
        if epoch <= self.epoch {
            return Err(ControlRefusal::OldEpoch { epoch, current: self.epoch });
        }
        self.epoch = epoch;
        Ok(ControlReply::Done)
    }

    fn put(
        &mut self,
        key: &[u8],
        value: &[u8],
        lease: u64,
        effects: &mut ControlEffects,
    ) -> Result<ControlReply, ControlRefusal> {
        self.check_put(CommandSource::Client, key, value, lease)?;
        // First assumes that the key is new. The existing key, which needs less room, is looked up only if there is no
        // room for a new key.
        if self.check_room(CommandSource::Client, Growth::with_key(key, value)).is_err() {
            self.check_room(CommandSource::Client, self.growth(key, value))?;
        }
        let mut revision_builder = RevisionBuilder::begin(self, effects);
        revision_builder.put(key, value, lease);
        Ok(revision_builder.changed())
    }

    fn delete(&mut self, key: &[u8], effects: &mut ControlEffects) -> Result<ControlReply, ControlRefusal> {
        self.check_writable(CommandSource::Client, key)?;
        let mut revision_builder = RevisionBuilder::begin(self, effects);
        revision_builder.delete(key);
        Ok(revision_builder.changed())
    }

    fn check_revision(&self, key: &[u8], expect: u64) -> Result<(), ControlRefusal> {
        let modified = self.get(key).map_or(0, |item| item.modified);
        if modified == expect { Ok(()) } else { Err(ControlRefusal::Mismatch { modified }) }
    }

    /// Checks that the caller may write the key. The key of a lock is refused to every caller, because locks have their
    /// own commands.
    pub(crate) fn check_writable(&self, source: CommandSource, key: &[u8]) -> Result<(), ControlRefusal> {
        self.check_key(key)?;
        let is_open =
            !is_reserved(key) || (source == CommandSource::System && lock::lock_name(key).is_none());
        if is_open { Ok(()) } else { Err(ControlRefusal::Reserved) }
    }

    pub(crate) fn check_key(&self, key: &[u8]) -> Result<(), ControlRefusal> {
        let (bytes, bytes_max) = (key.len() as u64, u64::from(self.limits.key_bytes_max));
        match bytes {
            0 => Err(ControlRefusal::EmptyKey),
            _ if bytes > bytes_max => Err(ControlRefusal::KeyTooLong { bytes, bytes_max }),
            _ => Ok(()),
        }
    }

    pub(crate) fn check_value(&self, value: &[u8]) -> Result<(), ControlRefusal> {
        let (bytes, bytes_max) = (value.len() as u64, u64::from(self.limits.value_bytes_max));
        if bytes > bytes_max { Err(ControlRefusal::ValueTooLong { bytes, bytes_max }) } else { Ok(()) }
    }

    pub(crate) fn check_put(
        &self,
        source: CommandSource,
        key: &[u8],
        value: &[u8],
        lease: u64,
    ) -> Result<(), ControlRefusal> {
        self.check_writable(source, key)?;
        self.check_value(value)?;
        if lease == 0 { Ok(()) } else { self.check_lease(lease) }
    }
}

pub(crate) fn check_range(start: &[u8], end: &[u8]) -> Result<(), ControlRefusal> {
    if !end.is_empty() && end <= start { Err(ControlRefusal::EmptyRange) } else { Ok(()) }
}

pub(crate) fn is_reserved(key: &[u8]) -> bool {
    key.starts_with(SYSTEM_KEYS)
}
