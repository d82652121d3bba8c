//! Writes snapshots of a key-value state and restores the state from them. A snapshot is a sequence of blocks:
//!
//! ```text
//!  block    = version u8, kind u8, content
//!  HEAD   1 = limits, epoch, revision, now_ms, lease_last, ticket_last, and how many leases, keys and waiters follow
//!  LEASES 2 = lease, ttl_ms, end_ms; …          in the order of their numbers
//!  KEYS   3 = key, item; …                      in the order of the keys
//!  QUEUES 4 = name, ticket, lease, value; …     in the order of names, then tickets
//!  OWNERS 5 = lease, user; …                    of the leases that users have, in the order of their numbers
//!  TENANTS 6 = key, tenant; …                   of the keys that tenants have, in the order of the keys
//!  LEASE_TENANTS 7 = lease, tenant; …           of the leases that tenants have, in the order of their numbers
//! ```
//!
//! Equal states produce equal blocks. A block has about 64 KiB; a longer block has a single entry.

use crate::error::ControlDecodeError;
use crate::item::{Key, KeyItem, Value};
use crate::layout::{Fields, Layout, layout};
use crate::lease::{Lease, count_lease};
use crate::limits::ControlStateLimits;
use crate::lock::Waiter;
use crate::placement::TopicIndex;
use crate::state::ControlState;

const BLOCK_BYTES: usize = 64 << 10;
const HEAD: u8 = 1;
const LEASES: u8 = 2;
const KEYS: u8 = 3;
const QUEUES: u8 = 4;
const OWNERS: u8 = 5;
const TENANTS: u8 = 6;
const LEASE_TENANTS: u8 = 7;

layout! {
    /// The first block of a key-value snapshot: limits, counters, and how many entries follow.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct SnapshotHead {
        pub limits: ControlStateLimits,
        pub epoch: u32,
        pub revision: u64,
        pub now_ms: u64,
        pub lease_last: u64,
        pub ticket_last: u64,
        pub leases: u64,
        pub keys: u64,
        pub waiters: u64,
    }
}

layout! {
    /// One lease in a snapshot of the key-value state.
    pub struct LeaseEntry {
        pub lease: u64,
        pub ttl_ms: u64,
        pub end_ms: u64,
    }
}

layout! {
    /// One key with its value in a snapshot of the key-value state.
    pub struct KeyEntry {
        pub key: Key,
        pub item: KeyItem,
    }
}

layout! {
    /// One lease that waits for a lock, in a snapshot of the key-value state.
    pub struct QueueEntry {
        pub name: Key,
        pub ticket: u64,
        pub lease: u64,
        pub value: Value,
    }
}

layout! {
    /// The name of the user who owns a lease, in a snapshot of the key-value state.
    pub struct OwnerEntry {
        pub lease: u64,
        pub owner: Value,
    }
}

layout! {
    /// The tenant that wrote a key, in a snapshot of the key-value state.
    pub struct TenantEntry {
        pub key: Key,
        pub tenant: Value,
    }
}

layout! {
    /// The tenant to which a lease belongs, in a snapshot of the key-value state.
    pub struct LeaseTenantEntry {
        pub lease: u64,
        pub tenant: Value,
    }
}

/// The key-value state as it was at one moment. A snapshot can be written from this copy while the state changes.
#[derive(Debug, Clone)]
pub struct FrozenControlState(ControlState);

impl ControlState {
    /// Freezes the present state. This takes constant time, however large the state is.
    pub fn freeze(&self) -> FrozenControlState {
        FrozenControlState(self.clone())
    }
}

impl FrozenControlState {
    /// The frozen state.
    pub fn state(&self) -> &ControlState {
        &self.0
    }

    /// The last revision of the frozen state.
    pub fn revision(&self) -> u64 {
        self.0.revision
    }

