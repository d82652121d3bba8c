//! Creates records for the tests of the reducers.

use dunlin_topic::frame::{Frame, RecordMeta};
use dunlin_topic::{Reducer, ReducerError};

/// The encoded frame of a record, as it is stored in a log.
#[derive(Debug, Clone)]
pub struct RecordFrame(Vec<u8>);

impl RecordFrame {
    pub fn new(payload: &[u8]) -> RecordFrame {
        RecordFrame::of(&RecordMeta::default(), payload)
    }

    pub fn keyed(key: &[u8], payload: &[u8]) -> RecordFrame {
        RecordFrame::of(&RecordMeta { key: Some(key), ..RecordMeta::default() }, payload)
    }

    fn of(meta: &RecordMeta<'_>, payload: &[u8]) -> RecordFrame {
        let encoded = meta.measure(payload.len()).unwrap();
        let mut bytes = vec![0; encoded.padded()];
        meta.encode(encoded, 1, payload, &mut bytes);
        RecordFrame(bytes)
    }

    pub fn frame(&self) -> Frame<'_> {
        Frame::split(&self.0).unwrap().0
    }
}

pub fn check(reducer: &dyn Reducer, records: &[RecordFrame]) -> Result<(), ReducerError> {
    reducer.check(&mut records.iter().map(RecordFrame::frame))
}

/// Checks a record and, if it is accepted, applies it, as the owner of a topic does.
pub fn append(reducer: &mut dyn Reducer, seq: u64, record: &RecordFrame) -> Result<(), ReducerError> {
    reducer.check(&mut std::iter::once(record.frame()))?;
    reducer.apply(seq, &record.frame())
}

/// Returns the bytes of the state's snapshot.
pub fn snapshot(reducer: &mut dyn Reducer) -> Vec<u8> {
    let mut bytes = Vec::new();
    reducer.freeze().write(&mut bytes);
    bytes
}
