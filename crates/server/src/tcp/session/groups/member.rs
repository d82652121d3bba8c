//! Defines a membership in a group, and decides which records the member receives at once, and how many.

use dunlin::topic::{Event, Frame, MemoryCharge, Notice, Position, Subscribe, SubscribeError, Topic};
use dunlin::{ClaimedRecord, Node, ShareMember, WorkEvent, WorkMember};

use super::super::CONTROL_BYTES_MAX;
use super::writer::DeliverWriter;

/// After this many records for one member, the next member is served.
const DELIVERY_RECORDS_MAX: usize = 64;
#[derive(Debug)]
pub(in super::super) struct GroupMembership {
    pub(in crate::tcp::session) group_member: GroupMember,
    /// The numbers of the membership's channels, one for each partition. The first number is also the token of the
    /// notifications which say that the member may have records.
    pub(super) channels: Vec<u32>,
    /// Total credit that the client has granted so far, bytes.
    pub(super) granted: u64,
    sent: u64,
    /// Total number of records that the client has requested so far. Only work groups use it.
    pub(super) requested: u64,
    /// Number of records that were delivered to the client so far.
    delivered: u64,
    /// Whether the membership belongs to another node, which holds it for one of its clients. That node returns the
    /// records that the client did not consume, so such a membership ends in two steps.
    pub(super) returns_unconsumed: bool,
    /// How far the member has left the group; `None` until it begins to leave.
    pub(super) leave_progress: Option<LeaveProgress>,
    /// Whether the membership is in the session's queue of members.
    pub(super) is_queued: bool,
    _charge: MemoryCharge,
}

/// How far a member has left its group. Only a member that returns records leaves in several steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaveProgress {
    /// The member leaves when it has received this many records in total. This number includes the records that the
    /// group already had for the member when the member began to leave.
    After(u64),
    /// All records were delivered, and the client was informed that the membership ends.
    Complete,
}

#[derive(Debug)]
pub(in crate::tcp::session) enum GroupMember {
    Share(ShareMember),
    Work(WorkMember),
}

/// The result of one attempt to deliver records to a member.
pub(super) enum DeliveryOutcome {
    /// There are no more records for the member now, or it has neither credit nor a request for more.
    Waiting,
    More,
    /// The member has skipped many expired records. Before it continues, other members are served.
    Skipped,
    /// The member is leaving, and has received its last record.
    Complete,
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

    /// Leaves the group. Records that were not consumed go to the other members.
    pub(super) fn leave_unconsumed(self, node: &Node) {
        match self {
            GroupMember::Share(share) => {
                let (topic, group) = (share.topic().name().to_owned(), share.group().to_owned());
                share.leave_unconsumed();
                node.end_group(&topic, &group);
            }
            GroupMember::Work(work) => work.leave(),
        }
    }

    fn sleep(&self, accepts: bool) -> bool {
        match self {
            GroupMember::Share(share) => share.sleep(accepts),
            GroupMember::Work(work) => work.sleep(accepts),
        }
    }

    fn is_skipping(&self) -> bool {
        match self {
            GroupMember::Share(share) => share.is_skipping(),
            GroupMember::Work(work) => work.is_skipping(),
        }
    }

