//! Simulates the effects of a power failure on the files of the simulated disk.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::State;
use super::file::SECTOR_BYTES;

impl State {
    pub(super) fn crash(&mut self) {
        self.crashes += 1;
        self.faults = Default::default();
        for index in 0..self.files.len() {
            self.crash_file(index);
        }
        let paths: BTreeSet<PathBuf> = self.names.keys().chain(self.names_synced.keys()).cloned().collect();
        for path in paths {
            let (current, synced) = (self.names.get(&path).copied(), self.names_synced.get(&path).copied());
            let kept = if self.below(2) == 0 { current } else { synced };
            match kept {
                Some(file) => self.names_synced.insert(path, file),
                None => self.names_synced.remove(&path),
            };
        }
        self.names = self.names_synced.clone();
    }

    fn crash_file(&mut self, index: usize) {
        if self.files[index].length_dirty && self.below(2) == 0 {
            self.files[index].sync_length();
        }
        let dirty = std::mem::take(&mut self.files[index].dirty);
        // In half of the crashes, all unsynced sectors are lost, or all are kept. If each sector were chosen by itself,
        // these two cases would hardly occur.
        let loss_pattern = self.below(4);
        for sector in dirty {
            let choice = match loss_pattern {
                0 => 0,
                1 => 1,
                _ => self.below(4),
            };
            match choice {
                0 => {}
                1 | 2 => self.files[index].sync_sector(sector),
                _ => self.tear(index, sector),
            }
        }
        let file = &mut self.files[index];
        file.length_dirty = false;
        file.content = file.synced.clone();
    }

    /// Tears a sector: one part is new, the rest is old.
    fn tear(&mut self, index: usize, sector: usize) {
        let cut = self.below(SECTOR_BYTES as u64) as usize;
        let new_first = self.below(2) == 0;
        let start = sector * SECTOR_BYTES;
        let file = &mut self.files[index];
        let end = (start + SECTOR_BYTES).min(file.synced.len()).min(file.content.len());
        let middle = (start + cut).min(end);
        let new = if new_first { start..middle } else { middle..end };
        if new.start < new.end {
            file.synced[new.clone()].copy_from_slice(&file.content[new]);
        }
    }
}
