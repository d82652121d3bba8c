//! Memberships of `share` groups that the topic's owner, another node, keeps for members of this one.
//!
//! A membership follows its topic: when the topic gets another owner, that one is asked next; when this node becomes the
//! owner, the member joins the group here.
//!
//! A member ends in order: the owner gives it nothing more and says so behind what it gave; the member reads that, and what it
//! has not consumed when it goes, the owner gives to others. So the owner is told what members consumed, not what arrived.
//!
//! Invariant: a record is delivered at most once. A group that begins anew with the next owner begins with that owner's epoch.
//!
//! Limits: [`UNREAD_RECORDS_MAX`], [`UNREAD_BYTES_MAX`]; then nothing more is taken from the owner.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};

use dunlin_topic::{Notice, Position, Start, SubscribeError, Topic, Waiter};
use dunlin_wire::ErrorCode;

use super::way::Way;
use super::{Ownership, keeper, lock};
use crate::refusal::Refused;

/// Records and bytes that were received and that the member has not read.
const UNREAD_RECORDS_MAX: usize = 1_024;
const UNREAD_BYTES_MAX: usize = 1 << 20;

/// See the module.
#[derive(Debug)]
pub struct Membership {
    /// The topic's name.
    pub topic: String,
    /// The group's name.
    pub group: String,
    /// The member's name, which operators see.
    pub member: String,
    /// The group stands when its last member has left.
    pub lasting: bool,
    way: Weak<Way>,
    /// What is notified when there is something for the member.
    news: (Arc<Waiter>, u32),
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    start: Start,
    /// The owner that was asked keeps it, or is about to; the epoch in which it was asked.
    asked: Option<u32>,
    /// The epoch in which an owner was asked last, 0 before the first.
    asked_last: u32,
    unread: VecDeque<Received>,
    unread_bytes: usize,
    outcome: Option<Outcome>,
    /// It ends with what the owner that was asked has given it.
    is_ending: bool,
    has_left: bool,
    /// How often an owner has ceased to keep it: what came before that is none of the next owner's business.
    term: u32,
    /// The last record of each partition that was consumed, of which the owner has yet to be told.
    consumed: Vec<(u16, Position)>,
}

/// What the owner has sent.
#[derive(Debug)]
pub(crate) enum Received {
    /// A record as it travels.
    Record { partition: u16, position: Position, frame: Box<[u8]>, term: u32 },
    /// What was lost to the whole group.
    Notice(Notice),
}

/// Why nothing more comes from another node.
#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    /// This node owns the topic by now. A group that the member makes starts there.
    Here(Start),
    /// It was refused, or the topic was deleted.
    Ended(SubscribeError),
}

impl Ownership {
    /// Asks the topic's owner for a membership. What comes of it is told to `news`.
    pub(crate) fn join_elsewhere(
        self: &Arc<Ownership>,
        topic: &Topic,
        (group, member, lasting): (&str, &str, bool),
        start: Start,
        news: (Arc<Waiter>, u32),
    ) -> Option<Arc<Membership>> {
        let way = self.way(topic.name())?;
        let state = State {
            start,
            asked: None,
            asked_last: 0,
            unread: VecDeque::new(),
            unread_bytes: 0,
            outcome: None,
            is_ending: false,
            has_left: false,
            term: 0,
            consumed: Vec::new(),
        };
        let membership = Arc::new(Membership {
            topic: topic.name().to_owned(),
            group: group.to_owned(),
            member: member.to_owned(),
            lasting,
            way: Arc::downgrade(&way),
            news,
            state: Mutex::new(state),
        });
        way.add_member(self, &membership);
        Some(membership)
    }
}

impl Membership {
    /// Where the group starts, should this member make it.
    pub fn start(&self) -> Start {
        lock(&self.state).start
    }

    /// Whether the member is there still.
    pub fn is_wanted(&self) -> bool {
        !lock(&self.state).has_left
    }

    /// Whether the owner is to give it nothing more.
    pub fn is_ending(&self) -> bool {
        lock(&self.state).is_ending
    }

    /// The last record of each partition that the member has consumed since this was called last.
    pub fn take_consumed(&self) -> Vec<(u16, Position)> {
        std::mem::take(&mut lock(&self.state).consumed)
    }

    /// Whether another record may be taken.
    pub fn has_room(&self) -> bool {
        let state = lock(&self.state);
        state.unread.len() < UNREAD_RECORDS_MAX && state.unread_bytes < UNREAD_BYTES_MAX
    }

