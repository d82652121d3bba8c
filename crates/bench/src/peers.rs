//! Where the rival programs stand that `cargo xtask peers` builds.

use std::path::{Path, PathBuf};

use crate::point::Unavailable;

/// The folder of built peers.
#[derive(Clone, Debug)]
pub struct PeerPrograms {
    folder: PathBuf,
}

impl PeerPrograms {
    /// `DUNLIN_PEERS` if set, else `peers/build` in this folder or the nearest one above that has it.
    pub fn find() -> Self {
        if let Some(folder) = std::env::var_os("DUNLIN_PEERS") {
            return Self { folder: folder.into() };
        }
        let built = Path::new("peers/build");
        let here = std::env::current_dir().unwrap_or_default();
        let found = here.ancestors().map(|above| above.join(built)).find(|folder| folder.is_dir());
        Self { folder: found.unwrap_or_else(|| built.to_owned()) }
    }

    /// The peers in this folder.
    pub fn at(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// The program of this name, if it is built.
    pub fn program(&self, name: &str) -> Result<PathBuf, Unavailable> {
        let program = self.folder.join(name);
        if program.is_file() {
            return Ok(program);
        }
        Err(Unavailable(format!("{} is not there: run `cargo xtask peers` first", program.display())))
    }
}
