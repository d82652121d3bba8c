//! As little of a NATS client as the measurements need: PUB and SUB written as bytes, MSG read in place.
//!
//! Limits: a message must fit the read buffer; headers are not asked for, so `HMSG` is an error, as
//! is everything else the server may say that is not known here.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result, bail, ensure};

use crate::child::PATIENCE;

/// One connection.
#[derive(Debug)]
pub struct NatsClient {
    stream: TcpStream,
    buffer: Vec<u8>,
    filled: usize,
    parsed: usize,
}

const BUFFER_BYTES: usize = 1024 * 1024;
const CONNECT: &[u8] = b"CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":false,\"lang\":\"raw\",\"version\":\"1\"}\r\n";

impl NatsClient {
    /// Connects, and waits until the server has taken the greeting.
    pub fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE).context("connecting to nats-server")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut client = Self { stream, buffer: vec![0; BUFFER_BYTES], filled: 0, parsed: 0 };
        client.send(CONNECT)?;
        client.settle()?;
        Ok(client)
    }

    /// Subscribes, and waits until the server knows of it.
    pub fn subscribe(&mut self, subject: &str) -> Result<()> {
        self.send(format!("SUB {subject} 1\r\n").as_bytes())?;
        self.settle()
    }

    /// Writes bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).context("writing to nats-server")
    }

    /// The next message: its reply subject and payload. Answers pings on the way.
    pub fn message(&mut self) -> Result<(&[u8], &[u8])> {
        // The borrow of what was said cannot be returned from inside the loop, so only its place is.
        let (reply, payload) = loop {
            match self.next()? {
                Some(Place::Message { reply, payload }) => break (reply, payload),
                Some(Place::Ping) => self.send(b"PONG\r\n")?,
                Some(_) => {}
                None => self.fill()?,
            }
        };
        Ok((&self.buffer[reply], &self.buffer[payload]))
    }

    /// Waits until the server has handled all that was sent so far.
    pub fn settle(&mut self) -> Result<()> {
        self.send(b"PING\r\n")?;
        loop {
            match self.next()? {
                Some(Place::Pong) => return Ok(()),
                Some(Place::Message { .. }) => bail!("a message came while waiting for PONG"),
                Some(_) => {}
                None => self.fill()?,
            }
        }
    }

    #[inline]
    fn next(&mut self) -> Result<Option<Place>> {
        let Some((place, used)) = parse(&self.buffer[self.parsed..self.filled], self.parsed)? else {
            return Ok(None);
        };
        self.parsed += used;
        Ok(Some(place))
    }

    fn fill(&mut self) -> Result<()> {
        self.buffer.copy_within(self.parsed..self.filled, 0);
        self.filled -= self.parsed;
        self.parsed = 0;
        ensure!(self.filled < self.buffer.len(), "a message does not fit {BUFFER_BYTES} bytes");
        let read = self.stream.read(&mut self.buffer[self.filled..]).context("reading from nats-server")?;
        ensure!(read > 0, "nats-server closed the connection");
        self.filled += read;
        Ok(())
    }
}

/// What was said, and where in the buffer it lies.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    Message { reply: std::ops::Range<usize>, payload: std::ops::Range<usize> },
    Pong,
    Ping,
    Other,
}

/// Reads one thing from the front of `bytes`, which stand at `at` in the buffer; tells its length too.
#[inline]
fn parse(bytes: &[u8], at: usize) -> Result<Option<(Place, usize)>> {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
    let line = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
    let after = end + 1;
    if let Some(rest) = line.strip_prefix(b"MSG ") {
        return parse_message(rest, bytes, after, at);
    }
    let place = match line {
        b"PONG" => Place::Pong,
        b"PING" => Place::Ping,
        b"+OK" => Place::Other,
        info if info.starts_with(b"INFO ") => Place::Other,
        other => bail!("nats-server said {}", String::from_utf8_lossy(other)),
    };
    Ok(Some((place, after)))
}

/// `subject sid [reply] size`, then the payload and a line's end.
#[inline]
fn parse_message(head: &[u8], bytes: &[u8], after: usize, at: usize) -> Result<Option<(Place, usize)>> {
    let size_from = head.iter().rposition(|byte| *byte == b' ').context("a MSG without a size")? + 1;
    let size = decimal(&head[size_from..])?;
    let end = after + size + 2;
    if bytes.len() < end {
        return Ok(None);
    }
    ensure!(&bytes[after + size..end] == b"\r\n", "a payload longer than its size");
    let mut words = head[..size_from - 1].split(|byte| *byte == b' ').skip(2);
    let reply = words.next().map_or(0, <[u8]>::len);
    let reply_end = at + b"MSG ".len() + size_from - 1;
    let payload = at + after..at + after + size;
    Ok(Some((Place::Message { reply: reply_end - reply..reply_end, payload }, end)))
}

#[inline]
fn decimal(digits: &[u8]) -> Result<usize> {
    ensure!(
        !digits.is_empty() && digits.len() < 10 && digits.iter().all(u8::is_ascii_digit),
        "a size that is no number"
    );
    Ok(digits.iter().fold(0, |number, digit| number * 10 + usize::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_with_and_without_reply_is_read_in_place() {
        let bytes = b"MSG a.b 1 _INBOX.7 5\r\nhello\r\nMSG a.b 1 2\r\nhi\r\n";
        let (place, used) = parse(bytes, 0).unwrap().unwrap();
        let Place::Message { reply, payload } = place else { panic!("{place:?}") };
        assert_eq!((&bytes[reply], &bytes[payload]), (&b"_INBOX.7"[..], &b"hello"[..]));
        let (place, rest) = parse(&bytes[used..], used).unwrap().unwrap();
        let Place::Message { reply, payload } = place else { panic!("{place:?}") };
        assert_eq!((&bytes[reply], &bytes[payload]), (&b""[..], &b"hi"[..]));
        assert_eq!(used + rest, bytes.len());
    }

    #[test]
    fn half_a_message_waits_for_the_rest() {
        let bytes = b"MSG a.b 1 5\r\nhello\r\n";
        for cut in 0..bytes.len() {
            assert_eq!(parse(&bytes[..cut], 0).unwrap(), None, "{cut}");
        }
    }

    #[test]
    fn complaints_and_nonsense_are_errors() {
        assert!(parse(b"-ERR 'Slow Consumer'\r\n", 0).unwrap_err().to_string().contains("Slow Consumer"));
        assert!(parse(b"MSG a 1 x\r\n", 0).is_err());
        assert!(parse(b"MSG a 1 2\r\nhello\r\n", 0).is_err());
    }
}
