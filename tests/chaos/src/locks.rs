//! Clients that take locks under leases, and write while they hold a lock. Some clients sleep until their lease has
//! ended, and then write although they no longer hold the lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dunlin_control::{
    Compare, ComparedProperty, Comparison, ControlCommand, ControlReply, KeyOperation as Step, LOCKS,
};
use dunlin_replica::seed::SeededRandom;

use crate::history::RunClock;
use crate::progress::ClientProgress;
use crate::replica_client::{ReplicaClient, ReplicaCommandOutcome};

/// The number of locks.
pub const LOCK_COUNT: u64 = 2;

/// A period in which a client certainly held a lock.
#[derive(Debug, Clone)]
pub struct LockHoldPeriod {
    /// The client's number.
    pub client: u64,
    /// The lock's number.
    pub lock: u64,
    /// The fencing token of the lock during the period.
    pub token: u64,
    /// The number of the lease under which the client held the lock.
    pub lease: u64,
    /// The start of the period, in ns: the time at which the client learned that it held the lock.
    pub from: u64,
    /// The end of the period, in ns: the time of the release, or the earliest time at which the lease can have ended.
    pub until: u64,
}

/// An attempt to write that succeeds only while the client's fencing token is valid.
#[derive(Debug, Clone)]
pub struct GuardedWrite {
    /// The lock's number.
    pub lock: u64,
    /// The fencing token with which the client wrote.
    pub token: u64,
    /// The revision of the write; `None` if the write was refused.
    pub revision: Option<u64>,
}

/// The periods in which one client held locks, and the client's guarded writes.
#[derive(Debug, Clone, Default)]
pub struct LockHistory {
    /// The periods in which the client held locks.
    pub held: Vec<LockHoldPeriod>,
    /// The client's guarded writes, including those that the client sent after its lease had ended.
    pub guarded: Vec<GuardedWrite>,
}

/// A client that takes locks.
#[derive(Debug)]
pub struct LockClient {
    id: u64,
    replica_client: ReplicaClient,
    clock: RunClock,
    seed: SeededRandom,
    history: LockHistory,
    progress: Arc<ClientProgress>,
}

/// A lease, and the time until which the lease certainly exists.
struct Lease {
    id: u64,
    ttl_ms: u64,
    until: u64,
}

impl LockClient {
    /// Creates a client with the number `id`.
    pub fn new(
        id: u64,
        replica_client: ReplicaClient,
        clock: RunClock,
        seed: u64,
        progress: Arc<ClientProgress>,
    ) -> LockClient {
        LockClient {
            id,
            replica_client,
            clock,
            seed: SeededRandom::new(seed),
            history: LockHistory::default(),
            progress,
        }
    }

    /// Takes and releases locks until `stop` is set. Returns the client's history.
    pub fn run(mut self, stop: &AtomicBool) -> LockHistory {
        while !stop.load(Ordering::Relaxed) {
            let Some(mut lease) = self.grant() else { continue };
            let lock = self.seed.between(0, LOCK_COUNT - 1);
            if let Some(token) = self.acquire(lock, &mut lease, stop) {
                self.progress.count_holder_change(lock);
                self.hold(lock, token, lease);
            }
        }
        self.history
    }

    fn grant(&mut self) -> Option<Lease> {
        let ttl_ms = self.seed.between(300, 1_200);
        let until = self.clock.now() + ttl_ms * 1_000_000;
        match self.replica_client.change(&ControlCommand::Grant { ttl_ms }) {
            ReplicaCommandOutcome::Done(ControlReply::Granted { lease, ttl_ms }) => {
                Some(Lease { id: lease, ttl_ms, until })
            }
            _ => None,
        }
    }

    fn keep_alive(&mut self, lease: &mut Lease) -> bool {
        let until = self.clock.now() + lease.ttl_ms * 1_000_000;
        match self.replica_client.change(&ControlCommand::KeepAlive { leases: vec![lease.id] }) {
            ReplicaCommandOutcome::Done(ControlReply::KeptAlive { ended }) if ended.is_empty() => {
                lease.until = until
            }
            ReplicaCommandOutcome::Done(_) => return false,
            _ => {}
        }
        true
    }

    /// Repeats the request for the lock until the client holds the lock. Returns the fencing token; `None` if the
    /// cluster refuses, the lease cannot be renewed, or `stop` is set.
    fn acquire(&mut self, lock: u64, lease: &mut Lease, stop: &AtomicBool) -> Option<u64> {
        let (name, wait) = (lock.to_string(), self.seed.between(0, 3) > 0);
        while !stop.load(Ordering::Relaxed) {
            let command =
                ControlCommand::Acquire { name: name.as_bytes(), lease: lease.id, value: b"", wait };
            match self.replica_client.change(&command) {
                ReplicaCommandOutcome::Done(ControlReply::Held { token }) => return Some(token),
                ReplicaCommandOutcome::Refused(_) => return None,
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
        let mut held = LockHoldPeriod { client, lock, token, lease: lease.id, from, until: lease.until };
        for _ in 0..self.seed.between(1, 6) {
            self.write_guarded(lock, token);
            if self.seed.between(0, 2) == 0 && !self.keep_alive(&mut lease) {
                break;
            }
            held.until = lease.until;
            self.pause(0, 50);
        }
        if self.seed.between(0, 1) == 0 {
            // The client sleeps until its lease has ended. Then it writes as if it still held the lock, which another
            // client may hold by then.
            self.pause(lease.ttl_ms, lease.ttl_ms + 400);
            self.write_guarded(lock, token);
        } else {
            held.until = held.until.min(self.clock.now());
            let name = lock.to_string();
            self.replica_client.change(&ControlCommand::Release { name: name.as_bytes(), lease: lease.id });
        }
        self.history.held.push(held);
    }

    /// Writes a value on the condition that `token` is still the lock's token: the lock's key must have been created in
    /// revision `token`.
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
        if let ReplicaCommandOutcome::Done(ControlReply::Transaction { revision, succeeded, .. }) =
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
