//! Rebuilds a Raft log from its journal when a node starts.

use std::io;
use std::path::Path;
use std::sync::Arc;

use dunlin_journal::{Disk, DiskReserve, Journal, JournalConfig, Position, RecoveredLog, ScanItem};

use super::operation::LogOperation;
use super::room::DiskSpace;
use super::store::{LogIndex, RaftLog};
use super::synced::{MarkError, SyncedMark};
use super::writer::LogWriter;
use super::{DIR, NAME, RESERVE};
use crate::codec::decode_exact;
use crate::error::damaged;
use crate::frames::payloads;
use crate::limits::RaftLimits;

/// Opens the log of a group's directory, or creates one.
pub(crate) fn open(disk: Arc<dyn Disk>, group: &Path, limits: &RaftLimits) -> io::Result<RaftLog> {
    let dir = group.join(DIR);
    let opened = Journal::open(Arc::clone(&disk), &dir, NAME, JournalConfig::default());
    let (journal, recovered) = opened.map_err(io::Error::other)?;
    refuse_damage(&recovered)?;
    let last = recovered.last.map_or(0, |last| last.seq);
    let mark = SyncedMark::open(Arc::clone(&disk), group, last).map_err(|error| match error {
        MarkError::Damaged { why, path } => {
            let error = damaged("log", &why);
            let advice = format!(
                "or, to continue with the data that remains, remove {} and start the node again",
                path.display()
            );
            io::Error::new(error.kind(), format!("{error}; {advice}"))
        }
        MarkError::Disk(error) => error,
    })?;
    let reserve = DiskReserve::open(disk, &dir, RESERVE, limits.reserve_bytes).map_err(io::Error::other)?;
    let mut log_index = LogIndex::default();
    if let Some(oldest) = recovered.oldest {
        replay(&journal, oldest, &mut log_index)?;
    }
    let epoch = recovered.next.epoch.max(recovered.epoch_least).max(1);
    log_index.next = Position::new(epoch, last + 1);
    let room = DiskSpace::default();
    let writer = LogWriter::start(journal, mark, log_index.next, reserve, room.clone())?;
    Ok(RaftLog::new(log_index, writer, room, limits.append_bytes_max))
}

fn refuse_damage(recovered: &RecoveredLog) -> io::Result<()> {
    let why = match (recovered.damage.first(), recovered.holes.first()) {
        (Some(damage), _) => damage.to_string(),
        (None, Some(hole)) => format!("{hole:?}"),
        (None, None) => return Ok(()),
    };
    Err(damaged("log", &why))
}

fn replay(journal: &Journal, oldest: Position, log_index: &mut LogIndex) -> io::Result<()> {
    let mut scan = journal.reader().scan(oldest);
    while let Some(item) = scan.next().map_err(io::Error::other)? {
        let records = match item {
            ScanItem::Records(records) => records,
            ScanItem::Hole(hole) => return Err(damaged("log", &format!("{hole:?}"))),
        };
        for (seq, payload) in payloads(&records) {
            let at = Position::new(records.epoch, seq);
            log_index.replay_operation(decode_exact::<LogOperation>(payload, "an operation")?, at)?;
        }
    }
    Ok(())
}

impl LogIndex {
    /// Repeats an operation that was read from the journal at the position `at`.
    fn replay_operation(&mut self, operation: LogOperation, at: Position) -> io::Result<()> {
        match operation {
            LogOperation::Append(entry) => {
                let index = entry.log_id.index;
                if self.last().is_some_and(|last| last.index + 1 != index) && !self.entries.is_empty() {
                    return Err(damaged("log", &format!("entry {index} follows {:?}", self.last())));
                }
                self.push(entry, at);
            }
            LogOperation::Truncate(last) => self.truncate(last),
            // A purge may follow a snapshot from another node. This log then never had some of the purged entries.
            LogOperation::Purge(last) => self.purge(last),
            LogOperation::Vote(vote) => self.vote = Some(vote),
        }
        Ok(())
    }
}
