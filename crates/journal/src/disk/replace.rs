//! Replaces a small file so that a crash leaves the old or the new content.

use std::path::{Path, PathBuf};

use super::Disk;
use crate::error::DiskError;
use crate::layout::TEMPORARY_SUFFIX;

/// Writes and syncs the content under a temporary name, `path` followed by `.new`, and renames that file to `path`. The
/// caller must sync the directory afterwards, so that the new name outlives a power cut. After an error the old file is
/// unchanged.
pub fn replace_file(disk: &dyn Disk, path: &Path, content: &[u8]) -> Result<(), DiskError> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(TEMPORARY_SUFFIX);
    let temporary = PathBuf::from(temporary);
    // An earlier attempt may have left the temporary file.
    let _ = disk.remove(&temporary);
    let write = || {
        let file = disk.create(&temporary).map_err(DiskError::of("create", &temporary))?;
        file.write_at(&[content], 0).map_err(DiskError::of("write", &temporary))?;
        file.sync().map_err(DiskError::of("sync", &temporary))?;
        disk.rename(&temporary, path).map_err(DiskError::of("rename", &temporary))
    };
    let written = write();
    if written.is_err() {
        // Frees the disk space of the incomplete file.
        let _ = disk.remove(&temporary);
    }
    written
}
