//! A NATS client for tests, with which a test can check every byte.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use dunlin::Node;
use dunlin_server::{Protocol, Server, ServerConfig};
use dunlin_wait::PATIENCE;

/// Starts a node that serves NATS at a free port.
pub fn serve_nats(change: impl FnOnce(&mut ServerConfig)) -> (Node, Server) {
    crate::serve_with(|config| {
        config.nats = vec![([127, 0, 0, 1], 0).into()];
        change(config);
    })
}

pub fn nats_address(server: &Server) -> SocketAddr {
    server.addresses().iter().find(|(protocol, _)| *protocol == Protocol::Nats).unwrap().1
}

/// A NATS client whose connection a test reads and writes directly.
pub struct NatsPeer {
    pub reader: BufReader<TcpStream>,
}

/// A message that a NATS client received.
#[derive(Debug, PartialEq, Eq)]
pub struct NatsMessage {
    pub subject: String,
    pub sid: String,
    pub reply: Option<String>,
    /// The header lines, without the empty line at the end. The first line has only the status that follows `NATS/1.0`.
    pub headers: Vec<String>,
    pub payload: Vec<u8>,
}

impl NatsPeer {
    /// Connects and reads INFO, but does not send CONNECT.
    pub fn new(server: &Server) -> NatsPeer {
        let mut peer = NatsPeer::raw(server);
        let info = peer.line();
        assert!(info.starts_with("INFO {") && info.contains("\"headers\":true"), "{info}");
        peer
    }

    pub fn raw(server: &Server) -> NatsPeer {
        NatsPeer::at(nats_address(server))
    }

    pub fn at(address: SocketAddr) -> NatsPeer {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        NatsPeer { reader: BufReader::with_capacity(1 << 20, stream) }
    }

    /// Connects. CONNECT enables `headers` and `no_responders`, and disables `verbose`.
    pub fn open(server: &Server) -> NatsPeer {
        NatsPeer::open_with(server, "")
    }

    /// Like [`open`](NatsPeer::open), but CONNECT also has the JSON entries in `more`.
    pub fn open_with(server: &Server, more: &str) -> NatsPeer {
        let mut peer = NatsPeer::new(server);
        peer.send_line(&format!(
            "CONNECT {{\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true{more}}}"
        ));
        peer.ping();
        peer
    }

    /// Sends `line`, followed by CR LF.
    pub fn send_line(&mut self, line: &str) {
        self.send(format!("{line}\r\n").as_bytes());
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.reader.get_mut().write_all(bytes).unwrap();
    }

    pub fn publish(&mut self, subject: &str, payload: &str) {
        self.send_line(&format!("PUB {subject} {}\r\n{payload}", payload.len()));
    }

    pub fn subscribe(&mut self, rest: &str) {
        self.send_line(&format!("SUB {rest}"));
        self.ping();
    }

    /// Sends PING and waits for PONG. The server has then handled everything that was sent before.
    pub fn ping(&mut self) {
        self.send_line("PING");
        assert_eq!(self.line(), "PONG");
    }

    /// Like [`ping`](NatsPeer::ping), but messages may arrive before PONG. Appends their payloads to `got`.
    pub fn ping_collecting(&mut self, got: &mut Vec<String>) {
        self.send_line("PING");
        while !self.reader.fill_buf().unwrap().starts_with(b"PO") {
            got.push(self.text().1);
        }
        assert_eq!(self.line(), "PONG");
    }

    /// Reads the next line; empty if the connection has ended.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Whether the server closes the connection without sending more bytes.
    pub fn is_at_end(&mut self) -> bool {
        let mut rest = Vec::new();
        // If the server did not read all bytes, the system resets the connection, which counts as closed.
        let ended = self.reader.read_to_end(&mut rest);
        ended.is_err() || rest.is_empty()
    }

    pub fn message(&mut self) -> NatsMessage {
        let line = self.line();
        let words: Vec<&str> = line.split(' ').collect();
        let number = |text: &str| text.parse::<usize>().unwrap();
        let (subject, sid, reply, header_bytes, all) = match words[..] {
            ["MSG", subject, sid, all] => (subject, sid, None, 0, number(all)),
            ["MSG", subject, sid, reply, all] => (subject, sid, Some(reply), 0, number(all)),
            ["HMSG", subject, sid, headers, all] => (subject, sid, None, number(headers), number(all)),
            ["HMSG", subject, sid, reply, headers, all] => {
                (subject, sid, Some(reply), number(headers), number(all))
            }
            _ => panic!("no message: {line:?}"),
        };
        let mut bytes = vec![0; all + 2];
        self.reader.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes[all..], b"\r\n");
        let block = String::from_utf8(bytes[..header_bytes].to_vec()).unwrap();
        let headers = match block.strip_prefix("NATS/1.0") {
            Some(rest) => rest.strip_suffix("\r\n\r\n").unwrap().split("\r\n").map(str::to_owned).collect(),
            None => Vec::new(),
        };
        NatsMessage {
            subject: subject.to_owned(),
            sid: sid.to_owned(),
            reply: reply.map(str::to_owned),
            headers,
            payload: bytes[header_bytes..all].to_vec(),
        }
    }

    /// Reads the next message, and returns its subject and payload.
    pub fn text(&mut self) -> (String, String) {
        let got = self.message();
        (got.subject, String::from_utf8(got.payload).unwrap())
    }
}
