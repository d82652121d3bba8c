//! The state, and where each command goes.

use std::ops::Bound;

use imbl::{OrdMap, OrdSet};

use crate::command::Command;
use crate::effects::Effects;
use crate::error::Refusal;
use crate::item::{Item, Key, Value};
use crate::lease::{Lease, LeaseInfo};
use crate::limits::Limits;
use crate::lock;
use crate::lock::Queue;
use crate::place::Topics;
use crate::reply::{Found, Pair, Reply};
use crate::room::Growth;
use crate::turn::Turn;

/// The first byte of the system's keys.
const RESERVED: u8 = b'$';

/// Room is made for so many items of a range before they are found.
const ITEMS_AT_ONCE: usize = 1_024;

/// All that is agreed on. Cloning it costs nothing: what two clones have in common they share.
#[derive(Debug, Clone, Default)]
pub struct State {
    pub(crate) keys: OrdMap<Key, Item>,
    pub(crate) leases: OrdMap<u64, Lease>,
    /// How many leases each user has.
    pub(crate) leases_of: OrdMap<Value, u64>,
    /// When each lease ends, and which it is.
    pub(crate) ends: OrdSet<(u64, u64)>,
    pub(crate) queues: OrdMap<Key, Queue>,
    pub(crate) limits: Limits,
    pub(crate) epoch: u32,
    pub(crate) revision: u64,
    pub(crate) now_ms: u64,
    /// The last lease granted.
    pub(crate) lease_last: u64,
    /// The last ticket given to one who waits.
    pub(crate) ticket_last: u64,
    /// What clients' keys take, locks and those who wait for them among them.
    pub(crate) bytes: u64,
    /// Of that, what each tenant's keys take.
    pub(crate) bytes_of: OrdMap<Value, u64>,
    /// The tenant whose command is taken in; none between commands.
    pub(crate) writer: Option<Value>,
    /// What the cluster's own keys take.
    pub(crate) cluster_bytes: u64,
    /// What follows from the keys of topics.
    pub(crate) topics: Topics,
}

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    Anyone,
    /// The cluster's own nodes.
    System,
}

impl State {
    /// An empty one.
    pub fn new(limits: Limits) -> State {
        State { limits, ..State::default() }
    }

    /// The epoch of its revisions; 0 before there is one.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The last revision; 0 before there is one.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// How late it is: milliseconds since the cluster began, as its leaders have counted them.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Of how many bytes clients' keys and values are, and what they take besides, roughly: what
    /// [`state_bytes_max`](Limits::state_bytes_max) limits.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The same of the cluster's own keys: its topics and nodes. They have as much again, so that full of clients' keys a
    /// cluster still makes and moves topics.
    pub fn cluster_bytes(&self) -> u64 {
        self.cluster_bytes
    }

    /// How many keys there are, the system's among them.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// How much it takes.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// What a key holds.
    pub fn get(&self, key: &[u8]) -> Option<&Item> {
        self.keys.get(key)
    }

    /// The keys from `start` up to, not including, `end`, at most `limit`; no end when that is empty, and no limit but the
    /// state's own when that is 0.
    pub fn range(&self, start: &[u8], end: &[u8], limit: u32) -> Found {
        self.range_within(start, end, limit, self.limits.range_bytes_max, 1)
    }

    /// [`State::range`] with another limit of bytes, beyond which `keys_min` are still given.
    pub(crate) fn range_within(
        &self,
        start: &[u8],
        end: &[u8],
        limit: u32,
        bytes_max: u64,
        keys_min: usize,
    ) -> Found {
        let keys_max = self.limits.range_keys_max;
        let limit = if limit == 0 { keys_max } else { limit.min(keys_max) } as usize;
        let items = Vec::with_capacity(limit.min(self.keys.len()).min(ITEMS_AT_ONCE));
        let mut found = Found { items, more: false };
        let mut bytes = 0;
        for (key, item) in self.between(start, end) {
            bytes += item.bytes(key);
            let full = found.items.len() >= keys_min && bytes > bytes_max;
            if full || found.items.len() == limit {
                found.more = true;
                break;
            }
            found.items.push(Pair { key: Key::from_slice(key), item: item.clone() });
        }
        found
    }

    pub(crate) fn between(&self, start: &[u8], end: &[u8]) -> impl Iterator<Item = (&Key, &Item)> {
        let is_empty = !end.is_empty() && end <= start;
        let end = if end.is_empty() { Bound::Unbounded } else { Bound::Excluded(end) };
        // A range that ends before it begins is none to the map.
        let range = (!is_empty).then(|| self.keys.range::<_, [u8]>((Bound::Included(start), end)));
        range.into_iter().flatten()
    }

    /// What is known of a lease.
    pub fn lease(&self, lease: u64) -> Option<LeaseInfo> {
        self.leases.get(&lease).map(|found| found.info(self.now_ms))
    }

    /// All leases, in the order in which they were granted.
    pub fn leases(&self) -> impl Iterator<Item = (u64, LeaseInfo)> {
        self.leases.iter().map(|(lease, found)| (*lease, found.info(self.now_ms)))
    }

    /// When the next lease ends, if nobody keeps it alive.
    pub fn next_end_ms(&self) -> Option<u64> {
        self.ends.get_min().map(|&(end_ms, _)| end_ms)
    }

    /// It is so late now, or as late as it was: leases whose time has come end.
    pub fn advance(&mut self, now_ms: u64, effects: &mut Effects) {
        self.now_ms = self.now_ms.max(now_ms);
        while let Some(&(end_ms, lease)) = self.ends.get_min().filter(|&&(end_ms, _)| end_ms <= self.now_ms) {
            debug_assert!(self.leases.contains_key(&lease), "lease {lease} of {end_ms} is there");
            let mut turn = Turn::begin(self, effects);
            turn.end_lease(lease);
            turn.end();
        }
    }

