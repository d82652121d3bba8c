//! A reducer for tests. Its state consists of slots, each with a number and a value.

use std::collections::BTreeMap;
use std::sync::Arc;

use dunlin_topic::*;

/// A topic's state for tests: a value for each slot. The payload of a record is a list of pairs: the number of a slot,
/// and its new value, in 8 bytes each. The value 0 clears the slot.
#[derive(Debug, Clone, Default)]
pub struct SlotValues {
    slots: Arc<BTreeMap<u64, (u64, u64)>>,
    checksum: u64,
}

/// A value that the reducer refuses.
pub const REFUSED: u64 = u64::MAX;

pub fn sets(pairs: &[(u64, u64)]) -> Vec<u8> {
    pairs.iter().flat_map(|&(slot, value)| [slot.to_le_bytes(), value.to_le_bytes()]).flatten().collect()
}

fn pairs(payload: &[u8]) -> impl Iterator<Item = (u64, u64)> + '_ {
    payload.chunks_exact(16).map(|pair| {
        let (slot, value) = pair.split_at(8);
        (u64::from_le_bytes(slot.try_into().unwrap()), u64::from_le_bytes(value.try_into().unwrap()))
    })
}

fn hash((slot, value): (u64, u64)) -> u64 {
    (slot.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ value).wrapping_mul(0xff51_afd7_ed55_8ccd)
}

fn check_payload(payload: &[u8]) -> Result<(), ReducerError> {
    let is_valid = payload.len().is_multiple_of(16) && pairs(payload).all(|(_, value)| value != REFUSED);
    if is_valid { Ok(()) } else { Err(ReducerError("a value that no slot takes".to_owned())) }
}

impl SlotValues {
    pub fn slots(&self) -> Vec<(u64, u64)> {
        self.slots.iter().map(|(&slot, &(value, _))| (slot, value)).collect()
    }

    /// Applies the payload of record `seq`.
    pub fn take(&mut self, payload: &[u8], seq: u64) {
        let meta = RecordMeta::default();
        let encoded = meta.measure(payload.len()).unwrap();
        let mut bytes = vec![0; encoded.padded()];
        meta.encode(encoded, 0, payload, &mut bytes);
        self.apply(seq, &Frame::split(&bytes).unwrap().0).unwrap();
    }

    fn set(&mut self, seq: u64, (slot, value): (u64, u64)) {
        let slots = Arc::make_mut(&mut self.slots);
        if let Some((old, _)) = slots.insert(slot, (value, seq)) {
            self.checksum = self.checksum.wrapping_sub(hash((slot, old)));
        }
        self.checksum = self.checksum.wrapping_add(hash((slot, value)));
    }
}

impl Reducer for SlotValues {
    fn check(&self, frames: &mut dyn Iterator<Item = Frame<'_>>) -> Result<(), ReducerError> {
        for frame in frames {
            check_payload(frame.payload())?;
        }
        Ok(())
    }

    fn apply(&mut self, seq: u64, frame: &Frame<'_>) -> Result<(), ReducerError> {
        check_payload(frame.payload())?;
        pairs(frame.payload()).for_each(|pair| self.set(seq, pair));
        Ok(())
    }

    fn freeze(&mut self) -> Arc<dyn FrozenState> {
        Arc::new(self.clone())
    }

    fn restore(&mut self, seq: u64, snapshot: &[u8]) -> Result<(), ReducerError> {
        *self = SlotValues::default();
        check_payload(snapshot)?;
        pairs(snapshot).for_each(|pair| self.set(seq, pair));
        Ok(())
    }

    fn checksum(&self) -> u64 {
        self.checksum
    }

    fn changes_since(&self, seq: u64, payload: &mut Vec<u8>) -> bool {
        let changed: Vec<(u64, u64)> = self
            .slots
            .iter()
            .filter(|(_, (_, set_at))| *set_at > seq)
            .map(|(&slot, &(value, _))| (slot, value))
            .collect();
        let shorter = changed.len() < self.slots.len();
        if shorter {
            payload.extend(sets(&changed));
        }
        shorter
    }

    fn snapshot_bytes(&self) -> usize {
        self.slots.len() * 16
    }

    fn bytes(&self) -> u64 {
        self.slots.len() as u64 * 64
    }

    fn entries(&self) -> u64 {
        self.slots.len() as u64
    }
}

impl FrozenState for SlotValues {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend(sets(&self.slots()));
    }
}
