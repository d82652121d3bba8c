//! Members of `share` groups. The topic's owner is this node or another one.

mod away;
mod here;

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use dunlin_topic::{
    Event, LogName, Position, Resync, ShareGroup, Start, Subscribe, SubscribeError, Topic, Waiter,
};
use dunlin_wire::ErrorCode;

use super::error::JoinError;
use super::membership::GroupMember;
use super::options::ShareOptions;
use crate::error::TopicError;
use crate::node::Node;
use crate::ownership::RemoteEnd;
use crate::refusal::Refused;

use away::RemoteMember;
pub(super) use here::ConsumptionMode;
use here::Here;

/// A member of a share group, in which each record goes to one member, at most once.
///
/// Asking for the next record, or [`leave`](ShareMember::leave), consumes the previous one. Dropping the member
/// counts as its death: its last record and records taken ahead become lost, and other members receive a gap.
///
/// Losses of the group are delivered as [`Gap`](dunlin_topic::Gap)s. If more than `group_lost_ranges_max` gaps are
/// pending, the last one is extended over all further losses. [`lost`](ShareMember::lost) returns the exact number of
/// lost records.
#[derive(Debug)]
pub struct ShareMember {
    place: MemberLocation,
    /// How the member joins again after the topic has moved; `None` if the membership ends in this case.
    again: Option<Box<Rejoin>>,
}

#[derive(Debug)]
enum MemberLocation {
    /// This node owns the topic.
    Here(Here),
    /// Another node owns the topic.
    RemoteMember(RemoteMember),
}

#[derive(Debug)]
struct Rejoin {
    node: Node,
    options: ShareOptions,
    news: (Arc<Waiter>, u32),
}

impl ShareMember {
    pub(super) fn here(
        membership: GroupMember<ShareGroup>,
        ahead: u32,
        confirms: ConsumptionMode,
    ) -> ShareMember {
        ShareMember { place: MemberLocation::Here(Here::new(membership, ahead, confirms)), again: None }
    }

    /// Makes a member for a listener. Its membership follows the topic from owner to owner.
    pub(super) fn anywhere(
        node: &Node,
        topic: &str,
        group: &str,
        options: &ShareOptions,
        news: (Arc<Waiter>, u32),
    ) -> Result<ShareMember, JoinError> {
        let place = MemberLocation::find(node, topic, group, options, &news)?;
        let again = Rejoin { node: node.clone(), options: options.clone(), news };
        Ok(ShareMember { place, again: Some(Box::new(again)) })
    }

    /// The topic.
    pub fn topic(&self) -> &Arc<Topic> {
        self.place.topic()
    }

    /// The group's name.
    pub fn group(&self) -> &str {
        match &self.place {
            MemberLocation::Here(here) => here.group(),
            MemberLocation::RemoteMember(away) => away.group(),
        }
    }

    /// The number of lost records that this member's gaps have reported for the group.
    pub fn lost(&self) -> u64 {
        match &self.place {
            MemberLocation::Here(here) => here.lost(),
            MemberLocation::RemoteMember(away) => away.lost(),
        }
    }

    /// The number of lost records that the log dropped before any member received them. Unknown if another node owns
    /// the topic.
    pub fn given_up(&self) -> u64 {
        match &self.place {
            MemberLocation::Here(here) => here.given_up(),
            MemberLocation::RemoteMember(_) => 0,
        }
    }

    /// Leaves the group, and consumes the last record. Records that were taken ahead are lost for the group or, if
    /// another node owns the topic, go to other members.
    pub fn leave(self) {
        if let MemberLocation::Here(here) = self.place {
            here.leave();
        }
    }

    /// For a listener: leaves the group. Records that were not reported with [`consume`](ShareMember::consume) go to
    /// other members.
    pub fn give_back(self) {
        if let MemberLocation::Here(here) = self.place {
            here.give_back();
        }
    }

    /// For a listener: if another node owns the topic, stops it from handing out more records. The member ends after
    /// the records that are already on their way. Returns `false` if this node owns the topic, because then no records
    /// are on their way.
    pub fn end_in_order(&self) -> bool {
        match &self.place {
            MemberLocation::Here(_) => false,
            MemberLocation::RemoteMember(away) => {
                away.end_in_order();
                true
            }
        }
    }

    /// For a listener: the largest number of records that may wait for the group. Not counted if another node owns the
    /// topic.
    pub fn waiting(&mut self) -> u64 {
        match &mut self.place {
            MemberLocation::Here(here) => here.waiting(),
            MemberLocation::RemoteMember(_) => 0,
        }
    }

    /// For a listener: lets the next event notify the waiter. Events are notices and, if the member `wants` them,
    /// records. Returns `false` if an event is available at once.
    pub fn sleep(&self, wants: bool) -> bool {
        match &self.place {
            MemberLocation::Here(here) => here.sleep(wants),
            MemberLocation::RemoteMember(away) => !away.has_news(),
        }
    }

    /// For a listener: reports that the client has consumed the partition's records through `seq`. A member with
    /// `share_in_flight_max` unconsumed records receives no more.
    pub fn consume(&mut self, partition: u16, seq: u64) {
        match &mut self.place {
            MemberLocation::Here(here) => here.consume(partition, seq),
            MemberLocation::RemoteMember(away) => away.consume(partition, seq),
        }
    }

