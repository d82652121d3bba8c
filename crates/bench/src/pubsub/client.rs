//! A minimal client of a broker. It writes publishes as bytes, and parses messages in its receive buffer.
//!
//! A message must fit into the receive buffer. The client asks for messages without headers. It therefore does not know
//! `HMSG`, the message with headers, and returns an error for it and for all other unknown messages.

use std::io::{Read, Write};
use std::net::TcpStream;

use anyhow::{Context, Result, bail, ensure};

use super::broker::BrokerEndpoint;
use super::dialect::{BrokerFrame, Dialect, PONG};
use crate::child::TIMEOUT;

/// A minimal client of a broker with the NATS or Redis protocol. It parses messages in its receive buffer without
/// copying them.
#[derive(Debug)]
pub struct RawClient {
    stream: TcpStream,
    dialect: Dialect,
    buffer: Vec<u8>,
    filled: usize,
    parsed: usize,
}

const BUFFER_BYTES: usize = 1024 * 1024;

impl RawClient {
    /// Connects to the broker, sends the greeting, and waits until the broker has accepted it.
    pub fn connect(endpoint: BrokerEndpoint) -> Result<Self> {
        Self::connect_with(endpoint, BUFFER_BYTES, &endpoint.dialect.greeting(endpoint.token))
    }

    /// Connects with a receive buffer of `buffer_bytes` bytes. Measurements with many connections use small buffers.
    pub fn connect_small(endpoint: BrokerEndpoint, buffer_bytes: usize) -> Result<Self> {
        Self::connect_with(endpoint, buffer_bytes, &endpoint.dialect.greeting(endpoint.token))
    }

    /// Connects in such a way that the broker confirms every publish. [`wait_for_ok`](Self::wait_for_ok) waits for a
    /// confirmation.
    pub fn connect_verbose(endpoint: BrokerEndpoint) -> Result<Self> {
        Self::connect_with(endpoint, BUFFER_BYTES, endpoint.dialect.verbose_greeting())
    }

    fn connect_with(endpoint: BrokerEndpoint, buffer_bytes: usize, greeting: &str) -> Result<Self> {
        let stream =
            TcpStream::connect_timeout(&endpoint.address, TIMEOUT).context("cannot connect to the broker")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let buffer = vec![0; buffer_bytes];
        let mut client = Self { stream, dialect: endpoint.dialect, buffer, filled: 0, parsed: 0 };
        client.send(greeting.as_bytes())?;
        client.wait_for_ok()?;
        Ok(client)
    }

    /// Subscribes, and waits until the broker confirms the subscription.
    pub fn subscribe(&mut self, subject: &str) -> Result<()> {
        self.send(self.dialect.subscribe(subject).as_bytes())?;
        self.wait_for_ok()
    }

    /// Asks the broker to stop confirming publishes.
    pub fn disable_confirmations(&mut self) -> Result<()> {
        self.send(self.dialect.disable_confirmations().as_bytes())
    }

    /// Writes these bytes to the connection.
    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).context("cannot write to the broker")
    }

    /// Waits for the next message. Returns the message's reply subject and payload.
    pub fn next_message(&mut self) -> Result<(&[u8], &[u8])> {
        // References into the buffer cannot leave the loop, because `fill` changes the buffer. The loop therefore
        // returns ranges.
        let (reply, payload) = loop {
            match self.next()? {
                Some(BrokerFrame::Message { reply, payload }) => break (reply, payload),
                Some(_) => {}
                None => self.fill()?,
            }
        };
        Ok((&self.buffer[reply], &self.buffer[payload]))
    }

    /// Returns the reply subject and the payload of the next message if the message has arrived completely; otherwise
    /// `None`.
    pub fn buffered_message(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        let (reply, payload) = loop {
            match self.next()? {
                Some(BrokerFrame::Message { reply, payload }) => break (reply, payload),
                Some(_) => {}
                None => return Ok(None),
            }
        };
        Ok(Some((&self.buffer[reply], &self.buffer[payload])))
    }

    /// Waits until the broker has handled everything that this client has sent.
    pub fn flush(&mut self) -> Result<()> {
        self.send(self.dialect.flush_message().as_bytes())?;
        self.wait_for_ok()
    }

    /// Waits for the broker's next confirmation.
    pub fn wait_for_ok(&mut self) -> Result<()> {
        loop {
            match self.next()? {
                Some(BrokerFrame::Done) => return Ok(()),
                Some(BrokerFrame::Message { .. }) => {
                    bail!("received a message where a response was expected")
                }
                Some(_) => {}
                None => self.fill()?,
            }
        }
    }

    /// Returns the connection without the receive buffer. Returns an error if the buffer still contains a message or a
    /// part of one.
    pub fn into_stream(mut self) -> Result<TcpStream> {
        while let Some(frame) = self.next()? {
            ensure!(
                !matches!(frame, BrokerFrame::Message { .. }),
                "the connection still has an unread message"
            );
        }
        ensure!(self.parsed == self.filled, "the connection still has unread bytes");
        Ok(self.stream)
    }

    /// Parses the next message in the buffer; returns `None` if the message is incomplete. Answers a ping at once,
    /// because the caller may wait for another message.
    #[inline]
    fn next(&mut self) -> Result<Option<BrokerFrame>> {
        let Some((frame, used)) = self.dialect.parse(&self.buffer[self.parsed..self.filled], self.parsed)?
        else {
            return Ok(None);
        };
        self.parsed += used;
        if let BrokerFrame::Ping = frame {
            self.send(PONG)?;
        }
        Ok(Some(frame))
    }

    fn fill(&mut self) -> Result<()> {
        self.buffer.copy_within(self.parsed..self.filled, 0);
        self.filled -= self.parsed;
        self.parsed = 0;
        ensure!(
            self.filled < self.buffer.len(),
            "a message exceeds the buffer of {} bytes",
            self.buffer.len()
        );
        let read =
            self.stream.read(&mut self.buffer[self.filled..]).context("cannot read from the broker")?;
        ensure!(read > 0, "the broker closed the connection");
        self.filled += read;
        Ok(())
    }
}
