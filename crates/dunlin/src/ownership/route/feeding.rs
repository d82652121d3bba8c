//! Starts and ends the feed of a topic's mirrors, and lets subscribers wait until a mirror has the owner's records.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use dunlin_control::TopicKind;
use dunlin_topic::{Log, Start, Topic};

use super::Route;
use crate::clock::now_ns;
use crate::ownership::feed::MirrorFeed;
use crate::ownership::{Ownership, housekeeper, lock};
use crate::waiting;

impl Route {
    /// Starts the feed of the mirrors if they have subscribers and there is no feed yet.
    pub(in crate::ownership) fn start_feed_if_read(&self) {
        let (Some(ownership), Some(this)) = (self.ownership.upgrade(), self.this.upgrade()) else { return };
        let Some(topic) = self.topic() else { return };
        if topic.logs().iter().any(|log| log.has_subscribers()) {
            self.start_feed(&ownership, &this, &topic, Start::Latest);
        }
    }

    pub(super) fn start_feed(
        &self,
        ownership: &Arc<Ownership>,
        this: &Arc<Route>,
        topic: &Topic,
        start: Start,
    ) {
        let feed = {
            let mut state = lock(&self.state);
            let has_feed = state.feed.is_some() || state.owner == ownership.id || self.is_deleted();
            if has_feed || !ownership.is_alive(state.owner) {
                return;
            }
            let logs: Vec<_> = topic.logs().iter().map(Arc::downgrade).collect();
            let start = match (start, state.subscriber_since_ns) {
                // A position is valid for one log only, but this start applies to all logs of the topic. Their feed
                // therefore begins at the ends of the logs. A subscriber that resumes has a private mirror.
                (Start::After(_), _) if logs.len() > 1 => Start::Latest,
                // A subscriber that began to wait before the owner returned receives the records that were appended
                // since then.
                (Start::Latest, Some(since_ns)) => Start::Time(since_ns),
                (start, _) => start,
            };
            let from = (state.owner, state.epoch);
            let feed = MirrorFeed::new(this, logs, start, from, ownership.limits.unread_max);
            Arc::clone(state.feed.insert(Arc::new(feed)))
        };
        let from = feed.from;
        ownership.peers.feed_mirrors(from, feed);
    }

    /// Called when a mirror has received all records that the owner had.
    pub(in crate::ownership) fn on_caught_up(&self, feed: &MirrorFeed) {
        if feed.permit.is_none() {
            lock(&self.state).subscriber_since_ns = None;
        }
        self.notify_mirror_waiters();
        if let Some(ownership) = self.ownership.upgrade() {
            ownership.clear_late(feed.from);
        }
    }

    /// Wakes the threads that wait for a mirror. Call this after the mirror has changed.
    pub(in crate::ownership) fn notify_mirror_waiters(&self) {
        // Take the lock once. A thread that has seen the old state holds the lock until the thread waits, and so does
        // not miss the notification.
        drop(lock(&self.state));
        self.mirror_changed.notify_all();
    }

    /// Waits until `is_unplaced` returns `false`: the mirror then has all records that the owner had when the wait
    /// began. Returns at once if such a wait has failed shortly before, or on a thread that serves connections
    /// ([`Node::open_cursor`](crate::Node::open_cursor)).
    pub(super) fn await_mirror(&self, ownership: &Ownership, log: &Log, is_unplaced: impl Fn(&Log) -> bool) {
        if !waiting::is_allowed() {
            return;
        }
        let owner = self.owner().0;
        let may_wait =
            (self.kind == TopicKind::Volatile || ownership.is_alive(owner)) && !ownership.is_late(owner);
        let wait_max = if may_wait { ownership.limits.mirror_wait_max } else { Duration::ZERO };
        let state = lock(&self.state);
        // Wait even if the topic was deleted, because the feed may still deliver the topic's records.
        let waited = self.mirror_changed.wait_timeout_while(state, wait_max, |_| is_unplaced(log));
        let (mut state, timed_out) = waited.unwrap_or_else(PoisonError::into_inner);
        if timed_out.timed_out() && is_unplaced(log) {
            state.subscriber_since_ns.get_or_insert_with(now_ns);
            drop(state);
            if may_wait {
                ownership.record_late(owner);
            }
        }
    }

