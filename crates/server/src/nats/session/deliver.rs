//! Writes records to the client. Decides which channels write, how much each writes, and how their cursors move.
//!
//! Channels with records take turns, and each gets an equal share of a write. A channel that has sent a message larger
//! than its share skips later turns in return (deficit round robin).

use std::io;
use std::task::{Context, Poll};

use dunlin::topic::{Notice, ReadOutcome, SkipBudget};

use super::encode::{CursorMove, EncodeOptions, WritePlan};
use super::{CONTROL_BYTES_MAX, NatsScratch, Session};
use crate::session::pace::WritePacer;
use crate::session::pieces::WRITE_BYTES_MAX;
use crate::session::scratch::Scratch;
use crate::session::turn::CHANNELS_PER_WRITE_MIN;
use crate::session::{ConnectionLost, RoundProgress};

/// Maximum number of channels that share a write.
const WRITE_CHANNELS_MAX: usize = 16;

impl Session {
    /// Writes once if there is anything to send.
    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
    ) -> Result<RoundProgress, ConnectionLost> {
        let Scratch { nats: scratch, pace, .. } = scratch;
        if !self.outbound.full {
            self.send_pending_refusals();
            let skips_members = !self.deliver_if_members_are_next();
            self.write_due_pongs();
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

    /// Delivers records to queue group members, and returns true. If the members filled the output the last time and
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

    /// Sends bytes that were written to the stream but not yet taken by the socket.
    #[inline]
    fn poll_flush_buffered(&mut self, cx: &mut Context<'_>) -> Result<RoundProgress, ConnectionLost> {
        match self.stream.poll_flush_buffered(cx) {
            Poll::Ready(Err(_)) => Err(ConnectionLost),
            _ => Ok(RoundProgress::None),
        }
    }

    /// Takes channels with records from the front of the queue. Sends notices of the channels that it examines.
    fn select_channels(&mut self, selected: &mut Vec<u32>, pace: &WritePacer) {
        selected.clear();
        let mut skips = SkipBudget::default();
        for examined in 0..self.channel_queue.len() {
            if self.is_closing()
                || selected.len() == WRITE_CHANNELS_MAX
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
                // A channel may be in the queue twice, but is selected once.
                && !std::mem::replace(&mut channel.is_selected, true)
            {
                selected.push(number);
            }
        }
        self.is_skip_budget_spent |= skips.is_spent();
    }

    /// Whether the channel has records to send. If it has none, the channel waits for records, pauses, or has ended. A
    /// channel that has skipped many records is queued again. A held channel is queued again when it may be read. If a
    /// channel's next record may be one that the connection itself published, the channel waits for the response of the
    /// topic's owner.
    fn prepare_channel(&mut self, number: u32, pace: &WritePacer, skips: &mut SkipBudget) -> bool {
        if self.held.contains(&number) {
            return false;
        }
        loop {
            let Some(channel) = self.channels.get_mut(&number) else { return false };
            if !self.leaving.is_empty() && !self.subscriptions.contains_key(&channel.subscription) {
                // The subscription has ended, and its channels end one after another.
                return false;
            }
            match channel.cursor.fill_within(skips) {
                _ if channel.is_through() => {
                    self.end_channel(number);
                    return false;
                }
                ReadOutcome::Records => {
                    let known_through = channel.own_known_through(&self.own);
                    let is_held = known_through.is_some_and(|at| channel.cursor.next() > at);
                    if is_held {
                        channel.cursor.release();
                        self.own.hold(channel.cursor.log(), number);
                    }
                    return !is_held;
                }
                ReadOutcome::Skipped => {
                    channel.record_position();
                    self.channel_queue.push_back(number);
                    return false;
                }
                ReadOutcome::Empty => {
                    channel.record_position();
                    if std::mem::take(&mut channel.sent) && pace.is_busy() && !self.spin.is_on() {
                        channel.cursor.release();
                        self.paused_channels.add(number);
                        return false;
                    }
                    if channel.cursor.arm(&self.waiter, number) {
                        return false;
                    }
                }
                ReadOutcome::Notice(notice) => {
                    let ended = matches!(notice, Notice::Deleted { .. });
                    self.notice(number, &notice);
                    if ended {
                        self.end_channel(number);
                    }
                    if ended || self.is_closing() {
                        return false;
                    }
                }
                ReadOutcome::Closed => {
                    self.end_channel(number);
                    return false;
                }
            }
        }
    }

    /// Writes once. Returns whether the socket took any bytes.
    fn write(&mut self, scratch: &mut NatsScratch) -> Result<bool, ConnectionLost> {
        let NatsScratch { copied, selected, moves, .. } = scratch;
        let mut plan = WritePlan::new(copied, moves, &self.outbound);
        let share = WRITE_BYTES_MAX / selected.len().max(1);
        let options = EncodeOptions { headers: self.connect.headers, own: &self.own, replies: &self.replies };
        for &number in selected.iter() {
            let Some(channel) = self.channels.get(&number) else { continue };
            let Some(subscription) = self.subscriptions.get(&channel.subscription) else { continue };
            let debt = if selected.len() == 1 { 0 } else { channel.debt.get() };
            if debt >= share {
                channel.debt.set(debt - share);
                continue;
            }
            let sent = plan.add_records(number, channel, subscription, options, share - debt);
            channel.debt.set((debt + sent).saturating_sub(share));
        }
        if plan.pieces().bytes() == 0 {
            self.advance_cursors(selected, moves, 0, 0);
            return Ok(true);
        }
        let begin = plan.begin();
        let wrote = plan.pieces().write(|slices| self.stream.write(slices));
        let sent = match wrote {
            Ok(sent) => sent,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => 0,
            Err(_) => return Err(ConnectionLost),
        };
        // If a message was sent only in part, its rest must be kept. Without memory for the rest, the connection must
        // end.
        let cut = plan.unsent_rest(sent, self.node.connection_budget()).map_err(|_| ConnectionLost)?;
        let record_bytes = self.outbound.remove_sent(sent);
        debug_assert!(record_bytes <= sent);
        self.outbound.partial.extend(cut);
        self.advance_cursors(selected, moves, begin, sent);
        Ok(sent > 0)
    }

    /// Moves the channels' cursors past the messages that were sent. A message that was sent in part counts as sent,
    /// because its rest is kept. `start` is the offset of the first message in the write.
    fn advance_cursors(&mut self, selected: &[u32], moves: &[CursorMove], mut start: usize, sent: usize) {
        let mut moves = moves.iter().peekable();
        // The moves of one channel are adjacent, and are handled together.
        while let Some(first) = moves.peek().copied() {
            let (mut records, mut bytes, mut messages, mut stopped) = (0, 0, 0, false);
            while let Some(moved) = moves.next_if(|moved| moved.channel == first.channel) {
                // The cursor moves past skipped records only if it also moves past the message before them.
                stopped |= moved.messages > 0 && start >= sent;
                start = moved.end;
                if !stopped {
                    records += u64::from(moved.records);
                    bytes += moved.advance_bytes;
                    messages += u64::from(moved.messages);
                }
            }
            self.advance_channel(first.channel, records, bytes, messages);
        }
        for &number in selected {
            let Some(channel) = self.channels.get_mut(&number) else { continue };
            channel.is_selected = false;
            channel.cursor.release();
            self.channel_queue.push_back(number);
            let number = channel.subscription;
            let Some(subscription) = self.subscriptions.get(&number) else { continue };
            subscription.in_write.set(0);
            if subscription.is_over() {
                self.end_subscription(number);
            }
        }
    }

    fn advance_channel(&mut self, number: u32, records: u64, bytes: u32, messages: u64) {
        let Some(channel) = self.channels.get_mut(&number) else { return };
        channel.sent |= messages > 0;
        self.session_trace.sent(messages);
        channel.cursor.advance(records, bytes);
        channel.record_position();
        if let Some(subscription) = self.subscriptions.get_mut(&channel.subscription) {
            subscription.delivered += messages;
        }
    }
}
