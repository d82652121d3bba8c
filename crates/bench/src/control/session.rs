//! Serves a connection of this suite's clients to a node, for requests that listener `tcp` does not offer.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use dunlin::raft::Commands;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::mpsc;

use super::frame::{self, COMMAND, DONE, FAILED, ROUND_TRIP, RequestFrame, STATUS};
use super::node::ControlNodeState;
use crate::clock::monotonic_ns;

const BUFFER_BYTES: usize = 64 << 10;

/// A response to be written: the id of the request, and its result.
type Answer = (u64, Result<Bytes, String>);
type Answers = mpsc::UnboundedSender<Answer>;

/// Serves requests until the client closes the connection.
pub async fn serve(stream: TcpStream, node: Arc<ControlNodeState>) {
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let (mut reader, writer) = stream.into_split();
    let (answers, written) = mpsc::unbounded_channel();
    tokio::spawn(write(writer, written));
    let mut buffer = BytesMut::with_capacity(BUFFER_BYTES);
    while let Ok(1..) = reader.read_buf(&mut buffer).await {
        while let Some(frame) = frame::pull(&mut buffer) {
            match frame.kind {
                STATUS => answer_status(&node, &answers, &frame),
                COMMAND => drop(tokio::spawn(propose(Arc::clone(&node), answers.clone(), frame))),
                ROUND_TRIP => drop(tokio::spawn(round_trip(Arc::clone(&node), answers.clone(), frame.id))),
                _ => drop(tokio::spawn(snapshot(Arc::clone(&node), answers.clone(), frame.id))),
            }
        }
    }
}

async fn propose(node: Arc<ControlNodeState>, answers: Answers, frame: RequestFrame) {
    let mut commands = Commands::default();
    commands.push(&frame.body);
    let done = node.control.propose(commands).await.map_err(|error| error.to_string());
    let done = done.and_then(|mut done| done.pop().ok_or_else(|| "the node did not answer".to_owned()));
    let _ = answers.send((frame.id, done));
}

fn answer_status(node: &ControlNodeState, answers: &Answers, frame: &RequestFrame) {
    let seen = node.seen(!frame.body.is_empty()).and_then(|seen| Ok(serde_json::to_vec(&seen)?));
    let _ = answers.send((frame.id, seen.map(Bytes::from).map_err(|error| error.to_string())));
}

async fn snapshot(node: Arc<ControlNodeState>, answers: Answers, id: u64) {
    let asked = node.control.snapshot().await;
    let _ = answers.send((id, asked.map(|()| Bytes::new()).map_err(|error| error.to_string())));
}

async fn round_trip(node: Arc<ControlNodeState>, answers: Answers, id: u64) {
    let begun_ns = monotonic_ns();
    let done = node.control.catch_up().await;
    let took_ns = monotonic_ns() - begun_ns;
    let answer = done.map(|()| Bytes::copy_from_slice(&took_ns.to_le_bytes()));
    let _ = answers.send((id, answer.map_err(|error| error.to_string())));
}

async fn write(mut writer: OwnedWriteHalf, mut written: mpsc::UnboundedReceiver<Answer>) {
    let mut out = BytesMut::new();
    while let Some((id, answer)) = written.recv().await {
        match answer {
            Ok(body) => frame::push(&mut out, id, DONE, &body),
            Err(why) => frame::push(&mut out, id, FAILED, why.as_bytes()),
        }
        if writer.write_all(&out).await.is_err() {
            return;
        }
        out.clear();
    }
}

/// Decodes the response to a command, as a client does.
pub fn answered(body: &[u8]) -> anyhow::Result<dunlin::state::ControlReply> {
    Ok(Result::from(dunlin::state::ControlOutcome::decode(body)?)?)
}
