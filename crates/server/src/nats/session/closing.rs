//! Closing a connection: pending output is sent first, and the client has time to read it.

use dunlin::wire::nats;

use super::{Phase, Session};
use crate::session::ConnectionLost;

/// How long a client has to read pending output, ms.
const FAREWELL_MS: u32 = 1_000;

/// The reason that operators see for a slow client.
const SLOW_CONSUMER: &str = "Slow Consumer";

#[derive(Debug, Default)]
pub(super) struct Closing {
    /// The direction to the client was shut down.
    ended_writing: bool,
    /// The time is over, or the client has disconnected.
    pub(super) is_over: bool,
}

impl Session {
    /// Sends an error to the client, and begins to close.
    pub(super) fn fail(&mut self, text: &str) {
        if !self.is_closing() {
            match self.phase {
                Phase::Open => self.session_trace.cut_off(text, self.behind()),
                _ => self.session_trace.connection_refused(text),
            }
            nats::refuse(&mut self.outbound.control, text);
            self.begin_closing();
        }
    }

    /// Closes the connection of a client that lost records by reading too slowly, as nats-server does.
    pub(super) fn close_slow_consumer(&mut self) {
        self.cut_off(SLOW_CONSUMER);
    }

    /// Closes the connection of a client that broke no rule. The client receives no `-ERR`, because libraries
    /// do not reconnect after one. Operators see the reason.
    pub(super) fn cut_off(&mut self, why: &str) {
        if !self.is_closing() {
            self.session_trace.cut_off(why, self.behind());
            self.begin_closing();
        }
    }

    /// The client's largest lag in one log, in records.
    fn behind(&self) -> u64 {
        self.channels.values().map(|channel| channel.cursor.behind()).max().unwrap_or(0)
    }

    /// Stops handling operations and sending records; pending output is still sent. Without an error, client
    /// libraries reconnect.
    pub(super) fn begin_closing(&mut self) {
        if self.is_closing() {
            return;
        }
        if self.shared.is_stopping() {
            self.session_trace.node_is_stopping();
            // The INFO message announces that the node stops. A new client has received that in its first
            // INFO.
            self.write_info_again();
        }
        self.phase = Phase::Closing(Closing::default());
        self.line.clear();
        self.leave_groups();
        self.blocked = None;
        self.unread = Vec::new();
        self.timer.set_ms(FAREWELL_MS);
    }

    /// Whether the connection may be dropped. The session first waits for the client's end, because closing a socket
    /// with unread bytes would discard output on its way to the client.
    pub(super) fn may_close(&mut self) -> Result<bool, ConnectionLost> {
        let Phase::Closing(closing) = &mut self.phase else { return Ok(false) };
        let all_is_said = self.outbound.is_empty() && self.refusals.is_empty();
        if all_is_said && self.stream.is_flushed() && !closing.ended_writing {
            closing.ended_writing = true;
            self.stream.end_writing().map_err(|_| ConnectionLost)?;
        }
        Ok(closing.is_over)
    }
}
