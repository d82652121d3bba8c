//! The buffers and the write pacing that all sessions of a thread share.

use std::cell::Cell;

use super::pace::WritePacer;
use crate::nats::NatsScratch;
use crate::tcp::WriteScratch;

/// Maximum number of bytes that one read takes from a socket.
pub(crate) const READ_BYTES: usize = 256 << 10;

#[derive(Debug)]
pub(crate) struct Scratch {
    pub(crate) read: Box<[u8]>,
    pub(crate) tcp: WriteScratch,
    pub(crate) nats: NatsScratch,
    pub(crate) pace: WritePacer,
}

impl Scratch {
    fn new() -> Scratch {
        Scratch {
            read: vec![0; READ_BYTES].into(),
            tcp: WriteScratch::default(),
            nats: NatsScratch::default(),
            pace: WritePacer::new(),
        }
    }
}

thread_local! {
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

pub(crate) fn with<T>(f: impl FnOnce(&mut Scratch) -> T) -> T {
    let mut scratch = SCRATCH.take().unwrap_or_else(|| Box::new(Scratch::new()));
    let result = f(&mut scratch);
    SCRATCH.set(Some(scratch));
    result
}
