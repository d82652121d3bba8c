//! Writes records to the client: selects the channels that may write, decides how much each may write, and moves their
//! cursors. A channel sends the records of one log.
//!
//! Channels with records take turns, with an equal share of each write. If a channel sent a record larger than its
//! share, it skips turns until that is compensated (deficit round robin).

use std::io;
use std::task::{Context, Poll};

use dunlin::topic::{Notice, ReadOutcome, SkipBudget};
use dunlin::wire::{
    Advance, Checksum, Deleted, EpochChanged, FromNode, GapMessage, Lagging, PublisherStatus,
};

use super::pace::WritePacer;
use super::plan::{WritePlan, WriteScratch};
use super::scratch::Scratch;
use super::translate::position_to_wire;
use super::{CONTROL_BYTES_MAX, ConnectionLost, RoundProgress, Session};
use crate::session::pieces::WRITE_BYTES_MAX;
use crate::session::turn::CHANNELS_PER_WRITE_MIN;

/// Maximum number of channels whose records are in one write.
const WRITE_CHANNELS_MAX: usize = 16;

impl Session {
    /// Writes once, if there is anything to send.
    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
    ) -> Result<RoundProgress, ConnectionLost> {
        let Scratch { tcp: scratch, pace, .. } = scratch;
        if !self.outbound.full {
            self.announce(cx);
            self.send_control_results();
            self.send_task_results();
            let skips_members = !self.deliver_if_members_are_next();
            self.select_channels(&mut scratch.selected, pace);
            if self.outbound.is_empty() && scratch.selected.is_empty() {
                let flushed = self.poll_flush_buffered(cx)?;
                // The queues may still contain channels or members to serve, so the session must not sleep.
                let is_unfinished = self.is_skip_budget_spent || skips_members;
                return Ok(if is_unfinished { RoundProgress::Some } else { flushed });
            }
            if self.write(scratch)? {
                if !scratch.moves.is_empty() {
                    self.paused_channels.count_write(pace);
                }
                return Ok(RoundProgress::Some);
            }
            self.outbound.full = true;
        }
        match self.stream.poll_writable(cx) {
            Poll::Pending => Ok(RoundProgress::None),
            Poll::Ready(ready) => {
                ready.map_err(|_| ConnectionLost)?;
                self.outbound.full = false;
                Ok(RoundProgress::Some)
            }
        }
    }

    /// Delivers records to members of groups, and returns true. If the members filled the output the last time and
    /// channels are queued, delivers nothing and returns false, because it is the channels' turn. Without such turns,
    /// groups with many records would leave no room for channels.
    fn deliver_if_members_are_next(&mut self) -> bool {
        if self.outbound.control.len() > CONTROL_BYTES_MAX {
            return true;
        }
        if std::mem::take(&mut self.is_channels_turn) && !self.channel_queue.is_empty() {
            return false;
        }
        self.deliver_to_members();
        self.is_channels_turn = self.outbound.control.len() > CONTROL_BYTES_MAX;
        true
    }

    /// Flushes bytes that were written to the stream, but that the socket has not taken yet.
    #[inline]
    fn poll_flush_buffered(&mut self, cx: &mut Context<'_>) -> Result<RoundProgress, ConnectionLost> {
        match self.stream.poll_flush_buffered(cx) {
            Poll::Ready(Err(_)) => Err(ConnectionLost),
            _ => Ok(RoundProgress::None),
        }
    }

    /// Selects channels that have records, beginning at the head of the queue. If a channel has a notice before its
    /// records, adds the notice to the output.
    fn select_channels(&mut self, selected: &mut Vec<u32>, pace: &WritePacer) {
        selected.clear();
        if self.is_closing() {
            return;
        }
        let mut skips = SkipBudget::default();
        for examined in 0..self.channel_queue.len() {
            if selected.len() == WRITE_CHANNELS_MAX
                || self.outbound.control.len() > CONTROL_BYTES_MAX
                || skips.is_spent()
                || examined >= CHANNELS_PER_WRITE_MIN && self.delivery.is_spent()
            {
                break;
            }
            let Some(number) = self.channel_queue.pop_front() else { break };
            self.delivery.add(1);
            if self.prepare_channel(number, pace, &mut skips)
                && let Some(channel) = self.channels.get_mut(&number)
                // A channel may be in the queue twice, after it received credit or was resynchronized. It must be
                // selected only once.
                && !std::mem::replace(&mut channel.is_selected, true)
            {
                selected.push(number);
            }
        }
        self.is_skip_budget_spent |= skips.is_spent();
    }

    /// Returns whether the channel has records to send. If not, the channel may wait for something, such as records or
    /// credit; it may be paused or have ended; or it was queued again after it skipped many records.
    fn prepare_channel(&mut self, number: u32, pace: &WritePacer, skips: &mut SkipBudget) -> bool {
        loop {
            let Some(channel) = self.channels.get_mut(&number) else { return false };
            let Some(subscription) = self.subscriptions.get_mut(&channel.subscription) else { return false };
            if subscription.announced_logs.is_some() {
                // Some logs of the subscription are not announced yet. Records are sent only after all logs were
                // announced.
                subscription.starved.push(number);
                return false;
            }
            if channel.sending.is_some() {
                return true;
            }
            if channel.in_flight.is_some() {
                return false;
            }
            if !subscription.may_send() {
                subscription.starved.push(number);
                return false;
            }
            match channel.cursor.fill_within(skips) {
                ReadOutcome::Records => {
                    channel.skip_lost();
                    return true;
                }
                ReadOutcome::Skipped => {
                    self.report_skipped(number);
                    self.channel_queue.push_back(number);
                    return false;
                }
                ReadOutcome::Empty => {
                    self.report_skipped(number);
                    let Some(channel) = self.channels.get_mut(&number) else { return false };
                    if std::mem::take(&mut channel.sent) && pace.is_busy() && !self.spin.is_on() {
                        channel.cursor.release();
                        self.paused_channels.add(number);
                        return false;
                    }
                    if channel.cursor.arm(&self.waiter, number) {
                        return false;
                    }
                }
                ReadOutcome::Notice(Notice::Snapshot(snapshot)) => {
                    // All bytes of the state count against the credit now. Otherwise, other messages could be sent for
                    // which the client then has no room.
                    subscription.sent += channel.begin_sending(snapshot);
                    return true;
                }
                ReadOutcome::Notice(notice) => {
                    let before = self.outbound.control.len();
                    let ended = matches!(notice, Notice::Deleted { .. });
                    if !matches!(notice, Notice::Checksum(_) | Notice::Publishers(_)) {
                        channel.mark_all_reported();
                        channel.touch(number, &mut self.touched);
                        // With conflation, a channel waits until the client has consumed what was sent. The client does
                        // not consume notices, so the channel does not wait after a notice.
                        channel.in_flight = None;
                    }
                    match &notice {
                        Notice::Gap(gap) => channel.progress.record_missed(gap.records()),
                        Notice::Lagging(_) => channel.progress.record_lag_warning(),
                        _ => {}
                    }
                    let version = self.decoder.version();
                    let message = notice_to_wire(number, &notice);
                    if let Some(message) = message.filter(|message| version >= message.kind().since()) {
                        self.outbound.push(message);
                    }
                    if ended {
                        self.end_channel(number);
                        return false;
                    }
                    subscription.sent += (self.outbound.control.len() - before) as u64;
                }
                ReadOutcome::Closed => {
                    self.end_channel(number);
                    return false;
                }
            }
        }
    }

    /// If the channel has skipped records, informs the client of the channel's new position, now or with the next
    /// heartbeat.
    fn report_skipped(&mut self, number: u32) {
        let Some(channel) = self.channels.get_mut(&number) else { return };
        let has_lost = channel.skip_lost();
        if channel.cursor.is_registered() {
            self.advance_channel(number);
        } else if has_lost || !channel.is_all_reported() {
            // The next heartbeat contains the channel's position. If the last records were lost, the subscriber notices
            // this from the position.
            channel.touch(number, &mut self.touched);
        }
    }

    /// Writes the output and the selected channels' records once. Returns whether the socket has taken any bytes.
    fn write(&mut self, scratch: &mut WriteScratch) -> Result<bool, ConnectionLost> {
        let WriteScratch { copied, selected, moves } = scratch;
        let mut plan = WritePlan::new(copied, moves, &self.outbound);
        let share = WRITE_BYTES_MAX / selected.len().max(1);
        for &number in selected.iter() {
            let Some(channel) = self.channels.get(&number) else { continue };
            let Some(subscription) = self.subscriptions.get_mut(&channel.subscription) else { continue };
            let debt = if selected.len() == 1 { 0 } else { channel.debt.get() };
            if debt >= share {
                channel.debt.set(debt - share);
                continue;
            }
            let credit = subscription.granted.saturating_sub(subscription.sent);
            let sent = match &channel.sending {
                // All parts of a state are sent regardless of the credit, because all bytes of the state were counted
                // when the channel began to send it.
                Some(sending) => plan.add_state(number, sending, share - debt),
                None => {
                    let sent =
                        plan.add_batches(number, &channel.cursor, channel.reported, share - debt, credit);
                    subscription.sent += sent as u64;
                    sent
                }
            };
            channel.debt.set((debt + sent).saturating_sub(share));
        }
        if plan.bytes() == 0 {
            self.advance_cursors(selected, moves, 0);
            return Ok(true);
        }
        let wrote = plan.write(|slices| self.stream.write(slices));
        let sent = match wrote {
            Ok(sent) => sent,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => 0,
            Err(_) => return Err(ConnectionLost),
        };
        // The connection must end if there is no memory for the unsent rest of a record.
        let cut = plan.unsent_rest(sent, self.node.connection_budget()).map_err(|_| ConnectionLost)?;
        let record_bytes = self.outbound.remove_sent(sent);
        debug_assert!(record_bytes <= sent);
        self.outbound.partial.extend(cut);
        self.advance_cursors(selected, moves, sent);
        Ok(sent > 0)
    }

    /// Moves the channels' cursors past the records that were sent. A record that was sent in part counts as sent,
    /// because the session keeps its rest. For messages that were not sent at all, the credit is given back.
    fn advance_cursors(&mut self, selected: &[u32], moves: &[super::plan::CursorMove], sent: usize) {
        for moved in moves {
            let Some(channel) = self.channels.get_mut(&moved.channel) else { continue };
            let message_bytes = moved.bytes.end - moved.bytes.start;
            if moved.bytes.start >= sent && message_bytes > 0 {
                if moved.state.is_none()
                    && let Some(subscription) = self.subscriptions.get_mut(&channel.subscription)
                {
                    subscription.sent -= message_bytes as u64;
                }
                channel.stopped = true;
            } else if let (Some(bytes), false) = (moved.state, channel.stopped) {
                channel.record_sent_state(bytes);
                channel.touch(moved.channel, &mut self.touched);
            } else if !channel.stopped {
                channel.sent = true;
                if moved.is_reported {
                    self.session_trace.sent(moved.records.into());
                    channel.cursor.advance(moved.records.into(), moved.advance_bytes);
                    let in_flight = channel.in_flight;
                    channel.mark_all_reported();
                    if message_bytes == 0 {
                        // These records are withheld on purpose, for tests. The client will not consume them, so they
                        // do not count as in flight.
                        channel.in_flight = in_flight;
                    }
                } else {
                    channel.cursor.skip(moved.records.into(), moved.advance_bytes);
                }
                channel.touch(moved.channel, &mut self.touched);
            }
        }
        for &number in selected {
            if let Some(channel) = self.channels.get_mut(&number) {
                channel.is_selected = false;
                if std::mem::take(&mut channel.stopped) {
                    channel.cursor.discard_merged();
                }
                channel.cursor.release();
                self.channel_queue.push_back(number);
            }
        }
    }

    /// Called before a heartbeat. Sends the new positions of channels that have skipped records.
    pub(super) fn advance_touched(&mut self) {
        self.delivery.add_scan(self.channels.len());
        for (&number, channel) in &mut self.channels {
            if channel.cursor.skip_unwanted() {
                channel.touch(number, &mut self.touched);
            }
        }
        for number in std::mem::take(&mut self.touched) {
            self.advance_channel(number);
            if self.channels.contains_key(&number) {
                self.touched.push(number);
            }
        }
    }

    /// Sends the channel's position, unless the client already knows it.
    fn advance_channel(&mut self, number: u32) {
        let Some(channel) = self.channels.get_mut(&number) else { return };
        if channel.sending.is_none() && !channel.is_all_reported() {
            channel.mark_all_reported();
            channel.in_flight = None;
            let through = channel.reported;
            channel.touch(number, &mut self.touched);
            let before = self.outbound.control.len();
            let through = position_to_wire(through);
            self.outbound.push(FromNode::Advance(Advance { channel: number, through }));
            if let Some(subscription) = self.subscriptions.get_mut(&channel.subscription) {
                subscription.sent += (self.outbound.control.len() - before) as u64;
            }
        }
    }
}

