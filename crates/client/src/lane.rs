//! A publish lane contains the records that one publisher sends to one partition. The client numbers the records, sends
//! them in batches, and keeps them until the node has responded.
//!
//! Invariants:
//! - The numbers of records grow by 1. Records that are sent again after a lost connection have the same bytes as
//!   before.
//! - After the owner has refused a record, it also refuses all later records. The client therefore stops numbering
//!   until every batch has a response, and then continues with the number of the first refused record.
//! - Refused records are kept until they are sent again, or until new records are published. Their total size is at
//!   most `in_flight_bytes_max` plus one batch.
//! - The numbers of a batch that may have been appended are never used for other records, because the owner would take
//!   the other records for duplicates. A batch that may have been appended is sent again unchanged before anything
//!   else, until the topic's log has appended or refused it. A refusal from any other part of the node does not show
//!   whether an earlier attempt to send the batch was appended.

mod sent;

use std::collections::VecDeque;

use dunlin_topic::{Frame, Position, PublishError, Receipt, RecordMeta};
use dunlin_wire::{PublishHeader, RUN_HEAD_BYTES, publish_head};

use sent::SentBatch;

/// The maximum number of empty buffers that are kept for later batches.
const SPARE_BATCHES_MAX: usize = 32;

/// The records that one publisher sends to one partition, until the node has responded to them.
#[derive(Debug)]
pub(crate) struct PublishLane {
    partition: u32,
    /// The number that the first record of the batch being filled will receive.
    next_seq: u64,
    /// The bytes of the batch that is being filled: room for the batch's header, and then frames.
    batch: Vec<u8>,
    /// The number of records in the batch that is being filled.
    count: u32,
    /// The batches that were sent and have no response yet, in the order of their numbers.
    unanswered: VecDeque<SentBatch>,
    unanswered_bytes: usize,
    /// How many records the node has acknowledged.
    acknowledged: u64,
    /// The lowest number among the refused records, with which the numbering continues once all batches have a
    /// response; `None` if no refusal is pending.
    refused_from: Option<u64>,
    /// The refused batches, in the order in which the owner must append them.
    refused_batches: VecDeque<SentBatch>,
    /// Whether a refusal concerned one record only, so that the other records of its batch have to be sent again.
    record_refused: bool,
    pushed: u64,
    pub(crate) acknowledged_at: Option<Position>,
    /// Empty buffers that later batches use.
    spare: Vec<Vec<u8>>,
    /// The last receipt, which the next waiting caller takes.
    pub(crate) receipt: Option<Receipt>,
}

/// Whether a refused batch was appended, as far as the refusal tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BatchOutcome {
    /// The batch may have been appended.
    Unknown,
    /// The batch did not reach the topic's log in this attempt, but an earlier attempt may have appended it.
    NotAccepted,
    /// The topic's log refused the batch, so no attempt has appended it.
    Refused,
}

/// The part of a batch that the node refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RefusedPart {
    Batch,
    /// One record. With the number n, the refused record is the nth record that was pushed to the lane. The batch's
    /// other records are sent again.
    Record(u64),
    /// One record, but the refusal does not say which. To find it, the batch is sent again as two separate halves.
    Unknown,
}

impl PublishLane {
    pub(crate) fn new(partition: u32) -> PublishLane {
        PublishLane {
            partition,
            next_seq: 1,
            batch: Vec::new(),
            count: 0,
            unanswered: VecDeque::new(),
            unanswered_bytes: 0,
            acknowledged: 0,
            refused_from: None,
            refused_batches: VecDeque::new(),
            record_refused: false,
            pushed: 0,
            acknowledged_at: None,
            spare: Vec::new(),
            receipt: None,
        }
    }

    /// Adds a record to the batch that is being filled. Returns the size of this batch in bytes. Fails if the record
    /// alone has more than `bytes_max` bytes.
    #[inline]
    pub(crate) fn push(
        &mut self,
        meta: &RecordMeta<'_>,
        payload: &[u8],
        bytes_max: usize,
    ) -> Result<usize, PublishError> {
        let encoded = meta.measure(payload.len())?;
        if encoded.padded() > bytes_max {
            return Err(PublishError::RecordTooLarge { bytes: encoded.padded(), bytes_max });
        }
        let start = self.batch.len().max(RUN_HEAD_BYTES);
        self.batch.resize(start + encoded.padded(), 0);
        meta.encode(encoded, 0, payload, &mut self.batch[start..]);
        self.count += 1;
        self.pushed += 1;
        Ok(self.batch.len())
    }

