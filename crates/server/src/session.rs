//! Contains the parts that sessions of all protocols have in common: a thread's buffers and write pacing, busy polling,
//! limits of the work of one turn, and output that is charged to a memory budget.

pub(crate) mod outbound;
pub(crate) mod pace;
pub(crate) mod pieces;
pub(crate) mod scratch;
pub(crate) mod spin;
pub(crate) mod timer;
pub(crate) mod turn;

#[derive(Debug)]
pub(crate) struct ConnectionLost;

/// Whether a session has made progress in a round, that is, has read, written or handled anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RoundProgress {
    Some,
    None,
}
