//! Defines a file of the simulated disk. A file has the content that programs see, the content on the medium, and the
//! sectors in which these two may differ.

use std::collections::BTreeSet;

pub(super) const SECTOR_BYTES: usize = 512;

/// A file of the simulated disk.
#[derive(Debug, Default)]
pub(super) struct FakeFile {
    /// The content that programs see.
    pub content: Vec<u8>,
    /// The content on the medium.
    pub synced: Vec<u8>,
    /// The sectors that were written since the last sync.
    pub dirty: BTreeSet<usize>,
    /// Whether the length has changed since the last sync.
    pub length_dirty: bool,
}

impl FakeFile {
    /// Creates a file whose content is synced already.
    pub fn synced(content: Vec<u8>) -> FakeFile {
        FakeFile { synced: content.clone(), content, ..FakeFile::default() }
    }

    pub fn write(&mut self, bytes: &[u8], at: usize) {
        if bytes.is_empty() {
            return;
        }
        let end = at + bytes.len();
        if end > self.content.len() {
            self.content.resize(end, 0);
            self.length_dirty = true;
        }
        self.content[at..end].copy_from_slice(bytes);
        self.dirty.extend(at / SECTOR_BYTES..=(end - 1) / SECTOR_BYTES);
    }

    pub fn set_bytes(&mut self, bytes: usize) {
        if bytes != self.content.len() {
            self.content.resize(bytes, 0);
            self.length_dirty = true;
        }
    }

    /// Copies a sector to the medium. Bytes beyond the file's length on the medium are not copied.
    pub fn sync_sector(&mut self, sector: usize) {
        let start = sector * SECTOR_BYTES;
        let end = (start + SECTOR_BYTES).min(self.synced.len()).min(self.content.len());
        if start < end {
            self.synced[start..end].copy_from_slice(&self.content[start..end]);
        }
    }

    pub fn sync_length(&mut self) {
        self.synced.resize(self.content.len(), 0);
        self.length_dirty = false;
    }

    pub fn flip(&mut self, at: usize, bit: u8) {
        self.content[at] ^= bit;
        if let Some(byte) = self.synced.get_mut(at) {
            *byte ^= bit;
        }
    }
}
