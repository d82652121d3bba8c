//! Tests of the WebSocket listener (`ws`). The sub-protocol with binary messages is tested with Dunlin's own client.
//! This client connects over TCP to a bridge, which translates between TCP and WebSocket. The sub-protocol with JSON
//! messages is tested with a minimal client.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tungstenite::client::IntoClientRequest;
use tungstenite::handshake::client::generate_key;
use tungstenite::http::HeaderValue;
use tungstenite::protocol::WebSocketConfig;
use tungstenite::protocol::frame::coding::{Data, OpCode};
use tungstenite::protocol::frame::{FrameHeader, FrameSocket};
use tungstenite::{Message as Text, WebSocket};

use super::listener::{
    Listener, ListenerClient, ListenerSubscriber, Message, ReceivedRecord, SubscriberEvent,
    SubscriptionOptions,
};
use super::rust::RemoteClient;
use super::trial::{NodeUnderTest, PATIENCE, TOKEN};

/// The WebSocket listener, used with Dunlin's own protocol in binary messages.
pub struct BinaryWebSocket;
/// The WebSocket listener, used with JSON messages.
pub struct JsonWebSocket;

impl Listener for BinaryWebSocket {
    fn name(&self) -> &'static str {
        "WebSocket"
    }

    fn address(&self, node: &NodeUnderTest) -> Option<SocketAddr> {
        Some(node.http())
    }

    fn connect_client(
        &self,
        _: &NodeUnderTest,
        address: Option<SocketAddr>,
    ) -> Result<Box<dyn ListenerClient>> {
        let bridge = bridge_to(address.context("the listener has no address")?)?;
        RemoteClient::connect(&format!("dunlin://{bridge}"))
    }
}

impl Listener for JsonWebSocket {
    fn name(&self) -> &'static str {
        "WebSocket, JSON"
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
        Ok(Box::new(Client {
            address: address.context("the listener has no address")?,
            connection: None,
            requests: 0,
        }))
    }
}

/// Opens a WebSocket with this sub-protocol.
fn open(address: SocketAddr, protocol: &'static str) -> Result<(WebSocket<TcpStream>, TcpStream)> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut request = format!("ws://{address}/v1/ws").into_client_request()?;
    request.headers_mut().insert("sec-websocket-protocol", HeaderValue::from_static(protocol));
    let config = WebSocketConfig::default().max_message_size(None).max_frame_size(None);
    let socket = stream.try_clone()?;
    let (connection, response) = tungstenite::client::client_with_config(request, stream, Some(config))
        .map_err(|error| anyhow::anyhow!("{error}"))?;
    ensure!(response.headers()["sec-websocket-protocol"] == protocol, "{response:?}");
    Ok((connection, socket))
}

/// Starts a bridge and returns its address. Each TCP connection to the bridge becomes a WebSocket to the node.
fn bridge_to(node: SocketAddr) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            // While the node is down, the bridge closes each new connection. The client thus notices that the node is
            // down.
            let Ok((_connection, node)) = open(node, "dunlin.v1") else { continue };
            let streams = client.try_clone().and_then(|client| Ok((client, node.try_clone()?)));
            let Ok((client_to_write, node_to_read)) = streams else { continue };
            let _ = node.set_read_timeout(None);
            thread::spawn(move || forward_to_node(client, node));
            thread::spawn(move || forward_to_client(node_to_read, client_to_write));
        }
    });
    Ok(address)
}

/// Sends the client's bytes to the node in masked WebSocket frames of different sizes. Some messages are split into
/// several frames.
fn forward_to_node(mut client: TcpStream, mut node: TcpStream) {
    let mut bytes = vec![0; 40_000];
    let mut is_fragment = false;
    for count in 0.. {
        let Ok(read @ 1..) = client.read(&mut bytes) else { break };
        let mask = generate_key().into_bytes();
        let mask = [mask[0], mask[1], mask[2], mask[3]];
        let opcode = OpCode::Data(if is_fragment { Data::Continue } else { Data::Binary });
        is_fragment = count % 3 == 1;
        let head = FrameHeader { is_final: !is_fragment, opcode, mask: Some(mask), ..FrameHeader::default() };
        let mut frame = Vec::new();
        if head.format(read as u64, &mut frame).is_err() {
            break;
        }
        frame.extend(bytes[..read].iter().zip(mask.iter().cycle()).map(|(byte, key)| byte ^ key));
        if node.write_all(&frame).is_err() {
            break;
        }
    }
    let _ = node.shutdown(Shutdown::Both);
}

/// Forwards the bytes from the node's WebSocket frames to the client, without the frames' headers.
fn forward_to_client(node: TcpStream, mut client: TcpStream) {
    let mut frames = FrameSocket::new(node);
    while let Ok(Some(frame)) = frames.read(Some(1 << 20)) {
        if frame.header().opcode != OpCode::Data(Data::Binary) || client.write_all(frame.payload()).is_err() {
            break;
        }
    }
    let _ = client.shutdown(Shutdown::Both);
}

struct Client {
    address: SocketAddr,
    connection: Option<WsConnection>,
    requests: u64,
}

/// A WebSocket connection that the node has accepted.
struct WsConnection {
    socket: WebSocket<TcpStream>,
    stream: TcpStream,
}

