//! Leases of the cluster. Keys and locks that depend on a lease end with the lease.
//!
//! [`Lease::keep_alive`] renews a lease once; [`Lease::start_renewal`] starts a thread that renews the lease again and
//! again. After a renewal, the lease lasts for its time to live. The client counts this time from the moment at which
//! it sent the request, so it regards the lease as lost shortly before the cluster ends it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dunlin_control::{ControlCommand, ControlOutcome, ControlReply};
use dunlin_wire::ControlKind;

use super::{Kv, KvError};
use crate::follow::lock;
use crate::interrupt::interruptible;
use crate::pending_request::deadline;

/// How many times the thread renews a lease within the lease's time to live.
const RENEWALS_PER_TTL: u32 = 3;
/// The pause before a failed renewal is tried again.
const PAUSE: Duration = Duration::from_millis(20);

/// The reason for the loss of a lease whose time to live has passed without a confirmed renewal.
const NOT_RENEWED: &str = "no renewal was confirmed within its time to live, because the cluster could not be reached \
                           or this program was paused";

/// The error of a lease that has ended, or that the client regards as lost.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("lease {lease} is lost: {why}")]
pub struct LeaseLostError {
    /// The number of the lease.
    pub lease: u64,
    /// Why the lease ended, as far as the client knows.
    pub why: String,
}

/// A lease that this client holds. Dropping the value revokes the lease without waiting for the node.
/// [`revoke`](Lease::revoke) waits for the node, and [`leave`](Lease::leave) does not revoke the lease.
#[derive(Debug)]
pub struct Lease {
    handle: LeaseHandle,
    renewal_thread: Option<RenewalThread>,
    revoke: bool,
}

/// The thread that renews a lease. Dropping this value ends the thread.
#[derive(Debug)]
struct RenewalThread {
    ended: Arc<AtomicBool>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A handle that checks and renews a lease, but does not revoke it when dropped. Clones share the state of the lease.
#[derive(Debug, Clone)]
pub struct LeaseHandle {
    kv: Kv,
    id: u64,
    ttl: Duration,
    renewal_state: Arc<RenewalState>,
}

/// The state of a lease, which its handles and the renewing thread share.
#[derive(Debug)]
struct RenewalState {
    /// The time until which the lease certainly exists; if the lease is lost, the error that says why.
    state: Mutex<Result<Instant, LeaseLostError>>,
    changed: Condvar,
}

impl RenewalState {
    fn mark_lost(&self, lease: u64, why: &str) {
        let mut state = lock(&self.state);
        if state.is_ok() {
            *state = Err(LeaseLostError { lease, why: why.to_owned() });
            self.changed.notify_all();
        }
    }

    /// Returns the time until which the lease certainly exists. If this time has passed, marks the lease as lost and
    /// fails.
    fn valid_until(&self, lease: u64) -> Result<Instant, LeaseLostError> {
        let state = lock(&self.state).clone();
        match state {
            Ok(until) if Instant::now() >= until => {
                self.mark_lost(lease, NOT_RENEWED);
                lock(&self.state).clone()
            }
            state => state,
        }
    }
}

impl Kv {
    /// Creates a lease that ends `ttl` after its last renewal.
    pub fn lease(&self, ttl: Duration) -> Result<Lease, KvError> {
        let began = Instant::now();
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        let ControlReply::Granted { lease, ttl_ms } = self.command(&ControlCommand::Grant { ttl_ms })? else {
            return Err(KvError::unexpected_response());
        };
        let ttl = Duration::from_millis(ttl_ms);
        let renewal_state = RenewalState { state: Mutex::new(Ok(began + ttl)), changed: Condvar::new() };
        let handle = LeaseHandle { kv: self.clone(), id: lease, ttl, renewal_state: Arc::new(renewal_state) };
        Ok(Lease { handle, renewal_thread: None, revoke: true })
    }

    /// Renews the leases with these numbers. Returns the numbers of those that have already ended.
    pub fn keep_alive(&self, leases: &[u64]) -> Result<Vec<u64>, KvError> {
        self.keep_alive_within(leases, self.response_timeout())
    }

    fn keep_alive_within(&self, leases: &[u64], patience: Duration) -> Result<Vec<u64>, KvError> {
        let mut bytes = Vec::new();
        ControlCommand::KeepAlive { leases: leases.to_vec() }.encode(&mut bytes);
        let answer = self.retry_until_answered(ControlKind::Command, &bytes, patience)?;
        match ControlOutcome::decode(&answer)? {
            ControlOutcome::Done { reply: ControlReply::KeptAlive { ended } } => Ok(ended),
            _ => Err(KvError::unexpected_response()),
        }
    }

    /// Ends a lease, which deletes the keys that depend on the lease, and releases its locks.
    pub fn revoke(&self, lease: u64) -> Result<(), KvError> {
        self.command(&ControlCommand::Revoke { lease }).map(drop)
    }
}

impl Lease {
    /// The lease's number.
    pub fn id(&self) -> u64 {
        self.handle.id
    }

    /// How long the lease lasts after each renewal.
    pub fn ttl(&self) -> Duration {
        self.handle.ttl
    }

