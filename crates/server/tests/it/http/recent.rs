//! Tests `/v1/subscriptions?recent`, which lists the clients that any listener has recently refused or disconnected.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use dunlin_wait::{PATIENCE, find};
use serde_json::Value;

use super::{HttpServer, short};
use crate::nats_peer::NatsPeer;

fn any() -> Vec<SocketAddr> {
    vec![([127, 0, 0, 1], 0).into()]
}

/// Waits until `is_it` accepts an entry of the list. Returns the newest entry that it accepts.
fn recent(fixture: &HttpServer, is_it: impl Fn(&Value) -> bool) -> Value {
    find("one of that kind", || {
        let response = fixture.get("/v1/subscriptions?recent&limit=100").json();
        let all = response["recent"].as_array().expect("it was asked for");
        all.iter().find(|one| is_it(one)).cloned()
    })
}

#[test]
fn disconnected_slow_nats_client_is_listed_with_its_lag() {
    let fixture = HttpServer::with(|config| config.nats = any());
    fixture.node.create_topic("gaps", short(), false).unwrap();
    let mut slow = NatsPeer::open_with(&fixture.server, ",\"name\":\"dashboard\"");
    slow.subscribe("gaps 1");
    slow.ping();
    let mut publisher = fixture.node.publisher("gaps").unwrap();
    // Publishes more than the kernel's buffers and the topic's log together can hold.
    for _ in 0..40_000 {
        dunlin::topic::Publish::publish(&mut publisher, vec![b'x'; 1_000].as_slice()).unwrap();
    }
    while !slow.line().is_empty() {}
    let found = recent(&fixture, |one| one["name"] == "dashboard");
    assert_eq!((&found["protocol"], &found["outcome"]), (&"nats".into(), &"cut off".into()), "{found}");
    assert_eq!((&found["why"], &found["times"]), (&"Slow Consumer".into(), &1.into()), "{found}");
    assert!(found["lag"].as_u64() > Some(0), "{found}");
    assert!(found["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{found}");
}

#[test]
fn clients_that_speak_a_wrong_protocol_are_listed_and_counted() {
    let fixture = HttpServer::with(|config| (config.tcp, config.nats) = (any(), any()));
    let address = fixture.server.tcp_addresses()[0];
    for _ in 0..3 {
        let mut stranger = TcpStream::connect(address).unwrap();
        stranger.set_read_timeout(Some(PATIENCE)).unwrap();
        stranger.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        // The node may close the connection before it reads the bytes, so a failure is ignored.
        let _ = stranger.read_to_end(&mut Vec::new());
    }
    let found = recent(&fixture, |one| one["protocol"] == "tcp" && one["times"] == 3);
    assert_eq!(found["outcome"], "refused");
    assert!(found["why"].as_str().unwrap().starts_with("PROTOCOL: "), "{found}");
    NatsPeer::new(&fixture.server).send_line("HELO");
    assert_eq!(recent(&fixture, |one| one["protocol"] == "nats")["outcome"], "refused");
}

#[test]
fn refused_event_stream_is_listed_under_its_requested_name() {
    let fixture = HttpServer::new();
    assert_eq!(fixture.get("/v1/topics/a..b/events?name=page").status, 400);
    let found = recent(&fixture, |one| one["name"] == "page");
    assert_eq!((&found["protocol"], &found["outcome"]), (&"http".into(), &"refused".into()), "{found}");
    assert!(found["why"].as_str().unwrap().starts_with("SUBJECT"), "{found}");
    assert!(fixture.get("/v1/subscriptions").json().get("recent").is_none(), "only who asks is told");
}
