//! Clients that watch all changes of keys. A client requests the next changes repeatedly, each time from a random node.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dunlin_control::Change;
use dunlin_replica::protocol::{ReplicaRequest, ReplicaResponse};
use dunlin_replica::seed::SeededRandom;

use crate::replica_client::request_once;

const RESPONSE_TIMEOUT: Duration = Duration::from_millis(500);
/// The number of consecutive requests without success after which a client assumes that every node has compacted the
/// next change. A request has no success if a node responds that the change is not available.
const TRIES_MAX: u32 = 40;

/// The value of `until` with which all clients stop watching.
pub const GIVEN_UP: u64 = u64::MAX;

/// The changes that one client received, and the ranges of revisions that it could not receive because they were
/// compacted.
#[derive(Debug, Clone, Default)]
pub struct WatchTrace {
    /// All changes in order.
    pub changes: Vec<Change>,
    /// The ranges of revisions that the nodes had compacted, each with its first and last revision.
    pub compacted: Vec<(u64, u64)>,
}

/// Watches all changes. Stops when the client has received revision `until`, which is the last revision. The value 0 of
/// `until` means that the last revision is still unknown. Also stops if `until` becomes [`GIVEN_UP`].
pub fn watch(nodes: &BTreeMap<u64, SocketAddr>, seed: u64, until: &AtomicU64) -> WatchTrace {
    let (mut seed, mut watched, mut next) = (SeededRandom::new(seed), WatchTrace::default(), 1);
    let mut missed = 0;
    loop {
        let last = until.load(Ordering::Relaxed);
        if last == GIVEN_UP || last > 0 && next > last {
            return watched;
        }
        let node = nodes.values().nth(seed.between(0, nodes.len() as u64 - 1) as usize);
        let Some(&node) = node else { return watched };
        match request_once(node, &ReplicaRequest::Changes(next), RESPONSE_TIMEOUT) {
            Ok(ReplicaResponse::Changes(Some(changes))) => {
                missed = 0;
                next = changes.last().map_or(next, |last| last.revision + 1);
                watched.changes.extend(changes);
            }
            Ok(ReplicaResponse::Changes(None)) if missed < TRIES_MAX => missed += 1,
            Ok(ReplicaResponse::Changes(None)) => {
                if let Ok(ReplicaResponse::Status(status)) =
                    request_once(node, &ReplicaRequest::Status, RESPONSE_TIMEOUT)
                    && let Some(oldest) = status["oldest"].as_u64().filter(|oldest| *oldest > next)
                {
                    watched.compacted.push((next, oldest - 1));
                    next = oldest;
                }
            }
            _ => {}
        }
        std::thread::sleep(Duration::from_millis(seed.between(5, 30)));
    }
}
