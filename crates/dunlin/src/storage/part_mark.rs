//! Marks for the two parts of a single node besides its topics: `DIR/control.made` for its keys, and `DIR/tasks.made`
//! for its tasks. They show whether a part was restored from a copy.
//!
//! A mark holds the change times of each log's lock file and of each closed log's newest file. Copies of the files have
//! other change times. If the times differ, the part was restored from a copy and may be older than what clients have
//! read. The part then continues in a new epoch. A mark of an older build is empty and proves nothing.

use std::io;
use std::path::{Path, PathBuf};

use dunlin_journal::{Disk, replace_file};

use super::{checksum, optional, stored_position};

const FIRST_LINE: &str = "dunlin part 1";
const LAST_LINE: &str = "end";
/// The largest size of a mark, bytes.
const BYTES_MAX: u64 = 64 << 10;
/// The directories of a part's journals.
const LOGS: [&str; 2] = ["log", "snapshots"];

/// Whether the files of a part are as this node left them; `false` if they were restored from a copy. A part without
/// files counts as unchanged. Fails if the process or the machine lacks file descriptors or memory.
pub(crate) fn is_unchanged(
    disk: &dyn Disk,
    dir: &Path,
    part: &str,
    part_dirs: &[PathBuf],
) -> io::Result<bool> {
    if !has_files(disk, &dir.join(part))? {
        return Ok(true);
    }
    let is_unchanged = match read(disk, &mark_path(dir, part))?.filter(|lines| !lines.is_empty()) {
        Some(lines) => lines == locks(disk, part_dirs) || lines == closed(disk, part_dirs)?,
        None => false,
    };
    if is_unchanged {
        // From here on, the part's logs are open. The mark records this.
        write_open(disk, dir, part, part_dirs);
    }
    Ok(is_unchanged)
}

/// Writes the mark of a part whose logs are open. Without the mark, for example after a failed write, the part begins a
/// new epoch even if it was not restored from a copy.
pub(crate) fn write_open(disk: &dyn Disk, dir: &Path, part: &str, part_dirs: &[PathBuf]) {
    write(disk, &mark_path(dir, part), locks(disk, part_dirs));
}

/// Writes the mark once the part's logs are closed. If a log is still open, the mark does not change.
pub(crate) fn write_closed(disk: &dyn Disk, dir: &Path, part: &str, part_dirs: &[PathBuf]) {
    let locks_held: Vec<_> = logs_of(part_dirs).map(|log| disk.lock(&log).ok().flatten()).collect();
    if is_marked(disk, dir, part)
        && locks_held.iter().all(Option::is_some)
        && let Ok(lines) = closed(disk, part_dirs)
    {
        write(disk, &mark_path(dir, part), lines);
    }
}

/// Writes the mark. After a failure, the previous mark remains, or there is none.
fn write(disk: &dyn Disk, mark: &Path, lines: Vec<String>) {
    if read(disk, mark).is_ok_and(|found| found.as_ref() == Some(&lines)) {
        return;
    }
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let text = checksum::seal(format!("{FIRST_LINE}\n{lines}{LAST_LINE}\n"), LAST_LINE);
    if replace_file(disk, mark, text.as_bytes()).is_ok()
        && let Some(dir) = mark.parent()
    {
        let _ = disk.sync_dir(dir);
    }
}

/// Reads the lines of a mark. Returns `None` if the mark is missing, empty or damaged. Fails if the process or the
/// machine lacks file descriptors or memory.
fn read(disk: &dyn Disk, mark: &Path) -> io::Result<Option<Vec<String>>> {
    let read = || -> io::Result<Vec<u8>> {
        let file = disk.open(mark, false)?;
        let mut bytes = vec![0; file.bytes()?.min(BYTES_MAX) as usize];
        let count = file.read_at(&mut bytes, 0)?;
        bytes.truncate(count);
        Ok(bytes)
    };
    Ok(optional(read())?.and_then(|bytes| parse(std::str::from_utf8(&bytes).ok()?)))
}

fn parse(text: &str) -> Option<Vec<String>> {
    checksum::check(text).ok()?;
    let lines: Vec<&str> = text.strip_suffix('\n')?.lines().collect();
    let [FIRST_LINE, lines @ .., LAST_LINE] = &lines[..] else { return None };
    Some(lines.iter().filter(|line| !checksum::is_line(line)).map(|line| (*line).to_owned()).collect())
}

/// For each log, the time at which its lock file was last changed.
fn locks(disk: &dyn Disk, part_dirs: &[PathBuf]) -> Vec<String> {
    let line = |log: PathBuf| {
        let ns = disk.changed_ns(&log.join(stored_position::LOCK_FILE)).ok()?;
        Some(format!("lock {} {ns}", name(&log)))
    };
    logs_of(part_dirs).filter_map(line).collect()
}

/// Like [`locks`], and for each log also the time at which its newest file was last changed.
fn closed(disk: &dyn Disk, part_dirs: &[PathBuf]) -> io::Result<Vec<String>> {
    let mut lines = locks(disk, part_dirs);
    for log in logs_of(part_dirs) {
        let changed_ns = stored_position::changed_ns(disk, &log)?.unwrap_or(0);
        lines.push(format!("closed {} {changed_ns}", name(&log)));
    }
    Ok(lines)
}

fn logs_of(part_dirs: &[PathBuf]) -> impl Iterator<Item = PathBuf> {
    part_dirs.iter().flat_map(|dir| LOGS.iter().map(|log| dir.join(log)))
}

/// Returns the log's path within the data directory, because the data directory may be moved.
fn name(log: &Path) -> String {
    let names: Vec<_> = log.iter().rev().take(2).map(|name| name.to_string_lossy()).collect();
    names.into_iter().rev().collect::<Vec<_>>().join("/")
}

fn mark_path(dir: &Path, part: &str) -> PathBuf {
    dir.join(format!("{part}.made"))
}

fn is_marked(disk: &dyn Disk, dir: &Path, part: &str) -> bool {
    disk.open(&mark_path(dir, part), false).is_ok()
}

fn has_files(disk: &dyn Disk, part_dir: &Path) -> io::Result<bool> {
    for folder in LOGS {
        if optional(disk.list(&part_dir.join(folder)))?.is_some_and(|files| !files.is_empty()) {
            return Ok(true);
        }
    }
    Ok(false)
}
