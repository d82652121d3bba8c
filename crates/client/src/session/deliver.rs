//! Converts the messages of a channel to items of the subscription's inbox, and reports all records that are missing.

use std::sync::Arc;

use dunlin_frame::{BatchHeader, Frame};
use dunlin_topic::{CheckedBatch, EpochChanged, Gap, Lagging, LogName, Notice, Position};
use dunlin_wire::{Batch, Deliver, GapMessage, Heartbeat, Log, MessageKind, RUN_HEAD_BYTES, WireError};

use crate::continuity::{BatchContinuity, classify};
use crate::inbox::BatchItem;
use crate::session::snapshots::FollowState;
use crate::session::{Channel, ClientSession};

/// The number of bytes in the message DELIVER before its first claim.
const DELIVER_HEAD_BYTES: usize = 24;

impl ClientSession {
    #[inline]
    pub(super) fn deliver_batch(
        &mut self,
        batch: &Batch<'_>,
        chunk: &Arc<Vec<u8>>,
        start: usize,
        end: usize,
    ) -> Result<(), WireError> {
        CheckedBatch::check(batch.frames, batch.header.count, batch.frames.len())
            .map_err(|error| WireError::Frame { kind: MessageKind::Batch, error })?;
        // The channel may have just ended, but batches that the node sent before may still arrive.
        let Some(channel) = self.channels.get_mut(&batch.header.topic_id) else { return Ok(()) };
        if channel.state.is_replaced {
            channel.refund((end - start) as u64);
            return Ok(());
        }
        let mut item = BatchItem {
            log: Arc::clone(&channel.log),
            epoch: batch.header.epoch,
            prev_seq: batch.header.prev_seq,
            first_seq: batch.header.first_seq,
            count: batch.header.count,
            chunk: None,
            start: start + RUN_HEAD_BYTES,
            end,
            cost: (end - start) as u64,
        };
        match channel.classify(&batch.header) {
            // This batch fills a reported gap. `delivered_seq` is then before the gap, and not directly before the
            // batch, so `prev_seq` stays as it is.
            BatchContinuity::Follows if channel.state.unfilled_since.is_some() => {}
            BatchContinuity::Follows => item.prev_seq = item.prev_seq.min(channel.delivered_seq),
            BatchContinuity::Missing { first, last } => channel.report_gap(first, last),
            BatchContinuity::NewEpoch => channel.report_new_epoch(batch.header.epoch, batch.header.first_seq),
            BatchContinuity::Overlaps { skip } => {
                item.start += frames_bytes(batch.frames, skip);
                item.first_seq += u64::from(skip);
                item.prev_seq = item.first_seq - 1;
                item.count -= skip;
            }
            BatchContinuity::Stale => {
                channel.refund(item.cost);
                return Ok(());
            }
        }
        channel.state.unfilled_since = None;
        channel.set_position(Position { epoch: batch.header.epoch, seq: batch.header.last_seq() });
        channel.inbox.push_batch(item, chunk);
        Ok(())
    }

    pub(super) fn deliver_claimed(
        &mut self,
        deliver: &Deliver<'_>,
        chunk: &Arc<Vec<u8>>,
        start: usize,
        end: usize,
    ) {
        let Some(channel) = self.channels.get_mut(&deliver.channel) else { return };
        // Each record of the message has a position of its own. When the subscriber reports these records as consumed,
        // the position of the last one stands for all of them.
        let Some(last) = deliver.records.iter().last().map(|record| record.position) else { return };
        let count = deliver.records.len() as u32;
        // The message may contain older records, which another member has returned. They do not move the position back.
        let last_delivered = Position { epoch: last.epoch, seq: last.seq };
        if last_delivered > channel.at {
            channel.set_position(last_delivered);
        }
        if let Some(subscription) = self.subscriptions.get_mut(&channel.subscription) {
            subscription.claims.delivered += u64::from(count);
        }
        let item = BatchItem {
            log: Arc::clone(&channel.log),
            epoch: last.epoch,
            prev_seq: last.seq.saturating_sub(count.into()),
            first_seq: (last.seq + 1).saturating_sub(count.into()),
            count,
            chunk: None,
            start: start + DELIVER_HEAD_BYTES,
            end,
            cost: (end - start) as u64,
        };
        channel.inbox.push_batch(item, chunk);
    }

