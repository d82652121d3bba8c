//! A connection between runners: a non-blocking socket with its buffers.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};

use bytes::{Buf, Bytes};
use socket2::{Domain, Protocol, Socket, Type};

use super::frame::SpaceFrame;

/// Number of bytes that are read at once, approximately.
const READ_BYTES: usize = 256 << 10;
/// Largest capacity at which an empty buffer is kept for reuse, bytes.
const KEPT_BYTES: usize = 16 << 20;

/// Size from which a message's body is sent without a copy, bytes.
const SHARED_BYTES_MIN: usize = 16 << 10;
/// Maximum number of parts of one write.
const SLICES_MAX: usize = 16;

/// Received bytes that were not handled yet. The buffer's memory is zeroed once and reused.
#[derive(Debug, Default)]
pub(super) struct ReadBuffer {
    bytes: Vec<u8>,
    /// Start of the range of unhandled bytes; the next field is its end.
    from: usize,
    end: usize,
}

impl ReadBuffer {
    pub(super) fn unread(&self) -> &[u8] {
        &self.bytes[self.from..self.end]
    }

    /// Marks `count` bytes as handled.
    pub(super) fn pass(&mut self, count: usize) {
        self.from = self.end.min(self.from + count);
    }

    /// The free space into which bytes can be read.
    fn room(&mut self) -> &mut [u8] {
        if self.bytes.len() - self.end < READ_BYTES {
            self.bytes.resize(self.end + READ_BYTES, 0);
        }
        &mut self.bytes[self.end..]
    }

    /// Frees the space of handled bytes.
    fn tidy(&mut self) {
        if self.from == self.end {
            (self.from, self.end) = (0, 0);
            if self.bytes.len() > KEPT_BYTES {
                self.bytes = Vec::new();
            }
        } else if self.from > READ_BYTES && self.from > self.end / 2 {
            self.bytes.copy_within(self.from..self.end, 0);
            (self.from, self.end) = (0, self.end - self.from);
        }
    }
}

/// Bytes that will be sent: complete parts, and a last part to which bytes are still added.
#[derive(Debug, Default)]
struct WriteBuffer {
    parts: VecDeque<Bytes>,
    parts_bytes: usize,
    last: Vec<u8>,
    /// Number of bytes of the last part that were sent while it was the only part.
    sent: usize,
}

impl WriteBuffer {
    fn len(&self) -> usize {
        self.parts_bytes + self.last.len() - self.sent
    }

    /// Adds bytes; many bytes are added without a copy.
    fn put(&mut self, bytes: &Bytes) {
        if bytes.len() < SHARED_BYTES_MIN {
            return self.last.extend_from_slice(bytes);
        }
        let before = Bytes::from(std::mem::take(&mut self.last)).slice(std::mem::take(&mut self.sent)..);
        for part in [before, bytes.clone()] {
            self.parts_bytes += part.len();
            self.parts.push_back(part);
        }
    }

    /// Writes once; returns the number of written bytes.
    fn write(&mut self, to: &mut impl Write) -> io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let last = std::iter::once(&self.last[self.sent..]);
        let all = self.parts.iter().map(|part| &part[..]).chain(last).filter(|slice| !slice.is_empty());
        let mut count = 0;
        for (place, slice) in slices.iter_mut().zip(all) {
            *place = IoSlice::new(slice);
            count += 1;
        }
        let gone = to.write_vectored(&slices[..count])?;
        let mut left = gone;
        while let Some(first) = self.parts.front_mut() {
            let here = first.len().min(left);
            first.advance(here);
            (self.parts_bytes, left) = (self.parts_bytes - here, left - here);
            if !first.is_empty() {
                return Ok(gone);
            }
            self.parts.pop_front();
        }
        self.sent += left;
        Ok(gone)
    }

    fn tidy(&mut self) {
        if self.sent == self.last.len() {
            self.last.clear();
            self.sent = 0;
            self.last.shrink_to(KEPT_BYTES);
        } else if self.sent > KEPT_BYTES {
            self.last.drain(..self.sent);
            self.sent = 0;
        }
    }
}

/// A connection to another runner.
#[derive(Debug)]
pub(super) struct RunnerConnection {
    pub(super) stream: TcpStream,
    /// Whether the connection is still being established.
    pub(super) connecting: bool,
    came: ReadBuffer,
    out: WriteBuffer,
    pub(super) sent_bytes: u64,
    pub(super) received_bytes: u64,
}

