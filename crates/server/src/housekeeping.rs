//! Does the node's periodic work. Housekeeping, such as retention, runs once a second. The deadlines of groups are
//! handled when they are due.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;

use dunlin::topic::Topic;
use dunlin::{DroppedDeadLetters, now_ns, steady_ns};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout_at};

use crate::figures::TopicFigures;
use crate::loss_log::LossLog;
use crate::protocol::Protocol;
use crate::shared::SharedServer;

/// Pause between two runs of the housekeeping.
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_secs(1);
/// A disk that was full counts as having room again after this many consecutive checks found room.
const CHECKS_WITH_ROOM: u32 = 5;
/// Maximum number of a tenant's topics whose use at other nodes is checked in one run.
const IDLE_TOPICS_MAX: usize = 1_000;
/// Deadlines that are at most this far apart are handled together, because each check costs time for every group.
const DEADLINE_BATCH: Duration = Duration::from_millis(2);

/// Records when the housekeeping last ran, so that a blocked housekeeping is noticed.
#[derive(Debug)]
pub(crate) struct Housekeeping {
    began: Instant,
    /// Time of the last run, ms after `began`.
    last_ms: AtomicU64,
}

impl Default for Housekeeping {
    fn default() -> Housekeeping {
        Housekeeping { began: Instant::now(), last_ms: AtomicU64::new(0) }
    }
}

impl Housekeeping {
    fn record_run(&self) {
        self.last_ms.store(self.began.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    /// Time since the last run of the housekeeping.
    pub(crate) fn since_last(&self) -> Duration {
        let last = Duration::from_millis(self.last_ms.load(Ordering::Relaxed));
        self.began.elapsed().saturating_sub(last)
    }
}

/// Wakes the task that handles deadlines, when the next deadline of a group becomes earlier.
struct WakeNotify(Notify);

impl Wake for WakeNotify {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// Runs the housekeeping and handles the deadlines of groups, until the future is dropped.
pub(crate) async fn run(shared: Arc<SharedServer>) {
    let node = &shared.node;
    let notify = Arc::new(WakeNotify(Notify::new()));
    let waker = Waker::from(Arc::clone(&notify));
    let due = async {
        loop {
            let due_ns = node.handle_deadlines(&waker).map(|due_ns| due_ns.saturating_sub(steady_ns()));
            let due = Instant::now()
                + due_ns
                    .map_or(HOUSEKEEPING_INTERVAL, |ns| Duration::from_nanos(ns).min(HOUSEKEEPING_INTERVAL));
            // A notification and the timeout have the same effect: the loop checks the deadlines again.
            let _ = timeout_at(due, notify.0.notified()).await;
            sleep(DEADLINE_BATCH).await;
        }
    };
    tokio::join!(due, tick(&shared));
}

/// Logs once when the node cannot store some of the new data, because the disk is full, or file descriptors or memory
/// are lacking. Logs once more when the node can store all new data again. When a disk is full, truncating a log frees
/// room only briefly; such brief room is not logged.
#[derive(Debug, Default)]
struct ShortageReport {
    /// After a shortage was logged: the number of consecutive checks that have found no shortage. `None` if no shortage
    /// was logged, or if the end of the last one was logged.
    checks_with_room: Option<u32>,
}

impl ShortageReport {
    fn update(&mut self, lacking: Option<String>) {
        self.checks_with_room = match (lacking, self.checks_with_room) {
            (Some(why), None) => {
                tracing::error!("the node cannot store some of the new data: {why}");
                Some(0)
            }
            (Some(_), Some(_)) => Some(0),
            (None, Some(checks)) if checks + 1 >= CHECKS_WITH_ROOM => {
                tracing::warn!("the node can store new data again");
                None
            }
            (None, checks) => checks.map(|checks| checks + 1),
        };
    }
}

/// Runs the housekeeping periodically. The work is done on another thread than the listeners', because it may wait for
/// a disk or the cluster.
async fn tick(shared: &Arc<SharedServer>) {
    let addresses = || [Protocol::Nats, Protocol::Http].map(|protocol| shared.nats_addresses(protocol));
    let mut known_addresses = addresses();
    let mut shortage_report = ShortageReport::default();
    let mut loss_log = LossLog::default();
    loop {
        let (server, uses) = (Arc::clone(shared), uses_elsewhere(shared).await);
        let done = shared.node.run_blocking(move |node| {
            node.tick();
            server.access.iter().for_each(|access| access.tick(&uses));
        });
        if done.await.is_some() {
            shared.housekeeping.record_run();
        }
        shortage_report.update(shared.node.lacks_room());
        for DroppedDeadLetters { topic, group, count, why } in shared.node.take_dropped_dead_letters() {
            tracing::error!("dropped {count} dead letters of group {group:?} of topic {topic:?}: {why}");
        }
        loss_log.add(shared.node.take_losses());
        loss_log.take_due(steady_ns()).iter().for_each(crate::loss_log::write);
        if shared.grpc.has_health_clients() {
            shared.grpc.report_health(crate::http::missing(shared).is_empty()).await;
        }
        let now = addresses();
        if now != known_addresses {
            known_addresses = now;
            shared.nodes_changed();
        }
        sleep(HOUSEKEEPING_INTERVAL).await;
    }
}

/// Returns, for each topic that may expire, the time of its last use at other nodes, ns since the Unix epoch. If this
/// node owns the topic, the time is 0, because this node itself knows about every use.
async fn uses_elsewhere(shared: &Arc<SharedServer>) -> HashMap<String, u64> {
    if shared.access.is_none() {
        return HashMap::new();
    }
    let server = Arc::clone(shared);
    // Visits every topic that was created automatically, and therefore does not run on a listener's thread.
    let idle = shared.node.run_blocking(move |_| {
        server.access.as_ref().map_or_else(Vec::new, |access| access.idle_topics(IDLE_TOPICS_MAX))
    });
    let idle = idle.await.unwrap_or_default();
    let (elsewhere, here): (Vec<_>, Vec<_>) = idle.into_iter().partition(|topic| shared.is_elsewhere(topic));
    let mut uses: HashMap<_, _> = here.iter().map(|topic| (topic.name().to_owned(), 0)).collect();
    if elsewhere.is_empty() {
        return uses;
    }
    let figures = shared.figures_of(&elsewhere).await;
    let now_ns = now_ns();
    let use_of = |topic: &Arc<Topic>| last_use_ns(&figures.of(shared, topic), now_ns);
    uses.extend(elsewhere.iter().map(|topic| (topic.name().to_owned(), use_of(topic))));
    uses
}

/// The time of a topic's last use, ns since the Unix epoch. The topic counts as used now if a client uses it, or if a
/// node did not respond.
fn last_use_ns(figures: &TopicFigures, now_ns: u64) -> u64 {
    match figures {
        TopicFigures { owner: Some(owner), clients: Some(clients) }
            if owner.groups.is_empty() && clients.publishers == 0 && clients.subscribers_total == 0 =>
        {
            owner.last_append_ns()
        }
        _ => now_ns,
    }
}