impl WsConnection {
    fn connect(address: SocketAddr) -> Result<WsConnection> {
        let (socket, stream) = open(address, "dunlin.v1.json")?;
        let mut connection = WsConnection { socket, stream };
        connection.send(&json!({"op": "hello", "token": TOKEN.0}))?;
        let welcome = connection.receive(PATIENCE)?.context("the node sent no `welcome`")?;
        ensure!(welcome["op"] == "welcome", "{welcome}");
        Ok(connection)
    }

    fn send(&mut self, what: &Value) -> Result<()> {
        Ok(self.socket.send(Text::text(what.to_string()))?)
    }

    /// Returns the next message; `None` if there is none within `patience`.
    fn receive(&mut self, patience: Duration) -> Result<Option<Value>> {
        let deadline = Instant::now() + patience;
        loop {
            let remaining = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            self.stream.set_read_timeout(Some(remaining))?;
            match self.socket.read() {
                Ok(Text::Text(text)) => {
                    let message: Value = serde_json::from_str(&text)?;
                    if message["op"] != "heartbeat" {
                        return Ok(Some(message));
                    }
                }
                Ok(Text::Close(_)) => bail!("closed"),
                Ok(_) => {}
                Err(tungstenite::Error::Io(error))
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    if Instant::now() >= deadline {
                        return Ok(None);
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl ListenerClient for Client {
    fn publish(&mut self, message: &Message<'_>) -> Result<Option<u64>> {
        if self.connection.is_none() {
            self.connection = Some(WsConnection::connect(self.address)?);
        }
        let connection = self.connection.as_mut().context("the client has no connection")?;
        self.requests += 1;
        let headers: Vec<_> =
            message.headers.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        connection.send(&json!({
            "op": "publish", "request": self.requests, "subject": message.subject,
            "payload": String::from_utf8(message.payload.to_vec())?, "headers": headers,
        }))?;
        let message = connection.receive(PATIENCE)?.context("the node sent no response")?;
        ensure!(message["op"] == "published" && message["request"] == self.requests, "{message}");
        Ok(message["seq"].as_u64())
    }

    fn subscribe(&mut self, options: &SubscriptionOptions<'_>) -> Result<Box<dyn ListenerSubscriber>> {
        let from = match options {
            SubscriptionOptions { with_state: true, .. } => "snapshot",
            SubscriptionOptions { from_earliest: true, .. } => "earliest",
            _ => "latest",
        };
        let request = json!({"op": "subscribe", "id": 7, "pattern": options.subject, "from": from});
        let mut reader = WsReader {
            address: self.address,
            request,
            connection: None,
            resume: Value::Null,
            pending: VecDeque::new(),
        };
        reader.connect()?;
        Ok(Box::new(reader))
    }
}

/// A subscriber. If its connection is lost, the subscriber opens a new connection and subscribes again.
struct WsReader {
    address: SocketAddr,
    request: Value,
    connection: Option<WsConnection>,
    resume: Value,
    pending: VecDeque<SubscriberEvent>,
}

impl WsReader {
    fn connect(&mut self) -> Result<()> {
        let mut connection = WsConnection::connect(self.address)?;
        let mut request = self.request.clone();
        request["resume"] = self.resume.clone();
        connection.send(&request)?;
        let message = connection.receive(PATIENCE)?.context("the node sent no response")?;
        ensure!(message["op"] == "subscribed", "{message}");
        self.connection = Some(connection);
        self.add_event(&message)
    }

    fn add_event(&mut self, message: &Value) -> Result<()> {
        let number = |name: &str| message[name].as_u64().with_context(|| format!("no {name} in {message}"));
        ensure!(message["id"] == 7, "{message}");
        if message["resume"].is_string() {
            self.resume = message["resume"].clone();
        }
        let op = message["op"].as_str().unwrap_or("");
        self.pending.push_back(match op {
            "record" => SubscriberEvent::Record(to_received(message)?),
            "gap" => SubscriberEvent::Gap(number("first")?, number("last")?),
            "lagging" => SubscriberEvent::Lagging,
            "epoch" => SubscriberEvent::NewEpoch,
            "snapshot" => {
                let seq = message["position"].as_str().and_then(|at| at.split_once('-')?.1.parse().ok());
                SubscriberEvent::State(seq.with_context(|| format!("no position in {message}"))?)
            }
            "checksum" | "publishers" | "position" | "subscribed" => return Ok(()),
            other => bail!("{other}: {message}"),
        });
        Ok(())
    }
}

impl ListenerSubscriber for WsReader {
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
            let Some(connection) = &mut self.connection else {
                if self.connect().is_err() {
                    thread::sleep(Duration::from_millis(20).min(remaining));
                }
                continue;
            };
            match connection.receive(remaining) {
                // The node has sent an error and will close the connection. The next round connects again.
                Ok(Some(message)) if message["op"] == "error" => self.connection = None,
                Ok(Some(message)) => self.add_event(&message)?,
                Ok(None) => {}
                Err(_) => self.connection = None,
            }
        }
    }
}

fn to_received(message: &Value) -> Result<ReceivedRecord> {
    let text = |name: &str| message[name].as_str().with_context(|| format!("no {name} in {message}"));
    let headers = message["headers"].as_array().map_or(&[][..], Vec::as_slice);
    let header = |header: &Value| {
        let field = |name: &str| header[name].as_str().unwrap_or("?").to_owned();
        (field("name"), field("value"))
    };
    Ok(ReceivedRecord {
        subject: text("subject")?.to_owned(),
        seq: message["seq"].as_u64(),
        payload: text("payload")?.as_bytes().to_vec(),
        headers: headers.iter().map(header).collect(),
    })
}