    /// Takes a command in.
    pub fn apply(&mut self, command: &Command<'_>, effects: &mut Effects) -> Result<Reply, Refusal> {
        match *command {
            Command::Put { key, value, lease } => self.put(key, value, lease, effects),
            Command::PutIf { key, value, lease, expect } => {
                self.expect(key, expect)?;
                self.put(key, value, lease, effects)
            }
            Command::Delete { key } => self.delete(key, effects),
            Command::DeleteIf { key, expect } => {
                self.expect(key, expect)?;
                self.delete(key, effects)
            }
            Command::DeleteRange { start, end } => {
                check_range(start, end)?;
                let mut turn = Turn::begin(self, effects);
                turn.delete_range(start, end);
                Ok(turn.changed())
            }
            Command::Transaction { ref compare, ref then, ref otherwise } => {
                self.transact(By::Anyone, compare, then, otherwise, effects)
            }
            Command::System { ref compare, ref then, ref otherwise } => {
                self.transact(By::System, compare, then, otherwise, effects)
            }
            Command::Grant { ttl_ms } => self.grant(ttl_ms, None),
            Command::KeepAlive { ref leases } => self.keep_alive(leases),
            Command::Revoke { lease } => self.revoke(lease, effects),
            Command::Acquire { name, lease, value, wait } => self.acquire(name, lease, value, wait, effects),
            Command::Release { name, lease } => self.release(name, lease, effects),
            Command::Proclaim { name, lease, value } => self.proclaim(name, lease, value, effects),
            Command::Enlist { node, lease, value } => self.enlist(node, lease, value, effects),
            Command::Place { ref wanted } => self.place(wanted, effects),
            Command::Move { topic, node, epoch } => self.move_topic(topic, node, epoch, effects),
            Command::Remove { topic } => self.remove_topic(topic, effects),
            Command::Limit { limits } => {
                self.limits = limits;
                Ok(Reply::Done)
            }
            Command::Begin { epoch } => self.begin(epoch),
            Command::OfTenant { tenant, .. } => {
                self.apply_of_tenant(tenant, &command.without_tenant(), effects)
            }
            Command::ByUser { user, all_leases, .. } => {
                self.apply_by_user(user, all_leases, &command.unbound(), effects)
            }
        }
    }

    fn begin(&mut self, epoch: u32) -> Result<Reply, Refusal> {
        if epoch <= self.epoch {
            return Err(Refusal::OldEpoch { epoch, current: self.epoch });
        }
        self.epoch = epoch;
        Ok(Reply::Done)
    }

    fn put(&mut self, key: &[u8], value: &[u8], lease: u64, effects: &mut Effects) -> Result<Reply, Refusal> {
        self.check_put(By::Anyone, key, value, lease)?;
        // Mostly there is room even for a new key, and nothing has to be looked for.
        if self.check_room(By::Anyone, Growth::with_key(key, value)).is_err() {
            self.check_room(By::Anyone, self.growth(key, value))?;
        }
        let mut turn = Turn::begin(self, effects);
        turn.put(key, value, lease);
        Ok(turn.changed())
    }

    fn delete(&mut self, key: &[u8], effects: &mut Effects) -> Result<Reply, Refusal> {
        self.check_own(By::Anyone, key)?;
        let mut turn = Turn::begin(self, effects);
        turn.delete(key);
        Ok(turn.changed())
    }

    fn expect(&self, key: &[u8], expect: u64) -> Result<(), Refusal> {
        let modified = self.get(key).map_or(0, |item| item.modified);
        if modified == expect { Ok(()) } else { Err(Refusal::Mismatch { modified }) }
    }

    /// A key that whoever asks may write. Locks have commands of their own.
    pub(crate) fn check_own(&self, by: By, key: &[u8]) -> Result<(), Refusal> {
        self.check_key(key)?;
        let is_open = !is_reserved(key) || (by == By::System && lock::name_of(key).is_none());
        if is_open { Ok(()) } else { Err(Refusal::Reserved) }
    }

    pub(crate) fn check_key(&self, key: &[u8]) -> Result<(), Refusal> {
        let (bytes, bytes_max) = (key.len() as u64, u64::from(self.limits.key_bytes_max));
        match bytes {
            0 => Err(Refusal::EmptyKey),
            _ if bytes > bytes_max => Err(Refusal::KeyTooLong { bytes, bytes_max }),
            _ => Ok(()),
        }
    }

    pub(crate) fn check_value(&self, value: &[u8]) -> Result<(), Refusal> {
        let (bytes, bytes_max) = (value.len() as u64, u64::from(self.limits.value_bytes_max));
        if bytes > bytes_max { Err(Refusal::ValueTooLong { bytes, bytes_max }) } else { Ok(()) }
    }

    pub(crate) fn check_put(&self, by: By, key: &[u8], value: &[u8], lease: u64) -> Result<(), Refusal> {
        self.check_own(by, key)?;
        self.check_value(value)?;
        if lease == 0 { Ok(()) } else { self.check_lease(lease) }
    }
}

pub(crate) fn check_range(start: &[u8], end: &[u8]) -> Result<(), Refusal> {
    if !end.is_empty() && end <= start { Err(Refusal::EmptyRange) } else { Ok(()) }
}

pub(crate) fn is_reserved(key: &[u8]) -> bool {
    key.first() == Some(&RESERVED)
}
