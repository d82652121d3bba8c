//! Connections to clients over TCP and Unix sockets, with or without TLS, and over WebSockets.

mod framed;
mod frames;
mod tls_stream;

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::net::{RecvFlags, Shutdown};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use crate::protocol::Protocol;
use crate::tls::ClientCertificate;

pub(crate) use framed::WebSocketStream;
pub(crate) use tls_stream::{TlsStream, explain};

/// A connection that was accepted, but is not attached to a thread yet.
#[derive(Debug)]
pub(crate) enum AcceptedSocket {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

impl AcceptedSocket {
    pub(crate) fn tcp(stream: TcpStream) -> io::Result<AcceptedSocket> {
        stream.set_nodelay(true)?;
        stream.into_std().map(AcceptedSocket::Tcp)
    }

    pub(crate) fn unix(stream: UnixStream) -> io::Result<AcceptedSocket> {
        stream.into_std().map(AcceptedSocket::Unix)
    }
}

/// A connection to a client, over one of the supported kinds of sockets.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    /// A TCP connection with TLS, after the handshake.
    Tls(Box<TlsStream>),
    /// A WebSocket over a TCP or TLS connection, after its handshake.
    Ws(Box<WebSocketStream>),
}

/// Evaluates the first expression if the connection is a plain socket, and the second if it has a TLS or WebSocket
/// layer.
macro_rules! either {
    ($self:ident, $stream:ident => $call:expr, $layer:ident => $framed_call:expr) => {
        match $self {
            Stream::Tcp($stream) => $call,
            Stream::Unix($stream) => $call,
            Stream::Tls($layer) => $framed_call,
            Stream::Ws($layer) => $framed_call,
        }
    };
}

impl Stream {
    /// Creates a connection from an accepted socket. Call this on the thread that will serve the connection.
    pub(crate) fn new(accepted: AcceptedSocket) -> io::Result<Stream> {
        Ok(match accepted {
            AcceptedSocket::Tcp(stream) => Stream::Tcp(TcpStream::from_std(stream)?),
            AcceptedSocket::Unix(stream) => Stream::Unix(UnixStream::from_std(stream)?),
        })
    }

    /// The TCP socket, also below TLS or a WebSocket; `None` over a Unix socket.
    pub(crate) fn socket(&self) -> Option<&TcpStream> {
        match self {
            Stream::Tcp(stream) => Some(stream),
            Stream::Unix(_) => None,
            Stream::Tls(tls) => Some(tls.socket()),
            Stream::Ws(ws) => ws.socket(),
        }
    }

    /// The protocol under which reports list a session that uses Dunlin's own protocol over this connection.
    pub(crate) fn protocol(&self) -> Protocol {
        match self {
            Stream::Ws(_) => Protocol::Ws,
            _ => Protocol::Tcp,
        }
    }

    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        self.socket()?.local_addr().ok()
    }

    /// The client's IP address; `None` over a Unix socket.
    pub(crate) fn peer_ip(&self) -> Option<IpAddr> {
        self.socket()?.peer_addr().ok().map(|address| address.ip())
    }

    /// The client's verified certificate; `None` if the client has sent none.
    pub(crate) fn client_certificate(&self) -> Option<ClientCertificate> {
        either!(self, _stream => None, tls => tls.client_certificate())
    }

    pub(crate) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_read_ready(cx), tls => tls.poll_readable(cx))
    }

    pub(crate) fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_write_ready(cx), tls => tls.poll_writable(cx))
    }

    /// Sends bytes that [`write`](Stream::write) has accepted, but that are still in a buffer of a TLS or WebSocket
    /// layer. Call this after the last write.
    #[inline]
    pub(crate) fn poll_flush_buffered(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Tcp(_) | Stream::Unix(_) => Poll::Ready(Ok(())),
            Stream::Tls(tls) => tls.poll_writable(cx),
            Stream::Ws(ws) => ws.poll_flush_buffered(cx),
        }
    }

    /// Whether the socket has taken all bytes that were written.
    pub(crate) fn is_flushed(&self) -> bool {
        either!(self, _stream => true, tls => !tls.has_unsent())
    }

    /// Reads the bytes that are available. If they do not fill `into`, the socket counts as empty until it is readable
    /// again.
    pub(crate) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = either!(self, stream => stream.try_read(into), tls => return tls.read(into))?;
        if 0 < read && read < into.len() {
            self.clear_readiness(Interest::READABLE);
        }
        Ok(read)
    }

    /// Tries to read with a system call, even if the socket is not known to be readable.
    pub(crate) fn read_now(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = either!(
            self,
            stream => rustix::net::recv(stream, into, RecvFlags::DONTWAIT),
            tls => return tls.read_now(into)
        );
        read.map(|(read, _)| read).map_err(io::Error::from)
    }

    /// Writes as many bytes as the kernel takes. If it does not take all, the socket counts as full until it is
    /// writable again.
    pub(crate) fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let all: usize = slices.iter().map(|slice| slice.len()).sum();
        let written = match slices {
            [one] => either!(self, stream => stream.try_write(one), tls => return tls.write(slices)),
            many => either!(self, stream => stream.try_write_vectored(many), tls => return tls.write(slices)),
        }?;
        if 0 < written && written < all {
            self.clear_readiness(Interest::WRITABLE);
        }
        Ok(written)
    }

    /// Marks the socket as not ready. This saves a system call that would find no data or no room.
    fn clear_readiness(&self, interest: Interest) {
        let would_block = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
        let _ = either!(self, stream => stream.try_io(interest, would_block), _tls => Ok(()));
    }

    /// Closes the sending direction, after all bytes that were written before.
    pub(crate) fn shutdown_write(&mut self) -> io::Result<()> {
        let ended = either!(
            self,
            stream => rustix::net::shutdown(stream, Shutdown::Write),
            tls => return tls.shutdown_write()
        );
        ended.map_err(io::Error::from)
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        either!(
            this,
            stream => Pin::new(stream).poll_read(cx, into),
            layer => loop {
                ready!(layer.poll_readable(cx))?;
                match layer.read(into.initialize_unfilled()) {
                    Ok(read) => {
                        into.advance(read);
                        return Poll::Ready(Ok(()));
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Poll::Ready(Err(error)),
                }
            }
        )
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        either!(
            this,
            stream => Pin::new(stream).poll_write_vectored(cx, slices),
            layer => loop {
                match layer.write(slices) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready!(layer.poll_writable(cx))?,
                    written => return Poll::Ready(written),
                }
            }
        )
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_flush_buffered(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        either!(
            this,
            stream => Pin::new(stream).poll_shutdown(cx),
            layer => {
                ready!(layer.poll_writable(cx))?;
                Poll::Ready(layer.shutdown_write())
            }
        )
    }
}
