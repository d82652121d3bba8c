//! How a worker of a node's own hears from the node that started it (`dunlin dev --workers …`): its environment, and its standard input.
//!
//! ```text
//!  node                                   worker
//!    │ ── DUNLIN_WORKER_NAME ───────────────► │  starts, loads what it needs, connects
//!    │ ── DUNLIN_WORKER_WARM, if for the pool │
//!    │ ◄─────────────── "prepared\n" ──────── │  waits
//!    │ ── "work\n" ─────────────────────────► │  attaches
//!    │ ── the end of standard input ────────► │  ends: the node is gone
//! ```
//!
//! Standard input is a Unix socket, so that what is prepared can say so where it listens.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Under which name a worker is to attach.
pub const NAME_VARIABLE: &str = "DUNLIN_WORKER_NAME";
/// That a worker is to end when its standard input does.
const END_WITH_STDIN_VARIABLE: &str = "DUNLIN_END_WITH_STDIN";
/// That a worker is to wait for its call before it attaches.
const WARM_VARIABLE: &str = "DUNLIN_WORKER_WARM";
/// What a worker says that waits for its call.
const PREPARED: &[u8] = b"prepared\n";

/// How soon who waits notices that it is to work, or to end.
const LOOK: Duration = Duration::from_millis(5);

/// What a node told this process, if one started it as a worker; whoever was started otherwise was told nothing.
#[derive(Debug, Clone, Default)]
pub struct StartedByNode {
    name: Option<String>,
    is_warm: bool,
    is_called: Arc<AtomicBool>,
    is_orphaned: Arc<AtomicBool>,
}

impl StartedByNode {
    /// Looks at the environment, and from then on listens to standard input where that is the node's.
    pub fn from_env() -> StartedByNode {
        let set = |variable| std::env::var_os(variable).is_some_and(|set| !set.is_empty());
        let started = StartedByNode {
            name: std::env::var(NAME_VARIABLE).ok().filter(|name| !name.is_empty()),
            is_warm: set(WARM_VARIABLE),
            ..StartedByNode::default()
        };
        if started.is_warm || set(END_WITH_STDIN_VARIABLE) {
            let hears = started.clone();
            thread::spawn(move || hears.listen());
        }
        started
    }

    fn listen(&self) {
        let mut heard = [0; 64];
        let mut stdin = io::stdin().lock();
        loop {
            match stdin.read(&mut heard) {
                Ok(0) => break,
                // There is one thing to hear.
                Ok(count) if heard[..count].contains(&b'\n') => self.is_called.store(true, Ordering::Release),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        self.is_orphaned.store(true, Ordering::Release);
    }

    /// The name under which it is to attach, by which the node knows it.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Set when the node is gone, upon which the worker is to end.
    pub fn orphaned(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_orphaned)
    }

    /// Returns when it is to attach: at once, or, of the warm pool, when it was called. False when it is to end instead, as `stop` says, or as the node
    /// is gone.
    pub fn wait_for_work(&self, stop: &AtomicBool) -> io::Result<bool> {
        let is_over = || stop.load(Ordering::Acquire) || self.is_orphaned.load(Ordering::Acquire);
        if self.is_warm {
            // So little is written whole.
            rustix::io::write(io::stdin(), PREPARED)?;
            while !self.is_called.load(Ordering::Acquire) && !is_over() {
                thread::sleep(LOOK);
            }
        }
        Ok(!is_over())
    }
}
