//! One membership: what it is given in a turn, and how much it may be.

use dunlin::topic::{Charge, Event, Frame, Notice, Position, Subscribe, SubscribeError, Topic};
use dunlin::{Claimed, Node, ShareMember, WorkEvent, WorkMember};

use super::writing::Writing;

/// Records that a member is given before others get their turn.
const TURN_RECORDS: usize = 64;
/// One membership of the client.
#[derive(Debug)]
pub(in super::super) struct Member {
    pub(in crate::tcp::session) seat: Seat,
    /// One for each partition. The first is also what wakes the session for this membership.
    pub(super) channels: Vec<u32>,
    /// Bytes the client allows, since the beginning.
    pub(super) granted: u64,
    /// Bytes sent, since the beginning.
    sent: u64,
    /// Records asked for, and given. Only `work`.
    pub(super) wanted: u64,
    given: u64,
    /// It is of another node's client and leaves in two steps.
    pub(super) gives_back: bool,
    /// The first step was taken.
    pub(super) ending: Option<Ending>,
    /// What it takes of the node's memory.
    _charge: Charge,
}

/// How far a membership has come that gives back what was not consumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// It is given no more than so many records that were there for the group.
    After(u64),
    /// It was given them, and told so.
    Over,
}

#[derive(Debug)]
pub(in crate::tcp::session) enum Seat {
    Share(ShareMember),
    Work(WorkMember),
}

/// How a member's turn ended.
pub(super) enum Turn {
    /// Until something wakes it: a record, credit, or a claim for more.
    Waits,
    More,
    /// It was given the last that it is to have.
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

    /// Leaves; others are given what it has not consumed.
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

    /// Hands over the next record, if one is wanted, or notice; `false` if there is none.
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

/// What a member is given.
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

    /// It is given what is there for the group, and no more.
    pub(super) fn end(&mut self) {
        let there = match &mut self.seat {
            Seat::Share(share) => share.waiting(),
            Seat::Work(_) => 0,
        };
        self.ending = Some(Ending::After(self.given.saturating_add(there)));
    }

    pub(super) fn turn(&mut self, out: &mut Vec<u8>) -> Turn {
        if self.ending == Some(Ending::Over) {
            // Should the group have woken it, another is woken.
            self.seat.sleep(false);
            return Turn::Waits;
        }
        let mut writing = Writing::new(out);
        let (mut turn, mut is_all) = (Turn::More, false);
        for _ in 0..TURN_RECORDS {
            if self.sent + writing.unfinished() >= self.granted {
                // It looks again when it gets credit; until then the group wakes others.
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
            // What comes later is for others, which the group wakes.
            self.seat.sleep(false);
            return Turn::Over;
        }
        turn
    }
}
