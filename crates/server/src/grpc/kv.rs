//! The calls of `dunlin.v1.Kv`: the cluster's keys and values, leases and locks.
//!
//! Invariants:
//! - A command is proposed to the cluster once. If the command's outcome is unknown, the client receives an error that
//!   says so.
//! - A stream, or a call that waits for a lock, ends when the server stops or the user loses access.

mod call_lifetime;
mod changes;
mod leases;
mod translate;

use std::pin::Pin;
use std::sync::Arc;

use dunlin::state::{
    ControlCommand, ControlQuery, ControlQueryResult, ControlReply, FoundKeys, LOCKS, NOT_SHOWN,
};
use dunlin::wire::ErrorCode;
use dunlin::{Consistency, Refused};
use tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};
use v1::kv_server::Kv;

use super::calls::calls;
use super::connection::GrpcConnection;
use super::dispatch::charged_response;
use super::proto::dunlin as v1;
use super::status::status;
use crate::access::slow_down;
use crate::charging::result_dropped;
pub(super) use changes::watch;

/// The gRPC service for keys, leases and locks, for one connection.
#[derive(Debug, Clone)]
pub(super) struct KvService(pub(super) Arc<GrpcConnection>);

type ResponseStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The error for a reply of a kind that the command cannot have.
fn unexpected_reply() -> Refused {
    Refused::new(
        ErrorCode::Internal,
        "the cluster's reply does not fit the request; update all nodes to the same version",
    )
}

/// Executes a command in the cluster, if the user has the permission.
async fn command(
    connection: &GrpcConnection,
    command: &ControlCommand<'_>,
    bytes: usize,
) -> Result<ControlReply, Refused> {
    slow_down(connection.admit_command(command, bytes)).await?;
    connection.node.execute(command).await
}

async fn run_query(
    connection: &GrpcConnection,
    query: &ControlQuery<'_>,
    consistency: Consistency,
) -> Result<ControlQueryResult, Refused> {
    connection.node.query_keys(consistency, query).await
}

fn response<T>(outcome: Result<T, Refused>) -> Result<Response<T>, Status> {
    outcome.map(Response::new).map_err(|refused| status(&refused))
}

impl KvService {
    async fn command(
        &self,
        control_command: &ControlCommand<'_>,
        bytes: usize,
    ) -> Result<ControlReply, Refused> {
        command(&self.0, control_command, bytes).await
    }

    /// Executes a write. Returns the revision of the write and the number of changed keys.
    async fn write(&self, control_command: &ControlCommand<'_>, bytes: usize) -> Result<(u64, u64), Refused> {
        match self.command(control_command, bytes).await? {
            ControlReply::Changed { revision, keys } => Ok((revision, keys)),
            _ => Err(unexpected_reply()),
        }
    }

    async fn find(
        &self,
        query: &ControlQuery<'_>,
        consistency: Consistency,
    ) -> Result<v1::RangeResponse, Refused> {
        match run_query(&self.0, query, consistency).await? {
            ControlQueryResult::Found { revision, found } => Ok(translate::range_response(revision, &found)),
            _ => Err(unexpected_reply()),
        }
    }

    async fn transact(&self, request: &v1::TxnRequest) -> Result<v1::TxnResponse, Refused> {
        let command = translate::transaction(request)?;
        let bytes = prost::Message::encoded_len(request);
        match self.command(&command, bytes).await? {
            ControlReply::Transaction { revision, succeeded, results } => {
                Ok(translate::txn_response(request, revision, succeeded, &results))
            }
            _ => Err(unexpected_reply()),
        }
    }

    async fn acquire(&self, request: &v1::LockRequest) -> Result<v1::LockResponse, Refused> {
        let v1::LockRequest { name, lease, value, no_wait } = request;
        let control_command = ControlCommand::Acquire { name, lease: *lease, value, wait: !no_wait };
        if *no_wait {
            return match self.command(&control_command, name.len() + value.len()).await? {
                ControlReply::Held { token } => Ok(v1::LockResponse { token }),
                _ => Err(unexpected_reply()),
            };
        }
        slow_down(self.0.admit_command(&control_command, name.len() + value.len())).await?;
        let acquired = self.0.run_while_valid(self.0.node.acquire(name, *lease, value));
        let token = call_lifetime::until_call_ends(&self.0, acquired);
        Ok(v1::LockResponse { token: token.await? })
    }

    async fn leader_of(&self, name: &[u8]) -> Result<v1::LeaderResponse, Refused> {
        let key = [LOCKS, name].concat();
        match run_query(&self.0, &ControlQuery::Get { key: &key }, Consistency::Linearizable).await? {
            ControlQueryResult::Found { found: FoundKeys { items, .. }, .. } => {
                Ok(v1::LeaderResponse { kv: items.first().map(translate::pair) })
            }
            _ => Err(unexpected_reply()),
        }
    }

    async fn state(&self) -> Result<v1::StatusResponse, Refused> {
        match run_query(&self.0, &ControlQuery::Status, Consistency::Linearizable).await? {
            ControlQueryResult::Status { epoch, revision, keys, bytes, leases, .. } => {
                let [keys, bytes, leases] =
                    [keys, bytes, leases].map(|total| Some(total).filter(|total| *total != NOT_SHOWN));
                Ok(v1::StatusResponse { epoch, revision, keys, bytes, leases })
            }
            _ => Err(unexpected_reply()),
        }
    }
}

