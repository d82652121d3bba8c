//! What a subscription is told besides records: as a message with a status, where it asked for sequences. Others cannot be
//! told; where they missed something they are cut off, as nats-server does with a client that is too slow.

use dunlin::topic::{EpochChanged, Notice};
use dunlin::wire::nats::{Message, header_lines};

use super::Session;
use super::encode::put_number;

const GAP: &[u8] = b"410 Gap";
const EPOCH_CHANGED: &[u8] = b"410 Epoch Changed";
const DELETED: &[u8] = b"410 Deleted";
const LAGGING: &[u8] = b"429 Lagging";

impl Session {
    /// Tells the channel's subscription.
    pub(super) fn notice(&mut self, number: u32, notice: &Notice) {
        let Some(channel) = self.channels.get_mut(&number) else { return };
        let Some(subscription) = self.subscriptions.get(&channel.subscription) else { return };
        match notice {
            Notice::Gap(gap) => channel.reading.lost(gap.records()),
            Notice::Lagging(_) => channel.reading.lagging(),
            _ => {}
        }
        let (number, topic) = (channel.subscription, channel.cursor.log().name().topic.clone());
        if subscription.is_sequenced {
            self.say_notice(number, &topic, notice);
        } else if is_loss(notice) {
            self.fail("Slow Consumer");
        }
    }

    /// Tells a subscription that asked for sequences.
    pub(super) fn say_notice(&mut self, subscription: u32, topic: &str, notice: &Notice) {
        let Some(subscription) = self.subscriptions.get(&subscription) else { return };
        let mut block = Vec::new();
        let none = std::iter::empty;
        match notice {
            Notice::Gap(gap) => {
                header_lines(&mut block, GAP, none());
                put_number(&mut block, "Dunlin-First", gap.first);
                put_number(&mut block, "Dunlin-Last", gap.last);
                put_number(&mut block, "Dunlin-Epoch", gap.epoch.into());
            }
            Notice::Lagging(lagging) => {
                header_lines(&mut block, LAGGING, none());
                put_number(&mut block, "Dunlin-Behind", lagging.behind);
                put_number(&mut block, "Dunlin-Retained", lagging.retained);
            }
            Notice::EpochChanged(changed) => {
                header_lines(&mut block, EPOCH_CHANGED, none());
                put_number(&mut block, "Dunlin-Old-Epoch", changed.old.into());
                put_number(&mut block, "Dunlin-Last-Seen", changed.last_seen);
                if let Some(through) = changed.known_through {
                    put_number(&mut block, "Dunlin-Known-Through", through);
                }
                put_number(&mut block, "Dunlin-Epoch", changed.new_first.epoch.into());
                put_number(&mut block, "Dunlin-First", changed.new_first.seq);
            }
            Notice::Deleted { last, .. } => {
                header_lines(&mut block, DELETED, none());
                put_number(&mut block, "Dunlin-Last", last.seq);
                put_number(&mut block, "Dunlin-Epoch", last.epoch.into());
            }
            _ => return,
        }
        block.extend_from_slice(b"\r\n");
        let message = Message { subject: [topic, ""], sid: &subscription.sid, reply: None };
        message.say_with_headers(&mut self.outbound.control, block.len(), 0);
        self.outbound.control.extend_from_slice(&block);
        self.outbound.control.extend_from_slice(b"\r\n");
    }
}

/// Whether a reader that hears nothing of it would take the records around it for neighbours.
pub(super) fn is_loss(notice: &Notice) -> bool {
    match notice {
        Notice::Gap(_) => true,
        Notice::EpochChanged(EpochChanged { last_seen, known_through, new_first, .. }) => {
            *known_through != Some(*last_seen) || new_first.seq != last_seen + 1
        }
        _ => false,
    }
}
