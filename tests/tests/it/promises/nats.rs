//! Tests of the NATS listener, once with plain subscriptions and once with subscriptions that receive sequence numbers.
//! The client in these tests reads from its socket only during calls.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::listener::{
    Listener, ListenerClient, ListenerSubscriber, Message, ReceivedRecord, SubscriberEvent,
    SubscriptionOptions,
};
use super::trial::{NodeUnderTest, PATIENCE, TOKEN};

/// The NATS listener, used with plain subscriptions, whose messages carry no sequence numbers.
pub struct PlainSubscription;
/// The NATS listener, used with subscriptions whose subjects begin with `$DUNLIN.seq.`. The messages of such a
/// subscription carry sequence numbers. Every NATS client can subscribe in this way.
pub struct NumberedSubscription;

const NUMBERED: &str = "$DUNLIN.seq.";

impl Listener for PlainSubscription {
    fn name(&self) -> &'static str {
        "NATS"
    }

    fn address(&self, node: &NodeUnderTest) -> Option<SocketAddr> {
        Some(node.nats())
    }

    fn not_offered(&self, promise: &str) -> Option<&'static str> {
        match promise {
            "lagging" => Some("the protocol has no message for it"),
            promise => NumberedSubscription.not_offered(promise),
        }
    }

    fn remark(&self, promise: &str) -> Option<&'static str> {
        (promise == "gap").then_some("the node closes the connection, and client libraries reconnect")
    }

    fn connect_client(
        &self,
        _: &NodeUnderTest,
        address: Option<SocketAddr>,
    ) -> Result<Box<dyn ListenerClient>> {
        connect_client(address, "")
    }
}

impl Listener for NumberedSubscription {
    fn name(&self) -> &'static str {
        "NATS, `$DUNLIN.seq.`"
    }

    fn address(&self, node: &NodeUnderTest) -> Option<SocketAddr> {
        Some(node.nats())
    }

    fn not_offered(&self, promise: &str) -> Option<&'static str> {
        match promise {
            "late join" | "cut off and back" => {
                Some("a NATS subscription starts with the next published record")
            }
            "state" => Some("NATS has no messages for states"),
            _ => None,
        }
    }

    fn connect_client(
        &self,
        _: &NodeUnderTest,
        address: Option<SocketAddr>,
    ) -> Result<Box<dyn ListenerClient>> {
        connect_client(address, NUMBERED)
    }
}

fn connect_client(address: Option<SocketAddr>, prefix: &'static str) -> Result<Box<dyn ListenerClient>> {
    let address = address.context("the listener has no address")?;
    Ok(Box::new(Program { link: Link::open(address)?, address, prefix }))
}

struct Program {
    link: Link,
    address: SocketAddr,
    prefix: &'static str,
}

impl Program {
    fn open_subscription(&self, rest: &str) -> Result<Link> {
        let mut link = Link::open(self.address)?;
        link.write_line(&format!("SUB {}{rest} 1", self.prefix))?;
        link.flush()?;
        Ok(link)
    }
}

impl ListenerClient for Program {
    fn publish(&mut self, message: &Message<'_>) -> Result<Option<u64>> {
        let Message { subject, payload, headers } = message;
        self.link.publish(subject, "", headers, payload)?;
        self.link.flush()?;
        Ok(None)
    }

    fn subscribe(&mut self, options: &SubscriptionOptions<'_>) -> Result<Box<dyn ListenerSubscriber>> {
        Ok(Box::new(self.open_subscription(options.subject)?))
    }

    fn request(&mut self, subject: &str, payload: &[u8]) -> Result<Vec<u8>> {
        static REQUESTS: AtomicU64 = AtomicU64::new(0);
        let inbox = format!("_INBOX.promises{}", REQUESTS.fetch_add(1, Ordering::Relaxed));
        let mut link = Link::open(self.address)?;
        link.write_line(&format!("SUB {inbox} 1"))?;
        link.publish(subject, &inbox, &[], payload)?;
        match link.next(PATIENCE)? {
            SubscriberEvent::Record(record) => Ok(record.payload),
            other => bail!("{other:?} instead of a reply"),
        }
    }

    fn respond(&mut self, subject: &str) -> Result<()> {
        let mut link = Link::open(self.address)?;
        link.write_line(&format!("SUB {subject} 1"))?;
        link.flush()?;
        // The thread ends when the node ends, which is at the end of the test.
        thread::spawn(move || -> Result<()> {
            loop {
                if let NodeMessage::Message(message) = link.read_message()? {
                    link.publish(&message.reply, "", &[], &message.payload.to_ascii_uppercase())?;
                }
            }
        });
        Ok(())
    }

    fn join(&mut self, topic: &str, group: &str) -> Result<Box<dyn ListenerSubscriber>> {
        Ok(Box::new(self.open_subscription(&format!("{topic} {group}"))?))
    }
}

/// A connection of a NATS client.
struct Link {
    stream: TcpStream,
    read: BufReader<TcpStream>,
}

enum NodeMessage {
    Message(Delivered),
    Pong,
    Error(String),
}

#[derive(Default)]
struct Delivered {
    subject: String,
    reply: String,
    /// The status of the message, such as `410 Gap`. For a record, the status is empty.
    status: String,
    headers: Vec<(String, String)>,
    payload: Vec<u8>,
}

