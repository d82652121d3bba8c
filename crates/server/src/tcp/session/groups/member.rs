//! One membership: what it receives in a turn, and how much.

use dunlin::topic::{Charge, Event, Frame, Notice, Position, Subscribe, SubscribeError, Topic};
use dunlin::{Claimed, Node, ShareMember, WorkEvent, WorkMember};

use super::writing::Writing;

/// Records of one member's turn.
const TURN_RECORDS: usize = 64;
/// One membership of the client.
#[derive(Debug)]
pub(in super::super) struct Member {
    pub(in crate::tcp::session) seat: Seat,
    /// One channel for each partition. The first is also the token that wakes the session for this membership.
    pub(super) channels: Vec<u32>,
    /// Bytes that the client allows, in total.
    pub(super) granted: u64,
    /// Bytes sent, in total.
    sent: u64,
    /// Records wanted, and delivered; in `work` groups only.
    pub(super) wanted: u64,
    given: u64,
    /// The membership is for another node's client, and leaves in two steps.
    pub(super) gives_back: bool,
    /// The progress of leaving.
    pub(super) ending: Option<Ending>,
    /// The memory charge.
    _charge: Charge,
}

/// The progress of a membership that gives unconsumed records back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// It receives no more than this many records, which the group had when it began to leave.
    After(u64),
    /// It has received them, and the client knows.
    Over,
}

#[derive(Debug)]
pub(in crate::tcp::session) enum Seat {
    Share(ShareMember),
    Work(WorkMember),
}

/// How a member's turn ended.
pub(super) enum Turn {
    /// The member waits for a record, credit, or a claim for more.
    Waits,
    More,
    /// The member has received its last record.
    Over,
    Ended(SubscribeError),
}

impl Seat {
    pub(in crate::tcp::session) fn topic(&self) -> &Topic {
        match self {
            Seat::Share(share) => share.topic(),
            Seat::Work(work) => work.topic(),
        }
    }

    pub(in crate::tcp::session) fn group(&self) -> &str {
        match self {
            Seat::Share(share) => share.group(),
            Seat::Work(work) => work.group(),
        }
    }

    pub(super) fn leave(self, node: &Node) {
        match self {
            Seat::Share(share) => {
                let (topic, group) = (share.topic().name().to_owned(), share.group().to_owned());
                share.leave();
                node.end_group(&topic, &group);
            }
            Seat::Work(work) => work.leave(),
        }
    }

    /// Leaves; the other members receive what it has not consumed.
    pub(super) fn give_back(self, node: &Node) {
        match self {
            Seat::Share(share) => {
                let (topic, group) = (share.topic().name().to_owned(), share.group().to_owned());
                share.give_back();
                node.end_group(&topic, &group);
            }
            Seat::Work(work) => work.leave(),
        }
    }

    fn sleep(&self, wants: bool) -> bool {
        match self {
            Seat::Share(share) => share.sleep(wants),
            Seat::Work(work) => work.sleep(wants),
        }
    }

    /// Passes the next record, if one is wanted, or the next notice to `each`; `false` if there is none.
    fn take(&mut self, wants: bool, mut each: impl FnMut(Given<'_>)) -> Result<bool, SubscribeError> {
        match self {
            Seat::Share(share) => {
                let is_ready = share.ready()?;
                if is_ready {
                    each(match share.take() {
                        Event::Record(record) => Given::Record {
                            partition: record.log.partition,
                            position: record.position,
                            frame: record.frame,
                            claim: None,
                        },
                        Event::Notice(notice) => Given::Notice(notice),
                    });
                }
                Ok(is_ready)
            }
            Seat::Work(work) => {
                let event = work.try_claim(wants)?;
                if let Some(event) = &event {
                    each(match event {
                        WorkEvent::Claimed(claimed) => Given::Record {
                            partition: claimed.record().log.partition,
                            position: claimed.record().position,
                            frame: claimed.record().frame,
                            claim: Some(claimed),
                        },
                        WorkEvent::Notice(notice) => Given::Notice(notice.clone()),
                    });
                }
                Ok(event.is_some())
            }
        }
    }
}

/// A record or a notice for a member.
pub(super) enum Given<'a> {
    Record { partition: u16, position: Position, frame: Frame<'a>, claim: Option<&'a Claimed> },
    Notice(Notice),
}

impl Member {
    pub(super) fn new(
        seat: Seat,
        channels: Vec<u32>,
        credit: u64,
        gives_back: bool,
        charge: Charge,
    ) -> Member {
        Member {
            seat,
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
        matches!(self.seat, Seat::Share(_)) || self.given < self.wanted
    }

    /// Begins to leave: the member receives only what the group has now.
    pub(super) fn end(&mut self) {
        let there = match &mut self.seat {
            Seat::Share(share) => share.waiting(),
            Seat::Work(_) => 0,
        };
        self.ending = Some(Ending::After(self.given.saturating_add(there)));
    }

    pub(super) fn turn(&mut self, out: &mut Vec<u8>) -> Turn {
        if self.ending == Some(Ending::Over) {
            // If the group woke this member, another is woken.
            self.seat.sleep(false);
            return Turn::Waits;
        }
        let mut writing = Writing::new(out);
        let (mut turn, mut is_all) = (Turn::More, false);
        for _ in 0..TURN_RECORDS {
            if self.sent + writing.unfinished() >= self.granted {
                // The member is queued again when it gets credit; until then the group wakes others.
                self.seat.sleep(false);
                turn = Turn::Waits;
                break;
            }
            let (channels, wants) = (&self.channels, self.wants());
            let taken = self.seat.take(wants, |given| writing.add(channels, given));
            match taken {
                Ok(true) => {}
                Ok(false) if self.seat.sleep(wants) => {
                    is_all = true;
                    turn = Turn::Waits;
                    break;
                }
                Ok(false) => {}
                Err(why) => {
                    turn = Turn::Ended(why);
                    break;
                }
            }
            self.given += std::mem::take(&mut writing.records);
            self.sent += std::mem::take(&mut writing.sent);
        }
        writing.finish();
        self.given += writing.records;
        self.sent += writing.sent;
        if let Some(Ending::After(last)) = self.ending
            && (is_all || self.given >= last)
            && !matches!(turn, Turn::Ended(_))
        {
            self.ending = Some(Ending::Over);
            // The group wakes others for later records.
            self.seat.sleep(false);
            return Turn::Over;
        }
        turn
    }
}
