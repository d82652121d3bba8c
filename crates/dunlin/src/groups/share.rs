//! Members of `share` groups. The owner of the group's topic may be this node or another one.

mod local;
mod remote;

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use dunlin_topic::{
    Event, LogName, Position, Resync, ShareGroup, Start, Subscribe, SubscribeError, Topic, Waiter,
};
use dunlin_wire::ErrorCode;

use super::error::JoinError;
use super::membership::GroupMember;
use super::options::{EarlierMembership, ShareOptions};
use crate::error::TopicError;
use crate::node::Node;
use crate::ownership::RemoteEnd;
use crate::refusal::Refused;

pub(super) use local::ConsumptionMode;
use local::LocalMember;
use remote::RemoteMember;

/// A member of a share group. Each record goes to one member of the group, at most once.
///
/// A record is consumed when the member asks for the next record or calls [`leave`](ShareMember::leave). Dropping the
/// value counts as the member's death: its last record and the records that it has taken ahead are lost, and the other
/// members receive a gap.
///
/// Records that the group has lost are reported as [`Gap`](dunlin_topic::Gap)s. If more than `group_lost_ranges_max`
/// gaps wait for delivery, the last of these gaps is extended to the newest lost record. It may then also cover records
/// that are not lost. [`lost`](ShareMember::lost) returns the exact number of lost records.
#[derive(Debug)]
pub struct ShareMember {
    location: MemberLocation,
    /// The options with which the member joins again after the topic has moved. If `None`, the membership ends when the
    /// topic moves.
    rejoin: Option<Box<Rejoin>>,
}

#[derive(Debug)]
enum MemberLocation {
    /// This node owns the topic.
    Local(LocalMember),
    /// Another node owns the topic.
    Remote(RemoteMember),
}

#[derive(Debug)]
struct Rejoin {
    node: Node,
    options: ShareOptions,
    wakeup: (Arc<Waiter>, u32),
}

impl ShareMember {
    pub(super) fn local(
        membership: GroupMember<ShareGroup>,
        ahead: u32,
        consumption: ConsumptionMode,
    ) -> ShareMember {
        ShareMember {
            location: MemberLocation::Local(LocalMember::new(membership, ahead, consumption)),
            rejoin: None,
        }
    }

    /// Creates a member for a listener. When the topic moves to another owner, the member joins the group there.
    pub(super) fn following_topic(
        node: &Node,
        topic: &str,
        group: &str,
        options: &ShareOptions,
        wakeup: (Arc<Waiter>, u32),
    ) -> Result<ShareMember, JoinError> {
        let location = MemberLocation::find(node, topic, group, options, &wakeup)?;
        let rejoin = Rejoin { node: node.clone(), options: options.clone(), wakeup };
        Ok(ShareMember { location, rejoin: Some(Box::new(rejoin)) })
    }

    /// The topic whose records the group shares.
    pub fn topic(&self) -> &Arc<Topic> {
        self.location.topic()
    }

    /// The group's name.
    pub fn group(&self) -> &str {
        match &self.location {
            MemberLocation::Local(member) => member.group(),
            MemberLocation::Remote(member) => member.group(),
        }
    }

    /// The number of lost records of the group that gaps have reported to this member.
    pub fn lost(&self) -> u64 {
        match &self.location {
            MemberLocation::Local(member) => member.lost(),
            MemberLocation::Remote(member) => member.lost(),
        }
    }

    /// The number of lost records that the log dropped before any member received them. Always 0 if another node owns
    /// the topic, because this node does not know the number.
    pub fn dropped_records(&self) -> u64 {
        match &self.location {
            MemberLocation::Local(member) => member.dropped_records(),
            MemberLocation::Remote(_) => 0,
        }
    }

