//! What answers to a request know of where it came from.

use std::net::SocketAddr;
use std::sync::Arc;

use dunlin::Node;

use crate::config::Limits;
use crate::shared::Shared;

/// A connection, as its requests see it; cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Context(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    peer: Option<SocketAddr>,
    is_local: bool,
}

impl Context {
    pub(super) fn new(shared: Arc<Shared>, peer: Option<SocketAddr>, is_local: bool) -> Context {
        Context(Arc::new(Inner { shared, peer, is_local }))
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    pub(super) fn node(&self) -> &Node {
        &self.0.shared.node
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.0.shared.limits
    }

    /// Whether it came in at an address that only this machine reaches.
    pub(super) fn is_local(&self) -> bool {
        self.0.is_local
    }

    pub(super) fn peer_address(&self) -> Option<SocketAddr> {
        self.0.peer
    }

    /// For people.
    pub(super) fn peer(&self) -> String {
        self.0.peer.map_or_else(|| "?".to_owned(), |peer| peer.to_string())
    }
}
