//! The node's time: its housekeeping once a second, and what is over in its groups when it is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;

use dunlin::now_ns;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout_at};

use crate::shared::Shared;

/// How often the housekeeping runs.
const TICK: Duration = Duration::from_secs(1);
/// What is over in this span is seen to at once: looking costs some ns for each group.
const TOGETHER: Duration = Duration::from_millis(2);

/// When the housekeeping last ran.
#[derive(Debug)]
pub(crate) struct Housekeeping {
    began: Instant,
    /// After `began`, ms.
    last_ms: AtomicU64,
}

impl Default for Housekeeping {
    fn default() -> Housekeeping {
        Housekeeping { began: Instant::now(), last_ms: AtomicU64::new(0) }
    }
}

impl Housekeeping {
    fn ran(&self) {
        self.last_ms.store(self.began.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    /// How long ago it ran.
    pub(crate) fn since_last(&self) -> Duration {
        let last = Duration::from_millis(self.last_ms.load(Ordering::Relaxed));
        self.began.elapsed().saturating_sub(last)
    }
}

/// Is told when something is over earlier than was known.
struct Keeper(Notify);

impl Wake for Keeper {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// Keeps the node's time until the task is aborted.
pub(crate) async fn keep(shared: Arc<Shared>) {
    let node = &shared.node;
    let keeper = Arc::new(Keeper(Notify::new()));
    let waker = Waker::from(Arc::clone(&keeper));
    let mut tick = Instant::now();
    loop {
        if Instant::now() >= tick {
            node.tick();
            if let Some(access) = &shared.access {
                access.tick();
            }
            shared.housekeeping.ran();
            tick = Instant::now() + TICK;
        }
        let due = node
            .see_to_due(&waker)
            .map(|due_ns| Instant::now() + Duration::from_nanos(due_ns.saturating_sub(now_ns())).min(TICK));
        // Which of the two it was is seen by looking.
        let _ = timeout_at(due.map_or(tick, |due| due.min(tick)), keeper.0.notified()).await;
        sleep(TOGETHER).await;
    }
}
