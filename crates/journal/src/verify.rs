//! Verifies a log: reads every block of every file, and checks the files against each other.
//!
//! There are two kinds of defects. *Wrong*: a part of the log is damaged, missing, moved or duplicated. *Not ended*: a
//! process is still writing the log, or a crash interrupted it; the last records may then be missing without a trace in
//! the files. The strict check requires that nothing is wrong and that the log has ended.
//!
//! No check can detect that the whole directory was replaced by an older copy.

use std::path::{Path, PathBuf};

use crate::disk::Disk;
use crate::error::{DiskError, OpenError};
use crate::files::{self, ListedFile};
use crate::layout::{BlockKind, FILE_HEADER_BYTES, Mark, SnapshotName};
use crate::position::{Hole, HoleCause, Position};
use crate::snapshot;
use crate::survey::{FileSurvey, survey};

/// The result of verifying a log: what the log contains, and the defects that were found.
#[derive(Debug, Clone, Default)]
pub struct VerifyReport {
    /// The log's name; empty if no file with a valid header exists.
    pub name: String,
    /// One report for each file, oldest first.
    pub files: Vec<FileReport>,
    /// Number of valid blocks with records in all files.
    pub blocks: u64,
    /// Number of records in the valid blocks of all files.
    pub records: u64,
    /// Size of all files, bytes.
    pub bytes: u64,
    /// The first record of the log.
    pub first: Option<Position>,
    /// The last record of the log.
    pub last: Option<Position>,
    /// The position of the newest snapshot; `None` if there is none.
    pub snapshot: Option<Position>,
    /// Ranges of lost records.
    pub holes: Vec<Hole>,
    /// The damaged, missing, moved or duplicated parts of the log.
    pub wrong: Vec<JournalDefect>,
    /// The reasons why the log has not ended properly; empty if it has.
    pub unended: Vec<JournalDefect>,
}

/// The result of verifying one file of a log: its valid blocks and their records.
#[derive(Debug, Clone)]
pub struct FileReport {
    /// Path of the file.
    pub file: PathBuf,
    /// Size of the file, bytes.
    pub bytes: u64,
    /// Number of valid blocks with records.
    pub blocks: u64,
    /// Number of records in the valid blocks.
    pub records: u64,
    /// The position with which the file begins.
    pub first: Position,
    /// Sequence number of the record that would follow in the file.
    pub next_seq: u64,
}

/// A defect that a verification found: the file, the offset and a description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalDefect {
    /// The file.
    pub file: PathBuf,
    /// Offset in the file.
    pub at: u64,
    /// Description of the defect.
    pub what: String,
}

impl std::fmt::Display for JournalDefect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at byte {}: {}", self.file.display(), self.at, self.what)
    }
}

impl VerifyReport {
    /// Whether the log has no defect. If `strict` is false, the log need not have ended properly.
    pub fn is_sound(&self, strict: bool) -> bool {
        self.wrong.is_empty() && self.holes.is_empty() && (!strict || self.unended.is_empty())
    }
}

/// Verifies a whole log. Takes no lock and changes nothing.
pub fn verify(disk: &dyn Disk, dir: &Path) -> Result<VerifyReport, OpenError> {
    let listed = files::list(disk, dir)?;
    if listed.is_empty() {
        return Err(OpenError::NoLog(dir.to_owned()));
    }
    let name = listed.iter().find_map(|file| Some(file.header.as_ref().ok()?.name.clone()));
    files::check(&listed, dir, name.as_deref())?;
    let mut report = VerifyReport { name: name.unwrap_or_default(), ..VerifyReport::default() };
    let mut before: Option<(&ListedFile, Option<Mark>)> = None;
    for (index, file) in listed.iter().enumerate() {
        let is_last = index + 1 == listed.len();
        let found = read_file(disk, file, is_last)?;
        report.check_header(file, before.as_ref().map(|(before, _)| *before));
        if let Some((before, mark)) = &before {
            report.check_link(before, mark.as_ref(), file);
        }
        report.add_file(file, &found);
        if is_last {
            report.check_log_end(file, &found, listed[0].name.first);
        } else {
            report.check_file_end(file, &found);
        }
        before = Some((file, found.mark.filter(|mark| mark.kind == BlockKind::Continued)));
    }
    report.check_snapshots(disk, dir)?;
    Ok(report)
}

fn read_file(disk: &dyn Disk, listed: &ListedFile, is_last: bool) -> Result<FileSurvey, DiskError> {
    if !listed.is_readable() {
        return Ok(FileSurvey::new(listed.name.first.seq));
    }
    let file = files::open(disk, &listed.path, false)?;
    survey(&*file, listed.name, is_last, |_, _| {}).map_err(DiskError::of("read", &listed.path))
}

impl VerifyReport {
    fn add_wrong(&mut self, file: &ListedFile, at: u64, what: impl ToString) {
        self.wrong.push(JournalDefect { file: file.path.clone(), at, what: what.to_string() });
    }

