//! Closes a connection. Pending output is sent first, and the client gets time to read it.

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
    /// Whether the session has closed its side of the connection.
    has_shut_down: bool,
    /// Whether the connection may be dropped: the client has closed its side, or the time to close has passed.
    pub(super) is_over: bool,
}

impl Session {
    /// Sends an error to the client, and begins to close the connection.
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

    /// Closes the connection of a client that did not violate the protocol. Sends no `-ERR`, because client libraries
    /// do not reconnect after an error. Operators see the reason `why`.
    pub(super) fn disconnect(&mut self, why: &str) {
        if !self.is_closing() {
            self.session_trace.cut_off(why, self.lag_max());
            self.begin_closing();
        }
    }

    /// The client's largest lag in any log, in records.
    fn lag_max(&self) -> u64 {
        self.channels.values().map(|channel| channel.cursor.lag()).max().unwrap_or(0)
    }

    /// Begins to close the connection: from now on, only pending output is sent. Sends no error, so that client
    /// libraries reconnect.
    pub(super) fn begin_closing(&mut self) {
        if self.is_closing() {
            return;
        }
        if self.shared.is_stopping() {
            self.session_trace.node_is_stopping();
            // This INFO message tells the client that the node stops. If no INFO was sent yet, the client's first INFO
            // will state that the node stops.
            self.write_info_again();
        }
        self.phase = Phase::Closing(Closing::default());
        self.channel_queue.clear();
        self.queue_leaving_groups();
        self.blocked = None;
        self.starting = None;
        self.arrived_logs.clear();
        self.draining.clear();
        // The rest of an incomplete operation is read and dropped, so it needs no buffer.
        self.unread = Vec::new();
        self.unread_needs = 0;
        self.unread_charge.release();
        self.timer.set_ms(CLOSE_TIMEOUT_MS);
    }

    /// Whether the connection may be dropped. The session waits until the client has closed its side, because closing a
    /// socket with unread bytes would discard output that is still being sent.
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
