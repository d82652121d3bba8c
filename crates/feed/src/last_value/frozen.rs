//! The last values of all keys at one moment, from which a snapshot is written.

use dunlin_topic::FrozenState;

use super::StoredValue;
use crate::slab::FrozenSlab;
use crate::snapshot::{self, StateKind};

/// The part of a state of last values that is needed to write a snapshot: all keys and their values.
#[derive(Debug)]
pub(super) struct FrozenValues {
    values: FrozenSlab<StoredValue>,
}

impl FrozenValues {
    pub(super) fn new(values: FrozenSlab<StoredValue>) -> FrozenValues {
        FrozenValues { values }
    }
}

impl FrozenState for FrozenValues {
    fn write(&self, out: &mut Vec<u8>) {
        let mut values: Vec<&StoredValue> = self.values.iter().collect();
        values.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        snapshot::write_head(out, StateKind::Last, values.len(), 0);
        for StoredValue { key, value, .. } in values {
            out.extend_from_slice(&(key.len() as u32).to_le_bytes());
            out.extend_from_slice(&(value.len() as u32).to_le_bytes());
            out.extend_from_slice(key);
            out.extend_from_slice(value);
        }
    }
}