    pub(crate) fn discard_batch(&mut self) {
        self.batch.clear();
        self.pushed -= u64::from(std::mem::take(&mut self.count));
    }

    /// Appends the batch that is being filled to the list of refused batches.
    pub(crate) fn move_batch_to_refused(&mut self) {
        if self.count > 0 {
            let bytes = std::mem::take(&mut self.batch);
            let count = std::mem::take(&mut self.count);
            let pushed_before = self.pushed - u64::from(count);
            self.refused_batches.push_back(SentBatch {
                bytes,
                first: 0,
                count,
                outcome_unknown: false,
                splittable: true,
                flags: 0,
                expect_seq: 0,
                pushed_before,
            });
        }
    }

    /// Gives new numbers to the records of all refused batches, and passes each batch to `send`.
    pub(crate) fn resend_refused(&mut self, publisher: u32, mut send: impl FnMut(&[u8])) {
        self.record_refused = false;
        for mut sent in std::mem::take(&mut self.refused_batches) {
            if sent.count == 0 {
                continue;
            }
            sent.first = self.next_seq;
            let header = self.header(publisher, sent.expect_seq, sent.count, sent.bytes.len());
            sent.bytes[..RUN_HEAD_BYTES].copy_from_slice(&publish_head(&header, sent.flags));
            self.send_numbered(sent, &mut send);
        }
    }

    /// Whether a refusal concerned one record only, and the other records of its batch were not sent again yet.
    pub(crate) fn has_refused_record(&self) -> bool {
        self.record_refused
    }

    /// Whether the records of [`has_refused_record`](Self::has_refused_record) can now be sent again, because all sent
    /// batches have a response.
    pub(crate) fn can_resend_rest(&self) -> bool {
        self.record_refused && self.unanswered.is_empty()
    }

    fn send_numbered(&mut self, sent: SentBatch, send: &mut impl FnMut(&[u8])) {
        send(&sent.bytes);
        self.next_seq = sent.first + u64::from(sent.count);
        self.unanswered_bytes += sent.bytes.len();
        self.unanswered.push_back(sent);
    }

    /// Resends those refused batches that may have been appended. The owner recognizes records that it already has, and
    /// skips them.
    pub(crate) fn resend_unknown(&mut self, mut send: impl FnMut(&[u8])) {
        // The loop stops at a batch that was certainly not appended, or whose first record does not have the next
        // number.
        while let Some(sent) =
            self.refused_batches.pop_front_if(|sent| sent.outcome_unknown && sent.first == self.next_seq)
        {
            self.send_numbered(sent, &mut send);
        }
    }

    fn header(&self, publisher: u32, expect_seq: u64, count: u32, batch_bytes: usize) -> PublishHeader {
        PublishHeader {
            publisher,
            partition: self.partition,
            expect_seq,
            producer_seq: self.next_seq,
            count,
            bytes: (batch_bytes - RUN_HEAD_BYTES) as u32,
        }
    }

    pub(crate) fn has_batch(&self) -> bool {
        self.count > 0
    }

    /// Numbers the records of the batch that is being filled, and passes the batch to `send`. With `expects_response`,
    /// keeps the batch until the response.
    pub(crate) fn send_batch(
        &mut self,
        publisher: u32,
        flags: u8,
        expect_seq: u64,
        expects_response: bool,
        splittable: bool,
        mut send: impl FnMut(&[u8]),
    ) {
        self.resend_unknown(&mut send);
        // Discard the other refused batches, which are kept only until a new record is published.
        self.refused_batches.clear();
        let header = self.header(publisher, expect_seq, self.count, self.batch.len());
        let mut bytes = std::mem::replace(&mut self.batch, self.spare.pop().unwrap_or_default());
        bytes[..RUN_HEAD_BYTES].copy_from_slice(&publish_head(&header, flags));
        send(&bytes);
        self.next_seq += u64::from(self.count);
        self.count = 0;
        if expects_response {
            self.unanswered_bytes += bytes.len();
            let (first, count) = (header.producer_seq, header.count);
            let pushed_before = self.pushed - u64::from(count);
            self.unanswered.push_back(SentBatch {
                bytes,
                first,
                count,
                outcome_unknown: false,
                splittable,
                flags: if splittable { 0 } else { flags },
                expect_seq,
                pushed_before,
            });
        } else {
            self.recycle(bytes);
        }
    }

