//! Serves watches of keys over gRPC. A watch streams the changes of the requested keys, which it reads from the topic
//! that has the changes of all keys.

use std::sync::Arc;

use bytes::Bytes;
use dunlin::state::{KeyEvent, KeyEvents};
use dunlin::topic::{LogName, Notice, OnGap, Position, Snapshot, Start, SubscribeOptions, WaitStrategy};
use dunlin::wire::ErrorCode;
use dunlin::{KV, Refused};
use prost::Message as _;
use tonic::Status;
use v1::key_event::Type;

use super::super::connection::GrpcConnection;
use super::super::outgoing::OutgoingMessages;
use super::super::proto::dunlin as v1;
use super::super::reader::SubscriptionReader;
use super::super::records::RecordBatch;
use super::super::status::status;
use super::super::subscribe;
use super::super::writer::EventWriter;
use super::translate::{KeyRange, key_value};
use crate::protocol::Protocol;

/// Approximate size of a batch of responses, bytes.
const BATCH_BYTES: usize = 32 << 10;
/// Approximate maximum size of one response, bytes. A revision with more changes is sent in several responses, so that
/// clients with gRPC's usual limit of 4 MiB can read them. A key with its value is smaller than this size.
const RESPONSE_BYTES: usize = 1 << 20;
/// After this many revisions that changed no watched key, the client receives the current revision.
const QUIET_REVISIONS: u64 = 1_024;

/// Encodes the changes of the requested keys as responses of a watch.
#[derive(Debug)]
pub(in super::super) struct WatchWriter {
    key: Bytes,
    range_end: Bytes,
    /// The last revision that was sent to the client.
    reported: u64,
}

/// Starts a watch at the revision that the request names. Returns the reader of the changes, and their encoder.
pub(in super::super) async fn watch(
    connection: &Arc<GrpcConnection>,
    request: v1::WatchRequest,
) -> Result<(SubscriptionReader, WatchWriter), Refused> {
    let node = &connection.node;
    let v1::WatchRequest { key, range_end, start_revision, start_epoch, oldest } = request;
    let query = KeyRange::of(&key, &range_end).query(0);
    node.may_query(&query).map_err(|error| Refused::from(&error))?;
    let start = match (oldest, start_revision.checked_sub(1)) {
        (true, _) => Start::Earliest,
        (false, None) => Start::Latest,
        (false, Some(seq)) => {
            let control = node.control_async().await.map_err(|error| Refused::from(&error))?;
            let epoch = match start_epoch {
                0 => control.epoch().await.map_err(|error| Refused::from(&error))?,
                epoch => epoch,
            };
            Start::After(Position { epoch, seq })
        }
    };
    let options = SubscribeOptions {
        protocol: Protocol::Grpc.name(),
        start,
        on_gap: OnGap::Fail,
        wait: WaitStrategy::Parked,
        ..SubscribeOptions::default()
    };
    let reader = subscribe::begin(connection, &[KV.to_owned()], options, None, BATCH_BYTES).await?;
    Ok((reader, WatchWriter { key, range_end, reported: 0 }))
}

impl WatchWriter {
    fn includes(&self, key: &[u8]) -> bool {
        match KeyRange::of(&self.key, &self.range_end) {
            KeyRange::Key(requested) => key == requested,
            KeyRange::Range(start, end) => start <= key && (end.is_empty() || key < end),
        }
    }

    fn push(&mut self, out: &mut OutgoingMessages, at: Position, events: Vec<v1::KeyEvent>) {
        self.reported = at.seq;
        let response =
            |events, fragment| v1::WatchResponse { epoch: at.epoch, revision: at.seq, events, fragment };
        let (mut part, mut bytes) = (Vec::new(), 0);
        for event in events {
            let more = event.encoded_len();
            if !part.is_empty() && bytes + more > RESPONSE_BYTES {
                out.push(&response(std::mem::take(&mut part), true));
                bytes = 0;
            }
            bytes += more;
            part.push(event);
        }
        out.push(&response(part, false));
    }

    /// The changes of the requested keys in one revision, whose encoded changes are `change`.
    fn events(&self, change: &[u8]) -> Vec<v1::KeyEvent> {
        // Decoding cannot fail, because the node itself wrote these bytes.
        let Ok(events) = KeyEvents::new(change) else { return Vec::new() };
        let event = |event| match event {
            KeyEvent::Put { key, item } if self.includes(key) => {
                let kv = Some(key_value(key, &item));
                Some(v1::KeyEvent { r#type: Type::Put.into(), kv })
            }
            KeyEvent::Deleted { key } if self.includes(key) => {
                let kv = v1::KeyValue { key: Bytes::copy_from_slice(key), ..Default::default() };
                Some(v1::KeyEvent { r#type: Type::Delete.into(), kv: Some(kv) })
            }
            KeyEvent::Put { .. } | KeyEvent::Deleted { .. } => None,
        };
        events.flatten().filter_map(event).collect()
    }
}

impl EventWriter for WatchWriter {
    fn write_start(&mut self, out: &mut OutgoingMessages, logs: &[(&LogName, Position)], _more: bool) {
        for (_, at) in logs {
            self.push(out, *at, Vec::new());
        }
    }

    fn write_records(&mut self, out: &mut OutgoingMessages, batch: &RecordBatch<'_>) {
        let mut at = batch.first;
        for frame in batch.frames() {
            let events = self.events(frame.payload());
            if !events.is_empty() || at.seq >= self.reported + QUIET_REVISIONS {
                self.push(out, at, events);
            }
            at.seq += 1;
        }
    }

    fn write_notice(&mut self, out: &mut OutgoingMessages, notice: &Notice) -> Result<(), Status> {
        let compacted = |numbers, text: &str| {
            Err(status(&Refused { numbers, ..Refused::new(ErrorCode::Compacted, text) }))
        };
        match notice {
            Notice::Gap(gap) => compacted([gap.last + 1, gap.first, 0], ""),
            Notice::EpochChanged(changed) => compacted(
                [changed.new_first.seq, changed.last_seen + 1, 0],
                "the revisions started again in a new epoch",
            ),
            Notice::Deleted { .. } => Err(status(&Refused::new(ErrorCode::ShuttingDown, ""))),
            Notice::Advance { through, .. } => {
                self.push(out, *through, Vec::new());
                Ok(())
            }
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
        // Never called, because the topic of changes keeps no state.
        snapshot.bytes.len() - offset
    }
}
