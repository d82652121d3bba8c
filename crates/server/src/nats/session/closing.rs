//! Closes a connection: pending output is sent first, and the client gets time to read it.

use dunlin::wire::nats;

use super::{Phase, Session};
use crate::session::ConnectionLost;

/// How long a client has to read pending output, ms.
const CLOSE_TIMEOUT_MS: u32 = 1_000;

/// The reason that operators see for a client that reads too slowly.
const SLOW_CONSUMER: &str = "Slow Consumer";

/// The progress of closing a NATS connection.
#[derive(Debug, Default)]
pub(super) struct Closing {
    /// Whether the session has shut down its sending direction.
    has_shut_down: bool,
    /// Whether the time to close is over, or the client has disconnected.
    pub(super) is_over: bool,
}

impl Session {
    /// Sends an error to the client, and begins to close.
    pub(super) fn fail(&mut self, text: &str) {
        if !self.is_closing() {
            match self.phase {
                Phase::Open => self.session_trace.cut_off(text, self.lag_max()),
                _ => self.session_trace.connection_refused(text),
            }
            nats::put_error(&mut self.outbound.control, text);
            self.begin_closing();
        }
    }

    /// Closes the connection of a client that lost records by reading too slowly, as nats-server does.
    pub(super) fn close_slow_consumer(&mut self) {
        self.disconnect(SLOW_CONSUMER);
    }

    /// Closes the connection of a client that violated no rule. Sends no `-ERR`, because client libraries do not
    /// reconnect after one. Operators see the reason.
    pub(super) fn disconnect(&mut self, why: &str) {
        if !self.is_closing() {
            self.session_trace.cut_off(why, self.lag_max());
            self.begin_closing();
        }
    }

    /// The largest number of records that the client still has to read in one log.
    fn lag_max(&self) -> u64 {
        self.channels.values().map(|channel| channel.cursor.lag()).max().unwrap_or(0)
    }

    /// Stops handling operations and sending records, and only sends pending output. The client receives no error, so
    /// client libraries reconnect.
    pub(super) fn begin_closing(&mut self) {
        if self.is_closing() {
            return;
        }
        if self.shared.is_stopping() {
            self.session_trace.node_is_stopping();
            // This INFO message announces that the node stops. A client that has just connected received the
            // announcement in its first INFO.
            self.write_info_again();
        }
        self.phase = Phase::Closing(Closing::default());
        self.channel_queue.clear();
        self.leave_groups();
        self.blocked = None;
        // The rest of an incomplete operation is read and dropped like other input, without memory for all of it.
        self.unread = Vec::new();
        self.unread_needs = 0;
        self.unread_charge.release();
        self.timer.set_ms(CLOSE_TIMEOUT_MS);
    }

    /// Whether the connection may be dropped. The session first waits until the client has closed its side: closing a
    /// socket that has unread bytes would discard output that is still being sent.
    pub(super) fn may_close(&mut self) -> Result<bool, ConnectionLost> {
        let Phase::Closing(closing) = &mut self.phase else { return Ok(false) };
        let is_all_sent = self.outbound.is_empty() && self.refusals.is_empty();
        if is_all_sent && self.stream.is_flushed() && !closing.has_shut_down {
            closing.has_shut_down = true;
            self.stream.shutdown_write().map_err(|_| ConnectionLost)?;
        }
        Ok(closing.is_over)
    }
}
