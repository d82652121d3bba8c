//! A replica's copy of the state of one log, and whether this copy is whole.

use std::sync::Arc;

use dunlin_topic::{
    Checksum, EpochChanged, Gap, LogName, Position, PublisherStatus, Record, Reducer, Resync, Snapshot,
};

use super::report::{ChangeCause, ReplicaCounts, ReplicaFault, ReplicaReport, StateChange};

/// A replica's copy of the state of one log.
#[derive(Debug)]
pub(super) struct LogReplica<F> {
    pub(super) log: Arc<LogName>,
    pub(super) state: F,
    /// Position of the last record that is part of the state; `None` before the first record or snapshot.
    pub(super) at: Option<Position>,
    /// The owner's last report on whether a publisher is connected.
    pub(super) publishers: Option<PublisherStatus>,
    need: RecoveryNeed,
    /// Whether a gap or a new epoch was reported and the state is not whole again yet.
    has_gap: bool,
    /// Whether the gap that `has_gap` states was counted in [`ReplicaCounts::gaps`]. A gap that is reported while an
    /// earlier fault is being repaired is not counted.
    is_gap_counted: bool,
    /// Whether the log began a new epoch and no record of this epoch has arrived yet. The log's state is then unknown.
    is_new_epoch: bool,
    /// Time of the last request. If no request was sent yet, the time at which the gap was reported. 0 means that there
    /// is no such time. `u64::MAX` means that no request may become due.
    pub(super) since_ns: u64,
    requests: u32,
}

/// The data that a replica has to request from the owner to repair the state of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RecoveryNeed {
    /// Nothing: no fault is known.
    Nothing,
    /// The records after the position of the state.
    Records,
    /// The whole state.
    State,
}

