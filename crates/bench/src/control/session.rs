//! Serves the connections of this suite's own protocol to a node. The benchmark's clients use this protocol for
//! requests that listener `tcp` does not offer.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use dunlin::raft::CommandBatch;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::mpsc;

use super::frame::{self, COMMAND, DONE, FAILED, ROUND_TRIP, RequestFrame, STATUS};
use super::node::ControlNodeState;
use crate::clock::monotonic_ns;

const BUFFER_BYTES: usize = 64 << 10;

/// A response that waits to be written: the id of its request, and its result.
type Response = (u64, Result<Bytes, String>);
type ResponseSender = mpsc::UnboundedSender<Response>;

/// Serves the requests of one client until the client closes the connection.
pub async fn serve(stream: TcpStream, node: Arc<ControlNodeState>) {
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let (mut reader, writer) = stream.into_split();
    let (responses, receiver) = mpsc::unbounded_channel();
    tokio::spawn(write(writer, receiver));
    let mut buffer = BytesMut::with_capacity(BUFFER_BYTES);
    while let Ok(1..) = reader.read_buf(&mut buffer).await {
        while let Some(frame) = frame::pull(&mut buffer) {
            match frame.kind {
                STATUS => send_status(&node, &responses, &frame),
                COMMAND => drop(tokio::spawn(propose(Arc::clone(&node), responses.clone(), frame))),
                ROUND_TRIP => drop(tokio::spawn(round_trip(Arc::clone(&node), responses.clone(), frame.id))),
                _ => drop(tokio::spawn(snapshot(Arc::clone(&node), responses.clone(), frame.id))),
            }
        }
    }
}

async fn propose(node: Arc<ControlNodeState>, responses: ResponseSender, frame: RequestFrame) {
    let mut commands = CommandBatch::default();
    commands.push(&frame.body);
    let outcome = node.control.propose(commands).await.map_err(|error| error.to_string());
    let outcome =
        outcome.and_then(|mut outcome| outcome.pop().ok_or_else(|| "the node did not answer".to_owned()));
    let _ = responses.send((frame.id, outcome));
}

fn send_status(node: &ControlNodeState, responses: &ResponseSender, frame: &RequestFrame) {
    let usage = node.usage(!frame.body.is_empty()).and_then(|usage| Ok(serde_json::to_vec(&usage)?));
    let _ = responses.send((frame.id, usage.map(Bytes::from).map_err(|error| error.to_string())));
}

async fn snapshot(node: Arc<ControlNodeState>, responses: ResponseSender, id: u64) {
    let result = node.control.snapshot().await;
    let _ = responses.send((id, result.map(|()| Bytes::new()).map_err(|error| error.to_string())));
}

async fn round_trip(node: Arc<ControlNodeState>, responses: ResponseSender, id: u64) {
    let start_ns = monotonic_ns();
    let outcome = node.control.catch_up().await;
    let elapsed_ns = monotonic_ns() - start_ns;
    let result = outcome.map(|()| Bytes::copy_from_slice(&elapsed_ns.to_le_bytes()));
    let _ = responses.send((id, result.map_err(|error| error.to_string())));
}

async fn write(mut writer: OwnedWriteHalf, mut receiver: mpsc::UnboundedReceiver<Response>) {
    let mut out = BytesMut::new();
    while let Some((id, result)) = receiver.recv().await {
        match result {
            Ok(body) => frame::push(&mut out, id, DONE, &body),
            Err(error) => frame::push(&mut out, id, FAILED, error.as_bytes()),
        }
        if writer.write_all(&out).await.is_err() {
            return;
        }
        out.clear();
    }
}

/// Decodes the body of a node's response to a command.
pub fn decode_reply(body: &[u8]) -> anyhow::Result<dunlin::state::ControlReply> {
    Ok(Result::from(dunlin::state::ControlOutcome::decode(body)?)?)
}
