//! Marks of a single node's parts beside topics: `DIR/control.made` for its keys, `DIR/tasks.made` for its tasks.
//!
//! The node creates a part's directory when the part is first used. If the mark exists and the directory does not, the directory was
//! removed: the node then refuses to begin the part without its contents.

use std::io;
use std::path::{Path, PathBuf};

use dunlin_journal::Disk;

/// Whether `dir` has this part, or its mark.
pub(crate) fn is_begun(disk: &dyn Disk, dir: &Path, part: &str) -> bool {
    has_files(disk, &dir.join(part)) || is_marked(disk, dir, part)
}

/// Refuses a part whose mark exists and whose files do not.
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

/// Writes a part's mark. Without it, for example after a failed write, a removed part is not noticed.
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