/// The destination for changes and faults of the logs: the caller's report function, and the replica's counters.
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
            need: RecoveryNeed::Nothing,
            has_gap: false,
            is_gap_counted: false,
            is_new_epoch: false,
            since_ns: 0,
            requests: 0,
        }
    }

    /// Whether the state is whole: as far as the replica knows, it equals the owner's state at the same position.
    pub(super) fn is_whole(&self) -> bool {
        self.need == RecoveryNeed::Nothing && !self.has_gap && self.at.is_some()
    }

    /// Returns the request that is due now, if any. A fault causes one request at once, which is repeated every
    /// `retry_ns` until the state is whole.
    pub(super) fn due_resync(
        &mut self,
        now_ns: u64,
        retry_ns: u64,
        counts: &mut ReplicaCounts,
    ) -> Option<Resync> {
        let overdue = self.since_ns > 0 && now_ns >= self.since_ns.saturating_add(retry_ns);
        let resync = match (self.need, self.at) {
            (RecoveryNeed::Nothing, at) if self.has_gap && overdue => at.map_or(Resync::State, Resync::After),
            (RecoveryNeed::Nothing, _) => {
                if self.has_gap && self.since_ns == 0 {
                    self.since_ns = now_ns;
                }
                return None;
            }
            // If two requests for the missing records received no response, the records are probably no longer
            // available. The whole state is requested instead.
            (RecoveryNeed::Records, Some(at)) if self.requests < 2 => Resync::After(at),
            _ => Resync::State,
        };
        match self.requests {
            0 => counts.resyncs += 1,
            _ if overdue => counts.retries += 1,
            _ => return None,
        }
        self.requests += 1;
        self.since_ns = now_ns;
        Some(resync)
    }

    /// Whether the state is not whole. If so, a request may become due although no event arrives.
    pub(super) fn is_pending(&self) -> bool {
        self.need != RecoveryNeed::Nothing || self.has_gap
    }

    pub(super) fn handle_record<R: FnMut(ReplicaReport<'_, F>)>(
        &mut self,
        record: &Record<'_>,
        sink: &mut ReportSink<'_, R>,
    ) {
        let at = match self.at {
            // No record precedes the first record of a log, so the state before the first record is empty, and need not
            // be requested.
            None if record.prev_seq == 0 => Position { epoch: record.position.epoch, seq: 0 },
            None => return self.fault(ReplicaFault::Unknown { at: record.position }, sink),
            Some(at) => at,
        };
        if self.need == RecoveryNeed::State || record.seq() <= at.seq && record.position.epoch == at.epoch {
            sink.counts.ignored += 1;
            return;
        }
        if record.position.epoch != at.epoch {
            return self.fault(ReplicaFault::Unknown { at: record.position }, sink);
        }
        if record.prev_seq > at.seq {
            return self.fault(ReplicaFault::Hole { first: at.seq + 1, last: record.prev_seq }, sink);
        }
        if let Err(refused) = self.state.apply(record.seq(), &record.frame) {
            let fault = ReplicaFault::Refused { at: record.position, why: refused.to_string() };
            return self.fault(fault, sink);
        }
        let merged = at.seq + 1 < record.seq();
        let cause =
            if merged { ChangeCause::Merged(record.frame) } else { ChangeCause::Record(record.frame) };
        *(if merged { &mut sink.counts.conflated } else { &mut sink.counts.records }) += 1;
        self.advance(at, record.position, cause, sink);
    }

    pub(super) fn handle_snapshot<R: FnMut(ReplicaReport<'_, F>)>(
        &mut self,
        snapshot: &Snapshot,
        sink: &mut ReportSink<'_, R>,
    ) {
        let to = snapshot.position;
        let restored = self.state.restore(to.seq, &snapshot.bytes).map_err(|refused| refused.to_string());
        let own = self.state.checksum();
        let verified = restored.and_then(|()| match own == snapshot.checksum {
            true => Ok(()),
            false => Err(format!("the snapshot's checksum is {own:016x}, not {:016x}", snapshot.checksum)),
        });
        if let Err(why) = verified {
            return self.fault(ReplicaFault::Refused { at: to, why }, sink);
        }
        sink.counts.snapshots += 1;
        let from = self.at.unwrap_or(Position { epoch: to.epoch, seq: 0 });
        self.advance(from, to, ChangeCause::Snapshot, sink);
    }

    /// Compares the checksum of the copy with the owner's checksum, which belongs to a position in the log. If not all
    /// records up to this position were received, reports a fault.
    pub(super) fn handle_checksum<R: FnMut(ReplicaReport<'_, F>)>(
        &mut self,
        checksum: &Checksum,
        sink: &mut ReportSink<'_, R>,
    ) {
        let Some(at) = self.at else {
            return self.fault(ReplicaFault::Unknown { at: checksum.position }, sink);
        };
        if self.need != RecoveryNeed::Nothing || checksum.position < at {
            return;
        }
        let own = self.state.checksum();
        if checksum.position.epoch == at.epoch && checksum.position.seq > at.seq {
            self.fault(ReplicaFault::Hole { first: at.seq + 1, last: checksum.position.seq }, sink);
        } else if checksum.position != at {
            self.fault(ReplicaFault::Unknown { at: checksum.position }, sink);
        } else if checksum.checksum == own {
            sink.counts.checked += 1;
            (sink.report)(ReplicaReport::Agreed { log: &self.log, at, state: &self.state });
        } else {
            self.fault(ReplicaFault::Diverged { at, owner: checksum.checksum, own }, sink);
        }
    }

    /// Stores the owner's report on whether a publisher is connected. Returns whether the report is new, because an
    /// owner may send the same report again.
    pub(super) fn handle_publishers(&mut self, publishers: &PublisherStatus) -> bool {
        let is_new = match &self.publishers {
            None => !publishers.connected,
            Some(before) if before.connected => !publishers.connected,
            Some(before) => publishers.connected || before.since_ns != publishers.since_ns,
        };
        self.publishers = Some(publishers.clone());
        is_new
    }

    /// Handles a gap, after which the owner sends the missing state or records without a request.
    pub(super) fn handle_gap(&mut self, gap: &Gap, counts: &mut ReplicaCounts) {
        let is_ahead = self.at.is_none_or(|at| at.epoch == gap.epoch && at.seq < gap.last);
        if is_ahead && self.need == RecoveryNeed::Nothing && !self.has_gap {
            self.count_gap(counts);
        }
    }

    fn count_gap(&mut self, counts: &mut ReplicaCounts) {
        counts.gaps += 1;
        (self.has_gap, self.is_gap_counted) = (true, true);
    }

    /// Handles a new epoch. If no record is missing, the state continues in the new epoch. If only records after the
    /// state's position are missing, the state stays until the owner sends a newer state. Otherwise, the state becomes
    /// empty, and a fault is reported.
    pub(super) fn handle_epoch_change<R: FnMut(ReplicaReport<'_, F>)>(
        &mut self,
        changed: &EpochChanged,
        empty: F,
        sink: &mut ReportSink<'_, R>,
    ) {
        let last = Position { epoch: changed.old, seq: changed.last_seen };
        let is_kept = changed.known_through.is_some_and(|through| through >= last.seq)
            && changed.new_first.seq > last.seq;
        if is_kept && self.at == Some(last) && self.need == RecoveryNeed::Nothing {
            if changed.known_through == Some(last.seq) && changed.new_first.seq == last.seq + 1 {
                self.at = Some(Position { epoch: changed.new_first.epoch, ..last });
            } else if !self.has_gap {
                self.count_gap(sink.counts);
            }
            return;
        }
        if self.need == RecoveryNeed::Nothing && !self.has_gap {
            self.count_gap(sink.counts);
        }
        let (last, epoch) = (self.at.unwrap_or(last), changed.new_first.epoch);
        let fault = ReplicaFault::NewEpoch { last, epoch };
        (sink.report)(ReplicaReport::Fault { log: &self.log, fault });
        self.is_new_epoch = true;
        (self.at, self.state) = (None, empty);
        (self.need, self.has_gap) = (RecoveryNeed::Nothing, true);
    }

    fn advance<R: FnMut(ReplicaReport<'_, F>)>(
        &mut self,
        from: Position,
        to: Position,
        cause: ChangeCause<'_>,
        sink: &mut ReportSink<'_, R>,
    ) {
        self.at = Some(to);
        if self.is_new_epoch && to.seq == 0 {
            // An empty state at the start of a new epoch is not complete yet. It becomes whole with the first record.
            (self.need, self.has_gap, self.since_ns, self.requests) =
                (RecoveryNeed::Nothing, true, u64::MAX, 0);
            return;
        }
        self.is_new_epoch = false;
        if self.need != RecoveryNeed::Nothing || self.has_gap {
            (self.need, self.has_gap, self.since_ns, self.requests) = (RecoveryNeed::Nothing, false, 0, 0);
            self.is_gap_counted = false;
            sink.counts.gaps_healed += 1;
        }
        let change = StateChange { log: &self.log, from, to, cause, state: &self.state };
        (sink.report)(ReplicaReport::Changed(change));
    }

    fn fault<R: FnMut(ReplicaReport<'_, F>)>(&mut self, fault: ReplicaFault, sink: &mut ReportSink<'_, R>) {
        let need = match fault {
            ReplicaFault::Hole { .. } => RecoveryNeed::Records,
            _ => RecoveryNeed::State,
        };
        // A fault is reported only once. While a repair of the whole state is pending, no further fault is reported.
        if self.need == need || self.need == RecoveryNeed::State {
            sink.counts.ignored += 1;
            return;
        }
        match fault {
            // The owner has already reported the missing records as a gap. The loss is now counted as a hole instead,
            // so that it is counted only once.
            ReplicaFault::Hole { .. } if self.is_gap_counted => {
                self.is_gap_counted = false;
                sink.counts.gaps -= 1;
                sink.counts.holes += 1;
            }
            // The loss was already counted when the new epoch was reported, so this hole is not counted again.
            ReplicaFault::Hole { .. } if self.has_gap => {}
            ReplicaFault::Hole { .. } => sink.counts.holes += 1,
            ReplicaFault::Diverged { .. } => sink.counts.divergent += 1,
            ReplicaFault::Refused { .. } => sink.counts.refused += 1,
            ReplicaFault::Unknown { .. } | ReplicaFault::NewEpoch { .. } => {}
        }
        (self.need, self.requests, self.since_ns) = (need, 0, 0);
        (sink.report)(ReplicaReport::Fault { log: &self.log, fault });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Book, Scale};

    #[test]
    fn repeated_publisher_notice_is_not_reported_again() {
        let log = Arc::new(LogName { topic: "t".to_owned(), subject_prefix: String::new(), partition: 0 });
        let mut log_replica = LogReplica::new(Arc::clone(&log), Book::new(Scale::default()));
        let mut handle = |connected, since_ns| {
            let last_append_ns = None;
            log_replica.handle_publishers(&PublisherStatus {
                log: Arc::clone(&log),
                connected,
                since_ns,
                last_append_ns,
            })
        };
        assert!(!handle(true, 1), "the first report is new");
        assert!(handle(false, 2));
        assert!(!handle(false, 2), "a repeated report is not new");
        assert!(handle(false, 5), "a changed count is new");
        assert!(handle(true, 6));
        assert!(!handle(true, 7), "a new owner's start time alone is not new");
    }

    #[test]
    fn loss_that_continues_after_an_epoch_change_counts_once() {
        let log = Arc::new(LogName { topic: "t".to_owned(), subject_prefix: String::new(), partition: 0 });
        let mut log_replica = LogReplica::new(Arc::clone(&log), Book::new(Scale::default()));
        let at = |epoch, seq| Position { epoch, seq };
        let checksum = |position| Checksum { log: Arc::clone(&log), position, checksum: 0 };
        let mut counts = ReplicaCounts::default();
        let mut report = |_: ReplicaReport<'_, Book>| ();
        let mut sink = ReportSink { counts: &mut counts, report: &mut report };
        log_replica.advance(at(1, 0), at(1, 1), ChangeCause::Snapshot, &mut sink);
        log_replica.handle_checksum(&checksum(at(1, 5)), &mut sink);
        let changed = EpochChanged {
            log: Arc::clone(&log),
            old: 1,
            last_seen: 1,
            known_through: None,
            new_first: at(2, 1),
        };
        log_replica.handle_epoch_change(&changed, Book::new(Scale::default()), &mut sink);
        log_replica.advance(at(2, 0), at(2, 0), ChangeCause::Snapshot, &mut sink);
        log_replica.handle_checksum(&checksum(at(2, 3)), &mut sink);
        log_replica.advance(at(2, 0), at(2, 3), ChangeCause::Snapshot, &mut sink);
        assert!(log_replica.is_whole());
        assert_eq!((counts.gaps, counts.holes, counts.gaps_healed), (0, 1, 1));
    }
}
