//! The session's timer: a client that says nothing at first, one that does not come to the end of an operation, one that is
//! there no more, the end of waiting for room, and the end of closing.

use dunlin::now_ns;
use dunlin::wire::nats::PING;

use super::publish::Blocked;
use super::{Phase, Session};

/// A client that trickles is read about as often.
const HELD_MS: u32 = 200;

impl Session {
    pub(super) fn on_timer(&mut self) {
        match &mut self.phase {
            Phase::Greeting => self.fail("Authentication Timeout"),
            // What waits for room looks again, be it that its patience is over.
            Phase::Open if self.blocked.is_some() => self.blocked.iter_mut().for_each(Blocked::try_again),
            Phase::Open if self.is_held => self.end_hold(),
            Phase::Open if self.unread_is_watched => self.look_at_unread(),
            Phase::Open => self.ping(),
            Phase::Closing(closing) => closing.is_over = true,
        }
    }

    /// Something was read; what is left is the start of an operation, of another than before if that `is_new`.
    pub(super) fn watch_unread(&mut self, is_new: bool) {
        if self.unread.is_empty() || self.blocked.is_some() || self.is_waiting() {
            self.unread_since_ns = 0;
        } else if is_new || self.unread_since_ns == 0 {
            self.unread_since_ns = now_ns();
        }
        if self.unread_since_ns > 0 && !self.unread_is_watched && matches!(self.phase, Phase::Open) {
            self.unread_is_watched = true;
            self.timer.set_ms(self.shared.limits.nats.publish_ms_max);
        }
    }

    /// Reads nothing for a while.
    pub(super) fn hold(&mut self) {
        // Many that are held at once do not come back at once.
        self.hold_for(HELD_MS + (self.id % u64::from(HELD_MS)) as u32);
    }

    /// Reads nothing for so long.
    pub(super) fn hold_for(&mut self, ms: u32) {
        self.is_held = true;
        self.timer.set_ms(ms);
    }

    fn end_hold(&mut self) {
        self.is_held = false;
        self.look_at_unread();
    }

    /// Who sends an operation by halves holds memory for it.
    fn look_at_unread(&mut self) {
        let ms_max = self.shared.limits.nats.publish_ms_max;
        let waited_ms = now_ns().saturating_sub(self.unread_since_ns) / 1_000_000;
        self.unread_is_watched = self.unread_since_ns > 0;
        if self.unread_since_ns == 0 {
            self.ask_now_and_then();
        } else if waited_ms >= u64::from(ms_max) {
            self.cut_off(&format!("an operation took longer than nats.publish_ms_max, {ms_max}"));
        } else {
            self.timer.set_ms(ms_max - waited_ms as u32);
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
        // There is one timer: an operation that comes slowly is watched anew.
        self.unread_is_watched = false;
        self.timer.set_ms(self.shared.limits.nats.ping_ms);
    }
}
