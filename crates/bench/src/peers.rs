//! Finds the peer programs that `cargo xtask peers` builds.

use std::path::{Path, PathBuf};

use crate::point::MissingPrerequisite;

/// The folder with the programs of other systems that benchmarks run for comparison.
#[derive(Clone, Debug)]
pub struct PeerPrograms {
    folder: PathBuf,
}

impl PeerPrograms {
    /// Returns the folder `DUNLIN_PEERS` if it is set, otherwise the folder `peers/build` of the working directory or
    /// of its nearest parent that has one.
    pub fn find() -> Self {
        if let Some(folder) = std::env::var_os("DUNLIN_PEERS") {
            return Self { folder: folder.into() };
        }
        let built = Path::new("peers/build");
        let here = std::env::current_dir().unwrap_or_default();
        let found = here.ancestors().map(|ancestor| ancestor.join(built)).find(|folder| folder.is_dir());
        Self { folder: found.unwrap_or_else(|| built.to_owned()) }
    }

    /// Uses `folder` as the folder of the programs.
    pub fn at(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Returns the path of a program. Fails if it is not built.
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
