//! The node's lease. While it lasts, the node is a member and may own volatile topics.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use dunlin_control::{ControlCommand, ControlReply, Placement, TopicKind};

use super::route::Route;
use super::{ClusterCommandError, Ownership, lock};
use crate::clock::steady_ns;

/// How often a node renews its lease within the lease's time to live.
const PER_LIFE: u32 = 4;
/// Clocks may drift by one part in this number. An owner therefore stops appending before its lease ends, earlier by
/// this fraction of the lease's time to live.
const DRIFT_PART: u32 = 20;
/// The largest number of topics for which one command begins new epochs.
const TOGETHER_MAX: usize = 1_024;
/// The interval at which a waiting thread checks whether this node has learned of a change.
const LOOK: Duration = Duration::from_millis(1);

impl Ownership {
    /// Makes the node a member until the returned value is dropped; `value` describes the node to the other nodes. Call
    /// this once this node [knows](Ownership::settle_all) everything on which the cluster agreed before.
    pub fn take_part(self: &Arc<Ownership>, value: Vec<u8>) -> std::io::Result<()> {
        let (this, ttl) = (Arc::downgrade(self), self.limits.lease_ttl);
        let run = move || keep_alive(&this, ttl, &value);
        thread::Builder::new().name("dunlin-lease".to_owned()).spawn(run).map(drop)
    }

    /// Begins a lease and makes the node a member under it.
    fn begin_lease(&self, ttl: Duration, value: &[u8]) -> Option<u64> {
        let asked_ns = steady_ns();
        let ttl_ms = ttl.as_millis() as u64;
        let Ok(ControlReply::Granted { lease, .. }) = self.peers.ask(&ControlCommand::Grant { ttl_ms })
        else {
            return None;
        };
        let enlist = ControlCommand::Enlist { node: self.id, lease, value };
        self.peers.ask(&enlist).ok()?;
        // The cluster may have chosen other owners since the previous lease ended. When this node knows of the new
        // lease, it also knows of those owners.
        let until_ns = asked_ns.saturating_add(ttl.as_nanos() as u64);
        while self.enlisted.load(Ordering::Acquire) != lease {
            if steady_ns() >= until_ns {
                return None;
            }
            thread::sleep(LOOK);
        }
        if self.is_leaving.load(Ordering::Acquire) {
            let _ = self.peers.ask(&ControlCommand::Revoke { lease });
            return None;
        }
        self.lease(asked_ns, ttl - ttl / DRIFT_PART);
        Some(lease)
    }

    /// Begins a new epoch of every volatile topic that is assigned to this node, because a restart has lost their
    /// records. Returns whether all of these topics have a new epoch.
    fn begin_anew(self: &Arc<Ownership>) -> bool {
        {
            // A topic that is assigned to this node after this block is new, and needs no new epoch.
            let _not_meanwhile = lock(&self.settling);
            self.is_anew.store(true, Ordering::Release);
        }
        let own = |route: &Arc<Route>| route.kind == TopicKind::Volatile && route.owner().0 == self.id;
        let own: Vec<Arc<Route>> = self.routes().into_iter().filter(own).collect();
        own.chunks(TOGETHER_MAX).all(|routes| self.begin_anew_together(routes))
    }

    fn begin_anew_together(self: &Arc<Ownership>, routes: &[Arc<Route>]) -> bool {
        let mut commands = Vec::with_capacity(routes.len());
        for route in routes {
            let (topic, epoch) = (route.name.as_bytes(), self.epoch_after(route));
            commands.push(ControlCommand::Move { topic, node: self.id, epoch });
        }
        let answers = self.peers.ask_all(&commands);
        routes.iter().zip(answers).fold(true, |all, (route, answer)| match answer {
            Ok(ControlReply::Placed { owner, epoch, .. }) => {
                let (kind, pattern) = (route.kind, route.pattern.as_bytes());
                route.settle(self, &Placement { owner, epoch, kind, pattern, config: b"", from: 0 });
                all
            }
            // Another node owns the topic, and this node learns of that owner from the watch.
            Err(ClusterCommandError::Refused(_)) => all,
            Ok(_) | Err(ClusterCommandError::Away(_)) => false,
        })
    }

    fn keep_lease(&self, lease: u64, ttl: Duration) -> bool {
        let asked_ns = steady_ns();
        match self.peers.ask(&ControlCommand::KeepAlive { leases: vec![lease] }) {
            Ok(ControlReply::KeptAlive { ended }) if ended.is_empty() => {
                self.lease(asked_ns, ttl - ttl / DRIFT_PART);
                true
            }
            Ok(_) => false,
            // The cluster has no leader at present; a later renewal may be in time.
            Err(_) => true,
        }
    }
}

fn keep_alive(ownership: &Weak<Ownership>, ttl: Duration, value: &[u8]) {
    let (mut lease, mut is_anew) = (None, false);
    while let Some(ownership) = ownership.upgrade().filter(|of| !of.is_leaving.load(Ordering::Acquire)) {
        lease = match lease {
            Some(lease) if ownership.keep_lease(lease, ttl) => Some(lease),
            _ => {
                is_anew = is_anew || ownership.begin_anew();
                if is_anew { ownership.begin_lease(ttl, value) } else { None }
            }
        };
        drop(ownership);
        thread::sleep(ttl / PER_LIFE);
    }
}
