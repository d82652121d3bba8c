//! Marks of what a node alone has begun beside its topics: `DIR/control.made` for its keys, `DIR/tasks.made` for its tasks.
//!
//! Their directories are made when they are first needed. A directory that is missing while its mark is there was taken away: the
//! node refuses to begin anew without what it held.

use std::io;
use std::path::{Path, PathBuf};

use dunlin_journal::Disk;

/// Whether this part was begun in `dir`: it is there, or its mark is.
pub(crate) fn is_begun(disk: &dyn Disk, dir: &Path, part: &str) -> bool {
    has_files(disk, &dir.join(part)) || is_marked(disk, dir, part)
}

/// Refuses a part that was begun and is not there.
pub(crate) fn check(disk: &dyn Disk, dir: &Path, part: &str) -> io::Result<()> {
    let of = dir.join(part);
    if !is_marked(disk, dir, part) || has_files(disk, &of) {
        return Ok(());
    }
    let why = format!(
        "{} is missing or empty, and was not before (is its volume mounted?): restore it from a backup; or, to begin without what it held, \
         remove {} and start the node again",
        of.display(),
        mark(dir, part).display()
    );
    Err(io::Error::new(io::ErrorKind::NotFound, why))
}

/// Marks a part as begun. Where that fails, nothing notices that it was taken away.
pub(crate) fn note(disk: &dyn Disk, dir: &Path, part: &str) {
    if !is_marked(disk, dir, part) && disk.create(&mark(dir, part)).is_ok() {
        let _ = disk.sync_dir(dir);
    }
}

fn mark(dir: &Path, part: &str) -> PathBuf {
    dir.join(format!("{part}.made"))
}

fn is_marked(disk: &dyn Disk, dir: &Path, part: &str) -> bool {
    disk.open(&mark(dir, part), false).is_ok()
}

fn has_files(disk: &dyn Disk, of: &Path) -> bool {
    let has = |folder| disk.list(&of.join(folder)).is_ok_and(|files| !files.is_empty());
    has("log") || has("snapshots")
}
