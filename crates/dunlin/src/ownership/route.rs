//! A route connects a topic at this node to the topic's owner: it forwards records to the owner, and feeds the topic's
//! mirrors with the owner's records.

mod feeding;
mod members;
mod publishers;
mod sending;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::Duration;

use dunlin_control::{ControlCommand, ControlReply, OwnerRequest, Placement, TopicKind};
use dunlin_topic::{
    AckProgress, Clock, ForwardedBatch, Log, Position, PublishError, Start, SubscribeOptions, SubscriberInfo,
    Topic, TopicConfig, Upstream, Waiter,
};

use super::feed::{MirrorFeed, PrivateMirrorPermit};
use super::forwarded::{InFlightBatch, next_placement};
use super::membership::RemoteMembership;
use super::presence::PublisherPresence;
use super::{ClusterCommandError, Ownership, lock};
use crate::clock::{STEADY, steady_ns};

/// The route from a topic at this node to the topic's owner, which may be this node.
#[derive(Debug)]
pub(crate) struct Route {
    this: Weak<Route>,
    ownership: Weak<Ownership>,
    pub(super) name: Arc<str>,
    pub(super) pattern: Arc<str>,
    pub(super) config: Arc<TopicConfig>,
    pub(super) kind: TopicKind,
    /// The first epoch of the topic that this node knows. Topics that had this name before had lower epochs.
    first_epoch: u32,
    state: Mutex<State>,
    /// The lock that keeps batches in order: it is held while batches are sent or appended. Take it before `state`.
    sending: Mutex<()>,
    /// Notified when a mirror has received all records that the owner had.
    mirror_changed: Condvar,
    /// The memberships of this node's subscribers in `share` groups at the topic's owner.
    members: Mutex<Vec<Weak<RemoteMembership>>>,
    /// Whether the topic was deleted. A later topic with the same name gets a route of its own.
    is_deleted: AtomicBool,
}

#[derive(Debug)]
struct State {
    topic: Weak<Topic>,
    owner: u64,
    epoch: u32,
    /// Set while this node, as the new owner, waits for records from the former owner.
    draining: Option<Draining>,
    /// Batches that wait to be sent or appended. Newer batches wait behind them.
    waiting: BTreeMap<u64, InFlightBatch>,
    /// Whether waiting batches are being appended to this node's log. Until this is done, the log accepts no other
    /// batches.
    appending: bool,
    /// The number of batches on their way to `sent_to`: they were sent, and have neither received a response nor been
    /// returned for another attempt. While there are such batches, no newer batch is sent to another node or appended
    /// to this node's log.
    in_flight: usize,
    sent_to: u64,
    /// The number of the flight to which the batches on their way belong. A flight is a series of batches that are on
    /// their way to a node at the same time.
    flight: u64,
    /// The number of the placement (owner and epoch) that was applied to the topic last.
    placement: u64,
    /// Batches that the owner refused because the owner does not have the topic. Their publishers get the error once
    /// this node has removed the topic, too. A publisher that then repeats its record finds no topic, or a later one
    /// with the same name.
    refused: Vec<RefusedBatch>,
    /// Whether this node has removed the topic, so that the route accepts no more batches.
    has_ended: bool,
    /// The ticket of the batch that was sent last. As long as batches are on their way, a waiting batch whose ticket is
    /// not higher than this was sent before, and was returned.
    sent_through: u64,
    feed: Option<Arc<MirrorFeed>>,
    /// The report to the owner that publishers are connected to this node; set only if another node is the owner.
    presence: Option<Arc<PublisherPresence>>,
    /// If this node has become the owner, the time until which the previous owner's publishers may connect to this
    /// node.
    publishers_until_ns: Option<u64>,
    /// The time since which the topic's owner has been unreachable.
    unreachable_since_ns: Option<u64>,
    /// The time, by the wall clock, at which a subscriber that wants only new records gave up waiting for its mirror.
    /// `None` without such a subscriber.
    subscriber_since_ns: Option<u64>,
    why: String,
}

/// A batch that the owner refused because the owner does not have the topic.
#[derive(Debug)]
struct RefusedBatch {
    batch: InFlightBatch,
    error: PublishError,
    /// When this time has passed, the publisher gets the error even if this node still has the topic.
    until_ns: u64,
}

/// A handover of records from the former owner to this node that is not complete yet.
#[derive(Debug, Clone, Copy)]
struct Draining {
    /// The former owner; `epoch` is that owner's epoch.
    from: u64,
    epoch: u32,
    /// When this time has passed, this node takes the topic over even if records of the former owner are missing.
    until_ns: u64,
    /// Whether the next request names the present epoch instead of `epoch`.
    names_present: bool,
}

