//! Names as numbers. A name stays for as long as the state does; how many there are is bounded by what has names.

use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use imbl::shared_ptr::DefaultSharedPtr;

use crate::pages::Pages;

/// Numbers by name. Hashed: in a map by order each look-up compares a dozen names that lie anywhere. The hash has no seed, and nothing follows from its
/// order, so that all nodes do the same.
pub(crate) type ByName =
    imbl::GenericHashMap<Arc<[u8]>, u32, BuildHasherDefault<DefaultHasher>, DefaultSharedPtr>;

/// All names, in the order in which they came.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    names: Pages<Arc<[u8]>>,
    numbers: ByName,
}

impl Names {
    pub(crate) fn find(&self, name: &[u8]) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    pub(crate) fn insert(&mut self, name: &[u8]) -> u32 {
        if let Some(number) = self.find(name) {
            return number;
        }
        let number = self.names.len() as u32;
        let name: Arc<[u8]> = name.into();
        self.names.push_back(name.clone());
        self.numbers.insert(name, number);
        number
    }

    pub(crate) fn get(&self, number: u32) -> &Arc<[u8]> {
        &self.names[number as usize]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<[u8]>> {
        self.names.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }
}
