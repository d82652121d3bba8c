//! Tests which connections count as publishers of a state, for each protocol. Subscribers of the state must receive
//! notices when the first publisher connects and when the last one disconnects.

use std::net::SocketAddr;

use dunlin::Node;
use dunlin::topic::{
    Event, Notice, OnGap, Publish, ReducerConfig, Start, Subscribe, SubscribeOptions, TopicConfig,
};
use dunlin::wire::{Follow, FromClient, FromNode, Preamble, StartAt, VERSION_MIN};
use dunlin_server::grpc::proto::dunlin::start::At;
use dunlin_server::grpc::proto::dunlin::subscribe_response::Event as GrpcEvent;
use dunlin_server::{Protocol, Server};
use dunlin_wait::PATIENCE;
use serde_json::json;

use crate::grpc;
use crate::http::{Peer as HttpPeer, socket::Socket};
use crate::nats_peer::NatsPeer;
use crate::peer::Peer;
use crate::serve_with;

/// Starts a node with an order book and with a listener for each protocol.
fn serve() -> (Node, Server) {
    let (node, server) = serve_with(|config| {
        let anywhere = || vec![([127, 0, 0, 1], 0).into()];
        (config.nats, config.http, config.grpc) = (anywhere(), anywhere(), anywhere());
    });
    let reducer = Some(ReducerConfig { kind: "book".to_owned(), ..ReducerConfig::default() });
    node.create_topic("md", TopicConfig { reducer, ..TopicConfig::default() }, false).unwrap();
    (node, server)
}

fn http(server: &Server) -> SocketAddr {
    server.addresses().iter().find(|(protocol, _)| *protocol == Protocol::Http).unwrap().1
}

/// Encodes a level of an order book.
fn level() -> Vec<u8> {
    let mut bytes = vec![1, 1, 0, 0, 0, 0, 0, 0];
    [5_i64, 7].iter().for_each(|number| bytes.extend(number.to_le_bytes()));
    bytes
}

/// A subscriber of the state that is inside the test's process.
struct Watch(dunlin::topic::Subscriber);

impl Watch {
    fn of(node: &Node) -> Watch {
        let options =
            SubscribeOptions { start: Start::Snapshot, on_gap: OnGap::Snapshot, ..Default::default() };
        let mut watch = Watch(node.subscribe("md", &options).unwrap());
        assert!(!watch.next(), "no publisher is connected yet");
        watch
    }

    fn next(&mut self) -> bool {
        loop {
            match self.0.next_timeout(PATIENCE).unwrap() {
                Some(Event::Notice(Notice::Publishers(publishers))) => return publishers.connected,
                Some(_) => {}
                None => panic!("no notice arrived"),
            }
        }
    }
}

#[test]
fn tcp_client_is_a_publisher_while_it_has_the_topic_open() {
    let (node, server) = serve();
    let mut watch = Watch::of(&node);
    let mut peer = Peer::connect(&server);
    peer.open_publisher(1, "md");
    assert!(watch.next());
    peer.send(FromClient::ClosePublisher { publisher: 1 });
    assert!(!watch.next());
    peer.open_publisher(1, "md");
    assert!(watch.next());
    drop(peer);
    assert!(!watch.next());
}

#[test]
fn nats_client_is_a_publisher_until_its_connection_ends() {
    let (node, server) = serve();
    let mut watch = Watch::of(&node);
    let mut peer = NatsPeer::open(&server);
    peer.send(&[b"PUB md 24\r\n", &level()[..], b"\r\n"].concat());
    assert!(watch.next());
    drop(peer);
    assert!(!watch.next());
}

#[test]
fn http_client_is_a_publisher_until_its_connection_ends() {
    let (node, server) = serve();
    let mut watch = Watch::of(&node);
    for path in ["/v1/topics/md", "/v1/topics/md/batch"] {
        let mut peer = HttpPeer::connect(http(&server));
        let line = json!({"payload_base64": "AQEAAAAAAAAFAAAAAAAAAAcAAAAAAAAA"}).to_string();
        let (kind, body) = match path.ends_with("batch") {
            true => ("application/x-ndjson", line.into_bytes()),
            false => ("application/octet-stream", level()),
        };
        let response = peer.request("POST", path, &[("content-type", kind)], &body);
        assert!(response.status < 300, "{response:?}");
        assert!(watch.next());
        drop(peer);
        assert!(!watch.next());
    }
}

#[test]
fn websocket_client_is_a_publisher_until_its_connection_ends() {
    let (node, server) = serve();
    let mut watch = Watch::of(&node);
    let mut socket = Socket::json_at(http(&server));
    let payload = "AQEAAAAAAAAFAAAAAAAAAAcAAAAAAAAA";
    socket.send_json(&json!({"op": "publish", "request": 1, "subject": "md", "payload_base64": payload}));
    assert_eq!(socket.receive_json()["op"], "published");
    assert!(watch.next());
    drop(socket);
    assert!(!watch.next());
}

