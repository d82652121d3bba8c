//! Converts messages of a channel to items of an inbox, and accounts for every missing record.

use std::sync::Arc;

use dunlin_frame::{BatchHeader, Frame};
use dunlin_topic::{CheckedBatch, EpochChanged, Gap, Lagging, LogName, Notice, Position};
use dunlin_wire::{Batch, Deliver, GapMessage, Heartbeat, Log, MessageKind, RUN_HEAD_BYTES, WireError};

use crate::continuity::{BatchContinuity, join};
use crate::inbox::BatchItem;
use crate::session::following::FollowState;
use crate::session::{Channel, ClientSession};

/// The number of bytes of a DELIVER message before its first claim.
const DELIVER_HEAD_BYTES: usize = 24;

impl ClientSession {
    #[inline]
    pub(super) fn hand_out_run(
        &mut self,
        run: &Batch<'_>,
        chunk: &Arc<Vec<u8>>,
        start: usize,
        end: usize,
    ) -> Result<(), WireError> {
        CheckedBatch::check(run.frames, run.header.count, run.frames.len())
            .map_err(|error| WireError::Frame { kind: MessageKind::Batch, error })?;
        // Batches may still arrive for a channel that the client has just given up.
        let Some(channel) = self.channels.get_mut(&run.header.topic_id) else { return Ok(()) };
        if channel.state.gone {
            channel.refund((end - start) as u64);
            return Ok(());
        }
        let mut item = BatchItem {
            log: Arc::clone(&channel.log),
            epoch: run.header.epoch,
            prev_seq: run.header.prev_seq,
            first_seq: run.header.first_seq,
            count: run.header.count,
            chunk: None,
            start: start + RUN_HEAD_BYTES,
            end,
            cost: (end - start) as u64,
        };
        match channel.join(&run.header) {
            // This batch fills a reported gap. The last delivered record therefore lies before the gap, not just before
            // the batch.
            BatchContinuity::Follows if channel.state.owed_since.is_some() => {}
            BatchContinuity::Follows => item.prev_seq = item.prev_seq.min(channel.given_seq),
            BatchContinuity::Missing { first, last } => channel.tell_gap(first, last),
            BatchContinuity::NewEpoch => channel.tell_new_epoch(run.header.epoch, run.header.first_seq),
            BatchContinuity::Overlaps { skip } => {
                item.start += frames_bytes(run.frames, skip);
                item.first_seq += u64::from(skip);
                item.prev_seq = item.first_seq - 1;
                item.count -= skip;
            }
            BatchContinuity::Stale => {
                channel.refund(item.cost);
                return Ok(());
            }
        }
        channel.state.owed_since = None;
        channel.stand_at(Position { epoch: run.header.epoch, seq: run.header.last_seq() });
        channel.inbox.push_run(item, chunk);
        Ok(())
    }