    /// Numbers the records of the batch that is being filled, and encodes each as a message of its own. Passes all
    /// messages to `send` at once, and keeps none.
    pub(crate) fn send_each_record(&mut self, publisher: u32, flags: u8, mut send: impl FnMut(&[u8])) {
        let mut batch = std::mem::take(&mut self.batch);
        let mut out = Vec::with_capacity(batch.len() + self.count as usize * RUN_HEAD_BYTES);
        let mut rest = batch.get(RUN_HEAD_BYTES..).unwrap_or_default();
        while let Some((_, taken)) = Frame::split(rest) {
            let header = self.header(publisher, 0, 1, RUN_HEAD_BYTES + taken);
            out.extend_from_slice(&publish_head(&header, flags));
            out.extend_from_slice(&rest[..taken]);
            rest = &rest[taken..];
            self.next_seq += 1;
        }
        self.count = 0;
        send(&out);
        batch.clear();
        self.recycle(batch);
    }

    /// The number of the last sent record.
    pub(crate) fn last_seq(&self) -> u64 {
        self.next_seq - 1
    }

    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    pub(crate) fn unanswered_bytes(&self) -> usize {
        self.unanswered_bytes
    }

    pub(crate) fn batch_bytes(&self) -> usize {
        self.batch.len()
    }

    pub(crate) fn is_answered(&self) -> bool {
        self.unanswered.is_empty()
    }

    pub(crate) fn is_answered_through(&self, seq: u64) -> bool {
        self.unanswered.front().is_none_or(|sent| sent.first > seq)
    }

    /// Marks the sent batches whose last number is at most `through` as appended.
    pub(crate) fn acknowledge_through(&mut self, through: u64) {
        // If the owner has accepted a later record than the refused one, the number of the refused record cannot be
        // used again.
        self.refused_from = self.refused_from.filter(|&first| first > through);
        while let Some(first) = self.unanswered.front()
            && first.first + u64::from(first.count) - 1 <= through
            && let Some(sent) = self.unanswered.pop_front()
        {
            self.acknowledged += u64::from(sent.count);
            self.finish(sent);
        }
    }

    /// Handles a refusal of the batch whose first record has the number `first`. Returns the part that was refused.
    ///
    /// If the refusal concerns the whole batch, `record` is `None`. If it concerns one record, `record` is the index of
    /// this record in the batch, counted from 1, or 0 if the node did not name the record. The batch's other records
    /// are then kept and sent again.
    pub(crate) fn handle_refusal(
        &mut self,
        first: u64,
        outcome: BatchOutcome,
        record: Option<u32>,
    ) -> RefusedPart {
        let mut refused_part = RefusedPart::Batch;
        if let Some(at) = self.unanswered.iter().position(|sent| sent.first == first)
            && let Some(sent) = self.unanswered.remove(at)
        {
            self.refused_from = Some(self.refused_from.unwrap_or(first).min(first));
            self.unanswered_bytes -= sent.bytes.len();
            let outcome_unknown = match outcome {
                BatchOutcome::Unknown => true,
                BatchOutcome::NotAccepted => sent.outcome_unknown,
                BatchOutcome::Refused => false,
            };
            let sent = SentBatch { outcome_unknown, ..sent };
            let parts = match record {
                Some(record) if sent.splittable && !outcome_unknown => {
                    self.record_refused = true;
                    let record = if sent.count == 1 { 1 } else { record };
                    let is_named = (1..=sent.count).contains(&record);
                    refused_part = if is_named {
                        RefusedPart::Record(sent.pushed_before + u64::from(record))
                    } else {
                        RefusedPart::Unknown
                    };
                    let half = sent.count / 2;
                    if is_named { sent.without(record) } else { sent.split(half) }
                }
                _ => [Some(sent), None],
            };
            // Keep the batches sorted by their numbers. Batches without a number come last.
            let index = self.refused_batches.iter().position(|other| other.first > first || other.first == 0);
            let index = index.unwrap_or(self.refused_batches.len());
            for part in parts.into_iter().flatten().rev() {
                self.refused_batches.insert(index, part);
            }
            self.rewind_if_answered();
        }
        refused_part
    }

