//! The housekeeping thread for topics that other nodes own or have owned. If an owner is unreachable, the thread
//! requests another owner. The thread also sends batches that wait, and restarts the feeds of mirrors.

use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use super::feed::MirrorFeed;
use super::inboxes::InboxRoute;
use super::route::Route;
use super::{Ownership, lock};
use crate::clock::steady_ns;

/// The pause before failed work is tried again.
pub(super) const PAUSE: Duration = Duration::from_millis(20);

/// A handle to the housekeeping thread. Other code uses it to give work to the thread.
#[derive(Debug)]
pub(super) struct OwnershipHousekeeper(Arc<Work>);

#[derive(Debug, Default)]
struct Work {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    due: Vec<(u64, Job)>,
    ended: bool,
}

#[derive(Debug)]
enum Job {
    Route(Weak<Route>),
    MirrorFeed(Arc<MirrorFeed>),
    Inbox(Weak<InboxRoute>),
    /// Check every topic, because a node has joined or left the cluster.
    All,
}

impl OwnershipHousekeeper {
    /// Starts the thread. The thread ends when the returned handle is dropped.
    pub(super) fn start(ownership: Weak<Ownership>) -> OwnershipHousekeeper {
        let work = Arc::<Work>::default();
        let thread_work = Arc::clone(&work);
        let run = move || thread_work.run(&ownership);
        // Ignore the error. Without this thread, no new owner is found, and publishers receive `OWNER_AWAY`.
        let _ = thread::Builder::new().name("dunlin-owners".to_owned()).spawn(run);
        OwnershipHousekeeper(work)
    }

    pub(super) fn check(&self, route: &Weak<Route>) {
        self.check_after(route, Duration::ZERO);
    }

    pub(super) fn check_after(&self, route: &Weak<Route>, pause: Duration) {
        self.0.add(pause, Job::Route(Weak::clone(route)));
    }

    pub(super) fn check_all(&self) {
        self.0.add(Duration::ZERO, Job::All);
    }

    /// After a pause, sends the batches for an inbox. The thread holds no locks when it begins.
    pub(super) fn send_to_inbox_after(&self, route: Weak<InboxRoute>, pause: Duration) {
        self.0.add(pause, Job::Inbox(route));
    }

    /// After a pause, starts this feed for a mirror that serves a single subscriber.
    pub(super) fn feed_after(&self, feed: Arc<MirrorFeed>, pause: Duration) {
        self.0.add(pause, Job::MirrorFeed(feed));
    }
}

impl Drop for OwnershipHousekeeper {
    fn drop(&mut self) {
        lock(&self.0.state).ended = true;
        self.0.changed.notify_all();
    }
}

impl Work {
    fn add(&self, pause: Duration, job: Job) {
        let due_ns = steady_ns().saturating_add(pause.as_nanos() as u64);
        let mut state = lock(&self.state);
        if let Job::Route(route) = &job
            && state.due.iter().any(|(other_ns, other)| {
                *other_ns <= due_ns && matches!(other, Job::Route(other) if Weak::ptr_eq(other, route))
            })
        {
            return;
        }
        if let Job::Inbox(route) = &job
            && state.due.iter().any(|(other_ns, other)| {
                *other_ns <= due_ns && matches!(other, Job::Inbox(other) if Weak::ptr_eq(other, route))
            })
        {
            return;
        }
        state.due.push((due_ns, job));
        drop(state);
        self.changed.notify_all();
    }

    fn run(&self, ownership: &Weak<Ownership>) {
        loop {
            let jobs = {
                let mut state = lock(&self.state);
                loop {
                    if state.ended {
                        return;
                    }
                    let now_ns = steady_ns();
                    let (due, later): (Vec<_>, Vec<_>) =
                        std::mem::take(&mut state.due).into_iter().partition(|(due_ns, _)| *due_ns <= now_ns);
                    let next_ns = later.iter().map(|(due_ns, _)| *due_ns).min();
                    state.due = later;
                    if !due.is_empty() {
                        break due;
                    }
                    let wait = next_ns.map_or(1_000_000_000, |next_ns| next_ns - now_ns);
                    let waited = self.changed.wait_timeout(state, Duration::from_nanos(wait));
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
            };
            let Some(ownership) = ownership.upgrade() else { return };
            jobs.into_iter().for_each(|(_, job)| self.run_job(&ownership, job));
        }
    }

    fn run_job(&self, ownership: &Arc<Ownership>, job: Job) {
        match job {
            Job::Route(route) => {
                if let Some(found) = route.upgrade()
                    && found.maintain(ownership)
                {
                    self.add(PAUSE, Job::Route(route));
                }
            }
            Job::All => {
                for route in ownership.routes() {
                    if route.maintain(ownership) {
                        self.add(PAUSE, Job::Route(Arc::downgrade(&route)));
                    }
                }
            }
            Job::Inbox(route) => route.upgrade().into_iter().for_each(|route| route.send_waiting(ownership)),
            Job::MirrorFeed(feed) => {
                let Some(route) = feed.route.upgrade() else { return };
                let from = route.owner();
                let is_alive = ownership.is_alive(from.0);
                if let Some(why) = feed.end_reason(is_alive) {
                    feed.ended(why);
                } else if is_alive {
                    ownership.peers.feed_mirrors(from.0, feed.restart_from(from));
                } else {
                    route.find_owner_for_subscriber(ownership);
                    self.add(PAUSE, Job::MirrorFeed(feed));
                }
            }
        }
    }
}
