//! The position file of a log says up to which position the log was stored. The position file is outside of the log's
//! directory. If the log's last file or its whole directory is lost, the next start thus finds out that records are
//! missing.
//!
//! Each log has one small text file. The node writes the file when the log first stores records after a start, whenever
//! the log begins a new file, and when the log is closed. While a log is open, or if writing the position fails, more
//! records may be stored than the position says. The file also contains the topic's pattern, so that the topic's
//! subjects stay reserved if the topic's own file is damaged or gone.
//!
//! Files that were restored from a copy may lack records that subscribers have read. The position file therefore also
//! contains attributes of the topic's and the log's files that a copy does not keep ([`FileOrigin`]). If these
//! attributes have changed, a log that is empty or was not closed may have had further records.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use dunlin_journal::{Disk, Hole, HoleCause, Position, RecoveredLog, replace_file};
use dunlin_topic::Pattern;

use super::error::StorageError;
use super::strays::number_of;
use super::{checksum, optional, read_file};

const FIRST_LINE: &str = "dunlin stored 1";
const LAST_LINE: &str = "end";
const SUFFIX: &str = ".stored";
const TEMPORARY_SUFFIX: &str = ".stored.new";
/// The name of the lock file in a log's directory.
pub(super) const LOCK_FILE: &str = "lock";
/// The maximum size of a position file, bytes.
const BYTES_MAX: u64 = 4 << 10;

/// The content of a position file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StoredPosition {
    /// The epoch of the last stored record.
    pub(super) epoch: u32,
    /// The sequence number of the first record of `epoch` in the log.
    pub(super) first_seq: u64,
    /// The sequence number of the last stored record.
    pub(super) through: u64,
    /// Whether the log was closed after its last record was stored.
    pub(super) closed: bool,
    /// The topic's pattern; `None` in files of older versions.
    pub(super) pattern: Option<String>,
    /// Epochs that may have had more records than those on disk.
    pub(super) uncertain_epochs: Vec<u32>,
    /// If the log is closed, the modification time of its last file. A copy of the file has another time.
    pub(super) changed_ns: Option<u64>,
    /// The attributes of the files when the position was written; `None` in files of older versions.
    pub(super) origin: Option<FileOrigin>,
}

/// Attributes of a topic's and a log's files that a copy does not keep. As long as the files are not replaced, the
/// attributes do not change, or change only together with the log's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileOrigin {
    /// The modification time of the topic's file, which is written only once.
    topic_ns: u64,
    /// The modification time of the lock file in the log's directory, which is created together with the directory.
    lock_ns: u64,
    /// The file system's number of the log's newest file; 0 if the log has no file.
    file: u64,
}

impl FileOrigin {
    /// The present attributes of a topic's file and its log; `None` if the topic's file or the log's lock file is
    /// missing. Returns an error if the process or the machine lacks file descriptors or memory.
    pub(super) fn of(disk: &dyn Disk, topic: &Path, log_dir: &Path) -> io::Result<Option<FileOrigin>> {
        let Marks { topic_ns, lock_ns, files } = Marks::of(disk, topic, log_dir)?;
        let file = files.last().copied().unwrap_or(0);
        Ok(topic_ns.zip(lock_ns).map(|(topic_ns, lock_ns)| FileOrigin { topic_ns, lock_ns, file }))
    }
}

/// The attributes of a topic's file and its log's files at the start, before the log is opened.
#[derive(Debug)]
pub(super) struct Marks {
    topic_ns: Option<u64>,
    lock_ns: Option<u64>,
    /// The file system's numbers of the log's files, oldest first.
    files: Vec<u64>,
}

impl Marks {
    /// Reads the attributes. Call this before the log is opened, because opening creates missing files. Returns an
    /// error if the process or the machine lacks file descriptors or memory.
    pub(super) fn of(disk: &dyn Disk, topic: &Path, log_dir: &Path) -> io::Result<Marks> {
        let numbers = log_files(disk, log_dir)?.into_iter().filter_map(|file| disk.file_number(&file).ok());
        Ok(Marks {
            topic_ns: disk.changed_ns(topic).ok(),
            lock_ns: disk.changed_ns(&log_dir.join(LOCK_FILE)).ok(),
            files: numbers.collect(),
        })
    }
}

