//! Tests of the HTTP listener, with a minimal client that receives server-sent events.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::listener::{
    Listener, ListenerClient, ListenerSubscriber, Message, ReceivedRecord, SubscriberEvent,
    SubscriptionOptions,
};
use super::trial::{NodeUnderTest, PATIENCE, TOKEN};

/// The HTTP listener. Subscribers receive records as server-sent events.
pub struct Http;

impl Listener for Http {
    fn name(&self) -> &'static str {
        "HTTP"
    }

    fn address(&self, node: &NodeUnderTest) -> Option<SocketAddr> {
        Some(node.http())
    }

    fn not_offered(&self, promise: &str) -> Option<&'static str> {
        match promise {
            "groups" => Some("use another listener for groups"),
            "requests" => Some("use another listener for requests"),
            _ => None,
        }
    }

    fn connect_client(
        &self,
        _: &NodeUnderTest,
        address: Option<SocketAddr>,
    ) -> Result<Box<dyn ListenerClient>> {
        Ok(Box::new(Client(address.context("the listener has no address")?)))
    }
}

struct Client(SocketAddr);

impl ListenerClient for Client {
    fn publish(&mut self, message: &Message<'_>) -> Result<Option<u64>> {
        let mut stream = connect(self.0)?;
        let mut head = format!(
            "POST /v1/topics/{} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\nconnection: close\r\n\
             content-length: {}\r\n",
            message.subject,
            self.0,
            TOKEN.0,
            message.payload.len()
        );
        for (name, value) in message.headers {
            head.push_str(&format!("dunlin-header-{name}: {value}\r\n"));
        }
        let request = [head.as_bytes(), b"\r\n", message.payload].concat();
        // Examines the error later, because the node may respond with a refusal before it has read the whole request.
        let sent = stream.write_all(&request);
        let mut response = String::new();
        BufReader::new(stream).read_to_string(&mut response)?;
        let (head, body) =
            response.split_once("\r\n\r\n").with_context(|| format!("{sent:?}: {response:?}"))?;
        ensure!(head.starts_with("HTTP/1.1 200"), "{body}");
        Ok(serde_json::from_str::<Value>(body)?["seq"].as_u64())
    }

    fn subscribe(&mut self, options: &SubscriptionOptions<'_>) -> Result<Box<dyn ListenerSubscriber>> {
        let from = match options {
            SubscriptionOptions { with_state: true, .. } => "snapshot",
            SubscriptionOptions { from_earliest: true, .. } => "earliest",
            _ => "latest",
        };
        let path = format!("/v1/topics/{}/events?as=json&from={from}", options.subject);
        let mut events =
            Events { address: self.0, path, last_id: String::new(), stream: None, pending: VecDeque::new() };
        events.connect()?;
        Ok(Box::new(events))
    }
}

