//! One log's state in a replica, and whether it is whole.

use std::sync::Arc;

use dunlin_topic::{
    Checksum, EpochChanged, Gap, LogName, Position, Publishers, Record, Reducer, Resync, Snapshot,
};

use super::report::{ChangeCause, ReplicaCounts, ReplicaFault, ReplicaReport, StateChange};

/// The replica of one log.
#[derive(Debug)]
pub(super) struct LogReplica<F> {
    pub(super) log: Arc<LogName>,
    pub(super) state: F,
    /// Position of the last record in the state; `None` before the first.
    pub(super) at: Option<Position>,
    /// The last report on publishers.
    pub(super) publishers: Option<Publishers>,
    awaits: RecoveryNeed,
    /// Whether a gap was reported and not repaired yet.
    has_gap: bool,
    /// Whether the log began a new epoch and has no record in it yet. The log's state is then unknown.
    began_anew: bool,
    /// Time of the last request or gap.
    pub(super) since_ns: u64,
    asked: u32,
}

/// The part of a log's state that a replica has to request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RecoveryNeed {
    /// The state is whole.
    Nothing,
    /// The records after the state's position.
    WhatFollows,
    /// The whole state.
    State,
}

/// The caller's report function and the replica's counters, to which a log's state adds its changes and faults.
pub(super) struct ReportSink<'t, R> {
    pub(super) counts: &'t mut ReplicaCounts,
    pub(super) report: &'t mut R,
}

impl<F: Reducer> LogReplica<F> {
    pub(super) fn new(log: Arc<LogName>, state: F) -> LogReplica<F> {
        LogReplica {
            log,
            state,
            at: None,
            publishers: None,
            awaits: RecoveryNeed::Nothing,
            has_gap: false,
            began_anew: false,
            since_ns: 0,
            asked: 0,
        }
    }

    /// Whether the state equals its owner's at its position, as far as known.
    pub(super) fn is_whole(&self) -> bool {
        self.awaits == RecoveryNeed::Nothing && !self.has_gap && self.at.is_some()
    }

    /// The request that is due now. Each fault causes one request, which is repeated after `retry_ns`.
    pub(super) fn due_resync(
        &mut self,
        now_ns: u64,
        retry_ns: u64,
        counts: &mut ReplicaCounts,
    ) -> Option<Resync> {
        let overdue = self.since_ns > 0 && now_ns >= self.since_ns.saturating_add(retry_ns);
        let resync = match (self.awaits, self.at) {
            (RecoveryNeed::Nothing, at) if self.has_gap && overdue => at.map_or(Resync::State, Resync::After),
            (RecoveryNeed::Nothing, _) => {
                if self.has_gap && self.since_ns == 0 {
                    self.since_ns = now_ns;
                }
                return None;
            }
            // The records were requested twice without a response: they are not available.
            (RecoveryNeed::WhatFollows, Some(at)) if self.asked < 2 => Resync::After(at),
            _ => Resync::State,
        };
        match self.asked {
            0 => counts.resyncs += 1,
            _ if overdue => counts.retries += 1,
            _ => return None,
        }
        self.asked += 1;
        self.since_ns = now_ns;
        Some(resync)
    }

    /// Whether a request may become due without an event.
    pub(super) fn is_pending(&self) -> bool {
        self.awaits != RecoveryNeed::Nothing || self.has_gap
    }

    pub(super) fn take_record<R: FnMut(ReplicaReport<'_, F>)>(
        &mut self,
        record: &Record<'_>,
        telling: &mut ReportSink<'_, R>,
    ) {
        let at = match self.at {
            // The log's first record needs no earlier state.
            None if record.prev_seq == 0 => Position { epoch: record.position.epoch, seq: 0 },
            None => return self.fault(ReplicaFault::Unknown { at: record.position }, telling),
            Some(at) => at,
        };
        if self.awaits == RecoveryNeed::State || record.seq() <= at.seq && record.position.epoch == at.epoch {
            telling.counts.ignored += 1;
            return;
        }
        if record.position.epoch != at.epoch {
            return self.fault(ReplicaFault::Unknown { at: record.position }, telling);
        }
        if record.prev_seq > at.seq {
            return self.fault(ReplicaFault::Hole { first: at.seq + 1, last: record.prev_seq }, telling);
        }
        if let Err(refused) = self.state.apply(record.seq(), &record.frame) {
            let fault = ReplicaFault::Refused { at: record.position, why: refused.to_string() };
            return self.fault(fault, telling);
        }
        let merged = at.seq + 1 < record.seq();
        let by = if merged { ChangeCause::Merged(record.frame) } else { ChangeCause::Record(record.frame) };
        *(if merged { &mut telling.counts.conflated } else { &mut telling.counts.records }) += 1;
        self.stand(at, record.position, by, telling);
    }