    pub(super) fn hand_out_claimed(
        &mut self,
        deliver: &Deliver<'_>,
        chunk: &Arc<Vec<u8>>,
        start: usize,
        end: usize,
    ) {
        let Some(channel) = self.channels.get_mut(&deliver.channel) else { return };
        // Each record has its own position. The position of the last record is the one that the subscriber reports as
        // consumed for the whole batch.
        let Some(last) = deliver.records.iter().last().map(|record| record.position) else { return };
        let count = deliver.records.len() as u32;
        // Records that another member returned may be older than records delivered before. The position does not go
        // back to them.
        let last_given = Position { epoch: last.epoch, seq: last.seq };
        if last_given > channel.at {
            channel.stand_at(last_given);
        }
        if let Some(subscription) = self.subscriptions.get_mut(&channel.subscription) {
            subscription.claims.given += u64::from(count);
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
        channel.inbox.push_run(item, chunk);
    }

    pub(super) fn open_channel(&mut self, log: &Log<'_>) {
        let Some(subscription) = self.subscriptions.get_mut(&log.subscription) else { return };
        let after = Position { epoch: log.after.epoch, seq: log.after.seq };
        let key = (log.topic.to_owned(), log.partition);
        if let Some(gone) = subscription.gone.remove(&key) {
            self.channels.remove(&gone);
        }
        let known = subscription.logs.remove(&key);
        let (name, at) = known.unwrap_or_else(|| {
            let name = LogName {
                topic: log.topic.to_owned(),
                subject_prefix: log.subject_prefix.to_owned(),
                partition: log.partition,
            };
            (Arc::new(name), None)
        });
        let at = at.unwrap_or(after);
        if subscription.asked.reports_start {
            subscription.began.push((Arc::clone(&name), at));
        }
        let on_gap = subscription.asked.follow.is_some_and(|follow| follow.on_gap || follow.conflate);
        let in_group = subscription.asked.group.is_some();
        let inbox = Arc::clone(&subscription.inbox);
        let given_seq = at.seq;
        let state = FollowState::new(on_gap);
        subscription.channels.insert(Arc::clone(&name), log.channel);
        let mut channel =
            Channel { subscription: log.subscription, inbox, log: name, at, given_seq, in_group, state };
        // The node continues after the subscriber's position: report the records in between.
        if after.epoch > at.epoch {
            channel.tell_new_epoch(after.epoch, after.seq + 1);
            channel.stand_at(after);
        } else if after.epoch == at.epoch && after.seq > at.seq {
            channel.tell_gap(at.seq + 1, after.seq);
            channel.stand_at(after);
        }
        self.channels.insert(log.channel, channel);
    }

    pub(super) fn gap(&mut self, gap: &GapMessage, cost: u64) {
        let Some(channel) = self.channels.get_mut(&gap.channel) else { return };
        if channel.state.gone {
            return channel.refund(cost);
        }
        if channel.in_group {
            let notice =
                Gap { log: Arc::clone(&channel.log), epoch: gap.epoch, first: gap.first, last: gap.last };
            return channel.tell(Notice::Gap(notice), cost);
        }
        if gap.epoch > channel.at.epoch {
            channel.tell_new_epoch(gap.epoch, gap.first);
            channel.stand_at(Position { epoch: gap.epoch, seq: gap.first - 1 });
        }
        if gap.epoch == channel.at.epoch && gap.last > channel.at.seq {
            if channel.state.on_gap {
                channel.state.owed_since.get_or_insert(channel.at);
            }
            // The node's gap may begin after the subscriber's next record. All records before that gap are missing too:
            // report one gap for all.
            channel.tell_gap(channel.at.seq + 1, gap.last);
            channel.stand_at(Position { seq: gap.last, ..channel.at });
        }
        channel.refund(cost);
    }

    pub(super) fn lagging(&mut self, lagging: &dunlin_wire::Lagging, cost: u64) {
        if let Some(channel) = self.channels.get(&lagging.channel) {
            let log = Arc::clone(&channel.log);
            let notice = Lagging { log, behind: lagging.behind, retained: lagging.retained };
            channel.tell(Notice::Lagging(notice), cost);
        }
    }

    pub(super) fn epoch_changed(&mut self, changed: &dunlin_wire::EpochChanged, cost: u64) {
        let Some(channel) = self.channels.get_mut(&changed.channel) else { return };
        if channel.state.gone {
            return channel.refund(cost);
        }
        let new_first = Position { epoch: changed.new_first.epoch, seq: changed.new_first.seq };
        if new_first.epoch <= channel.at.epoch {
            return channel.refund(cost);
        }
        // Reports the last record that this subscriber received. The node may assume another one.
        let (old, last_seen) = (channel.at.epoch, channel.at.seq);
        let known_through = changed.known_through.filter(|_| changed.old == old);
        let log = Arc::clone(&channel.log);
        channel.stand_at(Position { epoch: new_first.epoch, seq: new_first.seq.saturating_sub(1) });
        let notice = EpochChanged { log, old, last_seen, known_through, new_first };
        channel.tell(Notice::EpochChanged(notice), cost);
    }

    pub(super) fn advance(&mut self, advance: &dunlin_wire::Advance, cost: u64) {
        let Some(channel) = self.channels.get_mut(&advance.channel) else { return };
        let through = Position { epoch: advance.through.epoch, seq: advance.through.seq };
        if through.epoch > channel.at.epoch {
            channel.tell_new_epoch(through.epoch, 1);
        }
        channel.at = channel.at.max(through);
        // This notice is dropped, as it is for a subscriber in the node's process.
        channel.refund(cost);
    }

    pub(super) fn deleted(&mut self, deleted: &dunlin_wire::Deleted) {
        if let Some(channel) = self.channels.remove(&deleted.channel) {
            if let Some(subscription) = self.subscriptions.get_mut(&channel.subscription)
                && subscription.channels.get(&channel.log) == Some(&deleted.channel)
            {
                subscription.channels.remove(&channel.log);
            }
            let last = Position { epoch: deleted.last.epoch, seq: deleted.last.seq };
            channel.tell(Notice::Deleted { log: Arc::clone(&channel.log), last }, 0);
        }
    }

    /// Handles a heartbeat. Messages arrive in order: if the subscriber is not yet at the heartbeat's position, the
    /// last records were lost.
    pub(super) fn heartbeat(&mut self, heartbeat: &Heartbeat<'_>) {
        for sent in heartbeat.channels.iter() {
            let Some(channel) = self.channels.get_mut(&sent.channel) else { continue };
            if channel.state.gone {
                continue;
            }
            let run = BatchHeader {
                topic_id: sent.channel,
                epoch: sent.position.epoch,
                prev_seq: sent.position.seq,
                first_seq: sent.position.seq.saturating_add(1),
                count: 1,
                bytes: 0,
            };
            match join(channel.at, &run) {
                BatchContinuity::Missing { first, last } if !channel.in_group => {
                    channel.tell_gap(first, last);
                    channel.stand_at(Position { seq: last, ..channel.at });
                }
                BatchContinuity::NewEpoch if !channel.in_group => {
                    channel.tell_new_epoch(sent.position.epoch, sent.position.seq.saturating_add(1));
                    channel.stand_at(Position { epoch: sent.position.epoch, seq: sent.position.seq });
                }
                _ => {}
            }
        }
    }
}

impl Channel {
    /// Compares a batch with the subscriber's position. A batch that fills a reported gap is compared with the gap
    /// instead.
    fn join(&self, run: &BatchHeader) -> BatchContinuity {
        match self.state.owed_since {
            Some(since)
                if run.epoch == since.epoch
                    && (run.prev_seq..run.first_seq).contains(&since.seq)
                    && run.last_seq() >= self.at.seq =>
            {
                BatchContinuity::Follows
            }
            _ => join(self.at, run),
        }
    }

