//! Reads and writes resume tokens of event streams. The node sends such a token as the id of each event; a client that
//! reconnects returns the last one in the header `Last-Event-ID`.
//!
//! ```text
//! one log     7-1042                      epoch, sequence number of the last record
//! many logs   m<base64url of>             for each log, in order of its key:
//!             +---------+-------+-----+
//!             | key u64 | epoch | seq |   key little-endian, the others LEB128
//!             +---------+-------+-----+
//! ```
//!
//! The key of a log is a hash of the topic's name and the partition. Tokens with names would be several times longer,
//! and the node knows all names anyway. Logs with equal keys cannot be distinguished. Of 1,000 logs, two have equal
//! keys only in 1 of 4 × 10¹³ cases.
//!
//! Limit: a token has at most [`RESUME_LOGS_MAX`] logs, because it must fit into an HTTP header.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::Position;

/// Maximum number of logs in one token.
pub const RESUME_LOGS_MAX: usize = 1_000;

/// First character of a token for several logs.
const MANY: char = 'm';

/// A number that identifies a log in a [`ResumeToken`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogKey(u64);

/// The error for a text that is not a valid resume token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected an event's id: a position like 7-1042, or an id that this node sent")]
pub struct ResumeError;

/// A resume token: the positions from which a client continues to read a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResumeToken {
    /// The position of the last record of the stream's only log.
    One(Position),
    /// For each of several logs, the position of its last record in the stream.
    Many(BTreeMap<LogKey, Position>),
}

impl LogKey {
    /// Computes the key of the log of a topic's partition.
    pub fn of(topic: &str, partition: u16) -> LogKey {
        let bytes = topic.bytes().chain([0]).chain(partition.to_le_bytes());
        LogKey(bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        }))
    }
}

/// Writes the token for a stream of one log.
pub fn write_position(position: Position, out: &mut String) {
    use std::fmt::Write;
    // Writing to a string cannot fail.
    let _ = write!(out, "{}-{}", position.epoch, position.seq);
}

impl ResumeToken {
    /// Parses a token.
    pub fn parse(text: &str) -> Result<ResumeToken, ResumeError> {
        match text.strip_prefix(MANY) {
            Some(rest) => parse_many(rest).map(ResumeToken::Many),
            None => parse_one(text).map(ResumeToken::One),
        }
        .ok_or(ResumeError)
    }

    /// Writes the token.
    pub fn write(&self, out: &mut String) {
        match self {
            ResumeToken::One(position) => write_position(*position, out),
            ResumeToken::Many(positions) => {
                let mut bytes = Vec::with_capacity(positions.len() * 20);
                for (key, position) in positions {
                    bytes.extend_from_slice(&key.0.to_le_bytes());
                    put_number(position.epoch.into(), &mut bytes);
                    put_number(position.seq, &mut bytes);
                }
                out.push(MANY);
                URL_SAFE_NO_PAD.encode_string(bytes, out);
            }
        }
    }
}

fn parse_one(text: &str) -> Option<Position> {
    let (epoch, seq) = text.split_once('-')?;
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(epoch) || !digits(seq) {
        return None;
    }
    Some(Position { epoch: epoch.parse().ok()?, seq: seq.parse().ok()? })
}

fn parse_many(text: &str) -> Option<BTreeMap<LogKey, Position>> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    let mut rest = bytes.as_slice();
    let mut positions = BTreeMap::new();
    while let Some((key, after)) = rest.split_first_chunk() {
        rest = after;
        let epoch = take_number(&mut rest)?.try_into().ok()?;
        let seq = take_number(&mut rest)?;
        let key = LogKey(u64::from_le_bytes(*key));
        if positions.len() == RESUME_LOGS_MAX || positions.insert(key, Position { epoch, seq }).is_some() {
            return None;
        }
    }
    rest.is_empty().then_some(positions)
}

fn put_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn take_number(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for byte_index in 0..10 {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        let bits = u64::from(byte & 0x7f);
        if byte_index == 9 && bits > 1 {
            return None;
        }
        number |= bits << (7 * byte_index);
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(resume: &ResumeToken) -> String {
        let mut text = String::new();
        resume.write(&mut text);
        text
    }

    #[test]
    fn resume_token_is_read_back_as_written() {
        let at = |epoch, seq| Position { epoch, seq };
        let many = |count: u16| {
            let position = |partition| at(u32::MAX - u32::from(partition), u64::MAX - u64::from(partition));
            ResumeToken::Many((0..count).map(|p| (LogKey::of("a.b", p), position(p))).collect())
        };
        assert_eq!(text(&ResumeToken::One(at(7, 1042))), "7-1042");
        for resume in [ResumeToken::One(at(0, 0)), many(0), many(1), many(3), many(RESUME_LOGS_MAX as u16)] {
            assert_eq!(ResumeToken::parse(&text(&resume)), Ok(resume));
        }
        assert!(text(&many(RESUME_LOGS_MAX as u16)).len() < 40 << 10, "it fits into a header");
    }

    #[test]
    fn invalid_resume_token_is_refused() {
        let mut twice = Vec::new();
        for _ in 0..2 {
            twice.extend_from_slice(&[1; 8]);
            twice.extend_from_slice(&[1, 1]);
        }
        let twice = format!("m{}", URL_SAFE_NO_PAD.encode(twice));
        let cases =
            ["", "-", "7", "7-", "-7", "+7-1", "7-1-1", "4294967296-1", "7-x", "mA", "m===", "m!", &twice];
        for text in cases {
            assert_eq!(ResumeToken::parse(text), Err(ResumeError), "{text}");
        }
    }

    #[test]
    fn resume_token_for_too_many_logs_is_refused() {
        let position = Position { epoch: 1, seq: 1 };
        let logs = (0..=RESUME_LOGS_MAX as u16).map(|p| (LogKey::of("a", p), position)).collect();
        assert_eq!(ResumeToken::parse(&text(&ResumeToken::Many(logs))), Err(ResumeError));
    }
}
