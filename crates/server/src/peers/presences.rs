//! Announces the publishers of this node to the nodes that own the publishers' topics.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin::PublisherPresence;
use dunlin::topic::ProducerMark;
use dunlin::wire::{NO_PRODUCER, PRESENT};
use dunlin_client::{Client, Relay};

/// Pause between two checks for publishers that have left. An owner learns after at most this time that the last
/// publisher has left.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The presences of publishers that were announced over one connection.
#[derive(Default)]
pub(super) struct Presences {
    announced: Vec<(Arc<PublisherPresence>, Relay)>,
    last_check: Option<Instant>,
}

impl Presences {
    /// Announces the presences in `new`, and withdraws announced presences that are no longer needed.
    pub(super) fn advance(&mut self, client: &Client, new: Vec<Arc<PublisherPresence>>) {
        let mark = Some(ProducerMark { producer: NO_PRODUCER, producer_epoch: PRESENT, producer_seq: 0 });
        self.announced.extend(new.into_iter().map(|presence| {
            let relay = client.relay(&presence.pattern, mark);
            (presence, relay)
        }));
        if self.announced.is_empty()
            || self.last_check.is_some_and(|last_check| last_check.elapsed() < CHECK_INTERVAL)
        {
            return;
        }
        self.last_check = Some(Instant::now());
        // A refused presence is ended too. The presence is then announced again, because the owner may not have known
        // the topic yet.
        let is_finished = |(presence, relay): &mut (Arc<PublisherPresence>, Relay)| {
            !presence.is_needed() || relay.is_refused()
        };
        for (presence, relay) in self.announced.extract_if(.., is_finished).collect::<Vec<_>>() {
            drop(relay);
            presence.ended();
        }
    }

    /// Ends all presences, because the connection was lost.
    pub(super) fn end(self) {
        for (presence, relay) in self.announced {
            drop(relay);
            presence.ended();
        }
    }
}
