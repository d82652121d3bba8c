//! Memberships of this node's subscribers in `share` groups whose topic another node owns.
//!
//! When the topic moves, a membership moves to the new owner. If this node becomes the owner, the member joins the
//! group here.
//!
//! When the topic is deleted, the owner ends the membership after the last record. This node may learn of the deletion
//! before the owner.
//!
//! When a member leaves, the owner stops sending records to it, and sends a confirmation after the last record. The
//! member still reads the records that arrive before this confirmation. The owner gives unconsumed records to other
//! members. This node therefore reports to the owner which records were consumed, not which ones arrived.
//!
//! Invariant: a record is delivered at most once. A group at the next owner begins with that owner's epoch.
//!
//! Limits: at most [`UNREAD_RECORDS_MAX`] records and about [`UNREAD_BYTES_MAX`] bytes that the member has not read. At
//! one of these limits, this node takes no more records from the owner.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};

use dunlin_topic::{Notice, Position, Start, SubscribeError, Topic, Waiter};
use dunlin_wire::ErrorCode;

use super::route::Route;
use super::{Ownership, housekeeper, lock};
use crate::refusal::Refused;

/// The maximum number of records that have arrived and that the member has not read.
const UNREAD_RECORDS_MAX: usize = 1_024;
/// The maximum size of the records that have arrived and that the member has not read, bytes.
const UNREAD_BYTES_MAX: usize = 1 << 20;

/// The options with which a member joins a share group at another node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteMemberOptions {
    /// The group's name.
    pub group: String,
    /// The member's name, which operators see.
    pub member: String,
    /// If this member creates the group: the user to whose limit on groups the group counts.
    pub user: Option<String>,
    /// Whether the group continues to exist after its last member has left.
    pub lasting: bool,
}

/// The membership of a subscriber at this node in a share group whose topic another node owns.
#[derive(Debug)]
pub struct RemoteMembership {
    /// The topic's name.
    pub topic: String,
    /// The options with which the member joins the group.
    pub options: RemoteMemberOptions,
    route: Weak<Route>,
    /// The waiter that is notified of events for the member, and the token of these notifications.
    wakeup: (Arc<Waiter>, u32),
    /// The number of the topic's partitions, as far as this node knows.
    partitions: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The start of the group, if this member creates it. If an owner has accepted the member before, this is a
    /// position with two numbers of that membership: its epoch and, in place of a sequence number, the number of the
    /// owner's run.
    start: Start,
    /// The topic's epoch when the membership began; 0 for a durable topic. If the member wants only new records and
    /// creates the group in a later epoch, the group delivers all records of epochs after `joined_epoch`.
    joined_epoch: u32,
    /// Whether an owner was asked for the membership, and has not refused or ended it since.
    is_requested: bool,
    /// Whether no owner has responded to a request for the membership yet.
    awaits_first_response: bool,
    unread: VecDeque<RemoteEvent>,
    unread_bytes: usize,
    outcome: Option<RemoteEnd>,
    /// The number of the topic's logs whose deletion the owner of the present membership has not reported.
    open_logs: usize,
    /// Whether the member has asked the owner to send no more records. The membership then ends after the records that
    /// were already sent.
    is_ending: bool,
    has_left: bool,
    /// How often an owner has ended the membership. Records that arrived under a lower number came from an earlier
    /// owner; their consumption is not reported to the present owner.
    term: u32,
    /// For each partition, the last consumed record, unless it was already reported to the owner.
    consumed: Vec<(u16, Position)>,
}

/// An event for the member, received from the topic's owner.
#[derive(Debug)]
pub(crate) enum RemoteEvent {
    /// A record with its frame.
    Record { partition: u16, position: Position, frame: Box<[u8]>, term: u32 },
    /// A notice, such as a gap for records that the whole group has lost.
    Notice(Notice),
}

/// The reason why the member receives no more events from another node.
#[derive(Debug, Clone)]
pub(crate) enum RemoteEnd {
    /// This node owns the topic now. If the member creates the group at this node, the group starts at this position.
    MovedHere(Start),
    /// The membership was refused, or the topic was deleted.
    Ended(SubscribeError),
}

