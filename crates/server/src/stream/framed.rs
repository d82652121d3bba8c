//! A WebSocket connection, which is used either as a stream of bytes or for text messages. A stream of bytes consists
//! of binary messages; their boundaries have no meaning.
//!
//! A frame's header and its payload are written together, without copying the payload. Only bytes that the socket does
//! not take are copied.
//!
//! Limits: in a stream of bytes, a frame has at most [`FRAME_BYTES_MAX`] bytes. This limits how much is buffered for a
//! client that does not read. For text messages, all texts that the caller has [put](WebSocketStream::put_text) are
//! buffered. Of the pings that await a pong, only the last is kept.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use tokio::net::TcpStream;
use tungstenite::protocol::frame::coding::{Control, Data, OpCode};

use super::Stream;
use super::frames::{ControlFrames, DecodedFrames, FrameDecoder, head_of};
use crate::tls::ClientCertificate;

/// Maximum number of payload bytes in one frame.
const FRAME_BYTES_MAX: usize = 64 << 10;
/// Maximum number of pieces in which one frame is written, including its header.
const PIECES_MAX: usize = 66;
/// After this many reads without payload, other sessions of the thread run. A client that sends pings or empty frames
/// without a pause therefore cannot block them.
const READS_MAX: usize = 4;
/// The status in a close frame that reports no error.
const NORMAL_CLOSURE: u16 = 1_000;

/// A connection to a client over a WebSocket, after the WebSocket handshake.
#[derive(Debug)]
pub(crate) struct WebSocketStream {
    inner: Stream,
    frames: FrameDecoder,
    /// Bytes of the first frames that were already read during the handshake.
    leftover: Vec<u8>,
    /// Encoded frames that the socket has not taken yet.
    unsent: Vec<u8>,
    /// The payload of the last ping, while its pong is not sent yet. The pong follows after the unsent bytes.
    ping: Option<Vec<u8>>,
    close_sent: bool,
    close_received: bool,
}

impl WebSocketStream {
    /// Creates a stream of bytes from a connection whose WebSocket handshake is complete. `leftover` contains bytes
    /// after the handshake that were already read.
    pub(crate) fn binary(inner: Stream, leftover: Vec<u8>) -> WebSocketStream {
        WebSocketStream::of(Data::Binary, inner, leftover)
    }

    /// Creates a WebSocket for text messages from a connection whose handshake is complete. `leftover` contains bytes
    /// after the handshake that were already read.
    pub(crate) fn text(inner: Stream, leftover: Vec<u8>) -> WebSocketStream {
        WebSocketStream::of(Data::Text, inner, leftover)
    }

    fn of(kind: Data, inner: Stream, leftover: Vec<u8>) -> WebSocketStream {
        WebSocketStream {
            inner,
            frames: FrameDecoder::of(kind),
            leftover,
            unsent: Vec::new(),
            ping: None,
            close_sent: false,
            close_received: false,
        }
    }

    pub(super) fn socket(&self) -> Option<&TcpStream> {
        self.inner.socket()
    }

    pub(super) fn client_certificate(&self) -> Option<ClientCertificate> {
        self.inner.client_certificate()
    }

