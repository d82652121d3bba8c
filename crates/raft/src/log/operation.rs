//! Defines the operations on a Raft log. Each record in the log's journal is one operation.

use bytes::Bytes;

use crate::codec::{CodecError, ValueCodec};
use crate::type_config::{LogEntry, LogId, Vote};

/// An operation on the Raft log, as it is stored in the journal.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum LogOperation {
    /// Appends an entry after the last one.
    Append(LogEntry),
    /// Removes all entries after the given one. With `None`, removes all entries.
    Truncate(Option<LogId>),
    /// Removes all entries up to and including the given one, because a snapshot contains them.
    Purge(LogId),
    Vote(Vote),
}

const APPEND: u8 = 1;
const TRUNCATE: u8 = 2;
const PURGE: u8 = 3;
const VOTE: u8 = 4;

impl ValueCodec for LogOperation {
    fn read(bytes: &mut Bytes) -> Result<LogOperation, CodecError> {
        Ok(match u8::read(bytes)? {
            APPEND => LogOperation::Append(LogEntry::read(bytes)?),
            TRUNCATE => LogOperation::Truncate(Option::read(bytes)?),
            PURGE => LogOperation::Purge(LogId::read(bytes)?),
            VOTE => LogOperation::Vote(Vote::read(bytes)?),
            _ => return Err(CodecError("an operation")),
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            LogOperation::Append(entry) => {
                APPEND.write(out);
                entry.write(out);
            }
            LogOperation::Truncate(last) => {
                TRUNCATE.write(out);
                last.write(out);
            }
            LogOperation::Purge(last) => {
                PURGE.write(out);
                last.write(out);
            }
            LogOperation::Vote(vote) => {
                VOTE.write(out);
                vote.write(out);
            }
        }
    }
}