impl Ownership {
    /// Asks the topic's owner for a membership. `wakeup` is notified of events for the member. Returns `None` if this
    /// node does not know another owner of the topic.
    pub(crate) fn join_remote(
        self: &Arc<Ownership>,
        topic: &Topic,
        options: RemoteMemberOptions,
        start: Start,
        wakeup: (Arc<Waiter>, u32),
    ) -> Option<Arc<RemoteMembership>> {
        let route = self.route(topic.name())?;
        let state = State {
            start,
            joined_epoch: route.volatile_epoch().unwrap_or(0),
            is_requested: false,
            awaits_first_response: true,
            unread: VecDeque::new(),
            unread_bytes: 0,
            outcome: None,
            open_logs: topic.logs().len(),
            is_ending: false,
            has_left: false,
            term: 0,
            consumed: Vec::new(),
        };
        let membership = Arc::new(RemoteMembership {
            topic: topic.name().to_owned(),
            options,
            route: Arc::downgrade(&route),
            wakeup,
            partitions: topic.logs().len(),
            state: Mutex::new(state),
        });
        route.add_member(self, &membership);
        Some(membership)
    }
}

impl RemoteMembership {
    /// The position at which the group starts, if this member creates it.
    pub fn start(&self) -> Start {
        lock(&self.state).start
    }

    /// Whether the membership is still needed, because the member has not left yet.
    pub fn is_needed(&self) -> bool {
        !lock(&self.state).has_left
    }

    /// Whether the owner should send no more records to this member.
    pub fn is_ending(&self) -> bool {
        lock(&self.state).is_ending
    }

    /// For each partition in which records were consumed since the previous call, the last such record.
    pub fn take_consumed(&self) -> Vec<(u16, Position)> {
        std::mem::take(&mut lock(&self.state).consumed)
    }

    /// Whether the member has room for another record.
    pub fn has_room(&self) -> bool {
        let state = lock(&self.state);
        state.unread.len() < UNREAD_RECORDS_MAX && state.unread_bytes < UNREAD_BYTES_MAX
    }

    /// Takes a record that the owner has sent; `frame` is the record's frame.
    pub fn receive_record(&self, partition: u16, position: Position, frame: &[u8]) {
        if usize::from(partition) >= self.partitions {
            // The topic was deleted, and created again with more partitions. This node does not know that yet.
            return self.close();
        }
        let term = lock(&self.state).term;
        self.push(RemoteEvent::Record { partition, position, frame: frame.into(), term }, frame.len());
    }

    /// Takes a notice that the owner has sent. The membership ends when all logs of the topic were deleted.
    pub fn receive_notice(&self, notice: Notice) {
        let is_deletion = matches!(notice, Notice::Deleted { .. });
        self.push(RemoteEvent::Notice(notice), 0);
        let has_open_logs = {
            let mut state = lock(&self.state);
            state.open_logs = state.open_logs.saturating_sub(usize::from(is_deletion));
            state.open_logs > 0
        };
        if !has_open_logs {
            self.close();
        }
    }

    /// Called when the owner has ended or refused the membership. If the reason `why` is temporary, the present owner
    /// is asked again.
    pub fn ended(&self, why: &SubscribeError) {
        if self.is_ending() {
            return self.close();
        }
        if !is_temporary(why) {
            return self.end(RemoteEnd::Ended(why.clone()));
        }
        let is_first_response = {
            let mut state = lock(&self.state);
            state.is_requested = false;
            state.term += 1;
            state.consumed.clear();
            // The next membership reports the deletion of each log again.
            state.open_logs = self.partitions;
            std::mem::take(&mut state.awaits_first_response)
        };
        if is_first_response {
            self.notify();
        }
        if let Some(route) = self.route.upgrade() {
            route.check_again_after(housekeeper::PAUSE);
        }
    }

    /// Ends the membership because the topic was deleted, or because the member needs no more records.
    pub(super) fn close(&self) {
        self.end(RemoteEnd::Ended(SubscribeError::Closed));
    }

