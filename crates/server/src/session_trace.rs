//! Records for operators what happened in a session: its client, its listener, how many records were sent, and why the
//! session ended.
//!
//! These data are in a tracing span, which ends with the session. If the client was refused or disconnected, it also
//! gets an entry in [`Departures`](crate::departures::Departures). No code here runs for each single record, because a
//! session counts records once for each write.

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

/// The tracing span of a session, and the data for a possible entry in [`Departures`](crate::departures::Departures).
#[derive(Debug)]
pub(crate) struct SessionTrace {
    shared: Arc<SharedServer>,
    protocol: Protocol,
    peer: Option<SocketAddr>,
    name: Box<str>,
    records: u64,
    /// Why the session ended; `None` while the session has no reason to end.
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

    /// Sets the name that the client has stated for itself.
    pub(crate) fn set_client_name(&mut self, name: &str) {
        self.name = name.into();
        self.span.record("dunlin.client.name", name);
    }

    /// Adds `records` to the number of records sent to the client.
    pub(crate) fn sent(&mut self, records: u64) {
        self.records += records;
    }

    /// Records that the node disconnects the client, and why. `lag` is the number of records that the client still had
    /// to read.
    pub(crate) fn cut_off(&mut self, why: &str, lag: u64) {
        if self.why.is_none() {
            self.note(DepartureKind::CutOff, why, lag);
            self.why = Some(why.into());
        }
    }

    /// Records that the node refuses the client's connection, and why.
    pub(crate) fn connection_refused(&mut self, why: &str) {
        if self.why.is_none() {
            self.note(DepartureKind::Refused, why, 0);
            self.why = Some(why.into());
        }
    }

    /// Records that the session ends because the node stops.
    pub(crate) fn node_is_stopping(&mut self) {
        self.why.get_or_insert_with(|| ErrorCode::ShuttingDown.to_string().into());
    }

    /// Records in [`Departures`](crate::departures::Departures) that a subscription was refused or ended. The session
    /// goes on.
    pub(crate) fn subscription_ended(&self, refused: &Refused, lag: u64) {
        let fate = match refused.code {
            // A subscription that the client ended, or that ended with its topic or with the node, is not recorded.
            ErrorCode::Ended | ErrorCode::Closed | ErrorCode::ShuttingDown => return,
            ErrorCode::Lost => DepartureKind::CutOff,
            _ => DepartureKind::Refused,
        };
        self.note(fate, &describe_refusal(refused), lag);
    }

    /// Records in [`Departures`](crate::departures::Departures) that a subscription was refused. `why` is worded as the
    /// listener's protocol reports it.
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
