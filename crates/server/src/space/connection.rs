//! A connection between two runners: a non-blocking socket and its buffers.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};

use bytes::{Buf, Bytes};
use socket2::{Domain, Protocol, Socket, Type};

use super::frame::SpaceFrame;

/// Approximate number of bytes that are read at a time.
const READ_BYTES: usize = 256 << 10;
/// Maximum capacity that an empty buffer keeps for reuse, bytes.
const REUSED_BYTES_MAX: usize = 16 << 20;

/// Minimum size of a message body that is sent without a copy, bytes.
const SHARED_BYTES_MIN: usize = 16 << 10;
/// Maximum number of separate parts in one write to the socket.
const SLICES_MAX: usize = 16;

/// Received bytes that were not handled yet. The buffer's memory is zeroed once, and then reused.
#[derive(Debug, Default)]
pub(super) struct ReadBuffer {
    bytes: Vec<u8>,
    /// Offset at which the unhandled bytes begin.
    start: usize,
    /// Offset at which the unhandled bytes end.
    end: usize,
}

impl ReadBuffer {
    pub(super) fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Marks `count` bytes as handled.
    pub(super) fn consume(&mut self, count: usize) {
        self.start = self.end.min(self.start + count);
    }

    /// The free space into which bytes can be read.
    fn free_space(&mut self) -> &mut [u8] {
        if self.bytes.len() - self.end < READ_BYTES {
            self.bytes.resize(self.end + READ_BYTES, 0);
        }
        &mut self.bytes[self.end..]
    }

    /// Makes the space of handled bytes free again, unless many bytes would have to be copied for that.
    fn compact(&mut self) {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.bytes.len() > REUSED_BYTES_MAX {
                self.bytes = Vec::new();
            }
        } else if self.start > READ_BYTES && self.start > self.end / 2 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
    }
}

/// Bytes to send: complete parts, and after them `last`, to which bytes are still added.
#[derive(Debug, Default)]
struct WriteBuffer {
    parts: VecDeque<Bytes>,
    parts_bytes: usize,
    last: Vec<u8>,
    /// Number of bytes of `last` that were sent. Above 0 only if there are no other parts.
    sent: usize,
}

impl WriteBuffer {
    fn len(&self) -> usize {
        self.parts_bytes + self.last.len() - self.sent
    }

    /// Adds bytes. If there are many, they are not copied, but become a part of their own.
    fn push(&mut self, bytes: &Bytes) {
        if bytes.len() < SHARED_BYTES_MIN {
            return self.last.extend_from_slice(bytes);
        }
        let before = Bytes::from(std::mem::take(&mut self.last)).slice(std::mem::take(&mut self.sent)..);
        for part in [before, bytes.clone()] {
            self.parts_bytes += part.len();
            self.parts.push_back(part);
        }
    }