    pub(super) fn take_snapshot<R: FnMut(ReplicaReport<'_, F>)>(
        &mut self,
        snapshot: &Snapshot,
        telling: &mut ReportSink<'_, R>,
    ) {
        let to = snapshot.position;
        let restored = self.state.restore(to.seq, &snapshot.bytes).map_err(|refused| refused.to_string());
        let own = self.state.checksum();
        let sound = restored.and_then(|()| match own == snapshot.checksum {
            true => Ok(()),
            false => Err(format!("the snapshot's checksum is {own:016x}, not {:016x}", snapshot.checksum)),
        });
        if let Err(why) = sound {
            return self.fault(ReplicaFault::Refused { at: to, why }, telling);
        }
        telling.counts.snapshots += 1;
        let from = self.at.unwrap_or(Position { epoch: to.epoch, seq: 0 });
        self.stand(from, to, ChangeCause::Snapshot, telling);
    }

    /// Compares the state with the owner's checksum at a position up to which all records were received.
    pub(super) fn check<R: FnMut(ReplicaReport<'_, F>)>(
        &mut self,
        checksum: &Checksum,
        telling: &mut ReportSink<'_, R>,
    ) {
        let Some(at) = self.at else {
            return self.fault(ReplicaFault::Unknown { at: checksum.position }, telling);
        };
        if self.awaits != RecoveryNeed::Nothing || checksum.position < at {
            return;
        }
        let own = self.state.checksum();
        if checksum.position.epoch == at.epoch && checksum.position.seq > at.seq {
            self.fault(ReplicaFault::Hole { first: at.seq + 1, last: checksum.position.seq }, telling);
        } else if checksum.position != at {
            self.fault(ReplicaFault::Unknown { at: checksum.position }, telling);
        } else if checksum.checksum == own {
            telling.counts.checked += 1;
            (telling.report)(ReplicaReport::Agreed { log: &self.log, at, state: &self.state });
        } else {
            self.fault(ReplicaFault::Diverged { at, owner: checksum.checksum, own }, telling);
        }
    }

    /// Whether a report on publishers is new: owners repeat reports after a loss.
    pub(super) fn take_publishers(&mut self, publishers: &Publishers) -> bool {
        let is_news = match &self.publishers {
            None => !publishers.connected,
            Some(before) if before.connected => !publishers.connected,
            Some(before) => publishers.connected || before.since_ns != publishers.since_ns,
        };
        self.publishers = Some(publishers.clone());
        is_news
    }

    /// Handles a gap. The owner sends the missing state or records afterwards.
    pub(super) fn take_gap(&mut self, gap: &Gap, counts: &mut ReplicaCounts) {
        let here = self.at.is_none_or(|at| at.epoch == gap.epoch && at.seq < gap.last);
        if here && self.awaits == RecoveryNeed::Nothing && !self.has_gap {
            counts.gaps += 1;
            self.has_gap = true;
        }
    }

