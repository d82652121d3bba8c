//! Temporary directories on a real disk, for durable data. Dropping a handle removes its directory.

use std::path::Path;

use anyhow::Result;
use dunlin::journal::RealDisk;

use crate::point::MissingPrerequisite;

/// A temporary directory on a real disk. Dropping the handle removes the directory.
#[derive(Debug)]
pub struct ScratchDisk(tempfile::TempDir);

impl ScratchDisk {
    /// Creates a directory in the system's temporary directory. If the system's temporary directory is in memory, uses
    /// the working directory instead. If both directories are in memory, returns an error.
    pub fn new() -> Result<Self> {
        for parent in [std::env::temp_dir(), std::env::current_dir()?] {
            if !RealDisk.in_memory(&parent)? {
                return Ok(Self(tempfile::tempdir_in(parent)?));
            }
        }
        let why = "neither the temporary nor the working directory is on a disk: durability is not measured in memory";
        Err(MissingPrerequisite(why.to_owned()).into())
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}