impl StoredPosition {
    /// Whether the log `found` ends before this position, so that stored records are missing.
    pub(super) fn exceeds(&self, found: &RecoveredLog) -> bool {
        self.through > 0 && found.last.is_none_or(|last| (last.epoch, last.seq) < (self.epoch, self.through))
    }

    /// The position up to which records were certainly stored if a snapshot of the state at `at` was saved. A snapshot
    /// is saved only after its last record was stored.
    pub(super) fn from_state(at: Position, found: &RecoveredLog) -> StoredPosition {
        let first_seq = found.last.map_or(1, |last| last.seq + 1);
        let (pattern, uncertain_epochs, changed_ns, origin) = (None, Vec::new(), None, None);
        StoredPosition {
            epoch: at.epoch,
            first_seq,
            through: at.seq,
            closed: false,
            pattern,
            uncertain_epochs,
            changed_ns,
            origin,
        }
    }

    /// If the log `found` ends before this position, adds the missing records to its report as a hole. The log then
    /// counts as not closed, and continues in a new epoch. If the position file itself was restored from a copy
    /// (`!is_original`), the log may also have had later records.
    pub(super) fn amend(&self, found: &mut RecoveredLog, is_original: bool) {
        if !self.exceeds(found) {
            return;
        }
        let here = found.last.filter(|last| last.epoch == self.epoch);
        let first = Position::new(self.epoch, here.map_or(self.first_seq, |last| last.seq + 1));
        // The first record of this position's epoch shows where earlier epochs ended, so the ends of earlier epochs are
        // known.
        found.holes.retain(|hole| {
            let is_known = hole.first.epoch < self.epoch && hole.first.seq >= self.first_seq;
            hole.last.is_some() || !(is_known || hole.first == first)
        });
        let last = (self.closed && is_original).then_some(self.through);
        found.holes.push(Hole { first, last, cause: HoleCause::Damaged });
        found.clean = false;
        found.epoch_least = found.epoch_least.max(self.epoch.saturating_add(1));
    }

    /// Whether the log `found`, whose last file has the modification time `changed_ns`, is the log as this node closed
    /// it. Otherwise it is a copy or an older version, and its last epoch may have had later records.
    pub(super) fn is_end_of(&self, found: &RecoveredLog, changed_ns: Option<u64>) -> bool {
        let is_last = found.last.is_some_and(|last| (last.epoch, last.seq) == (self.epoch, self.through));
        // Older versions did not store the modification time.
        self.closed && is_last && (self.changed_ns.is_none() || self.changed_ns == changed_ns)
    }

    /// Whether this node wrote the position file, as opposed to a restored copy.
    pub(super) fn is_original(&self, marks: &Marks) -> bool {
        self.origin.is_some_and(|origin| Some(origin.topic_ns) == marks.topic_ns)
    }

    /// Whether this node wrote the log's files, as opposed to a copy or an older version.
    pub(super) fn matches(&self, marks: &Marks) -> bool {
        self.origin.is_some_and(|FileOrigin { lock_ns, file, .. }| {
            Some(lock_ns) == marks.lock_ns && (file == 0 || marks.files.contains(&file))
        })
    }

