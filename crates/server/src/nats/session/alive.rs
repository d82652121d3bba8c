//! The session's timer: a client that says nothing at first, one that is there no more, the end of waiting for room, and
//! the end of closing.

use dunlin::wire::nats::PING;

use super::publish::Blocked;
use super::{Phase, Session};

impl Session {
    pub(super) fn on_timer(&mut self) {
        match &mut self.phase {
            Phase::Greeting => self.fail("Authentication Timeout"),
            // What waits for room looks again, be it that its patience is over.
            Phase::Open if self.blocked.is_some() => self.blocked.iter_mut().for_each(Blocked::try_again),
            Phase::Open => self.ping(),
            Phase::Closing(closing) => closing.is_over = true,
        }
    }

    fn ping(&mut self) {
        let limits = &self.shared.limits.nats;
        if self.pings >= limits.pings_max {
            return self.fail("Stale Connection");
        }
        self.pings += 1;
        self.timer.set_ms(limits.ping_ms);
        // A client that takes nothing is not told more; it counts all the same.
        if self.outbound.is_empty() {
            self.outbound.control.extend_from_slice(PING);
        }
    }

    /// The client is there.
    pub(super) fn is_alive(&mut self) {
        self.pings = 0;
    }

    /// From now on the client is asked whether it is there.
    pub(super) fn ask_now_and_then(&mut self) {
        self.timer.set_ms(self.shared.limits.nats.ping_ms);
    }
}