    /// Discards the refused batches. Returns the number of their records.
    pub(crate) fn discard_refused(&mut self) -> u64 {
        self.record_refused = false;
        self.receipt = None;
        std::mem::take(&mut self.refused_batches).iter().map(|sent| u64::from(sent.count)).sum()
    }

    fn finish(&mut self, sent: SentBatch) {
        self.unanswered_bytes -= sent.bytes.len();
        self.recycle(sent.bytes);
        self.rewind_if_answered();
    }

    fn rewind_if_answered(&mut self) {
        if self.unanswered.is_empty()
            && let Some(first) = self.refused_from.take()
        {
            self.next_seq = first;
        }
    }

    /// Whether a refusal is still pending. New records can then receive no numbers.
    pub(crate) fn is_settling(&self) -> bool {
        self.refused_from.is_some()
    }

    /// Returns the bytes of each batch that has no response yet, in order.
    pub(crate) fn unanswered(&self) -> impl Iterator<Item = &[u8]> {
        self.unanswered.iter().map(|sent| &sent.bytes[..])
    }

    /// Discards all sent and refused batches, and begins the numbering again at 1.
    pub(crate) fn discard_all(&mut self) {
        self.unanswered.clear();
        self.refused_batches.clear();
        self.record_refused = false;
        self.unanswered_bytes = 0;
        self.refused_from = None;
        self.next_seq = 1;
    }

    /// Continues the numbering after `last`, the number of the producer's last record at the owner, unless batches are
    /// kept.
    pub(crate) fn continue_after(&mut self, last: u64) {
        if self.unanswered.is_empty() && self.refused_batches.is_empty() && self.refused_from.is_none() {
            self.next_seq = last + 1;
        }
    }

