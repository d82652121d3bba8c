//! The session's timer. It limits how long the session waits for the first operation, the rest of an operation, a
//! `PONG`, room in a topic, or the client to close the connection.

use std::time::{Duration, Instant};

use dunlin::wire::nats::PING;

use super::publish::BlockedPublish;
use super::{Phase, Session};

/// Minimum pause in reading from a client that sends only a few bytes at a time, ms.
const TRICKLE_PAUSE_MS: u32 = 200;

impl Session {
    pub(super) fn on_timer(&mut self) {
        match &mut self.phase {
            Phase::Greeting => self.fail("Authentication Timeout"),
            // Tries the publish again. If its wait time has passed, the topic evicts its slowest subscriber, or the
            // publish is refused.
            Phase::Open if self.blocked.is_some() => self.blocked.iter_mut().for_each(BlockedPublish::retry),
            Phase::Open if self.reading_is_paused => self.resume_reading(),
            Phase::Open if self.unread_timer_is_set => self.check_unread_timeout(),
            Phase::Open => self.ping(),
            Phase::Closing(closing) => closing.is_over = true,
        }
    }

    /// Updates the time limit of an incomplete operation after a read. `is_new` says whether the operation began with
    /// this read.
    pub(super) fn track_unread(&mut self, is_new: bool) {
        if self.unread.is_empty() || self.blocked.is_some() || self.is_waiting() || self.has_unhandled {
            self.unread_since = None;
        } else if is_new || self.unread_since.is_none() {
            // The monotonic clock is used, so that a change of the system's time does not disconnect the client.
            self.unread_since = Some(Instant::now());
        }
        if self.unread_since.is_some() && !self.unread_timer_is_set && matches!(self.phase, Phase::Open) {
            self.unread_timer_is_set = true;
            self.timer.set_ms(self.shared.limits.nats.publish_ms_max);
        }
    }

    /// Pauses reading from a client that sends only a few bytes at a time.
    pub(super) fn pause_reading(&mut self) {
        // The pause depends on the session's number, so that sessions that pause at the same time do not all continue
        // at the same time.
        self.pause_reading_for(TRICKLE_PAUSE_MS + (self.id % u64::from(TRICKLE_PAUSE_MS)) as u32);
    }

    pub(super) fn pause_reading_for(&mut self, ms: u32) {
        self.reading_is_paused = true;
        self.timer.set_ms(ms);
    }

    fn resume_reading(&mut self) {
        self.reading_is_paused = false;
        self.check_unread_timeout();
    }

    /// Disconnects a client whose operation has been incomplete for too long.
    fn check_unread_timeout(&mut self) {
        let Some(since) = self.unread_since else { return self.start_ping_timer() };
        let ms_max = self.shared.limits.nats.publish_ms_max;
        let remaining = Duration::from_millis(ms_max.into()).saturating_sub(since.elapsed());
        if remaining.is_zero() {
            return self.disconnect(&format!("an operation took longer than nats.publish_ms_max = {ms_max}"));
        }
        self.unread_timer_is_set = true;
        self.timer.set_ms(remaining.as_nanos().div_ceil(1_000_000) as u32);
    }

    fn ping(&mut self) {
        let limits = &self.shared.limits.nats;
        if self.pings >= limits.pings_max {
            return self.fail("Stale Connection");
        }
        self.pings += 1;
        self.timer.set_ms(limits.ping_ms);
        // The `PING` does not wait until the client has read all records: a client that always has more records to read
        // would never get a `PING`, and would seem not to respond. If a message was sent only in part, its rest is sent
        // before the `PING`.
        self.outbound.control.extend_from_slice(PING);
    }

    pub(super) fn reset_pings(&mut self) {
        self.pings = 0;
    }

    pub(super) fn start_ping_timer(&mut self) {
        // The session has only one timer, which from now on measures the time until the next `PING`. If an operation is
        // incomplete, the next read sets the timer for the operation again.
        self.unread_timer_is_set = false;
        self.timer.set_ms(self.shared.limits.nats.ping_ms);
    }
}
