//! Parts that the sessions of all protocols share: a thread's buffers and write pacing, busy polling, and charged
//! output.

pub(crate) mod outbound;
pub(crate) mod pace;
pub(crate) mod pieces;
pub(crate) mod scratch;
pub(crate) mod spin;
pub(crate) mod timer;

#[derive(Debug)]
pub(crate) struct ConnectionLost;

/// Whether a round of a session read, wrote or handled anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RoundProgress {
    Some,
    None,
}
