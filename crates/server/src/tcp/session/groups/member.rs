//! One membership in a group: decides which records, and how many, the member receives at once.

use dunlin::topic::{Charge, Event, Frame, Notice, Position, Subscribe, SubscribeError, Topic};
use dunlin::{ClaimedRecord, Node, ShareMember, WorkEvent, WorkMember};

use super::writing::DeliverWriter;

/// Maximum number of records that are delivered to one member before the next member is served.
const TURN_RECORDS: usize = 64;
/// A client's membership in one group.
#[derive(Debug)]
pub(in super::super) struct GroupMembership {
    pub(in crate::tcp::session) group_member: GroupMember,
    /// The numbers of the membership's channels, one for each partition. The first is also the token with which new
    /// records notify the session.
    pub(super) channels: Vec<u32>,
    /// Total number of bytes for which the client has granted credit.
    pub(super) granted: u64,
    /// Total number of bytes that were sent.
    sent: u64,
    /// Number of records that the member has requested; the next field has the number that it has received. Used only
    /// in work groups.
    pub(super) wanted: u64,
    given: u64,
    /// Whether the membership belongs to a client of another node. Such a membership ends in two steps.
    pub(super) gives_back: bool,
    /// How far the membership has ended; `None` while it has not begun to end.
    pub(super) ending: Option<LeaveProgress>,
    /// Memory that is charged for the membership.
    _charge: Charge,
}

/// How far a membership that returns unconsumed records has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaveProgress {
    /// The member still receives records up to this total number: the records that it has received, and those that the
    /// group had when the member began to leave.
    After(u64),
    /// The member has received all its records, and the client was informed of the end.
    Over,
}

#[derive(Debug)]
pub(in crate::tcp::session) enum GroupMember {
    Share(ShareMember),
    Work(WorkMember),
}

/// The result of delivering records to a member once.
pub(super) enum TurnOutcome {
    /// The member waits for a record, for credit, or for a request for more records.
    Waits,
    More,
    /// The member has received its last record.
    Over,
    Ended(SubscribeError),
}

impl GroupMember {
    pub(in crate::tcp::session) fn topic(&self) -> &Topic {
        match self {
            GroupMember::Share(share) => share.topic(),
            GroupMember::Work(work) => work.topic(),
        }
    }

    pub(in crate::tcp::session) fn group(&self) -> &str {
        match self {
            GroupMember::Share(share) => share.group(),
            GroupMember::Work(work) => work.group(),
        }
    }

    pub(super) fn leave(self, node: &Node) {
        match self {
            GroupMember::Share(share) => {
                let (topic, group) = (share.topic().name().to_owned(), share.group().to_owned());
                share.leave();
                node.end_group(&topic, &group);
            }
            GroupMember::Work(work) => work.leave(),
        }
    }

    /// Leaves the group. The other members receive the unconsumed records.
    pub(super) fn give_back(self, node: &Node) {
        match self {
            GroupMember::Share(share) => {
                let (topic, group) = (share.topic().name().to_owned(), share.group().to_owned());
                share.give_back();
                node.end_group(&topic, &group);
            }
            GroupMember::Work(work) => work.leave(),
        }
    }

    fn sleep(&self, wants: bool) -> bool {
        match self {
            GroupMember::Share(share) => share.sleep(wants),
            GroupMember::Work(work) => work.sleep(wants),
        }
    }

    /// Passes the next record (if the member wants one) or the next notice to `each`. Returns `false` if there is none.
    fn take(&mut self, wants: bool, mut each: impl FnMut(MemberEvent<'_>)) -> Result<bool, SubscribeError> {
        match self {
            GroupMember::Share(share) => {
                let is_ready = share.ready()?;
                if is_ready {
                    each(match share.take() {
                        Event::Record(record) => MemberEvent::Record {
                            partition: record.log.partition,
                            position: record.position,
                            frame: record.frame,
                            claim: None,
                        },
                        Event::Notice(notice) => MemberEvent::Notice(notice),
                    });
                }
                Ok(is_ready)
            }
            GroupMember::Work(work) => {
                let event = work.try_claim(wants)?;
                if let Some(event) = &event {
                    each(match event {
                        WorkEvent::ClaimedRecord(claimed) => MemberEvent::Record {
                            partition: claimed.record().log.partition,
                            position: claimed.record().position,
                            frame: claimed.record().frame,
                            claim: Some(claimed),
                        },
                        WorkEvent::Notice(notice) => MemberEvent::Notice(notice.clone()),
                    });
                }
                Ok(event.is_some())
            }
        }
    }
}

/// A record or a notice for a member.
pub(super) enum MemberEvent<'a> {
    Record { partition: u16, position: Position, frame: Frame<'a>, claim: Option<&'a ClaimedRecord> },
    Notice(Notice),
}

impl GroupMembership {
    pub(super) fn new(
        group_member: GroupMember,
        channels: Vec<u32>,
        credit: u64,
        gives_back: bool,
        charge: Charge,
    ) -> GroupMembership {
        GroupMembership {
            group_member,
            channels,
            granted: credit,
            sent: 0,
            wanted: 0,
            given: 0,
            gives_back,
            ending: None,
            _charge: charge,
        }
    }

    fn wants(&self) -> bool {
        matches!(self.group_member, GroupMember::Share(_)) || self.given < self.wanted
    }

    /// Begins to leave the group: from now on, the member receives only records that the group already has.
    pub(super) fn end(&mut self) {
        let there = match &mut self.group_member {
            GroupMember::Share(share) => share.waiting(),
            GroupMember::Work(_) => 0,
        };
        self.ending = Some(LeaveProgress::After(self.given.saturating_add(there)));
    }

    pub(super) fn turn(&mut self, out: &mut Vec<u8>) -> TurnOutcome {
        if self.ending == Some(LeaveProgress::Over) {
            // If the group woke this member for a record, the group wakes another member instead.
            self.group_member.sleep(false);
            return TurnOutcome::Waits;
        }
        let mut writing = DeliverWriter::new(out);
        let (mut turn, mut is_all) = (TurnOutcome::More, false);
        for _ in 0..TURN_RECORDS {
            if self.sent + writing.unfinished() >= self.granted {
                // The member is queued again when it receives credit. Until then, the group wakes other members.
                self.group_member.sleep(false);
                turn = TurnOutcome::Waits;
                break;
            }
            let (channels, wants) = (&self.channels, self.wants());
            let taken = self.group_member.take(wants, |given| writing.add(channels, given));
            match taken {
                Ok(true) => {}
                Ok(false) if self.group_member.sleep(wants) => {
                    is_all = true;
                    turn = TurnOutcome::Waits;
                    break;
                }
                Ok(false) => {}
                Err(why) => {
                    turn = TurnOutcome::Ended(why);
                    break;
                }
            }
            self.given += std::mem::take(&mut writing.records);
            self.sent += std::mem::take(&mut writing.sent);
        }
        writing.finish();
        self.given += writing.records;
        self.sent += writing.sent;
        if let Some(LeaveProgress::After(last)) = self.ending
            && (is_all || self.given >= last)
            && !matches!(turn, TurnOutcome::Ended(_))
        {
            self.ending = Some(LeaveProgress::Over);
            // The group wakes other members for later records.
            self.group_member.sleep(false);
            return TurnOutcome::Over;
        }
        turn
    }
}
