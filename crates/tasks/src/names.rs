//! Names as numbers. A name is there as long as something has it; how many there are is bounded by what has names. The number of one that is gone is the
//! next new one's; until then its place is empty.

use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use imbl::OrdSet;
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
    /// How many have it.
    uses: Pages<u32>,
    free: OrdSet<u32>,
}

impl Names {
    pub(crate) fn find(&self, name: &[u8]) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    /// Its number. A new one is for whoever takes it next.
    pub(crate) fn insert(&mut self, name: &[u8]) -> u32 {
        if let Some(number) = self.find(name) {
            return number;
        }
        let number = self.free.get_min().copied().unwrap_or_else(|| self.push(b""));
        let name: Arc<[u8]> = name.into();
        self.free.remove(&number);
        self.names[number as usize] = name.clone();
        self.numbers.insert(name, number);
        number
    }

    /// One of a snapshot, behind those before it; empty where its place is free.
    pub(crate) fn push(&mut self, name: &[u8]) -> u32 {
        let number = self.names.len() as u32;
        self.names.push_back(name.into());
        self.uses.push_back(0);
        match name {
            b"" => drop(self.free.insert(number)),
            _ => drop(self.numbers.insert(name.into(), number)),
        }
        number
    }

    /// Something has the name.
    pub(crate) fn take(&mut self, number: u32) {
        self.uses[number as usize] += 1;
    }

    /// Something does not have it any more.
    pub(crate) fn give_back(&mut self, number: u32) {
        self.uses[number as usize] -= 1;
        self.free_unused(number);
    }

    /// Frees it if nothing has it.
    fn free_unused(&mut self, number: u32) {
        if self.uses[number as usize] == 0 {
            self.numbers.remove(&self.names[number as usize]);
            self.names[number as usize] = Arc::default();
            self.free.insert(number);
        }
    }

    /// All that have names have taken theirs: nothing has the others.
    pub(crate) fn free_all_unused(&mut self) {
        (0..self.len() as u32).for_each(|number| self.free_unused(number));
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
