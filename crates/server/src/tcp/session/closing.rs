//! Closes a connection. Pending output is sent first, and the client has time to read it.
//!
//! Invariant: GOODBYE is sent after the responses to all accepted commands and queries, and no message is accepted
//! after it. A client that receives GOODBYE knows that its other requests were not executed.

use dunlin::Refused;
use dunlin::wire::{ALL_ANSWERED, ErrorCode, FromNode, Goodbye, Heartbeat, MessageList, Preamble};

use crate::departures::describe_refusal;
use crate::tcp::session::access::LoginState;
use crate::tcp::session::{ConnectionLost, Phase, Session};

/// How long a client has to read pending output, ms.
const CLOSE_TIMEOUT_MS: u32 = 1_000;
/// Maximum time that a session waits until every request has its response, ms. No command takes longer.
const RESPONSES_MS_MAX: u32 = 7_000;
/// Time after which clients should reconnect when the node stops, ms.
const RECONNECT_AFTER_MS: u32 = 100;

/// The progress of closing a connection that uses Dunlin's own protocol.
#[derive(Debug, Default)]
pub(super) struct Closing {
    /// Whether GOODBYE must still be sent, once all accepted requests have their responses.
    goodbye_pending: bool,
    /// How long the session has waited for responses, ms.
    waited_ms: u32,
    /// Whether the session has shut down its sending direction.
    has_shut_down: bool,
    /// Whether the time to close is over, or the client has disconnected.
    pub(super) is_over: bool,
}

impl Session {
    /// Sends an error to the client, and begins to close.
    pub(super) fn fail(&mut self, refused: &Refused) {
        let message = match self.phase {
            Phase::Preamble | Phase::Hello => FromNode::Refused(refused.as_wire()),
            Phase::Open => FromNode::Error(refused.as_wire()),
            Phase::Closing(_) => return,
        };
        match self.phase {
            Phase::Open => self.session_trace.cut_off(&describe_refusal(refused), self.lag_max()),
            _ => self.session_trace.connection_refused(&describe_refusal(refused)),
        }
        self.outbound.push(message);
        self.begin_closing();
    }

    /// The largest lag of the client in any log, in records; 0 if the client reads no log.
    fn lag_max(&self) -> u64 {
        self.channels.values().map(|channel| channel.cursor.lag()).max().unwrap_or(0)
    }

    /// Whether the session must close. Connections of other nodes stay open until this node's clients have
    /// disconnected, so that those nodes receive the clients' last records.
    pub(super) fn must_close(&self) -> bool {
        match self.login_state {
            LoginState::Node => self.shared.is_stopping_nodes(),
            _ => self.shared.is_stopping(),
        }
    }

    pub(super) fn start_goodbye(&mut self) {
        self.session_trace.node_is_stopping();
        let is_open = matches!(self.phase, Phase::Open);
        self.begin_closing();
        if let Phase::Closing(closing) = &mut self.phase {
            closing.goodbye_pending |= is_open;
        }
        self.send_goodbye_if_due();
        if matches!(&self.phase, Phase::Closing(closing) if closing.goodbye_pending) {
            self.on_close_timeout();
        }
    }

    fn send_goodbye_if_due(&mut self) {
        let all_responded = self.control_requests.all_responded() && self.task_requests.all_responded();
        let Phase::Closing(closing) = &mut self.phase else { return };
        if all_responded && std::mem::take(&mut closing.goodbye_pending) {
            let numbers = [ALL_ANSWERED, 0, 0];
            let reason = Refused { numbers, ..Refused::new(ErrorCode::ShuttingDown, "") };
            let (reconnect_after_ms, reason) = (RECONNECT_AFTER_MS, reason.as_wire());
            self.outbound.push(FromNode::Goodbye(Goodbye { reconnect_after_ms, reason }));
            self.timer.set_ms(CLOSE_TIMEOUT_MS);
        }
    }

    /// Closes the session after its grace period. If responses are still pending, the session waits for them, because
    /// the client would otherwise not know the outcomes of its commands.
    pub(super) fn on_close_timeout(&mut self) {
        let Phase::Closing(closing) = &mut self.phase else { return };
        closing.is_over = !closing.goodbye_pending || closing.waited_ms >= RESPONSES_MS_MAX;
        if !closing.is_over {
            let wait_ms = self.shared.limits.heartbeat_ms.clamp(1, CLOSE_TIMEOUT_MS);
            closing.waited_ms += wait_ms;
            self.timer.set_ms(wait_ms);
            // Sends a heartbeat, because the client would otherwise take the node for dead.
            self.outbound.push(FromNode::Heartbeat(Heartbeat { channels: MessageList::new(&[]) }));
        }
    }

    /// Refuses the client because the node has reached its limit of connections.
    pub(super) fn refuse_connection(&mut self) {
        self.send_preamble(Preamble::OURS);
        self.fail(&self.shared.admission_refusal());
    }

    /// Stops handling messages and sending records, and only sends pending output.
    pub(super) fn begin_closing(&mut self) {
        if self.is_closing() {
            return;
        }
        self.phase = Phase::Closing(Closing::default());
        self.channel_queue.clear();
        self.leave_groups();
        self.unread = Vec::new();
        self.unread_charge.release();
        self.timer.set_ms(CLOSE_TIMEOUT_MS);
    }

    /// Whether the connection may be dropped. The session first waits until the client has closed its side: closing a
    /// socket that has unread bytes would discard output that is still being sent.
    pub(super) fn may_close(&mut self) -> Result<bool, ConnectionLost> {
        self.send_goodbye_if_due();
        let Phase::Closing(closing) = &mut self.phase else { return Ok(false) };
        if self.outbound.is_empty()
            && self.stream.is_flushed()
            && self.pending_acks.is_empty()
            && self.control_requests.all_responded()
            && self.task_requests.all_responded()
            && !closing.goodbye_pending
            && !closing.has_shut_down
        {
            closing.has_shut_down = true;
            self.stream.shutdown_write().map_err(|_| ConnectionLost)?;
        }
        Ok(closing.is_over)
    }
}
