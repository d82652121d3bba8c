//! The time of day of each node, which can be set while it runs (`tests/chaos/clock.c`). A node that is started again has it as
//! it was: the clock is the machine's.

use std::io;
use std::path::{Path, PathBuf};

/// See the module.
#[derive(Debug)]
pub struct Clocks {
    /// What is loaded into each process.
    library: PathBuf,
    dir: PathBuf,
}

impl Clocks {
    /// Those of nodes with these numbers, all of them right.
    pub fn start(library: &Path, dir: &Path, ids: &[u64]) -> io::Result<Clocks> {
        let clocks = Clocks { library: library.to_owned(), dir: dir.to_owned() };
        ids.iter().try_for_each(|id| clocks.set(*id, 0))?;
        Ok(clocks)
    }

    /// How a node's program is started.
    pub fn line(&self, id: u64, program: &str) -> Vec<String> {
        let library = format!("LD_PRELOAD={}", self.library.display());
        let file = format!("DUNLIN_CHAOS_CLOCK={}", self.file(id).display());
        vec!["env".to_owned(), library, file, program.to_owned()]
    }

    /// From now on a node's clock is off by so many seconds.
    pub fn set(&self, id: u64, off_s: i64) -> io::Result<()> {
        // In place, for the process has it mapped, and in one write.
        let file =
            std::fs::OpenOptions::new().write(true).create(true).truncate(false).open(self.file(id))?;
        std::os::unix::fs::FileExt::write_all_at(&file, &off_s.to_ne_bytes(), 0)
    }

    fn file(&self, id: u64) -> PathBuf {
        self.dir.join(format!("clock-{id}"))
    }
}
