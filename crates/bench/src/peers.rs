//! Finds the programs of other systems (peers) that `cargo xtask peers` builds.

use std::path::{Path, PathBuf};

use crate::point::MissingPrerequisite;

/// The folder that contains the programs of other systems, which benchmarks run for comparison with Dunlin.
#[derive(Clone, Debug)]
pub struct PeerPrograms {
    folder: PathBuf,
}

impl PeerPrograms {
    /// Returns the folder in the environment variable `DUNLIN_PEERS`, if it is set. Otherwise looks for a folder
    /// `peers/build` in the working directory, then in its parent, and so on. Returns the first such folder that
    /// exists.
    pub fn find() -> Self {
        if let Some(folder) = std::env::var_os("DUNLIN_PEERS") {
            return Self { folder: folder.into() };
        }
        let built = Path::new("peers/build");
        let here = std::env::current_dir().unwrap_or_default();
        let found = here.ancestors().map(|ancestor| ancestor.join(built)).find(|folder| folder.is_dir());
        Self { folder: found.unwrap_or_else(|| built.to_owned()) }
    }

    /// Uses `folder` as the folder that contains the programs.
    pub fn at(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Returns the path of a program. Returns an error if the program has not been built.
    pub fn program(&self, name: &str) -> Result<PathBuf, MissingPrerequisite> {
        let program = self.folder.join(name);
        if program.is_file() {
            return Ok(program);
        }
        Err(MissingPrerequisite(format!(
            "{} does not exist: run `cargo xtask peers` first",
            program.display()
        )))
    }
}
