//! Reads one whole file of a log and reports the file's content, for recovery and verification.

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
    /// The synced length that the file's blocks and marks state.
    pub synced: u64,
    /// Offset after the last valid block.
    pub end: u64,
    /// The last valid block of the file, if this block is a mark.
    pub mark: Option<Mark>,
    /// Offset of a mark that states wrong numbers of blocks or records.
    pub miscounted: Option<u64>,
    pub holes: Vec<Hole>,
    /// Bad blocks with a valid block after them: the offset and the defect of each bad block.
    pub bad: Vec<(u64, BlockDefect)>,
    /// The defect after the last valid block.
    pub tail: Option<BlockDefect>,
    /// Offset after the last non-zero byte.
    pub written: u64,
}

/// Reads a file. `may_be_torn` is set for the log's last file, whose last write a crash may have interrupted. A bad
/// block then ends the file, unless a later block states that the bad block was synced.
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
    fn new(next_seq: u64) -> FileSurvey {
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
        // The counts continue from the mark's values, which include lost blocks.
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

    /// The mark with which the file ends, if the mark is of this kind.
    pub fn end_mark(&self, kind: BlockKind) -> Option<Mark> {
        self.mark.filter(|mark| mark.kind == kind && self.written <= self.end)
    }

    /// The kind of the mark with which the file ends: `End` if the log was closed here, `Cut` if recovery cut the log
    /// here. `None` if the file ends with neither mark.
    ///
    /// Also `None` if a bad block may not have been synced before the mark was written. If every bad block was synced,
    /// all of them count as damage, so every recovery reads the file in the same way.
    pub fn closing_mark(&self) -> Option<BlockKind> {
        let mark = self.end_mark(BlockKind::End).or_else(|| self.end_mark(BlockKind::Cut))?;
        self.bad.iter().all(|(at, _)| *at < mark.synced).then_some(mark.kind)
    }
}
