//! The messages between a replica and the clients of the chaos tests. On a connection, each message is preceded by its
//! length.

use std::io::{self, Read, Write};

use dunlin_control::{
    Change, ControlCommand, ControlDecodeError, ControlRefusal, ControlReply, FoundKeys, OperationOutcome,
};
use serde_json::Value;

/// The largest size of a message in bytes.
pub const FRAME_BYTES_MAX: usize = 64 << 20;

/// The first byte that a node sends on each connection. A client that has not received this byte knows that no node has
/// read its request. The client cannot conclude from an open connection that a node reads: its connection leads to a
/// proxy, which accepts connections even while its node is down.
pub const GREETING: u8 = b'!';

/// A request of a client to one replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplicaRequest {
    /// Applies a command.
    Change(Vec<u8>),
    /// Reads keys linearizably, from the first key up to and excluding the second.
    Read(Vec<u8>, Vec<u8>),
    /// Returns the status of this node.
    Status,
    /// Returns the changes that the node has, from this revision on.
    Changes(u64),
    /// Founds a cluster of these nodes. Each entry is a node's id and address.
    Begin(Vec<(u64, String)>),
}

/// A response of a replica.
#[derive(Debug, Clone, PartialEq)]
pub enum ReplicaResponse {
    /// The command was applied, or the keys were read, with this result.
    Done(ControlReply),
    /// The command was refused. The reason follows from the state, so every node would refuse the command.
    Refused(ControlRefusal),
    /// The node did nothing, because it is not the leader. The number is the leader's id; 0 means that the node does
    /// not know the leader.
    NotLeader(u64),
    /// The node did nothing, for this reason.
    NotDone(String),
    /// The command may have been applied.
    Unknown,
    /// The node's status.
    Status(Value),
    /// The requested changes; `None` if the first change is no longer available.
    Changes(Option<Vec<Change>>),
}

/// Creates a reply that contains the keys that a range read has found.
pub fn read_reply(found: FoundKeys) -> ControlReply {
    ControlReply::Transaction {
        revision: 0,
        succeeded: true,
        results: vec![OperationOutcome::Found { found }],
    }
}

/// Writes a message, preceded by its length.
pub fn write_frame(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    out.write_all(&[&(bytes.len() as u32).to_le_bytes(), bytes].concat())
}

/// Reads a length, and then a message of this length.
pub fn read_frame(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut len = [0; 4];
    from.read_exact(&mut len)?;
    let len = u32::from_le_bytes(len) as usize;
    if len > FRAME_BYTES_MAX {
        return Err(io::Error::other(format!("a frame of {len} bytes")));
    }
    let mut bytes = vec![0; len];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

impl ReplicaRequest {
    /// Creates the request to apply a command.
    pub fn change(command: &ControlCommand<'_>) -> ReplicaRequest {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        ReplicaRequest::Change(bytes)
    }

    /// Encodes the request.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            ReplicaRequest::Change(command) => [&[1], &command[..]].concat(),
            ReplicaRequest::Read(start, end) => {
                [&[2], &(start.len() as u32).to_le_bytes()[..], start, end].concat()
            }
            ReplicaRequest::Status => vec![3],
            ReplicaRequest::Changes(from) => [&[4], &from.to_le_bytes()[..]].concat(),
            ReplicaRequest::Begin(members) => {
                [&[5], serde_json::json!(members).to_string().as_bytes()].concat()
            }
        }
    }

    /// Decodes a request.
    pub fn decode(bytes: &[u8]) -> Option<ReplicaRequest> {
        let (kind, rest) = bytes.split_first()?;
        Some(match kind {
            1 => ReplicaRequest::Change(rest.to_vec()),
            2 => {
                let (len, rest) = rest.split_first_chunk()?;
                let (start, end) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
                ReplicaRequest::Read(start.to_vec(), end.to_vec())
            }
            3 => ReplicaRequest::Status,
            4 => ReplicaRequest::Changes(u64::from_le_bytes(*rest.first_chunk()?)),
            5 => {
                let members: Value = serde_json::from_slice(rest).ok()?;
                let member = |member: &Value| Some((member[0].as_u64()?, member[1].as_str()?.to_owned()));
                ReplicaRequest::Begin(members.as_array()?.iter().map(member).collect::<Option<_>>()?)
            }
            _ => return None,
        })
    }
}

impl ReplicaResponse {
    /// Encodes the response.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            ReplicaResponse::Done(reply) => {
                out.push(1);
                reply.encode(&mut out);
            }
            ReplicaResponse::Refused(refusal) => {
                out.push(2);
                refusal.encode(&mut out);
            }
            ReplicaResponse::NotLeader(leader) => out.extend([&[3], &leader.to_le_bytes()[..]].concat()),
            ReplicaResponse::NotDone(reason) => out.extend([&[4], reason.as_bytes()].concat()),
            ReplicaResponse::Unknown => out.push(5),
            ReplicaResponse::Status(status) => out.extend([&[6], status.to_string().as_bytes()].concat()),
            ReplicaResponse::Changes(None) => out.push(7),
            ReplicaResponse::Changes(Some(changes)) => {
                out.push(8);
                for Change { revision, bytes } in changes {
                    out.extend_from_slice(&revision.to_le_bytes());
                    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
                    out.extend_from_slice(bytes);
                }
            }
        }
        out
    }

    /// Decodes a response.
    pub fn decode(bytes: &[u8]) -> Option<ReplicaResponse> {
        let (kind, rest) = bytes.split_first()?;
        let ok = |answer: Result<ReplicaResponse, ControlDecodeError>| answer.ok();
        match kind {
            1 => ok(ControlReply::decode(rest).map(ReplicaResponse::Done)),
            2 => ok(ControlRefusal::decode(rest).map(ReplicaResponse::Refused)),
            3 => Some(ReplicaResponse::NotLeader(u64::from_le_bytes(*rest.first_chunk()?))),
            4 => Some(ReplicaResponse::NotDone(String::from_utf8_lossy(rest).into_owned())),
            5 => Some(ReplicaResponse::Unknown),
            6 => serde_json::from_slice(rest).ok().map(ReplicaResponse::Status),
            7 => Some(ReplicaResponse::Changes(None)),
            8 => changes(rest).map(|changes| ReplicaResponse::Changes(Some(changes))),
            _ => None,
        }
    }
}

fn changes(mut rest: &[u8]) -> Option<Vec<Change>> {
    let mut changes = Vec::new();
    while !rest.is_empty() {
        let (revision, after) = rest.split_first_chunk()?;
        let (len, after) = after.split_first_chunk()?;
        let (bytes, after) = after.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        changes.push(Change { revision: u64::from_le_bytes(*revision), bytes: bytes.to_vec() });
        rest = after;
    }
    Some(changes)
}
