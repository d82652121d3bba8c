//! Restores a log after a restart: its position and epochs, the producers of the last records, and the topic's state.

use dunlin_journal::{Damage, Hole, HoleCause, ReadError, Records, ScanItem};
use dunlin_topic::{EpochStart, Frame, Log, LossCause, Position, RecoveredLog};

use super::DiskLog;
use crate::storage::{StorageError, lock, note};

/// At a start, the producers of this number of records at the log's end are read.
const REMEMBERED_RECORDS: u64 = 200_000;

impl DiskLog {
    /// Returns the position and the epochs from which the log continues. `created` is the epoch in which the topic was
    /// created, if it is known; `epoch` is the epoch in which the log continues.
    pub(in super::super) fn recovered(
        &self,
        report: &dunlin_journal::RecoveredLog,
        created: Option<u32>,
        epoch: u32,
    ) -> RecoveredLog {
        let mut next_seq = report.last.map_or(1, |last| last.seq + 1);
        let mut begins = self.reader.epochs();
        if let Some(missing) = &self.missing {
            if begins.last().is_none_or(|last| last.epoch < missing.epoch) {
                begins.push(dunlin_journal::Position::new(missing.epoch, missing.first_seq.max(next_seq)));
            }
            next_seq = next_seq.max(missing.through + 1);
        }
        if begins.last().is_none_or(|last| last.epoch < epoch) {
            begins.push(dunlin_journal::Position::new(epoch, next_seq));
        }
        // The files do not contain the epoch in which the topic was created if this epoch has no records.
        if let (Some(created), Some(first)) = (created, begins.first())
            && first.seq == 1
            && created < first.epoch
        {
            begins.insert(0, dunlin_journal::Position::new(created, 1));
        }
        let mut before = None;
        let start = |at: &dunlin_journal::Position| EpochStart {
            epoch: at.epoch,
            first_seq: at.seq,
            after_loss: before
                .replace(at.epoch)
                .is_some_and(|before| self.uncertain_epochs.contains(&before)),
        };
        let epochs = begins.iter().map(start).collect();
        RecoveredLog {
            oldest_seq: report.oldest.map_or(next_seq, |oldest| oldest.seq),
            epochs,
            next_seq,
            last_append_ns: report.last_time_ns,
            granted_bytes: lock(&self.writing).journal.as_ref().map_or(0, |journal| self.grant(journal)),
        }
    }

    /// Restores from the files the producers of the log's last records, and the topic's state. Counts the lost records
    /// that the start has found. Returns the damage that affects the topic's state.
    pub(in super::super) fn restore(
        &self,
        topic: &str,
        log: &Log,
        report: &dunlin_journal::RecoveredLog,
    ) -> Result<Vec<Damage>, StorageError> {
        report.holes.iter().for_each(|hole| record_hole(log, hole));
        let mut damage = Vec::new();
        let refused = |why: String| StorageError::Refused { topic: topic.to_owned(), why };
        let unreadable = |error: ReadError| match error {
            ReadError::Disk(error) if error.lacks_resource() => StorageError::from(error),
            error => refused(error.to_string()),
        };
        let mut state_through = u64::MAX;
        let mut saved = None;
        if log.is_stateful() {
            let snapshot = match self.reader.latest_snapshot() {
                // The log still has all records from the first one on. The state follows from them alone.
                Err(ReadError::Damaged { file, why })
                    if report.oldest.is_some_and(|oldest| oldest.seq == 1) =>
                {
                    let what = format!("{why}; the state is restored from the topic's records");
                    damage.push(Damage { file, at: 0, what });
                    None
                }
                found => found.map_err(unreadable)?,
            };
            state_through = snapshot.as_ref().map_or(0, |snapshot| snapshot.position.seq);
            // Restore the snapshot even if the log's records are lost. Without the snapshot, the next start could not
            // find this epoch and later ones.
            if let Some(snapshot) = &snapshot {
                let restored = log.restore_state(state_through, &snapshot.bytes);
                restored.map_err(|error| refused(error.to_string()))?;
            }
            saved = snapshot.map(|snapshot| snapshot.position);
        }
        let (Some(oldest), Some(last)) = (report.oldest, report.last) else { return Ok(damage) };
        let first_seq = last.seq.saturating_sub(REMEMBERED_RECORDS);
        let begins = self.reader.epochs();
        // The epoch of the record `first_seq`. If that record is older than all epochs in the files, the oldest of
        // these epochs.
        let begin = begins.iter().rev().find(|begin| begin.seq <= first_seq);
        let epoch = begin.map_or(oldest.epoch, |begin| begin.epoch);
        let mut from = dunlin_journal::Position::new(epoch, first_seq);
        if log.is_stateful() {
            from = from.min(saved.unwrap_or(oldest));
        }
        let mut scan = self.reader.scan(from.max(oldest));
        while let Some(item) = scan.next().map_err(unreadable)? {
            let records = match item {
                ScanItem::Records(records) => records,
                ScanItem::Hole(hole) => {
                    record_hole(log, &hole);
                    if log.is_stateful() && hole.last.is_none_or(|last| last > state_through) {
                        let what = format!(
                            "the topic's state lacks changes, because {hole}: publish the whole state"
                        );
                        damage.push(Damage { file: self.dir.clone(), at: 0, what });
                    }
                    continue;
                }
            };
            note::decode(records.note).for_each(|mark| log.restore_producer(&mark, records.epoch));
            if records.last_seq() > state_through {
                replay_into_state(log, &records, state_through).map_err(refused)?;
            }
        }
        Ok(damage)
    }
}

/// Counts the records of a hole as lost, unless retention has removed them.
fn record_hole(log: &Log, hole: &Hole) {
    if hole.cause == HoleCause::Damaged {
        let first = Position { epoch: hole.first.epoch, seq: hole.first.seq };
        log.record_loss(LossCause::Damaged, first, hole.last);
    }
}

/// Applies the records after `state_through` to the topic's state, which already contains the records up to
/// `state_through`.
fn replay_into_state(log: &Log, records: &Records<'_>, state_through: u64) -> Result<(), String> {
    let mut rest = records.frames;
    let mut seq = records.first_seq;
    while let Some((frame, stride)) = Frame::split(rest) {
        if seq > state_through {
            log.replay_into_state(seq, &frame).map_err(|error| format!("record {seq}: {error}"))?;
        }
        rest = &rest[stride..];
        seq += 1;
    }
    Ok(())
}
