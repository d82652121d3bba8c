//! Encodes the content of a log entry: the group's time, and then the commands, each preceded by its length.

use bytes::BufMut;

use crate::commands::{self, CommandBatch};
use crate::type_config::Proposal;

/// Combines batches, which were proposed at about the same time, into one proposal.
pub(crate) fn join<'a>(now_ms: u64, batch: impl Iterator<Item = &'a CommandBatch> + Clone) -> Proposal {
    let bytes = batch.clone().map(|commands| commands.bytes().len()).sum::<usize>();
    let mut out = Vec::with_capacity(8 + bytes);
    out.put_u64_le(now_ms);
    batch.for_each(|commands| out.extend_from_slice(commands.bytes()));
    Proposal(out.into())
}

/// Splits a proposal into the time and the commands. Invalid bytes yield no commands.
pub(crate) fn split(proposal: &[u8]) -> (u64, impl Iterator<Item = &[u8]>) {
    let (now, rest) = proposal.split_first_chunk().unwrap_or((&[0; 8], &[]));
    (u64::from_le_bytes(*now), commands::split(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined() -> Proposal {
        let mut some = CommandBatch::one(b"a");
        some.push(b"");
        join(7, [&some, &CommandBatch::one(b"longer")].into_iter())
    }

    #[test]
    fn joined_proposals_are_read_back_one_by_one() {
        let joined = joined();
        let (now_ms, split) = split(&joined.0);
        assert_eq!((now_ms, split.collect::<Vec<_>>()), (7, vec![&b"a"[..], b"", b"longer"]));
    }

    #[test]
    fn truncated_proposal_yields_only_whole_commands() {
        let joined = joined();
        for bytes in 0..joined.0.len() {
            assert!(split(&joined.0[..bytes]).1.count() < 3);
        }
    }
}
