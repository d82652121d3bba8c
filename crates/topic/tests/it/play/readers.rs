//! The subscribers in a random test, and the checks of the events that they receive.

use dunlin_topic::*;

use super::{Written, content};
use crate::fixture::MANUAL;

pub(super) struct Reader {
    pub(super) subscriber: Subscriber,
    /// The sequence number that must be delivered or reported next.
    pub(super) next: u64,
    pub(super) from_ns: u64,
    pub(super) on_gap: OnGap,
    pub(super) warned: bool,
    pub(super) asleep: bool,
    pub(super) ended: bool,
}

/// The plain list and the log's public information, with which events are compared.
pub(super) struct ExpectedLog<'a> {
    pub(super) list: &'a [Written],
    pub(super) info: LogInfo,
    pub(super) closed: bool,
}

impl<'a> ExpectedLog<'a> {
    pub(super) fn of(topic: &Topic, list: &'a [Written], closed: bool) -> ExpectedLog<'a> {
        ExpectedLog { list, info: topic.logs()[0].info(), closed }
    }

    pub(super) fn written(&self, seq: u64) -> &Written {
        &self.list[seq as usize - 1]
    }

    pub(super) fn has_expired(&self, seq: u64) -> bool {
        self.written(seq).expires_ns <= MANUAL.now_ns()
    }
}

impl Reader {
    pub(super) fn take(&mut self, expected: &ExpectedLog<'_>) {
        let Ok(ready) = self.subscriber.ready() else { return self.check_end(expected) };
        if ready {
            // The event borrows from the subscriber, so the checker has copies of the fields that it needs.
            let mut checker = self.checker();
            checker.check(self.subscriber.take(), expected);
            self.apply(checker);
        } else {
            self.check_caught_up(expected);
        }
    }

    pub(super) fn drain(&mut self, max: usize, expected: &ExpectedLog<'_>) {
        let mut checker = self.checker();
        let drained = self.subscriber.drain(max, |event| checker.check(event, expected));
        self.apply(checker);
        match drained {
            Ok(count) if count < max => self.check_caught_up(expected),
            Ok(count) => assert!(count <= max),
            Err(_) => self.check_end(expected),
        }
    }

    fn checker(&self) -> Checker {
        let Reader { next, from_ns, on_gap, warned, ended, .. } = *self;
        Checker { next, from_ns, on_gap, warned, ended }
    }

    fn apply(&mut self, checker: Checker) {
        (self.next, self.warned, self.ended) = (checker.next, checker.warned, checker.ended);
    }

    /// After all events were read: checks that the subscriber has missed no record.
    fn check_caught_up(&mut self, expected: &ExpectedLog<'_>) {
        if !self.ended {
            assert!(!expected.closed, "the end is reported");
            self.checker().check_skipped(expected.info.next_seq, expected);
            self.warned = false;
        }
    }

    fn check_end(&self, _truth: &ExpectedLog<'_>) {
        assert!(self.ended, "a subscription reports why before it ends");
    }
}

/// Checks the events that a subscriber receives.
struct Checker {
    next: u64,
    from_ns: u64,
    on_gap: OnGap,
    warned: bool,
    ended: bool,
}

impl Checker {
    fn check(&mut self, event: Event<'_>, expected: &ExpectedLog<'_>) {
        assert!(!self.ended, "after the end: {event:?}");
        match event {
            Event::Record(record) => {
                let written = expected.written(record.seq());
                self.check_skipped(record.seq(), expected);
                assert_eq!(
                    record.payload(),
                    content(record.seq(), written.bytes),
                    "content of {}",
                    record.seq()
                );
                assert_eq!(record.frame.append_time_ns(), written.appended_ns);
                assert!(written.expires_ns > MANUAL.now_ns() && written.appended_ns >= self.from_ns);
                self.next = record.seq() + 1;
            }
            Event::Notice(Notice::Gap(gap)) => self.check_gap(&gap, expected),
            Event::Notice(Notice::Lagging(lagging)) => {
                assert!(!std::mem::replace(&mut self.warned, true), "one warning until it has caught up");
                assert!(lagging.behind <= expected.info.next_seq);
            }
            Event::Notice(Notice::Deleted { last, .. }) => {
                assert!(expected.closed);
                assert_eq!(last.seq, expected.list.len() as u64);
                self.check_skipped(expected.info.next_seq, expected);
                self.ended = true;
            }
            Event::Notice(other) => panic!("unexpected {other:?}"),
        }
    }

    fn check_gap(&mut self, gap: &Gap, expected: &ExpectedLog<'_>) {
        self.check_skipped(gap.first, expected);
        assert!(gap.first < expected.info.oldest_seq, "a retained record is not lost");
        let next =
            if self.on_gap == OnGap::Newest { expected.info.next_seq } else { expected.info.oldest_seq };
        assert_eq!(gap.last + 1, next);
        self.next = gap.last + 1;
        self.ended = self.on_gap == OnGap::Fail;
    }

    /// Checks that the subscriber may skip all records before `seq` that it has not received: they have expired, or are
    /// older than the subscription's start time.
    fn check_skipped(&self, seq: u64, expected: &ExpectedLog<'_>) {
        assert!(seq >= self.next, "{seq} was delivered again, {} was next", self.next);
        for skipped in self.next..seq {
            let written = expected.written(skipped);
            let unwanted = written.appended_ns < self.from_ns || expected.has_expired(skipped);
            assert!(unwanted, "{skipped} was skipped without a report");
        }
    }
}
