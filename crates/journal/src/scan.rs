//! Reads the blocks of one file in order, and searches for the next valid block after damage.
//!
//! Invariants:
//! - The checksum of a returned block is right for the block's file and offset, and the block has as many valid frames
//!   as the block's header states.
//! - No length field makes a scan allocate more than the file's size.
//! - A search after damage reads at most [`JournalLimits::SEARCH_FACTOR`] times the file's size.

use std::io;
use std::ops::Range;

use dunlin_frame::Frame;

use crate::JournalLimits;
use crate::disk::DiskFile;
use crate::layout::{
    BLOCK_ALIGN, BLOCK_HEADER_BYTES, BlockDefect, BlockHeader, BlockKind, Mark, block_checksum,
};

#[derive(Debug)]
pub(crate) struct BlockScan {
    identity: u64,
    /// Offset of the next block.
    at: u64,
    /// Offset at which reading stops.
    end: u64,
    /// Part of the file, from `buffer_at` on.
    buffer: Vec<u8>,
    buffer_at: u64,
    /// Range of the last block's frames in the buffer.
    body: Range<usize>,
    /// Range of the last block's note in the buffer.
    note: Range<usize>,
    /// Bytes fetched at a time, unless a block is larger.
    read_bytes: usize,
    /// Bytes that searches for valid blocks may still read.
    search_left: u64,
}

/// The block at an offset of a file, or the reason why there is none.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ScanStep {
    /// A block of records. [`BlockScan::frames`] returns the block's frames until the scan's next step.
    Block {
        at: u64,
        header: BlockHeader,
    },
    Mark {
        at: u64,
        mark: Mark,
    },
    Bad {
        at: u64,
        why: BlockDefect,
    },
    /// The scan has reached the end of the readable bytes, exactly after a block.
    End,
}

impl BlockScan {
    /// Creates a scan from `at`, the start of a block, up to `end`.
    pub fn new(identity: u64, at: u64, end: u64) -> BlockScan {
        BlockScan {
            identity,
            at,
            end,
            buffer: Vec::new(),
            buffer_at: at,
            body: 0..0,
            note: 0..0,
            read_bytes: JournalLimits::READ_BYTES,
            search_left: end.saturating_mul(JournalLimits::SEARCH_FACTOR),
        }
    }

    /// Sets how many bytes are fetched at a time, at most the default.
    pub fn with_read_bytes(self, bytes: usize) -> BlockScan {
        BlockScan { read_bytes: bytes.min(JournalLimits::READ_BYTES), ..self }
    }

    pub fn frames(&self) -> &[u8] {
        self.buffer.get(self.body.clone()).unwrap_or(&[])
    }

    pub fn note(&self) -> &[u8] {
        self.buffer.get(self.note.clone()).unwrap_or(&[])
    }

    /// Offset of the next block.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Offset at which reading stops.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Moves to the offset of a block, so that the block is read again.
    pub fn seek(&mut self, at: u64) {
        self.at = at;
    }

    pub fn extend(&mut self, end: u64) {
        self.search_left = self.search_left.saturating_add(end.saturating_sub(self.end));
        self.end = end.max(self.end);
    }

    /// Reads the next block. After a bad block, the scan stays at that block: see [`BlockScan::search`].
    pub fn next(&mut self, file: &dyn DiskFile) -> io::Result<ScanStep> {
        let at = self.at;
        if at >= self.end {
            return Ok(ScanStep::End);
        }
        let header = match self.read_block(file, at)? {
            Ok(header) => header,
            Err(why) => return Ok(ScanStep::Bad { at, why }),
        };
        self.at = at + header.whole_bytes();
        let start = (at - self.buffer_at) as usize + BLOCK_HEADER_BYTES;
        let note = start + (header.bytes - header.note_bytes) as usize;
        self.body = start..note;
        self.note = note..start + header.bytes as usize;
        Ok(match Mark::of(&header, self.frames()) {
            Some(mark) => ScanStep::Mark { at, mark },
            None => ScanStep::Block { at, header },
        })
    }

    /// Moves to the next valid block after a bad block. If there is no valid block, does not move and returns `false`.
    ///
    /// With `needs_synced_proof`, a later valid block counts only if it states that the bad block was synced. Otherwise
    /// the bad block may be a write that a crash interrupted.
    pub fn search(&mut self, file: &dyn DiskFile, needs_synced_proof: bool) -> io::Result<bool> {
        let bad = self.at;
        let Some((found, header)) = self.find_valid(file, bad + BLOCK_ALIGN as u64)? else {
            return Ok(false);
        };
        let mut next = Some((found, header));
        while let Some((at, header)) = next.filter(|_| needs_synced_proof) {
            if header.synced > bad {
                break;
            }
            next = self.find_valid(file, at + header.whole_bytes())?;
        }
        if next.is_some() {
            self.at = found;
        }
        Ok(next.is_some())
    }