/// How long a node without the topic's records waits before it asks to become the owner. A node that has the records
/// asks at once, and therefore becomes the owner.
const HOLDER_HEAD_START: Duration = Duration::from_millis(100);

impl Route {
    pub(super) fn new(
        ownership: &Arc<Ownership>,
        name: &str,
        config: &Arc<TopicConfig>,
        placement: &Placement<'_>,
    ) -> Arc<Route> {
        Arc::new_cyclic(|this| Route {
            this: Weak::clone(this),
            ownership: Arc::downgrade(ownership),
            name: name.into(),
            pattern: config.pattern.as_deref().unwrap_or(name).into(),
            config: Arc::clone(config),
            kind: placement.kind,
            first_epoch: placement.epoch,
            state: Mutex::new(State {
                topic: Weak::new(),
                owner: placement.owner,
                epoch: placement.epoch,
                draining: None,
                waiting: BTreeMap::new(),
                appending: false,
                in_flight: 0,
                sent_to: 0,
                flight: 0,
                placement: next_placement(),
                refused: Vec::new(),
                has_ended: false,
                sent_through: 0,
                feed: None,
                presence: None,
                publishers_until_ns: None,
                unreachable_since_ns: None,
                subscriber_since_ns: None,
                why: String::new(),
            }),
            sending: Mutex::default(),
            mirror_changed: Condvar::new(),
            members: Mutex::default(),
            is_deleted: AtomicBool::new(false),
        })
    }

    pub(super) fn set_topic(&self, topic: &Arc<Topic>) {
        lock(&self.state).topic = Arc::downgrade(topic);
    }

    /// The topic's owner, and the epoch that began with this owner.
    pub(crate) fn owner(&self) -> (u64, u32) {
        let state = lock(&self.state);
        (state.owner, state.epoch)
    }

    /// The epochs of the placements of this topic that this node knows.
    pub(super) fn epochs(&self) -> RangeInclusive<u32> {
        self.first_epoch..=self.owner().1
    }

    /// The epoch of a volatile topic, on which the cluster has agreed. `None` for a durable topic, because its owner
    /// begins epochs without the cluster.
    pub(super) fn volatile_epoch(&self) -> Option<u32> {
        (self.kind == TopicKind::Volatile).then(|| self.owner().1)
    }

    /// Whether this node has records of the topic, which a new owner needs.
    pub(super) fn holds_records(&self) -> bool {
        self.topic().is_some_and(|topic| topic.logs().iter().any(|log| log.info().next_seq > 1))
    }

    /// Whether a mirror at another node still reads the topic from this node.
    pub(super) fn is_fetched(&self) -> bool {
        let of_node = |subscriber: &SubscriberInfo| subscriber.name.starts_with(SubscribeOptions::MIRROR);
        self.topic().is_some_and(|topic| topic.subscribers().iter().any(of_node))
    }

    /// Marks the topic as deleted. Returns whether the mirrors still receive records. Such mirrors are closed later, when
    /// their feed ends. [`Route::end`] informs publishers and members of groups later.
    pub(super) fn mark_deleted(&self) -> bool {
        let state = lock(&self.state);
        self.is_deleted.store(true, Ordering::Release);
        state.feed.is_some()
    }

    /// Called when this node has removed the topic. Ends the batches that wait, with an error for their publishers, and
    /// the memberships that no owner ends. Wakes the threads that wait for a mirror, which may be closed now.
    pub(super) fn end(&self) {
        let (refused, waiting) = {
            let mut state = lock(&self.state);
            state.has_ended = true;
            (std::mem::take(&mut state.refused), std::mem::take(&mut state.waiting))
        };
        refused.into_iter().for_each(|refused| refused.batch.end(Err(PublishError::Closed)));
        waiting.into_values().for_each(|batch| batch.complete(Err(PublishError::Closed)));
        self.end_unserved_members();
        self.notify_mirror_waiters();
    }

    pub(super) fn is_deleted(&self) -> bool {
        self.is_deleted.load(Ordering::Acquire)
    }

    pub(super) fn topic(&self) -> Option<Arc<Topic>> {
        lock(&self.state).topic.upgrade()
    }

