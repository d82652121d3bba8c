//! Reads one file of a log from beginning to end and reports what it contains, for recovery and verification.

use crate::disk::DiskFile;
use crate::layout::{BlockDefect, BlockKind, FILE_HEADER_BYTES, FileName, Mark};
use crate::position::{Hole, HoleCause, Position};
use crate::scan::{BlockScan, ScanStep};

use std::io;

#[derive(Debug)]
pub(crate) struct FileSurvey {
    pub blocks: u64,
    pub records: u64,
    pub next_seq: u64,
    pub last_time_ns: u64,
    /// Number of bytes of the file that are synced according to its blocks and marks.
    pub synced: u64,
    /// Offset after the last valid block.
    pub end: u64,
    /// The last valid block of the file, if this block is a mark.
    pub mark: Option<Mark>,
    /// Offset of the first mark that states wrong numbers of the blocks and records before this mark.
    pub miscounted: Option<u64>,
    pub holes: Vec<Hole>,
    /// The invalid blocks that are followed by a valid one: the offset of each, and why it is invalid.
    pub bad: Vec<(u64, BlockDefect)>,
    /// The defect that begins directly after the last valid block; `None` if the file ends there.
    pub tail: Option<BlockDefect>,
    /// Offset after the file's last nonzero byte.
    pub written: u64,
}

/// Reads a file. Set `may_be_torn` for the last file of a log, because a crash may have interrupted its last write. An
/// invalid block then ends the file, unless a later block states that the invalid block was synced.
pub(crate) fn survey(
    file: &dyn DiskFile,
    name: FileName,
    may_be_torn: bool,
    mut each: impl FnMut(u64, &crate::layout::BlockHeader),
) -> io::Result<FileSurvey> {
    let start = FILE_HEADER_BYTES as u64;
    let mut scan = BlockScan::new(name.identity, start, file.bytes()?.max(start));
    let mut survey = FileSurvey::new(name.first.seq);
    loop {
        let (at, why) = match scan.next(file)? {
            ScanStep::Block { at, header } => {
                if header.epoch == name.first.epoch && header.first_seq >= survey.next_seq {
                    each(at, &header);
                    survey.add_hole_before(name.first.epoch, header.first_seq);
                    survey.blocks += 1;
                    survey.records += u64::from(header.count);
                    survey.next_seq = header.next_seq();
                    survey.last_time_ns = header.last_time_ns;
                    survey.synced = survey.synced.max(header.synced);
                    survey.mark = None;
                    survey.end = scan.at();
                    continue;
                }
                (at, BlockDefect::Order)
            }
            ScanStep::Mark { at, mark } => {
                survey.add_mark(at, mark, name.first.epoch);
                survey.end = scan.at();
                continue;
            }
            ScanStep::Bad { at, why } => (at, why),
            ScanStep::End => break,
        };
        scan.seek(at);
        if !scan.search(file, may_be_torn)? {
            survey.tail = Some(why);
            break;
        }
        survey.bad.push((at, why));
    }
    scan.seek(survey.end);
    survey.written = scan.written_end(file)?;
    Ok(survey)
}

impl FileSurvey {
    /// The survey of a file without content, whose first record would have had this sequence number.
    pub fn new(next_seq: u64) -> FileSurvey {
        FileSurvey {
            blocks: 0,
            records: 0,
            next_seq,
            last_time_ns: 0,
            synced: FILE_HEADER_BYTES as u64,
            end: FILE_HEADER_BYTES as u64,
            mark: None,
            miscounted: None,
            holes: Vec::new(),
            bad: Vec::new(),
            tail: None,
            written: 0,
        }
    }

    fn add_mark(&mut self, at: u64, mark: Mark, epoch: u32) {
        if mark.file_blocks != self.blocks || mark.file_records != self.records {
            self.miscounted.get_or_insert(at);
        }
        self.add_hole_before(epoch, mark.next.seq);
        // Continues with the numbers in the mark, because they also count the blocks that were lost.
        self.blocks = mark.file_blocks;
        self.records = mark.file_records;
        self.next_seq = self.next_seq.max(mark.next.seq);
        self.last_time_ns = self.last_time_ns.max(mark.time_ns);
        self.synced = self.synced.max(mark.synced);
        self.mark = Some(mark);
    }

    fn add_hole_before(&mut self, epoch: u32, next: u64) {
        if next > self.next_seq {
            let first = Position::new(epoch, self.next_seq);
            self.holes.push(Hole { first, last: Some(next - 1), cause: HoleCause::Damaged });
        }
    }

    /// The mark with which the file ends, if it is a mark of this kind.
    pub fn end_mark(&self, kind: BlockKind) -> Option<Mark> {
        self.mark.filter(|mark| mark.kind == kind && self.written <= self.end)
    }

    /// The kind of the mark with which the file ends: `End` if the log was closed here, or `Cut` if an incomplete write
    /// was removed here. `None` if the file ends with neither.
    ///
    /// Also `None` if any invalid block in the file may not have been synced when the mark was written. Without such a
    /// block, every recovery reads the file in the same way: it treats all invalid blocks as damage, not as incomplete
    /// writes.
    pub fn closing_mark(&self) -> Option<BlockKind> {
        let mark = self.end_mark(BlockKind::End).or_else(|| self.end_mark(BlockKind::Cut))?;
        self.bad.iter().all(|(at, _)| *at < mark.synced).then_some(mark.kind)
    }
}