    /// Joins the group at the topic's new owner. Returns `false` if the membership ends.
    fn join_again(&mut self, start: Start) -> Result<bool, SubscribeError> {
        let Some(again) = &mut self.again else { return Ok(false) };
        let (topic, group) = (Arc::clone(self.place.topic()), self.place.group_name());
        let options = ShareOptions { start, ..again.options.clone() };
        let place = MemberLocation::find(&again.node, topic.name(), &group, &options, &again.news)?;
        self.place = place;
        if let MemberLocation::Here(here) = &mut self.place {
            here.forget_notices();
        }
        // Makes the member check again, because records may have arrived before it slept.
        again.news.0.notify(again.news.1);
        Ok(true)
    }
}

impl MemberLocation {
    /// Joins the group at the topic's owner, here or at another node.
    fn find(
        node: &Node,
        topic: &str,
        group: &str,
        options: &ShareOptions,
        news: &(Arc<Waiter>, u32),
    ) -> Result<MemberLocation, JoinError> {
        let after_epoch = match options.start {
            Start::After(at) => Some(at.epoch),
            _ => None,
        };
        let here = ShareOptions { after_epoch, ..options.clone() };
        match node.share_seat(topic, group, &here, news.clone()) {
            Ok(membership) => {
                Ok(MemberLocation::Here(Here::new(membership, options.ahead, ConsumptionMode::Told)))
            }
            Err(refused @ JoinError::Topic(TopicError::Elsewhere { .. } | TopicError::HandingOver(_))) => {
                RemoteMember::find(node, topic, group, options, news)
                    .map(MemberLocation::RemoteMember)
                    .ok_or(refused)
            }
            Err(refused) => Err(refused),
        }
    }

    fn topic(&self) -> &Arc<Topic> {
        match self {
            MemberLocation::Here(here) => here.topic(),
            MemberLocation::RemoteMember(away) => away.topic(),
        }
    }

    fn group_name(&self) -> String {
        match self {
            MemberLocation::Here(here) => here.group().to_owned(),
            MemberLocation::RemoteMember(away) => away.group().to_owned(),
        }
    }
}

impl From<JoinError> for SubscribeError {
    fn from(error: JoinError) -> SubscribeError {
        match error {
            JoinError::Topic(TopicError::Unknown(_)) => SubscribeError::Closed,
            JoinError::Topic(error) => error.into(),
            JoinError::Start(error) => error,
            JoinError::Limit { limit, value } => SubscribeError::Limit { limit, value },
            other => SubscribeError::Refused(Refused::from(&other).to_line()),
        }
    }
}

/// Whether the error says that the topic has another owner.
fn is_moved(why: &SubscribeError) -> bool {
    match why {
        SubscribeError::Refused(said) => {
            Refused::parse_line(said).is_some_and(|refused| refused.code == ErrorCode::Elsewhere)
        }
        _ => false,
    }
}

impl Subscribe for ShareMember {
    fn ready(&mut self) -> Result<bool, SubscribeError> {
        let (why, start) = match &mut self.place {
            MemberLocation::Here(here) => match here.ready() {
                // Start after the epoch that the group has reached, because members have received its records already.
                Err(why) if is_moved(&why) => (why, Start::After(Position { epoch: here.epoch(), seq: 0 })),
                other => return other,
            },
            MemberLocation::RemoteMember(away) => match away.ready() {
                Ok(is_ready) => return Ok(is_ready),
                Err(RemoteEnd::Here(start)) => (SubscribeError::Closed, start),
                Err(RemoteEnd::Ended(why)) => return Err(why),
            },
        };
        if self.join_again(start)? { Ok(false) } else { Err(why) }
    }

    fn take(&mut self) -> Event<'_> {
        match &mut self.place {
            MemberLocation::Here(here) => here.take(),
            MemberLocation::RemoteMember(away) => away.take(),
        }
    }

    /// Does nothing: the members share the records, so that no member has a position of its own.
    fn resync(&mut self, _log: &LogName, _resync: Resync) -> Result<(), SubscribeError> {
        Err(SubscribeError::Refused(
            "a member of a share group cannot resynchronize: the members share the group's position"
                .to_owned(),
        ))
    }

    fn drain(&mut self, max: usize, mut each: impl FnMut(Event<'_>)) -> Result<usize, SubscribeError> {
        let mut given = 0;
        while given < max {
            match self.ready() {
                Ok(true) => each(self.take()),
                Ok(false) => break,
                Err(_) if given > 0 => break,
                Err(ended) => return Err(ended),
            }
            given += 1;
        }
        Ok(given)
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Result<bool, SubscribeError> {
        match &mut self.place {
            MemberLocation::Here(here) => here.wait(timeout),
            // A remote member does not wait here, but only checks for events.
            MemberLocation::RemoteMember(away) => Ok(away.has_news()),
        }
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SubscribeError>> {
        match &mut self.place {
            MemberLocation::Here(here) => here.poll_ready(cx),
            MemberLocation::RemoteMember(away) => away.poll_ready(cx),
        }
    }
}
