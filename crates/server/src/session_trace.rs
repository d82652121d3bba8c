//! Traces of a session for operators: its client, its listener, the number of records sent to it, and why it ended.
//!
//! The tracing span ends with the session. A client that was disconnected or refused is added to
//! [`Departures`](crate::departures::Departures). No code here runs for each record, because sessions count records
//! once per write.

use std::net::SocketAddr;
use std::sync::Arc;

use dunlin::Refused;
use dunlin::wire::ErrorCode;
use tracing::Span;

use crate::departures::{ClientDeparture, DepartureKind, describe_refusal};
use crate::protocol::Protocol;
use crate::shared::SharedServer;
use crate::spans;
use crate::stream::Stream;

/// The tracing span of one session, and the data for its entry in [`Departures`](crate::departures::Departures).
#[derive(Debug)]
pub(crate) struct SessionTrace {
    shared: Arc<SharedServer>,
    protocol: Protocol,
    peer: Option<SocketAddr>,
    name: Box<str>,
    records: u64,
    /// Why the session ended; `None` until that is known.
    why: Option<Box<str>>,
    span: Span,
}

impl SessionTrace {
    pub(crate) fn begin(
        shared: &Arc<SharedServer>,
        protocol: Protocol,
        stream: &Stream,
        session: u64,
    ) -> SessionTrace {
        let peer = stream.socket().and_then(|socket| socket.peer_addr().ok());
        let span = spans::session_span(protocol, peer, session);
        let shared = Arc::clone(shared);
        SessionTrace { shared, protocol, peer, name: Box::default(), records: 0, why: None, span }
    }

    /// Sets the name by which the client identifies itself.
    pub(crate) fn set_client_name(&mut self, name: &str) {
        self.name = name.into();
        self.span.record("dunlin.client.name", name);
    }

    /// Counts `records` more records as sent to the client.
    pub(crate) fn sent(&mut self, records: u64) {
        self.records += records;
    }

    /// Stores that the node disconnects the client, after sending the reason.
    pub(crate) fn cut_off(&mut self, why: &str, lag: u64) {
        if self.why.is_none() {
            self.note(DepartureKind::CutOff, why, lag);
            self.why = Some(why.into());
        }
    }

    /// Stores that the node refuses the connection.
    pub(crate) fn connection_refused(&mut self, why: &str) {
        if self.why.is_none() {
            self.note(DepartureKind::Refused, why, 0);
            self.why = Some(why.into());
        }
    }

    /// Stores that the session ends because the node stops.
    pub(crate) fn node_is_stopping(&mut self) {
        self.why.get_or_insert_with(|| ErrorCode::ShuttingDown.to_string().into());
    }

    /// Adds a refused or ended subscription to the recent departures; the connection continues.
    pub(crate) fn subscription_ended(&self, refused: &Refused, lag: u64) {
        let fate = match refused.code {
            // Leaves out ends that the client requested, and ordinary ends of topics.
            ErrorCode::Ended | ErrorCode::Closed | ErrorCode::ShuttingDown => return,
            ErrorCode::Lost => DepartureKind::CutOff,
            _ => DepartureKind::Refused,
        };
        self.note(fate, &describe_refusal(refused), lag);
    }

    /// Adds a refused subscription to the recent departures. `why` is the reason in the words of the listener's
    /// protocol.
    pub(crate) fn subscription_refused(&self, why: &str) {
        self.note(DepartureKind::Refused, why, 0);
    }

    fn note(&self, fate: DepartureKind, why: &str, lag: u64) {
        let departure = ClientDeparture::new(self.protocol, fate, why).of(&self.name, self.peer);
        self.shared.departures.note(departure.lag(lag));
    }
}

impl Drop for SessionTrace {
    fn drop(&mut self) {
        if !self.span.is_disabled() {
            spans::end_session(&self.span, self.records, self.why.as_deref());
        }
    }
}