    /// Returns a handle with which other parts of the program check and renew the lease.
    pub fn handle(&self) -> LeaseHandle {
        self.handle.clone()
    }

    /// Returns the time until which the lease certainly exists. Fails if the lease is lost.
    pub fn check(&self) -> Result<Instant, LeaseLostError> {
        self.handle.check()
    }

    /// Renews the lease once.
    pub fn keep_alive(&self) -> Result<(), LeaseLostError> {
        self.handle.keep_alive()
    }

    /// Starts a thread that renews the lease until this value is dropped. Fails if no thread can be started.
    pub fn start_renewal(&mut self) -> std::io::Result<()> {
        let handle = self.handle();
        let (stop, stopped) = mpsc::channel();
        let ended = Arc::new(AtomicBool::new(false));
        let stop_requested = Arc::clone(&ended);
        let renew = move || {
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(handle.ttl / RENEWALS_PER_TTL) {
                if handle.keep_alive().is_err() {
                    return;
                }
            }
        };
        // Dropping the lease interrupts a renewal, so that the drop does not wait for an unreachable node.
        let run_thread = || interruptible(move || stop_requested.load(Ordering::Acquire), renew);
        let thread = thread::Builder::new().name("dunlin-lease".to_owned()).spawn(run_thread)?;
        self.renewal_thread = Some(RenewalThread { ended, stop: Some(stop), thread: Some(thread) });
        Ok(())
    }

    /// Waits until the lease is lost, and returns the reason. Returns `None` if the lease is not lost within `timeout`.
    pub fn wait_lost(&self, timeout: Duration) -> Option<LeaseLostError> {
        self.handle.wait_lost(timeout)
    }

    /// Revokes the lease like [`Kv::revoke`], and waits for the response. If the connection is lost, sends the request
    /// again, but only until the lease would end by itself. A lease that has already ended is not an error.
    pub fn revoke(mut self) -> Result<(), KvError> {
        self.renewal_thread = None;
        let Ok(until) = self.check() else { return Ok(()) };
        self.revoke = false;
        self.handle.mark_abandoned();
        let mut bytes = Vec::new();
        ControlCommand::Revoke { lease: self.id() }.encode(&mut bytes);
        let patience = until.saturating_duration_since(Instant::now());
        match self.handle.kv.retry_until_answered(ControlKind::Command, &bytes, patience) {
            Ok(_) | Err(KvError::NoLease { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Gives up this value without revoking the lease, and returns the number of the lease. The lease ends by itself
    /// unless another handle renews it.
    pub fn leave(mut self) -> u64 {
        self.revoke = false;
        self.handle.id
    }
}

impl LeaseHandle {
    /// The lease's number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// How long the lease lasts after each renewal.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Returns the time until which the lease certainly exists. Fails if the lease is lost.
    pub fn check(&self) -> Result<Instant, LeaseLostError> {
        self.renewal_state.valid_until(self.id)
    }

    /// Renews the lease once.
    pub fn keep_alive(&self) -> Result<(), LeaseLostError> {
        let LeaseHandle { kv, id, ttl, renewal_state } = self;
        loop {
            let until = self.check()?;
            let sent_at = Instant::now();
            match kv.keep_alive_within(&[*id], until.saturating_duration_since(sent_at)) {
                Ok(ended) if ended.contains(id) => renewal_state.mark_lost(*id, "the cluster has ended it"),
                Ok(_) => {
                    let mut state = lock(&renewal_state.state);
                    if let Ok(until) = &mut *state {
                        *until = sent_at + *ttl;
                    }
                    return Ok(());
                }
                Err(error) if error.is_lost() => thread::sleep(PAUSE),
                Err(KvError::Refused(refused)) if refused.retry() != dunlin_wire::RetryAdvice::No => {
                    thread::sleep(PAUSE);
                }
                // The caller interrupted the renewal. The lease is not marked as lost, because the last successful
                // renewal is still valid.
                Err(error @ (KvError::Unknown(_) | KvError::Disconnected(_))) => {
                    return Err(LeaseLostError { lease: *id, why: error.to_string() });
                }
                Err(error) => renewal_state.mark_lost(*id, &error.to_string()),
            }
        }
    }

    /// Waits until the lease is lost, and returns the reason. Returns `None` if the lease is not lost within `timeout`.
    pub fn wait_lost(&self, timeout: Duration) -> Option<LeaseLostError> {
        let deadline = deadline(timeout);
        loop {
            let until = match self.check() {
                Ok(until) => until,
                Err(lost) => return Some(lost),
            };
            let now = Instant::now();
            if now >= deadline {
                return None;
            }
            let state = lock(&self.renewal_state.state);
            let wait = deadline.min(until).saturating_duration_since(now);
            if state.is_ok() {
                drop(self.renewal_state.changed.wait_timeout(state, wait));
            }
        }
    }

    fn mark_abandoned(&self) {
        self.renewal_state.mark_lost(self.id, "its holder gave it up");
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.renewal_thread = None;
        if self.revoke && self.check().is_ok() {
            // If this message is lost, the lease ends by itself after its time to live.
            self.handle.kv.send_unconfirmed(&ControlCommand::Revoke { lease: self.id() });
            self.handle.mark_abandoned();
        }
    }
}

impl Drop for RenewalThread {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
