//! What stands in one entry of the log: how late it is, and commands, each behind its length.

use bytes::{BufMut, Bytes};

use crate::vocabulary::Proposal;

/// Joins commands that were asked for at about the same time.
pub(crate) fn join<'a>(now_ms: u64, commands: impl Iterator<Item = &'a Bytes> + Clone) -> Proposal {
    let bytes = commands.clone().map(|command| 4 + command.len()).sum::<usize>();
    let mut out = Vec::with_capacity(8 + bytes);
    out.put_u64_le(now_ms);
    for command in commands {
        out.put_u32_le(command.len() as u32);
        out.extend_from_slice(command);
    }
    Proposal(out.into())
}

/// How late it was, and the commands. Bytes that nobody joined are no commands.
pub(crate) fn split(proposal: &[u8]) -> (u64, impl Iterator<Item = &[u8]>) {
    let (now, mut rest) = proposal.split_first_chunk().unwrap_or((&[0; 8], &[]));
    let commands = std::iter::from_fn(move || {
        let (len, after) = rest.split_first_chunk()?;
        let (command, after) = after.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        rest = after;
        Some(command)
    });
    (u64::from_le_bytes(*now), commands)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_joined_is_split_again() {
        let commands = ["a", "", "longer"].map(Bytes::from);
        let joined = join(7, commands.iter());
        let (now_ms, split) = split(&joined.0);
        assert_eq!((now_ms, split.collect::<Vec<_>>()), (7, vec![&b"a"[..], b"", b"longer"]));
    }

    #[test]
    fn what_is_cut_short_gives_what_is_whole() {
        let joined = join(7, [Bytes::from("a"), Bytes::from("bc")].iter());
        for bytes in 0..joined.0.len() {
            assert!(split(&joined.0[..bytes]).1.count() < 2);
        }
    }
}
