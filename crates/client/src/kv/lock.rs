//! Locks and elections: one holder at most, in the order in which they came.

use dunlin_control::{Command, LOCKS, Reply};

use super::{Entry, Kv, KvError, Lease, LeasePulse};
use crate::interrupt::is_broken_off;

/// A lock that is held. Its holder shows its token to whatever it guards, which refuses one that is lower than the highest it was
/// shown. Dropped, it is released.
#[derive(Debug)]
pub struct Lock {
    kv: Kv,
    name: Vec<u8>,
    lease: u64,
    token: u64,
    held: bool,
}

impl Kv {
    /// Takes a lock under a lease, or waits for it as long as the lease lives. `value` is what others see of the holder.
    /// The lease has to be kept alive meanwhile.
    pub fn lock(&self, name: impl AsRef<[u8]>, lease: &Lease, value: &[u8]) -> Result<Lock, KvError> {
        self.lock_while(name, &lease.pulse(), value)
    }

    /// The same for whoever does not have the lease itself.
    pub fn lock_while(
        &self,
        name: impl AsRef<[u8]>,
        lease: &LeasePulse,
        value: &[u8],
    ) -> Result<Lock, KvError> {
        let (name, id) = (name.as_ref(), lease.id());
        let mut bytes = Vec::new();
        Command::Acquire { name, lease: id, value, wait: true }.encode(&mut bytes);
        let lives = || lease.check().map_err(|_lost| KvError::NoLease { lease: id });
        let reply = self.however_long(&bytes, lives).inspect_err(|_| {
            if is_broken_off() {
                // Nobody is left who would know that the lock is theirs.
                self.say(&Command::Release { name, lease: id });
            }
        })?;
        self.held(name, id, &reply)
    }

    /// Takes a lock under a lease; [`KvError::Held`] where another holds it.
    pub fn try_lock(&self, name: impl AsRef<[u8]>, lease: &Lease, value: &[u8]) -> Result<Lock, KvError> {
        self.try_lock_while(name, &lease.pulse(), value)
    }

    /// The same for whoever does not have the lease itself.
    pub fn try_lock_while(
        &self,
        name: impl AsRef<[u8]>,
        lease: &LeasePulse,
        value: &[u8],
    ) -> Result<Lock, KvError> {
        let (name, lease) = (name.as_ref(), lease.id());
        let reply = self.command(&Command::Acquire { name, lease, value, wait: false })?;
        self.held(name, lease, &reply)
    }

    /// Who holds a lock, or is elected: their value, their lease, and as `created` their token.
    pub fn holder(&self, name: impl AsRef<[u8]>) -> Result<Option<Entry>, KvError> {
        self.get([LOCKS, name.as_ref()].concat())
    }

    fn held(&self, name: &[u8], lease: u64, reply: &Reply) -> Result<Lock, KvError> {
        match *reply {
            Reply::Held { token } => {
                Ok(Lock { kv: self.clone(), name: name.to_vec(), lease, token, held: true })
            }
            _ => Err(KvError::odd()),
        }
    }
}

impl Lock {
    /// Its token: it grows from holder to holder.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// Changes what others see of the holder; [`KvError::NotHeld`] where it is not held any more.
    pub fn proclaim(&self, value: &[u8]) -> Result<(), KvError> {
        self.kv.command(&Command::Proclaim { name: &self.name, lease: self.lease, value }).map(drop)
    }

    /// Gives it to who waits for it longest.
    pub fn release(self) -> Result<(), KvError> {
        let mut lock = self;
        lock.held = false;
        lock.kv.command(&Command::Release { name: &lock.name, lease: lock.lease }).map(drop)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if self.held {
            self.kv.say(&Command::Release { name: &self.name, lease: self.lease });
        }
    }
}
