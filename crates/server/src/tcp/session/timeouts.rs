//! Handles the session's timer. The timer limits how long the session waits for the handshake, for room in a topic, and
//! for the end of a closing connection. It also triggers heartbeats.

use dunlin::wire::{ChannelPosition, FromNode, Heartbeat, MessageList};

use super::subscription::Channel;
use super::{Phase, Session};
use crate::tcp::session::translate::position_to_wire;

/// Maximum number of channels whose positions are in one heartbeat.
const HEARTBEAT_CHANNELS_MAX: usize = 1_024;

impl Session {
    pub(super) fn on_timer(&mut self) {
        match &mut self.phase {
            Phase::Preamble | Phase::Hello => self.on_handshake_timeout(),
            Phase::Open => {
                // Tries the waiting batch again. If its wait time is over and the topic is still full, the batch is
                // then refused.
                self.publishing.on_room();
                self.publishing.is_held = false;
                self.queue_all_members();
                self.heartbeat();
                self.timer.set_ms(self.shared.limits.heartbeat_ms);
            }
            Phase::Closing(_) => self.on_close_timeout(),
        }
    }

    /// Sends a heartbeat. It contains the positions of channels over which something was sent, so that a client notices
    /// if the last records were lost.
    ///
    /// A heartbeat is due at every interval, because a client gives up a node after two missing heartbeats. A client
    /// that does not read its output gets no heartbeat.
    fn heartbeat(&mut self) {
        if !self.outbound.is_empty() {
            return;
        }
        self.advance_touched();
        let mut channels = Vec::with_capacity(self.touched.len().min(HEARTBEAT_CHANNELS_MAX));
        let mut unfinished = Vec::new();
        while let Some(number) = self.touched.pop() {
            let Some(channel) = self.channels.get_mut(&number) else { continue };
            channel.touched = false;
            // This channel follows a state, and still has to send the checksum for its position, after all records. The
            // channel is therefore queued now, and is part of the next heartbeat too.
            if channel.cursor.has_pending_checksum() && channel.sending.is_none() {
                unfinished.push(number);
                if channel.in_flight.is_none() {
                    self.channel_queue.push_back(number);
                }
            }
            channels.push(ChannelPosition { channel: number, position: position_to_wire(channel.reported) });
            if channels.len() == HEARTBEAT_CHANNELS_MAX {
                break;
            }
        }
        for number in unfinished {
            if let Some(channel) = self.channels.get_mut(&number) {
                channel.touch(number, &mut self.touched);
            }
        }
        self.outbound.push(FromNode::Heartbeat(Heartbeat { channels: MessageList::new(&channels) }));
    }
}

impl Channel {
    /// Marks the channel, so that the next heartbeat contains the channel's position. `touched` lists the marked
    /// channels.
    pub(super) fn touch(&mut self, number: u32, touched: &mut Vec<u32>) {
        if !std::mem::replace(&mut self.touched, true) {
            touched.push(number);
        }
    }
}
