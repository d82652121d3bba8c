//! What the sessions of all doors have in common: the buffers and the pace of their thread, spinning, memory that is
//! charged to the node, and what waits to be sent.

pub(crate) mod outbound;
pub(crate) mod pace;
pub(crate) mod pieces;
pub(crate) mod scratch;
pub(crate) mod spin;
pub(crate) mod timer;

/// The connection is gone; there is nobody to talk to.
#[derive(Debug)]
pub(crate) struct Gone;

/// Whether anything was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    Some,
    None,
}