    /// Passes a notice or a record to `each`, and returns `true`. Returns `false` if there is neither. In a work group,
    /// takes a record only if `accepts`.
    fn take(&mut self, accepts: bool, mut each: impl FnMut(MemberEvent<'_>)) -> Result<bool, SubscribeError> {
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
                let event = work.try_claim(accepts)?;
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
        returns_unconsumed: bool,
        charge: MemoryCharge,
    ) -> GroupMembership {
        GroupMembership {
            group_member,
            channels,
            granted: credit,
            sent: 0,
            requested: 0,
            delivered: 0,
            returns_unconsumed,
            leave_progress: None,
            is_queued: false,
            _charge: charge,
        }
    }

    /// Counts bytes that were sent to the member outside of [`deliver`](GroupMembership::deliver) against its credit.
    pub(super) fn count_sent(&mut self, bytes: usize) {
        self.sent += bytes as u64;
    }

    fn accepts_records(&self) -> bool {
        matches!(self.group_member, GroupMember::Share(_)) || self.delivered < self.requested
    }

    /// Begins to leave the group. From now on, the member receives only records that the group already has.
    pub(super) fn begin_leaving(&mut self) {
        let available = match &mut self.group_member {
            GroupMember::Share(share) => share.waiting(),
            GroupMember::Work(_) => 0,
        };
        self.leave_progress = Some(LeaveProgress::After(self.delivered.saturating_add(available)));
    }

    pub(super) fn deliver(&mut self, out: &mut Vec<u8>) -> DeliveryOutcome {
        if self.leave_progress == Some(LeaveProgress::Complete) {
            // If the group has woken this member for a record, the group now wakes another member instead.
            self.group_member.sleep(false);
            return DeliveryOutcome::Waiting;
        }
        let mut writer = DeliverWriter::new(out);
        let (mut outcome, mut is_all) = (DeliveryOutcome::More, false);
        for _ in 0..DELIVERY_RECORDS_MAX {
            if writer.out_bytes() > CONTROL_BYTES_MAX {
                break;
            }
            if self.sent + writer.unfinished() >= self.granted {
                // The member has no credit, so the group wakes other members instead. When the member receives credit,
                // it is queued again.
                self.group_member.sleep(false);
                outcome = DeliveryOutcome::Waiting;
                break;
            }
            let (channels, accepts) = (&self.channels, self.accepts_records());
            let taken = self.group_member.take(accepts, |event| writer.add(channels, event));
            match taken {
                Ok(true) => {}
                Ok(false) if self.group_member.is_skipping() => {
                    outcome = DeliveryOutcome::Skipped;
                    break;
                }
                Ok(false) if self.group_member.sleep(accepts) => {
                    is_all = true;
                    outcome = DeliveryOutcome::Waiting;
                    break;
                }
                Ok(false) => {}
                Err(why) => {
                    outcome = DeliveryOutcome::Ended(why);
                    break;
                }
            }
            self.delivered += std::mem::take(&mut writer.records);
            self.sent += std::mem::take(&mut writer.sent);
        }
        writer.finish();
        self.delivered += writer.records;
        self.sent += writer.sent;
        if let Some(LeaveProgress::After(last)) = self.leave_progress
            && (is_all || self.delivered >= last)
            && !matches!(outcome, DeliveryOutcome::Ended(_))
        {
            self.leave_progress = Some(LeaveProgress::Complete);
            // For later records, the group wakes other members.
            self.group_member.sleep(false);
            return DeliveryOutcome::Complete;
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use dunlin::topic::{Draft, Payload, Publish, RecordMeta, Start, Waiter};
    use dunlin::{Config, ShareOptions};

    use super::*;

    #[test]
    fn group_member_takes_one_large_record_per_delivery() {
        const RECORD_BYTES: usize = 100 << 10;
        let node = Node::start(Config::default()).unwrap();
        let mut publisher = node.publisher("t").unwrap();
        let share =
            node.join_share_with_waiter("t", "g", &ShareOptions::default(), (Waiter::new(), 1)).unwrap();
        for _ in 0..5 {
            publisher.publish(&[0_u8; RECORD_BYTES][..]).unwrap();
        }
        let charge = MemoryCharge::none(node.budget());
        let mut member = GroupMembership::new(GroupMember::Share(share), vec![1], u64::MAX, false, charge);
        for taken in 1..=5 {
            let mut out = Vec::new();
            assert!(matches!(member.deliver(&mut out), DeliveryOutcome::More));
            assert!((RECORD_BYTES..2 * RECORD_BYTES).contains(&out.len()), "{} bytes", out.len());
            assert_eq!(member.delivered, taken);
        }
    }

    #[test]
    fn group_member_that_skips_many_records_blocks_no_thread() {
        let node = Node::start(Config::default()).unwrap();
        let mut publisher = node.publisher("t").unwrap();
        for _ in 0..20_000 {
            let meta = RecordMeta { expires_ns: Some(1), ..RecordMeta::default() };
            publisher.publish(Draft { meta, payload: Payload::Copied(b"expired") }).unwrap();
        }
        publisher.publish("current").unwrap();
        let options = ShareOptions { start: Start::Earliest, ..ShareOptions::default() };
        let share = node.join_share_with_waiter("t", "g", &options, (Waiter::new(), 1)).unwrap();
        let charge = MemoryCharge::none(node.budget());
        let mut member = GroupMembership::new(GroupMember::Share(share), vec![1], u64::MAX, false, charge);
        let (mut out, mut skipped) = (Vec::new(), 0);
        while matches!(member.deliver(&mut out), DeliveryOutcome::Skipped) {
            assert_eq!(member.delivered, 0);
            skipped += 1;
        }
        assert!(skipped >= 2, "others could run {skipped} times");
        assert_eq!(member.delivered, 1);
    }
}