    pub(super) fn open_channel(&mut self, log: &Log<'_>) {
        let Some(subscription) = self.subscriptions.get_mut(&log.subscription) else { return };
        let after = Position { epoch: log.after.epoch, seq: log.after.seq };
        let key = (log.topic.to_owned(), log.partition);
        if let Some(replaced) = subscription.replaced_channels.remove(&key) {
            self.channels.remove(&replaced);
        }
        let in_group = subscription.request.group.is_some();
        let new_name = || {
            Arc::new(LogName {
                topic: log.topic.to_owned(),
                subject_prefix: log.subject_prefix.to_owned(),
                partition: log.partition,
            })
        };
        let known = subscription.logs.remove(&key);
        let joins_again = in_group && known.is_some();
        let (name, at) = match known {
            // A membership ends with its connection. The new membership gets a `LogName` of its own, so that
            // `encode_credit` can tell its records from those of the earlier membership.
            Some((_, at)) if joins_again => (new_name(), at),
            Some(known) => known,
            None => (new_name(), None),
        };
        let at = at.unwrap_or(after);
        if subscription.request.reports_start {
            subscription.inbox.add_start_position(&name, at, joins_again);
        }
        let on_gap = subscription.request.follow.is_some_and(|follow| follow.on_gap || follow.conflate);
        let inbox = Arc::clone(&subscription.inbox);
        let delivered_seq = at.seq;
        let state = FollowState::new(on_gap);
        // If a topic was deleted and created again, the deleted topic may get its channel last. The log's current
        // channel is that of the later topic, whose epoch is higher.
        let current = subscription.channels.get(&*name).and_then(|current| self.channels.get(current));
        if current.is_none_or(|current| current.at.epoch <= at.epoch) {
            subscription.channels.insert(Arc::clone(&name), log.channel);
        }
        let mut channel =
            Channel { subscription: log.subscription, inbox, log: name, at, delivered_seq, in_group, state };
        // If the node continues after a later position than the subscriber's, the records in between are missing.
        if after.epoch > at.epoch {
            channel.report_new_epoch(after.epoch, after.seq + 1);
            channel.set_position(after);
        } else if after.epoch == at.epoch && after.seq > at.seq {
            channel.report_gap(at.seq + 1, after.seq);
            channel.set_position(after);
        }
        self.channels.insert(log.channel, channel);
    }

    pub(super) fn handle_gap(&mut self, gap: &GapMessage, cost: u64) {
        let Some(channel) = self.channels.get_mut(&gap.channel) else { return };
        if channel.state.is_replaced {
            return channel.refund(cost);
        }
        if channel.in_group {
            let notice =
                Gap { log: Arc::clone(&channel.log), epoch: gap.epoch, first: gap.first, last: gap.last };
            return channel.push_notice(Notice::Gap(notice), cost);
        }
        if gap.epoch > channel.at.epoch {
            channel.report_new_epoch(gap.epoch, gap.first);
            channel.set_position(Position { epoch: gap.epoch, seq: gap.first - 1 });
        }
        if gap.epoch == channel.at.epoch && gap.last > channel.at.seq {
            if channel.state.on_gap {
                channel.state.unfilled_since.get_or_insert(channel.at);
            }
            // The node's gap may begin after the subscriber's next record. All records before that gap are then missing
            // too, so the reported gap includes them.
            channel.report_gap(channel.at.seq + 1, gap.last);
            channel.set_position(Position { seq: gap.last, ..channel.at });
        }
        channel.refund(cost);
    }

    pub(super) fn handle_lagging(&mut self, lagging: &dunlin_wire::Lagging, cost: u64) {
        if let Some(channel) = self.channels.get(&lagging.channel) {
            let log = Arc::clone(&channel.log);
            let notice = Lagging { log, behind: lagging.behind, retained: lagging.retained };
            channel.push_notice(Notice::Lagging(notice), cost);
        }
    }

    pub(super) fn handle_epoch_changed(&mut self, changed: &dunlin_wire::EpochChanged, cost: u64) {
        let Some(channel) = self.channels.get_mut(&changed.channel) else { return };
        if channel.state.is_replaced {
            return channel.refund(cost);
        }
        let new_first = Position { epoch: changed.new_first.epoch, seq: changed.new_first.seq };
        if new_first.epoch <= channel.at.epoch {
            return channel.refund(cost);
        }
        // The notice contains the last record that this subscriber has received, which may differ from what the node
        // assumes.
        let (old, last_seen) = (channel.at.epoch, channel.at.seq);
        let known_through = changed.known_through.filter(|_| changed.old == old);
        let log = Arc::clone(&channel.log);
        channel.set_position(Position { epoch: new_first.epoch, seq: new_first.seq.saturating_sub(1) });
        let notice = EpochChanged { log, old, last_seen, known_through, new_first };
        channel.push_notice(Notice::EpochChanged(notice), cost);
    }