    /// Encodes the state as blocks and passes them to `write_block` one by one. Stops at the first error of
    /// `write_block`, and returns it.
    pub fn write<E>(&self, mut write_block: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let state = &self.0;
        write_all(HEAD, [self.head()].iter(), SnapshotHead::write, &mut write_block)?;
        let lease = |(&lease, found): (&u64, &Lease), out: &mut Vec<u8>| {
            LeaseEntry { lease, ttl_ms: found.ttl_ms, end_ms: found.end_ms }.write(out);
        };
        write_all(LEASES, state.leases.iter(), lease, &mut write_block)?;
        // These closures write the same bytes as `KeyEntry` and `QueueEntry`, but do not copy keys and values first.
        let key = |(key, item): (&Key, &KeyItem), out: &mut Vec<u8>| {
            key.write(out);
            item.write(out);
        };
        write_all(KEYS, state.keys.iter(), key, &mut write_block)?;
        let queues = state.queues.iter().flat_map(|(name, queue)| queue.iter().map(move |at| (name, at)));
        let waiter = |(name, (ticket, waiting)): (&Key, (&u64, &Waiter)), out: &mut Vec<u8>| {
            name.write(out);
            ticket.write(out);
            waiting.lease.write(out);
            waiting.value.write(out);
        };
        write_all(QUEUES, queues, waiter, &mut write_block)?;
        let owned = state.leases.iter().filter(|(_, lease)| !lease.owner.is_empty());
        let owner = |(&lease, found): (&u64, &Lease), out: &mut Vec<u8>| {
            OwnerEntry { lease, owner: found.owner.clone() }.write(out);
        };
        write_all(OWNERS, owned, owner, &mut write_block)?;
        let of_tenants = state.keys.iter().filter_map(|(key, item)| Some((key, item.tenant.as_ref()?)));
        let tenant = |(key, tenant): (&Key, &Value), out: &mut Vec<u8>| {
            key.write(out);
            tenant.write(out);
        };
        write_all(TENANTS, of_tenants, tenant, &mut write_block)?;
        let of_tenants =
            state.leases.iter().filter_map(|(lease, found)| Some((lease, found.tenant.as_ref()?)));
        let tenant = |(&lease, tenant): (&u64, &Value), out: &mut Vec<u8>| {
            LeaseTenantEntry { lease, tenant: tenant.clone() }.write(out);
        };
        write_all(LEASE_TENANTS, of_tenants, tenant, &mut write_block)
    }

    fn head(&self) -> SnapshotHead {
        let state = &self.0;
        SnapshotHead {
            limits: state.limits,
            epoch: state.epoch,
            revision: state.revision,
            now_ms: state.now_ms,
            lease_last: state.lease_last,
            ticket_last: state.ticket_last,
            leases: state.leases.len() as u64,
            keys: state.keys.len() as u64,
            waiters: state.queues.values().map(|queue| queue.len() as u64).sum(),
        }
    }
}

fn write_all<I: Iterator, E>(
    kind: u8,
    entries: I,
    write: impl Fn(I::Item, &mut Vec<u8>),
    write_block: &mut impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let start = [crate::VERSION, kind];
    let mut block = start.to_vec();
    for entry in entries {
        write(entry, &mut block);
        if block.len() >= BLOCK_BYTES {
            write_block(&block)?;
            block.truncate(start.len());
        }
    }
    if block.len() > start.len() { write_block(&block) } else { Ok(()) }
}

/// Restores the key-value state from the blocks of a snapshot.
#[derive(Debug, Default)]
pub struct StateRestorer {
    head: Option<SnapshotHead>,
    state: ControlState,
    waiters: u64,
}