#[test]
fn grpc_client_is_a_publisher_until_its_connection_ends() {
    let (node, server) = serve();
    let mut watch = Watch::of(&node);
    for streams in [false, true] {
        grpc::run(async {
            let mut client = grpc::connect(&server).await;
            match streams {
                false => drop(client.publish(grpc::publish("md", level())).await.unwrap()),
                true => {
                    let draft = grpc::publish("md", level()).record.unwrap();
                    let message = dunlin_server::grpc::proto::dunlin::PublishStreamRequest {
                        subject: "md".to_owned(),
                        records: vec![draft],
                        ..Default::default()
                    };
                    let responses = client.publish_stream(tokio_stream::iter([message])).await.unwrap();
                    assert!(responses.into_inner().message().await.unwrap().is_some());
                }
            }
            // The first notice is read before the client disconnects: if the status changes twice, a subscriber may
            // receive only the last notice.
            assert!(watch.next());
            drop(client);
        });
        assert!(!watch.next());
    }
}

#[test]
fn tcp_subscriber_learns_that_no_publisher_is_connected() {
    let (node, server) = serve();
    let append_ns = published(&node);
    let mut reader = follow(Peer::connect(&server));
    let status = |message: FromNode<'_>| match message {
        FromNode::Publishers(publishers) => Some((publishers.connected, publishers.last_append_ns)),
        _ => None,
    };
    assert_eq!(reader.next(status), Some((false, Some(append_ns))));
    let _publisher = node.publisher("md").unwrap();
    assert_eq!(reader.next(status), Some((true, Some(append_ns))));
}

#[test]
fn client_of_the_previous_version_gets_no_publisher_status() {
    let (node, server) = serve();
    published(&node);
    let mut peer = Peer::silent(&server);
    peer.offer_versions(Preamble::chosen(VERSION_MIN), VERSION_MIN);
    let mut reader = follow(peer);
    let snapshot = reader.next(|message| matches!(message, FromNode::Snapshot(_)).then_some(()));
    assert_eq!(snapshot, Some(()));
    // This client's version of the protocol does not have the message about publishers. If the node sent that message,
    // the client could not read the next record.
    published(&node);
    assert_eq!(reader.records(1)[0].0, 2);
}

#[test]
fn http_subscriber_learns_that_no_publisher_is_connected() {
    let (node, server) = serve();
    let append_ns = published(&node);
    let peer = HttpPeer::connect(http(&server));
    let mut events = peer.events("/v1/topics/md/events?from=snapshot", &[]);
    let status = events.until("publishers").1.json();
    assert_eq!((&status["topic"], &status["connected"]), (&json!("md"), &json!(false)));
    assert_eq!(status["last_append_ns"], append_ns.to_string());
    assert!(status["since_ns"].as_str().unwrap().parse::<u64>().unwrap() >= append_ns);
    let _publisher = node.publisher("md").unwrap();
    assert_eq!(events.until("publishers").1.json()["connected"], true);
}

#[test]
fn websocket_subscriber_learns_that_no_publisher_is_connected() {
    let (node, server) = serve();
    let append_ns = published(&node);
    let mut socket = Socket::json_at(http(&server));
    socket.send_json(&json!({"op": "subscribe", "id": 1, "pattern": "md", "from": "snapshot"}));
    let status = loop {
        let status = socket.receive_json();
        if status["op"] == "publishers" {
            break status;
        }
    };
    assert_eq!((&status["id"], &status["connected"]), (&json!(1), &json!(false)));
    assert_eq!(status["last_append_ns"], append_ns.to_string());
}

#[test]
fn grpc_subscriber_learns_that_no_publisher_is_connected() {
    let (node, server) = serve();
    let append_ns = published(&node);
    grpc::run(async {
        let mut client = grpc::connect(&server).await;
        let mut stream =
            client.subscribe(grpc::subscribe(&["md"], At::Snapshot(true))).await.unwrap().into_inner();
        let status = loop {
            if let GrpcEvent::Publishers(publishers) = grpc::next(&mut stream).await.unwrap() {
                break publishers;
            }
        };
        assert_eq!(
            (status.topic.as_str(), status.connected, status.last_append_ns),
            ("md", false, Some(append_ns))
        );
    });
}

/// Publishes a record with a publisher that then disconnects. Returns the time at which the record was appended.
fn published(node: &Node) -> u64 {
    node.publisher("md").unwrap().publish(&level()[..]).unwrap();
    node.topic("md").unwrap().logs()[0].info().last_append_ns
}

fn follow(mut reader: Peer) -> Peer {
    let (subscription, start, on_gap) = (1, true, true);
    reader.send(FromClient::Follow(Follow {
        subscription,
        start,
        on_gap,
        conflate: false,
        test_loss_every: 0,
    }));
    reader.subscribe(1, "md", StartAt::Latest, 1 << 30);
    reader
}
