//! Subscribers, and the checks of their events.

use dunlin_topic::*;

use super::{Written, content};
use crate::fixture::MANUAL;

pub(super) struct Reader {
    pub(super) subscriber: Subscriber,
    /// The next sequence to deliver or report.
    pub(super) next: u64,
    pub(super) from_ns: u64,
    pub(super) on_gap: OnGap,
    pub(super) warned: bool,
    pub(super) asleep: bool,
    pub(super) ended: bool,
}

/// The expected state of the log, with which events are compared.
pub(super) struct Truth<'a> {
    pub(super) list: &'a [Written],
    pub(super) info: LogInfo,
    pub(super) closed: bool,
}

impl<'a> Truth<'a> {
    pub(super) fn of(topic: &Topic, list: &'a [Written], closed: bool) -> Truth<'a> {
        Truth { list, info: topic.logs()[0].info(), closed }
    }

    pub(super) fn written(&self, seq: u64) -> &Written {
        &self.list[seq as usize - 1]
    }

    pub(super) fn has_expired(&self, seq: u64) -> bool {
        self.written(seq).expires_ns <= MANUAL.now_ns()
    }
}

impl Reader {
    pub(super) fn take(&mut self, truth: &Truth<'_>) {
        let Ok(ready) = self.subscriber.ready() else { return self.check_end(truth) };
        if ready {
            // The event borrows from the subscriber, so that the check uses a copy of the other fields.
            let mut judge = self.judge();
            judge.saw(self.subscriber.take(), truth);
            self.apply(judge);
        } else {
            self.check_caught_up(truth);
        }
    }

    pub(super) fn drain(&mut self, max: usize, truth: &Truth<'_>) {
        let mut judge = self.judge();
        let drained = self.subscriber.drain(max, |event| judge.saw(event, truth));
        self.apply(judge);
        match drained {
            Ok(given) if given < max => self.check_caught_up(truth),
            Ok(given) => assert!(given <= max),
            Err(_) => self.check_end(truth),
        }
    }

    fn judge(&self) -> Judge {
        let Reader { next, from_ns, on_gap, warned, ended, .. } = *self;
        Judge { next, from_ns, on_gap, warned, ended }
    }

    fn apply(&mut self, judge: Judge) {
        (self.next, self.warned, self.ended) = (judge.next, judge.warned, judge.ended);
    }

    /// After the last event, checks that everything was delivered.
    fn check_caught_up(&mut self, truth: &Truth<'_>) {
        if !self.ended {
            assert!(!truth.closed, "the end is told");
            self.judge().check_skipped(truth.info.next_seq, truth);
            self.warned = false;
        }
    }

    fn check_end(&self, _truth: &Truth<'_>) {
        assert!(self.ended, "a subscription ends after it said why");
    }
}

/// Checks the events that a subscriber receives.
struct Judge {
    next: u64,
    from_ns: u64,
    on_gap: OnGap,
    warned: bool,
    ended: bool,
}

impl Judge {
    fn saw(&mut self, event: Event<'_>, truth: &Truth<'_>) {
        assert!(!self.ended, "after the end: {event:?}");
        match event {
            Event::Record(record) => {
                let written = truth.written(record.seq());
                self.check_skipped(record.seq(), truth);
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
            Event::Notice(Notice::Gap(gap)) => self.saw_gap(&gap, truth),
            Event::Notice(Notice::Lagging(lagging)) => {
                assert!(!std::mem::replace(&mut self.warned, true), "one warning until it has caught up");
                assert!(lagging.behind <= truth.info.next_seq);
            }
            Event::Notice(Notice::Deleted { last, .. }) => {
                assert!(truth.closed);
                assert_eq!(last.seq, truth.list.len() as u64);
                self.check_skipped(truth.info.next_seq, truth);
                self.ended = true;
            }
            Event::Notice(other) => panic!("unexpected {other:?}"),
        }
    }

    fn saw_gap(&mut self, gap: &Gap, truth: &Truth<'_>) {
        self.check_skipped(gap.first, truth);
        assert!(gap.first < truth.info.oldest_seq, "what is held is not lost");
        let go_on = if self.on_gap == OnGap::Newest { truth.info.next_seq } else { truth.info.oldest_seq };
        assert_eq!(gap.last + 1, go_on);
        self.next = gap.last + 1;
        self.ended = self.on_gap == OnGap::Fail;
    }

    /// Checks that nothing up to `seq` was for this subscriber.
    fn check_skipped(&self, seq: u64, truth: &Truth<'_>) {
        assert!(seq >= self.next, "{seq} came again, {} was next", self.next);
        for skipped in self.next..seq {
            let written = truth.written(skipped);
            let unwanted = written.appended_ns < self.from_ns || truth.has_expired(skipped);
            assert!(unwanted, "{skipped} was skipped in silence");
        }
    }
}
