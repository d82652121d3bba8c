//! Opens a log, repairs it after a crash, and reports damage.
//!
//! A log has ended properly if the last valid block of its last file is an `End` mark. Otherwise, the bytes after the
//! last valid block are a torn tail: a write that a crash interrupted. They are removed and replaced by a `Cut` mark.
//! An invalid block is no torn tail if a later block states that the invalid block was synced. The invalid block is
//! then damage, its records are a hole, and the later blocks are kept.
//!
//! Every file was complete before the next file began. Of the files before the last one, this module therefore checks
//! only the final marks; readers report damage inside these files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Current, Journal, Tail};
use crate::JournalLimits;
use crate::disk::{Disk, DiskFile};
use crate::error::{DiskError, OpenError};
use crate::files::{self, ListedFile, LogFile, LogFiles, SharedLog};
use crate::layout::{BlockKind, FILE_HEADER_BYTES, MARK_BYTES, Mark, TEMPORARY_SUFFIX};
use crate::limits::JournalConfig;
use crate::position::{Hole, HoleCause, Position};
use crate::scan::{BlockScan, ScanStep};
use crate::snapshot;
use crate::survey::{FileSurvey, survey};

/// The state of a log when it was opened: its first and last records, and losses and damage.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecoveredLog {
    /// Position at which the oldest file begins; `None` for a new log.
    pub oldest: Option<Position>,
    /// The last record that the log still has.
    pub last: Option<Position>,
    /// The append time of the last record, ns since 1970. Records that are appended later must not have an earlier
    /// time.
    pub last_time_ns: u64,
    /// Whether the log was closed properly, so that it can continue in the same epoch.
    pub clean: bool,
    /// The lowest epoch that [`Journal::append`] accepts. It is the last epoch if the log was closed properly,
    /// otherwise the last epoch plus 1.
    pub epoch_least: u32,
    /// The position for the next record. If the log was closed properly, this position follows the last record.
    /// Otherwise, this is sequence number 1 in `epoch_least`, but the caller may begin the new epoch with any number.
    pub next: Position,
    /// The incomplete write that was removed; `None` if there was none.
    pub cut: Option<TornTail>,
    /// Records that were lost in the last file or between two files. Losses inside older files are found only by
    /// readers.
    pub holes: Vec<Hole>,
    /// Damaged parts of the log's files, whether or not records were lost.
    pub damage: Vec<Damage>,
    /// The position of the newest snapshot.
    pub snapshot: Option<Position>,
}

/// An incomplete write at the end of a log, which was removed when the log was opened after a crash. It contains no
/// record that was acknowledged as synced, unless the disk was damaged exactly there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornTail {
    /// The file.
    pub file: PathBuf,
    /// Offset in the file.
    pub at: u64,
    /// Number of bytes that were written from this offset on; 0 if only the end mark was missing.
    pub bytes: u64,
    /// The last record before the incomplete write; `None` if the log has no record.
    pub last_good: Option<Position>,
}

/// A damaged part of a log's file: the file, the offset and a description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub file: PathBuf,
    /// Offset in the file.
    pub at: u64,
    /// Description of the damage.
    pub what: String,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at byte {}: {}", self.file.display(), self.at, self.what)
    }
}

pub(super) fn open(
    disk: Arc<dyn Disk>,
    dir: &Path,
    name: &str,
    config: JournalConfig,
) -> Result<(Journal, RecoveredLog), OpenError> {
    if name.is_empty() || name.len() > JournalLimits::NAME_BYTES_MAX {
        return Err(OpenError::Name { bytes: name.len(), bytes_max: JournalLimits::NAME_BYTES_MAX });
    }
    disk.create_dir(dir).map_err(DiskError::of("create", dir))?;
    let lock = disk.lock(dir).map_err(DiskError::of("lock", dir))?;
    let lock = lock.ok_or_else(|| OpenError::InUse(dir.to_owned()))?;
    let mut listed = files::list(&*disk, dir)?;
    files::check(&listed, dir, Some(name))?;
    let mut recovery = Recovery { disk: &*disk, dir, report: RecoveredLog::default(), last_before: None };
    recovery.remove_unfinished()?;
    recovery.remove_unlinked(&mut listed)?;
    recovery.check_older(&mut listed)?;
    recovery.report.oldest = listed.first().map(|file| file.name.first);
    let all = files::as_log_files(&listed, dir, name);
    let current = match (listed.last(), all.last()) {
        (Some(last), Some(log)) => Some(recovery.repair_last(last, log.clone())?),
        _ => None,
    };
    let mut report = recovery.report;
    if current.is_none() {
        report.clean = true;
        report.next.seq = 1;
    }
    report.snapshot = snapshot::list(&*disk, dir)?.last().copied();
    let files = LogFiles { all, durable: report.last };
    let shared = Arc::new(SharedLog::new(disk, dir, name, true, files));
    let tail = Tail { last: report.last, last_time_ns: report.last_time_ns, epoch_least: report.epoch_least };
    let (joined, must_begin_file, must_sync_dir, next_file) = Default::default();
    let journal = Journal {
        shared,
        config,
        current,
        tail,
        must_begin_file,
        must_sync_dir,
        next_file,
        ended: None,
        joined,
        _lock: lock,
    };
    Ok((journal, report))
}

