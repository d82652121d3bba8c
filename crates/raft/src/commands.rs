//! Defines a batch of commands. In memory, a batch has the form in which the log stores it: each command is preceded by
//! its length.

use bytes::BufMut;

/// A batch of encoded commands that are proposed together and become part of the same entry of the Raft log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandBatch {
    bytes: Vec<u8>,
    count: usize,
    longest: usize,
}

impl CommandBatch {
    /// Makes a batch that contains only `command`.
    pub fn one(command: &[u8]) -> CommandBatch {
        let mut commands = CommandBatch::default();
        commands.push(command);
        commands
    }

    /// Adds a command.
    pub fn push(&mut self, command: &[u8]) {
        self.push_with(|out| out.extend_from_slice(command));
    }

    /// Adds a command, which `write` appends to the encoded batch.
    pub fn push_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let at = self.bytes.len();
        self.bytes.put_u32_le(0);
        write(&mut self.bytes);
        let len = self.bytes.len() - at - 4;
        // If the length does not fit into a `u32`, the command also exceeds the group's limit, and is refused later.
        self.bytes[at..at + 4].copy_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
        self.count += 1;
        self.longest = self.longest.max(len);
    }

    /// Number of commands.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are no commands.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The encoded batch, in which each command is preceded by its length.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Length of the longest command, bytes.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// Decodes a batch from what [`bytes`](CommandBatch::bytes) returned; `None` if the bytes are invalid.
    pub fn from_bytes(bytes: &[u8]) -> Option<CommandBatch> {
        let mut commands = CommandBatch { bytes: bytes.to_vec(), ..CommandBatch::default() };
        let mut rest = bytes;
        while !rest.is_empty() {
            let (len, after) = rest.split_first_chunk()?;
            let (command, after) = after.split_at_checked(u32::from_le_bytes(*len) as usize)?;
            (commands.count, commands.longest) = (commands.count + 1, commands.longest.max(command.len()));
            rest = after;
        }
        Some(commands)
    }

    /// Iterates over the encoded commands.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        split(&self.bytes)
    }
}

/// Splits the bytes of a batch into its commands. Ignores an incomplete command at the end.
pub(crate) fn split(mut rest: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (len, after) = rest.split_first_chunk()?;
        let (command, after) = after.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        rest = after;
        Some(command)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_commands_are_read_back_one_by_one() {
        let mut commands = CommandBatch::one(b"a");
        commands.push(b"");
        commands.push(b"longer");
        assert_eq!(commands.iter().collect::<Vec<_>>(), [&b"a"[..], b"", b"longer"]);
        assert_eq!((commands.len(), commands.longest()), (3, 6));
        assert_eq!(CommandBatch::from_bytes(commands.bytes()), Some(commands));
    }

    #[test]
    fn truncated_command_list_is_refused() {
        let commands = CommandBatch::one(b"ab");
        (1..commands.bytes().len())
            .for_each(|len| assert_eq!(CommandBatch::from_bytes(&commands.bytes()[..len]), None));
    }
}
