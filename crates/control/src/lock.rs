//! Locks and elections. A lock has at most one holder; other leases wait in the lock's queue.
//!
//! Each held lock has a system key: [`LOCKS`] followed by the lock's name. This key is tied to the holder's lease. The
//! key can be watched, read and compared like other keys. The revision that created the key is the holder's fencing
//! token. If the state is lost, revisions and therefore fencing tokens begin again at low numbers, but lease numbers
//! can continue ([`ControlState::with_leases_after`]).

use imbl::OrdMap;

use crate::effects::{ControlEffects, LockGrant};
use crate::error::ControlRefusal;
use crate::item::{Key, Value, item_bytes};
use crate::reply::ControlReply;
use crate::revision_builder::RevisionBuilder;
use crate::room::Growth;
use crate::state::{CommandSource, ControlState};

/// Prefix of the system key that stores a lock's holder; the lock's name follows.
pub const LOCKS: &[u8] = b"$lock/";

/// The leases that wait for one lock, by ticket. Tickets grow, so the first lease has waited longest.
pub(crate) type LockQueue = OrdMap<u64, Waiter>;

/// Whether a lease holds a lock or waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockStatus {
    /// The lease holds the lock.
    Held {
        /// The fencing token.
        token: u64,
    },
    /// The lease waits in the lock's queue.
    Waiting,
}

/// A lease that waits for a lock.
#[derive(Debug, Clone)]
pub(crate) struct Waiter {
    pub(crate) lease: u64,
    pub(crate) value: Value,
}

pub(crate) fn lock_key(name: &[u8]) -> Vec<u8> {
    [LOCKS, name].concat()
}

pub(crate) fn lock_name(key: &[u8]) -> Option<&[u8]> {
    key.strip_prefix(LOCKS)
}

impl ControlState {
    pub(crate) fn acquire(
        &mut self,
        name: &[u8],
        lease: u64,
        value: &[u8],
        wait: bool,
        effects: &mut ControlEffects,
    ) -> Result<ControlReply, ControlRefusal> {
        self.check_key(name)?;
        self.check_value(value)?;
        self.check_lease(lease)?;
        let key = lock_key(name);
        let Some((holder, token)) = self.get(&key).map(|item| (item.lease, item.created)) else {
            self.check_room(CommandSource::Client, self.growth(&key, value))?;
            let mut revision_builder = RevisionBuilder::begin(self, effects);
            revision_builder.put(&key, value, lease);
            return Ok(ControlReply::Held { token: revision_builder.end() });
        };
        if holder == lease {
            return Ok(ControlReply::Held { token });
        }
        if let Some(before) = self.queue_position(name, lease) {
            return Ok(ControlReply::Waiting { before });
        }
        if !wait {
            return Err(ControlRefusal::Held { holder, token });
        }
        self.join_queue(name, lease, value)
    }

    /// Returns whether a lease holds a lock or waits for it.
    ///
    /// # Errors
    /// `NoLease` if there is no such lease; `NotHeld` if the lease neither holds the lock nor waits for it.
    pub fn lock_status(&self, name: &[u8], lease: u64) -> Result<LockStatus, ControlRefusal> {
        self.check_lease(lease)?;
        if let Some(token) = self.lock_token(name, lease) {
            return Ok(LockStatus::Held { token });
        }
        let waits = self.leases.get(&lease).is_some_and(|found| found.waits.contains_key(name));
        if waits { Ok(LockStatus::Waiting) } else { Err(ControlRefusal::NotHeld { lease }) }
    }

    /// The fencing token with which `lease` holds a lock; `None` if the lease does not hold the lock.
    pub fn lock_token(&self, name: &[u8], lease: u64) -> Option<u64> {
        self.get(&lock_key(name)).filter(|item| item.lease == lease).map(|item| item.created)
    }

    /// The number of leases before `lease` in a lock's queue; `None` if `lease` does not wait for the lock.
    fn queue_position(&self, name: &[u8], lease: u64) -> Option<u64> {
        let ticket = *self.leases.get(&lease)?.waits.get(name)?;
        Some(self.queues.get(name)?.range(..ticket).count() as u64)
    }

