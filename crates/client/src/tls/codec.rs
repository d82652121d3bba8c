//! One TLS connection as bytes: what came in becomes what was said, and what is said becomes what goes out.
//!
//! Whoever owns the socket reads and writes it; doors and the client do so in their own ways.
//!
//! Limits: what was said and not handed out is at most one record of TLS (16 KiB) and what was given with it beyond the
//! reader's room; what waits to go out is at most [`UNSENT_BYTES_MAX`] and one record; a message of the handshake is at
//! most 64 KiB.

use std::io::{self, BufRead, IoSlice, Write};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, Error, ServerConfig, ServerConnection};

/// Bytes that may wait to go out: nothing more is taken in while so many do.
pub const UNSENT_BYTES_MAX: usize = 64 << 10;

/// One TLS connection.
#[derive(Debug)]
pub struct Codec {
    connection: Connection,
    /// What came in and has not been looked at, since there was no room for what it says.
    undigested: Vec<u8>,
    has_unread: bool,
}

impl Codec {
    /// The side that connected, to whom it wants to talk to.
    pub fn client(config: Arc<ClientConfig>, name: ServerName<'static>) -> Result<Codec, Error> {
        ClientConnection::new(config, name).map(|connection| Codec::new(connection.into()))
    }

    /// The side that accepted.
    pub fn server(config: Arc<ServerConfig>) -> Result<Codec, Error> {
        ServerConnection::new(config).map(|connection| Codec::new(connection.into()))
    }

    fn new(mut connection: Connection) -> Codec {
        connection.set_buffer_limit(Some(UNSENT_BYTES_MAX));
        Codec { connection, undigested: Vec::new(), has_unread: false }
    }

    /// The sides do not know each other yet.
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Something was said that nobody has read, or may have been.
    pub fn has_unread(&self) -> bool {
        self.has_unread
    }

    /// Something waits to go out.
    pub fn has_unsent(&self) -> bool {
        self.connection.wants_write()
    }

    /// The other side's certificate, if it showed one: it was verified.
    pub fn peer_certificate(&self) -> Option<&[u8]> {
        self.connection.peer_certificates()?.first().map(|certificate| certificate.as_ref())
    }

    /// What both sides are to speak, if they came to an agreement about it.
    pub fn protocol(&self) -> Option<&[u8]> {
        self.connection.alpn_protocol()
    }

    /// Takes in what came, all of it, and hands out at most `room` bytes of what was said. How many that were; what is
    /// left over waits for the next call, which may bring nothing new.
    pub fn read(&mut self, came: &[u8], room: usize, mut put: impl FnMut(&[u8])) -> Result<usize, Error> {
        let before = std::mem::take(&mut self.undigested);
        let (mut older, mut newer) = (&before[..], came);
        let mut given = self.hand_out(room, &mut put);
        while given < room && !(older.is_empty() && newer.is_empty()) {
            let input = if older.is_empty() { &mut newer } else { &mut older };
            let taken = self.connection.read_tls(input).unwrap_or(0);
            if taken == 0 {
                // The other side has said that it says no more.
                (older, newer) = (&[], &[]);
            }
            self.connection.process_new_packets()?;
            given += self.hand_out(room - given, &mut put);
        }
        self.undigested = [older, newer].concat();
        self.has_unread |= !self.undigested.is_empty();
        Ok(given)
    }

    fn hand_out(&mut self, room: usize, put: &mut impl FnMut(&[u8])) -> usize {
        let mut given = 0;
        let mut reader = self.connection.reader();
        // Nothing there, and the end: either is told by the caller's socket.
        while let Ok(said) = reader.fill_buf()
            && !said.is_empty()
        {
            if given == room {
                self.has_unread = true;
                return given;
            }
            let some = &said[..said.len().min(room - given)];
            put(some);
            let some = some.len();
            reader.consume(some);
            given += some;
        }
        self.has_unread = false;
        given
    }

    /// Whether the other side has said that it says no more.
    pub fn has_ended(&mut self) -> bool {
        !self.has_unread && self.connection.reader().fill_buf().is_ok_and(<[u8]>::is_empty)
    }

    /// Says what is in the slices, as far as `send` takes it; how many bytes of it are on their way or wait to be.
    /// `send` gives `WouldBlock` when nothing fits.
    pub fn write(
        &mut self,
        slices: &[IoSlice<'_>],
        mut send: impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut left = slices.to_vec();
        let mut left = &mut left[..];
        let mut taken = 0;
        while self.flush(&mut send)? {
            let more = self.connection.writer().write_vectored(left)?;
            if more == 0 {
                return Ok(taken);
            }
            taken += more;
            IoSlice::advance_slices(&mut left, more);
        }
        if taken == 0 && !slices.is_empty() { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(taken) }
    }

    /// Sends what waits to go out; whether all of it went.
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

    /// Says that no more is said; it has to be [flushed](Codec::flush).
    pub fn end(&mut self) {
        self.connection.send_close_notify();
    }
}

/// The way out, as rustls wants it.
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
