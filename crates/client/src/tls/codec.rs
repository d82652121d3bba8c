//! A codec for the bytes of one TLS connection. It decrypts received bytes, and encrypts bytes to send.
//!
//! The caller reads and writes the socket.
//!
//! Limits: a handshake message has at most 64 KiB. Unsent bytes are at most [`UNSENT_BYTES_MAX`] and one TLS record (16
//! KiB). The decrypted bytes that the caller has not read yet are at most one record and the bytes that arrived with
//! this record.

use std::io::{self, BufRead, IoSlice, Write};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, Error, ServerConfig, ServerConnection};

/// If at least this many bytes are unsent, [`TlsCodec::write`] accepts no more bytes.
pub const UNSENT_BYTES_MAX: usize = 64 << 10;

/// Encrypts and decrypts the bytes of one TLS connection.
#[derive(Debug)]
pub struct TlsCodec {
    connection: Connection,
    /// Received bytes that were not decrypted yet, because the caller had no room for the result.
    pending_input: Vec<u8>,
    has_unread: bool,
}

impl TlsCodec {
    /// Makes the codec of a client that connects to the host `name`.
    pub fn client(config: Arc<ClientConfig>, name: ServerName<'static>) -> Result<TlsCodec, Error> {
        ClientConnection::new(config, name).map(|connection| TlsCodec::new(connection.into()))
    }

    /// Makes the codec of a node that accepts a connection.
    pub fn server(config: Arc<ServerConfig>) -> Result<TlsCodec, Error> {
        ServerConnection::new(config).map(|connection| TlsCodec::new(connection.into()))
    }

    fn new(mut connection: Connection) -> TlsCodec {
        connection.set_buffer_limit(Some(UNSENT_BYTES_MAX));
        TlsCodec { connection, pending_input: Vec::new(), has_unread: false }
    }

    /// Whether the handshake is still in progress.
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Whether decrypted bytes may be available.
    pub fn has_unread(&self) -> bool {
        self.has_unread
    }

    /// Whether any encrypted bytes were not sent yet.
    pub fn has_unsent(&self) -> bool {
        self.connection.wants_write()
    }

    /// The verified certificate of the other side, if it sent one.
    pub fn peer_certificate(&self) -> Option<&[u8]> {
        self.connection.peer_certificates()?.first().map(|certificate| certificate.as_ref())
    }

    /// The negotiated application protocol (ALPN), if there is one.
    pub fn protocol(&self) -> Option<&[u8]> {
        self.connection.alpn_protocol()
    }

    /// Accepts all of `received`, and passes at most `room` decrypted bytes to `deliver`. Returns their number. Further
    /// decrypted bytes are passed in the next call, whose `received` may be empty.
    pub fn read(
        &mut self,
        received: &[u8],
        room: usize,
        mut deliver: impl FnMut(&[u8]),
    ) -> Result<usize, Error> {
        let before = std::mem::take(&mut self.pending_input);
        let (mut older, mut newer) = (&before[..], received);
        let mut passed = self.pass_plaintext(room, &mut deliver);
        while passed < room && !(older.is_empty() && newer.is_empty()) {
            let input = if older.is_empty() { &mut newer } else { &mut older };
            let taken = self.connection.read_tls(input).unwrap_or(0);
            if taken == 0 {
                // The other side has ended the connection, so any bytes after that are ignored.
                (older, newer) = (&[], &[]);
            }
            self.connection.process_new_packets()?;
            passed += self.pass_plaintext(room - passed, &mut deliver);
        }
        self.pending_input = [older, newer].concat();
        self.has_unread |= !self.pending_input.is_empty();
        Ok(passed)
    }

    fn pass_plaintext(&mut self, room: usize, deliver: &mut impl FnMut(&[u8])) -> usize {
        let mut passed = 0;
        let mut reader = self.connection.reader();
        // At the end of the stream, the loop ends without an error. The caller's socket reports the end.
        while let Ok(plaintext) = reader.fill_buf()
            && !plaintext.is_empty()
        {
            if passed == room {
                self.has_unread = true;
                return passed;
            }
            let chunk = &plaintext[..plaintext.len().min(room - passed)];
            deliver(chunk);
            let bytes = chunk.len();
            reader.consume(bytes);
            passed += bytes;
        }
        self.has_unread = false;
        passed
    }

    /// Whether the other side has ended the connection, and all bytes before that were read.
    pub fn has_ended(&mut self) -> bool {
        !self.has_unread && self.connection.reader().fill_buf().is_ok_and(<[u8]>::is_empty)
    }

    /// Encrypts the bytes of the slices, and passes the result to `send` until `send` has no room and returns
    /// `WouldBlock`. Returns how many bytes of the slices were encrypted. Fails with `WouldBlock` if `send` had no room
    /// for any.
    pub fn write(
        &mut self,
        slices: &[IoSlice<'_>],
        mut send: impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut remaining = slices.to_vec();
        let mut remaining = &mut remaining[..];
        let mut written = 0;
        while self.flush(&mut send)? {
            let more = self.connection.writer().write_vectored(remaining)?;
            if more == 0 {
                return Ok(written);
            }
            written += more;
            IoSlice::advance_slices(&mut remaining, more);
        }
        if written == 0 && !slices.is_empty() { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(written) }
    }

    /// Calls `send` with the encrypted bytes that were not sent yet. Returns `true` if no such bytes are left.
    pub fn flush(&mut self, send: impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>) -> io::Result<bool> {
        let mut wire = Wire(send);
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut wire) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Ends the sending direction. The next [`flush`](TlsCodec::flush) sends the message that tells this to the other
    /// side.
    pub fn end(&mut self) {
        self.connection.send_close_notify();
    }
}

/// Implements [`Write`] with a function. The library rustls writes to such a value.
struct Wire<F>(F);

impl<F: FnMut(&[IoSlice<'_>]) -> io::Result<usize>> Write for Wire<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