    fn recycle(&mut self, mut bytes: Vec<u8>) {
        if self.spare.len() < SPARE_BATCHES_MAX {
            bytes.clear();
            self.spare.push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use dunlin_wire::{DecodeOutcome, Decoder, DecoderLimits, FLAG_ACK, FLAG_EXPECT, FromClient, Publish};

    use super::*;

    fn send(lane: &mut PublishLane, payloads: &[&[u8]]) -> Vec<u8> {
        for payload in payloads {
            lane.push(&RecordMeta::default(), payload, 1 << 20).unwrap();
        }
        let mut sent = Vec::new();
        lane.send_batch(7, FLAG_ACK, 0, true, true, |bytes| sent.extend_from_slice(bytes));
        sent
    }

    fn publish(bytes: &[u8]) -> Publish<'_> {
        let Ok(DecodeOutcome::Message(FromClient::Publish(publish), _)) =
            Decoder::new(DecoderLimits::default()).next_from_client(bytes)
        else {
            panic!("no PUBLISH")
        };
        publish
    }

    #[test]
    fn batches_are_numbered_consecutively() {
        let mut lane = PublishLane::new(3);
        let first = send(&mut lane, &[b"a", b"b"]);
        let second = send(&mut lane, &[b"c"]);
        let (first, second) = (publish(&first).header, publish(&second).header);
        assert_eq!((first.publisher, first.partition, first.producer_seq, first.count), (7, 3, 1, 2));
        assert_eq!((second.producer_seq, second.count), (3, 1));
    }

    #[test]
    fn unanswered_batches_are_resent_byte_for_byte() {
        let mut lane = PublishLane::new(0);
        let sent: Vec<Vec<u8>> = (0..3).map(|_| send(&mut lane, &[b"a", b"b"])).collect();
        lane.acknowledge_through(2);
        assert_eq!(lane.unanswered().collect::<Vec<_>>(), [&sent[1][..], &sent[2][..]]);
        lane.acknowledge_through(5);
        assert_eq!(lane.unanswered().count(), 1, "half a batch is no answer");
        lane.acknowledge_through(6);
        assert!(lane.is_answered() && lane.unanswered_bytes() == 0);
    }

    #[test]
    fn next_batch_reuses_the_number_of_the_first_refused_batch() {
        let mut lane = PublishLane::new(0);
        for _ in 0..3 {
            send(&mut lane, &[b"a", b"b"]);
        }
        lane.acknowledge_through(2);
        lane.handle_refusal(3, BatchOutcome::Refused, None);
        assert!(lane.is_settling());
        lane.handle_refusal(5, BatchOutcome::Refused, None);
        assert!(!lane.is_settling());
        assert_eq!(publish(&send(&mut lane, &[b"c"])).header.producer_seq, 3);
    }

    #[test]
    fn refused_batches_are_resent_in_order_before_new_batches() {
        let mut lane = PublishLane::new(0);
        let sent: Vec<Vec<u8>> =
            [b"a", b"b", b"c"].map(|payload| send(&mut lane, &[payload, payload])).into();
        lane.push(&RecordMeta::default(), b"d", 1 << 20).unwrap();
        lane.acknowledge_through(2);
        lane.handle_refusal(3, BatchOutcome::Refused, None);
        lane.handle_refusal(5, BatchOutcome::Refused, None);
        lane.move_batch_to_refused();
        let mut again = Vec::new();
        lane.resend_refused(7, |bytes| again.push(bytes.to_vec()));
        let headers: Vec<PublishHeader> = again.iter().map(|bytes| publish(bytes).header).collect();
        assert_eq!(
            headers.iter().map(|h| (h.producer_seq, h.count)).collect::<Vec<_>>(),
            [(3, 2), (5, 2), (7, 1)]
        );
        assert_eq!(
            [publish(&again[0]).frames, publish(&again[1]).frames],
            [1, 2].map(|n| publish(&sent[n]).frames)
        );
        lane.acknowledge_through(7);
        assert!(lane.is_answered() && lane.unanswered_bytes() == 0);
        assert_eq!(lane.acknowledged(), 7);
    }

    #[test]
    fn batch_with_unknown_outcome_is_resent_first_unchanged() {
        let mut lane = PublishLane::new(0);
        let sent: Vec<Vec<u8>> = [b"a", b"b", b"c"].map(|payload| send(&mut lane, &[payload])).into();
        // The responses to different batches may arrive out of order.
        lane.handle_refusal(3, BatchOutcome::Unknown, None);
        lane.handle_refusal(1, BatchOutcome::Unknown, None);
        lane.handle_refusal(2, BatchOutcome::Refused, None);
        lane.push(&RecordMeta::default(), b"d", 1 << 20).unwrap();
        let mut again = Vec::new();
        lane.send_batch(7, FLAG_ACK, 0, true, true, |bytes| again.push(bytes.to_vec()));
        assert_eq!(again[0], sent[0], "the very bytes, under their number");
        let last = publish(&again[1]);
        assert_eq!(
            (again.len(), last.header.producer_seq),
            (2, 2),
            "the third cannot be there without the second"
        );
        lane.acknowledge_through(2);
        assert!(lane.is_answered() && lane.acknowledged() == 2);
    }

    #[test]
    fn batch_with_unknown_outcome_is_resent_with_its_number() {
        let mut lane = PublishLane::new(0);
        let sent = send(&mut lane, &[b"a"]);
        lane.handle_refusal(1, BatchOutcome::Unknown, None);
        for _ in 0..2 {
            let mut again = Vec::new();
            lane.resend_unknown(|bytes| again.push(bytes.to_vec()));
            assert_eq!(again, std::slice::from_ref(&sent), "the owner may have appended the first attempt");
            lane.handle_refusal(1, BatchOutcome::NotAccepted, Some(1));
        }
        let both = send(&mut lane, &[b"b"]);
        assert!(both.starts_with(&sent));
        assert_eq!(publish(&both[sent.len()..]).header.producer_seq, 2);
        lane.handle_refusal(1, BatchOutcome::Refused, None);
        lane.handle_refusal(2, BatchOutcome::Refused, None);
        assert_eq!(publish(&send(&mut lane, &[b"c"])).header.producer_seq, 1, "nothing was appended");
    }

    #[test]
    fn batch_is_resent_without_its_refused_record() {
        let mut lane = PublishLane::new(0);
        send(&mut lane, &[b"a", b"b", b"c"]);
        send(&mut lane, &[b"d"]);
        assert_eq!(lane.handle_refusal(1, BatchOutcome::Refused, Some(2)), RefusedPart::Record(2));
        assert!(!lane.can_resend_rest(), "the second batch has no answer yet");
        assert_eq!(lane.handle_refusal(4, BatchOutcome::Refused, None), RefusedPart::Batch);
        assert!(lane.can_resend_rest());
        let mut again = Vec::new();
        lane.resend_refused(7, |bytes| again.push(bytes.to_vec()));
        let headers = again.iter().map(|bytes| publish(bytes).header);
        assert_eq!(headers.map(|h| (h.producer_seq, h.count)).collect::<Vec<_>>(), [(1, 1), (2, 1), (3, 1)]);
        let payloads = again
            .iter()
            .flat_map(|bytes| publish(bytes).frames.chunks(32))
            .map(|bytes| Frame::split(bytes).unwrap().0.payload().to_vec());
        assert_eq!(payloads.collect::<Vec<_>>(), [b"a", b"c", b"d"]);
    }

    #[test]
    fn discarded_batch_uses_no_record_numbers() {
        let mut lane = PublishLane::new(0);
        send(&mut lane, &[b"a"]);
        for payload in [b"b", b"c"] {
            lane.push(&RecordMeta::default(), payload, 1 << 20).unwrap();
        }
        lane.discard_batch();
        send(&mut lane, &[b"d"]);
        lane.acknowledge_through(1);
        assert_eq!(lane.handle_refusal(2, BatchOutcome::Refused, Some(1)), RefusedPart::Record(2));
    }

    #[test]
    fn conditional_record_keeps_its_condition_when_resent() {
        let mut lane = PublishLane::new(0);
        send(&mut lane, &[b"a"]);
        lane.push(&RecordMeta::default(), b"b", 1 << 20).unwrap();
        lane.send_batch(7, FLAG_ACK | FLAG_EXPECT, 9, true, false, |_| ());
        lane.handle_refusal(1, BatchOutcome::Refused, Some(1));
        lane.handle_refusal(2, BatchOutcome::Refused, None);
        let mut again = Vec::new();
        lane.resend_refused(7, |bytes| again.extend_from_slice(bytes));
        let again = publish(&again);
        assert_eq!((again.header.producer_seq, again.header.expect_seq), (1, 9));
        assert_eq!(again.flags, FLAG_ACK | FLAG_EXPECT);
    }

    #[test]
    fn refused_batch_is_bisected_if_the_refusal_names_no_record() {
        let mut lane = PublishLane::new(0);
        send(&mut lane, &[b"a", b"b", b"c", b"d"]);
        assert_eq!(lane.handle_refusal(1, BatchOutcome::Refused, Some(0)), RefusedPart::Unknown);
        let mut again = Vec::new();
        lane.resend_refused(7, |bytes| again.push(bytes.to_vec()));
        assert_eq!(again.iter().map(|bytes| publish(bytes).header.count).collect::<Vec<_>>(), [2, 2]);
        lane.acknowledge_through(2);
        assert_eq!(lane.handle_refusal(3, BatchOutcome::Refused, Some(0)), RefusedPart::Unknown);
        lane.resend_refused(7, |_| ());
        lane.acknowledge_through(3);
        assert_eq!(lane.handle_refusal(4, BatchOutcome::Refused, Some(0)), RefusedPart::Record(4));
        lane.resend_refused(7, |bytes| panic!("{bytes:?}"));
        assert_eq!(lane.acknowledged(), 3);
    }

    #[test]
    fn refused_batch_is_not_resent_after_a_new_batch_was_sent() {
        let mut lane = PublishLane::new(0);
        send(&mut lane, &[b"a"]);
        lane.handle_refusal(1, BatchOutcome::Refused, None);
        send(&mut lane, &[b"b"]);
        lane.resend_refused(7, |bytes| panic!("{bytes:?}"));
    }

    #[test]
    fn next_record_gets_the_number_after_the_last_appended_record() {
        let mut lane = PublishLane::new(0);
        for _ in 0..3 {
            send(&mut lane, &[b"a", b"b"]);
        }
        lane.handle_refusal(1, BatchOutcome::Refused, None);
        lane.acknowledge_through(6);
        assert!(!lane.is_settling() && lane.is_answered());
        assert_eq!(publish(&send(&mut lane, &[b"c"])).header.producer_seq, 7);
    }

    #[test]
    fn oversized_record_leaves_the_open_batch_unchanged() {
        let mut lane = PublishLane::new(0);
        lane.push(&RecordMeta::default(), b"fits", 24).unwrap();
        let error = lane.push(&RecordMeta::default(), b"does not fit", 24);
        assert_eq!(error, Err(PublishError::RecordTooLarge { bytes: 32, bytes_max: 24 }));
        assert_eq!(publish(&send(&mut lane, &[])).header.count, 1);
    }
}
