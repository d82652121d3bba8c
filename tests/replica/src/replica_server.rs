//! Serves the clients of the chaos tests. The requests of one connection are handled one after another.

use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use dunlin_control::{ControlCommand, ControlRefusal, ControlReply};
use dunlin_raft::{GroupHandle, RaftGroupError, RaftMember};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::machine::ReplicaMachine;
use super::protocol::{FRAME_BYTES_MAX, GREETING, ReplicaRequest, ReplicaResponse, read_reply};

/// The largest number of changes in one response.
const CHANGES_MAX: usize = 1_000;

/// Accepts clients at `listener` and serves them, until the process ends.
pub async fn serve(listener: TcpListener, group: Arc<GroupHandle<ReplicaMachine>>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        tokio::spawn(serve_connection(stream, Arc::clone(&group)));
    }
}

async fn serve_connection(mut stream: TcpStream, group: Arc<GroupHandle<ReplicaMachine>>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.write_all(&[GREETING]).await?;
    loop {
        let len = stream.read_u32_le().await? as usize;
        if len > FRAME_BYTES_MAX {
            return Err(io::Error::other("a question too long"));
        }
        let mut bytes = vec![0; len];
        stream.read_exact(&mut bytes).await?;
        let request = ReplicaRequest::decode(&bytes).ok_or_else(|| io::Error::other("no question"))?;
        let response = respond(request, &group).await.encode();
        stream.write_all(&[&(response.len() as u32).to_le_bytes(), &response[..]].concat()).await?;
    }
}

async fn respond(request: ReplicaRequest, group: &GroupHandle<ReplicaMachine>) -> ReplicaResponse {
    match request {
        ReplicaRequest::Change(command) => change(command, group).await,
        ReplicaRequest::Read(start, end) => match group.catch_up().await {
            Ok(()) => ReplicaResponse::Done(read_reply(
                group.with(|replica| replica.state().range(&start, &end, 0)),
            )),
            Err(error) => not_done(error),
        },
        ReplicaRequest::Status => ReplicaResponse::Status(status(group)),
        ReplicaRequest::Changes(from) => ReplicaResponse::Changes(
            group.with(|replica| replica.changes(from, CHANGES_MAX).map(<[_]>::to_vec)),
        ),
        ReplicaRequest::Begin(members) => {
            let members: Vec<RaftMember> =
                members.into_iter().map(|(id, address)| RaftMember { id, address }).collect();
            group.begin(&members).await.map_or_else(not_done, |()| ReplicaResponse::Done(ControlReply::Done))
        }
    }
}

async fn change(command: Vec<u8>, group: &GroupHandle<ReplicaMachine>) -> ReplicaResponse {
    if let Err(error) = ControlCommand::decode(&command) {
        return ReplicaResponse::NotDone(error.to_string());
    }
    let result = match group.propose(Bytes::from(command)).await {
        Ok(result) => result,
        // Raft received the command, but then stopped or lost its leader. The command may still be applied.
        Err(RaftGroupError::Unknown | RaftGroupError::Stopped(_)) => return ReplicaResponse::Unknown,
        Err(error) => return not_done(error),
    };
    let (done, rest) = result.split_first().expect("the state machine's response is not empty");
    let decoded = if *done == 1 {
        ControlReply::decode(rest).map(ReplicaResponse::Done)
    } else {
        ControlRefusal::decode(rest).map(ReplicaResponse::Refused)
    };
    decoded.expect("the state machine's response can be decoded")
}

fn not_done(error: RaftGroupError) -> ReplicaResponse {
    match error {
        RaftGroupError::NotLeader { leader } => {
            ReplicaResponse::NotLeader(leader.map_or(0, |leader| leader.id))
        }
        other => ReplicaResponse::NotDone(other.to_string()),
    }
}

fn status(group: &GroupHandle<ReplicaMachine>) -> serde_json::Value {
    let status = group.status();
    let (revision, now_ms, oldest, digest) = group.with(|replica| {
        let state = replica.state();
        (state.revision(), state.now_ms(), replica.oldest(), digest(replica))
    });
    json!({
        "id": status.id, "leader": status.leader, "term": status.term, "applied": status.applied,
        "last": status.last, "snapshot": status.snapshot, "purged": status.purged, "stopped": status.stopped,
        "time_of_day_s": time_of_day_s(), "revision": revision, "oldest": oldest, "now_ms": now_ms, "digest": digest.to_string(),
    })
}

/// Returns the system time in seconds since 1970. The chaos tests change the system time of a node, and check the
/// change with this value.
fn time_of_day_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Returns a hash of the state. Nodes with equal states have equal hashes.
fn digest(replica: &ReplicaMachine) -> u64 {
    let mut hasher = DefaultHasher::new();
    let hash = |block: &[u8]| -> Result<(), std::convert::Infallible> {
        hasher.write(block);
        Ok(())
    };
    let Ok(()) = replica.state().freeze().write(hash);
    hasher.finish()
}
