//! One connection: a socket that never blocks, what came and is not read yet, what is to be sent and is not gone yet.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use socket2::{Domain, Protocol, Socket, Type};

use super::frame::Frame;

/// What is read at once, about.
const READ_BYTES: usize = 256 << 10;
/// Memory of a buffer that is kept while it is empty.
const KEPT_BYTES: usize = 4 << 20;

/// See the module.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    /// It was begun and has no outcome yet.
    pub(super) connecting: bool,
    came: Vec<u8>,
    read_from: usize,
    out: Vec<u8>,
    sent: usize,
    pub(super) sent_bytes: u64,
    pub(super) received_bytes: u64,
}

impl Connection {
    /// Over a socket that was accepted.
    pub(super) fn of(stream: TcpStream) -> io::Result<Connection> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let (came, out) = (Vec::new(), Vec::new());
        Ok(Connection {
            stream,
            connecting: false,
            came,
            read_from: 0,
            out,
            sent: 0,
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
            self.out.clear();
            self.sent = 0;
            self.out.shrink_to(KEPT_BYTES);
        } else if self.sent > KEPT_BYTES {
            self.out.drain(..self.sent);
            self.sent = 0;
        }
        Ok(())
    }

    /// Takes what the kernel has, once; `false` where it has nothing more for now.
    pub(super) fn fill(&mut self) -> io::Result<bool> {
        let held = self.came.len();
        self.came.resize(held + READ_BYTES, 0);
        let read = self.stream.read(&mut self.came[held..]);
        self.came.truncate(held + read.as_ref().map_or(0, |count| *count));
        match read {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                self.received_bytes += count as u64;
                Ok(count == READ_BYTES)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// What came, to be read frame by frame; [`Connection::put_back`] what was not.
    pub(super) fn take_came(&mut self) -> (Vec<u8>, usize) {
        (std::mem::take(&mut self.came), std::mem::take(&mut self.read_from))
    }

    /// Keeps what was not read.
    pub(super) fn put_back(&mut self, mut came: Vec<u8>, read: usize) {
        if read == came.len() {
            came.clear();
            came.shrink_to(KEPT_BYTES);
            (self.came, self.read_from) = (came, 0);
        } else if read > READ_BYTES && read > came.len() / 2 {
            came.drain(..read);
            (self.came, self.read_from) = (came, 0);
        } else {
            (self.came, self.read_from) = (came, read);
        }
    }
}
