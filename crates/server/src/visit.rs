//! A connection as those see it who operate a node: who came, through which door, what it was sent, and why it ended.
//!
//! When it ends, its span does; a client that was cut off or refused is remembered among the
//! [`Departures`](crate::departures::Departures). Nothing here is done for a record: sessions count what a write took.

use std::net::SocketAddr;
use std::sync::Arc;

use dunlin::Refused;
use dunlin::wire::ErrorCode;
use tracing::Span;

use crate::departures::{Departure, Fate, in_words};
use crate::door::Door;
use crate::shared::Shared;
use crate::spans;
use crate::stream::Stream;

/// See the module.
#[derive(Debug)]
pub(crate) struct Visit {
    shared: Arc<Shared>,
    door: Door,
    peer: Option<SocketAddr>,
    name: Box<str>,
    records: u64,
    /// Why it ended, once that is known.
    why: Option<Box<str>>,
    span: Span,
}

impl Visit {
    pub(crate) fn begin(shared: &Arc<Shared>, door: Door, stream: &Stream, session: u64) -> Visit {
        let peer = stream.socket().and_then(|socket| socket.peer_addr().ok());
        let span = spans::of_session(door, peer, session);
        let shared = Arc::clone(shared);
        Visit { shared, door, peer, name: Box::default(), records: 0, why: None, span }
    }

    /// The client has said what it is called.
    pub(crate) fn is_called(&mut self, name: &str) {
        self.name = name.into();
        self.span.record("dunlin.client.name", name);
    }

    /// The client was sent so many records.
    pub(crate) fn sent(&mut self, records: u64) {
        self.records += records;
    }

    /// The connection is ended by the node, which tells the client why.
    pub(crate) fn cut_off(&mut self, why: &str, behind: u64) {
        if self.why.is_none() {
            self.note(Fate::CutOff, why, behind);
            self.why = Some(why.into());
        }
    }

    /// The client is not let in.
    pub(crate) fn turned_away(&mut self, why: &str) {
        if self.why.is_none() {
            self.note(Fate::Refused, why, 0);
            self.why = Some(why.into());
        }
    }

    /// The node stops, and there is nothing to complain about.
    pub(crate) fn ends_with_the_node(&mut self) {
        self.why.get_or_insert_with(|| ErrorCode::ShuttingDown.to_string().into());
    }

    /// A subscription was refused or ended; the connection goes on.
    pub(crate) fn subscription_ended(&self, refused: &Refused, behind: u64) {
        let fate = match refused.code {
            // Its own wish, and the ends that topics come to.
            ErrorCode::Asked | ErrorCode::Closed | ErrorCode::ShuttingDown => return,
            ErrorCode::Lost => Fate::CutOff,
            _ => Fate::Refused,
        };
        self.note(fate, &in_words(refused), behind);
    }

    /// The same, in the words of a door that has its own.
    pub(crate) fn subscription_refused(&self, why: &str) {
        self.note(Fate::Refused, why, 0);
    }

    fn note(&self, fate: Fate, why: &str, behind: u64) {
        let departure = Departure::new(self.door, fate, why).of(&self.name, self.peer);
        self.shared.departures.note(departure.behind(behind));
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        if !self.span.is_disabled() {
            spans::end_session(&self.span, self.records, self.why.as_deref());
        }
    }
}
