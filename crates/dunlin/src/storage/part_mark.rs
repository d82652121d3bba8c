//! A single node's data has two parts that are not topics: its keys and its tasks. Each part has a mark:
//! `DIR/control.made` for the keys, and `DIR/tasks.made` for the tasks. A mark shows whether its part was restored from
//! a copy.
//!
//! A mark contains the modification times of each log's lock file and, if the log is closed, of its newest file. Copies
//! of the files have other times. If the times differ, the part was restored from a copy, and may be older than what
//! clients have read. The part then continues in a new epoch. Older versions wrote an empty mark, which proves nothing.

use std::io;
use std::path::{Path, PathBuf};

use dunlin_journal::{Disk, replace_file};

use super::{checksum, optional, read_file, stored_position};

const FIRST_LINE: &str = "dunlin part 1";
const LAST_LINE: &str = "end";
/// The maximum size of a mark, bytes.
const BYTES_MAX: u64 = 64 << 10;
/// The subdirectories of a part's directory that contain its logs.
const LOGS: [&str; 2] = ["log", "snapshots"];

/// Whether the files of a part are as this node left them. `false` if they may have been restored from a copy. A part
/// without files counts as unchanged. Returns an error if the process or the machine lacks file descriptors or memory.
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
        // The part's logs are opened next, so write the mark for open logs.
        write_open(disk, dir, part, part_dirs);
    }
    Ok(is_unchanged)
}

/// Writes the mark of a part whose logs are open. If the mark is missing later, for example because writing it failed,
/// the part begins a new epoch even if it was not restored from a copy.
pub(crate) fn write_open(disk: &dyn Disk, dir: &Path, part: &str, part_dirs: &[PathBuf]) {
    write(disk, &mark_path(dir, part), locks(disk, part_dirs));
}

/// Writes the mark of a part whose logs are closed. If a log is still open, keeps the present mark.
pub(crate) fn write_closed(disk: &dyn Disk, dir: &Path, part: &str, part_dirs: &[PathBuf]) {
    let locks_held: Vec<_> = logs_of(part_dirs).map(|log| disk.lock(&log).ok().flatten()).collect();
    if is_marked(disk, dir, part)
        && locks_held.iter().all(Option::is_some)
        && let Ok(lines) = closed(disk, part_dirs)
    {
        write(disk, &mark_path(dir, part), lines);
    }
}

/// Writes the mark with these lines. After an error, the previous mark remains, or there is none.
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

/// Reads the lines of a mark. Returns `None` if the mark is missing, empty or damaged. Returns an error if the process
/// or the machine lacks file descriptors or memory.
fn read(disk: &dyn Disk, mark: &Path) -> io::Result<Option<Vec<String>>> {
    let bytes = optional(read_file(disk, mark, BYTES_MAX))?;
    Ok(bytes.and_then(|bytes| parse(std::str::from_utf8(&bytes).ok()?)))
}

fn parse(text: &str) -> Option<Vec<String>> {
    checksum::check(text).ok()?;
    let lines: Vec<&str> = text.strip_suffix('\n')?.lines().collect();
    let [FIRST_LINE, lines @ .., LAST_LINE] = &lines[..] else { return None };
    Some(lines.iter().filter(|line| !checksum::is_line(line)).map(|line| (*line).to_owned()).collect())
}

/// One line for each log, with the modification time of its lock file.
fn locks(disk: &dyn Disk, part_dirs: &[PathBuf]) -> Vec<String> {
    let line = |log: PathBuf| {
        let ns = disk.changed_ns(&log.join(stored_position::LOCK_FILE)).ok()?;
        Some(format!("lock {} {ns}", name(&log)))
    };
    logs_of(part_dirs).filter_map(line).collect()
}

/// The lines of [`locks`], and one line for each log with the modification time of its newest file.
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

/// The last two parts of the log's path. The full path would change if the data directory were moved.
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
