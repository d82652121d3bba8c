//! The two measured servers: a node, which publishes the payloads of a call, and an echo server, which returns the
//! payloads. The calls are made with clients that tonic generates.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use dunlin_server::grpc::proto::dunlin as v1;
use tonic::transport::{Channel, Endpoint};
use v1::dunlin_client::DunlinClient;
use v1::publish_outcome::Outcome;

use super::node::{ServedProcess, TOPIC};
use super::proto::Message;
use super::proto::echo_client::EchoClient;
use crate::child::TIMEOUT;
use crate::cores::CorePinning;
use crate::point::{BenchContext, target};

/// A gRPC server to measure: a Dunlin node, or an echo server, which only returns the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callee {
    /// A Dunlin node.
    Node,
    /// A plain tonic server that echoes requests.
    Echo,
}

impl Callee {
    /// Both servers, in the order of their measurements.
    pub const ALL: [Callee; 2] = [Callee::Node, Callee::Echo];

    /// Returns the name of the server as the target of a measurement.
    pub fn target(self) -> &'static str {
        match self {
            Self::Node => target::DUNLIN,
            Self::Echo => target::TONIC,
        }
    }

    /// Starts the server in a process of its own.
    pub fn start(self, bench: &BenchContext, pin: CorePinning) -> Result<ServedProcess> {
        match self {
            Self::Node => ServedProcess::node(bench, pin, (0, 0)),
            Self::Echo => ServedProcess::echo(bench, pin),
        }
    }

    /// Connects to the server at `address`.
    pub async fn connect(self, address: SocketAddr) -> Result<Caller> {
        let channel = channel(address).await?;
        Ok(match self {
            Self::Node => Caller::Node(DunlinClient::new(channel)),
            Self::Echo => Caller::Echo(EchoClient::new(channel)),
        })
    }
}

/// Opens a connection to `address`.
pub async fn channel(address: SocketAddr) -> Result<Channel> {
    let endpoint =
        Endpoint::from_shared(format!("http://{address}"))?.connect_timeout(TIMEOUT).timeout(TIMEOUT);
    endpoint.connect().await.with_context(|| format!("cannot connect to {address}"))
}

/// A gRPC client of a measured server.
#[derive(Clone, Debug)]
pub enum Caller {
    /// A client of a node.
    Node(DunlinClient<Channel>),
    /// A client of the echo server.
    Echo(EchoClient<Channel>),
}

impl Caller {
    /// Makes one call with `payloads`. Returns an error unless the response confirms all payloads (node) or returns
    /// them (echo server).
    pub async fn call(&mut self, payloads: Vec<Bytes>) -> Result<()> {
        let count = payloads.len();
        match self {
            Self::Echo(echo) => {
                let response = echo.echo(Message { payloads }).await?.into_inner();
                ensure!(
                    response.payloads.len() == count,
                    "{} of {count} responses arrived",
                    response.payloads.len()
                );
            }
            Self::Node(node) => {
                let mut requests: Vec<_> = payloads.into_iter().map(publish).collect();
                if let [_] = requests[..] {
                    let response = node.publish(requests.remove(0)).await?.into_inner();
                    ensure!(response.receipt.is_some(), "a publish response has no receipt");
                } else {
                    let response =
                        node.publish_batch(v1::PublishBatchRequest { requests }).await?.into_inner();
                    let is_receipt =
                        |outcome: &v1::PublishOutcome| matches!(outcome.outcome, Some(Outcome::Receipt(_)));
                    let published = response.outcomes.iter().filter(|outcome| is_receipt(outcome)).count();
                    ensure!(published == count, "only {published} of {count} records were published");
                }
            }
        }
        Ok(())
    }
}

fn publish(payload: Bytes) -> v1::PublishRequest {
    let record = v1::Draft { payload, ..v1::Draft::default() };
    v1::PublishRequest { subject: TOPIC.to_owned(), record: Some(record), ..v1::PublishRequest::default() }
}
