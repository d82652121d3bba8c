//! The queue of dead letters from one partition of a group. The queue takes the letters from the group's state machine,
//! and keeps them until they are stored.
//!
//! A letter may be stored only some time after it was sent: the topic for dead letters may belong to another node, or
//! may be on a disk that stores the letter later. Meanwhile the letter may be refused, or the response may be lost. The
//! queue then sends the letter again.
//!
//! Invariants:
//! - A letter leaves the queue only if it is stored, if the group's members receive a gap for its record, or if the
//!   group has ended. A letter that leaves the queue without being stored is counted as dropped.
//! - Letters are sent in order. After a refusal, the queue waits for the outcomes of all sent letters, and then sends
//!   the refused letters before newer ones.
//! - A letter has a number, as the records of a producer have. A letter that is sent again keeps its number, so that
//!   the owner stores it once even if the response to the first attempt was lost.
//! - A number is never used for two letters. If a letter that had a number is lost, the owner refuses all later
//!   numbers. The remaining letters then get new numbers, as from a later instance of the producer.
//!
//! Limit: the queue sends at most [`LETTERS_MAX`] letters at a time. Further letters stay in the state machine. A state
//! machine that has reached its own limit reads no more records.

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

/// The maximum number of letters that were sent and whose outcome is not known yet.
const LETTERS_MAX: usize = 64;
/// How long the queue waits after a refusal before it sends the refused letter again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// How long the queue waits for a disk of this node that neither stores a letter nor reports an error.
const STORE_WAIT_MAX: Duration = Duration::from_secs(30);
/// The token of notifications about the outcomes of letters.
const OUTCOME: u32 = 0;

/// The dead letters of one partition that the queue has taken from the state machine, and whose storage is not
/// confirmed.
#[derive(Debug)]
pub(in crate::groups) struct LetterQueue {
    /// Letters that were sent and whose outcome is not known, in the order of sending.
    sent: VecDeque<SentLetter>,
    /// Letters that are sent before the queue takes newer ones from the state machine.
    pending: VecDeque<PendingLetter>,
    /// The number of letters at the front of `pending` that are older than the letters in `sent`: their first attempt
    /// was earlier, and was refused.
    refused_before_sent: usize,
    numbers: LetterNumbers,
    /// Whether all remaining letters have to get new numbers before the next one is sent.
    must_renumber: bool,
    /// Whether the queue sends only one letter at a time. Set after a refusal.
    is_probing: bool,
    /// The time by the monotonic clock before which no letter is sent; 0 if letters may be sent at once.
    retry_at_ns: u64,
    /// The error with which the first of the refused letters was refused.
    refusal: Option<PublishError>,
}

/// A dead letter that was sent and appended to a log, but whose storage is not confirmed.
#[derive(Debug)]
pub(super) struct SentLetter {
    pub(super) letter: DeadLetter,
    pub(super) number: LetterNumber,
    /// The log to which the letter was appended.
    pub(super) log: Arc<Log>,
    pub(super) position: Position,
    pub(super) level: AckLevel,
    /// The time of sending, by the monotonic clock.
    pub(super) sent_ns: u64,
}

impl SentLetter {
    /// Whether this node's disk should have stored the letter by now but has not, for example because the topic was
    /// deleted. Never true for a letter to an owner at another node, because the route to this owner has time limits of
    /// its own.
    fn is_overdue(&self) -> bool {
        let waited_ns = steady_ns().saturating_sub(self.sent_ns);
        self.level != AckLevel::ByOwner && waited_ns >= STORE_WAIT_MAX.as_nanos() as u64
    }
}

/// A letter that is to be sent. It has a number if it was sent before.
#[derive(Debug, Clone, Copy)]
struct PendingLetter {
    letter: DeadLetter,
    number: Option<LetterNumber>,
}

/// The number of a dead letter. The letters to each partition of the topic for dead letters are numbered separately.
#[derive(Debug, Clone, Copy)]
pub(super) struct LetterNumber {
    pub(super) partition: usize,
    pub(super) mark: ProducerMark,
}

/// The next numbers of letters, one for each partition of the topic for dead letters.
#[derive(Debug)]
pub(super) struct LetterNumbers {
    producer: u64,
    epoch: u32,
    next: Vec<u64>,
}

impl LetterNumbers {
    fn new() -> LetterNumbers {
        // 0 would mean that the record has no producer.
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

    /// If a letter in the queue was refused, the reason: an error code and a text.
    pub(in crate::groups) fn refusal(&self) -> Option<String> {
        let refusal = self.refusal.as_ref().filter(|_| self.len() > 0)?;
        Some(line_of(refusal))
    }

    /// Whether the outcome of at least one sent letter is not known yet.
    pub(in crate::groups) fn has_sent(&self) -> bool {
        !self.sent.is_empty()
    }

    /// The sequence number of the oldest record whose dead letter is in the queue. The log must keep this record.
    pub(in crate::groups) fn oldest_seq(&self) -> Option<u64> {
        let sent = self.sent.iter().map(|sent| sent.letter.seq);
        sent.chain(self.pending.iter().map(|pending| pending.letter.seq)).min()
    }

    /// Takes the outcomes of sent letters. Then sends the letters in `pending`, and those that the state machine still
    /// has.
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
            // If `sent` was empty before, call `take_outcomes` once more: it registers the waiter for the outcome of
            // the first letter in `sent`.
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

    /// Takes the known outcomes of sent letters, in the order of sending. When the next outcome becomes known,
    /// `outcomes` of the sender's target is notified.
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

    /// Keeps a letter that has to be sent again, because it was refused or its response was lost.
    fn retry_later(&mut self, refused: PendingLetter, error: PublishError) {
        let is_first = self.refused_before_sent == 0;
        if !is_out_of_order(&error) {
            self.pause();
        } else if is_first && !self.must_renumber {
            // The letter's number was refused although no earlier letter was refused: the owner expects other numbers
            // than those of this queue.
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

    /// Counts a letter that can never be stored as dropped, and the letter's record as lost.
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

    /// Returns the next letter to send, or `None` if no letter can be sent now.
    fn next_to_send(&mut self, machine: &mut impl GroupMachine) -> Option<PendingLetter> {
        let is_one_at_a_time = self.is_probing || self.must_renumber || !self.pending.is_empty();
        if self.sent.len() >= LETTERS_MAX || is_one_at_a_time && !self.sent.is_empty() {
            return None;
        }
        // At this point, at least one of `sent` and `pending` is empty.
        self.refused_before_sent = 0;
        if std::mem::take(&mut self.must_renumber) {
            // The outcomes of all sent letters have arrived. A letter whose response was lost now gets another number,
            // and may therefore be stored twice. This requires two faults among letters that were sent together: the
            // response to one letter was lost, and another letter was refused for good.
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

/// The error as one line: its code and its text.
fn line_of(error: &PublishError) -> String {
    Refused { text: error.to_string(), ..Refused::from(error) }.to_line()
}

/// Whether the error says that the owner expected another number for the letter.
fn is_out_of_order(error: &PublishError) -> bool {
    matches!(
        error,
        PublishError::ProducerGap { .. }
            | PublishError::DuplicateForgotten { .. }
            | PublishError::ProducerFenced { .. }
    )
}
