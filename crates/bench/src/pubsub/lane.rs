//! The connections of a broker's subscribers. One thread reads from all these connections, one after another, into a
//! shared buffer.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use anyhow::{Context, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::broker::BrokerEndpoint;
use super::client::RawClient;
use super::dialect::{BrokerFrame, Dialect, PONG};
use crate::child::TIMEOUT;
use crate::payload::ReadExtent;

/// A connection to a broker with one subscription, and the number of messages that have arrived on this connection.
#[derive(Debug)]
pub struct SubscribedConnection {
    stream: TcpStream,
    dialect: Dialect,
    /// The beginning of the last message, if the message has not arrived completely.
    incomplete: Vec<u8>,
    received: u64,
}

/// The size of the shared buffer in bytes. The buffer holds a few of the broker's writes, and fits into the processor's
/// caches.
pub const SHARED_BYTES: usize = 256 * 1024;
const GREETING_BYTES: usize = 16 * 1024;

impl SubscribedConnection {
    /// Connects and subscribes.
    pub fn subscribe(endpoint: BrokerEndpoint, subject: &str) -> Result<Self> {
        let mut client = RawClient::connect_small(endpoint, GREETING_BYTES)?;
        client.subscribe(subject)?;
        let stream = client.into_stream()?;
        stream.set_nonblocking(true).context("cannot set the socket to non-blocking")?;
        Ok(Self { stream, dialect: endpoint.dialect, incomplete: Vec::new(), received: 0 })
    }

    /// Returns the number of messages that the connection has received.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Reads once, and checks the messages that have arrived completely. Returns `false` if no data was available.
    pub fn read(&mut self, shared: &mut [u8]) -> Result<bool> {
        let mut filled = self.incomplete.len();
        ensure!(filled < shared.len(), "a message exceeds the buffer of {} bytes", shared.len());
        let read = match self.stream.read(&mut shared[filled..]) {
            Ok(0) => bail!("the broker closed the connection"),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error).context("cannot read from the broker"),
        };
        shared[..filled].copy_from_slice(&self.incomplete);
        self.incomplete.clear();
        filled += read;
        let mut parsed = 0;
        while let Some((frame, used)) = self.dialect.parse(&shared[parsed..filled], parsed)? {
            match frame {
                BrokerFrame::Message { payload, .. } => {
                    ensure!(
                        ReadExtent::All.check(&shared[payload], self.received),
                        "message {} was lost or damaged",
                        self.received
                    );
                    self.received += 1;
                }
                // Only NATS brokers send pings.
                BrokerFrame::Ping => {
                    self.stream.write_all(PONG).context("cannot answer the broker's ping")?
                }
                BrokerFrame::Done | BrokerFrame::Other => {}
            }
            parsed += used;
        }
        self.incomplete.extend_from_slice(&shared[parsed..filled]);
        Ok(true)
    }
}

/// Sleeps until data is available on one of the connections.
pub fn wait(lanes: &[SubscribedConnection]) -> Result<()> {
    let mut sockets: Vec<_> = lanes.iter().map(|lane| PollFd::new(&lane.stream, PollFlags::IN)).collect();
    let timeout = Timespec { tv_sec: TIMEOUT.as_secs() as i64, tv_nsec: 0 };
    let ready = poll(&mut sockets, Some(&timeout)).context("polling the broker's socket failed")?;
    ensure!(ready > 0, "no message arrived within {TIMEOUT:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;
    use std::thread;

    use super::*;
    use crate::payload::NumberedPayload;

    /// Reads lines until one of them is `expected`.
    fn read_until(lines: &mut impl BufRead, expected: &str) {
        let mut line = String::new();
        while line.trim_end() != expected {
            line.clear();
            assert!(lines.read_line(&mut line).unwrap() > 0, "the client left before {expected}");
        }
    }

    #[test]
    fn pings_are_answered_while_connecting_and_while_reading() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = BrokerEndpoint::nats(listener.local_addr().unwrap());
        let broker = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap());
            stream.write_all(b"INFO {}\r\nPING\r\n").unwrap();
            // The client's greeting ends with a ping. The broker answers the ping, and then waits for the client's
            // answer to the broker's own ping.
            read_until(&mut lines, "PING");
            stream.write_all(b"PONG\r\n").unwrap();
            read_until(&mut lines, "PONG");
            read_until(&mut lines, "PING");
            // When the subscription is active, the broker answers the client's ping, and sends a ping of its own.
            stream.write_all(b"PONG\r\nPING\r\n").unwrap();
            read_until(&mut lines, "PONG");
            // nats-server sends a ping when a connection is two seconds old.
            stream.write_all(b"PING\r\n").unwrap();
            read_until(&mut lines, "PONG");
            stream.write_all(b"MSG b 1 64\r\n").unwrap();
            stream.write_all(NumberedPayload::new(64).with_seq(0)).unwrap();
            stream.write_all(b"\r\n").unwrap();
        });
        let mut lanes = [SubscribedConnection::subscribe(endpoint, "b").unwrap()];
        let mut shared = vec![0; SHARED_BYTES];
        while lanes[0].received() == 0 {
            wait(&lanes).unwrap();
            lanes[0].read(&mut shared).unwrap();
        }
        broker.join().unwrap();
    }
}