    pub(super) fn handle_advance(&mut self, advance: &dunlin_wire::Advance, cost: u64) {
        let Some(channel) = self.channels.get_mut(&advance.channel) else { return };
        let through = Position { epoch: advance.through.epoch, seq: advance.through.seq };
        if through.epoch > channel.at.epoch {
            channel.report_new_epoch(through.epoch, 1);
        }
        channel.at = channel.at.max(through);
        // The message only moves the position, so the subscriber receives no event. A subscriber inside the node
        // receives none either.
        channel.refund(cost);
    }

    pub(super) fn handle_deleted(&mut self, deleted: &dunlin_wire::Deleted) {
        if let Some(channel) = self.channels.remove(&deleted.channel) {
            if let Some(subscription) = self.subscriptions.get_mut(&channel.subscription)
                && subscription.channels.get(&channel.log) == Some(&deleted.channel)
            {
                subscription.channels.remove(&channel.log);
            }
            let last = Position { epoch: deleted.last.epoch, seq: deleted.last.seq };
            channel.push_notice(Notice::Deleted { log: Arc::clone(&channel.log), last }, 0);
        }
    }

    /// Handles a heartbeat, which contains the node's position in each log. Messages arrive in order, so if the
    /// subscriber has not reached this position, the records in between are lost.
    pub(super) fn handle_heartbeat(&mut self, heartbeat: &Heartbeat<'_>) {
        for sent in heartbeat.channels.iter() {
            let Some(channel) = self.channels.get_mut(&sent.channel) else { continue };
            if channel.state.is_replaced {
                continue;
            }
            let batch = BatchHeader {
                topic_id: sent.channel,
                epoch: sent.position.epoch,
                prev_seq: sent.position.seq,
                first_seq: sent.position.seq.saturating_add(1),
                count: 1,
                bytes: 0,
            };
            match classify(channel.at, &batch) {
                BatchContinuity::Missing { first, last } if !channel.in_group => {
                    channel.report_gap(first, last);
                    channel.set_position(Position { seq: last, ..channel.at });
                }
                BatchContinuity::NewEpoch if !channel.in_group => {
                    channel.report_new_epoch(sent.position.epoch, sent.position.seq.saturating_add(1));
                    channel.set_position(Position { epoch: sent.position.epoch, seq: sent.position.seq });
                }
                _ => {}
            }
        }
    }
}

impl Channel {
    /// Compares a batch with the subscriber's position. If a reported gap is not filled yet, the batch may also
    /// continue at the beginning of the gap.
    fn classify(&self, batch: &BatchHeader) -> BatchContinuity {
        match self.state.unfilled_since {
            Some(since)
                if batch.epoch == since.epoch
                    && (batch.prev_seq..batch.first_seq).contains(&since.seq)
                    && batch.last_seq() >= self.at.seq =>
            {
                BatchContinuity::Follows
            }
            _ => classify(self.at, batch),
        }
    }

    /// Moves the subscriber's position to `at`. All records up to `at` that the subscriber wants were delivered or
    /// reported as missing.
    pub(super) fn set_position(&mut self, at: Position) {
        self.at = at;
        self.delivered_seq = at.seq;
    }

    pub(super) fn push_notice(&self, notice: Notice, cost: u64) {
        self.inbox.push_notice(notice, cost);
    }

    fn report_gap(&self, first: u64, last: u64) {
        let gap = Gap { log: Arc::clone(&self.log), epoch: self.at.epoch, first, last };
        self.push_notice(Notice::Gap(gap), 0);
    }

    /// Reports a new epoch that the node has not announced. The last record of the old epoch is therefore unknown.
    fn report_new_epoch(&self, epoch: u32, first_seq: u64) {
        let changed = EpochChanged {
            log: Arc::clone(&self.log),
            old: self.at.epoch,
            last_seen: self.at.seq,
            known_through: None,
            new_first: Position { epoch, seq: first_seq },
        };
        self.push_notice(Notice::EpochChanged(changed), 0);
    }

    pub(super) fn refund(&self, cost: u64) {
        self.inbox.refund(cost);
    }
}

/// Returns the size in bytes of the first `count` frames in `frames`.
fn frames_bytes(frames: &[u8], count: u32) -> usize {
    let mut bytes = 0;
    for _ in 0..count {
        bytes += Frame::split(&frames[bytes..]).map_or(0, |(_, frame_bytes)| frame_bytes);
    }
    bytes
}
