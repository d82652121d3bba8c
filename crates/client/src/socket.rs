//! One connected socket, TCP or Unix, with or without TLS.
//!
//! A connected socket is in blocking mode. A caller that waits for bytes blocks in `recv`. This saves the system call
//! that would otherwise wait until the socket is ready. A caller that must not wait passes a flag to the system
//! instead. A blocked `recv` ends after [`TICK`] at the latest.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, shutdown, socket_with, sockopt,
};

use crate::address::Endpoint;
use crate::limits::TICK;
use crate::tls::Connector;

mod tls_socket;

use tls_socket::TlsSocket;

/// Whether a socket can be read, and whether it can be written, without blocking.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Readiness {
    pub(crate) read: bool,
    pub(crate) write: bool,
}

/// A connected socket, with or without TLS.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    tls: Option<Box<TlsSocket>>,
}

impl Socket {
    /// Starts to connect. Until [`connected`](Socket::connected) is called, the socket is in non-blocking mode.
    pub(crate) fn connect(endpoint: &Endpoint, tls: Option<&Connector>) -> io::Result<Socket> {
        let tls = tls.map(TlsSocket::new).transpose()?.map(Box::new);
        let family = match endpoint {
            Endpoint::Unix(_) => AddressFamily::UNIX,
            Endpoint::Tcp(addr) if addr.is_ipv4() => AddressFamily::INET,
            Endpoint::Tcp(_) => AddressFamily::INET6,
        };
        let fd = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
        let result = match endpoint {
            Endpoint::Unix(path) => connect(&fd, &SocketAddrUnix::new(path)?),
            Endpoint::Tcp(addr) => {
                sockopt::set_tcp_nodelay(&fd, true)?;
                connect(&fd, addr)
            }
        };
        match result {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(Socket { fd, tls }),
            Err(error) => Err(error.into()),
        }
    }

    /// Completes the connection. Call this method when the socket has become writable.
    pub(crate) fn connected(&self) -> io::Result<()> {
        sockopt::socket_error(&self.fd)??;
        rustix::io::ioctl_fionbio(&self.fd, false)?;
        sockopt::set_socket_timeout(&self.fd, sockopt::Timeout::Recv, Some(TICK))?;
        Ok(())
    }

    /// Reads at most as many bytes as `into` has spare capacity. Without `blocking`, does not wait. `Ok(0)` means the
    /// end of the stream.
    #[inline]
    pub(crate) fn recv(&self, into: &mut Vec<u8>, blocking: bool) -> io::Result<usize> {
        if let Some(tls) = &self.tls {
            return tls.recv(&self.fd, into, blocking);
        }
        let flags = if blocking { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        let (read, _) = recv(&self.fd, spare_capacity(into), flags)?;
        Ok(read)
    }

    /// Writes as many bytes as possible without waiting; `Ok(0)` means that the socket has no room.
    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(tls) = &self.tls {
            return tls.send(&self.fd, bytes);
        }
        loop {
            match send(&self.fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(sent) => return Ok(sent),
                Err(rustix::io::Errno::AGAIN) => return Ok(0),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Writes encrypted bytes that the socket had no room for in [`send`](Socket::send). Returns `true` if no such
    /// bytes are left.
    pub(crate) fn flush(&self) -> io::Result<bool> {
        self.tls.as_ref().map_or(Ok(true), |tls| tls.flush(&self.fd))
    }

    /// Whether encrypted bytes have not been written yet.
    pub(crate) fn has_unsent(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.has_unsent())
    }

    /// Waits at most `longest` until the socket is readable, or, with `write`, until it is readable or writable.
    pub(crate) fn wait(&self, write: bool, longest: Duration) -> Readiness {
        if self.tls.as_ref().is_some_and(|tls| tls.has_unread()) {
            return Readiness { read: true, write: false };
        }
        let write_flag = if write { PollFlags::OUT } else { PollFlags::empty() };
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN | write_flag)];
        // If the wait fails, the next use of the socket reports the cause.
        if poll(&mut fds, Some(&timespec(longest))).is_err() {
            return Readiness::default();
        }
        let events = fds[0].revents();
        Readiness { read: events.intersects(!PollFlags::OUT), write: events.intersects(!PollFlags::IN) }
    }

    /// Ends the sending direction. The node still receives all bytes that were written before.
    pub(crate) fn end_writing(&self) {
        if let Some(tls) = &self.tls {
            tls.end(&self.fd);
        }
        // The error is ignored: it means that the socket is already closed.
        let _ = shutdown(&self.fd, Shutdown::Write);
    }

    /// Ends both directions. Other threads that wait for the socket then stop waiting.
    pub(crate) fn shutdown(&self) {
        // The error is ignored: it means that the socket is already closed.
        let _ = shutdown(&self.fd, Shutdown::Both);
    }
}

/// Waits until `longest` has passed or a signal arrives. For callers that have no socket to wait for.
pub(crate) fn sleep(longest: Duration) {
    let _ = poll(&mut [], Some(&timespec(longest)));
}

fn timespec(duration: Duration) -> Timespec {
    Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: i64::from(duration.subsec_nanos()) }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