fn notice_to_wire(channel: u32, notice: &Notice) -> Option<FromNode<'static>> {
    Some(match notice {
        Notice::Gap(gap) => {
            FromNode::Gap(GapMessage { channel, epoch: gap.epoch, first: gap.first, last: gap.last })
        }
        Notice::Lagging(lagging) => {
            FromNode::Lagging(Lagging { channel, behind: lagging.behind, retained: lagging.retained })
        }
        Notice::EpochChanged(changed) => FromNode::EpochChanged(EpochChanged {
            channel,
            old: changed.old,
            last_seen: changed.last_seen,
            known_through: changed.known_through,
            new_first: position_to_wire(changed.new_first),
        }),
        Notice::Advance { through, .. } => {
            FromNode::Advance(Advance { channel, through: position_to_wire(*through) })
        }
        Notice::Checksum(sum) => {
            let (position, checksum) = (position_to_wire(sum.position), sum.checksum);
            FromNode::Checksum(Checksum { channel, position, checksum })
        }
        Notice::Publishers(publishers) => FromNode::Publishers(PublisherStatus {
            channel,
            connected: publishers.connected,
            since_ns: publishers.since_ns,
            last_append_ns: publishers.last_append_ns,
        }),
        Notice::Deleted { last, .. } => FromNode::Deleted(Deleted { channel, last: position_to_wire(*last) }),
        // Other notices have no message in this version of the protocol, and are not sent.
        _ => return None,
    })
}
