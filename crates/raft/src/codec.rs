//! Encodes Raft's types in binary form, for the disk and for messages between nodes, and decodes them.
//!
//! Integers are little-endian. An optional value begins with a byte: 1 if a value follows, 0 if there is no value. Byte
//! strings begin with their length and lists with their number of items (`u32`).

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Buf, BufMut, Bytes};
use openraft::impls::leader_id_adv::LeaderId;
use openraft::vote::RaftVote;
use openraft::{BasicNode, EntryPayload};

use crate::type_config::{LogEntry, LogId, Membership, Proposal, StoredMembership, Vote};

/// The error for bytes that are not a valid encoding of Raft's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the bytes are not a valid encoding of {0}")]
pub struct CodecError(pub(crate) &'static str);

impl From<CodecError> for std::io::Error {
    fn from(error: CodecError) -> std::io::Error {
        std::io::Error::new(std::io::ErrorKind::InvalidData, error)
    }
}

type Decoded<T> = Result<T, CodecError>;

pub(crate) trait ValueCodec: Sized {
    fn read(bytes: &mut Bytes) -> Decoded<Self>;
    fn write(&self, out: &mut Vec<u8>);
}

/// Decodes one value, which must fill `bytes` completely. `what` names the data in errors.
pub(crate) fn decode_exact<T: ValueCodec>(mut bytes: Bytes, what: &'static str) -> Decoded<T> {
    let read = T::read(&mut bytes)?;
    if bytes.is_empty() { Ok(read) } else { Err(CodecError(what)) }
}

impl ValueCodec for u8 {
    fn read(bytes: &mut Bytes) -> Decoded<u8> {
        bytes.try_get_u8().map_err(|_| CodecError("a byte"))
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.put_u8(*self);
    }
}

impl ValueCodec for bool {
    fn read(bytes: &mut Bytes) -> Decoded<bool> {
        match u8::read(bytes)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(CodecError("yes or no")),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.put_u8(u8::from(*self));
    }
}

impl ValueCodec for u64 {
    fn read(bytes: &mut Bytes) -> Decoded<u64> {
        bytes.try_get_u64_le().map_err(|_| CodecError("a number"))
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.put_u64_le(*self);
    }
}

impl ValueCodec for Bytes {
    fn read(bytes: &mut Bytes) -> Decoded<Bytes> {
        let len = bytes.try_get_u32_le().map_err(|_| CodecError("a length"))? as usize;
        if len > bytes.len() { Err(CodecError("bytes")) } else { Ok(bytes.split_to(len)) }
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.put_u32_le(self.len() as u32);
        out.extend_from_slice(self);
    }
}

impl ValueCodec for String {
    fn read(bytes: &mut Bytes) -> Decoded<String> {
        String::from_utf8(Bytes::read(bytes)?.to_vec()).map_err(|_| CodecError("text"))
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.put_u32_le(self.len() as u32);
        out.extend_from_slice(self.as_bytes());
    }
}

impl<T: ValueCodec> ValueCodec for Option<T> {
    fn read(bytes: &mut Bytes) -> Decoded<Option<T>> {
        bool::read(bytes)?.then(|| T::read(bytes)).transpose()
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.is_some().write(out);
        self.iter().for_each(|item| item.write(out));
    }
}

impl<T: ValueCodec> ValueCodec for Vec<T> {
    fn read(bytes: &mut Bytes) -> Decoded<Vec<T>> {
        let count = bytes.try_get_u32_le().map_err(|_| CodecError("a count"))? as usize;
        // Each item takes at least one byte, so a count above the number of remaining bytes is wrong. The check
        // prevents a large allocation for such a count.
        if count > bytes.len() {
            return Err(CodecError("a list"));
        }
        (0..count).map(|_| T::read(bytes)).collect()
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.put_u32_le(self.len() as u32);
        self.iter().for_each(|item| item.write(out));
    }
}

impl ValueCodec for LeaderId<u64, u64> {
    fn read(bytes: &mut Bytes) -> Decoded<LeaderId<u64, u64>> {
        Ok(LeaderId { term: u64::read(bytes)?, node_id: u64::read(bytes)? })
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.term.write(out);
        self.node_id.write(out);
    }
}

impl ValueCodec for Vote {
    fn read(bytes: &mut Bytes) -> Decoded<Vote> {
        Ok(Vote::from_leader_id(LeaderId::read(bytes)?, bool::read(bytes)?))
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.leader_id().write(out);
        self.is_committed().write(out);
    }
}

impl ValueCodec for LogId {
    fn read(bytes: &mut Bytes) -> Decoded<LogId> {
        Ok(LogId { leader_id: LeaderId::read(bytes)?, index: u64::read(bytes)? })
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.leader_id.write(out);
        self.index.write(out);
    }
}

impl ValueCodec for (u64, String) {
    fn read(bytes: &mut Bytes) -> Decoded<(u64, String)> {
        Ok((u64::read(bytes)?, String::read(bytes)?))
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
        self.1.write(out);
    }
}

impl ValueCodec for Membership {
    fn read(bytes: &mut Bytes) -> Decoded<Membership> {
        let configs = Vec::<Vec<u64>>::read(bytes)?.into_iter().map(BTreeSet::from_iter).collect();
        let nodes = Vec::<(u64, String)>::read(bytes)?.into_iter();
        let nodes: BTreeMap<_, _> = nodes.map(|(id, addr)| (id, BasicNode { addr })).collect();
        // openraft refuses to create an empty membership, but the membership of a node without a cluster is empty.
        Membership::new(configs, nodes).or_else(|refused| match refused {
            openraft::errors::MembershipError::EmptyMembership(_) => Ok(Membership::default()),
            _ => Err(CodecError("a membership")),
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        let configs: Vec<Vec<u64>> =
            self.get_joint_config().iter().map(|config| config.iter().copied().collect()).collect();
        configs.write(out);
        let nodes: Vec<(u64, String)> = self.nodes().map(|(id, node)| (*id, node.addr.clone())).collect();
        nodes.write(out);
    }
}

impl ValueCodec for StoredMembership {
    fn read(bytes: &mut Bytes) -> Decoded<StoredMembership> {
        Ok(StoredMembership::new(Option::read(bytes)?, Membership::read(bytes)?))
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.log_id().write(out);
        self.membership().write(out);
    }
}

/// Encodes the part of an entry that comes before its commands. Returns the commands; the caller appends them. Returns
/// `None` if the entry contains no commands.
pub(crate) fn write_head<'a>(entry: &'a LogEntry, out: &mut Vec<u8>) -> Option<&'a Bytes> {
    entry.log_id.write(out);
    match &entry.payload {
        EntryPayload::Blank => BLANK.write(out),
        EntryPayload::Normal(Proposal(commands)) => {
            NORMAL.write(out);
            out.put_u32_le(commands.len() as u32);
            return Some(commands);
        }
        EntryPayload::Membership(membership) => {
            MEMBERSHIP.write(out);
            membership.write(out);
        }
    }
    None
}

const BLANK: u8 = 0;
const NORMAL: u8 = 1;
const MEMBERSHIP: u8 = 2;

impl ValueCodec for LogEntry {
    fn read(bytes: &mut Bytes) -> Decoded<LogEntry> {
        let log_id = LogId::read(bytes)?;
        let payload = match u8::read(bytes)? {
            BLANK => EntryPayload::Blank,
            NORMAL => EntryPayload::Normal(Proposal(Bytes::read(bytes)?)),
            MEMBERSHIP => EntryPayload::Membership(Membership::read(bytes)?),
            _ => return Err(CodecError("an entry")),
        };
        Ok(LogEntry { log_id, payload })
    }

    fn write(&self, out: &mut Vec<u8>) {
        if let Some(commands) = write_head(self, out) {
            out.extend_from_slice(commands);
        }
    }
}
