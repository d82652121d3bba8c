//! Locks and elections. One lease at a time holds a lock. Leases that wait for the lock receive it in the order of
//! their requests.

use std::time::Instant;

use dunlin_control::{ControlCommand, ControlReply, LOCKS};

use super::{Kv, KvEntry, KvError, Lease, LeaseHandle};
use crate::interrupt::is_interrupted;

/// A lock that this client holds. Dropping the value releases the lock. Send the lock's [`token`](HeldLock::token) with
/// every request to a resource that the lock protects. The resource has to refuse a request whose token is lower than
/// the highest one that the resource has seen.
#[derive(Debug)]
pub struct HeldLock {
    kv: Kv,
    name: Vec<u8>,
    lease: u64,
    token: u64,
    held: bool,
}

impl Kv {
    /// Takes the lock `name` under a lease. Waits for the lock as long as the lease exists, so another thread has to
    /// renew the lease in the meantime. Other clients can read `value` while this client holds the lock.
    pub fn lock(&self, name: impl AsRef<[u8]>, lease: &Lease, value: &[u8]) -> Result<HeldLock, KvError> {
        self.lock_while(name, &lease.handle(), value)
    }

    /// Like [`lock`](Self::lock), for a lease that another part of the program owns.
    pub fn lock_while(
        &self,
        name: impl AsRef<[u8]>,
        lease: &LeaseHandle,
        value: &[u8],
    ) -> Result<HeldLock, KvError> {
        let (name, id) = (name.as_ref(), lease.id());
        let mut bytes = Vec::new();
        ControlCommand::Acquire { name, lease: id, value, wait: true }.encode(&mut bytes);
        let next_deadline = || lease.check().map_err(|_lost| KvError::NoLease { lease: id });
        let reply = self.retry_while(&bytes, next_deadline).inspect_err(|_| {
            if is_interrupted() {
                // The caller does not wait any more, so its lease must not receive the lock later.
                self.send_unconfirmed(&ControlCommand::Release { name, lease: id });
            }
        })?;
        self.to_held_lock(name, id, &reply)
    }

    /// Takes the lock `name` under a lease, without waiting. Fails with [`KvError::Held`] if another lease holds the
    /// lock.
    pub fn try_lock(&self, name: impl AsRef<[u8]>, lease: &Lease, value: &[u8]) -> Result<HeldLock, KvError> {
        self.try_lock_while(name, &lease.handle(), value)
    }

    /// Like [`try_lock`](Self::try_lock), for a lease that another part of the program owns.
    pub fn try_lock_while(
        &self,
        name: impl AsRef<[u8]>,
        lease: &LeaseHandle,
        value: &[u8],
    ) -> Result<HeldLock, KvError> {
        let (name, lease) = (name.as_ref(), lease.id());
        let reply = self.command(&ControlCommand::Acquire { name, lease, value, wait: false })?;
        self.to_held_lock(name, lease, &reply)
    }

    /// Reads the holder of a lock or the leader of an election; `None` if there is none. The returned entry contains
    /// the holder's value and lease. Its field `created` contains the holder's fencing token.
    pub fn holder(&self, name: impl AsRef<[u8]>) -> Result<Option<KvEntry>, KvError> {
        self.get([LOCKS, name.as_ref()].concat())
    }

    fn to_held_lock(&self, name: &[u8], lease: u64, reply: &ControlReply) -> Result<HeldLock, KvError> {
        match *reply {
            ControlReply::Held { token } => {
                Ok(HeldLock { kv: self.clone(), name: name.to_vec(), lease, token, held: true })
            }
            _ => Err(KvError::unexpected_response()),
        }
    }
}

impl HeldLock {
    /// The fencing token, a number that grows with each holder of the lock. If a node without a data directory
    /// restarts, tokens begin again at a low number.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// Changes the holder's value, which other clients can read. Fails with [`KvError::NotHeld`] if the lock is lost.
    pub fn proclaim(&self, value: &[u8]) -> Result<(), KvError> {
        self.kv.command(&ControlCommand::Proclaim { name: &self.name, lease: self.lease, value }).map(drop)
    }

    /// Releases the lock. The lease that has waited longest for the lock receives it.
    ///
    /// If the response is lost, sends the request again, but only for a limited time. After [`KvError::Unknown`] or
    /// [`KvError::Disconnected`], the lease may hold the lock until the lease ends.
    pub fn release(self) -> Result<(), KvError> {
        let mut lock = self;
        lock.held = false;
        let release = ControlCommand::Release { name: &lock.name, lease: lock.lease };
        match lock.kv.command(&release) {
            Err(KvError::Unknown(why)) if !is_interrupted() => {
                let mut bytes = Vec::new();
                release.encode(&mut bytes);
                let until = Instant::now() + lock.kv.response_timeout();
                // The node whose response was lost may have been the leader. The other nodes then refuse the release
                // until they have elected a new one.
                let next_deadline = || {
                    let is_late = Instant::now() >= until;
                    if is_late { Err(KvError::Unknown(why.clone())) } else { Ok(until) }
                };
                match lock.kv.retry_while(&bytes, next_deadline) {
                    // The earlier request may have released the lock.
                    Ok(_) | Err(KvError::NotHeld { .. } | KvError::NoLease { .. }) => Ok(()),
                    Err(error) => Err(error),
                }
            }
            outcome => outcome.map(drop),
        }
    }
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        if self.held {
            self.kv.send_unconfirmed(&ControlCommand::Release { name: &self.name, lease: self.lease });
        }
    }
}