    /// Reads the position file; `None` if there is none.
    pub(super) fn read(disk: &dyn Disk, path: &Path) -> io::Result<Option<StoredPosition>> {
        match read_file(disk, path, BYTES_MAX) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
            Ok(bytes) => parse(&String::from_utf8_lossy(&bytes)).map(Some).map_err(io::Error::other),
        }
    }

    /// Replaces the position file. On return, the new file is durable.
    pub(super) fn write(&self, disk: &dyn Disk, path: &Path) -> io::Result<()> {
        self.put(disk, path)?;
        path.parent().map_or(Ok(()), |dir| disk.sync_dir(dir))
    }

    /// Replaces the position file. The new file is durable once the caller has synced the directory.
    pub(super) fn put(&self, disk: &dyn Disk, path: &Path) -> io::Result<()> {
        replace_file(disk, path, self.encode().as_bytes()).map_err(|error| error.source)
    }

    fn encode(&self) -> String {
        let StoredPosition {
            epoch, first_seq, through, closed, pattern, uncertain_epochs, changed_ns, ..
        } = self;
        let pattern: String = pattern.iter().map(|pattern| format!("pattern {pattern}\n")).collect();
        let uncertain_epochs: String =
            uncertain_epochs.iter().map(|epoch| format!("unsure {epoch}\n")).collect();
        let changed: String = changed_ns.iter().map(|ns| format!("changed {ns}\n")).collect();
        let origin = |FileOrigin { topic_ns, lock_ns, file }: &FileOrigin| {
            format!("origin {topic_ns} {lock_ns} {file}\n")
        };
        let origin: String = self.origin.iter().map(origin).collect();
        let text = format!(
            "{FIRST_LINE}\nepoch {epoch}\nfirst {first_seq}\nthrough {through}\nclosed {closed}\n{pattern}{uncertain_epochs}{changed}{origin}{LAST_LINE}\n"
        );
        checksum::seal(text, LAST_LINE)
    }
}

fn parse(text: &str) -> Result<StoredPosition, String> {
    checksum::check(text)?;
    let mut lines = text.lines();
    if lines.next() != Some(FIRST_LINE) {
        return Err(format!("the first line is not {FIRST_LINE:?}"));
    }
    let mut value = |key: &str| {
        let line = lines.next().unwrap_or_default();
        let value = line.strip_prefix(key).and_then(|rest| rest.strip_prefix(' '));
        value.map(str::to_owned).ok_or_else(|| format!("{key} is missing"))
    };
    let (epoch, first_seq, through, closed) =
        (value("epoch")?, value("first")?, value("through")?, value("closed")?);
    let wrong = |_| "a value is invalid".to_owned();
    let (mut pattern, mut uncertain_epochs, mut changed_ns, mut origin) = (None, Vec::new(), None, None);
    loop {
        match lines.next() {
            Some(LAST_LINE) => break,
            Some(line) if checksum::is_line(line) => {}
            Some(line) if line.starts_with("pattern ") => {
                pattern = Some(Pattern::parse(&line[8..]).map_err(|error| error.to_string())?.to_string());
            }
            Some(line) if line.starts_with("unsure ") => {
                uncertain_epochs.push(line[7..].parse().map_err(wrong)?)
            }
            Some(line) if line.starts_with("changed ") => {
                changed_ns = Some(line[8..].parse().map_err(wrong)?)
            }
            Some(line) if line.starts_with("origin ") => {
                let numbers: Result<Vec<u64>, _> = line[7..].split(' ').map(str::parse).collect();
                let [topic_ns, lock_ns, file] = numbers.map_err(wrong)?[..] else {
                    return Err("the line `origin` does not have three numbers".to_owned());
                };
                origin = Some(FileOrigin { topic_ns, lock_ns, file });
            }
            _ => return Err("the end of the file is missing".to_owned()),
        }
    }
    Ok(StoredPosition {
        epoch: epoch.parse().map_err(wrong)?,
        first_seq: first_seq.parse().map_err(wrong)?,
        through: through.parse().map_err(wrong)?,
        closed: closed.parse().map_err(|_| "a value is invalid".to_owned())?,
        pattern,
        uncertain_epochs,
        changed_ns,
        origin,
    })
}

/// The path of a log's position file.
pub(super) fn path(dir: &Path, id: u64, partition: u16) -> PathBuf {
    dir.join("topics").join(format!("{id:08x}-{partition}{SUFFIX}"))
}

