//! Reports of a replica.

use std::sync::Arc;

use dunlin_topic::{Frame, LogName, Position, PublisherStatus};

/// A change of the state that a replica keeps of one log.
#[derive(Debug)]
pub struct StateChange<'a, F> {
    /// The log.
    pub log: &'a Arc<LogName>,
    /// Position before the change; sequence number 0 of the epoch if there was none.
    pub from: Position,
    /// Position now.
    pub to: Position,
    /// Cause of the change.
    pub cause: ChangeCause<'a>,
    /// The state now.
    pub state: &'a F,
}

impl<F> StateChange<'_, F> {
    /// Event time, ns since the Unix epoch; for merged records, the event time of the last one. `None` for snapshots,
    /// and if the record has no event time.
    pub fn event_time_ns(&self) -> Option<u64> {
        self.cause.frame()?.event_time_ns()
    }

    /// Time of the append, ns since the Unix epoch; `None` for snapshots.
    pub fn append_time_ns(&self) -> Option<u64> {
        Some(self.cause.frame()?.append_time_ns())
    }
}

/// The cause of a change of a replica's state: a record, a merged record or a snapshot.
#[derive(Debug, Clone, Copy)]
pub enum ChangeCause<'a> {
    /// The next record of the log was applied.
    Record(Frame<'a>),
    /// One record was applied that merges several records.
    Merged(Frame<'a>),
    /// A snapshot was applied. It replaces all records before it.
    Snapshot,
}

impl<'a> ChangeCause<'a> {
    /// The record, or the merged record.
    pub fn frame(&self) -> Option<Frame<'a>> {
        match *self {
            ChangeCause::Record(frame) | ChangeCause::Merged(frame) => Some(frame),
            ChangeCause::Snapshot => None,
        }
    }
}

/// The reason why a replica's state is wrong or incomplete. The replica requests the repair itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplicaFault {
    /// Records from `first` to `last` are missing.
    Hole {
        /// First missing record.
        first: u64,
        /// Last missing record.
        last: u64,
    },
    /// The state's checksum differs from its owner's at the same position.
    Diverged {
        /// Position of both states.
        at: Position,
        /// The owner's checksum.
        owner: u64,
        /// The replica's checksum.
        own: u64,
    },
    /// The state refused a record or a snapshot.
    Refused {
        /// Position of the record or snapshot.
        at: Position,
        /// The reason.
        why: String,
    },
    /// The log began a new epoch, which does not continue the state at this position. The owner sends the new state.
    NewEpoch {
        /// Position of the last record in the old state.
        last: Position,
        /// New epoch of the log.
        epoch: u32,
    },
    /// Records arrived for a log whose state is unknown.
    Unknown {
        /// Position of the first of these records.
        at: Position,
    },
}

/// A report of a replica to its caller: a change, a correct checksum, or a fault.
#[derive(Debug)]
pub enum ReplicaReport<'a, F> {
    /// A state changed.
    Changed(StateChange<'a, F>),
    /// The owner's checksum arrived and equals the state's.
    Agreed {
        /// The log.
        log: &'a Arc<LogName>,
        /// Position of the state.
        at: Position,
        /// The state.
        state: &'a F,
    },
    /// A state is wrong or incomplete; it does not change until it is repaired.
    Fault {
        /// The log.
        log: &'a Arc<LogName>,
        /// The fault.
        fault: ReplicaFault,
    },
    /// Whether a publisher of the state is connected, according to the log's owner.
    Publishers(&'a PublisherStatus),
    /// The log was deleted; the replica then forgets its state.
    Deleted {
        /// The log.
        log: &'a Arc<LogName>,
        /// The log's last state.
        state: &'a F,
    },
}

/// The number of records, snapshots, gaps and faults of a replica, over all of its logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReplicaCounts {
    /// Number of records applied one by one.
    pub records: u64,
    /// Number of applied records that merge several records.
    pub conflated: u64,
    /// Number of applied snapshots.
    pub snapshots: u64,
    /// Number of gaps that the log's owner reported.
    pub gaps: u64,
    /// How many times the replica itself detected missing records.
    pub holes: u64,
    /// How many times a state became whole again after gaps or holes.
    pub gaps_healed: u64,
    /// How many times a state's checksum differed from its owner's.
    pub divergent: u64,
    /// Number of records or snapshots that a state refused.
    pub refused: u64,
    /// Number of requests for repair, without retries.
    pub resyncs: u64,
    /// Number of repeated requests.
    pub retries: u64,
    /// Number of checksums that equalled the state's.
    pub checked: u64,
    /// Number of ignored records: repeated ones, and those that arrived while the state was not whole.
    pub ignored: u64,
}
