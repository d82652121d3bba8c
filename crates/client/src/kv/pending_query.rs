//! Queries about keys, leases and locks that were sent and have no response yet.

use std::time::Instant;

use dunlin_control::{ControlQuery, ControlQueryResult};

use super::{Kv, KvError};
use crate::pending_request::PendingRequest;

/// A query about keys, leases or locks that was sent and has no response yet. Several queries may be in flight. If they
/// arrive together, the node answers all of them from the same state.
#[derive(Debug)]
#[must_use = "the result of a query that is not waited for is lost"]
pub struct PendingQuery {
    kv: Kv,
    request: PendingRequest,
}

impl PendingQuery {
    /// Reads the connection without waiting. Returns whether the query is over: it has a response, or it was lost.
    pub(crate) fn poll_answered(&self) -> bool {
        // The result of this read does not matter: if the connection is lost, `wait` returns the error.
        drop(self.kv.shared.try_pump());
        self.request.is_answered()
    }

    /// Waits for the response to the query.
    pub fn wait(self) -> Result<ControlQueryResult, KvError> {
        let PendingQuery { kv, request } = self;
        let bytes = request.wait(Some(Instant::now() + kv.response_timeout()))?;
        Ok(ControlQueryResult::decode(kv.content(&bytes)?)?)
    }

    /// Async form of [`wait`](Self::wait).
    #[cfg(feature = "tokio")]
    pub async fn answered(self) -> Result<ControlQueryResult, KvError> {
        let PendingQuery { kv, request } = self;
        let bytes = request.answered().await?;
        Ok(ControlQueryResult::decode(kv.content(&bytes)?)?)
    }
}

impl Kv {
    /// Sends a query as soon as there is a connection. Does not wait for the response, and does not send the query
    /// again if the connection is lost.
    pub fn begin_query(&self, query: &ControlQuery<'_>) -> Result<PendingQuery, KvError> {
        let mut bytes = Vec::new();
        query.encode(&mut bytes);
        Ok(PendingQuery { kv: self.clone(), request: self.send(self.query_kind, &bytes)? })
    }
}
