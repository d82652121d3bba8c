//! What nodes say to one another, as bytes.

use bytes::Bytes;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, TransferLeaderRequest, VoteRequest, VoteResponse,
};

use crate::codec::{Code, CodecError};
use crate::vocabulary::{Entry, SnapshotMeta, Types, Vote};

/// The version of every message; its first byte.
pub(crate) const VERSION: u8 = 1;

/// What a node asks of another.
#[derive(Debug)]
pub(crate) enum Request {
    Append(AppendEntriesRequest<Types>),
    Vote(VoteRequest<Types>),
    PreVote(VoteRequest<Types>),
    TransferLeader(TransferLeaderRequest<Types>),
    /// A snapshot follows, in blocks.
    Begin(Vote, SnapshotMeta),
    Block(Vote, Bytes),
    /// That was all of it.
    End(Vote),
}

impl Code for Request {
    fn read(bytes: &mut Bytes) -> Result<Request, CodecError> {
        if u8::read(bytes)? != VERSION {
            return Err(CodecError("a message of another version"));
        }
        Ok(match u8::read(bytes)? {
            1 => Request::Append(AppendEntriesRequest {
                vote: Vote::read(bytes)?,
                prev_log_id: Option::read(bytes)?,
                leader_commit: Option::read(bytes)?,
                entries: Vec::<Entry>::read(bytes)?,
            }),
            2 => Request::Vote(Code::read(bytes)?),
            3 => Request::PreVote(Code::read(bytes)?),
            4 => {
                let (vote, to) = (Vote::read(bytes)?, u64::read(bytes)?);
                Request::TransferLeader(TransferLeaderRequest::new(vote, to, Option::read(bytes)?))
            }
            5 => Request::Begin(Vote::read(bytes)?, Code::read(bytes)?),
            6 => Request::Block(Vote::read(bytes)?, Bytes::read(bytes)?),
            7 => Request::End(Vote::read(bytes)?),
            _ => return Err(CodecError("a message")),
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        VERSION.write(out);
        match self {
            Request::Append(append) => {
                1u8.write(out);
                append.vote.write(out);
                append.prev_log_id.write(out);
                append.leader_commit.write(out);
                append.entries.write(out);
            }
            Request::Vote(vote) => {
                2u8.write(out);
                vote.write(out);
            }
            Request::PreVote(vote) => {
                3u8.write(out);
                vote.write(out);
            }
            Request::TransferLeader(transfer) => {
                4u8.write(out);
                transfer.from_leader().write(out);
                transfer.to_node_id().write(out);
                transfer.last_log_id().copied().write(out);
            }
            Request::Begin(vote, meta) => {
                5u8.write(out);
                vote.write(out);
                meta.write(out);
            }
            Request::Block(vote, block) => {
                6u8.write(out);
                vote.write(out);
                block.write(out);
            }
            Request::End(vote) => {
                7u8.write(out);
                vote.write(out);
            }
        }
    }
}

impl Code for VoteRequest<Types> {
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

impl Code for VoteResponse<Types> {
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

impl Code for AppendEntriesResponse<Types> {
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
