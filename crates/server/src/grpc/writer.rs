//! Encodes records, notices and states for a subscriber as messages of one gRPC service.

use dunlin::topic::{LogName, Notice, Position, Snapshot};
use tonic::Status;

use super::outgoing::OutgoingMessages;
use super::proto::dunlin as v1;
use super::records::{RecordBatch, encode_records};
use super::translate::position;
use v1::subscribe_response::Event;

/// Encodes records, notices and states for a subscriber. Each gRPC service has its own implementation.
pub(super) trait EventWriter: Send + Unpin + 'static {
    fn write_start(&mut self, out: &mut OutgoingMessages, logs: &[(&LogName, Position)], more: bool);

    fn write_records(&mut self, out: &mut OutgoingMessages, batch: &RecordBatch<'_>);

    /// Writes a notice. If this fails, the stream ends.
    fn write_notice(&mut self, out: &mut OutgoingMessages, notice: &Notice) -> Result<(), Status>;

    /// Writes about `bytes_max` bytes of a state, beginning at `offset`. Returns the number of written bytes.
    fn write_state(
        &mut self,
        out: &mut OutgoingMessages,
        snapshot: &Snapshot,
        offset: usize,
        bytes_max: usize,
    ) -> usize;
}

/// Encodes records, notices and states as messages of `dunlin.v1`.
#[derive(Debug)]
pub(super) struct DunlinWriter;

impl DunlinWriter {
    fn push(out: &mut OutgoingMessages, event: Event) {
        out.push(&v1::SubscribeResponse { event: Some(event) });
    }
}

impl EventWriter for DunlinWriter {
    fn write_start(&mut self, out: &mut OutgoingMessages, logs: &[(&LogName, Position)], more: bool) {
        let logs = logs.iter().map(|(log, at)| position(log, *at)).collect();
        DunlinWriter::push(out, Event::Subscribed(v1::Subscribed { logs, more }));
    }

    fn write_records(&mut self, out: &mut OutgoingMessages, batch: &RecordBatch<'_>) {
        encode_records(out, batch);
    }

    fn write_notice(&mut self, out: &mut OutgoingMessages, notice: &Notice) -> Result<(), Status> {
        if let Some(event) = event(notice) {
            DunlinWriter::push(out, event);
        }
        Ok(())
    }

    fn write_state(
        &mut self,
        out: &mut OutgoingMessages,
        snapshot: &Snapshot,
        offset: usize,
        bytes_max: usize,
    ) -> usize {
        let end = snapshot.bytes.len().min(offset + bytes_max);
        let part = v1::SnapshotPart {
            position: Some(position(&snapshot.log, snapshot.position)),
            checksum: snapshot.checksum,
            bytes_total: snapshot.bytes.len() as u64,
            offset: offset as u64,
            part: snapshot.bytes.slice(offset..end),
        };
        DunlinWriter::push(out, Event::Snapshot(part));
        end - offset
    }
}

/// Converts a notice. Returns `None` for notices without a message in `dunlin.v1`, and for states, which are sent in
/// parts.
fn event(notice: &Notice) -> Option<Event> {
    Some(match notice {
        Notice::Gap(gap) => Event::Gap(super::translate::gap(gap)),
        Notice::Lagging(lagging) => Event::Lagging(v1::LagNotice {
            topic: lagging.log.topic.clone(),
            partition: lagging.log.partition.into(),
            behind: lagging.behind,
            retained: lagging.retained,
        }),
        Notice::EpochChanged(changed) => Event::EpochChanged(v1::EpochChanged {
            topic: changed.log.topic.clone(),
            partition: changed.log.partition.into(),
            old: changed.old,
            last_seen: changed.last_seen,
            known_through: changed.known_through,
            new_epoch: changed.new_first.epoch,
            new_first: changed.new_first.seq,
        }),
        Notice::Advance { log, through } => {
            Event::Advance(v1::Advance { through: Some(position(log, *through)) })
        }
        Notice::Checksum(sum) => Event::Checksum(v1::Checksum {
            position: Some(position(&sum.log, sum.position)),
            checksum: sum.checksum,
        }),
        Notice::Publishers(publishers) => Event::Publishers(v1::PublisherStatus {
            topic: publishers.log.topic.clone(),
            partition: publishers.log.partition.into(),
            connected: publishers.connected,
            since_ns: publishers.since_ns,
            last_append_ns: publishers.last_append_ns,
        }),
        Notice::Deleted { log, last } => Event::Deleted(v1::LogDeleted { last: Some(position(log, *last)) }),
        _ => return None,
    })
}
