//! The queue of a group's dead letters from one partition. It takes them from the state machine, and keeps them until
//! they are stored.
//!
//! A letter is not stored at once: the topic of the letters may belong to another node, whose response takes time, or
//! may be on a disk that stores the letter later. Meanwhile the letter may be refused, or its response may be lost. The
//! letter is then sent again.
//!
//! Invariants:
//! - A letter leaves the queue only if it is stored, if the group's members receive a gap for its record, or if the
//!   group has ended. A letter that leaves the queue without being stored is counted as dropped.
//! - Letters are sent in order. After a refusal, the queue waits for the outcomes of all letters, and then sends the
//!   refused ones before newer ones.
//! - A letter has a number like the records of a producer. A letter that is sent again keeps its number, so that the
//!   owner stores it once even if the response to the first attempt was lost.
//! - A number is never used for two letters. If a letter that had a number is lost, the owner refuses the numbers after
//!   it. The remaining letters then get new numbers, as from a later instance of the producer.
//!
//! Limit: [`LETTERS_MAX`] letters. Further letters stay in the state machine, which reads no more records at its own
//! limit.

use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::time::Duration;

use dunlin_topic::{
    AckLevel, AckProgress, DeadLetter, Log, Position, ProducerMark, PublishError, ReadDeferred, Waiter,
};

use super::{LetterSender, LetterSource};
use crate::clock::steady_ns;
use crate::groups::machine::GroupMachine;
use crate::refusal::Refused;

/// The largest number of letters that were sent and have no outcome.
const LETTERS_MAX: usize = 64;
/// How long the queue waits after the dead letters' topic has refused a letter, before it sends the letter again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// The longest time that the queue waits for a disk that neither stores a letter nor fails.
const STORE_WAIT_MAX: Duration = Duration::from_secs(30);
/// The token with which outcomes notify the group.
const OUTCOME: u32 = 0;

/// The dead letters of one partition that the group has taken from its state machine and that are not known to be
/// stored.
#[derive(Debug)]
pub(in crate::groups) struct LetterQueue {
    /// Letters without an outcome, in the order in which they were sent.
    sent: VecDeque<SentLetter>,
    /// Letters to send, before any newer letters of the state machine.
    pending: VecDeque<PendingLetter>,
    /// The number of letters at the front of `pending` that were sent before those in `sent`.
    refused_before_sent: usize,
    numbers: LetterNumbers,
    /// Whether the remaining letters need new numbers.
    must_renumber: bool,
    /// Whether the queue sends one letter at a time, because a letter was refused.
    is_probing: bool,
    /// The time by the steady clock before which no letter is sent; 0 for none.
    retry_at_ns: u64,
    /// The reason why the first refused letter waits.
    refusal: Option<PublishError>,
}

/// A dead letter that a log has accepted, but that is not known to be stored.
#[derive(Debug)]
pub(super) struct SentLetter {
    pub(super) letter: DeadLetter,
    pub(super) number: LetterNumber,
    /// The log that accepted the letter.
    pub(super) log: Arc<Log>,
    pub(super) position: Position,
    pub(super) level: AckLevel,
    /// The time of sending, by the steady clock.
    pub(super) sent_ns: u64,
}

impl SentLetter {
    /// Whether the disk of this node has not stored the letter in time, for example because the topic was deleted. The
    /// route to an owner at another node has time limits of its own.
    fn is_overdue(&self) -> bool {
        let waited_ns = steady_ns().saturating_sub(self.sent_ns);
        self.level != AckLevel::ByOwner && waited_ns >= STORE_WAIT_MAX.as_nanos() as u64
    }
}

/// A letter to send. It has a number if it was sent before.
#[derive(Debug, Clone, Copy)]
struct PendingLetter {
    letter: DeadLetter,
    number: Option<LetterNumber>,
}

/// The number of a letter in the sequence of letters that the queue sends to one partition of the topic for dead
/// letters.
#[derive(Debug, Clone, Copy)]
pub(super) struct LetterNumber {
    pub(super) partition: usize,
    pub(super) mark: ProducerMark,
}

/// The next number of a letter for each partition of the letters' topic.
#[derive(Debug)]
pub(super) struct LetterNumbers {
    producer: u64,
    epoch: u32,
    next: Vec<u64>,
}

