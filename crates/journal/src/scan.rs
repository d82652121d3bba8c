//! Reads the blocks of a single file in order. After damage, searches for the next valid block.
//!
//! Invariants:
//! - Every returned block has the right checksum for its file and offset, and as many valid frames as its header
//!   states.
//! - Whatever lengths the file contains, a scan allocates no more memory than the file's size.
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
    /// Offset of the next block in the file.
    at: u64,
    /// Offset at which reading stops.
    end: u64,
    /// The part of the file that is in memory. It begins at the offset `buffer_at`.
    buffer: Vec<u8>,
    buffer_at: u64,
    /// The range of `buffer` with the frames of the last block.
    body: Range<usize>,
    /// The range of `buffer` with the note of the last block.
    note: Range<usize>,
    /// Number of bytes that are read at a time, unless a block is larger.
    read_bytes: usize,
    /// Number of bytes that searches for valid blocks may still read.
    search_left: u64,
}

/// The result of reading at an offset of a file: a block, a mark, the end, or the reason why there is no valid block.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ScanStep {
    /// A block with records. [`BlockScan::frames`] returns their frames until the next block is read.
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
    /// The last block ends exactly at the end of the readable bytes.
    End,
}

impl BlockScan {
    /// Creates a scan of the file with this identity, from offset `at`, where a block must begin, up to `end`.
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

    /// Sets how many bytes are read at a time. A number above the default counts as the default.
    pub fn with_read_bytes(self, bytes: usize) -> BlockScan {
        BlockScan { read_bytes: bytes.min(JournalLimits::READ_BYTES), ..self }
    }

    pub fn frames(&self) -> &[u8] {
        self.buffer.get(self.body.clone()).unwrap_or(&[])
    }

    pub fn note(&self) -> &[u8] {
        self.buffer.get(self.note.clone()).unwrap_or(&[])
    }

    /// Offset of the next block in the file.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Offset at which reading stops.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Moves to the block at offset `at`, so that it is read next.
    pub fn seek(&mut self, at: u64) {
        self.at = at;
    }

    pub fn extend(&mut self, end: u64) {
        self.search_left = self.search_left.saturating_add(end.saturating_sub(self.end));
        self.end = end.max(self.end);
    }

    /// Reads the next block. If the block is invalid, the scan stays there; [`BlockScan::search`] moves on.
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

    /// Moves from an invalid block to the next valid one. If there is none, returns `false` and does not move.
    ///
    /// With `needs_synced_proof`, moves only if some later valid block states that the invalid block was synced.
    /// Otherwise, the invalid block may be a write that a crash interrupted.
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

    /// The length that the block at this offset states in its header, which must be in the buffer.
    fn stated_bytes(&self, at: u64) -> u32 {
        crate::layout::u32_at(self.buffered(at), 4)
    }

    /// The offset after the file's last nonzero byte. The search begins at the current offset.
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

    /// Reads the block at this offset completely into the buffer. Returns the block's header if the block is valid,
    /// otherwise the reason why it is invalid.
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

    /// Reads so that the buffer has `need` bytes of the file from offset `at` on, unless the file ends earlier.
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

/// Validates the checksum of a block and each of its frames.
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

/// The number of frames of which these bytes consist; `None` if a frame is invalid.
fn count_frames(mut body: &[u8]) -> Option<u32> {
    let mut count = 0;
    while !body.is_empty() {
        let (_, stride) = Frame::check(body, body.len()).ok()?;
        body = &body[stride..];
        count += 1;
    }
    Some(count)
}
