//! Grants, renews and ends leases. When a lease ends, its keys are deleted, and its locks pass to other leases.
//!
//! A lease ends no earlier than `ttl_ms` after its last renewal, by the cluster's time.
//!
//! Limits: all leases together are limited by [`ControlStateLimits::leases_max`](crate::ControlStateLimits). One of
//! every [`NODES_SHARE`] leases is reserved for nodes, because a node needs a lease to be a member. A user may hold at
//! most a third as many leases as are free ([`FREE_SHARE`]), so that some leases always remain for other users. If only
//! one user has leases, this user can therefore hold a quarter of the leases for users. The users of one tenant
//! together may hold up to [three times](crate::room::SHARE) as many leases as are free.

use imbl::{OrdMap, OrdSet};

use crate::command::ControlCommand;
use crate::effects::ControlEffects;
use crate::error::ControlRefusal;
use crate::item::{Key, Value};
use crate::placement::NODES;
use crate::reply::ControlReply;
use crate::revision_builder::RevisionBuilder;
use crate::room::SHARE;
use crate::state::ControlState;

/// A user may hold at most the number of free leases divided by this constant.
const FREE_SHARE: u64 = 3;
/// One in this many leases is reserved for nodes.
const NODES_SHARE: u64 = 100;

/// A granted lease: its end, its keys, and the locks for which it waits.
#[derive(Debug, Clone)]
pub(crate) struct Lease {
    pub(crate) ttl_ms: u64,
    pub(crate) end_ms: u64,
    pub(crate) keys: OrdSet<Key>,
    /// The locks for which the lease waits, by name, each with the lease's ticket in that lock's queue.
    pub(crate) waits: OrdMap<Key, u64>,
    /// Name of the user who owns the lease; empty if a node owns it, or if the cluster has no users.
    pub(crate) owner: Value,
    /// The tenant of the user who owns the lease.
    pub(crate) tenant: Option<Value>,
}

/// The status of a lease: its remaining time, its number of keys, and the number of locks that it waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseInfo {
    /// How long the lease lasts after a renewal, ms.
    pub ttl_ms: u64,
    /// How long the lease still lasts unless it is renewed, ms.
    pub left_ms: u64,
    /// Number of keys that are deleted when the lease ends.
    pub keys: usize,
    /// Number of locks for which the lease waits.
    pub waits: usize,
}

impl Lease {
    pub(crate) fn new(ttl_ms: u64, end_ms: u64, owner: Value) -> Lease {
        Lease { ttl_ms, end_ms, keys: OrdSet::new(), waits: OrdMap::new(), owner, tenant: None }
    }

    /// Whether the lease belongs to a node, which is a member while the lease lasts.
    fn belongs_to_node(&self) -> bool {
        self.keys.range(Key::from_slice(NODES)..).next().is_some_and(|key| key.starts_with(NODES))
    }

    pub(crate) fn info(&self, now_ms: u64) -> LeaseInfo {
        let left_ms = self.end_ms.saturating_sub(now_ms);
        LeaseInfo { ttl_ms: self.ttl_ms, left_ms, keys: self.keys.len(), waits: self.waits.len() }
    }
}

impl ControlState {
    pub(crate) fn check_lease(&self, lease: u64) -> Result<(), ControlRefusal> {
        if self.leases.contains_key(&lease) { Ok(()) } else { Err(ControlRefusal::NoLease { lease }) }
    }

    /// A user's leases, sorted by number.
    pub fn leases_of_user(&self, user: &[u8]) -> Vec<u64> {
        if !self.lease_counts.contains_key(user) {
            return Vec::new();
        }
        self.leases.iter().filter(|(_, found)| *found.owner == *user).map(|(lease, _)| *lease).collect()
    }

    /// The locks for which the leases of a user wait: each item is a waiting lease and a lock's name.
    pub fn waits_of_user(&self, user: &[u8]) -> Vec<(u64, Key)> {
        let leases = self.leases_of_user(user).into_iter();
        let waits = leases.filter_map(|lease| Some((lease, self.leases.get(&lease)?.waits.keys())));
        waits.flat_map(|(lease, names)| names.map(move |name| (lease, name.clone()))).collect()
    }

    /// The number of leases of a tenant's users.
    pub fn leases_of_tenant(&self, tenant: &[u8]) -> u64 {
        self.tenant_lease_counts.get(tenant).copied().unwrap_or(0)
    }

    /// Name of the user who owns a lease; empty if no user owns it, `None` if the lease does not exist.
    pub fn lease_owner(&self, lease: u64) -> Option<&[u8]> {
        self.leases.get(&lease).map(|found| &*found.owner)
    }

    /// Applies a user's command. The command may not use leases of nodes, and may use leases of other users only if
    /// `all_leases` is set. Leases that the command may not use are treated as if they did not exist.
    pub(crate) fn apply_for_user(
        &mut self,
        user: &[u8],
        all_leases: bool,
        command: &ControlCommand<'_>,
        effects: &mut ControlEffects,
    ) -> Result<ControlReply, ControlRefusal> {
        let may_use = |state: &ControlState, lease: u64| {
            let found = state.leases.get(&lease);
            found.is_none_or(|found| !found.belongs_to_node() && (all_leases || *found.owner == *user))
        };
        match command {
            ControlCommand::ByUser { .. } | ControlCommand::OfTenant { .. } => Err(ControlRefusal::Reserved),
            ControlCommand::Grant { ttl_ms } => self.grant(*ttl_ms, Some(user)),
            ControlCommand::KeepAlive { leases } => {
                let (usable, others) = leases.iter().partition::<Vec<u64>, _>(|lease| may_use(self, **lease));
                let reply = self.keep_alive(&usable)?;
                let ControlReply::KeptAlive { mut ended } = reply else { return Ok(reply) };
                ended.extend(others);
                Ok(ControlReply::KeptAlive { ended })
            }
            _ => match command.leases().into_iter().find(|lease| !may_use(self, *lease)) {
                // Returns the same error as for a lease that does not exist, so that users cannot detect leases of
                // other users.
                Some(lease) => Err(match command {
                    ControlCommand::Release { .. } | ControlCommand::Proclaim { .. } => {
                        ControlRefusal::NotHeld { lease }
                    }
                    _ => ControlRefusal::NoLease { lease },
                }),
                None => self.apply(command, effects),
            },
        }
    }

