//! TLS over a socket.
//!
//! A reader waits in the kernel without holding the TLS state, so that other threads can write during the
//! wait.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::Mutex;

use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg};

use crate::follow::lock;
use crate::tls::{Connector, TlsCodec, explain};

/// The largest number of bytes that are read from the socket at once.
const READ_BYTES: usize = 64 << 10;
/// The possible first bytes of a TLS record during the handshake: an alert, or a handshake message.
const FIRST_BYTES: [u8; 2] = [0x15, 0x16];

#[derive(Debug)]
pub(super) struct TlsSocket {
    codec: Mutex<TlsCodec>,
    /// Received bytes that are not decrypted yet. Only the leading reader locks this.
    incoming: Mutex<ReceivedCiphertext>,
}

#[derive(Debug)]
struct ReceivedCiphertext {
    buffer: Box<[u8]>,
    /// Whether the node has sent any bytes yet.
    heard: bool,
}

impl TlsSocket {
    pub(super) fn new(connector: &Connector) -> io::Result<TlsSocket> {
        let incoming = ReceivedCiphertext { buffer: vec![0; READ_BYTES].into(), heard: false };
        Ok(TlsSocket { codec: Mutex::new(connector.begin()?), incoming: Mutex::new(incoming) })
    }

    /// Reads until `into` is full or the socket is empty. If `blocking`, waits for the first bytes. After a TLS record
    /// without data, a blocking call continues to wait.
    pub(super) fn recv(&self, fd: &OwnedFd, into: &mut Vec<u8>, blocking: bool) -> io::Result<usize> {
        let mut incoming = lock(&self.incoming);
        let before = into.len();
        if self.has_unread() {
            self.take_in(fd, &[], into)?;
        }
        let mut waits = blocking && into.len() == before;
        while into.len() < into.capacity() {
            let asked = READ_BYTES.min(into.capacity() - into.len());
            let flags = if std::mem::take(&mut waits) { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
            let came = match recv(fd, &mut incoming.buffer[..asked], flags) {
                Ok((_, 0)) if into.len() > before => break,
                Ok((_, 0)) => return self.ended(incoming.heard),
                Ok((_, came)) => came,
                Err(_) if into.len() > before => break,
                Err(error) => return Err(error.into()),
            };
            if !std::mem::replace(&mut incoming.heard, true) && !FIRST_BYTES.contains(&incoming.buffer[0]) {
                return Err(io::Error::other("the node does not use TLS: use dunlin:// instead of tls://"));
            }
            if self.take_in(fd, &incoming.buffer[..came], into)? {
                break;
            }
            if came < asked {
                break;
            }
        }
        if into.len() > before {
            return Ok(into.len() - before);
        }
        if lock(&self.codec).has_ended() { Ok(0) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }

    /// Decrypts the received bytes `came` into `into`. Returns whether the node has closed its direction.
    fn take_in(&self, fd: &OwnedFd, came: &[u8], into: &mut Vec<u8>) -> io::Result<bool> {
        let mut codec = lock(&self.codec);
        let room = into.capacity() - into.len();
        let read = codec.read(came, room, |said| into.extend_from_slice(said));
        // Sends handshake messages or an alert. Bytes for which the socket has no room are sent before the next data.
        let flushed = codec.flush(|slices| send_slices(fd, slices));
        read.map_err(|error| io::Error::other(explain(&error)))?;
        flushed?;
        Ok(codec.has_ended())
    }

    fn ended(&self, heard: bool) -> io::Result<usize> {
        if !lock(&self.codec).is_handshaking() {
            return Ok(0);
        }
        let said = if heard { "in the middle of the TLS handshake" } else { "without a TLS response" };
        Err(io::Error::other(format!("the node closed the connection {said}")))
    }

    pub(super) fn send(&self, fd: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
        match lock(&self.codec).write(&[IoSlice::new(bytes)], |slices| send_slices(fd, slices)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            sent => sent,
        }
    }

    pub(super) fn flush(&self, fd: &OwnedFd) -> io::Result<bool> {
        lock(&self.codec).flush(|slices| send_slices(fd, slices))
    }

    pub(super) fn has_unsent(&self) -> bool {
        lock(&self.codec).has_unsent()
    }

    pub(super) fn has_unread(&self) -> bool {
        lock(&self.codec).has_unread()
    }

    pub(super) fn end(&self, fd: &OwnedFd) {
        lock(&self.codec).end();
        // This fails if the node has closed the connection.
        let _ = self.flush(fd);
    }
}

/// Writes as much of the slices as possible without waiting.
fn send_slices(fd: &OwnedFd, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    Ok(sendmsg(fd, slices, &mut SendAncillaryBuffer::default(), flags)?)
}
