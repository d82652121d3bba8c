//! Encodes a subscriber's messages, and the status that ends its stream, as Ratatoskr's interface defines them.

use bytes::Bytes;
use dunlin::topic::{LogName, Notice, Position, Snapshot};
use tonic::{Code, Status};

use super::super::outgoing::OutgoingMessages;
use super::super::proto::ratatoskr as rata;
use super::super::records::RecordBatch;
use super::super::writer::EventWriter;
use super::subscriptions::SubscriptionHandle;
use super::{TOPIC_NOT_FOUND, ms};

/// Encodes each record of a subscription as a message of Ratatoskr.
#[derive(Debug)]
pub(in super::super) struct MessageWriter {
    topic: String,
    _subscription: SubscriptionHandle,
}

impl MessageWriter {
    pub(super) fn new(topic: String, subscription: SubscriptionHandle) -> MessageWriter {
        MessageWriter { topic, _subscription: subscription }
    }
}

impl EventWriter for MessageWriter {
    fn write_start(&mut self, _out: &mut OutgoingMessages, _logs: &[(&LogName, Position)], _more: bool) {}

    fn write_records(&mut self, out: &mut OutgoingMessages, batch: &RecordBatch<'_>) {
        let mut position = batch.first;
        for frame in batch.frames() {
            let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
            out.push(&rata::Message {
                id: message_id(batch.log, position),
                topic: self.topic.clone(),
                payload: Bytes::copy_from_slice(frame.payload()),
                metadata: frame.headers().map(|(name, value)| (name.to_owned(), text(value))).collect(),
                timestamp: ms(frame.append_time_ns()),
            });
            position.seq += 1;
        }
    }

    fn write_notice(&mut self, _out: &mut OutgoingMessages, notice: &Notice) -> Result<(), Status> {
        let end = |code, text| Err(Status::new(code, text));
        match notice {
            Notice::Gap(gap) => {
                end(Code::DataLoss, format!("{} messages were dropped before they were read", gap.records()))
            }
            Notice::EpochChanged(changed) => {
                let (old, last) = (changed.old, changed.last_seen);
                end(
                    Code::DataLoss,
                    format!("the topic has a new epoch; messages after {old}-{last} may be lost"),
                )
            }
            Notice::Deleted { .. } => end(Code::NotFound, TOPIC_NOT_FOUND.to_owned()),
            _ => Ok(()),
        }
    }

    fn write_state(
        &mut self,
        _out: &mut OutgoingMessages,
        snapshot: &Snapshot,
        offset: usize,
        _bytes_max: usize,
    ) -> usize {
        // Never called, because these subscriptions request no state.
        snapshot.bytes.len() - offset
    }
}

/// The id of the message at this position of the log.
pub(super) fn message_id(log: &LogName, position: Position) -> String {
    format!("{}/{}/{position}", log.topic, log.partition)
}
