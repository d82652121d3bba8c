//! The publisher and the subscriber for listener `http`, with a minimal client. The client writes requests as bytes,
//! and parses responses and events in place, in its receive buffer.
//!
//! A single record is sent with `POST`. Several records that are due together are sent as one batch, with one line for
//! each record. The publisher waits for each response before it sends the next request.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result, bail, ensure};

use super::route::{Sink, Source};
use crate::child::TIMEOUT;

/// The approximate size of a full batch in bytes. If fewer records are due, a batch is smaller.
const BATCH_BYTES: usize = 64 * 1024;
const BUFFER_BYTES: usize = 256 * 1024;

fn connect(address: SocketAddr) -> Result<TcpStream> {
    let stream =
        TcpStream::connect_timeout(&address, TIMEOUT).context("cannot connect to the HTTP listener")?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

/// The bytes that were received and are not parsed yet.
struct Inbox {
    stream: TcpStream,
    buffer: Vec<u8>,
    filled: usize,
    parsed: usize,
}

impl Inbox {
    fn new(stream: TcpStream) -> Self {
        Self { stream, buffer: vec![0; BUFFER_BYTES], filled: 0, parsed: 0 }
    }

    fn unparsed(&self) -> &[u8] {
        &self.buffer[self.parsed..self.filled]
    }

    fn fill(&mut self) -> Result<()> {
        self.buffer.copy_within(self.parsed..self.filled, 0);
        self.filled -= self.parsed;
        self.parsed = 0;
        ensure!(self.filled < self.buffer.len(), "an HTTP response exceeds {BUFFER_BYTES} bytes");
        let read = self
            .stream
            .read(&mut self.buffer[self.filled..])
            .context("cannot read from the HTTP listener")?;
        ensure!(read > 0, "the HTTP listener closed the connection");
        self.filled += read;
        Ok(())
    }

    /// Reads until the head of a response is complete, and returns the head's length. Returns an error if the status is
    /// not 200.
    fn read_head(&mut self) -> Result<usize> {
        loop {
            if let Some(end) = find(self.unparsed(), b"\r\n\r\n") {
                let head = &self.unparsed()[..end];
                ensure!(
                    head.starts_with(b"HTTP/1.1 200"),
                    "the node refused the request: {}",
                    String::from_utf8_lossy(self.unparsed())
                );
                return Ok(end + 4);
            }
            self.fill()?;
        }
    }
}

fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes.windows(needle.len()).position(|window| window == needle)
}

/// Publishes records to a node over HTTP.
pub struct HttpPublisher {
    inbox: Inbox,
    subject: String,
    lines: Vec<u8>,
    count: usize,
    write: Vec<u8>,
}

impl HttpPublisher {
    /// Connects to the listener at `address`.
    pub fn open(address: SocketAddr, subject: &str) -> Result<Self> {
        let inbox = Inbox::new(connect(address)?);
        Ok(Self { inbox, subject: subject.to_owned(), lines: Vec::new(), count: 0, write: Vec::new() })
    }

    fn post(&mut self, path: &str, kind: &str, body: &[u8]) -> Result<()> {
        self.write.clear();
        let length = body.len();
        write!(
            self.write,
            "POST /v1/topics/{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n"
        )?;
        self.write.extend_from_slice(body);
        self.inbox.stream.write_all(&self.write).context("cannot write to the HTTP listener")?;
        let body_from = self.inbox.read_head()?;
        let head = String::from_utf8_lossy(&self.inbox.unparsed()[..body_from]).to_ascii_lowercase();
        let length = head.split("content-length:").nth(1).and_then(|rest| rest.lines().next());
        let length: usize = length.context("an HTTP response has no Content-Length")?.trim().parse()?;
        while self.inbox.unparsed().len() < body_from + length {
            self.inbox.fill()?;
        }
        self.inbox.parsed += body_from + length;
        Ok(())
    }
}

impl Source for HttpPublisher {
    fn publish(&mut self, payload: &[u8]) -> Result<()> {
        let subject = std::mem::take(&mut self.subject);
        let posted = self.post(&subject, "application/octet-stream", payload);
        self.subject = subject;
        posted
    }

    fn send(&mut self, payload: &[u8]) -> Result<()> {
        if self.count > 0 {
            self.lines.push(b'\n');
        }
        self.lines.extend_from_slice(payload);
        self.count += 1;
        if self.lines.len() < BATCH_BYTES { Ok(()) } else { self.push() }
    }

    fn push(&mut self) -> Result<()> {
        let (lines, count) = (std::mem::take(&mut self.lines), std::mem::take(&mut self.count));
        match count {
            0 => {}
            1 => self.publish(&lines)?,
            _ => self.post(&format!("{}/batch", self.subject), "text/plain", &lines)?,
        }
        self.lines = lines;
        self.lines.clear();
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.push()
    }
}

/// Receives the records of a topic as an HTTP event stream.
pub struct HttpReader {
    inbox: Inbox,
    /// The text that was received after the last complete line.
    text: Vec<u8>,
}

impl HttpReader {
    /// Connects and subscribes. Returns when the event stream has begun.
    pub fn open(address: SocketAddr, subject: &str) -> Result<Self> {
        let mut inbox = Inbox::new(connect(address)?);
        let request = format!("GET /v1/topics/{subject}/events HTTP/1.1\r\nHost: localhost\r\n\r\n");
        inbox.stream.write_all(request.as_bytes()).context("cannot write to the HTTP listener")?;
        inbox.parsed += inbox.read_head()?;
        let mut reader = Self { inbox, text: Vec::new() };
        // The first event contains no record, only the position at which the stream begins. This loop reads this event.
        while !reader.take_chunk()? {
            reader.inbox.fill()?;
        }
        Ok(reader)
    }

    /// Parses the next chunk of the response. Returns `false` if the chunk is still incomplete.
    fn take_chunk(&mut self) -> Result<bool> {
        let unparsed = self.inbox.unparsed();
        let Some(line) = unparsed.iter().take(20).position(|byte| *byte == b'\n') else { return Ok(false) };
        let size = std::str::from_utf8(&unparsed[..line])?.trim();
        let size = usize::from_str_radix(size, 16)
            .with_context(|| format!("invalid chunk size `{size}` in an HTTP response"))?;
        let end = line + 1 + size;
        if unparsed.len() < end + 2 {
            return Ok(false);
        }
        self.text.extend_from_slice(&unparsed[line + 1..end]);
        self.inbox.parsed += end + 2;
        Ok(true)
    }
}

impl Sink for HttpReader {
    fn read(&mut self, each: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        while !self.take_chunk()? {
            self.inbox.fill()?;
        }
        while self.take_chunk()? {}
        let mut from = 0;
        while let Some(end) = self.text[from..].iter().position(|byte| *byte == b'\n') {
            let line = &self.text[from..from + end];
            match line {
                [b'd', b'a', b't', b'a', b':', b' ', payload @ ..] => each(payload)?,
                [b'e', b'v', b'e', b'n', b't', ..] => {
                    bail!("expected a record, received: {}", String::from_utf8_lossy(line))
                }
                _ => {}
            }
            from += end + 1;
        }
        self.text.drain(..from);
        Ok(())
    }
}
