//! Closes a connection. Its pending output is sent first, and the client gets time to read it.
//!
//! Invariant: GOODBYE is sent only after the responses to all accepted commands and queries, and no message is accepted
//! after GOODBYE. A client that has received GOODBYE therefore knows that requests without a response were not
//! executed.

use bytes::BytesMut;
use dunlin::Refused;
use dunlin::wire::{ALL_ANSWERED, ErrorCode, FromNode, Goodbye, Heartbeat, MessageList, Preamble};

use crate::departures::describe_refusal;
use crate::tcp::session::access::LoginState;
use crate::tcp::session::{ConnectionLost, Phase, Session};

/// How long a client may take to read the pending output, ms.
const CLOSE_TIMEOUT_MS: u32 = 1_000;
/// Longest time for which a closing session waits until all its requests have responses, ms. No command takes longer.
const RESPONSES_MS_MAX: u32 = 7_000;
/// The time after which clients should reconnect to a node that stops, ms. GOODBYE states it.
const RECONNECT_AFTER_MS: u32 = 100;

/// The state of a closing connection with Dunlin's own protocol.
#[derive(Debug, Default)]
pub(super) struct Closing {
    /// Whether GOODBYE must still be sent. It is sent when all accepted requests have their responses.
    goodbye_pending: bool,
    /// How long the session has already waited for responses, ms.
    waited_ms: u32,
    /// Whether the session has already closed its sending direction.
    has_shut_down: bool,
    /// Whether the session may end now, because the time limit for closing has passed or the client has disconnected.
    pub(super) is_over: bool,
}

impl Session {
    /// Sends an error to the client, and begins to close the connection.
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

    /// Returns the lag of the log in which the client is most behind, in records; 0 if the client reads no log.
    fn lag_max(&self) -> u64 {
        self.channels.values().map(|channel| channel.cursor.lag()).max().unwrap_or(0)
    }

    /// Whether the session must close because the node stops. Connections of other nodes close after those of clients,
    /// so that the other nodes still receive the clients' last records.
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
        let all_responded = self.ending.is_empty()
            && self.control_requests.all_responded()
            && self.task_requests.all_responded();
        let Phase::Closing(closing) = &mut self.phase else { return };
        if all_responded && std::mem::take(&mut closing.goodbye_pending) {
            let numbers = [ALL_ANSWERED, 0, 0];
            let reason = Refused { numbers, ..Refused::new(ErrorCode::ShuttingDown, "") };
            let (reconnect_after_ms, reason) = (RECONNECT_AFTER_MS, reason.as_wire());
            self.outbound.push(FromNode::Goodbye(Goodbye { reconnect_after_ms, reason }));
            self.timer.set_ms(CLOSE_TIMEOUT_MS);
        }
    }

    /// Called when the time limit for closing has passed. Ends the session, unless responses are pending: without these
    /// responses, the client would not know the outcomes of its commands.
    pub(super) fn on_close_timeout(&mut self) {
        let Phase::Closing(closing) = &mut self.phase else { return };
        closing.is_over = !closing.goodbye_pending || closing.waited_ms >= RESPONSES_MS_MAX;
        if !closing.is_over {
            let wait_ms = self.shared.limits.heartbeat_ms.clamp(1, CLOSE_TIMEOUT_MS);
            closing.waited_ms += wait_ms;
            self.timer.set_ms(wait_ms);
            // Without a heartbeat, the client would assume that the node is dead.
            self.outbound.push(FromNode::Heartbeat(Heartbeat { channels: MessageList::new(&[]) }));
        }
    }

    /// Refuses the client because the server admits no further session.
    pub(super) fn refuse_connection(&mut self) {
        self.send_preamble(Preamble::OURS);
        self.fail(&self.shared.admission_refusal());
    }

    /// Stops handling messages and sending records. From now on, only pending output is sent.
    pub(super) fn begin_closing(&mut self) {
        if self.is_closing() {
            return;
        }
        self.phase = Phase::Closing(Closing::default());
        self.channel_queue.clear();
        self.leave_groups();
        self.unread = BytesMut::new();
        self.unread_charge.release();
        self.timer.set_ms(CLOSE_TIMEOUT_MS);
    }

    /// Whether the connection may be dropped. The session first waits until the client has closed its side: if a socket
    /// with unread bytes is closed, the system discards output that is in transit.
    pub(super) fn may_close(&mut self) -> Result<bool, ConnectionLost> {
        self.send_goodbye_if_due();
        let Phase::Closing(closing) = &mut self.phase else { return Ok(false) };
        if self.outbound.is_empty()
            && self.stream.is_flushed()
            && self.pending_acks.is_empty()
            && self.announcing.is_empty()
            && self.ending.is_empty()
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