    /// Handles a new epoch. If no record is missing, the state continues. If only records after the state are missing,
    /// the state stays until the owner sends a newer one. Otherwise the state becomes empty, and a fault is reported.
    pub(super) fn begin_anew<R: FnMut(ReplicaReport<'_, F>)>(
        &mut self,
        changed: &EpochChanged,
        empty: F,
        telling: &mut ReportSink<'_, R>,
    ) {
        let last = Position { epoch: changed.old, seq: changed.last_seen };
        let is_kept = changed.known_through.is_some_and(|through| through >= last.seq)
            && changed.new_first.seq > last.seq;
        if is_kept && self.at == Some(last) && self.awaits == RecoveryNeed::Nothing {
            if changed.known_through == Some(last.seq) && changed.new_first.seq == last.seq + 1 {
                self.at = Some(Position { epoch: changed.new_first.epoch, ..last });
            } else if !self.has_gap {
                telling.counts.gaps += 1;
                self.has_gap = true;
            }
            return;
        }
        if self.awaits == RecoveryNeed::Nothing && !self.has_gap {
            telling.counts.gaps += 1;
        }
        let (last, epoch) = (self.at.unwrap_or(last), changed.new_first.epoch);
        let fault = ReplicaFault::BeganAnew { last, epoch };
        (telling.report)(ReplicaReport::Fault { log: &self.log, fault });
        self.began_anew = true;
        (self.at, self.state) = (None, empty);
        (self.awaits, self.has_gap) = (RecoveryNeed::Nothing, true);
    }

    fn stand<R: FnMut(ReplicaReport<'_, F>)>(
        &mut self,
        from: Position,
        to: Position,
        by: ChangeCause<'_>,
        telling: &mut ReportSink<'_, R>,
    ) {
        self.at = Some(to);
        if self.began_anew && to.seq == 0 {
            // An empty state at the start of an epoch is incomplete. The first record completes it.
            (self.awaits, self.has_gap, self.since_ns, self.asked) =
                (RecoveryNeed::Nothing, true, u64::MAX, 0);
            return;
        }
        self.began_anew = false;
        if self.awaits != RecoveryNeed::Nothing || self.has_gap {
            (self.awaits, self.has_gap, self.since_ns, self.asked) = (RecoveryNeed::Nothing, false, 0, 0);
            telling.counts.gaps_healed += 1;
        }
        let change = StateChange { log: &self.log, from, to, by, state: &self.state };
        (telling.report)(ReplicaReport::Changed(change));
    }

    fn fault<R: FnMut(ReplicaReport<'_, F>)>(
        &mut self,
        fault: ReplicaFault,
        telling: &mut ReportSink<'_, R>,
    ) {
        let awaits = match fault {
            ReplicaFault::Hole { .. } => RecoveryNeed::WhatFollows,
            _ => RecoveryNeed::State,
        };
        // Reports a fault of a log only once.
        if self.awaits == awaits || self.awaits == RecoveryNeed::State {
            telling.counts.ignored += 1;
            return;
        }
        match fault {
            // The owner has reported a gap for these records, so that the hole is not a second fault.
            ReplicaFault::Hole { .. } if self.has_gap => {
                telling.counts.gaps -= 1;
                telling.counts.holes += 1;
            }
            ReplicaFault::Hole { .. } => telling.counts.holes += 1,
            ReplicaFault::Diverged { .. } => telling.counts.divergent += 1,
            ReplicaFault::Refused { .. } => telling.counts.refused += 1,
            ReplicaFault::Unknown { .. } | ReplicaFault::BeganAnew { .. } => {}
        }
        (self.awaits, self.asked, self.since_ns) = (awaits, 0, 0);
        (telling.report)(ReplicaReport::Fault { log: &self.log, fault });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Book, Scale};

    #[test]
    fn repeated_publisher_notice_is_not_reported_again() {
        let log = Arc::new(LogName { topic: "t".to_owned(), subject_prefix: String::new(), partition: 0 });
        let mut followed = LogReplica::new(Arc::clone(&log), Book::new(Scale::default()));
        let mut take = |connected, since_ns| {
            let last_append_ns = None;
            followed.take_publishers(&Publishers {
                log: Arc::clone(&log),
                connected,
                since_ns,
                last_append_ns,
            })
        };
        assert!(!take(true, 1), "the first report is new");
        assert!(take(false, 2));
        assert!(!take(false, 2), "a repeated report is not new");
        assert!(take(false, 5), "a changed count is new");
        assert!(take(true, 6));
        assert!(!take(true, 7), "a new owner's start time alone is not new");
    }
}