    /// For a listener: the newest epoch whose records the group delivers at this node, even if the topic is moving to
    /// another owner. `None` if another node owns the topic.
    pub fn owner_epoch(&mut self) -> Option<u32> {
        match &mut self.location {
            MemberLocation::Local(member) => Some(member.owner_epoch()),
            MemberLocation::Remote(_) => None,
        }
    }

    /// Leaves the group, and consumes the last record. If this node owns the topic, records that the member has taken
    /// ahead are lost for the group. If another node owns the topic, these records go to other members.
    pub fn leave(self) {
        if let MemberLocation::Local(member) = self.location {
            member.leave();
        }
    }

    /// For a listener: leaves the group. Records that were not reported with [`consume`](ShareMember::consume) go to
    /// other members.
    pub fn leave_unconsumed(self) {
        if let MemberLocation::Local(member) = self.location {
            member.leave_unconsumed();
        }
    }

    /// For a listener: whether another node owns the topic and has not yet responded to the first request to join. The
    /// waiter is notified of the response.
    pub fn is_joining(&self) -> bool {
        match &self.location {
            MemberLocation::Local(_) => false,
            MemberLocation::Remote(member) => member.is_joining(),
        }
    }

    /// For a listener: if another node owns the topic, asks that node to send no more records. The member ends after it
    /// has received the records that are already on their way. If this node owns the topic, no records are on their
    /// way, and the result is `false`.
    pub fn stop_delivery(&self) -> bool {
        match &self.location {
            MemberLocation::Local(_) => false,
            MemberLocation::Remote(member) => {
                member.stop_delivery();
                true
            }
        }
    }

    /// For a listener: an upper bound on the number of records that wait for the group. Always 0 if another node owns
    /// the topic, because this node does not know the number.
    pub fn waiting(&mut self) -> u64 {
        match &mut self.location {
            MemberLocation::Local(member) => member.waiting(),
            MemberLocation::Remote(_) => 0,
        }
    }

    /// For a listener: makes the next event notify the waiter. Events are notices and, if `accepts_records` is set,
    /// records. Returns `false` if an event is already available.
    pub fn sleep(&self, accepts_records: bool) -> bool {
        match &self.location {
            MemberLocation::Local(member) => member.sleep(accepts_records),
            MemberLocation::Remote(member) => !member.has_events(),
        }
    }

    /// For a listener: whether the last [`ready`](Subscribe::ready) ended early because it had skipped as many expired
    /// records as a [`SkipBudget`](dunlin_topic::SkipBudget) allows. The listener then lets other work run, and calls
    /// `ready` again.
    pub fn is_skipping(&self) -> bool {
        match &self.location {
            MemberLocation::Local(member) => member.is_skipping(),
            MemberLocation::Remote(_) => false,
        }
    }

    /// For a listener: reports that the client has consumed the partition's records through `seq`. A member that has
    /// received `share_in_flight_max` records without consuming them receives no more.
    pub fn consume(&mut self, partition: u16, seq: u64) {
        match &mut self.location {
            MemberLocation::Local(member) => member.consume(partition, seq),
            MemberLocation::Remote(member) => member.consume(partition, seq),
        }
    }

    /// Joins the group at the topic's new owner. Returns `false` if the member cannot join again, so that the
    /// membership ends.
    fn rejoin(&mut self, start: Start) -> Result<bool, SubscribeError> {
        let Some(rejoin) = &mut self.rejoin else { return Ok(false) };
        let (topic, group) = (Arc::clone(self.location.topic()), self.location.group_name());
        let options = ShareOptions { start, ..rejoin.options.clone() };
        let location = MemberLocation::find(&rejoin.node, topic.name(), &group, &options, &rejoin.wakeup)?;
        self.location = location;
        // Make the member check for events: the notification of a record may have been sent before the member began to
        // sleep.
        rejoin.wakeup.0.notify(rejoin.wakeup.1);
        Ok(true)
    }
}

