//! Replaces a small file so that after a crash the file has either its old or its new content.

use std::path::{Path, PathBuf};

use super::Disk;
use crate::error::DiskError;
use crate::layout::TEMPORARY_SUFFIX;

/// Writes and syncs `content` under a temporary name, `path` followed by `.new`, and then renames that file to `path`.
/// After an error, the old file is unchanged. The caller must sync the directory afterwards; otherwise a power cut can
/// undo the renaming.
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
        // Frees the disk space that the incomplete file takes.
        let _ = disk.remove(&temporary);
    }
    written
}
