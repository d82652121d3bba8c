//! What a replica tells of itself.

use std::sync::Arc;

use dunlin_topic::{Frame, LogName, Position, Publishers};

/// A log's state after a change.
#[derive(Debug)]
pub struct Change<'a, F> {
    /// The log.
    pub log: &'a Arc<LogName>,
    /// Where the state stood before; sequence 0 of the epoch when there was none.
    pub from: Position,
    /// Where it stands now.
    pub to: Position,
    /// What brought it there.
    pub by: By<'a>,
    /// The state now.
    pub state: &'a F,
}

impl<F> Change<'_, F> {
    /// When the source says that this happened, ns since the Unix epoch; of merged records that of the last.
    pub fn event_time_ns(&self) -> Option<u64> {
        self.by.frame()?.event_time_ns()
    }

    /// When it was appended, ns since the Unix epoch; snapshots do not say.
    pub fn append_time_ns(&self) -> Option<u64> {
        Some(self.by.frame()?.append_time_ns())
    }
}

/// What changes a state.
#[derive(Debug, Clone, Copy)]
pub enum By<'a> {
    /// The next record.
    Record(Frame<'a>),
    /// One record in the place of several.
    Merged(Frame<'a>),
    /// A state in the place of all records before it.
    Snapshot,
}

impl<'a> By<'a> {
    /// The record, or the one that stands for several.
    pub fn frame(&self) -> Option<Frame<'a>> {
        match *self {
            By::Record(frame) | By::Merged(frame) => Some(frame),
            By::Snapshot => None,
        }
    }
}

/// How a replica found out that its state is not what it should be. It asks to be brought back by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// Records from `first` to `last` never came.
    Hole {
        /// The first that is missing.
        first: u64,
        /// The last that is missing.
        last: u64,
    },
    /// The state adds up to something else than its owner's at the same position.
    Diverged {
        /// Where.
        at: Position,
        /// What it should add up to.
        owner: u64,
        /// What it does.
        own: u64,
    },
    /// A record or a snapshot that the state does not take in.
    Refused {
        /// Where it stands.
        at: Position,
        /// Why.
        why: String,
    },
    /// The log began anew after this position: its state is gone, and what it is by now follows.
    BeganAnew {
        /// The last record that the state held.
        last: Position,
        /// The log's new epoch.
        epoch: u32,
    },
    /// Records came of a log whose state is not known.
    Unknown {
        /// Where they begin.
        at: Position,
    },
}

/// What a replica has to tell, one thing after another.
#[derive(Debug)]
pub enum Report<'a, F> {
    /// A state changed.
    Changed(Change<'a, F>),
    /// The log's owner has said what the state adds up to, and it does.
    Agreed {
        /// The log.
        log: &'a Arc<LogName>,
        /// Where it stands.
        at: Position,
        /// The state.
        state: &'a F,
    },
    /// A state is wrong, or not whole; it does not change until it is brought back.
    Trouble {
        /// The log.
        log: &'a Arc<LogName>,
        /// What was noticed.
        trouble: Trouble,
    },
    /// Whether a publisher of the state is connected, as the log's owner says.
    Publishers(&'a Publishers),
    /// The log was deleted; its state is forgotten after this.
    Deleted {
        /// The log.
        log: &'a Arc<LogName>,
        /// Its last state.
        state: &'a F,
    },
}

/// What has happened to a replica so far, all its logs together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Records taken in, each by itself.
    pub records: u64,
    /// Records taken in that stood for several.
    pub conflated: u64,
    /// Snapshots taken in.
    pub snapshots: u64,
    /// Gaps that it was told of: what it lacked was no longer there.
    pub gaps: u64,
    /// Holes that nobody told it of, noticed by itself.
    pub holes: u64,
    /// Gaps and holes after which a state was whole again.
    pub gaps_healed: u64,
    /// States that did not add up to what their owner's did.
    pub divergent: u64,
    /// Records or snapshots that a state did not take in.
    pub refused: u64,
    /// How often it asked to be brought back, retries not counted.
    pub resyncs: u64,
    /// How often it asked once more because nothing came of it.
    pub retries: u64,
    /// Checksums that agreed.
    pub checked: u64,
    /// Records that came while the state was not whole, or once more.
    pub ignored: u64,
}
