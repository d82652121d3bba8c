//! The calls of `dunlin.v1.Kv` for leases.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use dunlin::state::{ControlCommand, ControlQuery, ControlQueryResult, ControlReply};
use dunlin::wire::ErrorCode;
use dunlin::{Consistency, Refused};
use tokio_stream::Stream;
use tonic::{Status, Streaming};

use super::super::connection::GrpcConnection;
use super::super::proto::dunlin as v1;
use super::super::status::{status, with_protocol_code};
use super::super::unfold::unfold;
use super::call_lifetime::CallLifetime;
use super::{command, run_query, unexpected_reply};

/// Maximum number of leases that one command to the cluster renews.
const LEASES_MAX: usize = 64;

pub(super) async fn grant(
    connection: &GrpcConnection,
    ttl_ms: u64,
) -> Result<v1::LeaseGrantResponse, Refused> {
    match command(connection, &ControlCommand::Grant { ttl_ms }, 0).await? {
        ControlReply::Granted { lease, ttl_ms } => Ok(v1::LeaseGrantResponse { lease, ttl_ms }),
        _ => Err(unexpected_reply()),
    }
}

pub(super) async fn time_to_live(
    connection: &GrpcConnection,
    lease: u64,
) -> Result<v1::LeaseTimeToLiveResponse, Refused> {
    let ControlQueryResult::Leases { leases, .. } =
        run_query(connection, &ControlQuery::Lease { lease }, Consistency::Linearizable).await?
    else {
        return Err(unexpected_reply());
    };
    let none = || Refused { numbers: [lease, 0, 0], ..Refused::new(ErrorCode::NoLease, "") };
    let state = leases.first().ok_or_else(none)?;
    let (ttl_ms, left_ms, keys, waits) = (state.ttl_ms, state.left_ms, state.keys, state.waits);
    Ok(v1::LeaseTimeToLiveResponse { ttl_ms, left_ms, keys, waits })
}

/// The state of a client's stream of lease renewals.
struct KeepAliveState {
    connection: Arc<GrpcConnection>,
    requests: Streaming<v1::LeaseKeepAliveRequest>,
    lifetime: CallLifetime,
    responses: Vec<v1::LeaseKeepAliveResponse>,
    is_over: bool,
    /// The error that ends the stream after the pending responses.
    failed: Option<Status>,
}

pub(super) fn keep_alive(
    connection: &Arc<GrpcConnection>,
    requests: Streaming<v1::LeaseKeepAliveRequest>,
) -> Result<impl Stream<Item = Result<v1::LeaseKeepAliveResponse, Status>> + Send + use<>, Refused> {
    let state = KeepAliveState {
        connection: Arc::clone(connection),
        requests,
        lifetime: CallLifetime::new(connection)?,
        responses: Vec::new(),
        is_over: false,
        failed: None,
    };
    Ok(unfold(state, KeepAliveState::step))
}

impl KeepAliveState {
    async fn step(mut self) -> Option<(Result<v1::LeaseKeepAliveResponse, Status>, KeepAliveState)> {
        if self.responses.is_empty() && !self.is_over {
            let renewed = self.renew_requested().await;
            if let Err(ended) = renewed {
                self.is_over = true;
                return Some((Err(ended), self));
            }
        }
        match self.responses.pop() {
            Some(response) => Some((Ok(response), self)),
            None => self.failed.take().map(|ended| (Err(ended), self)),
        }
    }

    /// Renews the leases for which the client has sent renewal requests.
    async fn renew_requested(&mut self) -> Result<(), Status> {
        let Some(first) = std::future::poll_fn(|cx| self.poll_next(cx)).await? else { return Ok(()) };
        let mut leases = vec![first];
        while leases.len() < LEASES_MAX {
            match std::future::poll_fn(|cx| Poll::Ready(self.poll_next(cx))).await {
                Poll::Ready(Ok(Some(lease))) => leases.push(lease),
                Poll::Pending => break,
                Poll::Ready(end) => {
                    self.is_over = true;
                    self.failed = end.err();
                    break;
                }
            }
        }
        let renewal = ControlCommand::KeepAlive { leases: leases.clone() };
        let renewed = command(&self.connection, &renewal, 0).await.map_err(|refused| status(&refused))?;
        let ControlReply::KeptAlive { ended } = renewed else { return Err(status(&unexpected_reply())) };
        let response = |lease| v1::LeaseKeepAliveResponse { lease, ended: ended.contains(&lease) };
        self.responses = leases.into_iter().rev().map(response).collect();
        Ok(())
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<u64>, Status>> {
        if let Err(ended) = self.lifetime.poll(cx) {
            return Poll::Ready(Err(status(&ended)));
        }
        let next = Pin::new(&mut self.requests).poll_next(cx);
        next.map(|next| {
            let request = next.transpose().map_err(with_protocol_code)?;
            Ok(request.map(|request| request.lease))
        })
    }
}
