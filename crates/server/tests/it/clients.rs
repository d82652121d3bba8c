use dunlin::topic::{Event, Notice, Publish, Subscribe};
use dunlin::wire::{FromNode, Preamble, StartAt, VERSION_MIN};
use dunlin_client::{Client, ClientLimits, ClientOptions};
use dunlin_server::Server;
use dunlin_wait::PATIENCE;

use crate::peer::Peer;
use crate::{serve, serve_with};

pub fn connect(server: &Server) -> Client {
    Client::connect(&format!("dunlin://{}", server.tcp_addresses()[0]), patient_options()).unwrap()
}

/// Options for a client with time limits that suffice on slow machines.
pub fn patient_options() -> ClientOptions {
    let limits = ClientLimits { connect_ms_max: 60_000, patience_heartbeats: 120, ..ClientLimits::default() };
    ClientOptions { limits, ..ClientOptions::default() }
}

#[test]
fn tcp_request_is_answered_by_an_in_process_responder() {
    let (node, server) = serve();
    let _responder = node.respond("double", |mut request| {
        let twice = request.record().payload().repeat(2);
        request.reply(twice.as_slice()).unwrap();
    });
    let client = connect(&server);
    let mut requester = client.requester();
    for text in ["a", "b", "c"] {
        assert_eq!(requester.request("double", text, PATIENCE).unwrap().payload, text.repeat(2).as_bytes());
    }
}

#[test]
fn server_with_spinning_threads_delivers_records_and_notices() {
    let (node, server) = serve_with(|config| config.spin = true);
    let client = connect(&server);
    let mut subscriber = client.subscribe("s", Default::default()).unwrap();
    let mut publisher = client.publisher("s").unwrap();
    for number in 0..1_000u64 {
        publisher.publish(&number.to_le_bytes()).unwrap();
        match subscriber.next_timeout(PATIENCE).unwrap() {
            Some(Event::Record(record)) => assert_eq!(record.payload(), number.to_le_bytes()),
            other => panic!("{other:?}"),
        }
    }
    node.delete_topic("s").unwrap();
    let event = subscriber.next_timeout(PATIENCE).unwrap();
    assert!(matches!(event, Some(Event::Notice(Notice::Deleted { .. }))), "{event:?}");
}

#[test]
fn heartbeats_are_sent_on_an_idle_connection() {
    let (_node, server) = serve_with(|config| config.limits.heartbeat_ms = 50);
    let mut peer = Peer::connect(&server);
    peer.subscribe(1, "quiet", StartAt::Latest, 1_000);
    peer.await_subscribed();
    for _ in 0..3 {
        let heartbeat = peer.next(|m| matches!(m, dunlin::wire::FromNode::Heartbeat(_)).then_some(()));
        assert_eq!(heartbeat, Some(()));
    }
}

#[test]
fn client_of_the_previous_version_is_served() {
    let (node, server) = serve();
    node.create_topic("t", dunlin::topic::TopicConfig::default(), false).unwrap();
    let mut peer = Peer::silent(&server);
    peer.offer_versions(Preamble::chosen(VERSION_MIN), VERSION_MIN);
    peer.subscribe(1, "t", StartAt::Earliest, 1 << 20);
    node.publisher("t").unwrap().publish("hello").unwrap();
    let run = peer.next(|message| matches!(message, FromNode::Batch(_)).then_some(()));
    assert_eq!(run, Some(()));
}