fn connect(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// A stream of server-sent events. If its connection is cut, the client opens the stream again, as `EventSource` does
/// in browsers.
struct Events {
    address: SocketAddr,
    path: String,
    last_id: String,
    stream: Option<Stream>,
    /// Events that have been received but not returned yet.
    pending: VecDeque<SubscriberEvent>,
}

struct Stream {
    reader: BufReader<TcpStream>,
    /// The beginning of an event that has not arrived completely.
    partial: Vec<u8>,
}

impl Events {
    fn connect(&mut self) -> Result<()> {
        let mut stream = connect(self.address)?;
        let Events { address, path, last_id, .. } = self;
        let resume_header =
            if last_id.is_empty() { String::new() } else { format!("last-event-id: {last_id}\r\n") };
        let auth_header = format!("authorization: Bearer {}\r\n", TOKEN.0);
        stream.write_all(
            format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n{auth_header}{resume_header}\r\n").as_bytes(),
        )?;
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            ensure!(reader.read_line(&mut head)? > 0, "the connection ended within a response's headers");
        }
        ensure!(head.starts_with("HTTP/1.1 200"), "{head}");
        self.stream = Some(Stream { reader, partial: Vec::new() });
        Ok(())
    }

    /// Parses one event of the stream, and adds the event to `pending`.
    fn add_event(&mut self, block: &str) -> Result<()> {
        let (mut event, mut data) = ("message", String::new());
        for line in block.lines() {
            match line.split_once(": ") {
                Some(("id", id)) => self.last_id = id.to_owned(),
                Some(("event", name)) => event = name,
                Some(("data", text)) => data.push_str(text),
                _ => {}
            }
        }
        if data.is_empty() {
            return Ok(());
        }
        let json: Value = serde_json::from_str(&data)?;
        let number = |name: &str| json[name].as_u64().with_context(|| format!("no {name} in {data}"));
        self.pending.push_back(match event {
            "message" => SubscriberEvent::Record(to_received(&json)?),
            "gap" => SubscriberEvent::Gap(number("first")?, number("last")?),
            "lagging" => SubscriberEvent::Lagging,
            "epoch" => SubscriberEvent::NewEpoch,
            "snapshot" => {
                let seq = json["position"].as_str().and_then(|at| at.split_once('-')?.1.parse().ok());
                SubscriberEvent::State(seq.with_context(|| format!("no position in {data}"))?)
            }
            "checksum" | "publishers" => return Ok(()),
            other => bail!("{other}: {data}"),
        });
        Ok(())
    }
}

impl ListenerSubscriber for Events {
    fn next(&mut self, patience: Duration) -> Result<SubscriberEvent> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(received) = self.pending.pop_front() {
                return Ok(received);
            }
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return Ok(SubscriberEvent::Nothing);
            }
            let Some(stream) = &mut self.stream else {
                if self.connect().is_err() {
                    std::thread::sleep(Duration::from_millis(20).min(remaining));
                }
                continue;
            };
            match stream.read_block(remaining) {
                Ok(Some(block)) => self.add_event(&block)?,
                Ok(None) => {}
                // The connection was cut. The next round connects again, with the id of the last event.
                Err(_) => self.stream = None,
            }
        }
    }
}

impl Stream {
    /// Returns the text up to the next empty line; `None` if no empty line arrives within `patience`.
    fn read_block(&mut self, patience: Duration) -> std::io::Result<Option<String>> {
        loop {
            if let Some(end) = self.partial.windows(2).position(|pair| pair == b"\n\n") {
                let block = self.partial.drain(..end + 2).collect();
                return String::from_utf8(block).map(Some).map_err(|_| ErrorKind::InvalidData.into());
            }
            self.reader.get_ref().set_read_timeout(Some(patience))?;
            match self.reader.fill_buf() {
                Ok([]) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => self.read_chunk()?,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Ok(None);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads one chunk of the response, whose transfer encoding is chunked, and appends the chunk to `partial`.
    fn read_chunk(&mut self) -> std::io::Result<()> {
        self.reader.get_ref().set_read_timeout(Some(PATIENCE))?;
        let mut line = String::new();
        self.reader.read_line(&mut line)?;
        let bytes = usize::from_str_radix(line.trim_end(), 16).map_err(|_| ErrorKind::InvalidData)?;
        if bytes == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let start = self.partial.len();
        self.partial.resize(start + bytes, 0);
        self.reader.read_exact(&mut self.partial[start..])?;
        self.reader.read_exact(&mut [0; 2])
    }
}

fn to_received(json: &Value) -> Result<ReceivedRecord> {
    let text = |name: &str| json[name].as_str().with_context(|| format!("no {name} in {json}"));
    let headers = json["headers"].as_array().map_or(&[][..], Vec::as_slice);
    let header = |header: &Value| {
        let text_of = |name: &str| header[name].as_str().unwrap_or("?").to_owned();
        (text_of("name"), text_of("value"))
    };
    Ok(ReceivedRecord {
        subject: text("subject")?.to_owned(),
        seq: json["seq"].as_u64(),
        payload: text("payload")?.as_bytes().to_vec(),
        headers: headers.iter().map(header).collect(),
    })
}