    /// Moves the subscriber's position to `at`: everything up to it was delivered or reported.
    pub(super) fn stand_at(&mut self, at: Position) {
        self.at = at;
        self.given_seq = at.seq;
    }

    pub(super) fn tell(&self, notice: Notice, cost: u64) {
        self.inbox.push_notice(notice, cost);
    }

    fn tell_gap(&self, first: u64, last: u64) {
        let gap = Gap { log: Arc::clone(&self.log), epoch: self.at.epoch, first, last };
        self.tell(Notice::Gap(gap), 0);
    }

    /// Reports a new epoch that the node did not announce, so that the last record of the old epoch is unknown.
    fn tell_new_epoch(&self, epoch: u32, first_seq: u64) {
        let changed = EpochChanged {
            log: Arc::clone(&self.log),
            old: self.at.epoch,
            last_seen: self.at.seq,
            known_through: None,
            new_first: Position { epoch, seq: first_seq },
        };
        self.tell(Notice::EpochChanged(changed), 0);
    }

    /// Refunds the credit of a message without an event.
    pub(super) fn refund(&self, cost: u64) {
        self.inbox.refund(cost);
    }
}

/// The size of the first `count` frames in bytes.
fn frames_bytes(frames: &[u8], count: u32) -> usize {
    let mut bytes = 0;
    for _ in 0..count {
        bytes += Frame::split(&frames[bytes..]).map_or(0, |(_, taken)| taken);
    }
    bytes
}