calls! {
    Kv for KvService {
        range(v1::RangeRequest) -> v1::RangeResponse;
        put(v1::PutRequest) -> v1::PutResponse;
        delete(v1::DeleteRequest) -> v1::DeleteResponse;
        txn(v1::TxnRequest) -> v1::TxnResponse;
        watch(v1::WatchRequest) -> ResponseStream<v1::WatchResponse> as WatchStream;
        status(v1::StatusRequest) -> v1::StatusResponse;
        lease_grant(v1::LeaseGrantRequest) -> v1::LeaseGrantResponse;
        lease_keep_alive(Streaming<v1::LeaseKeepAliveRequest>) -> ResponseStream<v1::LeaseKeepAliveResponse> as LeaseKeepAliveStream;
        lease_revoke(v1::LeaseRevokeRequest) -> v1::LeaseRevokeResponse;
        lease_time_to_live(v1::LeaseTimeToLiveRequest) -> v1::LeaseTimeToLiveResponse;
        lock(v1::LockRequest) -> v1::LockResponse;
        unlock(v1::UnlockRequest) -> v1::UnlockResponse;
        proclaim(v1::ProclaimRequest) -> v1::ProclaimResponse;
        leader(v1::LeaderRequest) -> v1::LeaderResponse;
    }
}

impl KvService {
    async fn range(self, request: Request<v1::RangeRequest>) -> Result<Response<v1::RangeResponse>, Status> {
        let request = request.into_inner();
        let consistency = if request.serializable { Consistency::Stale } else { Consistency::Linearizable };
        let found = self.find(&translate::query(&request), consistency).await;
        charged_response(&self.0, found, Refused::from)
    }

    async fn put(self, request: Request<v1::PutRequest>) -> Result<Response<v1::PutResponse>, Status> {
        let request = request.into_inner();
        let bytes = request.key.len() + request.value.len();
        let put = self.write(&translate::put(&request), bytes).await;
        response(put.map(|(revision, _)| v1::PutResponse { revision }))
    }

    async fn delete(
        self,
        request: Request<v1::DeleteRequest>,
    ) -> Result<Response<v1::DeleteResponse>, Status> {
        let request = request.into_inner();
        let deleted = async { self.write(&translate::delete(&request)?, request.key.len()).await };
        response(deleted.await.map(|(revision, deleted)| v1::DeleteResponse { revision, deleted }))
    }

    async fn txn(self, request: Request<v1::TxnRequest>) -> Result<Response<v1::TxnResponse>, Status> {
        charged_response(&self.0, self.transact(request.get_ref()).await, result_dropped)
    }

    /// The trait requires this method, but it is never called: [`SubscriptionBody`](super::delivery::SubscriptionBody)
    /// serves these calls.
    async fn watch(
        self,
        _request: Request<v1::WatchRequest>,
    ) -> Result<Response<ResponseStream<v1::WatchResponse>>, Status> {
        Err(status(&Refused::new(
            ErrorCode::Internal,
            "internal error: Watch was routed to the wrong handler",
        )))
    }

    async fn status(
        self,
        _request: Request<v1::StatusRequest>,
    ) -> Result<Response<v1::StatusResponse>, Status> {
        response(self.state().await)
    }

    async fn lease_grant(
        self,
        request: Request<v1::LeaseGrantRequest>,
    ) -> Result<Response<v1::LeaseGrantResponse>, Status> {
        response(leases::grant(&self.0, request.get_ref().ttl_ms).await)
    }

    async fn lease_keep_alive(
        self,
        request: Request<Streaming<v1::LeaseKeepAliveRequest>>,
    ) -> Result<Response<ResponseStream<v1::LeaseKeepAliveResponse>>, Status> {
        let renewals = leases::keep_alive(&self.0, request.into_inner());
        response(renewals.map(|renewals| Box::pin(renewals) as ResponseStream<v1::LeaseKeepAliveResponse>))
    }

    async fn lease_revoke(
        self,
        request: Request<v1::LeaseRevokeRequest>,
    ) -> Result<Response<v1::LeaseRevokeResponse>, Status> {
        let revoked = self.command(&ControlCommand::Revoke { lease: request.get_ref().lease }, 0).await;
        response(revoked.map(|_| v1::LeaseRevokeResponse {}))
    }

    async fn lease_time_to_live(
        self,
        request: Request<v1::LeaseTimeToLiveRequest>,
    ) -> Result<Response<v1::LeaseTimeToLiveResponse>, Status> {
        response(leases::time_to_live(&self.0, request.get_ref().lease).await)
    }

    async fn lock(self, request: Request<v1::LockRequest>) -> Result<Response<v1::LockResponse>, Status> {
        response(self.acquire(request.get_ref()).await)
    }

    async fn unlock(
        self,
        request: Request<v1::UnlockRequest>,
    ) -> Result<Response<v1::UnlockResponse>, Status> {
        let v1::UnlockRequest { name, lease } = request.get_ref();
        let released = self.command(&ControlCommand::Release { name, lease: *lease }, name.len()).await;
        response(released.map(|_| v1::UnlockResponse {}))
    }

    async fn proclaim(
        self,
        request: Request<v1::ProclaimRequest>,
    ) -> Result<Response<v1::ProclaimResponse>, Status> {
        let v1::ProclaimRequest { name, lease, value } = request.get_ref();
        let control_command = ControlCommand::Proclaim { name, lease: *lease, value };
        let proclaimed = self.command(&control_command, name.len() + value.len()).await;
        response(proclaimed.map(|_| v1::ProclaimResponse {}))
    }

    async fn leader(
        self,
        request: Request<v1::LeaderRequest>,
    ) -> Result<Response<v1::LeaderResponse>, Status> {
        charged_response(&self.0, self.leader_of(&request.get_ref().name).await, Refused::from)
    }
}