/// The mark with which a file before the last one ends.
enum FinalMark {
    Found(Mark),
    /// The file ends with no such mark. The survey states what the file contains instead.
    Missing(Box<FileSurvey>),
}

struct Recovery<'a> {
    disk: &'a dyn Disk,
    dir: &'a Path,
    report: RecoveredLog,
    /// The last record in the files before the last one.
    last_before: Option<Position>,
}

impl Recovery<'_> {
    /// Removes unfinished files, and syncs the directory. The sync also stores earlier changes of the directory: the
    /// process that wrote the log may have ended before it synced them.
    fn remove_unfinished(&self) -> Result<(), DiskError> {
        for name in self.disk.list(self.dir).map_err(DiskError::of("list", self.dir))? {
            if name.ends_with(TEMPORARY_SUFFIX) {
                let path = self.dir.join(name);
                self.disk.remove(&path).map_err(DiskError::of("remove", &path))?;
            }
        }
        self.disk.sync_dir(self.dir).map_err(DiskError::of("sync", self.dir))
    }

    /// Removes a last file that is empty and that the previous file does not name. Such a file exists if the machine
    /// failed after the file was created, but before a mark in the previous file named it.
    fn remove_unlinked(&self, listed: &mut Vec<ListedFile>) -> Result<(), DiskError> {
        while let [.., before, last] = &listed[..] {
            let is_empty = |found: &FileSurvey| found.records == 0 && found.mark.is_none();
            let names_next =
                |found: &FileSurvey| found.mark.is_some_and(|mark| mark.kind == BlockKind::Continued);
            if last.header.is_err()
                || self.has_valid_first_block(last)?
                || !is_empty(&self.survey_file(last)?)
                || !before.is_readable()
                || names_next(&self.survey_file(before)?)
            {
                break;
            }
            self.disk.remove(&last.path).map_err(DiskError::of("remove", &last.path))?;
            self.disk.sync_dir(self.dir).map_err(DiskError::of("sync", self.dir))?;
            listed.pop();
        }
        Ok(())
    }

    /// Whether a valid block follows the file's header. If not, the whole file must be read to know whether it is
    /// empty.
    fn has_valid_first_block(&self, listed: &ListedFile) -> Result<bool, DiskError> {
        let file = files::open(self.disk, &listed.path, false)?;
        let mut scan = BlockScan::new(listed.name.identity, FILE_HEADER_BYTES as u64, listed.bytes);
        let first = scan.next(&*file).map_err(DiskError::of("read", &listed.path))?;
        Ok(matches!(first, ScanStep::Block { .. } | ScanStep::Mark { .. }))
    }

    fn survey_file(&self, listed: &ListedFile) -> Result<FileSurvey, DiskError> {
        let file = files::open(self.disk, &listed.path, false)?;
        survey(&*file, listed.name, true, |_, _| {}).map_err(DiskError::of("read", &listed.path))
    }

    /// Finds the mark with which a file names the next file.
    fn final_mark(&self, listed: &ListedFile) -> Result<FinalMark, DiskError> {
        if !listed.is_readable() {
            return Ok(FinalMark::Missing(Box::new(FileSurvey::new(listed.name.first.seq))));
        }
        let file = files::open(self.disk, &listed.path, false)?;
        let read = || {
            if let Some(mark) = mark_at_end(&*file, listed)? {
                return Ok(FinalMark::Found(mark));
            }
            let found = survey(&*file, listed.name, false, |_, _| {})?;
            Ok(match found.end_mark(BlockKind::Continued) {
                Some(mark) => FinalMark::Found(mark),
                None => FinalMark::Missing(Box::new(found)),
            })
        };
        read().map_err(DiskError::of("read", &listed.path))
    }

    /// Checks that each file except the last one ends properly, and that the next file follows it.
    fn check_older(&mut self, listed: &mut [ListedFile]) -> Result<(), DiskError> {
        for file in &*listed {
            if let Err(error) = &file.header {
                self.report_damage(&file.path, 0, error.to_string());
            }
        }
        for index in 1..listed.len() {
            let is_last_pair = index + 1 == listed.len();
            let [.., file, next] = &mut listed[..=index] else { continue };
            let mark = match self.final_mark(file)? {
                FinalMark::Found(mark) => mark,
                FinalMark::Missing(found) => {
                    if file.is_readable() {
                        let what = "the mark that names the next file is missing".to_owned();
                        self.report_damage(&file.path, file.bytes, what);
                    }
                    self.report_lost_end(file.name.first, &found, next.name.first);
                    continue;
                }
            };
            if mark.next > file.name.first {
                self.last_before = Some(Position::new(mark.next.epoch, mark.next.seq.saturating_sub(1)));
            }
            self.repair_older(file, &mark, is_last_pair)?;
            self.check_link(file, &mark, next);
        }
        Ok(())
    }

    /// Makes sure that a file before the last one is on disk as it should be: removes preallocated zeros, which are
    /// there again if a crash has undone their removal, and syncs the end of the file.
    fn repair_older(
        &self,
        listed: &mut ListedFile,
        mark: &Mark,
        is_last_pair: bool,
    ) -> Result<(), DiskError> {
        let mut repair = || {
            let file = self.disk.open(&listed.path, false)?;
            let exact = mark_at_end(&*file, listed)?.is_some();
            if exact && !is_last_pair {
                return Ok(());
            }
            let file = self.disk.open(&listed.path, true)?;
            if !exact {
                listed.bytes = survey(&*file, listed.name, false, |_, _| {})?.end;
                file.set_bytes(listed.bytes)?;
            }
            rewrite(&*file, mark.synced, listed.bytes)?;
            file.sync()
        };
        repair().map_err(DiskError::of("repair", &listed.path.clone()))
    }

    fn check_link(&mut self, file: &ListedFile, mark: &Mark, next: &ListedFile) {
        let first = next.name.first;
        if mark.next.epoch == first.epoch && mark.next.seq < first.seq {
            let hole = Hole { first: mark.next, last: Some(first.seq - 1), cause: HoleCause::Damaged };
            self.report.holes.push(hole);
        } else if mark.next_identity != next.name.identity {
            self.report.holes.push(Hole { first: mark.next, last: None, cause: HoleCause::Damaged });
        } else {
            return;
        }
        self.report_damage(&file.path, file.bytes, "the file that it names next is missing".to_owned());
    }

    /// Reports the lost records of a file without its final mark. `first` is the position of the file's first record,
    /// `next` that of the next file. If the next file begins an epoch, the file does not show where its own epoch ended.
    fn report_lost_end(&mut self, first: Position, found: &FileSurvey, next: Position) {
        self.report.holes.extend(&found.holes);
        if next.epoch != first.epoch || next <= first {
            return;
        }
        self.last_before = Some(Position::new(next.epoch, next.seq - 1));
        if found.next_seq < next.seq {
            let lost_from = Position::new(first.epoch, found.next_seq);
            let hole = Hole { first: lost_from, last: Some(next.seq - 1), cause: HoleCause::Damaged };
            self.report.holes.push(hole);
        }
    }

    fn report_damage(&mut self, file: &Path, at: u64, what: String) {
        self.report.damage.push(Damage { file: file.to_owned(), at, what });
    }

    fn repair_last(&mut self, listed: &ListedFile, log: Arc<LogFile>) -> Result<Current, DiskError> {
        let file = files::open(self.disk, &listed.path, true)?;
        let failed = || DiskError::of("read", &listed.path);
        let found =
            survey(&*file, listed.name, true, |at, header| log.add_to_index(at, header)).map_err(failed())?;
        let bytes = file.bytes().map_err(failed())?;
        for (at, why) in &found.bad {
            self.report_damage(&listed.path, *at, why.to_string());
        }
        self.report.holes.extend(&found.holes);
        let mut current = Current {
            log,
            file,
            end: found.end,
            prepared: bytes,
            synced: found.end,
            blocks: found.blocks,
            records: found.next_seq - listed.name.first.seq,
            is_marked_closed: true,
        };
        self.report.last = self.last_record(listed, &found);
        self.report.last_time_ns = found.last_time_ns.max(current.log.first_time_ns);
        self.finish_repair(&mut current, &found, bytes)?;
        current.log.set_readable(current.end);
        Ok(current)
    }

    /// The last record of the log. It may be in an earlier file, if the last file has no records.
    fn last_record(&self, listed: &ListedFile, found: &FileSurvey) -> Option<Position> {
        let first = listed.name.first;
        let in_file = (found.next_seq > first.seq).then(|| Position::new(first.epoch, found.next_seq - 1));
        in_file.or(self.last_before)
    }

    /// Finishes the repair of the last file. Afterwards, the file ends with a mark that says that the log was closed
    /// ([`BlockKind::End`]) or repaired ([`BlockKind::Cut`]).
    fn finish_repair(
        &mut self,
        current: &mut Current,
        found: &FileSurvey,
        bytes: u64,
    ) -> Result<(), DiskError> {
        // Writes the last bytes again even if the log was closed properly, because the sync of its mark may have
        // failed.
        let rewritten = rewrite(&*current.file, found.synced, found.end).and_then(|()| current.file.sync());
        rewritten.map_err(DiskError::of("write", &current.log.path))?;
        let epoch = current.log.name.first.epoch;
        let closing_mark = found.closing_mark();
        // If the last file was created for a new epoch and is empty, the log counts as not closed properly.
        let continues = self.report.last.is_none_or(|last| last.epoch == epoch);
        self.report.clean = closing_mark == Some(BlockKind::End) && continues;
        self.report.epoch_least = if self.report.clean { epoch } else { epoch.saturating_add(1) };
        let next_seq = if self.report.clean { found.next_seq } else { 1 };
        self.report.next = Position::new(self.report.epoch_least, next_seq);
        if let Some(mark) = found.mark.filter(|mark| mark.kind == BlockKind::Continued) {
            self.report.holes.push(Hole {
                first: Position::new(epoch, mark.next.seq),
                last: None,
                cause: HoleCause::Damaged,
            });
            self.report_damage(
                &current.log.path,
                found.end,
                "the file that it names next is missing".to_owned(),
            );
        }
        if closing_mark.is_none() {
            self.report.cut = Some(TornTail {
                file: current.log.path.clone(),
                at: found.end,
                bytes: found.written.saturating_sub(found.end),
                last_good: self.report.last,
            });
            let oldest = self.report.oldest.unwrap_or(current.log.name.first);
            let next = Position::new(epoch, found.next_seq);
            let mark = current.mark(BlockKind::Cut, next, oldest, 0, found.last_time_ns);
            current.write_mark(&mark)?;
        }
        if bytes != current.end {
            current.remove_ahead()?;
            current.file.sync().map_err(DiskError::of("sync", &current.log.path))?;
        }
        Ok(())
    }
}