    fn join_queue(&mut self, name: &[u8], lease: u64, value: &[u8]) -> Result<ControlReply, ControlRefusal> {
        let (count_max, bytes) = (u64::from(self.limits.waiters_max), item_bytes(name, value));
        let before = self.queues.get(name).map_or(0, |queue| queue.len() as u64);
        if before >= count_max {
            return Err(ControlRefusal::TooManyWaiters { count_max });
        }
        self.check_room(CommandSource::Client, Growth::shared(bytes))?;
        self.ticket_last += 1;
        self.enqueue(Key::from(name), self.ticket_last, Waiter { lease, value: value.into() });
        Ok(ControlReply::Waiting { before })
    }

    pub(crate) fn enqueue(&mut self, name: Key, ticket: u64, waiting: Waiter) {
        self.bytes += item_bytes(&name, &waiting.value);
        if let Some(found) = self.leases.get_mut(&waiting.lease) {
            found.waits.insert(name.clone(), ticket);
        }
        self.queues.entry(name).or_default().insert(ticket, waiting);
    }

    /// Removes the lease with this ticket from a lock's queue. The caller removes the ticket from `Lease::waits`.
    pub(crate) fn leave_queue(&mut self, name: &[u8], ticket: u64) -> Option<Waiter> {
        let queue = self.queues.get_mut(name)?;
        let waiting = queue.remove(&ticket);
        if queue.is_empty() {
            self.queues.remove(name);
        }
        self.bytes -= waiting.as_ref().map_or(0, |waiting| item_bytes(name, &waiting.value));
        waiting
    }

    pub(crate) fn release(
        &mut self,
        name: &[u8],
        lease: u64,
        effects: &mut ControlEffects,
    ) -> Result<ControlReply, ControlRefusal> {
        let key = lock_key(name);
        if self.holds(&key, lease) {
            let mut revision_builder = RevisionBuilder::begin(self, effects);
            revision_builder.delete(&key);
            revision_builder.end();
            return Ok(ControlReply::Done);
        }
        let ticket = self.leases.get_mut(&lease).and_then(|found| found.waits.remove(name));
        let ticket = ticket.ok_or(ControlRefusal::NotHeld { lease })?;
        self.leave_queue(name, ticket);
        Ok(ControlReply::Done)
    }

    pub(crate) fn proclaim(
        &mut self,
        name: &[u8],
        lease: u64,
        value: &[u8],
        effects: &mut ControlEffects,
    ) -> Result<ControlReply, ControlRefusal> {
        self.check_value(value)?;
        let key = lock_key(name);
        let token = self.get(&key).filter(|item| item.lease == lease).map(|item| item.created);
        let token = token.ok_or(ControlRefusal::NotHeld { lease })?;
        self.check_room(CommandSource::Client, self.growth(&key, value))?;
        let mut revision_builder = RevisionBuilder::begin(self, effects);
        revision_builder.put(&key, value, lease);
        revision_builder.end();
        Ok(ControlReply::Held { token })
    }

    fn holds(&self, key: &[u8], lease: u64) -> bool {
        self.get(key).is_some_and(|item| item.lease == lease)
    }
}

impl RevisionBuilder<'_> {
    /// Gives a lock that became free to the lease that has waited longest. The change is part of the present revision.
    pub(crate) fn pass_lock(&mut self, name: &[u8]) {
        let Some((&ticket, _)) =
            self.state.queues.get(name).and_then(|queue| queue.get_min().map(|(t, w)| (t, w)))
        else {
            return;
        };
        let Some(Waiter { lease, value }) = self.state.leave_queue(name, ticket) else { return };
        if let Some(found) = self.state.leases.get_mut(&lease) {
            found.waits.remove(name);
        }
        self.put_as(None, &lock_key(name), &value, lease);
        let granted = LockGrant { name: name.into(), lease, token: self.revision };
        self.effects.granted.push(granted);
    }
}