impl RunnerConnection {
    /// Creates a connection from an accepted socket.
    pub(super) fn of(stream: TcpStream) -> io::Result<RunnerConnection> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let (came, out) = (ReadBuffer::default(), WriteBuffer::default());
        Ok(RunnerConnection { stream, connecting: false, came, out, sent_bytes: 0, received_bytes: 0 })
    }

    /// Starts to connect, without waiting for the result.
    pub(super) fn begin(address: SocketAddr) -> io::Result<RunnerConnection> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        match socket.connect(&address.into()) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
            Err(error) => return Err(error),
        }
        let mut connection = RunnerConnection::of(socket.into())?;
        connection.connecting = true;
        Ok(connection)
    }

    /// Returns the result of connecting.
    pub(super) fn connected(&mut self) -> io::Result<()> {
        self.connecting = false;
        self.stream.take_error()?.map_or(Ok(()), Err)
    }

    /// Adds a frame to the send queue.
    pub(super) fn put(&mut self, frame: &SpaceFrame<'_>) {
        frame.encode(&mut self.out.last);
    }

    /// Adds a frame whose body is a separate argument to the send queue. A large body is not copied.
    pub(super) fn put_with(&mut self, frame: &SpaceFrame<'_>, body: &Bytes) {
        frame.encode_before(body.len(), &mut self.out.last);
        self.out.put(body);
    }

    /// Number of bytes in the send queue.
    pub(super) fn queued(&self) -> usize {
        self.out.len()
    }

    /// Writes until the socket would block.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        while self.out.len() > 0 && !self.connecting {
            match self.out.write(&mut self.stream) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.sent_bytes += count as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.out.tidy();
        Ok(())
    }

    /// Reads once. Returns `false` if the socket has no more bytes at present.
    pub(super) fn fill(&mut self) -> io::Result<bool> {
        let room = self.came.room();
        let asked = room.len();
        match self.stream.read(room) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                self.came.end += count;
                self.received_bytes += count as u64;
                Ok(count == asked)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Takes the buffer of received bytes. [`RunnerConnection::put_back`] returns it with the unhandled bytes.
    pub(super) fn take_read_buffer(&mut self) -> ReadBuffer {
        std::mem::take(&mut self.came)
    }

    /// Returns the buffer, with the bytes that were not handled.
    pub(super) fn put_back(&mut self, mut came: ReadBuffer) {
        came.tidy();
        self.came = came;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A writer that accepts a random part of each write, like a socket that is almost full.
    struct Narrow(Vec<u8>, u64);

    impl Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.write_vectored(&[IoSlice::new(bytes)])
        }

        fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
            self.1 = self.1.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let whole: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
            let taken = whole.len().min((self.1 >> 40) as usize % 60_000 + 1);
            self.0.extend_from_slice(&whole[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn output_bytes_keep_their_order_through_partial_writes() {
        let (mut out, mut narrow, mut wanted) = (WriteBuffer::default(), Narrow(Vec::new(), 5), Vec::new());
        for nth in 0..400_usize {
            let bytes: Vec<u8> = (0..nth * 7_919 % 40_000).map(|at| (at * 31 + nth) as u8).collect();
            wanted.extend_from_slice(&bytes);
            if nth % 3 == 0 {
                out.last.extend_from_slice(&bytes)
            } else {
                out.put(&bytes.into())
            }
            while nth % 5 == 0 && out.len() > 90_000 {
                let before = out.len();
                assert_eq!(out.write(&mut narrow).unwrap(), before - out.len());
                out.tidy();
            }
            assert_eq!(narrow.0.len() + out.len(), wanted.len());
        }
        while out.len() > 0 {
            out.write(&mut narrow).unwrap();
        }
        assert!(narrow.0 == wanted);
    }

    #[test]
    fn input_bytes_keep_their_order_through_partial_reads() {
        let (mut came, mut written, mut read) = (ReadBuffer::default(), 0_u64, 0_u64);
        let mut dice = 7_u64;
        while read < 40_000_000 {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let room = came.room();
            let count = room.len().min((dice >> 33) as usize % 900_000);
            room[..count].iter_mut().for_each(|byte| {
                *byte = (written % 251) as u8;
                written += 1;
            });
            came.end += count;
            // Sometimes all bytes are handled, otherwise a part of them.
            let unread = came.unread();
            let taken =
                if dice >> 61 == 0 { unread.len() } else { (dice >> 20) as usize % (unread.len() + 1) };
            assert_eq!(unread.len() as u64, written - read);
            for byte in &unread[..taken] {
                assert_eq!(*byte, (read % 251) as u8);
                read += 1;
            }
            came.pass(taken);
            came.tidy();
        }
        came.pass(usize::MAX);
        came.tidy();
        assert!(came.unread().is_empty() && came.bytes.len() <= KEPT_BYTES);
    }
}