impl LetterNumbers {
    fn new() -> LetterNumbers {
        // The wire format uses 0 for records without a producer.
        let producer = RandomState::new().hash_one("dead letters").max(1);
        LetterNumbers { producer, epoch: 1, next: Vec::new() }
    }

    pub(super) fn next_of(&self, partition: usize) -> LetterNumber {
        let producer_seq = self.next.get(partition).copied().unwrap_or(1);
        let mark = ProducerMark { producer: self.producer, producer_epoch: self.epoch, producer_seq };
        LetterNumber { partition, mark }
    }

    fn advance_past(&mut self, number: &LetterNumber) {
        let LetterNumber { partition, mark } = *number;
        if self.next.len() <= partition {
            self.next.resize(partition + 1, 1);
        }
        self.next[partition] = self.next[partition].max(mark.producer_seq + 1);
    }

    fn begin_epoch(&mut self) {
        self.epoch = self.epoch.saturating_add(1);
        self.next.clear();
    }
}

impl LetterQueue {
    pub(in crate::groups) fn new() -> LetterQueue {
        LetterQueue {
            sent: VecDeque::new(),
            pending: VecDeque::new(),
            refused_before_sent: 0,
            numbers: LetterNumbers::new(),
            must_renumber: false,
            is_probing: false,
            retry_at_ns: 0,
            refusal: None,
        }
    }

    /// The number of letters in the queue.
    pub(in crate::groups) fn len(&self) -> usize {
        self.sent.len() + self.pending.len()
    }

    /// The reason why letters wait, if one was refused: an error code and a text.
    pub(in crate::groups) fn refusal(&self) -> Option<String> {
        let refusal = self.refusal.as_ref().filter(|_| self.len() > 0)?;
        Some(line_of(refusal))
    }

    /// Whether at least one sent letter has no outcome yet.
    pub(in crate::groups) fn has_sent(&self) -> bool {
        !self.sent.is_empty()
    }

    /// The sequence number of the oldest record whose letter is not stored. The log must keep this record.
    pub(in crate::groups) fn oldest_seq(&self) -> Option<u64> {
        let sent = self.sent.iter().map(|sent| sent.letter.seq);
        sent.chain(self.pending.iter().map(|pending| pending.letter.seq)).min()
    }

    /// Takes the outcomes of sent letters. Then sends the letters that wait, and those of the state machine.
    pub(in crate::groups) fn advance(
        &mut self,
        sender: &LetterSender<'_>,
        records: LetterSource<'_>,
        machine: &mut impl GroupMachine,
    ) {
        loop {
            self.take_outcomes(sender, machine);
            let had_sent = self.has_sent();
            self.send(sender, records, machine);
            // The first letter that was sent needs another call of `take_outcomes`. Only that call registers the waiter
            // for the letter's outcome.
            if had_sent || !self.has_sent() {
                return;
            }
        }
    }

    fn send(
        &mut self,
        sender: &LetterSender<'_>,
        records: LetterSource<'_>,
        machine: &mut impl GroupMachine,
    ) {
        while let Some(next) = self.next_to_send(machine) {
            match sender.send(records, next.letter, next.number, &self.numbers) {
                Ok(Some(Ok(sent))) => {
                    self.numbers.advance_past(&sent.number);
                    match sent.level {
                        AckLevel::Memory => self.on_stored(),
                        _ => self.sent.push_back(sent),
                    }
                }
                Ok(None) => self.lose(next, "its record is not retained".to_owned(), sender, machine),
                Ok(Some(Err(error)))
                    if matches!(error, PublishError::Batch(_)) || error.concerns_one_record() =>
                {
                    self.lose(next, line_of(&error), sender, machine);
                }
                Ok(Some(Err(error))) => {
                    self.must_renumber |= is_out_of_order(&error);
                    if matches!(error, PublishError::DiskBehind { .. }) {
                        self.pause();
                    }
                    self.refusal = Some(error);
                    return self.pending.push_front(next);
                }
                Err(ReadDeferred) => {
                    self.pause();
                    return self.pending.push_front(next);
                }
            }
        }
    }

