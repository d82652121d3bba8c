//! Tests the gRPC listener with generated clients and with raw sockets.

mod bad_input;
mod groups;
mod hostile;
pub(crate) mod kv;
mod publishing;
mod ratatoskr;
mod requests;
mod stopping;
mod subscribing;
mod tasks;
mod topics;

use std::net::SocketAddr;

use dunlin::Node;
use dunlin_server::grpc::proto::dunlin as v1;
use dunlin_server::{Protocol, Server, ServerConfig};
use dunlin_wait::{PATIENCE, POLL};
use tonic::transport::{Channel, Endpoint};
use tonic::{Response, Status, Streaming};
use v1::dunlin_client::DunlinClient;
use v1::start::At;
use v1::subscribe_response::Event;

use crate::serve_with;

/// A client of a node's own gRPC service.
pub type GrpcClient = DunlinClient<Channel>;

fn serve_grpc() -> (Node, Server) {
    serve_grpc_with(|_| ())
}

fn serve_grpc_with(change: impl FnOnce(&mut ServerConfig)) -> (Node, Server) {
    serve_with(|config| {
        config.grpc = vec![([127, 0, 0, 1], 0).into()];
        change(config);
    })
}

pub(crate) async fn channel(server: &Server) -> Channel {
    let address = format!("http://{}", grpc_address(server));
    Endpoint::from_shared(address).unwrap().connect().await.unwrap()
}

pub(crate) async fn connect(server: &Server) -> GrpcClient {
    DunlinClient::new(channel(server).await).max_decoding_message_size(64 << 20)
}

fn grpc_address(server: &Server) -> SocketAddr {
    let of_protocol =
        |(protocol, address): &(Protocol, SocketAddr)| (*protocol == Protocol::Grpc).then_some(*address);
    server.addresses().iter().find_map(of_protocol).unwrap()
}

/// Runs an async test, and fails if it takes too long.
pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, test).await.expect("the test finishes in time") })
}

/// Calls `is_so` repeatedly until it returns true. [`run`] limits how long this may take.
pub(crate) async fn until(mut is_so: impl AsyncFnMut() -> bool) {
    while !is_so().await {
        tokio::time::sleep(POLL).await;
    }
}

pub(crate) fn publish(subject: &str, payload: impl Into<Vec<u8>>) -> v1::PublishRequest {
    let record = v1::Draft { payload: payload.into().into(), ..Default::default() };
    v1::PublishRequest { subject: subject.to_owned(), record: Some(record), ..Default::default() }
}

pub(crate) fn subscribe(subjects: &[&str], at: At) -> v1::SubscribeRequest {
    v1::SubscribeRequest {
        subjects: subjects.iter().map(|subject| (*subject).to_owned()).collect(),
        start: Some(v1::Start { at: Some(at) }),
        ..Default::default()
    }
}

/// Returns the next event of the stream, or the status with which the stream has ended.
pub(crate) async fn next(stream: &mut Streaming<v1::SubscribeResponse>) -> Result<Event, Status> {
    let response = stream.message().await?.ok_or_else(|| Status::ok(""))?;
    Ok(response.event.expect("every response has an event"))
}

/// Starts a subscription. Returns the stream of its events, and the positions from which it starts.
async fn start_subscription(
    client: &mut GrpcClient,
    request: v1::SubscribeRequest,
) -> Result<(Streaming<v1::SubscribeResponse>, Vec<v1::LogPosition>), Status> {
    let mut stream = client.subscribe(request).await.map(Response::into_inner)?;
    match next(&mut stream).await? {
        Event::Subscribed(subscribed) => Ok((stream, subscribed.logs)),
        other => panic!("{other:?} before it has begun"),
    }
}

/// Reads until at least `count` records have arrived, and returns them; panics if another event arrives before them.
pub(crate) async fn records(stream: &mut Streaming<v1::SubscribeResponse>, count: usize) -> Vec<v1::Record> {
    let mut all = Vec::new();
    while all.len() < count {
        match next(stream).await.unwrap() {
            Event::Records(records) => all.extend(records.records),
            other => panic!("{other:?}"),
        }
    }
    all
}
