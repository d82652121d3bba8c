//! The writing half of the connection. Bytes go to the socket at once. If the socket has no room for them, they wait in
//! the outbox, and are sent before later bytes. While there is no connection, bytes are dropped: on the next
//! connection, the session sends its state again.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::follow::lock;
use crate::socket::Socket;

/// The writing half of a client's connection. All threads of the client share it.
#[derive(Debug, Default)]
pub(crate) struct Outbox(Mutex<OutgoingBytes>);

#[derive(Debug, Default)]
pub(crate) struct OutgoingBytes {
    socket: Option<Arc<Socket>>,
    /// Bytes for which the socket had no room. The first `sent` of them have been sent since.
    backlog: Vec<u8>,
    /// How many bytes at the beginning of `backlog` have been sent.
    sent: usize,
    /// Whether the session has not yet sent its state on this connection. Until then, all other bytes wait.
    corked: bool,
}

impl Outbox {
    /// Begins a connection over `socket`. All bytes wait until [`uncork`](Outbox::uncork) is called.
    pub(crate) fn cork(&self, socket: &Arc<Socket>) {
        *self.lock() =
            OutgoingBytes { socket: Some(Arc::clone(socket)), corked: true, ..OutgoingBytes::default() };
    }

    /// Writes `first`, and after it the bytes that have waited since [`cork`](Outbox::cork) was called.
    pub(crate) fn uncork(&self, mut first: Vec<u8>) {
        let mut out = self.lock();
        first.extend_from_slice(&out.backlog);
        out.backlog = first;
        out.corked = false;
        if out.flush().is_err() {
            out.fail();
        }
    }

    pub(crate) fn close(&self) {
        *self.lock() = OutgoingBytes::default();
    }

    /// Writes the bytes for which the socket has room, and keeps the others for later. Returns `false` if there is no
    /// connection.
    pub(crate) fn write(&self, bytes: &[u8]) -> bool {
        let mut out = self.lock();
        let Some(socket) = out.socket.clone() else { return false };
        match out.flush().and_then(|all| if all { socket.send(bytes) } else { Ok(0) }) {
            Ok(sent) => out.backlog.extend_from_slice(&bytes[sent..]),
            Err(_) => out.fail(),
        }
        out.socket.is_some()
    }

    /// Waits at most `longest` until the socket has room for more bytes.
    pub(crate) fn wait_for_room(&self, longest: Duration) {
        let socket = self.lock().socket.clone();
        if let Some(socket) = socket {
            socket.wait(true, longest);
        }
    }

    /// Writes the bytes that wait to be sent. Returns whether none are left.
    pub(crate) fn flush(&self) -> bool {
        let mut out = self.lock();
        match out.flush() {
            Ok(all) => all,
            Err(_) => {
                out.fail();
                true
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        let out = self.lock();
        out.sent == out.backlog.len() && !out.socket.as_ref().is_some_and(|socket| socket.has_unsent())
    }

    fn lock(&self) -> MutexGuard<'_, OutgoingBytes> {
        lock(&self.0)
    }
}

impl OutgoingBytes {
    fn flush(&mut self) -> io::Result<bool> {
        if self.corked {
            return Ok(false);
        }
        let Some(socket) = &self.socket else { return Ok(true) };
        while self.sent < self.backlog.len() {
            match socket.send(&self.backlog[self.sent..])? {
                0 => return Ok(false),
                sent => self.sent += sent,
            }
        }
        self.backlog.clear();
        self.sent = 0;
        socket.flush()
    }

    /// Shuts the connection down, which wakes the thread that reads it. This thread then handles the lost connection.
    fn fail(&mut self) {
        if let Some(socket) = self.socket.take() {
            socket.shutdown();
        }
        self.backlog.clear();
        self.sent = 0;
    }
}
