//! Last values at one moment.

use dunlin_topic::Frozen;

use super::Held;
use crate::slab::FrozenSlab;
use crate::snapshot::{self, Kind};

/// Parts of a state that a snapshot needs.
#[derive(Debug)]
pub(super) struct FrozenValues {
    values: FrozenSlab<Held>,
}

impl FrozenValues {
    pub(super) fn new(values: FrozenSlab<Held>) -> FrozenValues {
        FrozenValues { values }
    }
}

impl Frozen for FrozenValues {
    fn write(&self, out: &mut Vec<u8>) {
        let mut values: Vec<&Held> = self.values.iter().collect();
        values.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        snapshot::write_head(out, Kind::Last, values.len(), 0);
        for Held { key, value, .. } in values {
            out.extend_from_slice(&(key.len() as u32).to_le_bytes());
            out.extend_from_slice(&(value.len() as u32).to_le_bytes());
            out.extend_from_slice(key);
            out.extend_from_slice(value);
        }
    }
}