    /// Called when the topic was deleted. Ends the membership, unless an owner was asked for it: that owner may still
    /// send records, and then ends it itself. `last_epoch` is the topic's last epoch, if it is known. An owner that has
    /// accepted the membership in a later epoch has added it to a group of a later topic with the same name.
    pub(super) fn topic_deleted(&self, last_epoch: Option<u32>) {
        let ends_now = {
            let state = lock(&self.state);
            let is_later =
                matches!((state.start, last_epoch), (Start::After(at), Some(last)) if at.epoch > last);
            state.outcome.is_none() && (is_later || !state.is_requested)
        };
        if ends_now {
            self.close();
        }
    }

    /// Called when this node has become the topic's owner, in the epoch `epoch`.
    pub(super) fn move_here(&self, epoch: u32) {
        {
            let mut state = lock(&self.state);
            if !state.is_unplaced() {
                return;
            }
            state.include_later_epochs(epoch);
            state.outcome = Some(RemoteEnd::MovedHere(state.start));
        }
        self.notify();
    }

    /// Whether an owner still has to be asked for the membership.
    pub(super) fn is_unplaced(&self) -> bool {
        lock(&self.state).is_unplaced()
    }

    /// Returns whether the caller has to ask the owner of this epoch for the membership. The result is `false` if
    /// another thread has already done so, or if no owner has to be asked. An owner that was asked twice would keep two
    /// members for this membership. When one of them ended, the owner would not know which.
    #[must_use]
    pub(super) fn begin_request(&self, epoch: u32) -> bool {
        let mut state = lock(&self.state);
        let is_unplaced = state.is_unplaced();
        if is_unplaced {
            state.include_later_epochs(epoch);
            state.is_requested = true;
        }
        is_unplaced
    }

    /// Called when the owner has accepted the membership, in a group that delivers records of `epoch`. `owner` is the
    /// number of the owner's [run](crate::Node::id). If the member later joins another group, at another owner or after
    /// a lost connection, that group does not deliver records of `epoch` again. But if the owner was restarted, the
    /// group delivers the records of `epoch` since the restart.
    ///
    /// `epoch` may differ from the epoch for which the owner was asked. A durable topic begins an epoch with each start
    /// of its owner. An owner that does not know yet that the topic has moved back to it accepts the member in an
    /// earlier epoch.
    pub fn on_accepted(&self, epoch: u32, owner: u64) {
        let is_first_response = {
            let mut state = lock(&self.state);
            let is_newest = !matches!(state.start, Start::After(at) if at.epoch > epoch);
            if state.is_requested && is_newest {
                state.start = Start::After(Position { epoch, seq: owner });
            }
            std::mem::take(&mut state.awaits_first_response)
        };
        if is_first_response {
            self.notify();
        }
        if let Some(route) = self.route.upgrade().filter(|route| route.is_deleted()) {
            route.end_unserved_members();
        }
    }

    /// Whether an owner was asked for the membership for the first time and has not responded yet. The member is
    /// notified of the response.
    pub(crate) fn is_joining(&self) -> bool {
        let state = lock(&self.state);
        state.is_requested && state.awaits_first_response && state.outcome.is_none()
    }

    /// Returns the next event. The error says why there are no more events.
    pub(crate) fn next(&self) -> Result<Option<RemoteEvent>, RemoteEnd> {
        let mut state = lock(&self.state);
        let next = state.unread.pop_front();
        match (&next, &state.outcome) {
            (None, Some(outcome)) => return Err(outcome.clone()),
            (Some(RemoteEvent::Record { frame, .. }), _) => state.unread_bytes -= frame.len(),
            _ => {}
        }
        Ok(next)
    }

    /// Whether an event is available or the membership has ended. Otherwise, the member is notified of the next event.
    pub(crate) fn has_events(&self) -> bool {
        let state = lock(&self.state);
        !state.unread.is_empty() || state.outcome.is_some()
    }

    /// Called when the member has consumed the record at `position` and all records before it in the partition. `term`
    /// is the value of `State::term` with which the record arrived.
    pub(crate) fn record_consumed(&self, term: u32, partition: u16, position: Position) {
        let mut state = lock(&self.state);
        if term != state.term {
            return;
        }
        match state.consumed.iter_mut().find(|(other, _)| *other == partition) {
            Some((_, at)) => *at = position,
            None => state.consumed.push((partition, position)),
        }
    }

