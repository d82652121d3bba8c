//! A client of Dunlin's own protocol, with which a test can send and receive single messages.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use dunlin::topic::frame::{Frame, RecordMeta};
use dunlin::wire::{
    DecodeOutcome, Decoder, DecoderLimits, FLAG_ACK, FromClient, FromNode, Hello, OnGap, OpenPublisher,
    Preamble, Publish, PublishHeader, StartAt, Subscribe, VERSION,
};
use dunlin_server::Server;
use dunlin_wait::PATIENCE;

/// A client of Dunlin's own protocol, with one connection, on which tests send and receive single messages.
pub struct Peer {
    pub stream: TcpStream,
    received: Vec<u8>,
    decoder: Decoder,
}

impl Peer {
    /// Connects, but sends nothing.
    pub fn silent(server: &Server) -> Peer {
        let stream = TcpStream::connect(server.tcp_addresses()[0]).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Peer { stream, received: Vec::new(), decoder: Decoder::new(DecoderLimits::default()) }
    }

    /// Connects and completes the handshake without credentials.
    pub fn connect(server: &Server) -> Peer {
        Peer::connect_as(server, "test")
    }

    /// Connects and completes the handshake with this client name.
    pub fn connect_as(server: &Server, client: &str) -> Peer {
        let mut peer = Peer::silent(server);
        peer.send_hello(client, Preamble::OURS, VERSION);
        let welcomed = peer.next(|message| matches!(message, FromNode::Welcome(_)).then_some(()));
        assert_eq!(welcomed, Some(()));
        peer
    }

    /// Connects and completes the handshake with these credentials.
    pub fn log_in(server: &Server, credentials: &[u8]) -> Peer {
        let mut peer = Peer::silent(server);
        peer.stream.write_all(&Preamble::OURS.to_bytes()).unwrap();
        peer.send(FromClient::Hello(Hello { tenant: "", credentials, client: "test" }));
        assert_eq!(peer.take_preamble(), Some(Preamble::chosen(VERSION)));
        let welcomed = peer.next(|message| matches!(message, FromNode::Welcome(_)).then_some(()));
        assert_eq!(welcomed, Some(()));
        peer
    }

    /// Sends a preamble that offers versions of the protocol. Checks that the node chooses `version`.
    pub fn offer_versions(&mut self, offered: Preamble, version: u8) {
        self.send_hello("test", offered, version);
    }

    /// Sends the preamble and HELLO. Checks that the node chooses `version`.
    fn send_hello(&mut self, client: &str, offered: Preamble, version: u8) {
        self.stream.write_all(&offered.to_bytes()).unwrap();
        self.send(FromClient::Hello(Hello { tenant: "", credentials: &[], client }));
        assert_eq!(self.take_preamble(), Some(Preamble::chosen(version)));
    }

    pub fn take_preamble(&mut self) -> Option<Preamble> {
        while self.received.len() < 8 {
            self.receive().then_some(())?;
        }
        let preamble = Preamble::parse(&self.received).unwrap();
        self.received.drain(..8);
        preamble
    }

    pub fn send(&mut self, message: FromClient<'_>) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        self.stream.write_all(&bytes).unwrap();
    }

    /// Reads more bytes. Returns `false` if the connection has ended or was reset: a node's system resets a connection
    /// that is closed with unread bytes.
    fn receive(&mut self) -> bool {
        let mut buffer = [0; 64 << 10];
        match self.stream.read(&mut buffer) {
            Ok(read) => {
                self.received.extend_from_slice(&buffer[..read]);
                read > 0
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// Reads messages until `pick` returns a result for one, and returns this result. Other messages are ignored.
    /// Returns `None` if the node closes the connection.
    pub fn next<T>(&mut self, mut pick: impl FnMut(FromNode<'_>) -> Option<T>) -> Option<T> {
        loop {
            match self.decoder.next_from_node(&self.received).unwrap() {
                DecodeOutcome::Message(message, taken) => {
                    let picked = pick(message);
                    self.received.drain(..taken);
                    if picked.is_some() {
                        return picked;
                    }
                }
                DecodeOutcome::Need(_) => self.receive().then_some(())?,
            }
        }
    }

    /// Reads the next message that is no heartbeat, and returns its debug text; `None` if the node closes the
    /// connection.
    pub fn next_text(&mut self) -> Option<String> {
        self.next(|message| (!matches!(message, FromNode::Heartbeat(_))).then(|| format!("{message:?}")))
    }

    pub fn subscribe(&mut self, number: u32, pattern: &str, start: StartAt, credit: u64) {
        self.send(FromClient::Subscribe(Subscribe {
            subscription: number,
            credit,
            start,
            on_gap: OnGap::Oldest,
            registered: false,
            pattern,
            name: "",
        }));
    }

    pub fn await_subscribed(&mut self) {
        self.next(|message| matches!(message, FromNode::Subscribed(_)).then_some(())).unwrap();
    }

    pub fn open_publisher(&mut self, publisher: u32, subject: &str) {
        let (producer, producer_epoch) = (0, 0);
        self.send(FromClient::OpenPublisher(OpenPublisher { publisher, producer, producer_epoch, subject }));
    }

    /// Publishes a batch to partition 0. `first` is the producer's number of the batch's first record.
    pub fn publish(&mut self, publisher: u32, first: u64, payloads: &[&[u8]]) {
        let frames = frames(payloads);
        let header = PublishHeader {
            publisher,
            partition: 0,
            expect_seq: 0,
            producer_seq: first,
            count: payloads.len() as u32,
            bytes: frames.len() as u32,
        };
        self.send(FromClient::Publish(Publish { flags: FLAG_ACK, header, frames: &frames }));
    }

    /// Reads until `count` records have arrived. Returns their sequence numbers and payloads; panics at a gap.
    pub fn records(&mut self, count: usize) -> Vec<(u64, Vec<u8>)> {
        let mut records: Vec<(u64, Vec<u8>)> = Vec::new();
        while records.len() < count {
            let run = self.next(|message| match message {
                FromNode::Batch(run) => Some((run.header, run.frames.to_vec())),
                FromNode::Gap(_) | FromNode::Error(_) => panic!("{message:?}"),
                _ => None,
            });
            let (header, frames) = run.expect("the connection continues");
            if let Some((last, _)) = records.last() {
                assert_eq!(header.prev_seq, *last);
            }
            let mut rest = frames.as_slice();
            for at in 0..header.count {
                let (frame, taken) = Frame::check(rest, rest.len()).unwrap();
                records.push((header.first_seq + u64::from(at), frame.payload().to_vec()));
                rest = &rest[taken..];
            }
            assert!(rest.is_empty());
        }
        records
    }
}

/// Encodes a frame for each payload, without a key, headers or other data.
pub fn frames(payloads: &[&[u8]]) -> Vec<u8> {
    let meta = RecordMeta::default();
    let mut frames = Vec::new();
    for payload in payloads {
        let encoded = meta.measure(payload.len()).unwrap();
        let at = frames.len();
        frames.resize(at + encoded.padded(), 0);
        meta.encode(encoded, 0, payload, &mut frames[at..]);
    }
    frames
}
