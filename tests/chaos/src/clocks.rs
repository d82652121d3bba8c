//! Changes the system time that a running node sees. The library `tests/chaos/clock.c`, which is loaded into the node's
//! process, adds an offset to the time. The offset stays when the node is restarted, as a wrong clock stays wrong when
//! a machine is restarted.

use std::io;
use std::path::{Path, PathBuf};

/// The clocks of a cluster's nodes, which can be set while the nodes run.
#[derive(Debug)]
pub struct Clocks {
    /// The path of the library that is loaded into the process of each node.
    library: PathBuf,
    dir: PathBuf,
}

impl Clocks {
    /// Prepares a clock for each of these nodes. The clocks show the true time at first.
    pub fn start(library: &Path, dir: &Path, ids: &[u64]) -> io::Result<Clocks> {
        let clocks = Clocks { library: library.to_owned(), dir: dir.to_owned() };
        ids.iter().try_for_each(|id| clocks.set(*id, 0))?;
        Ok(clocks)
    }

    /// Returns the command line that starts a node's program with its own clock.
    pub fn command_line(&self, id: u64, program: &str) -> Vec<String> {
        let library = format!("LD_PRELOAD={}", self.library.display());
        let file = format!("DUNLIN_CHAOS_CLOCK={}", self.file(id).display());
        vec!["env".to_owned(), library, file, program.to_owned()]
    }

    /// Sets a node's clock to a time that is `offset_s` seconds after the true time.
    pub fn set(&self, id: u64, offset_s: i64) -> io::Result<()> {
        // Overwrites the offset in the existing file, with a single write, because the node's process has mapped the
        // file into its memory.
        let file =
            std::fs::OpenOptions::new().write(true).create(true).truncate(false).open(self.file(id))?;
        std::os::unix::fs::FileExt::write_all_at(&file, &offset_s.to_ne_bytes(), 0)
    }

    fn file(&self, id: u64) -> PathBuf {
        self.dir.join(format!("clock-{id}"))
    }
}