    /// Asks the owner to send no more records. [`next`](RemoteMembership::next) still returns the records that were
    /// already sent, and then ends.
    pub(crate) fn stop_delivery(&self) {
        let is_requested = {
            let mut state = lock(&self.state);
            state.is_ending = true;
            state.is_requested
        };
        if !is_requested {
            self.close();
        }
    }

    /// Called when the member leaves the group.
    pub(crate) fn leave(&self) {
        lock(&self.state).has_left = true;
    }

    fn push(&self, received: RemoteEvent, bytes: usize) {
        let is_first = {
            let mut state = lock(&self.state);
            if let (Start::After(after), RemoteEvent::Record { position, .. }) = (&mut state.start, &received)
            {
                after.epoch = after.epoch.max(position.epoch);
            }
            state.unread_bytes += bytes;
            state.unread.push_back(received);
            state.unread.len() == 1
        };
        if is_first {
            self.notify();
        }
    }

    fn end(&self, outcome: RemoteEnd) {
        lock(&self.state).outcome.get_or_insert(outcome);
        self.notify();
    }

    fn notify(&self) {
        let (waiter, token) = &self.wakeup;
        waiter.notify(*token);
    }
}

impl State {
    fn is_unplaced(&self) -> bool {
        !self.is_requested && self.outcome.is_none() && !self.is_ending && !self.has_left
    }

    /// Called before the owner of the epoch `epoch` is asked for the membership. If the membership began in an earlier
    /// epoch and no owner has accepted it yet, the member must receive all records of `epoch`, even if it wants only
    /// new records. Changes the start accordingly.
    fn include_later_epochs(&mut self, epoch: u32) {
        if self.start == Start::Latest && (1..epoch).contains(&self.joined_epoch) {
            self.start = Start::After(Position { epoch: self.joined_epoch, seq: 0 });
        }
    }
}