impl Link {
    fn open(address: SocketAddr) -> Result<Link> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let mut link = Link { read: BufReader::new(stream.try_clone()?), stream };
        ensure!(link.read_line()?.starts_with("INFO {"), "the node did not send INFO first");
        let token = &TOKEN.0;
        link.write_line(&format!(
            r#"CONNECT {{"verbose":false,"headers":true,"no_responders":true,"auth_token":"{token}"}}"#
        ))?;
        link.flush()?;
        Ok(link)
    }

    fn write_line(&mut self, line: &str) -> Result<()> {
        Ok(self.stream.write_all(format!("{line}\r\n").as_bytes())?)
    }

    fn publish(
        &mut self,
        subject: &str,
        reply: &str,
        headers: &[(&str, &str)],
        payload: &[u8],
    ) -> Result<()> {
        let mut out = Vec::new();
        if headers.is_empty() {
            write!(out, "PUB {subject} {reply} {}\r\n", payload.len())?;
        } else {
            let lines: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
            let head = format!("NATS/1.0\r\n{lines}\r\n");
            let total = head.len() + payload.len();
            write!(out, "HPUB {subject} {reply} {} {total}\r\n{head}", head.len())?;
        }
        out.extend_from_slice(payload);
        out.extend_from_slice(b"\r\n");
        Ok(self.stream.write_all(&out)?)
    }

    /// Waits until the node has handled all messages that this client has sent. Fails if the node responds with an
    /// error.
    fn flush(&mut self) -> Result<()> {
        self.write_line("PING")?;
        loop {
            match self.read_message()? {
                NodeMessage::Pong => return Ok(()),
                NodeMessage::Error(reason) => bail!("{reason}"),
                NodeMessage::Message(_) => {}
            }
        }
    }

    fn read_line(&mut self) -> Result<String> {
        self.stream.set_read_timeout(Some(PATIENCE))?;
        let mut line = String::new();
        ensure!(self.read.read_line(&mut line)? > 0, "the node closed the connection");
        Ok(line.trim_end().to_owned())
    }

    fn read_message(&mut self) -> Result<NodeMessage> {
        loop {
            let line = self.read_line()?;
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["PONG"] => return Ok(NodeMessage::Pong),
                ["PING"] => self.write_line("PONG")?,
                ["+OK"] | ["INFO", ..] => {}
                ["-ERR", ..] => return Ok(NodeMessage::Error(line["-ERR ".len()..].to_owned())),
                ["MSG", subject, _, ref rest @ .., total] => {
                    return self.read_payload(subject, rest, 0, total.parse()?);
                }
                ["HMSG", subject, _, ref rest @ .., head, total] => {
                    return self.read_payload(subject, rest, head.parse()?, total.parse()?);
                }
                _ => bail!("unexpected line {line:?}"),
            }
        }
    }

    fn read_payload(
        &mut self,
        subject: &str,
        reply: &[&str],
        head: usize,
        total: usize,
    ) -> Result<NodeMessage> {
        let mut payload = vec![0; total + 2];
        self.read.read_exact(&mut payload)?;
        ensure!(payload.ends_with(b"\r\n"), "the message has another length than announced");
        payload.truncate(total);
        let mut message = Delivered { subject: subject.to_owned(), ..Delivered::default() };
        message.reply = reply.first().map(|reply| (*reply).to_owned()).unwrap_or_default();
        let text = String::from_utf8(payload.drain(..head).collect())?;
        let mut lines = text.split("\r\n").filter(|line| !line.is_empty());
        message.status = lines.next().unwrap_or("").trim_start_matches("NATS/1.0").trim().to_owned();
        for line in lines {
            let (name, value) = line.split_once(':').context("the header has no colon")?;
            message.headers.push((name.to_owned(), value.trim().to_owned()));
        }
        message.payload = payload;
        Ok(NodeMessage::Message(message))
    }
}

impl ListenerSubscriber for Link {
    fn next(&mut self, patience: Duration) -> Result<SubscriberEvent> {
        self.stream.set_read_timeout(Some(patience))?;
        match self.read.fill_buf() {
            Ok([]) => return Ok(SubscriberEvent::Disconnected("the connection ended".to_owned())),
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Ok(SubscriberEvent::Nothing);
            }
            Err(error) => return Err(error.into()),
        }
        match self.read_message() {
            Ok(NodeMessage::Message(message)) => to_received(message),
            Ok(NodeMessage::Error(reason)) => Ok(SubscriberEvent::Disconnected(reason)),
            Ok(NodeMessage::Pong) => bail!("an unexpected PONG"),
            // If a client has read nothing for long, the node may close its connection. The connection may then end in
            // the middle of a message.
            Err(error) => match error.downcast_ref::<std::io::Error>() {
                Some(io) if io.kind() == ErrorKind::UnexpectedEof => {
                    Ok(SubscriberEvent::Disconnected("the connection ended within a message".to_owned()))
                }
                _ => Err(error),
            },
        }
    }
}

fn to_received(mut message: Delivered) -> Result<SubscriberEvent> {
    let take = |headers: &mut Vec<(String, String)>, name: &str| {
        let at = headers.iter().position(|(header, _)| header == name)?;
        headers.remove(at).1.parse::<u64>().ok()
    };
    let headers = &mut message.headers;
    Ok(match message.status.as_str() {
        "" => {
            let seq = take(headers, "Dunlin-Seq");
            headers.retain(|(name, _)| !name.starts_with("Dunlin-"));
            let Delivered { subject, headers, payload, .. } = message;
            SubscriberEvent::Record(ReceivedRecord { subject, seq, payload, headers })
        }
        "410 Gap" => {
            let first = take(headers, "Dunlin-First").context("the gap has no first record")?;
            SubscriberEvent::Gap(first, take(headers, "Dunlin-Last").context("the gap has no last record")?)
        }
        "429 Lagging" => SubscriberEvent::Lagging,
        "410 Epoch Changed" => SubscriberEvent::NewEpoch,
        other => bail!("status {other:?}"),
    })
}
