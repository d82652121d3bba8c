//! The reports of a replica to its caller, and the replica's counters.

use std::sync::Arc;

use dunlin_topic::{Frame, LogName, Position, PublisherStatus};

/// A change of a replica's copy of the state of one log.
#[derive(Debug)]
pub struct StateChange<'a, F> {
    /// The log.
    pub log: &'a Arc<LogName>,
    /// Position of the state before the change. If there was no state, the sequence number is 0.
    pub from: Position,
    /// Position of the state after the change. Together with `from`, it gives the range of records that the change
    /// covers.
    pub to: Position,
    /// Cause of the change.
    pub cause: ChangeCause<'a>,
    /// The state after the change.
    pub state: &'a F,
}

impl<F> StateChange<'_, F> {
    /// Event time of the applied record, ns since the Unix epoch. A merged record has the event time of the last record
    /// in it. `None` for a snapshot, or if the record has no event time.
    pub fn event_time_ns(&self) -> Option<u64> {
        self.cause.frame()?.event_time_ns()
    }

    /// Time at which the owner appended the applied record, ns since the Unix epoch; `None` for a snapshot.
    pub fn append_time_ns(&self) -> Option<u64> {
        Some(self.cause.frame()?.append_time_ns())
    }
}

/// The cause of a change of a replica's state: a record, a merged record or a snapshot.
#[derive(Debug, Clone, Copy)]
pub enum ChangeCause<'a> {
    /// The next record of the log was applied to the state.
    Record(Frame<'a>),
    /// A record that merges several records of the log was applied to the state.
    Merged(Frame<'a>),
    /// A snapshot replaced the state.
    Snapshot,
}

impl<'a> ChangeCause<'a> {
    /// The record, or merged record, that was applied; `None` for a snapshot.
    pub fn frame(&self) -> Option<Frame<'a>> {
        match *self {
            ChangeCause::Record(frame) | ChangeCause::Merged(frame) => Some(frame),
            ChangeCause::Snapshot => None,
        }
    }
}

/// The reason why a replica's copy of a state is wrong or incomplete. The replica requests the data for the repair
/// without the caller's help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplicaFault {
    /// Records are missing.
    Hole {
        /// Sequence number of the first missing record.
        first: u64,
        /// Sequence number of the last missing record.
        last: u64,
    },
    /// The checksum of the copy differs from the checksum of the owner's state at the same position.
    Diverged {
        /// Position at which both checksums were computed.
        at: Position,
        /// Checksum of the owner's state.
        owner: u64,
        /// Checksum of the replica's copy.
        own: u64,
    },
    /// The reducer refused a record or a snapshot.
    Refused {
        /// Position of the refused record or snapshot.
        at: Position,
        /// The reason why it was refused.
        why: String,
    },
    /// The log began a new epoch that does not continue the replica's state. The owner sends the state of the new
    /// epoch.
    NewEpoch {
        /// Position of the last record in the replica's state, in the old epoch.
        last: Position,
        /// The new epoch.
        epoch: u32,
    },
    /// A record or checksum arrived for a log whose state the replica does not have.
    Unknown {
        /// Position of the record or checksum.
        at: Position,
    },
}

/// A report of a replica to its caller, such as a change of a state, a fault, or a checksum that agrees.
#[derive(Debug)]
pub enum ReplicaReport<'a, F> {
    /// The state of a log changed.
    Changed(StateChange<'a, F>),
    /// A checksum of the owner's state arrived, and the replica's state has the same checksum.
    Agreed {
        /// The log.
        log: &'a Arc<LogName>,
        /// Position of the state.
        at: Position,
        /// The state.
        state: &'a F,
    },
    /// The state of a log is wrong or incomplete. Until the state is repaired, no change of it is reported.
    Fault {
        /// The log.
        log: &'a Arc<LogName>,
        /// The fault.
        fault: ReplicaFault,
    },
    /// The owner of the log has reported whether a publisher is connected.
    Publishers(&'a PublisherStatus),
    /// The log was deleted. After this report, the replica drops the log's state.
    Deleted {
        /// The log.
        log: &'a Arc<LogName>,
        /// The log's last state.
        state: &'a F,
    },
}

/// Counters of a replica over all logs: applied records and snapshots, gaps, faults and repairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReplicaCounts {
    /// Number of records applied one by one.
    pub records: u64,
    /// Number of applied records that merge several records.
    pub conflated: u64,
    /// Number of applied snapshots.
    pub snapshots: u64,
    /// Number of gaps that the owners of the logs reported.
    pub gaps: u64,
    /// How many times the replica itself detected missing records.
    pub holes: u64,
    /// How many times a state became whole again after a gap or another fault.
    pub gaps_healed: u64,
    /// How many times the checksum of a state differed from the owner's.
    pub divergent: u64,
    /// Number of records and snapshots that a reducer refused.
    pub refused: u64,
    /// Number of requests for missing records or states. A repeated request counts once.
    pub resyncs: u64,
    /// How many times a request was repeated because there was no response.
    pub retries: u64,
    /// Number of checksums from owners that were equal to the checksum of the replica's state.
    pub checked: u64,
    /// Number of ignored events: records that had been received before, and events of a log whose state was being
    /// repaired.
    pub ignored: u64,
}