/// Reads bytes that may not be on the disk and writes them again, so that the next sync stores them. Without this, the
/// next sync could skip them: after a failed sync, the operating system may treat lost pages as written.
fn rewrite(file: &dyn DiskFile, from: u64, to: u64) -> std::io::Result<()> {
    let mut chunk = vec![0; JournalLimits::READ_BYTES.min(to.saturating_sub(from) as usize)];
    let mut at = from;
    while at < to {
        let len = chunk.len().min((to - at) as usize);
        let count = file.read_at(&mut chunk[..len], at)?;
        if count == 0 {
            break;
        }
        file.write_at(&[&chunk[..count]], at)?;
        at += count as u64;
    }
    Ok(())
}

/// The mark that names the next file, if this mark is exactly at the end of the file. If the result is `None`, the
/// whole file must be read to know whether it ends with such a mark.
fn mark_at_end(file: &dyn DiskFile, listed: &ListedFile) -> std::io::Result<Option<Mark>> {
    let Some(at) = listed.bytes.checked_sub(MARK_BYTES as u64) else { return Ok(None) };
    let mut scan = BlockScan::new(listed.name.identity, at, listed.bytes);
    Ok(match scan.next(file)? {
        ScanStep::Mark { mark, .. } if mark.kind == BlockKind::Continued => Some(mark),
        _ => None,
    })
}
