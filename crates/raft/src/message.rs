//! Encodes the messages between the nodes of a group in binary form, and decodes them.

use bytes::{BufMut, Bytes};
use openraft::EntryPayload;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, TransferLeaderRequest, VoteRequest, VoteResponse,
};

use crate::codec::{CodecError, ValueCodec, write_head};
use crate::type_config::{LogEntry, RaftSnapshot, SnapshotMeta, Types, Vote};

/// The version of the encoding, which is the first byte of every message.
pub(crate) const VERSION: u8 = 1;

/// If consecutive parts of a message have fewer bytes than this each, they are copied into one joint piece.
const PIECE_BYTES_MIN: usize = 8 << 10;
/// The largest size in bytes of an entry without its commands. Also the largest size of a message without its entries.
const ENTRY_BYTES: usize = 128;

/// A request that one member of a Raft group sends to another.
#[derive(Debug)]
pub(crate) enum RaftRequest {
    Append(AppendEntriesRequest<Types>),
    Vote(VoteRequest<Types>),
    PreVote(VoteRequest<Types>),
    TransferLeader(TransferLeaderRequest<Types>),
    /// Begins to send a snapshot. The response is the number of the snapshot's blocks that the receiver already has.
    Begin(Vote, SnapshotId, SnapshotMeta),
    /// Sends the block with the given number. The response is the number of blocks that the receiver now has.
    Block(Vote, SnapshotId, u64, Bytes),
    /// Ends a snapshot: the receiver has all blocks and now installs them.
    End(Vote, SnapshotId),
}

/// Identifies a snapshot by its content. A new leader that has the same snapshot can therefore continue the transfer
/// that a previous leader began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SnapshotId {
    /// Number of blocks.
    pub(crate) blocks: u64,
    /// Total size of all blocks, bytes.
    pub(crate) bytes: u64,
    /// CRC-64/NVME checksum of all blocks, each preceded by its length.
    pub(crate) check: u64,
}

impl SnapshotId {
    pub(crate) fn of(snapshot: &RaftSnapshot) -> SnapshotId {
        let blocks = &snapshot.snapshot.0;
        let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc64Nvme);
        for block in blocks {
            digest.update(&(block.len() as u64).to_le_bytes());
            digest.update(block);
        }
        let bytes = blocks.iter().map(|block| block.len() as u64).sum();
        SnapshotId { blocks: blocks.len() as u64, bytes, check: digest.finalize() }
    }
}

impl ValueCodec for SnapshotId {
    fn read(bytes: &mut Bytes) -> Result<SnapshotId, CodecError> {
        Ok(SnapshotId { blocks: u64::read(bytes)?, bytes: u64::read(bytes)?, check: u64::read(bytes)? })
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.blocks.write(out);
        self.bytes.write(out);
        self.check.write(out);
    }
}

impl RaftRequest {
    /// Encodes the request as consecutive pieces. Large parts of the request become pieces without being copied.
    pub(crate) fn pieces(&self) -> Vec<Bytes> {
        let mut pieces = Pieces { written: Vec::new(), out: Vec::with_capacity(self.copied_bytes()) };
        let out = &mut pieces.out;
        VERSION.write(out);
        match self {
            RaftRequest::Append(append) => {
                1u8.write(out);
                append.vote.write(out);
                append.prev_log_id.write(out);
                append.leader_commit.write(out);
                out.put_u32_le(append.entries.len() as u32);
                for entry in &append.entries {
                    if let Some(commands) = write_head(entry, &mut pieces.out) {
                        pieces.add(commands);
                    }
                }
            }
            RaftRequest::Vote(vote) => {
                2u8.write(out);
                vote.write(out);
            }
            RaftRequest::PreVote(vote) => {
                3u8.write(out);
                vote.write(out);
            }
            RaftRequest::TransferLeader(transfer) => {
                4u8.write(out);
                transfer.from_leader().write(out);
                transfer.to_node_id().write(out);
                transfer.last_log_id().copied().write(out);
            }
            RaftRequest::Begin(vote, snapshot_id, meta) => {
                5u8.write(out);
                vote.write(out);
                snapshot_id.write(out);
                meta.write(out);
            }
            RaftRequest::Block(vote, snapshot_id, at, block) => {
                6u8.write(out);
                vote.write(out);
                snapshot_id.write(out);
                at.write(out);
                out.put_u32_le(block.len() as u32);
                pieces.add(block);
            }
            RaftRequest::End(vote, snapshot_id) => {
                7u8.write(out);
                vote.write(out);
                snapshot_id.write(out);
            }
        }
        pieces.end();
        pieces.written
    }

