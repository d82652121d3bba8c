//! A feed receives a topic's records from the node that owns the topic, and stores them in this node's mirrors of the
//! topic. A mirror is this node's copy of one of the topic's logs.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use dunlin_topic::{
    CheckedBatch, Event, Log, LogName, MirrorFeedError, Notice, OnGap, Position, Start, SubscribeOptions,
    SubscriberInfo, Waiter,
};

use super::route::Route;
use crate::clock::steady_ns;

/// The protocol name of subscribers that are mirrors at other nodes.
pub const NODE_PROTOCOL: &str = "node";

/// The name of a subscription that feeds a mirror for a single subscriber, for which the owner keeps no history.
const PRIVATE_MIRROR: &str = "mirror of one subscriber";

/// Whether the subscriber is a mirror at another node. The other node lists the subscribers that read this mirror.
pub fn is_mirror(subscriber: &SubscriberInfo) -> bool {
    let names = [SubscribeOptions::MIRROR, PRIVATE_MIRROR, SubscribeOptions::MIRROR_WITH_HISTORY];
    subscriber.protocol == NODE_PROTOCOL && names.contains(&subscriber.name.as_str())
}

/// Whether the subscriber is a mirror at another node that several subscribers there share.
pub(super) fn is_shared_mirror(subscriber: &SubscriberInfo) -> bool {
    subscriber.protocol == NODE_PROTOCOL && subscriber.name == SubscribeOptions::MIRROR
}

/// Receives records from a topic's owner, and appends them to this node's mirrors of the topic.
#[derive(Debug)]
pub struct MirrorFeed {
    /// The pattern of the topic's subjects.
    pub pattern: Arc<str>,
    pub(super) route: Weak<Route>,
    pub(super) logs: Vec<Weak<Log>>,
    /// The permit of a mirror that serves a single subscriber; `None` for mirrors that all subscribers share.
    pub(super) permit: Option<Arc<PrivateMirrorPermit>>,
    pub(super) start: Start,
    /// The position before the first requested record. Used if the mirrors have no records, for example when the owner
    /// hands over all its records to this node.
    pub(super) after: Option<Position>,
    pub(super) is_stateful: bool,
    pub(super) registered: bool,
    /// Whether the owner keeps history for the mirror's single subscriber, which cannot receive gaps.
    pub(super) keeps_history: bool,
    /// The owner that sends the records.
    pub(super) from: u64,
    /// An epoch of the topic's placement. It identifies the topic: a later topic with the same name has later epochs.
    epoch: u32,
    /// Whether the topic was already deleted when the feed was created.
    is_of_deleted: bool,
    pub(super) unread_max: Duration,
    stopped: AtomicBool,
    accepted: AtomicBool,
    read_ns: AtomicU64,
    /// Notified when a mirror that serves a single subscriber may have room again.
    room: Arc<Waiter>,
}

/// A permit for a mirror that serves a single subscriber. Dropping the value returns the permit.
#[derive(Debug)]
pub(super) struct PrivateMirrorPermit(Arc<AtomicUsize>);

impl PrivateMirrorPermit {
    /// Takes a permit. Returns `None` if `max` permits are already taken.
    pub(super) fn take(taken: &Arc<AtomicUsize>, max: usize) -> Option<Arc<PrivateMirrorPermit>> {
        let permit = PrivateMirrorPermit(Arc::clone(taken));
        (taken.fetch_add(1, Ordering::Relaxed) < max).then(|| Arc::new(permit))
    }
}

impl Drop for PrivateMirrorPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The position from which a mirror needs the owner's records.
#[derive(Debug, Clone, PartialEq)]
pub enum MirrorFeedStart {
    /// The mirror needs the records of all logs of the topic, from this start.
    At(Start),
    /// For each log, the position of the last record that the mirror has. The mirror needs the records after it.
    After(Vec<(Arc<LogName>, Position)>),
}

/// The result of passing an event from the owner to a mirror: the event was applied, must be passed again, or ends the
/// feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MirrorFeedOutcome {
    /// The mirror has applied the event.
    Applied,
    /// The mirror has no room until its single subscriber reads. Pass the same event again after a pause, or as soon as
    /// [`MirrorFeed::room`] is notified.
    Retry,
    /// Pass no more events: this node owns the topic now, or the mirror cannot continue.
    Ended,
}