    pub(super) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty() || self.ping.is_some() || !self.inner.is_flushed()
    }

    pub(super) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.leftover.is_empty() || self.close_received {
            return Poll::Ready(Ok(()));
        }
        self.inner.poll_readable(cx)
    }

    /// Returns `Ready` when all output is sent and the socket can take more.
    pub(super) fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.inner.poll_writable(cx))?;
            if self.flush()? {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Returns `Ready` when all output is sent.
    pub(crate) fn poll_flush_buffered(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.unsent.is_empty() || self.ping.is_some() {
            ready!(self.poll_writable(cx))?;
        }
        self.inner.poll_flush_buffered(cx)
    }

    /// Sends the unsent frames and then the pong, if one is due. Returns whether the socket has taken everything.
    fn flush(&mut self) -> io::Result<bool> {
        loop {
            if self.unsent.is_empty() {
                let Some(ping) = self.ping.take() else { return Ok(true) };
                self.put_control(Control::Pong, &ping);
            }
            match self.inner.write(&[IoSlice::new(&self.unsent)]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) if written == self.unsent.len() => self.unsent = Vec::new(),
                Ok(written) => drop(self.unsent.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn put_control(&mut self, kind: Control, payload: &[u8]) {
        head_of(OpCode::Control(kind), payload.len(), &mut self.unsent);
        self.unsent.extend_from_slice(payload);
    }

    fn queue_close(&mut self, status: u16) {
        if !std::mem::replace(&mut self.close_sent, true) {
            // A pong must not follow the close frame.
            self.ping = None;
            self.put_control(Control::Close, &status.to_be_bytes());
        }
    }

    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.read_with(into, Stream::read)
    }

    pub(super) fn read_now(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.read_with(into, Stream::read_now)
    }

    /// Calls `receive` repeatedly, until payload has arrived or the socket is empty. After [`READS_MAX`] calls without
    /// payload, returns `WouldBlock`, although the socket may still be readable.
    fn read_with(
        &mut self,
        into: &mut [u8],
        receive: impl Fn(&mut Stream, &mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut reads = 0;
        while !self.close_received && !into.is_empty() {
            if reads == READS_MAX {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            reads += 1;
            let received = self.receive_with(into, &receive)?;
            if received == 0 {
                return Ok(0);
            }
            let payload = self.decode(&mut into[..received])?.payload;
            if payload > 0 {
                return Ok(payload);
            }
        }
        Ok(0)
    }

    fn receive_with(
        &mut self,
        into: &mut [u8],
        receive: impl Fn(&mut Stream, &mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let count = self.leftover.len().min(into.len());
        if count == 0 {
            return receive(&mut self.inner, into);
        }
        into[..count].copy_from_slice(&self.leftover[..count]);
        self.leftover.drain(..count);
        Ok(count)
    }

    /// Reads bytes of one text message through `buffer` and passes them to `take`. Returns `Ready(true)` when the
    /// message is complete, and `Ready(false)` when the client will send no more messages.
    pub(crate) fn poll_text(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
        mut take: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> Poll<io::Result<bool>> {
        while !self.close_received {
            ready!(self.poll_readable(cx))?;
            let received = match self.receive_with(buffer, Stream::read) {
                Ok(0) => return Poll::Ready(Ok(false)),
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return Poll::Ready(Err(error)),
            };
            let DecodedFrames { payload, read, ends_text } = self.decode(&mut buffer[..received])?;
            take(&buffer[..payload])?;
            self.leftover.splice(..0, buffer[read..received].iter().copied());
            if ends_text {
                return Poll::Ready(Ok(true));
            }
        }
        Poll::Ready(Ok(false))
    }

    /// Queues a text message. A [flush](WebSocketStream::poll_flush_buffered) of the connection sends it.
    pub(crate) fn put_text(&mut self, text: &str) {
        if !self.close_sent {
            head_of(OpCode::Data(Data::Text), text.len(), &mut self.unsent);
            self.unsent.extend_from_slice(text.as_bytes());
        }
    }

    /// Queues the close frame with a status code of RFC 6455.
    pub(crate) fn put_close(&mut self, status: u16) {
        self.queue_close(status);
    }

    /// Decodes frames in place: their payload is moved to the beginning of `bytes`.
    fn decode(&mut self, bytes: &mut [u8]) -> io::Result<DecodedFrames> {
        let mut control_frames = ControlFrames::default();
        let payload = self.frames.decode(bytes, &mut control_frames);
        if let Err(broken) = payload {
            self.queue_close(broken.status());
        }
        if control_frames.close {
            self.close_received = true;
            self.queue_close(NORMAL_CLOSURE);
        }
        if control_frames.ping.is_some() && !self.close_sent {
            self.ping = control_frames.ping;
        }
        if !self.unsent.is_empty() || self.ping.is_some() {
            // Bytes that the socket does not take now are sent before the next frame.
            self.flush()?;
        }
        Ok(payload?)
    }

    /// Writes as much as the socket takes, and returns the number of bytes. If the last frame is sent only in part, its
    /// rest is kept here, and all its bytes count as written.
    pub(super) fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if !self.flush()? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut pieces = slices.iter().map(|slice| &slice[..]).filter(|slice| !slice.is_empty());
        let (mut rest, mut taken): (&[u8], usize) = (&[], 0);
        loop {
            let mut frame = FramePieces::new();
            while frame.has_room() {
                if rest.is_empty() {
                    let Some(next) = pieces.next() else { break };
                    rest = next;
                }
                rest = frame.add(rest);
            }
            if frame.bytes == 0 {
                return Ok(taken);
            }
            match self.send(&frame) {
                Ok(is_sent) => {
                    taken += frame.bytes;
                    if !is_sent {
                        return Ok(taken);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && taken > 0 => return Ok(taken),
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends one frame. Returns whether the socket has taken all of it. If not, the rest is kept in `unsent`.
    fn send(&mut self, frame: &FramePieces<'_>) -> io::Result<bool> {
        let mut head = Vec::with_capacity(10);
        head_of(OpCode::Data(Data::Binary), frame.bytes, &mut head);
        let mut slices = [IoSlice::new(&[]); PIECES_MAX];
        slices[0] = IoSlice::new(&head);
        for (slice, piece) in slices[1..].iter_mut().zip(frame.pieces()) {
            *slice = IoSlice::new(piece);
        }
        let slices = &slices[..=frame.count];
        let mut written = self.inner.write(slices)?;
        for slice in slices {
            let skipped = written.min(slice.len());
            written -= skipped;
            self.unsent.extend_from_slice(&slice[skipped..]);
        }
        Ok(self.unsent.is_empty())
    }

    /// Sends a close frame, and closes the sending direction. Call this after all output is sent.
    pub(crate) fn shutdown_write(&mut self) -> io::Result<()> {
        self.queue_close(NORMAL_CLOSURE);
        self.flush()?;
        self.inner.shutdown_write()
    }
}

/// The payload of one frame, in pieces.
struct FramePieces<'a> {
    pieces: [&'a [u8]; PIECES_MAX - 1],
    count: usize,
    bytes: usize,
}

impl<'a> FramePieces<'a> {
    fn new() -> FramePieces<'a> {
        FramePieces { pieces: [&[]; PIECES_MAX - 1], count: 0, bytes: 0 }
    }

    fn has_room(&self) -> bool {
        self.bytes < FRAME_BYTES_MAX && self.count < self.pieces.len()
    }

    /// Adds as many of the bytes to the frame as fit. Returns the bytes that do not fit.
    fn add(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let (now, later) = bytes.split_at(bytes.len().min(FRAME_BYTES_MAX - self.bytes));
        self.pieces[self.count] = now;
        self.count += 1;
        self.bytes += now.len();
        later
    }

    fn pieces(&self) -> &[&'a [u8]] {
        &self.pieces[..self.count]
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::net::UnixStream;

    use super::*;

    /// A ping without payload. Its mask is zero.
    const PING: [u8; 6] = [0x89, 0x80, 0, 0, 0, 0];

    #[tokio::test]
    async fn pings_of_a_client_that_reads_nothing_use_no_memory() {
        let (node_end, client_end) = UnixStream::pair().unwrap();
        let mut node = WebSocketStream::binary(Stream::Unix(node_end), Vec::new());
        poll_fn(|cx| node.poll_writable(cx)).await.unwrap();
        // Fills the socket's send buffer, so that no pong can be sent.
        let filling = [0; FRAME_BYTES_MAX];
        while node.write(&[IoSlice::new(&filling)]).is_ok() {}
        let unsent = node.unsent.len();
        let mut buffer = [0; 64];
        for _ in 0..1_000 {
            client_end.writable().await.unwrap();
            assert_eq!(client_end.try_write(&PING).unwrap(), PING.len());
            poll_fn(|cx| node.poll_readable(cx)).await.unwrap();
            assert_eq!(node.read(&mut buffer).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
        // At most one pong was queued for sending, and at most one ping is waiting for its pong.
        assert!(node.unsent.len() <= unsent + PING.len(), "{} of {unsent}", node.unsent.len());
        assert!(node.ping.is_some());
    }

    #[tokio::test]
    async fn frames_without_payload_are_read_a_few_at_a_time() {
        let (node_end, client_end) = UnixStream::pair().unwrap();
        let mut node = WebSocketStream::binary(Stream::Unix(node_end), Vec::new());
        let frames = [&PING.repeat(64)[..], &[0x82, 0x81, 0, 0, 0, 0, b'x']].concat();
        client_end.writable().await.unwrap();
        assert_eq!(client_end.try_write(&frames).unwrap(), frames.len());
        // The buffer has the size of one ping, so that each read gets exactly one.
        let mut buffer = [0; PING.len()];
        let mut pauses = 0;
        let read = loop {
            poll_fn(|cx| node.poll_readable(cx)).await.unwrap();
            match node.read(&mut buffer) {
                Ok(read) => break read,
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
            pauses += 1;
        };
        assert_eq!(&buffer[..read], b"x");
        assert!(pauses >= 64 / READS_MAX, "{pauses}");
    }
}
