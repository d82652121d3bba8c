//! A connection to a node of this suite, at the node's end.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use dunlin::raft::Commands;
use dunlin::state::{Answered, Query};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::mpsc;

use super::frame::{self, COMMAND, DONE, FAILED, Frame, QUERY, SNAPSHOT, STATUS};
use super::node::Serving;
use crate::clock::monotonic_ns;

const BUFFER_BYTES: usize = 256 << 10;
/// Answers that are written together at most.
const TOGETHER_MAX: usize = 1_024;

/// What is to be written: whom it answers, and what.
type Answer = (u64, Result<Bytes, String>);
type Answers = mpsc::UnboundedSender<Answer>;

/// Serves until the other end is gone.
pub async fn serve(stream: TcpStream, node: Arc<Serving>) {
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let (mut reader, writer) = stream.into_split();
    let (answers, written) = mpsc::unbounded_channel();
    tokio::spawn(write(writer, written));
    let mut buffer = BytesMut::with_capacity(BUFFER_BYTES);
    while let Ok(1..) = reader.read_buf(&mut buffer).await {
        let (mut commands, mut queries) = (Asked::default(), Asked::default());
        while let Some(frame) = frame::pull(&mut buffer) {
            match frame.kind {
                COMMAND => commands.push(frame),
                QUERY => queries.push(frame),
                STATUS => answer_status(&node, &answers, &frame),
                SNAPSHOT => drop(tokio::spawn(snapshot(Arc::clone(&node), answers.clone(), frame.id))),
                _ => drop(tokio::spawn(answer_node(Arc::clone(&node), answers.clone(), frame))),
            }
        }
        if !commands.ids.is_empty() {
            tokio::spawn(propose(Arc::clone(&node), answers.clone(), commands));
        }
        if !queries.ids.is_empty() {
            tokio::spawn(look_up(Arc::clone(&node), answers.clone(), queries));
        }
        buffer.reserve(BUFFER_BYTES / 4);
    }
}

/// What came together, of one kind.
#[derive(Default)]
struct Asked {
    ids: Vec<u64>,
    bodies: Vec<Bytes>,
}

impl Asked {
    fn push(&mut self, frame: Frame) {
        self.ids.push(frame.id);
        self.bodies.push(frame.body);
    }
}

async fn propose(node: Arc<Serving>, answers: Answers, asked: Asked) {
    let asked_ns = monotonic_ns();
    let mut commands = Commands::default();
    asked.bodies.iter().for_each(|body| commands.push(body));
    match node.control.propose(commands).await {
        Ok(done) => {
            node.committed(done.len() as u64, monotonic_ns() - asked_ns);
            asked.ids.into_iter().zip(done).for_each(|(id, done)| drop(answers.send((id, Ok(done)))));
        }
        Err(error) => fail(&answers, &asked.ids, &error.to_string()),
    }
}

async fn look_up(node: Arc<Serving>, answers: Answers, asked: Asked) {
    if let Err(error) = node.control.catch_up().await {
        return fail(&answers, &asked.ids, &error.to_string());
    }
    let looked = node.control.with(|state| {
        for (id, body) in asked.ids.iter().zip(&asked.bodies) {
            let found = Query::decode(body).map_err(|error| error.to_string());
            let found = found.and_then(|query| state.answer(&query).map_err(|refusal| refusal.to_string()));
            let encoded = found.map(|found| {
                let mut out = Vec::new();
                found.encode(&mut out);
                Bytes::from(out)
            });
            let _ = answers.send((*id, encoded));
        }
    });
    if let Err(error) = looked {
        fail(&answers, &asked.ids, &error.to_string());
    }
}

fn fail(answers: &Answers, ids: &[u64], why: &str) {
    ids.iter().for_each(|id| drop(answers.send((*id, Err(why.to_owned())))));
}

fn answer_status(node: &Serving, answers: &Answers, frame: &Frame) {
    let seen = node.seen(!frame.body.is_empty()).and_then(|seen| Ok(serde_json::to_vec(&seen)?));
    let _ = answers.send((frame.id, seen.map(Bytes::from).map_err(|error| error.to_string())));
}

async fn snapshot(node: Arc<Serving>, answers: Answers, id: u64) {
    let asked = node.control.snapshot().await;
    let _ = answers.send((id, asked.map(|()| Bytes::new()).map_err(|error| error.to_string())));
}

async fn answer_node(node: Arc<Serving>, answers: Answers, frame: Frame) {
    let answer = node.control.receive(frame.body).await.map_err(|error| error.to_string());
    let _ = answers.send((frame.id, answer));
}

async fn write(mut writer: OwnedWriteHalf, mut written: mpsc::UnboundedReceiver<Answer>) {
    let (mut together, mut out) = (Vec::new(), BytesMut::new());
    while written.recv_many(&mut together, TOGETHER_MAX).await > 0 {
        for (id, answer) in together.drain(..) {
            match answer {
                Ok(body) => frame::push(&mut out, id, DONE, &body),
                Err(why) => frame::push(&mut out, id, FAILED, why.as_bytes()),
            }
        }
        if writer.write_all(&out).await.is_err() {
            return;
        }
        out.clear();
    }
}

/// What came of a command, as its client reads it.
pub fn answered(body: &[u8]) -> anyhow::Result<dunlin::state::Reply> {
    Ok(Result::from(Answered::decode(body)?)?)
}