    /// Gives the topic the owner and the epoch of `next`, if this epoch is later than the present one.
    pub(super) fn apply_placement(&self, ownership: &Arc<Ownership>, next: &Placement<'_>) {
        let (topic, before, epoch_before, feed, refused) = {
            let mut state = lock(&self.state);
            if next.epoch <= state.epoch {
                return;
            }
            state.placement = next_placement();
            let before = std::mem::replace(&mut state.owner, next.owner);
            let epoch_before = std::mem::replace(&mut state.epoch, next.epoch);
            let is_own = ownership.owns_since_start(next.owner);
            let drains = is_own && next.from != 0 && ownership.is_alive(next.from);
            let until_ns = steady_ns().saturating_add(ownership.limits.owner_wait_max.as_nanos() as u64);
            let (from, epoch) = (next.from, epoch_before);
            state.draining = drains.then_some(Draining { from, epoch, until_ns, names_present: false });
            state.unreachable_since_ns = None;
            let refused = std::mem::take(&mut state.refused);
            (state.topic.upgrade(), before, epoch_before, state.feed.take(), refused)
        };
        feed.into_iter().for_each(|feed| feed.stop());
        // Do not send refused batches to the new owner. They may have been meant for a deleted topic. Meanwhile,
        // another topic with the same name may have been created without this node's knowledge.
        refused.into_iter().for_each(|refused| refused.batch.end(Err(refused.error)));
        if before != next.owner {
            ownership.tickets.owner_changed(Some(before));
        }
        let Some(topic) = topic else { return };
        if before == ownership.id && next.owner != ownership.id {
            let epoch = (next.from == before).then_some(next.epoch);
            topic.logs().iter().for_each(|log| log.hand_over(false, epoch));
            if let (Some(node), Err(why)) =
                (ownership.node_handle(), ownership.check_owner(&topic, "its groups can be joined"))
            {
                // This node's groups delivered the earlier records of the topic. They still deliver the topic's
                // remaining records from before the next owner's epoch.
                node.end_topic_groups(&topic, epoch.map(|_| epoch_before), &why);
            }
        }
        let draining = lock(&self.state).draining;
        if next.owner != ownership.id {
            self.start_feed_if_read();
        } else if let Some(draining) = draining {
            self.drain(ownership, &topic, draining);
            ownership.housekeeper.check_after(&self.this, ownership.limits.owner_wait_max);
        } else if ownership.owns_since_start(next.owner) {
            self.take_over(&topic, next.epoch);
        }
        ownership.housekeeper.check(&self.this);
    }

    fn take_over(&self, topic: &Topic, epoch: u32) {
        lock(&self.state).draining = None;
        self.begin_publisher_grace();
        topic.logs().iter().for_each(|log| log.take_over(epoch, false));
        self.notify_mirror_waiters();
    }

    /// Fetches the remaining records from the previous owner. This takes at most as long as publishers wait for an
    /// owner. The requests name the previous owner's epoch and the present one in turn: if the previous owner has
    /// restarted, it may know only epochs after the former, and if it lags, only epochs before the latter.
    fn drain(&self, ownership: &Arc<Ownership>, topic: &Arc<Topic>, draining: Draining) {
        let Some(this) = self.this.upgrade() else { return };
        let Draining { from, epoch, .. } = draining;
        let logs = topic.logs().iter().map(Arc::downgrade).collect();
        let wait_max = ownership.limits.owner_wait_max;
        let feed = {
            let mut state = lock(&self.state);
            if state.feed.is_some() {
                return;
            }
            let names_present = state.draining.as_mut().is_some_and(|draining| {
                draining.names_present = !draining.names_present;
                !draining.names_present
            });
            let named_epoch = if names_present { state.epoch } else { epoch };
            let mut feed = MirrorFeed::new(&this, logs, Start::Earliest, (from, named_epoch), wait_max);
            feed.after = Some(Position { epoch, seq: 0 });
            Arc::clone(state.feed.insert(Arc::new(feed)))
        };
        ownership.peers.feed_mirrors(from, feed);
    }

    /// Whether the previous owner is still handing its records over. If the feed has ended before all records arrived,
    /// starts it again.
    fn is_still_draining(&self, ownership: &Arc<Ownership>, topic: &Arc<Topic>, draining: Draining) -> bool {
        if steady_ns() >= draining.until_ns {
            return false;
        }
        if lock(&self.state).feed.is_some() {
            return true;
        }
        let is_alive = ownership.is_alive(draining.from);
        if is_alive {
            self.drain(ownership, topic, draining);
        }
        is_alive
    }

