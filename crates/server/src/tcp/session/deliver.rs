//! Writing to the client: which channels may write, how much, and how their cursors move.
//!
//! Channels with records take turns, and each gets an equal share of a write. After a record larger than its share, a
//! channel skips turns (deficit round robin).

use std::io;
use std::task::{Context, Poll};

use dunlin::topic::{Notice, ReadOutcome};
use dunlin::wire::{Advance, Checksum, Deleted, EpochChanged, FromNode, GapMessage, Lagging, Publishers};

use super::pace::WritePacer;
use super::plan::{WritePlan, WriteScratch};
use super::scratch::Scratch;
use super::translate::position_to_wire;
use super::{CONTROL_BYTES_MAX, ConnectionLost, Session, TurnProgress};
use crate::session::pieces::WRITE_BYTES_MAX;

/// Maximum number of channels that share a write.
const TURN_CHANNELS_MAX: usize = 16;

impl Session {
    /// Does one write if there is anything to send.
    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
    ) -> Result<TurnProgress, ConnectionLost> {
        let Scratch { tcp: scratch, pace, .. } = scratch;
        if !self.outbound.full {
            self.announce(cx);
            self.answer_control();
            self.answer_tasks();
            self.deliver();
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
        if self.is_closing() || !self.announcing.is_empty() {
            return;
        }
        for _ in 0..self.line.len() {
            if turn.len() == TURN_CHANNELS_MAX || self.outbound.control.len() > CONTROL_BYTES_MAX {
                return;
            }
            let Some(number) = self.line.pop_front() else { return };
            if self.look(number, pace)
                && let Some(channel) = self.channels.get_mut(&number)
                // A channel that received credit or is resynchronized may be in the queue twice.
                && !std::mem::replace(&mut channel.in_turn, true)
            {
                turn.push(number);
            }
        }
    }

    /// Whether the channel has records to send. If it has none, it waits, is paused, needs credit, or has ended.
    fn look(&mut self, number: u32, pace: &WritePacer) -> bool {
        loop {
            let Some(channel) = self.channels.get_mut(&number) else { return false };
            let Some(subscription) = self.subscriptions.get_mut(&channel.subscription) else { return false };
            if subscription.beginning.is_some() {
                // Other logs of the subscription are still being opened. Records are sent only after all logs were
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
            match channel.cursor.fill() {
                ReadOutcome::Records => {
                    channel.pass_over_lost();
                    return true;
                }
                ReadOutcome::Empty => {
                    let has_lost = channel.pass_over_lost();
                    if channel.cursor.is_registered() {
                        self.advance_channel(number);
                    } else if has_lost || !channel.is_all_reported() {
                        // The next heartbeat has the channel's position. A subscriber that lost the last record notices
                        // the loss by this position.
                        channel.touch(number, &mut self.touched);
                    }
                    let Some(channel) = self.channels.get_mut(&number) else { return false };
                    if std::mem::take(&mut channel.sent) && pace.is_busy() && !self.spin.is_on() {
                        channel.cursor.release();
                        self.resting.add(number);
                        return false;
                    }
                    if channel.cursor.arm(&self.waiter, number) {
                        return false;
                    }
                }
                ReadOutcome::Notice(Notice::Snapshot(snapshot)) => {
                    // The whole state counts against the credit at once, so that no other message is sent for which the
                    // client has no room.
                    subscription.sent += channel.begin_sending(snapshot);
                    return true;
                }
                ReadOutcome::Notice(notice) => {
                    let before = self.outbound.control.len();
                    let ended = matches!(notice, Notice::Deleted { .. });
                    if !matches!(notice, Notice::Checksum(_) | Notice::Publishers(_)) {
                        channel.mark_all_reported();
                        channel.touch(number, &mut self.touched);
                        // A notice is no record, so a conflated channel does not wait until the client has consumed it.
                        channel.in_flight = None;
                    }
                    match &notice {
                        Notice::Gap(gap) => channel.reading.missed(gap.records()),
                        Notice::Lagging(_) => channel.reading.lagging(),
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

    /// Does one write. Returns whether the socket took any bytes.
    fn write(&mut self, scratch: &mut WriteScratch) -> Result<bool, ConnectionLost> {
        let WriteScratch { gathered, turn, moves } = scratch;
        let mut plan = WritePlan::new(gathered, moves, &self.outbound);
        let share = WRITE_BYTES_MAX / turn.len().max(1);
        for &number in turn.iter() {
            let Some(channel) = self.channels.get(&number) else { continue };
            let Some(subscription) = self.subscriptions.get_mut(&channel.subscription) else { continue };
            let debt = if turn.len() == 1 { 0 } else { channel.debt.get() };
            if debt >= share {
                channel.debt.set(debt - share);
                continue;
            }
            let credit = subscription.granted.saturating_sub(subscription.sent);
            let sent = match &channel.sending {
                // A started state is sent to its end, whatever the credit is: its bytes were counted at the start.
                Some(sending) => plan.add_state(number, sending, share - debt),
                None => {
                    let sent = plan.add_runs(number, &channel.cursor, channel.reported, share - debt, credit);
                    subscription.sent += sent as u64;
                    sent
                }
            };
            channel.debt.set((debt + sent).saturating_sub(share));
        }
        if plan.bytes() == 0 {
            self.settle(turn, moves, 0);
            return Ok(true);
        }
        let wrote = plan.write(|slices| self.stream.write(slices));
        let sent = match wrote {
            Ok(sent) => sent,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => 0,
            Err(_) => return Err(ConnectionLost),
        };
        // If there is no memory for the rest of a record of which a part was sent, the connection must end.
        let cut = plan.rest_of_cut(sent, self.shared.node.budget()).map_err(|_| ConnectionLost)?;
        let before_runs = self.outbound.sent(sent);
        debug_assert!(before_runs <= sent);
        self.outbound.rest.extend(cut);
        self.settle(turn, moves, sent);
        Ok(sent > 0)
    }

    /// Moves the cursors of the channels past the records that were sent, or whose rest is kept to be sent. Gives back
    /// the credit of the other messages.
    fn settle(&mut self, turn: &[u32], moves: &[super::plan::CursorMove], sent: usize) {
        for made in moves {
            let Some(channel) = self.channels.get_mut(&made.channel) else { continue };
            let message_bytes = made.bytes.end - made.bytes.start;
            if made.bytes.start >= sent && message_bytes > 0 {
                if made.state.is_none()
                    && let Some(subscription) = self.subscriptions.get_mut(&channel.subscription)
                {
                    subscription.sent -= message_bytes as u64;
                }
                channel.stopped = true;
            } else if let (Some(bytes), false) = (made.state, channel.stopped) {
                channel.sent_of_state(bytes);
                channel.touch(made.channel, &mut self.touched);
            } else if !channel.stopped {
                channel.sent = true;
                if made.is_reported {
                    self.session_trace.sent(made.records.into());
                    channel.cursor.advance(made.records.into(), made.advance_bytes);
                    channel.mark_all_reported();
                } else {
                    channel.cursor.skip(made.records.into(), made.advance_bytes);
                }
                channel.touch(made.channel, &mut self.touched);
            }
        }
        for &number in turn {
            if let Some(channel) = self.channels.get_mut(&number) {
                channel.in_turn = false;
                if std::mem::take(&mut channel.stopped) {
                    channel.cursor.forget_merged();
                }
                channel.cursor.release();
                self.line.push_back(number);
            }
        }
    }

    /// Sends the positions of the channels on which records were sent since the last heartbeat.
    pub(super) fn advance_touched(&mut self) {
        for (&number, channel) in &mut self.channels {
            if channel.cursor.pass_unwanted() {
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

    /// Sends the channel's position if the channel has skipped records since the last position that the client knows.
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
        Notice::Publishers(publishers) => FromNode::Publishers(Publishers {
            channel,
            connected: publishers.connected,
            since_ns: publishers.since_ns,
            last_append_ns: publishers.last_append_ns,
        }),
        Notice::Deleted { last, .. } => FromNode::Deleted(Deleted { channel, last: position_to_wire(*last) }),
        // Notices that have no message in this version of the protocol are not sent.
        _ => return None,
    })
}
