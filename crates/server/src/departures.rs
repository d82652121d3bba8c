//! Lists the clients that were refused or disconnected recently, with the reasons, for operators.
//!
//! The list exists until the node ends; its last entry is the newest. If a client is refused or disconnected again for
//! the same reason, its entry counts the repetitions. A client that retries therefore removes no other entry from the
//! list.
//!
//! Limits: `departures_max` entries, of which the oldest is removed first. At most [`TEXT_BYTES_MAX`] bytes of each
//! text are kept.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use dunlin::{Refused, now_ns};

use crate::protocol::Protocol;

/// Number of bytes that are kept of a client's name and of a reason.
const TEXT_BYTES_MAX: usize = 256;

/// How the node ended a client's connection or request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DepartureKind {
    /// The node refused the client or one of its requests.
    Refused,
    /// The node ended the client's connection or subscription.
    CutOff,
}

impl DepartureKind {
    /// The name of this kind in the node's reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            DepartureKind::Refused => "refused",
            DepartureKind::CutOff => "cut off",
        }
    }
}

/// A client that the node refused or disconnected for one reason, once or repeatedly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientDeparture {
    pub(crate) protocol: Protocol,
    pub(crate) kind: DepartureKind,
    /// The client's name; empty if the client sent none.
    pub(crate) name: String,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) why: String,
    /// Number of records that the client still had to read when it was last disconnected.
    pub(crate) lag: u64,
    pub(crate) times: u64,
    pub(crate) first_ns: u64,
    pub(crate) last_ns: u64,
}

impl ClientDeparture {
    pub(crate) fn new(protocol: Protocol, kind: DepartureKind, why: &str) -> ClientDeparture {
        let now = now_ns();
        let (name, peer) = (String::new(), None);
        let why = truncate(why);
        ClientDeparture { protocol, kind, name, peer, why, lag: 0, times: 1, first_ns: now, last_ns: now }
    }

    pub(crate) fn of(self, name: &str, peer: Option<SocketAddr>) -> ClientDeparture {
        ClientDeparture { name: truncate(name), peer, ..self }
    }

    pub(crate) fn lag(self, lag: u64) -> ClientDeparture {
        ClientDeparture { lag, ..self }
    }

    /// The client's IP address. The port is left out, because it differs between connections of the same client.
    fn ip(&self) -> Option<IpAddr> {
        self.peer.map(|peer| peer.ip())
    }

    fn has_same_cause(&self, other: &ClientDeparture) -> bool {
        let key = |d: &ClientDeparture| (d.protocol, d.kind.name(), d.ip());
        key(self) == key(other) && self.name == other.name && self.why == other.why
    }
}

/// The clients that a node has recently refused or disconnected.
#[derive(Debug)]
pub(crate) struct Departures {
    departures_max: usize,
    entries: Mutex<VecDeque<ClientDeparture>>,
}

impl Departures {
    pub(crate) fn new(departures_max: usize) -> Departures {
        Departures { departures_max, entries: Mutex::default() }
    }

    pub(crate) fn note(&self, mut departure: ClientDeparture) {
        let mut entries = self.entries();
        if let Some(at) = entries.iter().position(|before| before.has_same_cause(&departure)) {
            // There is an entry at `at`, because `position` has just returned this index.
            let before = entries.remove(at).unwrap_or_else(|| departure.clone());
            departure.times += before.times;
            departure.first_ns = before.first_ns;
        }
        entries.push_back(departure);
        let excess = entries.len().saturating_sub(self.departures_max);
        entries.drain(..excess);
    }

    /// Returns up to `count` entries, beginning with the newest.
    pub(crate) fn newest(&self, count: usize) -> Vec<ClientDeparture> {
        self.entries().iter().rev().take(count).cloned().collect()
    }

    fn entries(&self) -> MutexGuard<'_, VecDeque<ClientDeparture>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Formats a refusal as its code and its text.
pub(crate) fn describe_refusal(refused: &Refused) -> String {
    match refused.text.as_str() {
        "" => refused.code.to_string(),
        text => format!("{}: {text}", refused.code),
    }
}

fn truncate(text: &str) -> String {
    text[..text.floor_char_boundary(TEXT_BYTES_MAX)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn departure(name: &str, port: u16) -> ClientDeparture {
        let peer = SocketAddr::from(([127, 0, 0, 1], port));
        ClientDeparture::new(Protocol::Nats, DepartureKind::CutOff, "Slow Consumer")
            .of(name, Some(peer))
            .lag(port.into())
    }

    #[test]
    fn repeated_disconnects_of_a_client_are_counted_in_one_entry() {
        let departures = Departures::new(10);
        departures.note(departure("slow", 1));
        departures.note(departure("other", 2));
        departures.note(departure("slow", 3));
        let newest = departures.newest(10);
        let listed: Vec<_> = newest.iter().map(|d| (d.name.as_str(), d.times, d.lag)).collect();
        assert_eq!(listed, [("slow", 2, 3), ("other", 1, 2)]);
        assert!(newest[0].first_ns <= newest[1].first_ns && newest[0].last_ns >= newest[1].last_ns);
    }

    #[test]
    fn list_of_recent_disconnects_is_limited_in_entries_and_text() {
        let departures = Departures::new(3);
        (0..10).for_each(|n| departures.note(departure(&format!("{n}é{}", "é".repeat(500)), n)));
        let newest = departures.newest(10);
        assert_eq!(newest.iter().map(|d| d.lag).collect::<Vec<_>>(), [9, 8, 7]);
        assert!(newest.iter().all(|d| d.name.len() <= TEXT_BYTES_MAX));
        assert_eq!(departures.newest(2).len(), 2);
    }
}