/// The pattern of a topic, if a position file of one of its logs contains it.
pub(super) fn pattern(disk: &dyn Disk, dir: &Path, id: u64) -> Option<String> {
    let dir = dir.join("topics");
    let names = disk.list(&dir).unwrap_or_default();
    let mut of_topic = names.iter().filter(|name| name.ends_with(SUFFIX) && number_of(name) == Some(id));
    of_topic.find_map(|name| StoredPosition::read(disk, &dir.join(name)).ok()??.pattern)
}

/// The modification time of a log's last file; `None` if the log has no file. Returns an error if the process or the
/// machine lacks file descriptors or memory.
pub(super) fn changed_ns(disk: &dyn Disk, log_dir: &Path) -> io::Result<Option<u64>> {
    Ok(log_files(disk, log_dir)?.last().and_then(|file| disk.changed_ns(file).ok()))
}

/// The files of a log, oldest first.
fn log_files(disk: &dyn Disk, log_dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut names = optional(disk.list(log_dir))?.unwrap_or_default();
    names.retain(|name| name.ends_with(".log"));
    // A file's name begins with the number of its first record. All these numbers have the same length.
    names.sort_unstable();
    Ok(names.into_iter().map(|name| log_dir.join(name)).collect())
}

/// Removes the position files of all topics except those with the numbers `ids`.
pub(super) fn remove_strays(disk: &dyn Disk, dir: &Path, ids: &BTreeSet<u64>) -> Result<(), StorageError> {
    remove(disk, dir, |name| {
        name.ends_with(TEMPORARY_SUFFIX) || number_of(name).is_some_and(|id| !ids.contains(&id))
    })
}

/// Removes the position files of the topic with this number.
pub(super) fn remove_of(disk: &dyn Disk, dir: &Path, id: u64) -> Result<(), StorageError> {
    remove(disk, dir, |name| number_of(name) == Some(id))
}

fn remove(disk: &dyn Disk, dir: &Path, should_remove: impl Fn(&str) -> bool) -> Result<(), StorageError> {
    let dir = dir.join("topics");
    for name in disk.list(&dir).map_err(StorageError::disk("list", &dir))? {
        if (name.ends_with(SUFFIX) || name.ends_with(TEMPORARY_SUFFIX)) && should_remove(&name) {
            let path = dir.join(&name);
            disk.remove(&path).map_err(StorageError::disk("remove", &path))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_position_is_read_back_and_a_damaged_one_is_refused() {
        let stored = StoredPosition {
            epoch: 7,
            first_seq: 11,
            through: 4_711,
            closed: true,
            pattern: Some("a.>".to_owned()),
            uncertain_epochs: vec![3, 5],
            changed_ns: Some(1_700_000_000_000_000_001),
            origin: Some(FileOrigin { topic_ns: 1_700_000_000_000_000_002, lock_ns: 3, file: u64::MAX }),
        };
        let text = stored.encode();
        assert_eq!(parse(&text), Ok(stored.clone()));
        for cut in 0..text.len() - 1 {
            assert!(parse(&text[..cut]).is_err(), "{cut}");
        }
        for (at, bit) in (0..text.len() - 1).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1 << bit;
            assert!(parse(&String::from_utf8_lossy(&bytes)).is_err(), "byte {at}, bit {bit}");
        }
    }

    #[test]
    fn log_that_ends_before_its_stored_position_has_lost_records() {
        let stored = StoredPosition {
            epoch: 7,
            first_seq: 1,
            through: 10,
            closed: false,
            pattern: None,
            uncertain_epochs: vec![],
            changed_ns: None,
            origin: None,
        };
        let found = RecoveredLog { last: Some(Position::new(7, 10)), clean: true, ..RecoveredLog::default() };
        let mut amended = found.clone();
        stored.amend(&mut amended, true);
        assert_eq!(amended, found);
        let mut shorter = RecoveredLog { last: Some(Position::new(7, 9)), ..found };
        stored.amend(&mut shorter, true);
        assert!(!shorter.clean && shorter.epoch_least == 8);
        assert_eq!((shorter.holes[0].first, shorter.holes[0].last), (Position::new(7, 10), None));
    }
}