    /// An upper bound for the number of bytes that encoding copies.
    fn copied_bytes(&self) -> usize {
        let of_entry = |entry: &LogEntry| match &entry.payload {
            EntryPayload::Normal(proposal) if proposal.0.len() < PIECE_BYTES_MIN => {
                proposal.0.len() + ENTRY_BYTES
            }
            _ => ENTRY_BYTES,
        };
        let of_entries = |append: &AppendEntriesRequest<Types>| append.entries.iter().map(of_entry).sum();
        ENTRY_BYTES + if let RaftRequest::Append(append) = self { of_entries(append) } else { 0usize }
    }
}

/// Collects the consecutive pieces of a message.
struct Pieces {
    written: Vec<Bytes>,
    /// The small parts since the last piece, joined.
    out: Vec<u8>,
}

impl Pieces {
    fn add(&mut self, bytes: &Bytes) {
        if bytes.len() < PIECE_BYTES_MIN {
            return self.out.extend_from_slice(bytes);
        }
        self.end();
        self.written.push(bytes.clone());
    }

    fn end(&mut self) {
        if !self.out.is_empty() {
            self.written.push(std::mem::take(&mut self.out).into());
        }
    }
}

impl ValueCodec for RaftRequest {
    fn read(bytes: &mut Bytes) -> Result<RaftRequest, CodecError> {
        if u8::read(bytes)? != VERSION {
            return Err(CodecError("a message of this version"));
        }
        Ok(match u8::read(bytes)? {
            1 => RaftRequest::Append(AppendEntriesRequest {
                vote: Vote::read(bytes)?,
                prev_log_id: Option::read(bytes)?,
                leader_commit: Option::read(bytes)?,
                entries: Vec::<LogEntry>::read(bytes)?,
            }),
            2 => RaftRequest::Vote(ValueCodec::read(bytes)?),
            3 => RaftRequest::PreVote(ValueCodec::read(bytes)?),
            4 => {
                let (vote, to) = (Vote::read(bytes)?, u64::read(bytes)?);
                RaftRequest::TransferLeader(TransferLeaderRequest::new(vote, to, Option::read(bytes)?))
            }
            5 => RaftRequest::Begin(Vote::read(bytes)?, SnapshotId::read(bytes)?, ValueCodec::read(bytes)?),
            6 => RaftRequest::Block(
                Vote::read(bytes)?,
                SnapshotId::read(bytes)?,
                u64::read(bytes)?,
                Bytes::read(bytes)?,
            ),
            7 => RaftRequest::End(Vote::read(bytes)?, SnapshotId::read(bytes)?),
            _ => return Err(CodecError("a message")),
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.pieces().iter().for_each(|piece| out.extend_from_slice(piece));
    }
}

impl ValueCodec for VoteRequest<Types> {
    fn read(bytes: &mut Bytes) -> Result<VoteRequest<Types>, CodecError> {
        let mut request = VoteRequest::new(Vote::read(bytes)?, Option::read(bytes)?);
        request.leadership_transfer = bool::read(bytes)?;
        Ok(request)
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.vote.write(out);
        self.last_log_id.write(out);
        self.leadership_transfer.write(out);
    }
}

impl ValueCodec for VoteResponse<Types> {
    fn read(bytes: &mut Bytes) -> Result<VoteResponse<Types>, CodecError> {
        let (vote, vote_granted) = (Vote::read(bytes)?, bool::read(bytes)?);
        Ok(VoteResponse { vote, vote_granted, last_log_id: Option::read(bytes)? })
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.vote.write(out);
        self.vote_granted.write(out);
        self.last_log_id.write(out);
    }
}

impl ValueCodec for AppendEntriesResponse<Types> {
    fn read(bytes: &mut Bytes) -> Result<AppendEntriesResponse<Types>, CodecError> {
        Ok(match u8::read(bytes)? {
            1 => AppendEntriesResponse::Success,
            2 => AppendEntriesResponse::PartialSuccess(Option::read(bytes)?),
            3 => AppendEntriesResponse::Conflict,
            4 => AppendEntriesResponse::HigherVote(Vote::read(bytes)?),
            _ => return Err(CodecError("an answer")),
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            AppendEntriesResponse::Success => 1u8.write(out),
            AppendEntriesResponse::PartialSuccess(matching) => {
                2u8.write(out);
                matching.write(out);
            }
            AppendEntriesResponse::Conflict => 3u8.write(out),
            AppendEntriesResponse::HigherVote(vote) => {
                4u8.write(out);
                vote.write(out);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use openraft::impls::leader_id_adv::LeaderId;
    use openraft::vote::RaftVote;
    use openraft::{BasicNode, EntryPayload};
    use proptest::prelude::*;

    use super::*;
    use crate::codec::decode_exact;
    use crate::type_config::{LogId, Membership, Proposal, StoredMembership};

    fn samples() -> Vec<RaftRequest> {
        let leader_id = LeaderId { term: 3, node_id: 2 };
        let vote = Vote::from_leader_id(leader_id, true);
        let log_id = |index| LogId { leader_id, index };
        let nodes = (1..=3).map(|id| (id, BasicNode::new(format!("node {id}"))));
        let configs = vec![BTreeSet::from([1, 2]), BTreeSet::from([2, 3])];
        let membership =
            Membership::new(configs, nodes.collect::<std::collections::BTreeMap<_, _>>()).unwrap();
        let payloads = [
            EntryPayload::Blank,
            EntryPayload::Normal(Proposal(Bytes::from("commands"))),
            EntryPayload::Membership(membership.clone()),
        ];
        let entries = (7..).zip(payloads).map(|(index, payload)| LogEntry { log_id: log_id(index), payload });
        let (prev_log_id, leader_commit) = (Some(log_id(6)), None);
        let append = AppendEntriesRequest { vote, prev_log_id, leader_commit, entries: entries.collect() };
        let meta = SnapshotMeta {
            last_log_id: Some(log_id(9)),
            last_membership: StoredMembership::new(Some(log_id(8)), membership),
        };
        let snapshot_id = SnapshotId { blocks: 4, bytes: 17, check: 0x1234 };
        vec![
            RaftRequest::Append(append),
            RaftRequest::Vote(VoteRequest::new(vote, None)),
            RaftRequest::PreVote(VoteRequest::new(vote, Some(log_id(9)))),
            RaftRequest::TransferLeader(TransferLeaderRequest::new(vote, 1, Some(log_id(9)))),
            RaftRequest::Begin(vote, snapshot_id, meta),
            RaftRequest::Block(vote, snapshot_id, 3, Bytes::from("block")),
            RaftRequest::End(vote, snapshot_id),
        ]
    }

    fn bytes_of(request: &RaftRequest) -> Bytes {
        let mut bytes = Vec::new();
        request.write(&mut bytes);
        bytes.into()
    }

    #[test]
    fn message_is_read_back_whole_and_refused_if_truncated() {
        for request in samples() {
            let bytes = bytes_of(&request);
            let again: RaftRequest = decode_exact(bytes.clone(), "a request").unwrap();
            assert_eq!((format!("{again:?}"), bytes_of(&again)), (format!("{request:?}"), bytes.clone()));
            for len in 0..bytes.len() {
                assert!(
                    decode_exact::<RaftRequest>(bytes.slice(..len), "a request").is_err(),
                    "{len} bytes of {request:?}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_decoded_or_refused(kind in 0..9u8, bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode_exact::<RaftRequest>([&[VERSION, kind], &bytes[..]].concat().into(), "a request");
        }

        #[test]
        fn message_with_a_changed_byte_is_decoded_or_refused(which in 0..7usize, at in any::<usize>(), to in any::<u8>()) {
            let mut bytes = bytes_of(&samples()[which]).to_vec();
            let at = at % bytes.len();
            bytes[at] = to;
            let _ = decode_exact::<RaftRequest>(bytes.into(), "a request");
        }
    }
}
