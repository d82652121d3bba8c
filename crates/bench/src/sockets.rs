//! Sockets within this machine, over TCP or as Unix sockets. Two kinds of measurements use these sockets: those of
//! floors (the best performance that the machine allows), and those of other systems whose protocol the benchmark
//! itself implements.
//!
//! Every blocking call times out after [`TIMEOUT`], so a run fails if the other side does not respond.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::child::{Child, TIMEOUT};

/// The kind of a socket within this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketKind {
    /// TCP on 127.0.0.1.
    Tcp,
    /// A Unix socket in the system's temporary directory.
    Uds,
}

impl SocketKind {
    /// Returns the value for the parameter `transport` of a measurement.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Uds => "uds",
        }
    }
}

/// The address of a socket within this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketAddress {
    /// A TCP address.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Uds(PathBuf),
}

impl fmt::Display for SocketAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "tcp:{address}"),
            Self::Uds(path) => write!(f, "uds:{}", path.display()),
        }
    }
}

impl FromStr for SocketAddress {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.split_once(':') {
            Some(("tcp", address)) => {
                Ok(Self::Tcp(address.parse().context("cannot read the socket's address")?))
            }
            Some(("uds", path)) => Ok(Self::Uds(path.into())),
            _ => bail!("`{text}` is not an endpoint: use tcp:ADDRESS or uds:PATH"),
        }
    }
}

impl SocketAddress {
    /// Connects to this address.
    pub fn connect(&self) -> Result<SocketStream> {
        let stream = match self {
            Self::Tcp(address) => SocketStream::Tcp(TcpStream::connect_timeout(address, TIMEOUT)?),
            Self::Uds(path) => SocketStream::Uds(UnixStream::connect(path)?),
        };
        stream.configure().with_context(|| format!("cannot connect to {self}"))
    }
}

/// A connection within this machine, over TCP or a Unix socket.
#[derive(Debug)]
pub enum SocketStream {
    /// A TCP connection without the delay of Nagle's algorithm.
    Tcp(TcpStream),
    /// A connection over a Unix socket.
    Uds(UnixStream),
}

impl SocketStream {
    fn configure(self) -> Result<Self> {
        if let Self::Tcp(stream) = &self {
            stream.set_nodelay(true)?;
        }
        match &self {
            Self::Tcp(stream) => {
                (stream.set_read_timeout(Some(TIMEOUT))?, stream.set_write_timeout(Some(TIMEOUT))?)
            }
            Self::Uds(stream) => {
                (stream.set_read_timeout(Some(TIMEOUT))?, stream.set_write_timeout(Some(TIMEOUT))?)
            }
        };
        Ok(self)
    }

    /// Sets whether a read returns at once if there is no data, as a spinning thread needs.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_nonblocking(nonblocking),
            Self::Uds(stream) => stream.set_nonblocking(nonblocking),
        }
    }

    /// Returns a second handle of the same connection.
    pub fn try_clone(&self) -> io::Result<Self> {
        match self {
            Self::Tcp(stream) => stream.try_clone().map(Self::Tcp),
            Self::Uds(stream) => stream.try_clone().map(Self::Uds),
        }
    }

    /// Reads until `buffer` is full. On a non-blocking stream, spins while there is no data.
    #[inline]
    pub fn read_full(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.read(&mut buffer[filled..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => filled += read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes all bytes. On a non-blocking stream, spins while the stream accepts no data.
    #[inline]
    pub fn write_full(&mut self, mut rest: &[u8]) -> io::Result<()> {
        while !rest.is_empty() {
            match self.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Read for SocketStream {
    #[inline]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Uds(stream) => stream.read(buffer),
        }
    }
}

impl Write for SocketStream {
    #[inline]
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(buffer),
            Self::Uds(stream) => stream.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A listening socket within this machine. Dropping the value removes the file of a Unix socket.
#[derive(Debug)]
pub enum SocketListener {
    /// A TCP listener on a free port of 127.0.0.1.
    Tcp(TcpListener),
    /// A Unix socket, and its path. No other socket has this path.
    Uds(UnixListener, PathBuf),
}

impl SocketListener {
    /// Listens at an address that is not in use.
    pub fn bind(transport: SocketKind) -> Result<Self> {
        match transport {
            SocketKind::Tcp => Ok(Self::Tcp(
                TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen on a free port")?,
            )),
            SocketKind::Uds => {
                let path = unused_path("sock");
                let listener = UnixListener::bind(&path)
                    .with_context(|| format!("cannot listen at {}", path.display()))?;
                Ok(Self::Uds(listener, path))
            }
        }
    }

    /// Returns the address to which other processes connect.
    pub fn endpoint(&self) -> Result<SocketAddress> {
        match self {
            Self::Tcp(listener) => {
                Ok(SocketAddress::Tcp(listener.local_addr().context("cannot read the listener's port")?))
            }
            Self::Uds(_, path) => Ok(SocketAddress::Uds(path.clone())),
        }
    }

    /// Accepts a connection from a child process. Returns an error if the child ends before it connects.
    pub fn accept_from(&self, child: &mut Child) -> Result<SocketStream> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            match self.try_accept() {
                Ok(stream) => return stream.configure(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error).context("cannot accept a connection"),
            }
            if let Some(status) = child.try_wait()? {
                bail!("the other process ended ({status}) before it connected{}", child.stderr_text());
            }
            if Instant::now() > deadline {
                bail!("no connection came within {TIMEOUT:?}");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn try_accept(&self) -> io::Result<SocketStream> {
        let stream = match self {
            Self::Tcp(listener) => {
                listener.set_nonblocking(true)?;
                SocketStream::Tcp(listener.accept()?.0)
            }
            Self::Uds(listener, _) => {
                listener.set_nonblocking(true)?;
                SocketStream::Uds(listener.accept()?.0)
            }
        };
        stream.set_nonblocking(false)?;
        Ok(stream)
    }
}

impl Drop for SocketListener {
    fn drop(&mut self) {
        if let Self::Uds(_, path) = self {
            // The file may already have been removed.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Returns a path in the system's temporary directory that is not in use.
pub fn unused_path(extension: &str) -> PathBuf {
    static CREATED: AtomicU64 = AtomicU64::new(0);
    let nth = CREATED.fetch_add(1, Ordering::Relaxed);
    let name = format!("{}{nth}.{extension}", file_prefix(std::process::id()));
    let path = std::env::temp_dir().join(name);
    // An earlier process that had the same process id may have left a socket at this path when it was killed.
    let _ = std::fs::remove_file(&path);
    path
}

/// Removes the files that a process has created at paths from [`unused_path`]. The process must have ended.
pub fn remove_files_of(process: u32) {
    let Ok(entries) = std::fs::read_dir(std::env::temp_dir()) else { return };
    let name = file_prefix(process);
    for entry in entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(&name)) {
        // The file may already have been removed.
        let _ = std::fs::remove_file(entry.path());
    }
}

fn file_prefix(process: u32) -> String {
    format!("dunlin-bench-{process}-")
}
