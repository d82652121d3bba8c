//! Handles notices such as gaps. A subscription that asked for sequence numbers receives each notice as a message with
//! a status. All other subscriptions receive no notices. If one of them lost records that it could have received, the
//! session closes the connection, as nats-server does with slow consumers. Records that were lost together with the
//! topic's owner do not close the connection.

use dunlin::topic::{EpochChanged, Notice};
use dunlin::wire::nats::{NatsMessageHead, header_lines};

use super::Session;
use super::encode::put_number;

const GAP: &[u8] = b"410 Gap";
const EPOCH_CHANGED: &[u8] = b"410 Epoch Changed";
const DELETED: &[u8] = b"410 Deleted";
const LAGGING: &[u8] = b"429 Lagging";

impl Session {
    /// Handles a notice for a channel. Sends it if the subscription asked for sequence numbers. Otherwise, if the
    /// subscription lost records, closes the connection.
    pub(super) fn notice(&mut self, number: u32, notice: &Notice) {
        let Some(channel) = self.channels.get_mut(&number) else { return };
        let Some(subscription) = self.subscriptions.get(&channel.subscription) else { return };
        match notice {
            Notice::Gap(gap) => channel.progress.record_missed(gap.records()),
            Notice::Lagging(_) => channel.progress.record_lag_warning(),
            _ => {}
        }
        if subscription.is_sequenced {
            let topic = &channel.cursor.log().name().topic;
            put_notice(&mut self.outbound.control, &subscription.sid, topic, notice);
        } else if is_loss(notice) {
            self.close_slow_consumer();
        }
    }
}

/// Appends the message for a notice to `out`.
pub(super) fn put_notice(out: &mut Vec<u8>, sid: &[u8], topic: &str, notice: &Notice) {
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
    let message = NatsMessageHead { subject: [topic, ""], sid, reply: None };
    message.encode_with_headers(out, block.len(), 0);
    out.extend_from_slice(&block);
    out.extend_from_slice(b"\r\n");
}

/// Whether the notice means that the subscriber missed records which it could have received.
///
/// Records that were lost with a topic's owner do not count; `known_through` is `None` for them.
fn is_loss(notice: &Notice) -> bool {
    match notice {
        Notice::Gap(_) => true,
        Notice::EpochChanged(EpochChanged { last_seen, known_through, new_first, .. }) => {
            let is_behind_end = known_through.is_some_and(|through| through > *last_seen);
            // The new owner may lack records that this subscriber has read. The new epoch then begins at or before the
            // last of these records, and the subscriber missed nothing. Records of the new epoch that are not retained
            // cause a gap later.
            let begins_late = new_first.seq > last_seen.saturating_add(1);
            is_behind_end || begins_late
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use dunlin::topic::{LogName, Position};

    use super::*;

    fn epoch_changed(last_seen: u64, known_through: Option<u64>, first: u64) -> Notice {
        let log = Arc::new(LogName { topic: "t".to_owned(), subject_prefix: String::new(), partition: 0 });
        let new_first = Position { epoch: 2, seq: first };
        Notice::EpochChanged(EpochChanged { log, old: 1, last_seen, known_through, new_first })
    }

    #[test]
    fn epoch_change_is_no_loss_if_the_client_had_read_everything() {
        assert!(!is_loss(&epoch_changed(7, None, 8)), "another node goes on with the numbers");
        assert!(!is_loss(&epoch_changed(7, None, 1)), "another node begins again");
        assert!(!is_loss(&epoch_changed(7, Some(7), 8)));
        assert!(!is_loss(&epoch_changed(7, Some(5), 6)), "the disk has less than was read");
        assert!(!is_loss(&epoch_changed(7, None, 5)), "the next owner lacks records that were read here");
    }

    #[test]
    fn epoch_change_that_skips_unread_records_counts_as_a_loss() {
        assert!(is_loss(&epoch_changed(7, Some(9), 10)), "the old epoch had two more");
        assert!(is_loss(&epoch_changed(7, Some(7), 9)), "one of the new epoch was given up");
    }
}