    /// Called when a mirror has reached `epoch`. If all mirrors have reached this node's epoch, the previous owner has
    /// handed all its records over, and this node takes the topic over.
    pub(super) fn epoch_reached(&self, epoch: u32) {
        let topic = {
            let state = lock(&self.state);
            if state.draining.is_none() || epoch != state.epoch {
                return;
            }
            state.topic.upgrade()
        };
        if let Some(topic) = topic.filter(|topic| topic.logs().iter().all(|log| log.last().epoch == epoch)) {
            self.take_over(&topic, epoch);
            if let Some(ownership) = self.ownership.upgrade() {
                ownership.housekeeper.check(&self.this);
            }
        }
    }

    fn owner_away_error(&self, why: &str) -> PublishError {
        let (owner, _) = self.owner();
        let name = &self.name;
        PublishError::OwnerAway(match self.kind {
            TopicKind::Volatile => {
                format!("topic {name:?}: its owner, node {owner}, is away: {why}")
            }
            _ => format!("topic {name:?} waits for its owner, node {owner}, to return: {why}"),
        })
    }

    /// Does the housekeeping of this topic. Only the housekeeping thread calls this, because the call may block.
    /// Returns whether more work is due soon.
    pub(super) fn maintain(&self, ownership: &Arc<Ownership>) -> bool {
        let has_refused = self.end_late_refusals(ownership);
        self.maintain_owner(ownership) || has_refused
    }

    /// If the owner is not a member of the cluster, requests another owner. Sends waiting batches, and feeds mirrors.
    /// Returns whether more work is due soon.
    fn maintain_owner(&self, ownership: &Arc<Ownership>) -> bool {
        let (owner, epoch, draining, has_waiting_batches) = {
            let state = lock(&self.state);
            let has_waiting_batches = !state.waiting.is_empty();
            (state.owner, state.epoch, state.draining, has_waiting_batches)
        };
        let Some(topic) = self.topic().filter(|_| !self.is_deleted()) else {
            self.end_unserved_members();
            // The topic was deleted. Batches still wait until this node has removed the topic, or until their time has
            // passed.
            self.fail_late_batches(ownership, false);
            return !lock(&self.state).waiting.is_empty();
        };
        if owner == ownership.id {
            match draining {
                Some(draining) if self.is_still_draining(ownership, &topic, draining) => return true,
                // The previous owner has not handed over all its records in time, or is unreachable.
                Some(_) => self.take_over(&topic, epoch),
                None => {}
            }
            self.place_members(ownership);
            self.count_returned_publishers(ownership, &topic);
            return self.append_waiting(ownership, &topic);
        }
        let is_read = topic.logs().iter().any(|log| log.has_subscribers());
        if !has_waiting_batches
            && !is_read
            && !self.has_unplaced_members()
            && !self.has_unannounced_publishers(&topic)
        {
            return false;
        }
        if !ownership.is_alive(owner) {
            if self.kind == TopicKind::Volatile {
                self.find_owner(ownership, &topic);
            }
            self.fail_late_batches(ownership, self.kind != TopicKind::Volatile);
            return self.kind == TopicKind::Volatile || !lock(&self.state).waiting.is_empty();
        }
        self.place_members(ownership);
        let has_more = self.send_waiting(ownership);
        self.start_feed_if_read();
        self.announce_publishers(ownership, &topic);
        has_more
    }

    /// If the owner is not a member of the cluster, requests another owner, because a mirror that serves a single
    /// subscriber needs a living owner.
    pub(super) fn find_owner_for_subscriber(&self, ownership: &Arc<Ownership>) {
        if self.kind == TopicKind::Volatile
            && let Some(topic) = self.topic().filter(|_| !self.is_deleted())
        {
            self.find_owner(ownership, &topic);
        }
    }

    fn find_owner(&self, ownership: &Arc<Ownership>, topic: &Topic) {
        let holds_records = topic.logs().iter().all(|log| log.has_subscribers() && log.is_positioned());
        let now_ns = steady_ns();
        let unreachable_ns = now_ns - *lock(&self.state).unreachable_since_ns.get_or_insert(now_ns);
        if !holds_records && unreachable_ns < HOLDER_HEAD_START.as_nanos() as u64 {
            return;
        }
        let wanted = OwnerRequest {
            topic: self.name.as_bytes(),
            pattern: self.pattern.as_bytes(),
            kind: self.kind,
            config: b"",
            epoch: ownership.epoch_after(self),
            node: ownership.id,
            holds: holds_records,
        };
        if ownership.has_recent_unanswered_request() {
            return;
        }
        match ownership.peers.propose(&ControlCommand::Place { request: wanted }) {
            Ok(ControlReply::Placed { owner, epoch, .. }) => {
                let (pattern, config) = (self.pattern.as_bytes(), &b""[..]);
                let next = Placement { owner, epoch, kind: self.kind, pattern, config, from: 0 };
                self.apply_placement(ownership, &next);
            }
            Ok(_) => {}
            Err(error) => {
                if let ClusterCommandError::Away(_) = error {
                    ownership.record_unanswered_request();
                }
                lock(&self.state).why = error.to_string();
            }
        }
    }
}

