//! One connection: a socket that never blocks, what came and is not read yet, what is to be sent and is not gone yet.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;

use socket2::{Domain, Protocol, Socket, Type};

use super::frame::Frame;

/// What is read at once, about.
const READ_BYTES: usize = 256 << 10;
/// Memory of a buffer that is kept while it is empty, whatever was needed of late.
const KEPT_BYTES: usize = 4 << 20;
/// How often a buffer is empty until it is looked at whether it need be so large.
const LOOK_EVERY: u32 = 256;

/// See the module.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    /// It was begun and has no outcome yet.
    pub(super) connecting: bool,
    /// What came lies from `read_from` up to `came_to`; the rest is room.
    came: Vec<u8>,
    read_from: usize,
    came_to: usize,
    came_kept: Kept,
    out: Vec<u8>,
    sent: usize,
    out_kept: Kept,
    pub(super) sent_bytes: u64,
    pub(super) received_bytes: u64,
}

impl Connection {
    /// Over a socket that was accepted.
    pub(super) fn of(stream: TcpStream) -> io::Result<Connection> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Connection {
            stream,
            connecting: false,
            came: Vec::new(),
            read_from: 0,
            came_to: 0,
            came_kept: Kept::default(),
            out: Vec::new(),
            sent: 0,
            out_kept: Kept::default(),
            sent_bytes: 0,
            received_bytes: 0,
        })
    }

    /// Begins one, without waiting for its outcome.
    pub(super) fn begin(address: SocketAddr) -> io::Result<Connection> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        match socket.connect(&address.into()) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
            Err(error) => return Err(error),
        }
        let mut connection = Connection::of(socket.into())?;
        connection.connecting = true;
        Ok(connection)
    }

    /// Its outcome is there.
    pub(super) fn connected(&mut self) -> io::Result<()> {
        self.connecting = false;
        self.stream.take_error()?.map_or(Ok(()), Err)
    }

    /// Puts a frame behind what is to be sent.
    pub(super) fn put(&mut self, frame: &Frame<'_>) {
        frame.encode(&mut self.out);
    }

    /// Bytes that are not gone yet.
    pub(super) fn queued(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Gives the kernel what it takes.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        while self.sent < self.out.len() && !self.connecting {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.sent += count;
                    self.sent_bytes += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.sent == self.out.len() {
            self.out_kept.emptied(&mut self.out, self.sent);
            self.out.clear();
            self.sent = 0;
        } else if self.sent > KEPT_BYTES {
            self.out.drain(..self.sent);
            self.sent = 0;
        }
        Ok(())
    }

    /// Takes what the kernel has, once; `false` where it has nothing more for now.
    pub(super) fn fill(&mut self) -> io::Result<bool> {
        if self.came.len() < self.came_to + READ_BYTES {
            // Room is made so seldom that clearing it costs nothing.
            let room = (self.came_to + READ_BYTES).max(self.came.len() * 2);
            self.came.resize(room, 0);
        }
        let end = self.came_to + READ_BYTES;
        match self.stream.read(&mut self.came[self.came_to..end]) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                self.came_to += count;
                self.received_bytes += count as u64;
                Ok(count == READ_BYTES)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// What came, to be read frame by frame: bytes, and which of them; [`Connection::put_back`] what was not.
    pub(super) fn take_came(&mut self) -> (Vec<u8>, Range<usize>) {
        (std::mem::take(&mut self.came), self.read_from..self.came_to)
    }

    /// Keeps what was not read.
    pub(super) fn put_back(&mut self, mut came: Vec<u8>, read: usize) {
        let end = self.came_to;
        (self.read_from, self.came_to) = (read, end);
        if read == end {
            self.came_kept.emptied(&mut came, end);
            (self.read_from, self.came_to) = (0, 0);
        } else if read > READ_BYTES && read > end / 2 {
            came.copy_within(read..end, 0);
            (self.read_from, self.came_to) = (0, end - read);
        }
        self.came = came;
    }
}

/// How much of a buffer was needed of late: so much is kept.
#[derive(Debug, Default)]
struct Kept {
    most: usize,
    times: u32,
}

impl Kept {
    /// A buffer of which so much was needed is empty.
    fn emptied(&mut self, buffer: &mut Vec<u8>, needed: usize) {
        self.most = self.most.max(needed);
        self.times += 1;
        if self.times < LOOK_EVERY {
            return;
        }
        let kept = self.most.max(KEPT_BYTES);
        if buffer.capacity() > kept * 2 {
            buffer.truncate(kept);
            buffer.shrink_to(kept);
        }
        *self = Kept::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_keeps_what_is_needed_and_gives_back_what_was_needed_once() {
        let (mut kept, mut buffer) = (Kept::default(), vec![0; 64 << 20]);
        for _ in 0..LOOK_EVERY * 3 {
            kept.emptied(&mut buffer, 40 << 20);
        }
        assert_eq!(buffer.len(), 64 << 20);
        for _ in 0..LOOK_EVERY * 2 {
            kept.emptied(&mut buffer, 1_000);
        }
        assert!(buffer.capacity() <= KEPT_BYTES * 2);
    }
}
