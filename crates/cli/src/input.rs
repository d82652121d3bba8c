//! Reads standard input or a file in a separate thread, so that Ctrl-C can end a command while the command waits for
//! input.
//!
//! The thread ends when the input or the process ends. It reads at most [`CHUNKS_AHEAD_MAX`] chunks that the command
//! has not taken yet.

use std::io::{self, ErrorKind, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, sync_channel};
use std::thread;
use std::time::Duration;

use crate::signals::StopFlag;

const CHUNK_BYTES: usize = 64 << 10;
const CHUNKS_AHEAD_MAX: usize = 4;
/// The maximum size of a line or a file in bytes. A message to a node has at most 16 MiB, so no record can be larger.
pub const RECORD_BYTES_MAX: usize = 16 << 20;
/// Interval at which [`Input::next`] checks whether the command has to end.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Reads all bytes of a source. Fails if there are more than [`RECORD_BYTES_MAX`] bytes, because a source such as a
/// device may never end.
pub fn read_all(source: impl Read) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    source.take(RECORD_BYTES_MAX as u64 + 1).read_to_end(&mut all)?;
    if all.len() > RECORD_BYTES_MAX { Err(too_large()) } else { Ok(all) }
}

fn too_large() -> io::Error {
    io::Error::other(format!("it has more than {RECORD_BYTES_MAX} bytes"))
}

/// A thread that reads standard input or a file in chunks.
#[derive(Debug)]
pub struct Input {
    chunks: Receiver<io::Result<Vec<u8>>>,
    stop: StopFlag,
}

/// The result of reading input: a chunk of bytes, no bytes yet, or the end of the input.
#[derive(Debug)]
pub enum Chunk {
    Bytes(Vec<u8>),
    /// Nothing has arrived yet.
    None,
    /// The input has ended, or the command has to end.
    End,
}

impl Input {
    pub fn new(mut source: impl Read + Send + 'static, stop: StopFlag) -> Input {
        let (sender, chunks) = sync_channel(CHUNKS_AHEAD_MAX);
        thread::spawn(move || {
            loop {
                let mut chunk = vec![0; CHUNK_BYTES];
                let read = match source.read(&mut chunk) {
                    Ok(0) => return,
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    other => other.map(|bytes| {
                        chunk.truncate(bytes);
                        chunk
                    }),
                };
                let has_failed = read.is_err();
                if sender.send(read).is_err() || has_failed {
                    return;
                }
            }
        });
        Input { chunks, stop }
    }

    /// Returns the next chunk if the thread has already read it. Does not wait.
    pub fn try_next(&self) -> io::Result<Chunk> {
        if self.stop.is_set() {
            return Ok(Chunk::End);
        }
        match self.chunks.try_recv() {
            Ok(chunk) => chunk.map(Chunk::Bytes),
            Err(TryRecvError::Empty) => Ok(Chunk::None),
            Err(TryRecvError::Disconnected) => Ok(Chunk::End),
        }
    }

    /// Waits for the next chunk; never returns [`Chunk::None`].
    pub fn next(&self) -> io::Result<Chunk> {
        while !self.stop.is_set() {
            match self.chunks.recv_timeout(POLL_INTERVAL) {
                Ok(chunk) => return chunk.map(Chunk::Bytes),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        Ok(Chunk::End)
    }

    /// Returns all input, or `None` if the command has to end before the input ends. Fails if there are more than
    /// [`RECORD_BYTES_MAX`] bytes, because a source such as a device may never end.
    pub fn all(self) -> io::Result<Option<Vec<u8>>> {
        let mut all = Vec::new();
        while let Chunk::Bytes(chunk) = self.next()? {
            all.extend_from_slice(&chunk);
            if all.len() > RECORD_BYTES_MAX {
                return Err(too_large());
            }
        }
        Ok((!self.stop.is_set()).then_some(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endless_input_is_refused() {
        let refused = Input::new(io::repeat(b'x'), StopFlag::never()).all().unwrap_err();
        assert_eq!(refused.to_string(), "it has more than 16777216 bytes");
        assert_eq!(read_all(io::repeat(b'x')).unwrap_err().to_string(), refused.to_string());
        let whole = Input::new(io::repeat(b'x').take(RECORD_BYTES_MAX as u64), StopFlag::never()).all();
        assert_eq!(whole.unwrap().map(|bytes| bytes.len()), Some(RECORD_BYTES_MAX));
    }
}
