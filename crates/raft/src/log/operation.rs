//! Operations on the log, as records of the journal.

use bytes::Bytes;

use crate::codec::{Codec, CodecError};
use crate::vocabulary::{Entry, LogId, Vote};

/// One operation on the log.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Operation {
    /// This entry follows the last.
    Append(Entry),
    /// Removes the entries after this one, or all.
    Truncate(Option<LogId>),
    /// Removes the entries up to this one, which are in a snapshot.
    Purge(LogId),
    /// Stores this node's vote.
    Vote(Vote),
}

const APPEND: u8 = 1;
const TRUNCATE: u8 = 2;
const PURGE: u8 = 3;
const VOTE: u8 = 4;

impl Codec for Operation {
    fn read(bytes: &mut Bytes) -> Result<Operation, CodecError> {
        Ok(match u8::read(bytes)? {
            APPEND => Operation::Append(Entry::read(bytes)?),
            TRUNCATE => Operation::Truncate(Option::read(bytes)?),
            PURGE => Operation::Purge(LogId::read(bytes)?),
            VOTE => Operation::Vote(Vote::read(bytes)?),
            _ => return Err(CodecError("an operation")),
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Operation::Append(entry) => {
                APPEND.write(out);
                entry.write(out);
            }
            Operation::Truncate(last) => {
                TRUNCATE.write(out);
                last.write(out);
            }
            Operation::Purge(last) => {
                PURGE.write(out);
                last.write(out);
            }
            Operation::Vote(vote) => {
                VOTE.write(out);
                vote.write(out);
            }
        }
    }
}
