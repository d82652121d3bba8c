//! Requests that a node forwards to the leader.
//!
//! ```text
//!  request  = MARK u8, VERSION u8, kind u8, content      kind: PROPOSE 1 (commands), READ_INDEX 2 (nothing)
//!  response = 0 u8, commands' responses or index u64  |  1 u8, error
//!  error    = code u8, a u64, b u64, text            fields that a code does not need are 0 and empty
//! ```
//! Integers are little-endian. Each command and each response is preceded by its length in bytes, a `u32`.

use std::io;

use bytes::{Buf, BufMut, Bytes};
use dunlin_raft::{CommandBatch, RaftGroupError, RaftMember};

/// The first byte of a forwarded request. Messages of the raft protocol begin with other bytes.
const MARK: u8 = 0xc0;
const VERSION: u8 = 1;
const PROPOSE: u8 = 1;
const READ_INDEX: u8 = 2;

/// A request that a node forwards to the leader of a Raft group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ForwardedRequest {
    Propose(CommandBatch),
    ReadIndex,
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl ForwardedRequest {
    /// Decodes a forwarded request; returns `None` if the bytes are a message of the raft protocol.
    pub(crate) fn read(bytes: &[u8]) -> Option<io::Result<ForwardedRequest>> {
        let rest = bytes.strip_prefix(&[MARK])?;
        Some(match rest {
            [VERSION, PROPOSE, commands @ ..] => CommandBatch::from_bytes(commands)
                .map(ForwardedRequest::Propose)
                .ok_or_else(|| invalid("the request has no commands")),
            [VERSION, READ_INDEX] => Ok(ForwardedRequest::ReadIndex),
            [VERSION, ..] => Err(invalid("the request has an unknown kind")),
            _ => Err(invalid("the request has an unknown version")),
        })
    }

    pub(crate) fn bytes(&self) -> Bytes {
        match self {
            ForwardedRequest::Propose(commands) => {
                [&[MARK, VERSION, PROPOSE], commands.bytes()].concat().into()
            }
            ForwardedRequest::ReadIndex => Bytes::from_static(&[MARK, VERSION, READ_INDEX]),
        }
    }
}

pub(crate) type ProposalResult = Result<Vec<Bytes>, RaftGroupError>;
pub(crate) type ReadIndexResult = Result<u64, RaftGroupError>;

pub(crate) fn encode_responses(responses: &ProposalResult) -> Bytes {
    write(responses, |responses, out| {
        responses.iter().for_each(|response| {
            out.put_u32_le(response.len() as u32);
            out.extend_from_slice(response);
        });
    })
}

pub(crate) fn encode_index(index: &ReadIndexResult) -> Bytes {
    write(index, |index, out| out.put_u64_le(*index))
}

fn write<T>(response: &Result<T, RaftGroupError>, content: impl FnOnce(&T, &mut Vec<u8>)) -> Bytes {
    let mut out = Vec::new();
    match response {
        Ok(response) => {
            out.push(0);
            content(response, &mut out);
        }
        Err(error) => {
            out.push(1);
            write_error(error, &mut out);
        }
    }
    out.into()
}

pub(crate) fn decode_responses(bytes: Bytes) -> io::Result<ProposalResult> {
    read(bytes, |mut bytes| {
        let mut responses = Vec::new();
        while !bytes.is_empty() {
            let len = bytes.try_get_u32_le().ok()? as usize;
            responses.push((len <= bytes.len()).then(|| bytes.split_to(len))?);
        }
        Some(responses)
    })
}

pub(crate) fn decode_index(bytes: Bytes) -> io::Result<ReadIndexResult> {
    read(bytes, |mut bytes| bytes.try_get_u64_le().ok().filter(|_| bytes.is_empty()))
}

fn read<T>(
    mut bytes: Bytes,
    content: impl FnOnce(Bytes) -> Option<T>,
) -> io::Result<Result<T, RaftGroupError>> {
    let response = match bytes.try_get_u8() {
        Ok(0) => content(bytes).map(Ok),
        Ok(1) => read_error(bytes).map(Err),
        _ => None,
    };
    response.ok_or_else(|| invalid("the response has an unknown version"))
}

