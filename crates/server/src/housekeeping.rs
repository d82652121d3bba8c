//! Periodic work of the node: housekeeping once a second, and deadlines of groups when they are due.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;

use dunlin::now_ns;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout_at};

use crate::protocol::Protocol;
use crate::shared::SharedServer;

/// Interval of the housekeeping.
const TICK: Duration = Duration::from_secs(1);
/// Number of consecutive checks that must find room before a full disk counts as free again.
const AMPLE_LOOKS: u32 = 5;
/// Deadlines within this span are handled together, because each check costs some ns per group.
const TOGETHER: Duration = Duration::from_millis(2);

/// The time of the last housekeeping, from which a blocked housekeeping is detected.
#[derive(Debug)]
pub(crate) struct Housekeeping {
    began: Instant,
    /// Time of the last housekeeping, ms after `began`.
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

    /// Time since the last housekeeping.
    pub(crate) fn since_last(&self) -> Duration {
        let last = Duration::from_millis(self.last_ms.load(Ordering::Relaxed));
        self.began.elapsed().saturating_sub(last)
    }
}

/// Wakes the housekeeping task when a group's next deadline becomes earlier.
struct WakeNotify(Notify);

impl Wake for WakeNotify {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// Runs the housekeeping and handles deadlines until the task is aborted.
pub(crate) async fn keep(shared: Arc<SharedServer>) {
    let node = &shared.node;
    let keeper = Arc::new(WakeNotify(Notify::new()));
    let waker = Waker::from(Arc::clone(&keeper));
    let due = async {
        loop {
            let due_ns = node.see_to_due(&waker).map(|due_ns| due_ns.saturating_sub(now_ns()));
            let due = Instant::now() + due_ns.map_or(TICK, |ns| Duration::from_nanos(ns).min(TICK));
            // The cause of waking does not matter: the next iteration checks the time and the deadlines.
            let _ = timeout_at(due, keeper.0.notified()).await;
            sleep(TOGETHER).await;
        }
    };
    tokio::join!(due, tick(&shared));
}

/// Logs once that the disk is full, and once that it has room again. Truncating a log on a full disk frees room only
/// briefly, which is not logged.
#[derive(Debug, Default)]
struct DiskFullReport {
    /// Number of consecutive checks that found room since the disk was reported full; `None` if it is not reported
    /// full.
    ample: Option<u32>,
}

impl DiskFullReport {
    fn look(&mut self, lacking: Option<String>) {
        self.ample = match (lacking, self.ample) {
            (Some(why), None) => {
                tracing::error!(
                    "the node's disk is full: {why}. Free room on the disk of its data directory"
                );
                Some(0)
            }
            (Some(_), Some(_)) => Some(0),
            (None, Some(looks)) if looks + 1 >= AMPLE_LOOKS => {
                tracing::warn!("the node's disk has room again");
                None
            }
            (None, looks) => looks.map(|looks| looks + 1),
        };
    }
}

/// Does the housekeeping once, outside the listeners' threads, because it may wait for a disk or the cluster.
async fn tick(shared: &Arc<SharedServer>) {
    let reached = || [Protocol::Nats, Protocol::Http].map(|protocol| shared.nats_addresses(protocol));
    let mut known = reached();
    let mut room = DiskFullReport::default();
    loop {
        let of = Arc::clone(shared);
        let done = shared.node.unblock(move |node| {
            node.tick();
            of.access.iter().for_each(|access| access.tick());
        });
        if done.await.is_some() {
            shared.housekeeping.ran();
        }
        room.look(shared.node.lacks_room());
        if shared.grpc.has_health_clients() {
            shared.grpc.report_health(crate::http::missing(shared).is_empty()).await;
        }
        let now = reached();
        if now != known {
            known = now;
            shared.nodes_changed();
        }
        sleep(TICK).await;
    }
}