impl MemberLocation {
    /// Joins the group at the owner of the topic, which is this node or another one.
    fn find(
        node: &Node,
        topic: &str,
        group: &str,
        options: &ShareOptions,
        wakeup: &(Arc<Waiter>, u32),
    ) -> Result<MemberLocation, JoinError> {
        let earlier = match options.start {
            Start::After(at) => Some(EarlierMembership::from_position(at, node)),
            _ => None,
        };
        let local_options = ShareOptions { earlier, ..options.clone() };
        match node.join_share_group(topic, group, &local_options, wakeup.clone()) {
            Ok(membership) => Ok(MemberLocation::Local(LocalMember::new(
                membership,
                options.ahead,
                ConsumptionMode::Explicit,
            ))),
            Err(refused @ JoinError::Topic(TopicError::Elsewhere { .. } | TopicError::HandingOver(_))) => {
                RemoteMember::find(node, topic, group, options, wakeup)
                    .map(MemberLocation::Remote)
                    .ok_or(refused)
            }
            Err(refused) => Err(refused),
        }
    }

    fn topic(&self) -> &Arc<Topic> {
        match self {
            MemberLocation::Local(member) => member.topic(),
            MemberLocation::Remote(member) => member.topic(),
        }
    }

    fn group_name(&self) -> String {
        match self {
            MemberLocation::Local(member) => member.group().to_owned(),
            MemberLocation::Remote(member) => member.group().to_owned(),
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

/// Whether the error says that the topic has moved to another owner.
fn is_moved(why: &SubscribeError) -> bool {
    match why {
        SubscribeError::Refused(text) => {
            Refused::parse_line(text).is_some_and(|refused| refused.code == ErrorCode::Elsewhere)
        }
        _ => false,
    }
}

impl Subscribe for ShareMember {
    fn ready(&mut self) -> Result<bool, SubscribeError> {
        let (why, start) = match &mut self.location {
            MemberLocation::Local(member) => match member.ready() {
                // Start after the epoch that the group has reached, because members have already received records of
                // this epoch.
                Err(why) if is_moved(&why) => (why, Start::After(Position { epoch: member.epoch(), seq: 0 })),
                other => return other,
            },
            MemberLocation::Remote(member) => match member.ready() {
                Ok(is_ready) => return Ok(is_ready),
                Err(RemoteEnd::MovedHere(start)) => (SubscribeError::Closed, start),
                Err(RemoteEnd::Ended(why)) => return Err(why),
            },
        };
        if self.rejoin(start)? { Ok(false) } else { Err(why) }
    }

    fn take(&mut self) -> Event<'_> {
        match &mut self.location {
            MemberLocation::Local(member) => member.take(),
            MemberLocation::Remote(member) => member.take(),
        }
    }

    /// Always returns an error: all members share the group's position, so that no member can go to another position.
    fn resync(&mut self, _log: &LogName, _resync: Resync) -> Result<(), SubscribeError> {
        Err(SubscribeError::Refused(
            "a member of a share group cannot resynchronize: the members share the group's position"
                .to_owned(),
        ))
    }

    fn drain(&mut self, max: usize, mut each: impl FnMut(Event<'_>)) -> Result<usize, SubscribeError> {
        let mut delivered = 0;
        while delivered < max {
            match self.ready() {
                Ok(true) => each(self.take()),
                Ok(false) => break,
                Err(_) if delivered > 0 => break,
                Err(ended) => return Err(ended),
            }
            delivered += 1;
        }
        Ok(delivered)
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Result<bool, SubscribeError> {
        match &mut self.location {
            MemberLocation::Local(member) => member.wait(timeout),
            // If another node owns the topic, this call does not wait. It only checks for events.
            MemberLocation::Remote(member) => Ok(member.has_events()),
        }
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SubscribeError>> {
        match &mut self.location {
            MemberLocation::Local(member) => member.poll_ready(cx),
            MemberLocation::Remote(member) => member.poll_ready(cx),
        }
    }
}