    fn add_unended(&mut self, file: &ListedFile, at: u64, what: impl ToString) {
        self.unended.push(JournalDefect { file: file.path.clone(), at, what: what.to_string() });
    }

    fn check_header(&mut self, file: &ListedFile, before: Option<&ListedFile>) {
        match (&file.header, before) {
            (Err(error), _) => self.add_wrong(file, 0, error),
            (Ok(header), Some(before)) if header.previous != before.name.identity => {
                self.add_wrong(file, 0, "the file header names another previous file");
            }
            _ => {}
        }
    }

    fn add_file(&mut self, file: &ListedFile, found: &FileSurvey) {
        for (at, why) in &found.bad {
            self.add_wrong(file, *at, why);
        }
        if let Some(at) = found.miscounted {
            self.add_wrong(file, at, "a mark counts other blocks or records than precede it");
        }
        self.holes.extend(&found.holes);
        let Position { epoch, seq } = file.name.first;
        if found.records > 0 {
            self.first.get_or_insert(file.name.first);
            self.last = Some(Position::new(epoch, found.next_seq.max(seq + 1) - 1));
        }
        self.blocks += found.blocks;
        self.records += found.records;
        self.bytes += file.bytes;
        self.files.push(FileReport {
            file: file.path.clone(),
            bytes: file.bytes,
            blocks: found.blocks,
            records: found.records,
            first: file.name.first,
            next_seq: found.next_seq,
        });
    }

    /// Checks that the last mark of the file `before` names the file `file`, and that no record between the two files
    /// is missing or duplicated.
    fn check_link(&mut self, before: &ListedFile, mark: Option<&Mark>, file: &ListedFile) {
        let first = file.name.first;
        let Some(mark) = mark else {
            let epoch = before.name.first.epoch;
            let next_seq = self.files.last().map_or(before.name.first.seq, |before| before.next_seq);
            if first.epoch == epoch && next_seq < first.seq {
                let (lost_from, last) = (Position::new(epoch, next_seq), Some(first.seq - 1));
                self.holes.push(Hole { first: lost_from, last, cause: HoleCause::Damaged });
            }
            return;
        };
        let lost = |last| Hole { first: mark.next, last, cause: HoleCause::Damaged };
        if mark.next_identity != file.name.identity {
            self.add_wrong(before, before.bytes, "the file that it names next is missing");
            if first.epoch != mark.next.epoch {
                self.holes.push(lost(None));
            }
        }
        if first.epoch == mark.next.epoch && first.seq > mark.next.seq {
            self.holes.push(lost(Some(first.seq - 1)));
        } else if first.epoch == mark.next.epoch && first.seq < mark.next.seq {
            self.add_wrong(file, 0, "its first records are also in the previous file");
        }
    }

    /// Checks that a file that is not the last one ends with a mark that names the next file.
    fn check_file_end(&mut self, file: &ListedFile, found: &FileSurvey) {
        if found.mark.is_none_or(|mark| mark.kind != BlockKind::Continued) {
            self.add_wrong(file, found.end, "the mark that names the next file is missing");
        } else if found.written > found.end {
            self.add_wrong(file, found.end, "there are bytes after its last mark");
        } else if file.bytes != found.end {
            self.add_unended(file, found.end, "the preallocated zeros have not been cut");
        }
    }

    /// Checks that the last file ends with a mark that says that the log was closed or repaired.
    fn check_log_end(&mut self, file: &ListedFile, found: &FileSurvey, oldest: Position) {
        match found.mark {
            Some(mark) if mark.kind == BlockKind::Continued => {
                self.add_wrong(file, found.end, "the file that it names next is missing");
            }
            Some(mark) if matches!(mark.kind, BlockKind::End | BlockKind::Cut) => {
                if mark.oldest != oldest {
                    let what = format!(
                        "the log began at {} when this mark was written: files are missing",
                        mark.oldest
                    );
                    self.add_wrong(file, found.end, what);
                }
                if found.written > found.end {
                    self.add_unended(file, found.end, "there are bytes after its end mark");
                } else if file.bytes != found.end {
                    self.add_unended(file, found.end, "the preallocated zeros have not been cut");
                }
            }
            _ => {
                let torn = found.written.saturating_sub(found.end);
                let what = match (found.tail, torn) {
                    (Some(why), 1..) => {
                        format!("instead of an end mark, the file ends with {torn} other bytes: {why}")
                    }
                    _ => "no end mark: it is being written, or was not closed, or was cut short".to_owned(),
                };
                self.add_unended(file, found.end.max(FILE_HEADER_BYTES as u64), what);
            }
        }
    }

    fn check_snapshots(&mut self, disk: &dyn Disk, dir: &Path) -> Result<(), DiskError> {
        for position in snapshot::list(disk, dir)? {
            self.snapshot = Some(position);
            if let Err(error) = snapshot::read(disk, dir, position) {
                let file = dir.join(SnapshotName(position).to_string());
                self.wrong.push(JournalDefect { file, at: 0, what: error.to_string() });
            }
        }
        Ok(())
    }
}