    /// Called when a feed has ended. If the mirrors have subscribers, another feed is started soon; otherwise the
    /// mirrors drop their records.
    pub(in crate::ownership) fn feed_ended(&self, feed: &Arc<MirrorFeed>, why: &str) {
        let Some(ownership) = self.ownership.upgrade() else { return };
        if feed.permit.is_some() {
            lock(&self.state).why = why.to_owned();
            return self.restart_private_feed(&ownership, feed);
        }
        let topic = self.topic();
        // Before the lock of `state` is taken, because `is_needed` may take it, too.
        let is_needed = feed.is_needed();
        {
            let mut state = lock(&self.state);
            state.why = why.to_owned();
            if state.feed.take_if(|last| Arc::ptr_eq(last, feed)).is_none() {
                return;
            }
            if self.is_deleted() {
                if state.owner == ownership.id || !is_needed || feed.is_of_deleted() {
                    drop(state);
                    return feed.close();
                }
                // Another thread that removes the topic now must find this feed. Otherwise it would close the mirrors.
                let next = feed.restart_from((state.owner, state.epoch));
                state.feed = Some(Arc::clone(&next));
                drop(state);
                return ownership.peers.feed_mirrors(next.from, next);
            }
            // No new feed can begin while the lock of `state` is held, so no new records are dropped here. During a
            // handover to this node (`draining`), the mirrors must keep their records.
            if let Some(topic) = topic
                && feed.is_accepted()
                && state.draining.is_none()
                && !topic.logs().iter().any(|log| log.has_subscribers())
            {
                topic.logs().iter().for_each(|log| log.clear_mirror());
            }
        }
        ownership.housekeeper.check_after(&self.this, housekeeper::PAUSE);
    }

