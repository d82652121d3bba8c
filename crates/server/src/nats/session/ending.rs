//! Handles operations that wait until earlier messages are delivered. `UNSUB` takes effect after the records that were
//! published before it. `PONG` is sent after the messages that existed when its `PING` arrived. Client libraries rely
//! on this order to drain subscriptions. `PONG` also waits until topics' owners at other nodes have accepted the
//! client's memberships in queue groups, so that records published after the `PONG` reach the member.
//!
//! Limits: the session stops reading when it has [`PONGS_MAX`] pending `PONG`s, or when they wait for [`POSITIONS_MAX`]
//! positions in logs.

use std::collections::VecDeque;

use dunlin::topic::{NewLogs, Position};
use dunlin::wire::nats::PONG;

use super::connect::PROTOCOL;
use super::{Phase, Session};
use crate::session::turn::COMMAND_WORK;

const PONGS_MAX: usize = 1_024;
/// Maximum number of positions in logs for which the pending `PONG`s wait. At this number, the session stops reading.
const POSITIONS_MAX: usize = 1 << 18;

/// Pending `PONG`s, in the order of their `PING`s.
#[derive(Debug, Default)]
pub(super) struct PendingPongs {
    pending: VecDeque<PendingPong>,
    /// Sum of the `positions` of all pending `PONG`s.
    positions: usize,
    /// Whether the client has received a `PONG` on this connection.
    has_sent_first: bool,
    /// Whether INFO must be sent right after the first `PONG`.
    info_is_due: bool,
}

/// A `PONG` that is sent when the channels and queue group members listed here have passed the given positions.
#[derive(Debug)]
struct PendingPong {
    channels: Vec<(u32, Position)>,
    /// Queue group members, each with the sequence number that it must pass in each log of its topic.
    members: Vec<(u32, Vec<u64>)>,
    /// Number of channels and members for which the `PONG` waited when the `PING` arrived.
    positions: usize,
}

impl PendingPongs {
    pub(super) fn is_full(&self) -> bool {
        self.pending.len() >= PONGS_MAX || self.positions >= POSITIONS_MAX
    }
}

impl Session {
    /// Handles a `PING`, after all notifications: its `PONG` is sent after all messages that exist now.
    pub(super) fn pong(&mut self) {
        let ending = self.ending.iter().filter_map(|number| self.subscriptions.get(number));
        let ending = ending.flat_map(|subscription| &subscription.channels);
        let paused = self.paused_channels.channels();
        let due = self
            .channel_queue
            .iter()
            .chain(paused)
            .chain(ending)
            .chain(self.own.held_channels())
            .chain(&self.held)
            .filter_map(|number| Some((*number, self.channels.get(number)?.cursor.log().last())));
        // The `PONG` also waits for channels whose start position is still to be found.
        let opening = self.opening.iter().filter(|(_, opening)| opening.subjects.is_some());
        let opening = opening.map(|(channel, _)| (*channel, Position::default()));
        let channels: Vec<(u32, Position)> = due.chain(opening).collect();
        let members = self.members.iter().filter(|(_, member)| member.delays_pong());
        let members: Vec<_> = members.map(|(number, member)| (*number, member.last_seqs())).collect();
        let positions = channels.len() + members.len();
        let queued = self.channel_queue.len() + paused.len();
        self.commands.add_scan(positions + queued + self.opening.len() + self.members.len());
        self.pongs.positions += positions;
        self.pongs.pending.push_back(PendingPong { channels, members, positions });
        self.write_due_pongs();
        if self.pongs.is_full() {
            self.commands.spend();
        }
    }

    /// Sends the pending `PONG`s that need not wait any longer.
    pub(super) fn write_due_pongs(&mut self) {
        // Errors of records that were published before the `PING` are sent before its `PONG`.
        while self.refusals.is_empty()
            && let Some(pong) = self.pongs.pending.front_mut()
        {
            while let Some((number, last)) = pong.channels.last() {
                let is_opening = self.opening.contains_key(number);
                if is_opening || self.channels.get(number).is_some_and(|channel| !channel.is_past(*last)) {
                    return;
                }
                pong.channels.pop();
            }
            while let Some((number, last)) = pong.members.last() {
                if self.members.get(number).is_some_and(|member| !member.is_past(last)) {
                    return;
                }
                pong.members.pop();
            }
            self.pongs.positions -= pong.positions;
            self.pongs.pending.pop_front();
            self.outbound.control.extend_from_slice(PONG);
            self.pongs.has_sent_first = true;
            if std::mem::take(&mut self.pongs.info_is_due) {
                self.write_info();
            }
        }
    }

    /// Sends INFO again if the client supports this. Client libraries expect nothing between CONNECT and their first
    /// `PONG`, so INFO is not sent before that `PONG`.
    pub(super) fn write_info_again(&mut self) {
        if !matches!(self.phase, Phase::Open) || self.connect.protocol < PROTOCOL {
            return;
        }
        if self.pongs.has_sent_first {
            self.write_info();
        } else {
            self.pongs.info_is_due = true;
        }
    }

    /// Ends a subscription after all messages that exist now are delivered.
    pub(super) fn drain_subscription(&mut self, number: u32) {
        // The record published last may have created a topic that this subscription must read.
        self.take_new_logs();
        let Some(subscription) = self.subscriptions.get_mut(&number) else { return };
        subscription.newcomers = NewLogs::new();
        self.by_sid.remove(&subscription.sid);
        self.draining.push_back((number, 0));
        self.continue_unfinished();
    }

    /// Determines the last records of the subscriptions in `draining`, as far as this turn allows. Channels and
    /// memberships that have delivered these records end.
    pub(super) fn continue_draining(&mut self) {
        while self.arrived_logs.is_empty()
            && !self.delivery.is_spent()
            && let Some((number, first)) = self.draining.pop_front()
        {
            let Some(subscription) = self.subscriptions.get_mut(&number) else { continue };
            subscription.is_ending = true;
            self.ending.insert(number);
            let channel = subscription.channels.range(first..).next();
            let member = subscription.members.range(first..).next();
            let Some(&next) = channel.into_iter().chain(member).min() else {
                if subscription.has_ended() {
                    self.end_subscription(number);
                }
                continue;
            };
            // The subscription may end with the channel or membership. It is then skipped above.
            self.draining.push_front((number, next + 1));
            self.delivery.add(1);
            if self.members.contains_key(&next) {
                self.delivery.add(COMMAND_WORK);
                self.finish_member(next);
                continue;
            }
            let Some(open) = self.channels.get_mut(&next) else { continue };
            let last = open.cursor.log().last();
            open.until = Some(last);
            if open.is_past(last) {
                self.delivery.add(COMMAND_WORK);
                self.end_channel(next);
            } else {
                self.channel_queue.push_back(next);
            }
        }
    }
}