    /// Takes the outcomes in the order of sending. The target's waiter is notified when the next outcome is known.
    fn take_outcomes(&mut self, sender: &LetterSender<'_>, machine: &mut impl GroupMachine) {
        let outcomes: &Arc<Waiter> = &sender.target.outcomes;
        while let Some(first) = self.sent.front() {
            let error = match first.log.poll_ack(first.position, first.level, outcomes, OUTCOME) {
                AckProgress::Waiting if first.is_overdue() => {
                    Some(PublishError::Unknown("the disk has not stored the record in time".to_owned()))
                }
                AckProgress::Waiting => return,
                AckProgress::Reached | AckProgress::ByOwner(_) => None,
                AckProgress::Failed(error) => Some(error),
            };
            let Some(SentLetter { letter, number, .. }) = self.sent.pop_front() else { return };
            match error {
                None => self.on_stored(),
                Some(error) => {
                    self.is_probing = true;
                    let refused = PendingLetter { letter, number: Some(number) };
                    if error.concerns_one_record() {
                        self.lose(refused, line_of(&error), sender, machine);
                    } else {
                        self.retry_later(refused, error);
                    }
                }
            }
        }
    }

    fn on_stored(&mut self) {
        if self.pending.is_empty() {
            (self.is_probing, self.refusal) = (false, None);
        }
    }

    /// Keeps a letter that was refused, or whose response was lost, to send it again.
    fn retry_later(&mut self, refused: PendingLetter, error: PublishError) {
        let is_first = self.refused_before_sent == 0;
        if !is_out_of_order(&error) {
            self.pause();
        } else if is_first && !self.must_renumber {
            // No earlier letter was refused. The owner therefore expects other numbers than the queue's.
            self.must_renumber = true;
            self.pause();
        }
        if is_first {
            self.refusal = Some(error);
        }
        self.pending.insert(self.refused_before_sent, refused);
        self.refused_before_sent += 1;
    }

    fn pause(&mut self) {
        self.retry_at_ns = steady_ns().saturating_add(RETRY_PAUSE.as_nanos() as u64);
    }

    /// Drops all letters because the group has ended. Returns their number.
    pub(in crate::groups) fn drop_all(&mut self) -> u64 {
        let count = self.len() as u64;
        self.must_renumber |= count > 0;
        self.sent.clear();
        self.pending.clear();
        self.refused_before_sent = 0;
        count
    }

    /// Reports a record as lost, because its letter can never be stored.
    fn lose(
        &mut self,
        lost: PendingLetter,
        why: String,
        sender: &LetterSender<'_>,
        machine: &mut impl GroupMachine,
    ) {
        self.must_renumber |= lost.number.is_some();
        machine.lose_dead_letter(lost.letter);
        sender.report_dropped(1, why);
    }

    /// The next letter, if one can be sent now.
    fn next_to_send(&mut self, machine: &mut impl GroupMachine) -> Option<PendingLetter> {
        let is_one_at_a_time = self.is_probing || self.must_renumber || !self.pending.is_empty();
        if self.sent.len() >= LETTERS_MAX || is_one_at_a_time && !self.sent.is_empty() {
            return None;
        }
        // At this point, at least one of `sent` and `pending` is empty.
        self.refused_before_sent = 0;
        if std::mem::take(&mut self.must_renumber) {
            // All outcomes are known. A letter whose response was lost may be stored twice, because it gets another
            // number. This happens only if, among letters that were sent together, one response was lost and another
            // letter was refused for good.
            self.numbers.begin_epoch();
            self.pending.iter_mut().for_each(|pending| pending.number = None);
        }
        if self.retry_at_ns > 0 {
            if steady_ns() < self.retry_at_ns {
                return None;
            }
            self.retry_at_ns = 0;
        }
        let new = || Some(PendingLetter { letter: machine.take_dead_letter()?, number: None });
        self.pending.pop_front().or_else(new)
    }
}

/// The code and the text of the error.
fn line_of(error: &PublishError) -> String {
    Refused { text: error.to_string(), ..Refused::from(error) }.to_line()
}

/// Whether the owner refuses the letter because of its number.
fn is_out_of_order(error: &PublishError) -> bool {
    matches!(
        error,
        PublishError::ProducerGap { .. }
            | PublishError::DuplicateForgotten { .. }
            | PublishError::ProducerFenced { .. }
    )
}
