//! A scripted node, to which the client under test connects. The script of a test says which messages the node sends,
//! and which ones it expects.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use dunlin_client::{Client, ClientLimits, ClientOptions};
use dunlin_topic::{Event, Notice, RecordMeta};
use dunlin_wait::PATIENCE;
use dunlin_wire::*;

/// A heartbeat interval in ms that is so long that the client does not consider the node dead if the machine pauses.
const SLOW_HEARTBEAT_MS: u32 = 60_000;

/// The heartbeat interval in ms for tests in which a node becomes silent.
pub const FAST_HEARTBEAT_MS: u32 = 200;

/// A scripted node, to which the client under test connects.
pub struct ScriptedNode {
    listener: TcpListener,
    heartbeat_ms: u32,
}

/// The scripted node's end of one connection.
pub struct Link {
    stream: TcpStream,
    heartbeat_ms: u32,
    read: Vec<u8>,
    consumed: usize,
}

impl ScriptedNode {
    pub fn new() -> ScriptedNode {
        ScriptedNode { listener: TcpListener::bind("127.0.0.1:0").unwrap(), heartbeat_ms: SLOW_HEARTBEAT_MS }
    }

    pub fn url(&self) -> String {
        format!("dunlin://{}", self.listener.local_addr().unwrap())
    }

    /// Starts a node that runs `script` after the client has connected. Returns the client, and the thread of the node.
    pub fn serve(script: impl FnOnce(&ScriptedNode, Link) + Send + 'static) -> (Client, JoinHandle<()>) {
        ScriptedNode::serve_with(ClientOptions::default(), script)
    }

    pub fn serve_with(
        options: ClientOptions,
        script: impl FnOnce(&ScriptedNode, Link) + Send + 'static,
    ) -> (Client, JoinHandle<()>) {
        ScriptedNode::new().serve_options(options, script)
    }

    /// Starts a node that accepts one subscription, and then sends `messages` again and again without a pause. After
    /// the client's wait has timed out, the test has to send to the returned sender: the node then stops sending
    /// `messages`.
    pub fn serve_flood(
        options: ClientOptions,
        messages: Vec<u8>,
    ) -> (Client, JoinHandle<()>, std::sync::mpsc::Sender<()>) {
        let (timed_out_sender, timed_out) = std::sync::mpsc::channel();
        let (client, node) = ScriptedNode::serve_with(options, move |_, mut link| {
            link.accept_subscription(at(2, 10));
            let has_timed_out = (0..500).any(|_| {
                link.send_bytes(&messages);
                timed_out.try_recv().is_ok()
            });
            assert!(has_timed_out, "the wait lasts as long as messages arrive");
            link.wait_until_closed();
        });
        (client, node, timed_out_sender)
    }

    /// Like [`serve_with`](ScriptedNode::serve_with), but the node announces a heartbeat interval of
    /// [`FAST_HEARTBEAT_MS`].
    pub fn serve_with_fast_heartbeats(
        options: ClientOptions,
        script: impl FnOnce(&ScriptedNode, Link) + Send + 'static,
    ) -> (Client, JoinHandle<()>) {
        ScriptedNode::serve_with_heartbeat(FAST_HEARTBEAT_MS, options, script)
    }

    /// Like [`serve_with`](ScriptedNode::serve_with), but the node announces this heartbeat interval.
    pub fn serve_with_heartbeat(
        heartbeat_ms: u32,
        options: ClientOptions,
        script: impl FnOnce(&ScriptedNode, Link) + Send + 'static,
    ) -> (Client, JoinHandle<()>) {
        ScriptedNode { heartbeat_ms, ..ScriptedNode::new() }.serve_options(options, script)
    }

    fn serve_options(
        self,
        options: ClientOptions,
        script: impl FnOnce(&ScriptedNode, Link) + Send + 'static,
    ) -> (Client, JoinHandle<()>) {
        let (url, peer) = (self.url(), self);
        // The node already accepts connections, so the client connects at once, and never reaches this limit.
        let connect_ms_max = PATIENCE.as_millis() as u64;
        let options = ClientOptions { limits: ClientLimits { connect_ms_max, ..options.limits }, ..options };
        let node = thread::spawn(move || {
            let link = peer.accept();
            script(&peer, link);
        });
        (Client::connect(&url, options).unwrap(), node)
    }

