//! A TCP connection with TLS, after the handshake.
//!
//! Limits: those of [`TlsCodec`]. The sessions of a thread share one buffer for reading.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use dunlin_client::tls::TlsCodec;
use rustix::net::{RecvFlags, Shutdown};
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::tls::ClientCertificate;

/// Maximum number of bytes that one read takes from a socket.
const READ_BYTES: usize = 64 << 10;

/// After this many reads without payload, other sessions of the thread run. A peer that sends empty TLS records without
/// a pause therefore cannot block them.
const READS_MAX: usize = 4;

thread_local! {
    static INCOMING: Cell<Option<Box<[u8]>>> = const { Cell::new(None) };
}

/// A connection with TLS to a client or another node.
#[derive(Debug)]
pub(crate) struct TlsStream {
    socket: TcpStream,
    codec: TlsCodec,
    /// Bytes that were read and then put back. The next read returns them first.
    returned: Vec<u8>,
}

/// A TLS connection that is detached from its thread, so that it can be moved to another thread.
#[derive(Debug)]
pub(crate) struct DetachedTlsStream {
    socket: std::net::TcpStream,
    codec: TlsCodec,
    returned: Vec<u8>,
}

impl DetachedTlsStream {
    /// Attaches the connection to the current thread. Only this thread may then serve the connection.
    pub(crate) fn attach(self) -> io::Result<TlsStream> {
        let socket = TcpStream::from_std(self.socket)?;
        Ok(TlsStream { socket, codec: self.codec, returned: self.returned })
    }
}

impl TlsStream {
    pub(crate) fn new(socket: TcpStream, codec: TlsCodec) -> TlsStream {
        TlsStream { socket, codec, returned: Vec::new() }
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// The client's certificate; `None` if the client has sent none.
    pub(crate) fn client_certificate(&self) -> Option<ClientCertificate> {
        ClientCertificate::read(self.codec.peer_certificate()?)
    }

    /// The protocol on which both sides agreed by ALPN; `None` if they agreed on none.
    pub(crate) fn protocol(&self) -> Option<&[u8]> {
        self.codec.protocol()
    }

    /// Detaches the connection from its thread, so that it can be moved to another thread.
    pub(crate) fn detach(self) -> io::Result<DetachedTlsStream> {
        Ok(DetachedTlsStream { socket: self.socket.into_std()?, codec: self.codec, returned: self.returned })
    }

    /// Whether the handshake is complete and all its messages were sent.
    pub(crate) fn is_established(&self) -> bool {
        !self.codec.is_handshaking() && !self.codec.has_unsent()
    }

    pub(crate) fn has_unsent(&self) -> bool {
        self.codec.has_unsent()
    }

    /// Puts bytes back that were read. The next read returns them again.
    pub(crate) fn unread(&mut self, bytes: &[u8]) {
        self.returned.splice(..0, bytes.iter().copied());
    }

    pub(super) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.returned.is_empty() || self.codec.has_unread() {
            return Poll::Ready(Ok(()));
        }
        self.socket.poll_read_ready(cx)
    }

    /// Returns `Ready` when the socket is readable, even if no complete TLS record has arrived.
    pub(crate) fn poll_socket_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_read_ready(cx)
    }

    /// Returns `Ready` when all output is sent and the socket can take more.
    pub(crate) fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.flush()? {
            ready!(self.socket.poll_write_ready(cx))?;
        }
        Poll::Ready(Ok(()))
    }

    fn flush(&mut self) -> io::Result<bool> {
        let socket = &self.socket;
        self.codec.flush(|slices| socket.try_write_vectored(slices))
    }

    pub(crate) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.read_with(into, |socket, buffer| {
            let received = socket.try_read(buffer)?;
            if 0 < received && received < buffer.len() {
                let would_block = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
                let _ = socket.try_io(Interest::READABLE, would_block);
            }
            Ok(received)
        })
    }

    pub(super) fn read_now(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.read_with(into, |socket, buffer| {
            let received = rustix::net::recv(socket, buffer, RecvFlags::DONTWAIT);
            received.map(|(received, _)| received).map_err(io::Error::from)
        })
    }

    /// Calls `receive` repeatedly, until payload has arrived or the socket is empty. After [`READS_MAX`] calls without
    /// payload, returns `WouldBlock`, although the socket may still be readable.
    fn read_with(
        &mut self,
        into: &mut [u8],
        receive: impl Fn(&TcpStream, &mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        if !self.returned.is_empty() {
            let count = into.len().min(self.returned.len());
            into[..count].copy_from_slice(&self.returned[..count]);
            self.returned.drain(..count);
            return Ok(count);
        }
        let mut buffer = INCOMING.take().unwrap_or_else(|| vec![0; READ_BYTES].into());
        let read = self.read_decrypted(into, &mut buffer, receive);
        INCOMING.set(Some(buffer));
        read
    }

    fn read_decrypted(
        &mut self,
        into: &mut [u8],
        buffer: &mut [u8],
        receive: impl Fn(&TcpStream, &mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut received = if self.codec.has_unread() { 0 } else { receive(&self.socket, buffer)? };
        let mut reads = 1;
        loop {
            if received == 0 && !self.codec.has_unread() {
                return Ok(0);
            }
            let mut at = 0;
            let read = self.codec.read(&buffer[..received], into.len(), |payload| {
                into[at..at + payload.len()].copy_from_slice(payload);
                at += payload.len();
            });
            // Received bytes may cause output, such as a handshake message or an alert. If the socket does not take
            // this output now, the next write sends it first, or reports that the socket is broken.
            let flushed = self.flush();
            let read = read.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            if read > 0 {
                return Ok(read);
            }
            flushed?;
            if self.codec.has_ended() {
                return Ok(0);
            }
            if reads == READS_MAX {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            reads += 1;
            received = receive(&self.socket, buffer)?;
        }
    }

    pub(super) fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let socket = &self.socket;
        self.codec.write(slices, |slices| socket.try_write_vectored(slices))
    }

    /// Closes the sending direction. Call this after all output is sent.
    pub(crate) fn shutdown_write(&mut self) -> io::Result<()> {
        self.codec.end();
        self.flush()?;
        rustix::net::shutdown(&self.socket, Shutdown::Write).map_err(io::Error::from)
    }
}

/// Describes for the log why a TLS handshake failed.
pub(crate) fn explain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "the client closed the connection".to_owned(),
        _ => error.to_string(),
    }
}