    fn restart_private_feed(&self, ownership: &Arc<Ownership>, feed: &Arc<MirrorFeed>) {
        if self.is_deleted() && (feed.is_of_deleted() || !feed.is_needed()) {
            return feed.close();
        }
        if feed.logs.iter().any(|log| log.strong_count() > 0) {
            let (owner, epoch) = self.owner();
            let next = feed.restart_from((owner, epoch));
            if owner != feed.from && ownership.is_alive(owner) {
                // The owner has changed meanwhile. The new owner may be reachable, so do not wait.
                ownership.peers.feed_mirrors(owner, next);
            } else {
                ownership.housekeeper.feed_after(next, housekeeper::PAUSE);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::atomic::Ordering;
    use std::sync::{Mutex, mpsc};
    use std::task::{Wake, Waker};
    use std::thread;
    use std::time::Instant;

    use dunlin_control::{ControlCommand, ControlReply, Placement};
    use dunlin_topic::{ConsumeMode, Cursor, SubscribeOptions, TopicConfig, Upstream, Waiter};
    use dunlin_wait::PATIENCE;

    use super::*;
    use crate::config::Config;
    use crate::node::Node;
    use crate::ownership::{ClusterCommandError, InFlightBatch, OwnershipLimits, PeerNodes};
    use crate::storage::encode_config;

    /// A cluster in which no other node ever responds.
    #[derive(Debug)]
    struct Silent;

    impl PeerNodes for Silent {
        fn propose(&self, _: &ControlCommand<'_>) -> Result<ControlReply, ClusterCommandError> {
            Err(ClusterCommandError::Away("no node responds".to_owned()))
        }

        fn forward_batch(&self, _: u64, batch: InFlightBatch) {
            batch.not_appended("no node responds");
        }

        fn feed_mirrors(&self, _: u64, _: Arc<MirrorFeed>) {}
    }

    /// A cluster in which no other node responds, and whose requests for records the test reads.
    #[derive(Debug)]
    struct CapturedFeeds(Mutex<mpsc::Sender<Arc<MirrorFeed>>>);

    impl PeerNodes for CapturedFeeds {
        fn propose(&self, command: &ControlCommand<'_>) -> Result<ControlReply, ClusterCommandError> {
            Silent.propose(command)
        }

        fn forward_batch(&self, to: u64, batch: InFlightBatch) {
            Silent.forward_batch(to, batch);
        }

        fn feed_mirrors(&self, _: u64, feed: Arc<MirrorFeed>) {
            let _ = self.0.lock().unwrap().send(feed);
        }
    }

    /// A waker. Blocks the thread that calls it, until the test lets that thread continue.
    struct Stop(Mutex<mpsc::Sender<()>>, Mutex<mpsc::Receiver<()>>);

    impl Wake for Stop {
        fn wake(self: Arc<Stop>) {
            self.0.lock().unwrap().send(()).unwrap();
            let _ = self.1.lock().unwrap().recv();
        }
    }

    #[test]
    fn takeover_wakes_a_thread_that_begins_to_wait_meanwhile() {
        let node = Node::start(Config::default()).unwrap();
        let limits =
            OwnershipLimits { mirror_wait_max: Duration::from_secs(60), ..OwnershipLimits::default() };
        let ownership = node.join_cluster(1, Arc::new(Silent), limits);
        ownership.add_node(2, b"");
        let config = TopicConfig { partitions: 2, ..TopicConfig::default() };
        let config_text = encode_config("t", &config);
        let (kind, pattern, config) = (TopicKind::Volatile, &b"t"[..], config_text.as_bytes());
        let placement = Placement { owner: 2, epoch: 7, kind, pattern, config, from: 0 };
        ownership.apply_placement("t", &placement).unwrap();
        let (route, topic) = (ownership.route("t").unwrap(), node.topic("t").unwrap());

        // The thread that takes the topic over stops after the first of two logs.
        ownership.record_late(2);
        let options = SubscribeOptions::default();
        let first = Arc::clone(&topic.logs()[0]);
        let mut cursor = Cursor::new(first, &options, None, ConsumeMode::Reads).unwrap();
        ownership.clear_late(2);
        let ((stopped, is_stopped), (resume, may_resume)) = (mpsc::channel(), mpsc::channel());
        let waiter = Waiter::new();
        assert!(cursor.arm(&waiter, 0));
        let stop = Stop(stopped.into(), may_resume.into());
        assert!(waiter.set_waker(&Waker::from(Arc::new(stop))));
        let (thread_route, thread_topic) = (Arc::clone(&route), Arc::clone(&topic));
        let taking_over = thread::spawn(move || thread_route.take_over(&thread_topic, 8));
        is_stopped.recv().unwrap();

        // Order of events: this thread checks the second log, the other thread takes this log over, and then this
        // thread begins to wait.
        let (began, has_checked) = (Instant::now(), Cell::new(false));
        route.await_mirror(&ownership, &topic.logs()[1], |log| {
            let is_unplaced = log.is_mirror();
            if !has_checked.replace(true) {
                assert!(is_unplaced);
                resume.send(()).unwrap();
                let checked_at = Instant::now();
                while !taking_over.is_finished() && checked_at.elapsed() < Duration::from_millis(200) {
                    thread::yield_now();
                }
                assert!(!log.is_mirror());
            }
            is_unplaced
        });
        assert!(began.elapsed() < limits.mirror_wait_max / 2, "the wait timed out");
        taking_over.join().unwrap();
    }

    #[test]
    fn feed_of_a_deleted_topic_names_the_lost_owner() {
        let (send, feeds) = mpsc::channel();
        let node = Node::start(Config::default()).unwrap();
        let limits = OwnershipLimits { mirror_wait_max: Duration::ZERO, ..OwnershipLimits::default() };
        let ownership = node.join_cluster(1, Arc::new(CapturedFeeds(Mutex::new(send))), limits);
        [1, 2].into_iter().for_each(|member| ownership.add_node(member, b""));
        let config_text = encode_config("t", &TopicConfig::default());
        let (kind, pattern, config) = (TopicKind::Volatile, &b"t"[..], config_text.as_bytes());
        let placement = Placement { owner: 2, epoch: 7, kind, pattern, config, from: 0 };
        ownership.apply_placement("t", &placement).unwrap();
        let (route, topic) = (ownership.route("t").unwrap(), node.topic("t").unwrap());
        let log = Arc::clone(&topic.logs()[0]);
        let cursor = Cursor::new(log, &SubscribeOptions::default(), None, ConsumeMode::Reads).unwrap();
        let feed = feeds.recv_timeout(PATIENCE).expect("the node requests the records");
        assert_eq!((feed.end_reason(true), feed.end_reason(false)), (None, None));
        route.mark_deleted();
        assert_eq!(feed.end_reason(true), None);
        let why = feed.end_reason(false).expect("the feed ends");
        assert!(why.contains("owner"), "{why}");
        cursor.log().close();
        assert_eq!(feed.end_reason(true), Some("the topic was deleted"));
    }

    #[test]
    fn publisher_waiting_for_room_is_woken_when_the_owner_changes() {
        let node = Node::start(Config::default()).unwrap();
        let limits = OwnershipLimits { forwarded_bytes_max: 100, ..OwnershipLimits::default() };
        let ownership = node.join_cluster(1, Arc::new(Silent), limits);
        [2, 3].into_iter().for_each(|other| ownership.add_node(other, b""));
        let config_text = encode_config("t", &TopicConfig::default());
        let (kind, pattern, config) = (TopicKind::Volatile, &b"t"[..], config_text.as_bytes());
        let placement = Placement { owner: 2, epoch: 7, kind, pattern, config, from: 0 };
        ownership.apply_placement("t", &placement).unwrap();
        let route = ownership.route("t").unwrap();
        ownership.tickets.open(route.forward_target(2), 80).unwrap();
        let waiter = Waiter::new();
        route.await_room(&waiter);
        assert!(!waiter.is_ready(), "owner 2 has more than half of the bytes");
        ownership.apply_placement("t", &Placement { owner: 3, epoch: 8, ..placement }).unwrap();
        assert!(waiter.is_ready(), "owner 3 has room");
    }

    /// The former owner may know only one of the two epochs.
    #[test]
    fn refused_handover_is_retried_with_the_old_and_new_epoch() {
        let (send, feeds) = mpsc::channel();
        let node = Node::start(Config::default()).unwrap();
        let limits = OwnershipLimits { owner_wait_max: 5 * PATIENCE, ..OwnershipLimits::default() };
        let ownership = node.join_cluster(1, Arc::new(CapturedFeeds(Mutex::new(send))), limits);
        [1, 2].into_iter().for_each(|member| ownership.add_node(member, b""));
        ownership.has_begun_epochs.store(true, Ordering::Release);
        let config_text = encode_config("t", &TopicConfig::default());
        let (kind, pattern, config) = (TopicKind::Volatile, &b"t"[..], config_text.as_bytes());
        let placement = Placement { owner: 2, epoch: 7, kind, pattern, config, from: 0 };
        ownership.apply_placement("t", &placement).unwrap();
        ownership.apply_placement("t", &Placement { owner: 1, epoch: 9, from: 2, ..placement }).unwrap();
        for epoch in [7, 9, 7] {
            let feed = feeds.recv_timeout(PATIENCE).expect("the node requests the records");
            assert_eq!(feed.placement(), Some(("t".to_owned(), epoch)));
            feed.ended("refused");
        }
    }
}
