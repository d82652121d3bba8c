//! Converts the data that Raft stores to and from the records of a journal.

use std::io;

use bytes::Bytes;
use dunlin_frame::{Frame, RecordMeta};
use dunlin_journal::{AppendBatch, AppendError, Journal, Records};

use crate::codec::ValueCodec;

#[derive(Debug, Default)]
pub(crate) struct EncodedRecords {
    pub(crate) bytes: Vec<u8>,
    pub(crate) count: u32,
    payload: Vec<u8>,
}

impl EncodedRecords {
    pub(crate) fn push(&mut self, item: &impl ValueCodec) -> io::Result<()> {
        self.payload.clear();
        item.write(&mut self.payload);
        let encoded = RecordMeta::default().measure(self.payload.len()).map_err(io::Error::other)?;
        let at = self.bytes.len();
        self.bytes.resize(at + encoded.padded(), 0);
        RecordMeta::default().encode(encoded, 0, &self.payload, &mut self.bytes[at..]);
        self.count += 1;
        Ok(())
    }
}

/// Appends `frames`, which contain `count` records, to the journal as one block.
pub(crate) fn append(
    journal: &mut Journal,
    epoch: u32,
    first_seq: u64,
    count: u32,
    frames: &[&[u8]],
) -> Result<(), AppendError> {
    // The times are 0, because no record is looked up by time.
    journal.append(&AppendBatch { epoch, first_seq, count, first_time_ns: 0, last_time_ns: 0, frames })
}

/// Iterates over the records of a block. Each item is a record's number and content.
pub(crate) fn payloads(records: &Records<'_>) -> impl Iterator<Item = (u64, Bytes)> + use<> {
    let mut frames = Bytes::copy_from_slice(records.frames);
    let payloads = std::iter::from_fn(move || {
        let (frame, taken) = Frame::split(&frames)?;
        let payload = frames.slice_ref(frame.payload());
        frames = frames.slice(taken..);
        Some(payload)
    });
    (records.first_seq..).zip(payloads)
}