    /// Accepts a connection, reads the client's greeting and welcomes the client.
    pub fn accept(&self) -> Link {
        let mut link = self.accept_silently();
        link.read_hello();
        link.welcome();
        link
    }

    pub fn accept_silently(&self) -> Link {
        let (stream, _) = self.listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Link { stream, heartbeat_ms: self.heartbeat_ms, read: Vec::new(), consumed: 0 }
    }
}

impl Link {
    pub fn read_hello(&mut self) {
        while self.read.len() < PREAMBLE_BYTES {
            self.fill();
        }
        assert_eq!(Preamble::parse(&self.read), Ok(Some(Preamble::OURS)));
        self.consumed = PREAMBLE_BYTES;
        self.next(|message| assert!(matches!(message, FromClient::Hello(_)), "{message:?}"));
    }

    pub fn welcome(&mut self) {
        self.welcome_with_version(VERSION);
    }

    pub fn welcome_with_version(&mut self, version: u8) {
        self.welcome_in_cluster(version, NO_CLUSTER);
    }

    /// Welcomes the client as a node of the cluster `cluster`.
    pub fn welcome_in_cluster(&mut self, version: u8, cluster: &str) {
        self.send_bytes(&Preamble::chosen(version).to_bytes());
        self.send(FromNode::Welcome(Welcome {
            node: 1,
            session: 2,
            node_name: "scripted",
            inbox_prefix: "_INBOX.2.",
            heartbeat_ms: self.heartbeat_ms,
            run_bytes_max: 16 << 20,
            control_bytes_max: 64 << 10,
            subscriptions_max: 100,
            publishers_max: 100,
            in_flight_bytes_max: 1 << 20,
            cluster: OptionalText(cluster),
        }));
    }

    pub fn send(&mut self, message: FromNode<'_>) {
        let mut out = Vec::new();
        message.encode(&mut out);
        self.send_bytes(&out);
    }