impl StateRestorer {
    /// Decodes the next block of the snapshot and adds its entries to the state.
    pub fn read_block(&mut self, block: &[u8]) -> Result<(), ControlDecodeError> {
        let mut fields = Fields::new(block);
        let (version, kind) = (u8::read(&mut fields)?, u8::read(&mut fields)?);
        if version != crate::VERSION {
            return Err(ControlDecodeError::Version(version));
        }
        if (kind == HEAD) != self.head.is_none() {
            return Err(ControlDecodeError::Order("blocks"));
        }
        while !fields.rest.is_empty() {
            match kind {
                HEAD if self.head.is_some() => return Err(ControlDecodeError::Trailing(fields.rest.len())),
                HEAD => self.take_head(SnapshotHead::read(&mut fields)?),
                LEASES => self.take_lease(LeaseEntry::read(&mut fields)?)?,
                KEYS => self.take_key(KeyEntry::read(&mut fields)?)?,
                QUEUES => self.take_waiter(QueueEntry::read(&mut fields)?)?,
                OWNERS => self.take_owner(OwnerEntry::read(&mut fields)?)?,
                TENANTS => {
                    let TenantEntry { key, tenant } = TenantEntry::read(&mut fields)?;
                    let is_set = self.state.set_key_tenant(&key, &tenant);
                    is_set.then_some(()).ok_or(ControlDecodeError::Order("tenants"))?;
                }
                LEASE_TENANTS => {
                    let LeaseTenantEntry { lease, tenant } = LeaseTenantEntry::read(&mut fields)?;
                    let is_set = self.state.set_lease_tenant(lease, tenant);
                    is_set.then_some(()).ok_or(ControlDecodeError::Order("tenants of leases"))?;
                }
                number => return Err(ControlDecodeError::Unknown { what: "kind of block", number }),
            }
        }
        Ok(())
    }

    /// Returns the restored state. Fails if blocks are missing.
    pub fn end(mut self) -> Result<ControlState, ControlDecodeError> {
        let head = self.head.ok_or(ControlDecodeError::Short)?;
        let counts = (self.state.leases.len() as u64, self.state.keys.len() as u64, self.waiters);
        if counts == (head.leases, head.keys, head.waiters) {
            self.state.topics = TopicIndex::of_state(&self.state);
            Ok(self.state)
        } else {
            Err(ControlDecodeError::Short)
        }
    }

    fn take_head(&mut self, head: SnapshotHead) {
        self.state = ControlState {
            limits: head.limits,
            epoch: head.epoch,
            revision: head.revision,
            now_ms: head.now_ms,
            lease_last: head.lease_last,
            ticket_last: head.ticket_last,
            ..ControlState::default()
        };
        self.head = Some(head);
    }

    fn take_lease(&mut self, entry: LeaseEntry) -> Result<(), ControlDecodeError> {
        let LeaseEntry { lease, ttl_ms, end_ms } = entry;
        if self.state.leases.get_max().is_some_and(|(last, _)| *last >= lease) {
            return Err(ControlDecodeError::Order("leases"));
        }
        self.state.leases.insert(lease, Lease::new(ttl_ms, end_ms, Value::default()));
        self.state.ends.insert((end_ms, lease));
        Ok(())
    }

    fn take_owner(&mut self, OwnerEntry { lease, owner }: OwnerEntry) -> Result<(), ControlDecodeError> {
        let found = self.state.leases.get_mut(&lease).filter(|found| found.owner.is_empty());
        found.ok_or(ControlDecodeError::Order("owners"))?.owner = owner.clone();
        count_lease(&mut self.state.lease_counts, &owner);
        Ok(())
    }

    fn take_key(&mut self, KeyEntry { key, item }: KeyEntry) -> Result<(), ControlDecodeError> {
        if self.state.keys.get_max().is_some_and(|(last, _)| *last >= key) {
            return Err(ControlDecodeError::Order("keys"));
        }
        if let Some(lease) = self.state.leases.get_mut(&item.lease) {
            lease.keys.insert(key.clone());
        }
        self.state.add_key_bytes(&key, &item);
        self.state.keys.insert(key, item);
        Ok(())
    }

    fn take_waiter(&mut self, entry: QueueEntry) -> Result<(), ControlDecodeError> {
        let QueueEntry { name, ticket, lease, value } = entry;
        let last = self.state.queues.get_max();
        let in_order = last.is_none_or(|(last, queue)| {
            *last < name || *last == name && queue.get_max().is_none_or(|(last, _)| *last < ticket)
        });
        if !in_order || !self.state.leases.contains_key(&lease) {
            return Err(ControlDecodeError::Order("waiters"));
        }
        self.waiters += 1;
        self.state.enqueue(name, ticket, Waiter { lease, value });
        Ok(())
    }
}