    /// Writes once to the socket. Returns the number of written bytes.
    fn write(&mut self, to: &mut impl Write) -> io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let last = std::iter::once(&self.last[self.sent..]);
        let all = self.parts.iter().map(|part| &part[..]).chain(last).filter(|slice| !slice.is_empty());
        let mut count = 0;
        for (slot, slice) in slices.iter_mut().zip(all) {
            *slot = IoSlice::new(slice);
            count += 1;
        }
        let written = to.write_vectored(&slices[..count])?;
        let mut remaining = written;
        while let Some(first) = self.parts.front_mut() {
            let part_bytes = first.len().min(remaining);
            first.advance(part_bytes);
            (self.parts_bytes, remaining) = (self.parts_bytes - part_bytes, remaining - part_bytes);
            if !first.is_empty() {
                return Ok(written);
            }
            self.parts.pop_front();
        }
        self.sent += remaining;
        Ok(written)
    }

    fn compact(&mut self) {
        if self.sent == self.last.len() {
            self.last.clear();
            self.sent = 0;
            self.last.shrink_to(REUSED_BYTES_MAX);
        } else if self.sent > REUSED_BYTES_MAX {
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
    input: ReadBuffer,
    output: WriteBuffer,
    pub(super) sent_bytes: u64,
    pub(super) received_bytes: u64,
}

impl RunnerConnection {
    /// Creates a connection from an accepted socket.
    pub(super) fn from_stream(stream: TcpStream) -> io::Result<RunnerConnection> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let (input, output) = (ReadBuffer::default(), WriteBuffer::default());
        Ok(RunnerConnection { stream, connecting: false, input, output, sent_bytes: 0, received_bytes: 0 })
    }

    /// Starts to connect, without waiting for the result.
    pub(super) fn connect(address: SocketAddr) -> io::Result<RunnerConnection> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        match socket.connect(&address.into()) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
            Err(error) => return Err(error),
        }
        let mut connection = RunnerConnection::from_stream(socket.into())?;
        connection.connecting = true;
        Ok(connection)
    }

    /// Ends the state `connecting`, and returns the result of connecting.
    pub(super) fn finish_connect(&mut self) -> io::Result<()> {
        self.connecting = false;
        self.stream.take_error()?.map_or(Ok(()), Err)
    }

    /// Encodes a frame and adds it to the bytes to send.
    pub(super) fn queue(&mut self, frame: &SpaceFrame<'_>) {
        frame.encode(&mut self.output.last);
    }

    /// Adds a frame to the bytes to send. The frame's body is `body`, which is not copied if it is large.
    pub(super) fn queue_with_body(&mut self, frame: &SpaceFrame<'_>, body: &Bytes) {
        frame.encode_head(body.len(), &mut self.output.last);
        self.output.push(body);
    }

    /// Number of bytes that wait to be sent.
    pub(super) fn queued(&self) -> usize {
        self.output.len()
    }

    /// Writes until all bytes are sent or the socket takes no more.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        while self.output.len() > 0 && !self.connecting {
            match self.output.write(&mut self.stream) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.sent_bytes += count as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.output.compact();
        Ok(())
    }

    /// Reads once from the socket. Returns `false` if the socket has no more bytes for now.
    pub(super) fn read(&mut self) -> io::Result<bool> {
        let free_space = self.input.free_space();
        let requested = free_space.len();
        match self.stream.read(free_space) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                self.input.end += count;
                self.received_bytes += count as u64;
                Ok(count == requested)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Takes the buffer with the received bytes out of the connection. Give it back with
    /// [`RunnerConnection::return_read_buffer`].
    pub(super) fn take_read_buffer(&mut self) -> ReadBuffer {
        std::mem::take(&mut self.input)
    }

    /// Gives the buffer back to the connection, with the bytes that were not handled.
    pub(super) fn return_read_buffer(&mut self, mut buffer: ReadBuffer) {
        buffer.compact();
        self.input = buffer;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A writer that takes only a random part of each write, like a socket whose buffer is almost full.
    struct Narrow(Vec<u8>, u64);

    impl Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.write_vectored(&[IoSlice::new(bytes)])
        }

        fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
            self.1 = self.1.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let all_bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
            let taken = all_bytes.len().min((self.1 >> 40) as usize % 60_000 + 1);
            self.0.extend_from_slice(&all_bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn output_bytes_keep_their_order_through_partial_writes() {
        let (mut out, mut narrow, mut expected) = (WriteBuffer::default(), Narrow(Vec::new(), 5), Vec::new());
        for nth in 0..400_usize {
            let bytes: Vec<u8> = (0..nth * 7_919 % 40_000).map(|at| (at * 31 + nth) as u8).collect();
            expected.extend_from_slice(&bytes);
            if nth % 3 == 0 {
                out.last.extend_from_slice(&bytes)
            } else {
                out.push(&bytes.into())
            }
            while nth % 5 == 0 && out.len() > 90_000 {
                let before = out.len();
                assert_eq!(out.write(&mut narrow).unwrap(), before - out.len());
                out.compact();
            }
            assert_eq!(narrow.0.len() + out.len(), expected.len());
        }
        while out.len() > 0 {
            out.write(&mut narrow).unwrap();
        }
        assert!(narrow.0 == expected);
    }

    #[test]
    fn input_bytes_keep_their_order_through_partial_reads() {
        let (mut buffer, mut produced, mut consumed) = (ReadBuffer::default(), 0_u64, 0_u64);
        let mut dice = 7_u64;
        while consumed < 40_000_000 {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let free_space = buffer.free_space();
            let count = free_space.len().min((dice >> 33) as usize % 900_000);
            free_space[..count].iter_mut().for_each(|byte| {
                *byte = (produced % 251) as u8;
                produced += 1;
            });
            buffer.end += count;
            // In one of eight rounds, all unread bytes are handled. In the other rounds, a random number of them is
            // handled.
            let unread = buffer.unread();
            let taken =
                if dice >> 61 == 0 { unread.len() } else { (dice >> 20) as usize % (unread.len() + 1) };
            assert_eq!(unread.len() as u64, produced - consumed);
            for byte in &unread[..taken] {
                assert_eq!(*byte, (consumed % 251) as u8);
                consumed += 1;
            }
            buffer.consume(taken);
            buffer.compact();
        }
        buffer.consume(usize::MAX);
        buffer.compact();
        assert!(buffer.unread().is_empty() && buffer.bytes.len() <= REUSED_BYTES_MAX);
    }
}
