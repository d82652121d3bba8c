//! Writing to the client: which channels may write, how much, and how their cursors move.
//!
//! Channels with records take turns, and each gets an equal share of a write. After a message larger than its share, a
//! channel skips turns (deficit round robin).

use std::io;
use std::task::{Context, Poll};

use dunlin::topic::{Notice, ReadOutcome};

use super::encode::{CursorMove, EncodeOptions, WritePlan};
use super::{CONTROL_BYTES_MAX, NatsScratch, Session};
use crate::session::pace::WritePacer;
use crate::session::pieces::WRITE_BYTES_MAX;
use crate::session::scratch::Scratch;
use crate::session::{ConnectionLost, TurnProgress};

/// Maximum number of channels that share a write.
const TURN_CHANNELS_MAX: usize = 16;

impl Session {
    /// Does one write if there is anything to send.
    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
    ) -> Result<TurnProgress, ConnectionLost> {
        let Scratch { nats: scratch, pace, .. } = scratch;
        if !self.outbound.full {
            self.go_on_refusing();
            self.deliver_to_members();
            self.write_due_pongs();
            self.choose(&mut scratch.turn, pace);
            if self.outbound.is_empty() && scratch.turn.is_empty() {
                return self.poll_flush_taken(cx);
            }
            if self.write(scratch)? {
                if !scratch.moves.is_empty() {
                    self.resting.wrote(pace);
                }
                return Ok(TurnProgress::Some);
            }
            self.outbound.full = true;
        }
        match self.stream.poll_writable(cx) {
            Poll::Pending => Ok(TurnProgress::None),
            Poll::Ready(ready) => {
                ready.map_err(|_| ConnectionLost)?;
                self.outbound.full = false;
                Ok(TurnProgress::Some)
            }
        }
    }

    /// Flushes bytes that were written to the stream but that the socket has not taken.
    #[inline]
    fn poll_flush_taken(&mut self, cx: &mut Context<'_>) -> Result<TurnProgress, ConnectionLost> {
        match self.stream.poll_flush_taken(cx) {
            Poll::Ready(Err(_)) => Err(ConnectionLost),
            _ => Ok(TurnProgress::None),
        }
    }

    /// Picks channels with records from the head of the queue. Sends the notices that are found during this search.
    fn choose(&mut self, turn: &mut Vec<u32>, pace: &WritePacer) {
        turn.clear();
        for _ in 0..self.line.len() {
            if self.is_closing()
                || turn.len() == TURN_CHANNELS_MAX
                || self.outbound.control.len() > CONTROL_BYTES_MAX
            {
                return;
            }
            let Some(number) = self.line.pop_front() else { return };
            if self.look(number, pace)
                && let Some(channel) = self.channels.get_mut(&number)
                // A woken channel may be in the queue twice.
                && !std::mem::replace(&mut channel.in_turn, true)
            {
                turn.push(number);
            }
        }
    }

    /// Whether the channel has records to send. If it has none, it waits, is paused, or has ended.
    fn look(&mut self, number: u32, pace: &WritePacer) -> bool {
        loop {
            let Some(channel) = self.channels.get_mut(&number) else { return false };
            match channel.cursor.fill() {
                _ if channel.is_through() => {
                    self.end_channel(number);
                    return false;
                }
                ReadOutcome::Records => return true,
                ReadOutcome::Empty => {
                    // This position includes the skipped records that the cursor has passed.
                    let through = channel.cursor.read_through();
                    channel.reading.at(through);
                    if channel.cursor.is_registered() {
                        channel.cursor.consume(through.seq);
                    }
                    if std::mem::take(&mut channel.sent) && pace.is_busy() && !self.spin.is_on() {
                        channel.cursor.release();
                        self.resting.add(number);
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

    /// Does one write. Returns whether the socket took any bytes.
    fn write(&mut self, scratch: &mut NatsScratch) -> Result<bool, ConnectionLost> {
        let NatsScratch { gathered, turn, moves, .. } = scratch;
        let mut plan = WritePlan::new(gathered, moves, &self.outbound);
        let share = WRITE_BYTES_MAX / turn.len().max(1);
        let as_client =
            EncodeOptions { headers: self.connect.headers, own: &self.own, replies: &self.replies };
        for &number in turn.iter() {
            let Some(channel) = self.channels.get(&number) else { continue };
            let Some(subscription) = self.subscriptions.get(&channel.subscription) else { continue };
            let debt = if turn.len() == 1 { 0 } else { channel.debt.get() };
            if debt >= share {
                channel.debt.set(debt - share);
                continue;
            }
            let sent = plan.add_records(number, channel, subscription, as_client, share - debt);
            channel.debt.set((debt + sent).saturating_sub(share));
        }
        if plan.pieces().bytes() == 0 {
            self.settle(turn, moves, 0, 0);
            return Ok(true);
        }
        let begin = plan.begin();
        let wrote = plan.pieces().write(|slices| self.stream.write(slices));
        let sent = match wrote {
            Ok(sent) => sent,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => 0,
            Err(_) => return Err(ConnectionLost),
        };
        // If there is no memory for the rest of a message of which a part was sent, the connection must end.
        let cut = plan.rest_of_cut(sent, self.shared.node.budget()).map_err(|_| ConnectionLost)?;
        let before_records = self.outbound.sent(sent);
        debug_assert!(before_records <= sent);
        self.outbound.rest.extend(cut);
        self.settle(turn, moves, begin, sent);
        Ok(sent > 0)
    }

    /// Moves the cursors of the channels past the messages that were sent, or whose rest is kept to be sent. `begins`
    /// is the offset of the first message in the write.
    fn settle(&mut self, turn: &[u32], moves: &[CursorMove], mut begins: usize, sent: usize) {
        let mut moves = moves.iter().peekable();
        // Handles all moves of one channel together; they are adjacent.
        while let Some(first) = moves.peek().copied() {
            let (mut records, mut bytes, mut messages, mut stopped) = (0, 0, 0, false);
            while let Some(made) = moves.next_if(|made| made.channel == first.channel) {
                // The cursor passes skipped records only together with the message before them.
                stopped |= made.messages > 0 && begins >= sent;
                begins = made.end;
                if !stopped {
                    records += u64::from(made.records);
                    bytes += made.advance_bytes;
                    messages += u64::from(made.messages);
                }
            }
            self.moved(first.channel, records, bytes, messages);
        }
        for &number in turn {
            let Some(channel) = self.channels.get_mut(&number) else { continue };
            channel.in_turn = false;
            channel.cursor.release();
            self.line.push_back(number);
            let number = channel.subscription;
            let Some(subscription) = self.subscriptions.get(&number) else { continue };
            subscription.in_write.set(0);
            if subscription.is_over() {
                self.end_subscription(number);
            }
        }
    }

    fn moved(&mut self, number: u32, records: u64, bytes: u32, messages: u64) {
        let Some(channel) = self.channels.get_mut(&number) else { return };
        channel.sent |= messages > 0;
        self.session_trace.sent(messages);
        channel.cursor.advance(records, bytes);
        let through = channel.cursor.read_through();
        channel.reading.at(through);
        if channel.cursor.is_registered() {
            channel.cursor.consume(through.seq);
        }
        if let Some(subscription) = self.subscriptions.get_mut(&channel.subscription) {
            subscription.delivered += messages;
        }
    }
}
