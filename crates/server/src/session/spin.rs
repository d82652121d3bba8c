//! Asking the socket again and again instead of waiting to be told, on threads that never park.
//!
//! To ask is cheaper than to be told, but it costs a system call each time; so a session that has been
//! quiet for a while waits to be told, like on other threads.

/// How often a session asks in vain before it waits to be told: some tens of milliseconds.
const VAIN_MAX: u32 = 100_000;

/// Turns at reading and writing before others of the thread get theirs.
const TURNS: usize = 8;

/// Whether a session asks, and how often it did in vain.
#[derive(Debug)]
pub(crate) struct Spin {
    allowed: bool,
    vain: u32,
}

impl Spin {
    pub(crate) fn new(allowed: bool) -> Spin {
        Spin { allowed, vain: 0 }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.allowed && self.vain < VAIN_MAX
    }

    /// Turns it may take at once. One that spins gets its next soon enough.
    pub(crate) fn turns(&self) -> usize {
        if self.is_on() { 1 } else { TURNS }
    }

    /// Something was read or written.
    pub(crate) fn not_in_vain(&mut self) {
        self.vain = 0;
    }

    /// Nothing was there. Whether to ask again.
    pub(crate) fn again(&mut self) -> bool {
        self.vain = self.vain.saturating_add(1);
        self.is_on()
    }
}
