//! Commands that are proposed together, each behind its length, as they will stand in the log.

use bytes::BufMut;

/// See the module. Whoever has several commands at once proposes them with one wait.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Commands {
    bytes: Vec<u8>,
    count: usize,
    longest: usize,
}

impl Commands {
    /// One command.
    pub fn one(command: &[u8]) -> Commands {
        let mut commands = Commands::default();
        commands.push(command);
        commands
    }

    /// Adds one.
    pub fn push(&mut self, command: &[u8]) {
        self.push_with(|out| out.extend_from_slice(command));
    }

    /// Adds one that is written where it is to lie.
    pub fn push_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let at = self.bytes.len();
        self.bytes.put_u32_le(0);
        write(&mut self.bytes);
        let len = self.bytes.len() - at - 4;
        // One too long for its length is too long for a group, too.
        self.bytes[at..at + 4].copy_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
        self.count += 1;
        self.longest = self.longest.max(len);
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of all, with their lengths.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes of the longest.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// Those that were joined to these bytes; `None` where they are no commands.
    pub fn from_bytes(bytes: &[u8]) -> Option<Commands> {
        let mut commands = Commands { bytes: bytes.to_vec(), ..Commands::default() };
        let mut rest = bytes;
        while !rest.is_empty() {
            let (len, after) = rest.split_first_chunk()?;
            let (command, after) = after.split_at_checked(u32::from_le_bytes(*len) as usize)?;
            (commands.count, commands.longest) = (commands.count + 1, commands.longest.max(command.len()));
            rest = after;
        }
        Some(commands)
    }

    /// Each.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        split(&self.bytes)
    }
}

/// Commands one after another, as far as they are whole.
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
    fn joined_commands_are_split_again() {
        let mut commands = Commands::one(b"a");
        commands.push(b"");
        commands.push(b"longer");
        assert_eq!(commands.iter().collect::<Vec<_>>(), [&b"a"[..], b"", b"longer"]);
        assert_eq!((commands.len(), commands.longest()), (3, 6));
        assert_eq!(Commands::from_bytes(commands.bytes()), Some(commands));
    }

    #[test]
    fn truncated_bytes_are_no_commands() {
        let commands = Commands::one(b"ab");
        (1..commands.bytes().len())
            .for_each(|len| assert_eq!(Commands::from_bytes(&commands.bytes()[..len]), None));
    }
}
