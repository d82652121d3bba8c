//! Requests that a node forwards to the leader.
//!
//! ```text
//!  request = MARK u8, VERSION u8, kind u8, content      kind: PROPOSE 1 (commands), READ_INDEX 2 (nothing)
//!  answer  = 0 u8, commands' answers or index u64  |  1 u8, error
//!  error   = code u8, a u64, b u64, text            fields that a code does not need are 0 and empty
//! ```
//! Integers are little-endian. Each command and each response follows its length, a `u32`.

use std::io;

use bytes::{Buf, BufMut, Bytes};
use dunlin_raft::{Commands, GroupError, Member};

/// The first byte of a request. Requests of raft begin with another byte.
const MARK: u8 = 0xc0;
const VERSION: u8 = 1;
const PROPOSE: u8 = 1;
const READ_INDEX: u8 = 2;

/// A request to the leader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Request {
    Propose(Commands),
    ReadIndex,
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl Request {
    /// Decodes a request; `None` if the bytes are a request of raft.
    pub(crate) fn read(bytes: &[u8]) -> Option<io::Result<Request>> {
        let rest = bytes.strip_prefix(&[MARK])?;
        Some(match rest {
            [VERSION, PROPOSE, commands @ ..] => Commands::from_bytes(commands)
                .map(Request::Propose)
                .ok_or_else(|| invalid("the request has no commands")),
            [VERSION, READ_INDEX] => Ok(Request::ReadIndex),
            [VERSION, ..] => Err(invalid("the request has an unknown kind")),
            _ => Err(invalid("the request has an unknown version")),
        })
    }

    /// Encodes the request.
    pub(crate) fn bytes(&self) -> Bytes {
        match self {
            Request::Propose(commands) => [&[MARK, VERSION, PROPOSE], commands.bytes()].concat().into(),
            Request::ReadIndex => Bytes::from_static(&[MARK, VERSION, READ_INDEX]),
        }
    }
}

pub(crate) type Answers = Result<Vec<Bytes>, GroupError>;
pub(crate) type Index = Result<u64, GroupError>;

/// Encodes the responses of commands.
pub(crate) fn write_answers(answers: &Answers) -> Bytes {
    write(answers, |answers, out| {
        answers.iter().for_each(|answer| {
            out.put_u32_le(answer.len() as u32);
            out.extend_from_slice(answer);
        });
    })
}

/// Encodes an index.
pub(crate) fn write_index(index: &Index) -> Bytes {
    write(index, |index, out| out.put_u64_le(*index))
}

fn write<T>(answer: &Result<T, GroupError>, content: impl FnOnce(&T, &mut Vec<u8>)) -> Bytes {
    let mut out = Vec::new();
    match answer {
        Ok(answer) => {
            out.push(0);
            content(answer, &mut out);
        }
        Err(error) => {
            out.push(1);
            write_error(error, &mut out);
        }
    }
    out.into()
}

/// Decodes the responses of commands.
pub(crate) fn read_answers(bytes: Bytes) -> io::Result<Answers> {
    read(bytes, |mut bytes| {
        let mut answers = Vec::new();
        while !bytes.is_empty() {
            let len = bytes.try_get_u32_le().ok()? as usize;
            answers.push((len <= bytes.len()).then(|| bytes.split_to(len))?);
        }
        Some(answers)
    })
}

/// Decodes an index.
pub(crate) fn read_index(bytes: Bytes) -> io::Result<Index> {
    read(bytes, |mut bytes| bytes.try_get_u64_le().ok().filter(|_| bytes.is_empty()))
}

fn read<T>(mut bytes: Bytes, content: impl FnOnce(Bytes) -> Option<T>) -> io::Result<Result<T, GroupError>> {
    let answer = match bytes.try_get_u8() {
        Ok(0) => content(bytes).map(Ok),
        Ok(1) => read_error(bytes).map(Err),
        _ => None,
    };
    answer.ok_or_else(|| invalid("the response has an unknown version"))
}

