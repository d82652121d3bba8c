//! The session's timer. It limits how long the session waits for the handshake, room in a topic, and the end of a
//! closing connection, and it triggers heartbeats.

use dunlin::wire::{ChannelPosition, FromNode, Heartbeat, MessageList};

use super::subscription::Channel;
use super::{Phase, Session};
use crate::tcp::session::translate::position_to_wire;

/// Maximum number of channels in one heartbeat.
const HEARTBEAT_CHANNELS_MAX: usize = 1_024;

impl Session {
    pub(super) fn on_timer(&mut self) {
        match &mut self.phase {
            Phase::Preamble | Phase::Hello => self.on_handshake_timeout(),
            Phase::Open => {
                // Retries the publish, even when its wait time has ended.
                self.publishing.on_room();
                self.publishing.is_held = false;
                self.queue_all_members();
                self.heartbeat();
                self.timer.set_ms(self.shared.limits.heartbeat_ms);
            }
            Phase::Closing(_) => self.on_close_timeout(),
        }
    }

    /// Sends a heartbeat with the positions of channels on which something was sent, so that the client notices the
    /// loss of the last records.
    ///
    /// A heartbeat is sent at each interval, because clients give up a node after two missing heartbeats. A client that
    /// reads nothing receives no heartbeat.
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
            // This follower of a state has not received the checksum for its position yet. The checksum can be sent only
            // after all records, so the channel is served now, and again at the next heartbeat.
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
    /// Adds the channel to the next heartbeat.
    pub(super) fn touch(&mut self, number: u32, touched: &mut Vec<u32>) {
        if !std::mem::replace(&mut self.touched, true) {
            touched.push(number);
        }
    }
}