impl Upstream for Route {
    fn clock(&self) -> Clock {
        STEADY
    }

    fn owned_until_ns(&self) -> u64 {
        let Some(ownership) = self.ownership.upgrade() else { return 0 };
        let state = lock(&self.state);
        // This node accepts a new batch only if no older batch waits, and if no batch is on its way to the previous
        // owner. The previous owner could return such a batch for another attempt.
        let is_own = state.owner == ownership.id && state.draining.is_none();
        if is_own && state.waiting.is_empty() && !state.appending && state.in_flight == 0 {
            ownership.lease_until_ns.load(Ordering::Acquire)
        } else {
            0
        }
    }

    fn forward(&self, batch: ForwardedBatch<'_>) -> Result<u64, PublishError> {
        self.send(batch)
    }

    fn outcome(&self, ticket: u64, waiter: &Arc<Waiter>, token: u32) -> AckProgress {
        match self.ownership.upgrade() {
            Some(ownership) => ownership.tickets.outcome(ticket, waiter, token),
            None => AckProgress::Failed(PublishError::Closed),
        }
    }

    fn leave(&self, waiter: &Arc<Waiter>) {
        if let Some(ownership) = self.ownership.upgrade() {
            ownership.tickets.leave(waiter);
        }
    }

    fn await_room(&self, waiter: &Arc<Waiter>) {
        if let Some(ownership) = self.ownership.upgrade() {
            let (owner, _) = self.owner();
            ownership.tickets.await_room(self.forward_target(owner), waiter);
            if self.owner().0 != owner {
                // The owner has changed before the waiter was registered, so nothing else would notify the waiter.
                waiter.notify(Waiter::ROOM);
            }
        }
    }

    fn start_feed(&self, log: &Arc<Log>, start: Start) {
        let (Some(ownership), Some(this)) = (self.ownership.upgrade(), self.this.upgrade()) else { return };
        let Some(topic) = self.topic() else { return };
        self.start_feed(&ownership, &this, &topic, start);
        if !ownership.is_alive(self.owner().0) {
            ownership.housekeeper.check(&self.this);
        }
        self.await_mirror(&ownership, log, |log| log.is_mirror() && !log.is_positioned());
    }

    fn publishers_changed(&self) {
        // When the last publisher leaves, there is nothing to do here: [`PublisherPresence::is_needed`] then returns
        // `false`.
        if let Some(ownership) = self.ownership.upgrade()
            && self.topic().is_some_and(|topic| self.has_unannounced_publishers(&topic))
        {
            ownership.housekeeper.check(&self.this);
        }
    }

    fn private_mirror(
        &self,
        log: &Arc<Log>,
        start: Start,
        registered: bool,
        keeps_history: bool,
    ) -> Option<Arc<Log>> {
        let (ownership, this) = (self.ownership.upgrade()?, self.this.upgrade()?);
        let (owner, epoch, is_draining) = {
            let state = lock(&self.state);
            (state.owner, state.epoch, state.draining.is_some())
        };
        if ownership.owns_since_start(owner) && !is_draining {
            // The topic has just moved to this node, and no other node has more records. The subscriber reads this
            // node's log.
            return None;
        }
        let permit =
            PrivateMirrorPermit::take(&ownership.private_mirrors, ownership.limits.private_mirrors_max)?;
        let private = Log::private_mirror(log, ownership.limits.private_bytes_max);
        if let Start::After(at) = start {
            private.start_after(at);
        }
        let (logs, unread_max) = (vec![Arc::downgrade(&private)], ownership.limits.unread_max);
        let mut feed = MirrorFeed::new(&this, logs, start, (owner, epoch), unread_max);
        (feed.permit, feed.registered, feed.keeps_history) = (Some(permit), registered, keeps_history);
        if let Start::After(at) = start {
            // The position is one in this log, and this feed serves only this log.
            feed.after = Some(at);
        }
        let feed = Arc::new(feed);
        if ownership.is_alive(owner) {
            ownership.peers.feed_mirrors(owner, feed);
        } else {
            ownership.housekeeper.feed_after(feed, Duration::ZERO);
        }
        // A subscriber that starts after a named position can start before the mirror has received records.
        if !matches!(start, Start::After(_)) {
            self.await_mirror(&ownership, &private, |private| !private.is_positioned());
        }
        Some(private)
    }
}
