//! What TCP and Unix sockets have in common.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::task::{Context, Poll};

use rustix::net::{RecvFlags, Shutdown};
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};

/// A connection on its way to the thread that will serve it.
#[derive(Debug)]
pub(crate) enum Accepted {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

impl Accepted {
    pub(crate) fn tcp(stream: TcpStream) -> io::Result<Accepted> {
        stream.set_nodelay(true)?;
        stream.into_std().map(Accepted::Tcp)
    }

    pub(crate) fn unix(stream: UnixStream) -> io::Result<Accepted> {
        stream.into_std().map(Accepted::Unix)
    }
}

/// A connection.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

macro_rules! either {
    ($self:ident, $stream:ident => $call:expr) => {
        match $self {
            Stream::Tcp($stream) => $call,
            Stream::Unix($stream) => $call,
        }
    };
}

impl Stream {
    /// To be called on the thread that serves it.
    pub(crate) fn new(accepted: Accepted) -> io::Result<Stream> {
        Ok(match accepted {
            Accepted::Tcp(stream) => Stream::Tcp(TcpStream::from_std(stream)?),
            Accepted::Unix(stream) => Stream::Unix(UnixStream::from_std(stream)?),
        })
    }

    /// Where the client has connected to, over TCP.
    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        match self {
            Stream::Tcp(stream) => stream.local_addr().ok(),
            Stream::Unix(_) => None,
        }
    }

    pub(crate) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_read_ready(cx))
    }

    pub(crate) fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_write_ready(cx))
    }

    /// Reads what is there. When that is less than asked for, there is no more for now, and nobody needs
    /// to ask the kernel again before it says so.
    pub(crate) fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        let read = either!(self, stream => stream.try_read(into))?;
        if 0 < read && read < into.len() {
            self.exhausted(Interest::READABLE);
        }
        Ok(read)
    }

    /// Reads what is there, asking the kernel whether or not it has said that there is something.
    pub(crate) fn read_now(&self, into: &mut [u8]) -> io::Result<usize> {
        let read = either!(self, stream => rustix::net::recv(stream, into, RecvFlags::DONTWAIT));
        read.map(|(read, _)| read).map_err(io::Error::from)
    }

    /// Writes what the kernel takes. When that is less than all of it, it takes no more before it says so.
    pub(crate) fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let all: usize = slices.iter().map(|slice| slice.len()).sum();
        let wrote = match slices {
            [one] => either!(self, stream => stream.try_write(one)),
            many => either!(self, stream => stream.try_write_vectored(many)),
        }?;
        if 0 < wrote && wrote < all {
            self.exhausted(Interest::WRITABLE);
        }
        Ok(wrote)
    }

    /// Saves the system call that would only find this out.
    fn exhausted(&self, interest: Interest) {
        let would_block = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
        let _ = either!(self, stream => stream.try_io(interest, would_block));
    }

    /// Ends the direction to the client: it gets what was sent, then the end.
    pub(crate) fn end_writing(&self) -> io::Result<()> {
        let ended = either!(self, stream => rustix::net::shutdown(stream, Shutdown::Write));
        ended.map_err(io::Error::from)
    }
}
