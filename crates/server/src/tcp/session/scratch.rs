//! Buffers that all sessions of a thread share, and its pace.

use std::cell::Cell;

use super::pace::Pace;
use super::plan::Move;

/// Bytes read at once.
pub(super) const READ_BYTES: usize = 256 << 10;

/// The buffers of one thread.
#[derive(Debug)]
pub(super) struct Scratch {
    pub(super) read: Box<[u8]>,
    pub(super) write: WriteScratch,
    pub(super) pace: Pace,
}

#[derive(Debug, Default)]
pub(super) struct WriteScratch {
    /// What is sent from elsewhere than a segment: heads of runs, and spans too small to be lent.
    pub(super) gathered: Vec<u8>,
    /// Channels whose turn it is.
    pub(super) turn: Vec<u32>,
    /// What each message of the write means for its channel.
    pub(super) moves: Vec<Move>,
}

impl Scratch {
    fn new() -> Scratch {
        Scratch { read: vec![0; READ_BYTES].into(), write: WriteScratch::default(), pace: Pace::new() }
    }
}

thread_local! {
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

/// Lends the thread's buffers.
pub(super) fn with<T>(f: impl FnOnce(&mut Scratch) -> T) -> T {
    let mut scratch = SCRATCH.take().unwrap_or_else(|| Box::new(Scratch::new()));
    let result = f(&mut scratch);
    SCRATCH.set(Some(scratch));
    result
}
