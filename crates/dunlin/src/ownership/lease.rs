//! Begins and renews this node's lease. While the lease lasts, the node is a member of the cluster and may own volatile
//! topics.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use dunlin_control::{ControlCommand, ControlReply, Placement, TopicKind};

use super::route::Route;
use super::{ClusterCommandError, Ownership, lock};
use crate::clock::steady_ns;

/// How many times the node renews its lease within the lease's time to live.
const RENEWALS_PER_TTL: u32 = 4;
/// The clocks of two nodes may drift apart by the fraction 1 ÷ `DRIFT_PART` of a duration. An owner therefore stops
/// appending when this fraction of its lease's time to live is still left.
const DRIFT_PART: u32 = 20;
/// The maximum number of topics that get new epochs by one proposal.
const BATCH_MAX: usize = 1_024;
/// The interval at which a thread checks whether this node knows of its new lease.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);

impl Ownership {
    /// Makes this node a member of the cluster until it leaves or stops. `value` describes this node to the other
    /// nodes. Call this after the node [has applied](Ownership::apply_state) everything on which the cluster has agreed
    /// so far.
    pub fn begin_membership(self: &Arc<Ownership>, value: Vec<u8>) -> std::io::Result<()> {
        let (this, ttl) = (Arc::downgrade(self), self.limits.lease_ttl);
        let run = move || keep_alive(&this, ttl, &value);
        thread::Builder::new().name("dunlin-lease".to_owned()).spawn(run).map(drop)
    }

    /// Begins a lease, and makes this node a member under it. Returns the lease's number, or `None` if the node did not
    /// become a member.
    fn begin_lease(&self, ttl: Duration, value: &[u8]) -> Option<u64> {
        let requested_ns = steady_ns();
        let ttl_ms = ttl.as_millis() as u64;
        let Ok(ControlReply::Granted { lease, .. }) = self.peers.propose(&ControlCommand::Grant { ttl_ms })
        else {
            return None;
        };
        let enlist = ControlCommand::Enlist { node: self.id, lease, value };
        self.peers.propose(&enlist).ok()?;
        // Wait until this node knows of the new lease. This node then also knows for which topics the cluster has
        // chosen other owners since the previous lease ended.
        let until_ns = requested_ns.saturating_add(ttl.as_nanos() as u64);
        while self.enlisted.load(Ordering::Acquire) != lease {
            if steady_ns() >= until_ns {
                return None;
            }
            thread::sleep(CHECK_INTERVAL);
        }
        if self.is_leaving.load(Ordering::Acquire) {
            let _ = self.peers.propose(&ControlCommand::Revoke { lease });
            return None;
        }
        self.extend_lease(requested_ns, ttl - ttl / DRIFT_PART);
        Some(lease)
    }

    /// Begins a new epoch of every volatile topic that belongs to this node, because the restart has lost the topics'
    /// records. Returns `false` if some of these topics have no new epoch.
    fn begin_new_epochs(self: &Arc<Ownership>) -> bool {
        {
            // A topic that is given to this node from now on has no lost records, and needs no new epoch.
            let _registry_update = lock(&self.registry_update);
            self.has_begun_epochs.store(true, Ordering::Release);
        }
        let own = |route: &Arc<Route>| route.kind == TopicKind::Volatile && route.owner().0 == self.id;
        let own: Vec<Arc<Route>> = self.routes().into_iter().filter(own).collect();
        own.chunks(BATCH_MAX).all(|routes| self.begin_new_epochs_of(routes))
    }

    fn begin_new_epochs_of(self: &Arc<Ownership>, routes: &[Arc<Route>]) -> bool {
        let mut commands = Vec::with_capacity(routes.len());
        for route in routes {
            let (topic, epoch) = (route.name.as_bytes(), self.epoch_after(route));
            commands.push(ControlCommand::Move { topic, node: self.id, epoch });
        }
        let replies = self.peers.propose_all(&commands);
        routes.iter().zip(replies).fold(true, |all, (route, reply)| match reply {
            Ok(ControlReply::Placed { owner, epoch, .. }) => {
                let (kind, pattern) = (route.kind, route.pattern.as_bytes());
                route.apply_placement(self, &Placement { owner, epoch, kind, pattern, config: b"", from: 0 });
                all
            }
            // Another node owns the topic now. The watch informs this node of the new owner.
            Err(ClusterCommandError::Refused(_)) => all,
            Ok(_) | Err(ClusterCommandError::Away(_)) => false,
        })
    }

    fn keep_lease(&self, lease: u64, ttl: Duration) -> bool {
        let requested_ns = steady_ns();
        match self.peers.propose(&ControlCommand::KeepAlive { leases: vec![lease] }) {
            Ok(ControlReply::KeptAlive { ended }) if ended.is_empty() => {
                self.extend_lease(requested_ns, ttl - ttl / DRIFT_PART);
                true
            }
            Ok(_) => false,
            // The cluster has no leader at present. The next renewal may still be in time.
            Err(_) => true,
        }
    }
}

fn keep_alive(ownership: &Weak<Ownership>, ttl: Duration, value: &[u8]) {
    let (mut lease, mut has_begun_epochs) = (None, false);
    while let Some(ownership) =
        ownership.upgrade().filter(|ownership| !ownership.is_leaving.load(Ordering::Acquire))
    {
        lease = match lease {
            Some(lease) if ownership.keep_lease(lease, ttl) => Some(lease),
            _ => {
                has_begun_epochs = has_begun_epochs || ownership.begin_new_epochs();
                if has_begun_epochs { ownership.begin_lease(ttl, value) } else { None }
            }
        };
        drop(ownership);
        thread::sleep(ttl / RENEWALS_PER_TTL);
    }
}