impl MirrorFeed {
    pub(super) fn new(
        route: &Arc<Route>,
        logs: Vec<Weak<Log>>,
        start: Start,
        (from, epoch): (u64, u32),
        unread_max: Duration,
    ) -> MirrorFeed {
        MirrorFeed {
            pattern: Arc::clone(&route.pattern),
            route: Arc::downgrade(route),
            logs,
            permit: None,
            after: None,
            start,
            is_stateful: route.config.reducer.is_some(),
            registered: false,
            keeps_history: false,
            from,
            epoch,
            is_of_deleted: route.is_deleted(),
            unread_max,
            stopped: AtomicBool::new(false),
            accepted: AtomicBool::new(false),
            read_ns: AtomicU64::new(steady_ns()),
            room: Waiter::new(),
        }
    }

    /// The options with which the mirror subscribes to the topic at the owner.
    pub fn options(&self) -> SubscribeOptions {
        let name = match (&self.permit, self.keeps_history) {
            (None, _) => SubscribeOptions::MIRROR,
            (Some(_), false) => PRIVATE_MIRROR,
            (Some(_), true) => SubscribeOptions::MIRROR_WITH_HISTORY,
        };
        let follows_state = self.is_stateful && self.permit.is_none();
        SubscribeOptions {
            name: name.to_owned(),
            on_gap: if follows_state { OnGap::Snapshot } else { OnGap::Oldest },
            registered: self.registered,
            ..SubscribeOptions::default()
        }
    }

    /// The topic's name, and an epoch of its placement. The owner sends no records of another topic with this name.
    pub fn placement(&self) -> Option<(String, u32)> {
        let route = self.route.upgrade()?;
        Some((route.name.to_string(), self.epoch))
    }

    /// The position from which the mirrors need the owner's records.
    pub fn start_position(&self) -> MirrorFeedStart {
        let logs: Vec<Arc<Log>> = self.logs.iter().filter_map(Weak::upgrade).collect();
        let last_positions: Vec<_> = logs
            .iter()
            .filter_map(|log| Some((Arc::clone(log.name()), log.fed_through().or(self.after)?)))
            .collect();
        if !logs.is_empty() && last_positions.len() == logs.len() {
            return MirrorFeedStart::After(last_positions);
        }
        MirrorFeedStart::At(if self.is_stateful && self.permit.is_none() {
            Start::Snapshot
        } else {
            self.start
        })
    }

    /// Whether the owner should still send records to the mirrors.
    pub fn is_needed(&self) -> bool {
        self.unneeded_reason().is_none()
    }