    /// The owner has sent a record, as it travels.
    pub fn take_record(&self, partition: u16, position: Position, frame: &[u8]) {
        let term = lock(&self.state).term;
        self.push(Received::Record { partition, position, frame: frame.into(), term }, frame.len());
    }

    /// The owner has sent something else.
    pub fn take_notice(&self, notice: Notice) {
        match notice {
            Notice::Deleted { .. } => self.close(),
            notice => self.push(Received::Notice(notice), 0),
        }
    }

    /// The owner keeps it no more, or never did. Unless that is for good, who owns the topic is asked again.
    pub fn ended(&self, why: &SubscribeError) {
        if self.is_ending() {
            return self.close();
        }
        if !is_passing(why) {
            return self.end(Outcome::Ended(why.clone()));
        }
        {
            let mut state = lock(&self.state);
            state.asked = None;
            state.term += 1;
            state.consumed.clear();
        }
        if let Some(way) = self.way.upgrade() {
            way.look_again_after(keeper::PAUSE);
        }
    }

    /// The topic was deleted.
    pub(super) fn close(&self) {
        self.end(Outcome::Ended(SubscribeError::Closed));
    }

    /// This node owns the topic, since this epoch. Does nothing unless the membership waits for an owner.
    pub(super) fn come_here(&self, epoch: u32) {
        {
            let mut state = lock(&self.state);
            if !state.is_unplaced() {
                return;
            }
            state.turn_to(epoch);
            state.outcome = Some(Outcome::Here(state.start));
        }
        self.notify();
    }

    /// Whether it waits for an owner.
    pub(super) fn is_unplaced(&self) -> bool {
        lock(&self.state).is_unplaced()
    }

    /// The caller asks the owner of this epoch; `false` where it must not, because another thread has asked already, or the membership does not
    /// wait for an owner any more. Asked twice, the owner would keep two members for this one, and the end of the first would be taken for
    /// that of the second.
    #[must_use]
    pub(super) fn begin_asking(&self, epoch: u32) -> bool {
        let mut state = lock(&self.state);
        let is_unplaced = state.is_unplaced();
        if is_unplaced {
            state.turn_to(epoch);
            state.asked = Some(epoch);
        }
        is_unplaced
    }

    /// The owner keeps it, and its logs are in this epoch. A group that begins anew with another owner, or with this one after
    /// the connection to it was lost, delivers nothing of that epoch again.
    ///
    /// The epoch in which the owner was asked does not suffice: a durable topic begins an epoch with each start of its owner.
    pub fn stands(&self, epoch: u32) {
        let mut state = lock(&self.state);
        if let Some(asked) = state.asked {
            state.start = Start::After(Position { epoch: epoch.max(asked), seq: 0 });
        }
    }

    /// The next that came, in order; what stands in the way when there is nothing.
    pub(crate) fn next(&self) -> Result<Option<Received>, Outcome> {
        let mut state = lock(&self.state);
        let next = state.unread.pop_front();
        match (&next, &state.outcome) {
            (None, Some(outcome)) => return Err(outcome.clone()),
            (Some(Received::Record { frame, .. }), _) => state.unread_bytes -= frame.len(),
            _ => {}
        }
        Ok(next)
    }

    /// Whether there is something for the member. It is notified of what comes later.
    pub(crate) fn has_news(&self) -> bool {
        let state = lock(&self.state);
        !state.unread.is_empty() || state.outcome.is_some()
    }

    /// The member has consumed this record and all that it was given before.
    pub(crate) fn consumed(&self, term: u32, partition: u16, position: Position) {
        let mut state = lock(&self.state);
        if term != state.term {
            return;
        }
        match state.consumed.iter_mut().find(|(of, _)| *of == partition) {
            Some((_, at)) => *at = position,
            None => state.consumed.push((partition, position)),
        }
    }

    /// Nothing more is wanted than what the owner gives until it hears this; [`next`](Membership::next) ends behind it.
    pub(crate) fn end_in_order(&self) {
        let is_asked = {
            let mut state = lock(&self.state);
            state.is_ending = true;
            state.asked.is_some()
        };
        if !is_asked {
            self.close();
        }
    }

    /// The member goes.
    pub(crate) fn leave(&self) {
        lock(&self.state).has_left = true;
    }

