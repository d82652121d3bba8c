//! Clients that take locks under leases, write as their holders, and sometimes sleep longer than their lease
//! lives.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dunlin_control::{
    Compare, ComparedProperty, Comparison, ControlCommand, ControlReply, KeyOperation as Step, LOCKS,
};
use dunlin_replica::seed::Seed;

use crate::going::ClientProgress;
use crate::history::Clock;
use crate::replica_client::{CommandResult, ReplicaClient};

/// The number of locks.
pub const LOCK_COUNT: u64 = 2;

/// A period in which a client knew that it held a lock.
#[derive(Debug, Clone)]
pub struct LockHold {
    /// The client.
    pub client: u64,
    /// The lock.
    pub lock: u64,
    /// The fencing token.
    pub token: u64,
    /// The lease.
    pub lease: u64,
    /// The time from which the client knew, in ns.
    pub from: u64,
    /// The time until which no other client could hold the lock, in ns: its release, or the earliest end of
    /// its lease.
    pub until: u64,
}

/// A write under a fencing token.
#[derive(Debug, Clone)]
pub struct GuardedWrite {
    /// The lock.
    pub lock: u64,
    /// The token.
    pub token: u64,
    /// The revision; `None` if the write was refused.
    pub revision: Option<u64>,
}

/// The history of a client.
#[derive(Debug, Clone, Default)]
pub struct LockHistory {
    /// The times in which the client held locks.
    pub held: Vec<LockHold>,
    /// The client's writes as a holder.
    pub guarded: Vec<GuardedWrite>,
}

/// A client that takes locks.
#[derive(Debug)]
pub struct LockClient {
    id: u64,
    replica_client: ReplicaClient,
    clock: Clock,
    seed: Seed,
    history: LockHistory,
    going: Arc<ClientProgress>,
}

/// A lease, and the time until which the lease is sure to live.
struct Lease {
    id: u64,
    ttl_ms: u64,
    until: u64,
}

impl LockClient {
    /// The client of this number.
    pub fn new(
        id: u64,
        replica_client: ReplicaClient,
        clock: Clock,
        seed: u64,
        going: Arc<ClientProgress>,
    ) -> LockClient {
        LockClient {
            id,
            replica_client,
            clock,
            seed: Seed::new(seed),
            history: LockHistory::default(),
            going,
        }
    }

    /// Takes and releases locks until stopped.
    pub fn run(mut self, stop: &AtomicBool) -> LockHistory {
        while !stop.load(Ordering::Relaxed) {
            let Some(mut lease) = self.grant() else { continue };
            let lock = self.seed.between(0, LOCK_COUNT - 1);
            if let Some(token) = self.acquire(lock, &mut lease, stop) {
                self.going.changed_hands(lock);
                self.hold(lock, token, lease);
            }
        }
        self.history
    }

    fn grant(&mut self) -> Option<Lease> {
        let ttl_ms = self.seed.between(300, 1_200);
        let until = self.clock.now() + ttl_ms * 1_000_000;
        match self.replica_client.change(&ControlCommand::Grant { ttl_ms }) {
            CommandResult::Done(ControlReply::Granted { lease, ttl_ms }) => {
                Some(Lease { id: lease, ttl_ms, until })
            }
            _ => None,
        }
    }

    fn keep_alive(&mut self, lease: &mut Lease) -> bool {
        let until = self.clock.now() + lease.ttl_ms * 1_000_000;
        match self.replica_client.change(&ControlCommand::KeepAlive { leases: vec![lease.id] }) {
            CommandResult::Done(ControlReply::KeptAlive { ended }) if ended.is_empty() => lease.until = until,
            CommandResult::Done(_) => return false,
            _ => {}
        }
        true
    }

    /// Returns the token once the lock is held.
    fn acquire(&mut self, lock: u64, lease: &mut Lease, stop: &AtomicBool) -> Option<u64> {
        let (name, wait) = (lock.to_string(), self.seed.between(0, 3) > 0);
        while !stop.load(Ordering::Relaxed) {
            let command =
                ControlCommand::Acquire { name: name.as_bytes(), lease: lease.id, value: b"", wait };
            match self.replica_client.change(&command) {
                CommandResult::Done(ControlReply::Held { token }) => return Some(token),
                CommandResult::Refused(_) => return None,
                _ => {}
            }
            self.pause(10, 60);
            if !self.keep_alive(lease) {
                return None;
            }
        }
        None
    }

    fn hold(&mut self, lock: u64, token: u64, mut lease: Lease) {
        let (client, from) = (self.id, self.clock.now());
        let mut held = LockHold { client, lock, token, lease: lease.id, from, until: lease.until };
        for _ in 0..self.seed.between(1, 6) {
            self.write_guarded(lock, token);
            if self.seed.between(0, 2) == 0 && !self.keep_alive(&mut lease) {
                break;
            }
            held.until = lease.until;
            self.pause(0, 50);
        }
        if self.seed.between(0, 1) == 0 {
            // A client that slept beyond its lease has not learned of a new holder.
            self.pause(lease.ttl_ms, lease.ttl_ms + 400);
            self.write_guarded(lock, token);
        } else {
            held.until = held.until.min(self.clock.now());
            let name = lock.to_string();
            self.replica_client.change(&ControlCommand::Release { name: name.as_bytes(), lease: lease.id });
        }
        self.history.held.push(held);
    }

    /// Writes only while the lock's key is the one created with this token.
    fn write_guarded(&mut self, lock: u64, token: u64) {
        let (key, guarded) = ([LOCKS, lock.to_string().as_bytes()].concat(), format!("guarded/{lock}"));
        let value = token.to_string();
        let command = ControlCommand::Transaction {
            compare: vec![Compare {
                key: &key,
                is: Comparison::Equal,
                target: ComparedProperty::Created { revision: token },
            }],
            then: vec![Step::Put { key: guarded.as_bytes(), value: value.as_bytes(), lease: 0 }],
            otherwise: vec![],
        };
        if let CommandResult::Done(ControlReply::Transaction { revision, succeeded, .. }) =
            self.replica_client.change(&command)
        {
            let revision = succeeded.then_some(revision);
            self.history.guarded.push(GuardedWrite { lock, token, revision });
        }
    }

    fn pause(&mut self, from_ms: u64, to_ms: u64) {
        std::thread::sleep(Duration::from_millis(self.seed.between(from_ms, to_ms)));
    }
}
