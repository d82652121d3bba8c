//! Assigns numbers to names, because numbers take less memory than names and are compared faster.

use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use imbl::OrdSet;
use imbl::shared_ptr::DefaultSharedPtr;

use crate::pages::Pages;

/// Numbers by name, in a hash map. An ordered map would be slower, because each look-up would compare a dozen names
/// that are scattered in memory. The hash function has no seed, and the order of the map is never used, so that all
/// nodes come to the same results.
pub(crate) type ByName =
    imbl::GenericHashMap<Arc<[u8]>, u32, BuildHasherDefault<DefaultHasher>, DefaultSharedPtr>;

/// All names that classes and pools use, by number.
#[derive(Debug, Clone, Default)]
pub(crate) struct NameTable {
    names: Pages<Arc<[u8]>>,
    numbers: ByName,
    /// Number of uses of each name.
    uses: Pages<u32>,
    free: OrdSet<u32>,
}

impl NameTable {
    pub(crate) fn find(&self, name: &[u8]) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    /// Returns the number of a name, and adds the name if it is new. The caller must then call `add_use`.
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

    /// Appends a name from a snapshot. An empty name stands for a free number.
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

    /// Counts one more use of a name.
    pub(crate) fn add_use(&mut self, number: u32) {
        self.uses[number as usize] += 1;
    }

    /// Subtracts one use of a name.
    pub(crate) fn remove_use(&mut self, number: u32) {
        self.uses[number as usize] -= 1;
        self.free_unused(number);
    }

    /// Frees a name without uses.
    fn free_unused(&mut self, number: u32) {
        if self.uses[number as usize] == 0 {
            self.numbers.remove(&self.names[number as usize]);
            self.names[number as usize] = Arc::default();
            self.free.insert(number);
        }
    }

    /// Frees all names without uses, after all uses are counted.
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
