//! Leases: what is tied to one goes when its holder is gone.
//!
//! A lease is kept alive by whoever calls [`Lease::keep_alive`], or, for who asks for it, by a thread of its own
//! ([`Lease::keep`]). Its holder counts it as lost as soon as its time to live has passed since the last time it was sure
//! to be alive, which is before the cluster ends it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dunlin_control::{Answered, Command, Reply};
use dunlin_wire::ControlKind;

use super::{Kv, KvError};
use crate::asked::deadline;
use crate::follow::lock;
use crate::interrupt::interruptible;

/// So often in its time to live a lease is kept alive.
const TIMES: u32 = 3;
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(20);

/// Why a lease is no more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("lease {lease} is lost: {why}")]
pub struct LeaseLost {
    /// Which.
    pub lease: u64,
    /// Why, as far as is known.
    pub why: String,
}

/// A lease. Dropped, it is revoked, unless it was [left](Lease::leave).
#[derive(Debug)]
pub struct Lease {
    pulse: LeasePulse,
    keeper: Option<Keeper>,
    revoke: bool,
}

/// The thread that keeps a lease alive, until this is dropped.
#[derive(Debug)]
struct Keeper {
    ended: Arc<AtomicBool>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What may be known of a lease, and done for it, beside its holder. Cloning shares it.
#[derive(Debug, Clone)]
pub struct LeasePulse {
    kv: Kv,
    id: u64,
    ttl: Duration,
    standing: Arc<Standing>,
}

/// Whether it stands.
#[derive(Debug)]
struct Standing {
    /// Until when it is sure to live; why it does not any more.
    state: Mutex<Result<Instant, LeaseLost>>,
    changed: Condvar,
}

impl Standing {
    fn lost(&self, lease: u64, why: &str) {
        let mut state = lock(&self.state);
        if state.is_ok() {
            *state = Err(LeaseLost { lease, why: why.to_owned() });
            self.changed.notify_all();
        }
    }

    fn check(&self, lease: u64) -> Result<Instant, LeaseLost> {
        let state = lock(&self.state).clone();
        match state {
            Ok(until) if Instant::now() >= until => {
                self.lost(lease, "the cluster could not be reached to keep it alive");
                lock(&self.state).clone()
            }
            state => state,
        }
    }
}

impl Kv {
    /// A lease that ends `ttl` after it was last kept alive.
    pub fn lease(&self, ttl: Duration) -> Result<Lease, KvError> {
        let began = Instant::now();
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        let Reply::Granted { lease, ttl_ms } = self.command(&Command::Grant { ttl_ms })? else {
            return Err(KvError::odd());
        };
        let ttl = Duration::from_millis(ttl_ms);
        let standing = Standing { state: Mutex::new(Ok(began + ttl)), changed: Condvar::new() };
        let pulse = LeasePulse { kv: self.clone(), id: lease, ttl, standing: Arc::new(standing) };
        Ok(Lease { pulse, keeper: None, revoke: true })
    }

    /// Has leases live on; those of them that are no more.
    pub fn keep_alive(&self, leases: &[u64]) -> Result<Vec<u64>, KvError> {
        self.keep_alive_within(leases, self.patience())
    }

    fn keep_alive_within(&self, leases: &[u64], patience: Duration) -> Result<Vec<u64>, KvError> {
        let mut bytes = Vec::new();
        Command::KeepAlive { leases: leases.to_vec() }.encode(&mut bytes);
        let answer = self.again_and_again(ControlKind::Command, &bytes, patience)?;
        match Answered::decode(&answer)? {
            Answered::Done { reply: Reply::KeptAlive { ended } } => Ok(ended),
            _ => Err(KvError::odd()),
        }
    }

    /// Ends a lease, and with it what is tied to it.
    pub fn revoke(&self, lease: u64) -> Result<(), KvError> {
        self.command(&Command::Revoke { lease }).map(drop)
    }
}

impl Lease {
    /// Its number.
    pub fn id(&self) -> u64 {
        self.pulse.id
    }

    /// How long it lives after it was kept alive.
    pub fn ttl(&self) -> Duration {
        self.pulse.ttl
    }

    /// For others who depend on it.
    pub fn pulse(&self) -> LeasePulse {
        self.pulse.clone()
    }

    /// Whether it is sure to live still, and until when.
    pub fn check(&self) -> Result<Instant, LeaseLost> {
        self.pulse.check()
    }

    /// Has it live on.
    pub fn keep_alive(&self) -> Result<(), LeaseLost> {
        self.pulse.keep_alive()
    }

    /// From now on a thread of its own keeps it alive.
    pub fn keep(&mut self) -> std::io::Result<()> {
        let pulse = self.pulse();
        let (stop, stopped) = mpsc::channel();
        let ended = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&ended);
        let keep = move || {
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(pulse.ttl / TIMES) {
                if pulse.keep_alive().is_err() {
                    return;
                }
            }
        };
        // Whoever ends it does not wait for a node that is away.
        let run = || interruptible(move || asked.load(Ordering::Acquire), keep);
        let thread = thread::Builder::new().name("dunlin-lease".to_owned()).spawn(run)?;
        self.keeper = Some(Keeper { ended, stop: Some(stop), thread: Some(thread) });
        Ok(())
    }

    /// Waits until it is lost; `None` if it is not after so long.
    pub fn wait_lost(&self, timeout: Duration) -> Option<LeaseLost> {
        self.pulse.wait_lost(timeout)
    }

    /// It is not revoked when this is dropped: it ends by its time, or somebody else keeps it alive.
    pub fn leave(mut self) -> u64 {
        self.revoke = false;
        self.pulse.id
    }
}

impl LeasePulse {
    /// Its number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// How long it lives after it was kept alive.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Whether it is sure to live still, and until when.
    pub fn check(&self) -> Result<Instant, LeaseLost> {
        self.standing.check(self.id)
    }

    /// Has it live on.
    pub fn keep_alive(&self) -> Result<(), LeaseLost> {
        let LeasePulse { kv, id, ttl, standing } = self;
        loop {
            let until = self.check()?;
            let asked = Instant::now();
            match kv.keep_alive_within(&[*id], until.saturating_duration_since(asked)) {
                Ok(ended) if ended.contains(id) => standing.lost(*id, "the cluster has ended it"),
                Ok(_) => {
                    let mut state = lock(&standing.state);
                    if let Ok(until) = &mut *state {
                        *until = asked + *ttl;
                    }
                    return Ok(());
                }
                Err(error) if error.is_lost() => thread::sleep(PAUSE),
                Err(KvError::Refused(refused)) if refused.retry() != dunlin_wire::Retry::No => {
                    thread::sleep(PAUSE);
                }
                // It stands as it was.
                Err(error @ (KvError::Unknown(_) | KvError::Away(_))) => {
                    return Err(LeaseLost { lease: *id, why: error.to_string() });
                }
                Err(error) => standing.lost(*id, &error.to_string()),
            }
        }
    }

    /// Waits until it is lost; `None` if it is not after so long.
    pub fn wait_lost(&self, timeout: Duration) -> Option<LeaseLost> {
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
            let state = lock(&self.standing.state);
            let wait = deadline.min(until).saturating_duration_since(now);
            if state.is_ok() {
                drop(self.standing.changed.wait_timeout(state, wait));
            }
        }
    }

    /// It is counted as lost from now on.
    fn give_up(&self) {
        self.standing.lost(self.id, "its holder has given it up");
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.keeper = None;
        if self.revoke && self.check().is_ok() {
            // What is not done ends by its time.
            self.pulse.kv.say(&Command::Revoke { lease: self.id() });
            self.pulse.give_up();
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