    /// Sends bytes. An error, which means that the client has closed the connection, is ignored.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    fn fill(&mut self) -> bool {
        let mut chunk = [0; 64 << 10];
        let read = self.stream.read(&mut chunk).unwrap_or(0);
        self.read.extend_from_slice(&chunk[..read]);
        read > 0
    }

    /// Reads the client's next message, passes it to `handle` and returns the result.
    pub fn next<R>(&mut self, handle: impl FnOnce(FromClient<'_>) -> R) -> R {
        self.try_next(handle).expect("the client closed the connection")
    }

    /// Like [`next`](Link::next), but returns `None` if the client has closed the connection.
    pub fn try_next<R>(&mut self, handle: impl FnOnce(FromClient<'_>) -> R) -> Option<R> {
        let decoder = Decoder::new(dunlin_wire::DecoderLimits::default());
        loop {
            match decoder.next_from_client(&self.read[self.consumed..]).unwrap() {
                DecodeOutcome::Message(message, consumed) => {
                    let result = handle(message);
                    self.consumed += consumed;
                    return Some(result);
                }
                DecodeOutcome::Need(_) => {
                    self.read.drain(..self.consumed);
                    self.consumed = 0;
                    if !self.fill() {
                        return None;
                    }
                }
            }
        }
    }

    /// Like [`try_next`](Link::try_next), but returns `None` if no message arrives within `patience`.
    pub fn next_within<R>(
        &mut self,
        patience: Duration,
        handle: impl FnOnce(FromClient<'_>) -> R,
    ) -> Option<R> {
        self.stream.set_read_timeout(Some(patience)).unwrap();
        let result = self.try_next(handle);
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        result
    }

    /// Reads SUBSCRIBE, and opens one log on channel 1, which continues after the position `after`. Returns the number
    /// of the subscription.
    pub fn accept_subscription(&mut self, after: Position) -> u32 {
        let subscription = self.next(|message| match message {
            FromClient::Subscribe(subscribe) => subscribe.subscription,
            other => panic!("{other:?}"),
        });
        self.announce(subscription, after);
        subscription
    }

    pub fn announce(&mut self, subscription: u32, after: Position) {
        self.send(FromNode::Log(Log {
            subscription,
            channel: 1,
            partition: 0,
            after,
            topic: "orders",
            subject_prefix: "orders.",
        }));
        self.send(FromNode::Subscribed(Subscribed { subscription, logs: 1 }));
    }

    /// Reads OPEN_PUBLISHER, and accepts the publisher. Returns its number, and the number and epoch of its producer.
    pub fn accept_publisher(&mut self) -> (u32, u64, u32) {
        let opened = self.next(|message| match message {
            FromClient::OpenPublisher(open) => (open.publisher, open.producer, open.producer_epoch),
            other => panic!("{other:?}"),
        });
        self.send(FromNode::PublisherOpened(PublisherOpened {
            publisher: opened.0,
            partitions: 1,
            record_bytes_max: 1 << 20,
            topic: "orders",
            subject_prefix: "orders.",
            last_seqs: MessageList::new(&[]),
        }));
        opened
    }

    /// Reads PUBLISH, and returns the header of the batch.
    pub fn accept_publish(&mut self) -> PublishHeader {
        self.next(|message| match message {
            FromClient::Publish(publish) => publish.header,
            other => panic!("{other:?}"),
        })
    }

    pub fn acknowledge(&mut self, publish: &PublishHeader, seq: u64) {
        self.send(FromNode::Published(Published {
            publisher: publish.publisher,
            partition: publish.partition,
            through: publish.last_producer_seq(),
            position: Position { epoch: 1, seq },
            acknowledged: AckKind::Memory,
            duplicate: false,
        }));
    }

    pub fn send_batch(&mut self, epoch: u32, prev_seq: u64, first_seq: u64, payloads: &[&str]) {
        self.send_batch_on(1, epoch, prev_seq, first_seq, payloads);
    }

    pub fn send_batch_on(
        &mut self,
        channel: u32,
        epoch: u32,
        prev_seq: u64,
        first_seq: u64,
        payloads: &[&str],
    ) {
        let frames: Vec<u8> = payloads.iter().flat_map(|payload| frame("eu", payload)).collect();
        let header = dunlin_frame::BatchHeader {
            topic_id: channel,
            epoch,
            prev_seq,
            first_seq,
            count: payloads.len() as u32,
            bytes: frames.len() as u32,
        };
        self.send(FromNode::Batch(Batch { header, frames: &frames }));
    }

    /// Waits until the client has closed the connection. Fails if the client sends a message before that.
    pub fn expect_silent_close(mut self) {
        assert_eq!(self.try_next(|message| format!("{message:?}")), None);
    }

    pub fn wait_until_closed(mut self) {
        while self.try_next(|_| ()).is_some() {}
    }
}

pub fn frame(tail: &str, payload: &str) -> Vec<u8> {
    let meta = RecordMeta { subject_tail: tail, ..RecordMeta::default() };
    let encoded = meta.measure(payload.len()).unwrap();
    let mut out = vec![0; encoded.padded()];
    meta.encode(encoded, 0, payload.as_bytes(), &mut out);
    out
}

pub fn at(epoch: u32, seq: u64) -> Position {
    Position { epoch, seq }
}

/// Returns a text about an event, which tests can compare.
pub fn event_text(event: &Event<'_>) -> String {
    match event {
        Event::Record(record) => {
            format!("{} {}", record.position, std::str::from_utf8(record.payload()).unwrap())
        }
        Event::Notice(Notice::Gap(gap)) => format!("gap {}-{}..{}", gap.epoch, gap.first, gap.last),
        Event::Notice(Notice::EpochChanged(changed)) => format!(
            "epoch {}-{} {:?} {}",
            changed.old, changed.last_seen, changed.known_through, changed.new_first
        ),
        Event::Notice(Notice::Deleted { last, .. }) => format!("deleted {last}"),
        Event::Notice(Notice::Lagging(lagging)) => format!("lagging {}", lagging.behind),
        Event::Notice(other) => format!("{other:?}"),
    }
}

/// Returns the bytes of many heartbeats.
pub fn heartbeats() -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..10_000 {
        FromNode::Heartbeat(Heartbeat { channels: MessageList::new(&[]) }).encode(&mut bytes);
    }
    bytes
}