fn write_error(error: &GroupError, out: &mut Vec<u8>) {
    let (code, a, b, text) = match error {
        GroupError::NotLeader { leader: None } => (1, 0, 0, ""),
        GroupError::NotLeader { leader: Some(leader) } => (2, leader.id, 0, leader.address.as_str()),
        GroupError::Unknown => (3, 0, 0, ""),
        GroupError::NoQuorum(why) => (4, 0, 0, why.as_str()),
        GroupError::Busy(waiting_max) => (5, *waiting_max as u64, 0, ""),
        GroupError::TooLarge { bytes, bytes_max } => (6, *bytes as u64, *bytes_max as u64, ""),
        GroupError::Refused(why) => (7, 0, 0, why.as_str()),
        GroupError::Stopped(why) => (8, 0, 0, why.as_str()),
        GroupError::NoRoom(why) => (9, 0, 0, why.as_str()),
        // A later version of the raft crate sent the response. The outcome is unknown.
        _ => (3, 0, 0, ""),
    };
    out.push(code);
    out.put_u64_le(a);
    out.put_u64_le(b);
    out.extend_from_slice(text.as_bytes());
}

fn read_error(mut bytes: Bytes) -> Option<GroupError> {
    let (code, a, b) = (bytes.try_get_u8().ok()?, bytes.try_get_u64_le().ok()?, bytes.try_get_u64_le().ok()?);
    let text = String::from_utf8(bytes.to_vec()).ok()?;
    Some(match code {
        1 => GroupError::NotLeader { leader: None },
        2 => GroupError::NotLeader { leader: Some(Member { id: a, address: text }) },
        3 => GroupError::Unknown,
        4 => GroupError::NoQuorum(text),
        5 => GroupError::Busy(usize::try_from(a).ok()?),
        6 => GroupError::TooLarge { bytes: usize::try_from(a).ok()?, bytes_max: usize::try_from(b).ok()? },
        7 => GroupError::Refused(text),
        8 => GroupError::Stopped(text),
        9 => GroupError::NoRoom(text),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors() -> Vec<GroupError> {
        vec![
            GroupError::NotLeader { leader: None },
            GroupError::NotLeader { leader: Some(Member { id: 3, address: "there".to_owned() }) },
            GroupError::Unknown,
            GroupError::NoQuorum("alone".to_owned()),
            GroupError::Busy(7),
            GroupError::TooLarge { bytes: 9, bytes_max: 8 },
            GroupError::Refused("no".to_owned()),
            GroupError::Stopped("gone".to_owned()),
            GroupError::NoRoom("full".to_owned()),
        ]
    }

    #[test]
    fn encoded_requests_and_responses_decode_only_when_whole() {
        let mut commands = Commands::one(b"one");
        commands.push(b"");
        for request in [Request::Propose(commands), Request::ReadIndex] {
            let bytes = request.bytes();
            assert_eq!(Request::read(&bytes).unwrap().unwrap(), request);
            for len in 4..bytes.len() {
                let part = Request::read(&bytes[..len]).unwrap();
                assert!(part.is_err() || part.unwrap() != request, "{len} bytes of {request:?}");
            }
        }
        let answers: Answers = Ok(vec![Bytes::from("a"), Bytes::new()]);
        assert_eq!(read_answers(write_answers(&answers)).unwrap(), answers);
        assert_eq!(read_index(write_index(&Ok(9))).unwrap(), Ok(9));
        for error in errors() {
            assert_eq!(read_index(write_index(&Err(error.clone()))).unwrap(), Err(error));
        }
    }

    #[test]
    fn foreign_and_malformed_bytes_are_not_a_request() {
        assert!(Request::read(&[1, 1]).is_none(), "raft's");
        assert!(Request::read(&[]).is_none());
        for bytes in [&[MARK][..], &[MARK, 2, PROPOSE], &[MARK, VERSION, 9], &[MARK, VERSION, PROPOSE, 1]] {
            assert!(Request::read(bytes).unwrap().is_err(), "{bytes:?}");
        }
        for bytes in
            [&[][..], &[2], &[0, 1], &[1, 1], &[1, 99, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]]
        {
            assert!(read_index(Bytes::copy_from_slice(bytes)).is_err(), "{bytes:?}");
        }
        assert!(read_answers(Bytes::from_static(&[0, 5, 0, 0, 0, 1])).is_err());
    }
}