    fn push(&self, received: Received, bytes: usize) {
        let is_first = {
            let mut state = lock(&self.state);
            if let (Start::After(after), Received::Record { position, .. }) = (&mut state.start, &received) {
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

    fn end(&self, outcome: Outcome) {
        lock(&self.state).outcome.get_or_insert(outcome);
        self.notify();
    }

    fn notify(&self) {
        let (waiter, token) = &self.news;
        waiter.notify(*token);
    }
}

impl State {
    fn is_unplaced(&self) -> bool {
        self.asked.is_none() && self.outcome.is_none() && !self.is_ending && !self.has_left
    }

    /// Turns to the owner since `epoch`.
    ///
    /// An owner names the epoch of its logs when it answers. If the topic moves at that moment, this is the next owner's epoch, of which
    /// the group has had no record. The group then begins after the epoch of the owner that was asked.
    fn turn_to(&mut self, epoch: u32) {
        if let Start::After(after) = &mut self.start
            && after.epoch >= epoch
            && (1..epoch).contains(&self.asked_last)
        {
            after.epoch = self.asked_last;
        }
        self.asked_last = epoch;
    }
}

/// Whether another try may succeed: the topic is another node's by now, or the node could not be reached.
fn is_passing(why: &SubscribeError) -> bool {
    match why {
        SubscribeError::Connection(_)
        | SubscribeError::OwnerAway(_)
        | SubscribeError::NoTopic(_)
        | SubscribeError::Closed => true,
        SubscribeError::Refused(said) => {
            let code = Refused::of_words(said).map(|refused| refused.code);
            matches!(code, Some(ErrorCode::Elsewhere | ErrorCode::OwnerAway | ErrorCode::ShuttingDown))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    fn membership() -> Membership {
        let state = State {
            start: Start::Latest,
            asked: None,
            asked_last: 0,
            unread: VecDeque::new(),
            unread_bytes: 0,
            outcome: None,
            is_ending: false,
            has_left: false,
            term: 0,
            consumed: Vec::new(),
        };
        Membership {
            topic: "t".to_owned(),
            group: "g".to_owned(),
            member: "m".to_owned(),
            lasting: false,
            way: Weak::new(),
            news: (Waiter::new(), 0),
            state: Mutex::new(state),
        }
    }

    fn after(epoch: u32) -> Start {
        Start::After(Position { epoch, seq: 0 })
    }

    /// An owner that answers while the topic moves names the epoch of the next owner.
    #[test]
    fn epoch_of_the_next_owner_does_not_replace_the_last_one() {
        let member = membership();
        assert!(member.begin_asking(5));
        member.stands(9);
        member.ended(&SubscribeError::Closed);
        member.come_here(9);
        assert_eq!(member.start(), after(5));
        let member = membership();
        assert!(member.begin_asking(5));
        member.stands(9);
        member.ended(&SubscribeError::Closed);
        assert!(member.begin_asking(9));
        assert_eq!(member.start(), after(5));
    }

    /// A thread that joins and the keeper's thread both look for members to place. The owner of a topic that had just moved was asked twice,
    /// and kept two members for one.
    #[test]
    fn only_one_thread_asks_for_a_membership() {
        let member = membership();
        let asks = |member: &Membership| {
            let asked = Barrier::new(2);
            let ask = || {
                // Both have looked before either asks.
                assert!(member.is_unplaced());
                asked.wait();
                u32::from(member.begin_asking(5))
            };
            std::thread::scope(|scope| {
                let other = scope.spawn(ask);
                ask() + other.join().unwrap()
            })
        };
        assert_eq!(asks(&member), 1);
        // What is asked elsewhere does not come here.
        member.come_here(9);
        assert!(!member.has_news());
        member.ended(&SubscribeError::Closed);
        assert_eq!(asks(&member), 1);
        member.ended(&SubscribeError::Closed);
        member.come_here(9);
        assert!(member.has_news() && !member.begin_asking(9));
    }

    /// A durable topic begins an epoch with each start of its owner. The control plane's epoch of the topic stays the same.
    #[test]
    fn epoch_of_a_restarted_owner_counts() {
        let member = membership();
        assert!(member.begin_asking(5));
        member.stands(7);
        member.ended(&SubscribeError::Closed);
        assert!(member.begin_asking(5));
        assert_eq!(member.start(), after(7));
        member.stands(8);
        member.ended(&SubscribeError::Closed);
        assert!(member.begin_asking(20));
        assert_eq!(member.start(), after(8));
    }
}
