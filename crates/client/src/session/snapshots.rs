//! Assembles snapshots of state topics from their parts, and requests a snapshot again after a gap.
//!
//! A snapshot has at most [`snapshot_bytes_max`](crate::ClientLimits::snapshot_bytes_max) bytes. Memory is allocated
//! when bytes of the snapshot arrive, and not in advance for the size that the node announces.

use std::sync::Arc;

use bytes::Bytes;
use dunlin_topic::{Checksum, LogName, Notice, Position, PublisherStatus, Resync, Snapshot, SubscribeError};
use dunlin_wire::{FromClient, MessageKind, SnapshotPart, WireError};

use crate::session::{Channel, ClientSession};

/// The part of a channel for a subscriber that follows the state of a state topic.
#[derive(Debug, Default)]
pub(super) struct FollowState {
    /// Whether the node fills gaps: after a gap, it sends the missing records or a state.
    pub(super) on_gap: bool,
    /// If there is a gap that is not filled yet, the position that the subscriber's state had before the gap.
    pub(super) unfilled_since: Option<Position>,
    /// Whether a new channel will replace this one. Messages on this channel are then discarded.
    pub(super) is_replaced: bool,
    parts: Option<PartialSnapshot>,
}

impl FollowState {
    pub(super) fn new(on_gap: bool) -> FollowState {
        FollowState { on_gap, ..FollowState::default() }
    }
}

#[derive(Debug)]
struct PartialSnapshot {
    position: dunlin_wire::Position,
    checksum: u64,
    total: u64,
    bytes: Vec<u8>,
    cost: u64,
}

impl PartialSnapshot {
    fn new(part: &SnapshotPart<'_>) -> PartialSnapshot {
        let (position, checksum, total) = (part.position, part.checksum, part.total);
        PartialSnapshot { position, checksum, total, bytes: Vec::new(), cost: 0 }
    }

    fn is_followed_by(&self, part: &SnapshotPart<'_>) -> bool {
        (self.position, self.checksum, self.total) == (part.position, part.checksum, part.total)
            && self.bytes.len() as u64 == part.offset
    }

    fn is_complete(&self) -> bool {
        self.bytes.len() as u64 == self.total
    }
}

impl ClientSession {
    /// Receives one part of a snapshot. When all parts have arrived, delivers the snapshot.
    pub(super) fn receive_snapshot_part(
        &mut self,
        part: &SnapshotPart<'_>,
        cost: u64,
    ) -> Result<(), WireError> {
        let bytes_max = self.snapshot_bytes_max as u64;
        let Some(channel) = self.channels.get_mut(&part.channel) else { return Ok(()) };
        if channel.state.is_replaced {
            channel.refund(cost);
            return Ok(());
        }
        if part.total > bytes_max {
            let limit = SubscribeError::Limit { limit: "snapshot_bytes_max", value: bytes_max };
            channel.inbox.end(limit);
            let number = channel.subscription;
            self.remove_subscription(number);
            return Ok(());
        }
        if part.offset == 0
            && let Some(unfinished) = channel.state.parts.replace(PartialSnapshot::new(part))
        {
            channel.inbox.refund(unfinished.cost);
        }
        let parts = channel.state.parts.as_mut().filter(|parts| parts.is_followed_by(part));
        let parts =
            parts.ok_or(WireError::Value { kind: MessageKind::Snapshot, what: "invalid part of a state" })?;
        parts.bytes.extend_from_slice(part.bytes);
        parts.cost += cost;
        if parts.is_complete()
            && let Some(parts) = channel.state.parts.take()
        {
            channel.deliver_snapshot(parts);
        }
        Ok(())
    }

    pub(super) fn handle_checksum(&mut self, checksum: &dunlin_wire::Checksum, cost: u64) {
        let Some(channel) = self.channels.get(&checksum.channel) else { return };
        if channel.state.is_replaced {
            return channel.refund(cost);
        }
        let position = Position { epoch: checksum.position.epoch, seq: checksum.position.seq };
        let log = Arc::clone(&channel.log);
        channel.push_notice(Notice::Checksum(Checksum { log, position, checksum: checksum.checksum }), cost);
    }

    pub(super) fn handle_publishers(&mut self, publishers: &dunlin_wire::PublisherStatus, cost: u64) {
        let Some(channel) = self.channels.get(&publishers.channel) else { return };
        if channel.state.is_replaced {
            return channel.refund(cost);
        }
        let dunlin_wire::PublisherStatus { connected, since_ns, last_append_ns, .. } = *publishers;
        let log = Arc::clone(&channel.log);
        channel.push_notice(
            Notice::Publishers(PublisherStatus { log, connected, since_ns, last_append_ns }),
            cost,
        );
    }

    /// Makes a subscriber continue at another position of a log. Returns the message to send, which is empty if none is
    /// needed.
    pub(crate) fn resync(&mut self, number: u32, log: &LogName, resync: Resync) -> Vec<u8> {
        let mut out = Vec::new();
        let after = match resync {
            Resync::After(at) => Some(at),
            Resync::State => None,
        };
        let Some(subscription) = self.subscriptions.get_mut(&number) else { return out };
        let key = (log.topic.clone(), log.partition);
        // The log has no channel at present. The position is sent when the subscription is continued.
        if let Some((_, at)) = subscription.logs.get_mut(&key) {
            *at = after;
            return out;
        }
        if let Some(&old) = subscription.channels.get(log)
            && let Some(channel) = self.channels.get_mut(&old)
        {
            channel.state.is_replaced = true;
            if let Some(parts) = channel.state.parts.take() {
                channel.inbox.refund(parts.cost);
            }
            subscription.logs.insert(key.clone(), (Arc::clone(&channel.log), after));
            subscription.replaced_channels.insert(key, old);
            let at = after.unwrap_or_default();
            let after = dunlin_wire::Position { epoch: at.epoch, seq: at.seq };
            let state = resync == Resync::State;
            FromClient::Resync(dunlin_wire::Resync { channel: old, state, after }).encode(&mut out);
        }
        out
    }
}

impl Channel {
    fn deliver_snapshot(&mut self, parts: PartialSnapshot) {
        let position = Position { epoch: parts.position.epoch, seq: parts.position.seq };
        self.state.unfilled_since = None;
        self.set_position(position);
        let (log, bytes) = (Arc::clone(&self.log), Bytes::from(parts.bytes));
        let snapshot = Snapshot { log, position, checksum: parts.checksum, bytes };
        self.push_notice(Notice::Snapshot(snapshot), parts.cost);
    }

    /// The position at which the subscriber continues after a lost connection.
    pub(super) fn resume_position(&self) -> Position {
        self.state.unfilled_since.unwrap_or(self.at)
    }
}