    /// Why the owner should send no more records to the mirrors; `None` if it should send them.
    pub fn unneeded_reason(&self) -> Option<&'static str> {
        let Some(route) = self.route.upgrade() else { return Some("this node has no such topic any more") };
        // For a mirror that serves a single subscriber, a feed from a former owner is useless: the former owner has no
        // new records, or receives them from the present owner.
        let has_moved = self.permit.is_some() && route.owner().0 != self.from;
        if has_moved || self.stopped.load(Ordering::Acquire) {
            return Some("the topic has another owner now");
        }
        let logs: Vec<Arc<Log>> = self.logs.iter().filter_map(Weak::upgrade).collect();
        if !logs.iter().any(|log| log.is_mirror() && !log.is_closed()) {
            return Some(match logs.first() {
                None => "the mirror has no subscribers",
                Some(_) if route.is_deleted() => "the topic was deleted",
                Some(_) => "this node owns the topic now",
            });
        }
        let now_ns = steady_ns();
        if logs.iter().any(|log| log.has_subscribers()) {
            self.read_ns.store(now_ns, Ordering::Relaxed);
            return None;
        }
        let unread_ns = now_ns.saturating_sub(self.read_ns.load(Ordering::Relaxed));
        (unread_ns >= self.unread_max.as_nanos() as u64).then_some("the mirror has no subscribers")
    }

    /// Why the feed ends instead of being requested from the owner; `None` if it should be requested. `is_owner_alive`
    /// states whether the owner takes part in the cluster.
    pub(super) fn end_reason(&self, is_owner_alive: bool) -> Option<&'static str> {
        let is_deleted = || self.route.upgrade().is_some_and(|route| route.is_deleted());
        let lost_with_owner = "the topic was deleted, and its owner has left the cluster or is down";
        self.unneeded_reason().or_else(|| (!is_owner_alive && is_deleted()).then_some(lost_with_owner))
    }

    /// Makes a new feed for the same mirrors. `from` is the owner that will send the records; `epoch` is the epoch that
    /// began with this owner.
    pub(super) fn restart_from(&self, (from, epoch): (u64, u32)) -> Arc<MirrorFeed> {
        Arc::new(MirrorFeed {
            pattern: Arc::clone(&self.pattern),
            route: Weak::clone(&self.route),
            logs: self.logs.clone(),
            permit: self.permit.clone(),
            after: self.after,
            start: self.start,
            is_stateful: self.is_stateful,
            registered: self.registered,
            keeps_history: self.keeps_history,
            from,
            epoch,
            is_of_deleted: self.route.upgrade().is_none_or(|route| route.is_deleted()),
            unread_max: self.unread_max,
            stopped: AtomicBool::new(false),
            accepted: AtomicBool::new(false),
            read_ns: AtomicU64::new(self.read_ns.load(Ordering::Relaxed)),
            room: Waiter::new(),
        })
    }

    /// Whether the topic was already deleted when the feed was created. The owner keeps a deleted topic for a while. A
    /// feed that began before the deletion is therefore repeated once, if its mirrors are still needed.
    pub(super) fn is_of_deleted(&self) -> bool {
        self.is_of_deleted
    }

    /// Whether the owner has accepted the feed's subscription.
    pub(super) fn is_accepted(&self) -> bool {
        self.accepted.load(Ordering::Acquire)
    }

    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
    }

    /// Called once the owner has accepted the subscription. `after` has the position before the first record of each
    /// log.
    pub fn on_accepted(&self, after: &[(Arc<LogName>, Position)]) {
        self.accepted.store(true, Ordering::Release);
        for (name, after) in after {
            let Some(log) = self.log(name) else { continue };
            if self.is_stateful && self.permit.is_none() && log.fed_through().is_none() {
                // The state arrives first, and says where the log's records begin.
                continue;
            }
            log.feed_from(*after);
        }
        if let Some(route) = self.route.upgrade() {
            route.on_caught_up(self);
        }
        after.iter().for_each(|(_, after)| self.epoch_reached(after.epoch));
    }

    fn log(&self, name: &LogName) -> Option<Arc<Log>> {
        if self.permit.is_some() {
            return self.logs.first()?.upgrade().filter(|log| log.name().partition == name.partition);
        }
        self.logs.get(usize::from(name.partition))?.upgrade()
    }

    /// Applies an event of the owner to the mirrors. `frame` is a reusable buffer for encoding.
    pub fn apply(&self, event: &Event<'_>, frame: &mut Vec<u8>) -> MirrorFeedOutcome {
        match event {
            Event::Record(record) => {
                frame.clear();
                record.frame.append_to(frame);
                self.apply_record(record.log, record.position, record.prev_seq, frame)
            }
            Event::Notice(notice) => self.apply_notice(notice),
        }
    }

    /// Applies a record to the mirrors; `frame` is the record's frame. If the outcome is
    /// [`Retry`](MirrorFeedOutcome::Retry), call this again with the same record.
    pub fn apply_record(
        &self,
        log: &LogName,
        position: Position,
        prev_seq: u64,
        frame: &[u8],
    ) -> MirrorFeedOutcome {
        let Some(log) = self.log(log) else { return MirrorFeedOutcome::Applied };
        if self.permit.is_some() && log.info().registered == 0 {
            return MirrorFeedOutcome::Retry;
        }
        let Ok(batch) = CheckedBatch::check(frame, 1, usize::MAX) else { return MirrorFeedOutcome::Ended };
        match log.feed(position, prev_seq, batch) {
            Ok(()) => MirrorFeedOutcome::Applied,
            Err(MirrorFeedError::Full) => {
                log.await_room(&self.room);
                MirrorFeedOutcome::Retry
            }
            Err(MirrorFeedError::Own) => MirrorFeedOutcome::Ended,
            // The record does not fit the mirror's state. End this feed: the next one begins with the owner's state.
            Err(_) if log.is_stateful() => MirrorFeedOutcome::Ended,
            Err(_) => {
                // The mirror cannot store the record, so its subscribers receive a gap.
                log.feed_gap(position);
                MirrorFeedOutcome::Applied
            }
        }
    }

    fn apply_notice(&self, notice: &Notice) -> MirrorFeedOutcome {
        match notice {
            Notice::Gap(gap) => {
                if let Some(log) = self.log(&gap.log) {
                    log.feed_gap(Position { epoch: gap.epoch, seq: gap.last });
                }
            }
            Notice::Lagging(lagging) => {
                if let Some(log) = self.log(&lagging.log) {
                    log.feed_lagging(lagging.behind, lagging.retained);
                }
            }
            Notice::EpochChanged(changed) => {
                if let Some(log) = self.log(&changed.log) {
                    log.feed_epoch(changed);
                }
                self.epoch_reached(changed.new_first.epoch);
            }
            Notice::Snapshot(snapshot) => {
                if let Some(log) = self.log(&snapshot.log) {
                    if log.feed_state(snapshot.position, &snapshot.bytes).is_err() {
                        return MirrorFeedOutcome::Ended;
                    }
                    if let Some(route) = self.route.upgrade() {
                        route.on_caught_up(self);
                    }
                    self.epoch_reached(snapshot.position.epoch);
                }
            }
            Notice::Checksum(checksum) => {
                let log = self.log(&checksum.log);
                if log.is_some_and(|log| !log.feed_checksum(checksum.position, checksum.checksum)) {
                    return MirrorFeedOutcome::Ended;
                }
            }
            Notice::Publishers(publishers) => {
                if let Some(log) = self.log(&publishers.log) {
                    log.feed_publishers(publishers);
                }
            }
            Notice::Deleted { log, .. } => {
                // This node may not know yet that the topic was deleted. Mark it now: no records of a later topic with
                // the same name may be appended here.
                if let Some(route) = self.route.upgrade() {
                    route.mark_deleted();
                }
                self.log(log).into_iter().for_each(|log| log.close());
                // The owner may not have sent all records of the other logs yet.
                if self.logs.iter().filter_map(Weak::upgrade).all(|log| log.is_closed()) {
                    return MirrorFeedOutcome::Ended;
                }
            }
            _ => {}
        }
        MirrorFeedOutcome::Applied
    }

    /// Closes the logs because the topic was deleted. Subscribers can still read the remaining records. If the owner
    /// has not reported the end of a log, subscribers receive a report of an unknown loss.
    pub(super) fn close(&self) {
        // If this node owns the topic now, close the log only if the topic was deleted at this node.
        let is_deleted = self.route.upgrade().is_none_or(|route| route.is_deleted());
        for log in self.logs.iter().filter_map(Weak::upgrade) {
            if is_deleted || log.is_mirror() {
                log.close_unfed(self.epoch);
            }
        }
        if let Some(route) = self.route.upgrade() {
            route.notify_mirror_waiters();
        }
    }

    /// Tells the topic's route that a log has reached `epoch`.
    fn epoch_reached(&self, epoch: u32) {
        if let Some(route) = self.route.upgrade() {
            route.epoch_reached(epoch);
        }
    }

    /// The waiter that is notified when this feed's mirror may have room again. Used for a mirror that serves a single
    /// subscriber.
    pub fn room(&self) -> &Arc<Waiter> {
        &self.room
    }

    /// Called when the feed has ended. `why` is the reason.
    pub fn ended(self: &Arc<MirrorFeed>, why: &str) {
        if let Some(route) = self.route.upgrade() {
            route.feed_ended(self, why);
        }
    }
}