fn write_error(error: &RaftGroupError, out: &mut Vec<u8>) {
    let (code, a, b, text) = match error {
        RaftGroupError::NotLeader { leader: None } => (1, 0, 0, ""),
        RaftGroupError::NotLeader { leader: Some(leader) } => (2, leader.id, 0, leader.address.as_str()),
        RaftGroupError::Unknown => (3, 0, 0, ""),
        RaftGroupError::NoQuorum(why) => (4, 0, 0, why.as_str()),
        RaftGroupError::Busy(waiting_max) => (5, *waiting_max as u64, 0, ""),
        // `BusyBytes` has the same code as `Busy`. An older version of Dunlin, which does not know `BusyBytes`,
        // therefore reads this error as `Busy`.
        RaftGroupError::BusyBytes(bytes_max) => (5, *bytes_max as u64, 1, ""),
        RaftGroupError::TooLarge { bytes, bytes_max } => (6, *bytes as u64, *bytes_max as u64, ""),
        RaftGroupError::Refused(why) => (7, 0, 0, why.as_str()),
        RaftGroupError::Stopped(why) => (8, 0, 0, why.as_str()),
        RaftGroupError::NoRoom(why) => (9, 0, 0, why.as_str()),
        // `LacksResource` has the same code as `NoRoom`. An older version of Dunlin, which does not know
        // `LacksResource`, therefore reads this error as `NoRoom`.
        RaftGroupError::LacksResource(why) => (9, 0, 1, why.as_str()),
        // A newer version of the raft crate may have further errors. The outcome of the commands then counts as
        // unknown.
        _ => (3, 0, 0, ""),
    };
    out.push(code);
    out.put_u64_le(a);
    out.put_u64_le(b);
    out.extend_from_slice(text.as_bytes());
}

fn read_error(mut bytes: Bytes) -> Option<RaftGroupError> {
    let (code, a, b) = (bytes.try_get_u8().ok()?, bytes.try_get_u64_le().ok()?, bytes.try_get_u64_le().ok()?);
    let text = String::from_utf8(bytes.to_vec()).ok()?;
    Some(match code {
        1 => RaftGroupError::NotLeader { leader: None },
        2 => RaftGroupError::NotLeader { leader: Some(RaftMember { id: a, address: text }) },
        3 => RaftGroupError::Unknown,
        4 => RaftGroupError::NoQuorum(text),
        5 if b == 1 => RaftGroupError::BusyBytes(usize::try_from(a).ok()?),
        5 => RaftGroupError::Busy(usize::try_from(a).ok()?),
        6 => {
            RaftGroupError::TooLarge { bytes: usize::try_from(a).ok()?, bytes_max: usize::try_from(b).ok()? }
        }
        7 => RaftGroupError::Refused(text),
        8 => RaftGroupError::Stopped(text),
        9 if b == 1 => RaftGroupError::LacksResource(text),
        9 => RaftGroupError::NoRoom(text),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors() -> Vec<RaftGroupError> {
        vec![
            RaftGroupError::NotLeader { leader: None },
            RaftGroupError::NotLeader { leader: Some(RaftMember { id: 3, address: "there".to_owned() }) },
            RaftGroupError::Unknown,
            RaftGroupError::NoQuorum("alone".to_owned()),
            RaftGroupError::Busy(7),
            RaftGroupError::BusyBytes(8),
            RaftGroupError::TooLarge { bytes: 9, bytes_max: 8 },
            RaftGroupError::Refused("no".to_owned()),
            RaftGroupError::Stopped("gone".to_owned()),
            RaftGroupError::NoRoom("full".to_owned()),
            RaftGroupError::LacksResource("no descriptors".to_owned()),
        ]
    }

    #[test]
    fn truncated_forwarded_requests_and_responses_are_refused() {
        let mut commands = CommandBatch::one(b"one");
        commands.push(b"");
        for request in [ForwardedRequest::Propose(commands), ForwardedRequest::ReadIndex] {
            let bytes = request.bytes();
            assert_eq!(ForwardedRequest::read(&bytes).unwrap().unwrap(), request);
            for len in 4..bytes.len() {
                let part = ForwardedRequest::read(&bytes[..len]).unwrap();
                assert!(part.is_err() || part.unwrap() != request, "{len} bytes of {request:?}");
            }
        }
        let responses: ProposalResult = Ok(vec![Bytes::from("a"), Bytes::new()]);
        assert_eq!(decode_responses(encode_responses(&responses)).unwrap(), responses);
        assert_eq!(decode_index(encode_index(&Ok(9))).unwrap(), Ok(9));
        for error in errors() {
            assert_eq!(decode_index(encode_index(&Err(error.clone()))).unwrap(), Err(error));
        }
    }

    #[test]
    fn foreign_or_malformed_bytes_are_not_read_as_a_request() {
        assert!(ForwardedRequest::read(&[1, 1]).is_none(), "raft's");
        assert!(ForwardedRequest::read(&[]).is_none());
        for bytes in [&[MARK][..], &[MARK, 2, PROPOSE], &[MARK, VERSION, 9], &[MARK, VERSION, PROPOSE, 1]] {
            assert!(ForwardedRequest::read(bytes).unwrap().is_err(), "{bytes:?}");
        }
        for bytes in
            [&[][..], &[2], &[0, 1], &[1, 1], &[1, 99, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]]
        {
            assert!(decode_index(Bytes::copy_from_slice(bytes)).is_err(), "{bytes:?}");
        }
        assert!(decode_responses(Bytes::from_static(&[0, 5, 0, 0, 0, 1])).is_err());
    }
}