/// Whether the error is temporary: the topic has another owner, or the node could not be reached.
fn is_temporary(why: &SubscribeError) -> bool {
    match why {
        SubscribeError::Connection(_)
        | SubscribeError::OwnerAway(_)
        | SubscribeError::NoTopic(_)
        | SubscribeError::Closed => true,
        SubscribeError::Refused(text) => {
            let code = Refused::parse_line(text).map(|refused| refused.code);
            matches!(code, Some(ErrorCode::Elsewhere | ErrorCode::OwnerAway | ErrorCode::ShuttingDown))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use dunlin_topic::LogName;

    use super::*;

    fn membership() -> RemoteMembership {
        let state = State {
            start: Start::Latest,
            joined_epoch: 3,
            is_requested: false,
            awaits_first_response: true,
            unread: VecDeque::new(),
            unread_bytes: 0,
            outcome: None,
            open_logs: 1,
            is_ending: false,
            has_left: false,
            term: 0,
            consumed: Vec::new(),
        };
        RemoteMembership {
            topic: "t".to_owned(),
            partitions: 1,
            options: RemoteMemberOptions {
                group: "g".to_owned(),
                member: "m".to_owned(),
                user: None,
                lasting: false,
            },
            route: Weak::new(),
            wakeup: (Waiter::new(), 0),
            state: Mutex::new(state),
        }
    }

    fn after(epoch: u32) -> Start {
        Start::After(Position { epoch, seq: 0 })
    }

    /// In this test, the topic moves in epoch 9 back to the node that owned it in epoch 5. The member's node knows of
    /// the move, but that owner does not yet. The owner therefore accepts the member in its group of epoch 5, which has
    /// no record of epoch 9.
    #[test]
    fn member_resumes_in_the_epoch_that_the_owner_accepted() {
        let member = membership();
        assert!(member.begin_request(9));
        member.on_accepted(5, 0);
        member.ended(&SubscribeError::Closed);
        assert!(member.begin_request(9));
        assert_eq!(member.start(), after(5));
        member.on_accepted(9, 0);
        member.ended(&SubscribeError::Closed);
        member.move_here(20);
        assert_eq!(member.start(), after(9));
    }

    #[test]
    fn group_member_ends_only_when_all_logs_are_deleted() {
        let member = RemoteMembership { partitions: 2, ..membership() };
        lock(&member.state).open_logs = 2;
        let deleted = |partition: u16| {
            let (topic, subject_prefix) = ("t".to_owned(), "t".to_owned());
            let log = Arc::new(LogName { topic, subject_prefix, partition });
            Notice::Deleted { log, last: Position::default() }
        };
        assert!(member.begin_request(3));
        member.receive_notice(deleted(0));
        member.ended(&SubscribeError::Connection("lost".to_owned()));
        assert!(member.begin_request(3));
        member.receive_notice(deleted(0));
        assert!(lock(&member.state).outcome.is_none(), "log 1 may have more records");
        member.receive_notice(deleted(1));
        assert!(lock(&member.state).outcome.is_some());
    }

    #[test]
    fn group_member_is_woken_by_the_first_response_to_its_join() {
        let (accepted, ended) = (membership(), membership());
        for member in [&accepted, &ended] {
            assert!(!member.is_joining(), "there is no request yet");
            assert!(member.begin_request(3) && member.is_joining());
        }
        accepted.on_accepted(3, 0);
        ended.ended(&SubscribeError::Closed);
        for member in [&accepted, &ended] {
            assert!(!member.is_joining());
            assert!(member.wakeup.0.is_ready());
        }
        assert!(ended.begin_request(3) && !ended.is_joining(), "only the first response is awaited");
    }

    /// If the owner knows of more moves of the topic than this node, it accepts the member in a later epoch than
    /// requested.
    #[test]
    fn group_member_never_resumes_in_an_earlier_epoch() {
        let member = membership();
        assert!(member.begin_request(5));
        member.on_accepted(9, 0);
        member.ended(&SubscribeError::Closed);
        assert!(member.begin_request(7));
        assert_eq!(member.start(), after(9));
        member.on_accepted(5, 0);
        assert_eq!(member.start(), after(9));
    }

    /// Two threads look for memberships for which no owner was asked yet: a thread that joins a group, and the
    /// housekeeping thread. Without a guard, both would ask the owner of a topic that has just moved, and the owner
    /// would keep two members for one membership.
    #[test]
    fn only_one_thread_requests_a_group_membership() {
        let member = membership();
        let count_requests = |member: &RemoteMembership| {
            let barrier = Barrier::new(2);
            let request = || {
                // Both threads check whether an owner was asked, and only then one of them asks the owner.
                assert!(member.is_unplaced());
                barrier.wait();
                u32::from(member.begin_request(5))
            };
            std::thread::scope(|scope| {
                let other = scope.spawn(request);
                request() + other.join().unwrap()
            })
        };
        assert_eq!(count_requests(&member), 1);
        // Another node was asked for the membership, so `move_here` has no effect.
        member.move_here(9);
        assert!(!member.has_events());
        member.ended(&SubscribeError::Closed);
        assert_eq!(count_requests(&member), 1);
        member.ended(&SubscribeError::Closed);
        member.move_here(9);
        assert!(member.has_events() && !member.begin_request(9));
    }

    /// The retry must include the whole next epoch: all its records are published after the membership began.
    #[test]
    fn retried_join_includes_all_records_of_a_new_epoch() {
        let member = membership();
        assert!(member.begin_request(3));
        assert_eq!(member.start(), Start::Latest, "the epoch may have older records");
        member.ended(&SubscribeError::Closed);
        assert!(member.begin_request(5));
        assert_eq!(member.start(), after(3));
        member.ended(&SubscribeError::Closed);
        member.move_here(9);
        assert_eq!(member.start(), after(3));
    }

    /// A durable topic begins an epoch with each start of its owner, without the cluster. The cluster still knows only
    /// the epoch on which it agreed when the topic was created.
    #[test]
    fn member_that_joins_again_continues_from_its_last_epoch() {
        let member = membership();
        assert!(member.begin_request(5));
        member.on_accepted(7, 0);
        member.ended(&SubscribeError::Closed);
        assert!(member.begin_request(5));
        assert_eq!(member.start(), after(7));
        member.on_accepted(8, 0);
        member.ended(&SubscribeError::Closed);
        assert!(member.begin_request(20));
        assert_eq!(member.start(), after(8));
    }
}
