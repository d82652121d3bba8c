//! A connected socket that uses TLS.
//!
//! A thread that waits for bytes does not lock the TLS state meanwhile, so that other threads can write.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::Mutex;

use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg};

use crate::follow::lock;
use crate::tls::{Connector, TlsCodec, explain};

/// The largest number of encrypted bytes that are read from the socket at once.
const READ_BYTES: usize = 64 << 10;
/// The two possible first bytes of a node that uses TLS: they begin an alert or a handshake message.
const FIRST_BYTES: [u8; 2] = [0x15, 0x16];

/// The TLS state of a connected socket.
#[derive(Debug)]
pub(super) struct TlsSocket {
    codec: Mutex<TlsCodec>,
    /// The buffer for received bytes that are not decrypted yet. Only the thread that reads from the socket locks it.
    incoming: Mutex<ReceivedCiphertext>,
}

#[derive(Debug)]
struct ReceivedCiphertext {
    buffer: Box<[u8]>,
    /// Whether the node has sent anything on this connection.
    has_received: bool,
}

impl TlsSocket {
    pub(super) fn new(connector: &Connector) -> io::Result<TlsSocket> {
        let incoming = ReceivedCiphertext { buffer: vec![0; READ_BYTES].into(), has_received: false };
        Ok(TlsSocket { codec: Mutex::new(connector.begin()?), incoming: Mutex::new(incoming) })
    }

    /// Reads until `into` is full or no more bytes have arrived. With `blocking`, waits for the first encrypted bytes.
    /// Fails with `WouldBlock` if the received bytes contain no data.
    pub(super) fn recv(&self, fd: &OwnedFd, into: &mut Vec<u8>, blocking: bool) -> io::Result<usize> {
        let mut incoming = lock(&self.incoming);
        let before = into.len();
        if self.has_unread() {
            self.decrypt(fd, &[], into)?;
        }
        let mut blocks = blocking && into.len() == before;
        while into.len() < into.capacity() {
            let read_max = READ_BYTES.min(into.capacity() - into.len());
            let flags = if std::mem::take(&mut blocks) { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
            let received = match recv(fd, &mut incoming.buffer[..read_max], flags) {
                Ok((_, 0)) if into.len() > before => break,
                Ok((_, 0)) => return self.end_of_stream(incoming.has_received),
                Ok((_, received)) => received,
                Err(_) if into.len() > before => break,
                Err(error) => return Err(error.into()),
            };
            if !std::mem::replace(&mut incoming.has_received, true)
                && !FIRST_BYTES.contains(&incoming.buffer[0])
            {
                return Err(io::Error::other("the node does not use TLS: use dunlin:// instead of tls://"));
            }
            if self.decrypt(fd, &incoming.buffer[..received], into)? {
                break;
            }
            if received < read_max {
                break;
            }
        }
        if into.len() > before {
            return Ok(into.len() - before);
        }
        if lock(&self.codec).has_ended() { Ok(0) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }

    /// Decrypts `received`, and appends the decrypted data to `into`. Returns whether the node has ended its sending
    /// direction.
    fn decrypt(&self, fd: &OwnedFd, received: &[u8], into: &mut Vec<u8>) -> io::Result<bool> {
        let mut codec = lock(&self.codec);
        let room = into.capacity() - into.len();
        let read = codec.read(received, room, |plaintext| into.extend_from_slice(plaintext));
        // Send handshake messages or an alert, if there are any. Bytes for which the socket has no room are sent before
        // the next data.
        let flushed = codec.flush(|slices| send_slices(fd, slices));
        read.map_err(|error| io::Error::other(explain(&error)))?;
        flushed?;
        Ok(codec.has_ended())
    }

    fn end_of_stream(&self, has_received: bool) -> io::Result<usize> {
        if !lock(&self.codec).is_handshaking() {
            return Ok(0);
        }
        let when = if has_received { "in the middle of the TLS handshake" } else { "without a TLS response" };
        Err(io::Error::other(format!("the node closed the connection {when}")))
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
        // The error is ignored: it means that the node has closed the connection.
        let _ = self.flush(fd);
    }
}

/// Writes those bytes of the slices for which the socket has room, without waiting. Returns their number.
fn send_slices(fd: &OwnedFd, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    Ok(sendmsg(fd, slices, &mut SendAncillaryBuffer::default(), flags)?)
}
