//! The node's time: its housekeeping once a second, and what is over in its groups when it is over.

use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;

use dunlin::{Node, now_ns};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout_at};

/// How often the housekeeping runs.
const TICK: Duration = Duration::from_secs(1);
/// What is over in this span is seen to at once: looking costs some ns for each group.
const TOGETHER: Duration = Duration::from_millis(2);

/// Is told when something is over earlier than was known.
struct Keeper(Notify);

impl Wake for Keeper {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// Keeps the node's time until the task is aborted.
pub(crate) async fn keep(node: Node) {
    let keeper = Arc::new(Keeper(Notify::new()));
    let waker = Waker::from(Arc::clone(&keeper));
    let mut tick = Instant::now();
    loop {
        if Instant::now() >= tick {
            node.tick();
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
