//! One membership in a group: which records it receives in a turn, and how many.

use dunlin::topic::{Charge, Event, Frame, Notice, Position, Subscribe, SubscribeError, Topic};
use dunlin::{ClaimedRecord, Node, ShareMember, WorkEvent, WorkMember};

use super::writing::DeliverWriter;

/// Records of one member's turn.
const TURN_RECORDS: usize = 64;
/// One membership of the client.
#[derive(Debug)]
pub(in super::super) struct GroupMembership {
    pub(in crate::tcp::session) group_member: GroupMember,
    /// One channel for each partition. The first is also the token that wakes the session for this membership.
    pub(super) channels: Vec<u32>,
    /// Bytes that the client allows, in total.
    pub(super) granted: u64,
    /// Bytes sent, in total.
    sent: u64,
    /// Numbers of records that the member has requested and received; in `work` groups only.
    pub(super) wanted: u64,
    given: u64,
    /// Whether the membership is for another node's client, and leaves in two steps.
    pub(super) gives_back: bool,
    /// The progress of leaving.
    pub(super) ending: Option<LeaveProgress>,
    /// The memory charge.
    _charge: Charge,
}

/// The progress of a membership that returns unconsumed records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaveProgress {
    /// The member receives at most this many records in total: those before it began to leave, and those that the group
    /// had then.
    After(u64),
    /// The member has received all its records, and the client is informed of the end.
    Over,
}

#[derive(Debug)]
pub(in crate::tcp::session) enum GroupMember {
    Share(ShareMember),
    Work(WorkMember),
}

/// How a member's turn ended.
pub(super) enum TurnOutcome {
    /// The member waits for a record, credit, or a claim for more.
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

    /// Passes the next record, if one is wanted, or the next notice to `each`; `false` if there is none.
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

    /// Begins to leave: the member receives only the records that the group has now.
    pub(super) fn end(&mut self) {
        let there = match &mut self.group_member {
            GroupMember::Share(share) => share.waiting(),
            GroupMember::Work(_) => 0,
        };
        self.ending = Some(LeaveProgress::After(self.given.saturating_add(there)));
    }

    pub(super) fn turn(&mut self, out: &mut Vec<u8>) -> TurnOutcome {
        if self.ending == Some(LeaveProgress::Over) {
            // If the group woke this member, wakes another one.
            self.group_member.sleep(false);
            return TurnOutcome::Waits;
        }
        let mut writing = DeliverWriter::new(out);
        let (mut turn, mut is_all) = (TurnOutcome::More, false);
        for _ in 0..TURN_RECORDS {
            if self.sent + writing.unfinished() >= self.granted {
                // The member is queued again when it receives credit. Until then, the group wakes other
                // members.
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