    /// Grants a lease. `user` is `None` if a node requests the lease, and empty if the cluster has no users.
    pub(crate) fn grant(&mut self, ttl_ms: u64, user: Option<&[u8]>) -> Result<ControlReply, ControlRefusal> {
        let ttl_ms_max = self.limits.lease_ttl_ms_max;
        if !(1..=ttl_ms_max).contains(&ttl_ms) {
            return Err(ControlRefusal::LeaseTtl { ttl_ms_max });
        }
        self.check_lease_limits(user)?;
        let owner = user.unwrap_or_default();
        self.lease_last += 1;
        let (lease, end_ms) = (self.lease_last, self.now_ms.saturating_add(ttl_ms));
        let tenant = self.writer.clone();
        count_lease(&mut self.lease_counts, owner);
        count_lease(&mut self.tenant_lease_counts, tenant.as_deref().unwrap_or_default());
        self.leases.insert(lease, Lease { tenant, ..Lease::new(ttl_ms, end_ms, owner.into()) });
        self.ends.insert((end_ms, lease));
        Ok(ControlReply::Granted { lease, ttl_ms })
    }

    fn check_lease_limits(&self, user: Option<&[u8]>) -> Result<(), ControlRefusal> {
        let leases_max = self.limits.leases_max;
        let count_max = if user.is_none() { leases_max } else { leases_max - leases_max / NODES_SHARE };
        let free = count_max.saturating_sub(self.leases.len() as u64);
        if free == 0 {
            return Err(ControlRefusal::TooManyLeases { count_max });
        }
        match user.and_then(|user| self.lease_counts.get(user)) {
            Some(&count) if count >= free.div_ceil(FREE_SHARE) => {
                return Err(ControlRefusal::TooManyLeasesOfUser { count_max: count });
            }
            _ => {}
        }
        match self.writer.as_ref().and_then(|tenant| self.tenant_lease_counts.get(tenant)) {
            Some(&count) if count >= free.saturating_mul(SHARE) => {
                Err(ControlRefusal::TooManyLeasesOfTenant { count_max: count })
            }
            _ => Ok(()),
        }
    }

    /// Sets the tenant of a lease, as read from a snapshot. Returns `false` and changes nothing if the lease does not
    /// exist or already has a tenant, or if `tenant` is empty.
    pub(crate) fn set_lease_tenant(&mut self, lease: u64, tenant: Value) -> bool {
        let found = self.leases.get_mut(&lease).filter(|found| found.tenant.is_none());
        let Some(found) = found.filter(|_| !tenant.is_empty()) else { return false };
        count_lease(&mut self.tenant_lease_counts, &tenant);
        found.tenant = Some(tenant);
        true
    }

    pub(crate) fn keep_alive(&mut self, leases: &[u64]) -> Result<ControlReply, ControlRefusal> {
        self.check_operations(leases.len())?;
        let ControlState { leases: all, ends, now_ms, .. } = self;
        let mut ended = Vec::new();
        for &lease in leases {
            let Some(found) = all.get_mut(&lease) else {
                ended.push(lease);
                continue;
            };
            ends.remove(&(found.end_ms, lease));
            found.end_ms = now_ms.saturating_add(found.ttl_ms);
            ends.insert((found.end_ms, lease));
        }
        Ok(ControlReply::KeptAlive { ended })
    }

    pub(crate) fn revoke(
        &mut self,
        lease: u64,
        effects: &mut ControlEffects,
    ) -> Result<ControlReply, ControlRefusal> {
        self.check_lease(lease)?;
        let mut revision_builder = RevisionBuilder::begin(self, effects);
        revision_builder.end_lease(lease);
        Ok(revision_builder.changed())
    }
}

impl RevisionBuilder<'_> {
    /// Ends a lease, deletes its keys and passes its locks on. The lease leaves all queues first, so that it cannot
    /// receive one of these locks again.
    pub(crate) fn end_lease(&mut self, lease: u64) {
        let Some(ended) = self.state.leases.remove(&lease) else { return };
        self.state.ends.remove(&(ended.end_ms, lease));
        uncount_lease(&mut self.state.lease_counts, &ended.owner);
        uncount_lease(&mut self.state.tenant_lease_counts, ended.tenant.as_deref().unwrap_or_default());
        self.effects.ended.push(lease);
        for (name, ticket) in &ended.waits {
            self.state.leave_queue(name, *ticket);
        }
        for key in &ended.keys {
            self.delete(key);
        }
    }
}

/// Adds 1 to the number of leases of the user or tenant with this name. Does nothing if the name is empty.
pub(crate) fn count_lease(counts: &mut OrdMap<Value, u64>, name: &[u8]) {
    if !name.is_empty() {
        *counts.entry(name.into()).or_insert(0) += 1;
    }
}

fn uncount_lease(counts: &mut OrdMap<Value, u64>, name: &[u8]) {
    let Some(count) = counts.get_mut(name) else { return };
    *count -= 1;
    if *count == 0 {
        counts.remove(name);
    }
}