    fn find_valid(&mut self, file: &dyn DiskFile, from: u64) -> io::Result<Option<(u64, BlockHeader)>> {
        let mut at = from;
        while at + (BLOCK_HEADER_BYTES as u64) <= self.end && self.search_left > 0 {
            let read_bytes = match self.read_block(file, at)? {
                Ok(header) => return Ok(Some((at, header))),
                Err(BlockDefect::Checksum | BlockDefect::Frames) => {
                    BLOCK_HEADER_BYTES as u64 + u64::from(self.stated_bytes(at))
                }
                Err(_) => BLOCK_ALIGN as u64,
            };
            self.search_left = self.search_left.saturating_sub(read_bytes);
            at += BLOCK_ALIGN as u64;
        }
        Ok(None)
    }

    /// The length of the block that the buffered header at this offset states.
    fn stated_bytes(&self, at: u64) -> u32 {
        crate::layout::u32_at(self.buffered(at), 4)
    }

    /// The offset after the last non-zero byte of the file, searched from the current offset on.
    pub fn written_end(&mut self, file: &dyn DiskFile) -> io::Result<u64> {
        let mut last = self.at;
        let mut at = self.at;
        let mut chunk = vec![0; JournalLimits::READ_BYTES.min((self.end - self.at.min(self.end)) as usize)];
        while at < self.end {
            let len = chunk.len().min((self.end - at) as usize);
            let count = file.read_at(&mut chunk[..len], at)?;
            if count == 0 {
                break;
            }
            if let Some(index) = chunk[..count].iter().rposition(|&byte| byte != 0) {
                last = at + index as u64 + 1;
            }
            at += count as u64;
        }
        Ok(last)
    }

    /// The valid block at this offset, buffered as a whole, or the reason why there is none.
    fn read_block(&mut self, file: &dyn DiskFile, at: u64) -> io::Result<Result<BlockHeader, BlockDefect>> {
        let left = self.end - at;
        self.fill(file, at, BLOCK_HEADER_BYTES)?;
        let header = match BlockHeader::parse(self.buffered(at), left) {
            Ok(header) => header,
            Err(why) => return Ok(Err(why)),
        };
        self.fill(file, at, header.whole_bytes() as usize)?;
        Ok(check(self.identity, at, &header, self.buffered(at)).map(|()| header))
    }

    fn buffered(&self, at: u64) -> &[u8] {
        at.checked_sub(self.buffer_at).and_then(|start| self.buffer.get(start as usize..)).unwrap_or(&[])
    }

    /// Buffers `need` bytes from `at`, if the file is long enough.
    fn fill(&mut self, file: &dyn DiskFile, at: u64, need: usize) -> io::Result<()> {
        let available = (self.buffer_at + self.buffer.len() as u64).saturating_sub(at);
        if at >= self.buffer_at && available >= need as u64 {
            return Ok(());
        }
        let consumed = if at >= self.buffer_at && available > 0 {
            (at - self.buffer_at) as usize
        } else {
            self.buffer.len()
        };
        (self.body, self.note) = (0..0, 0..0);
        self.buffer.drain(..consumed);
        self.buffer_at = at;
        let have = self.buffer.len();
        let left = self.end.saturating_sub(at) as usize;
        let len = need.max(self.read_bytes).min(left).max(have);
        self.buffer.resize(len, 0);
        let count = file.read_at(&mut self.buffer[have..], at + have as u64)?;
        self.buffer.truncate(have + count);
        Ok(())
    }
}

/// Validates the checksum and every frame.
fn check(identity: u64, at: u64, header: &BlockHeader, bytes: &[u8]) -> Result<(), BlockDefect> {
    let (head, rest) = bytes.split_first_chunk::<BLOCK_HEADER_BYTES>().ok_or(BlockDefect::Short)?;
    let body = rest.get(..header.bytes as usize).ok_or(BlockDefect::Short)?;
    if crate::layout::u32_at(head, 0) != block_checksum(identity, at, head, &[body]) {
        return Err(BlockDefect::Checksum);
    }
    let frames = &body[..body.len() - header.note_bytes as usize];
    if header.kind == BlockKind::Records && count_frames(frames) != Some(header.count) {
        return Err(BlockDefect::Frames);
    }
    Ok(())
}

/// Number of frames that fill these bytes; `None` if a frame is invalid.
fn count_frames(mut body: &[u8]) -> Option<u32> {
    let mut count = 0;
    while !body.is_empty() {
        let (_, stride) = Frame::check(body, body.len()).ok()?;
        body = &body[stride..];
        count += 1;
    }
    Some(count)
}
