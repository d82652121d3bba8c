//! The log as the journal tells it.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;

use dunlin_journal::{Config, Disk, Item, Journal, Position, Recovered};

use super::NAME;
use super::operation::Operation;
use super::store::{Kept, Log};
use super::writer::Writer;
use crate::codec::whole;
use crate::frames::payloads;

/// Opens the log of a directory, or makes one.
pub(crate) fn open(disk: Arc<dyn Disk>, dir: &Path, append_bytes_max: usize) -> io::Result<Log> {
    let (journal, found) = Journal::open(disk, dir, NAME, Config::default()).map_err(io::Error::other)?;
    refuse_damage(&found)?;
    let mut kept = Kept::default();
    if let Some(oldest) = found.oldest {
        replay(&journal, oldest, &mut kept)?;
    }
    kept.drop_purged();
    let epoch = found.next.epoch.max(found.epoch_least).max(1);
    kept.next_seq = found.last.map_or(1, |last| last.seq + 1);
    let writer = Writer::start(journal, epoch, kept.next_seq)?;
    Ok(Log::new(kept, writer, append_bytes_max))
}

fn refuse_damage(found: &Recovered) -> io::Result<()> {
    let why = match (found.damage.first(), found.holes.first()) {
        (Some(damage), _) => damage.to_string(),
        (None, Some(hole)) => format!("{hole:?}"),
        (None, None) => return Ok(()),
    };
    Err(damaged(&why))
}

fn damaged(why: &str) -> io::Error {
    let what = "this node's log is damaged, and it may have promised what it does not know any more: remove the node from \
                the cluster, and let it join anew with an empty directory";
    io::Error::new(io::ErrorKind::InvalidData, format!("{what} ({why})"))
}

fn replay(journal: &Journal, oldest: Position, kept: &mut Kept) -> io::Result<()> {
    let mut scan = journal.reader().scan(oldest);
    while let Some(item) = scan.next().map_err(io::Error::other)? {
        let records = match item {
            Item::Records(records) => records,
            Item::Hole(hole) => return Err(damaged(&format!("{hole:?}"))),
        };
        for (seq, payload) in payloads(&records) {
            kept.redo(whole::<Operation>(payload, "an operation")?, seq)?;
        }
    }
    Ok(())
}

impl Kept {
    /// Does again what was done.
    fn redo(&mut self, operation: Operation, seq: u64) -> io::Result<()> {
        match operation {
            Operation::Append(entry) => {
                let index = entry.log_id.index;
                if self.last().is_some_and(|last| last.index + 1 != index) && !self.entries.is_empty() {
                    return Err(damaged(&format!("entry {index} follows {:?}", self.last())));
                }
                self.push(entry, seq);
            }
            Operation::Truncate(last) => self.truncate(last),
            Operation::Purge(last) => self.purged = Some(last),
            Operation::Vote(vote) => self.vote = Some(vote),
        }
        Ok(())
    }

    /// Files begin with entries that were purged later.
    fn drop_purged(&mut self) {
        let Some(purged) = self.purged else { return };
        let first = self.entries.partition_point(|held| held.entry.log_id.index <= purged.index);
        self.entries = VecDeque::from_iter(self.entries.drain(first..));
    }
}
