//! The node's lease: it takes part as long as it keeps this alive, and owns volatile topics no longer than that.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use dunlin_control::{Command, Reply};

use super::Ownership;
use crate::clock::now_ns;

/// Kept alive so often in its time to live.
const PER_LIFE: u32 = 4;
/// A clock may run faster than another by so much of the time: an owner stops that much earlier.
const DRIFT_PART: u32 = 20;

impl Ownership {
    /// Has the node take part from now on, until it is dropped; `value` is what others see of it.
    pub fn take_part(self: &Arc<Ownership>, value: Vec<u8>) -> std::io::Result<()> {
        let (this, ttl) = (Arc::downgrade(self), self.limits.lease_ttl);
        let run = move || keep_alive(&this, ttl, &value);
        thread::Builder::new().name("dunlin-lease".to_owned()).spawn(run).map(drop)
    }

    /// Begins a lease, and takes part under it.
    fn begin_lease(&self, ttl: Duration, value: &[u8]) -> Option<u64> {
        let asked_ns = now_ns();
        let ttl_ms = ttl.as_millis() as u64;
        let Ok(Reply::Granted { lease, .. }) = self.peers.ask(&Command::Grant { ttl_ms }) else {
            return None;
        };
        let enlist = Command::Enlist { node: self.id, lease, value };
        self.peers.ask(&enlist).ok()?;
        self.lease(asked_ns, ttl - ttl / DRIFT_PART);
        Some(lease)
    }

    fn keep_lease(&self, lease: u64, ttl: Duration) -> bool {
        let asked_ns = now_ns();
        match self.peers.ask(&Command::KeepAlive { leases: vec![lease] }) {
            Ok(Reply::KeptAlive { ended }) if ended.is_empty() => {
                self.lease(asked_ns, ttl - ttl / DRIFT_PART);
                true
            }
            Ok(_) => false,
            // Nobody leads at present. It may be in time yet.
            Err(_) => true,
        }
    }
}

fn keep_alive(ownership: &Weak<Ownership>, ttl: Duration, value: &[u8]) {
    let mut lease = None;
    while let Some(ownership) = ownership.upgrade() {
        lease = match lease {
            Some(lease) if ownership.keep_lease(lease, ttl) => Some(lease),
            _ => ownership.begin_lease(ttl, value),
        };
        drop(ownership);
        thread::sleep(ttl / PER_LIFE);
    }
}
