//! Tests of idle handles while the node is killed and restarted: each call succeeds or fails within a short time.

use std::time::{Duration, Instant};

use dunlin_client::topic::{
    Event, Notice, Publish, PublishError, Start, Subscribe, SubscribeError, SubscribeOptions,
};
use dunlin_client::{CallError, Client, ClientOptions, RequestError, Subscriber};
use dunlin_system_tests::port;

use crate::processes::{HEARTBEAT, Node, SHORT_HEARTBEAT, url};

/// The additional time that a busy machine may need.
const SOON: Duration = Duration::from_secs(30);

/// Fails if the call takes longer than two heartbeats.
fn soon<T>(what: &str, call: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let outcome = call();
    assert!(began.elapsed() < 2 * HEARTBEAT + SOON, "{what} took {:?}", began.elapsed());
    outcome
}

/// Repeats a call until it succeeds; each failing call must fail soon.
fn in_the_end<T, E: std::fmt::Display>(what: &str, mut call: impl FnMut() -> Result<T, E>) -> T {
    let mut errors = Vec::new();
    for _ in 0..10 {
        match soon(what, &mut call) {
            Ok(done) => return done,
            Err(error) => errors.push(error.to_string()),
        }
    }
    panic!("{what} does not continue: {errors:#?}")
}

fn word(event: &Event<'_>) -> String {
    match event {
        Event::Record(record) => String::from_utf8_lossy(record.payload()).into_owned(),
        Event::Notice(Notice::Gap(gap)) => format!("gap {}..{}", gap.first, gap.last),
        Event::Notice(Notice::Lagging(_)) => "lagging".to_owned(),
        Event::Notice(Notice::EpochChanged(changed)) => format!("epoch after {}", changed.last_seen),
        Event::Notice(other) => format!("{other:?}"),
    }
}

fn next(subscriber: &mut Subscriber) -> String {
    in_the_end("next", || subscriber.next().map(|event| word(&event)))
}

fn connect(node: &Node) -> Client {
    Client::connect(&node.url(), ClientOptions::default()).unwrap()
}

fn earliest() -> SubscribeOptions {
    SubscribeOptions { start: Start::Earliest, ..SubscribeOptions::default() }
}

/// Kills the node and restarts it, with some idle time before and after the restart.
fn restart(node: Node) -> Node {
    let address = node.address;
    node.kill();
    std::thread::sleep(HEARTBEAT);
    let node = Node::start_with(address, &[SHORT_HEARTBEAT]);
    std::thread::sleep(3 * HEARTBEAT);
    node
}

#[test]
fn idle_client_handles_reconnect_after_a_restart_when_used() {
    let mut node = Node::start_with(port::free(), &[SHORT_HEARTBEAT]);
    let clients: Vec<Client> = (0..4).map(|_| connect(&node)).collect();
    let mut subscriber = clients[0].subscribe("t", earliest()).unwrap();
    let mut publisher = clients[1].publisher("t").unwrap();
    let mut requester = clients[2].requester();
    let responding = clients[3].clone();
    let mut asked = responding.subscribe("ask", earliest()).unwrap();
    let answering = std::thread::spawn(move || {
        let mut responder = responding.responder();
        loop {
            let reply = match asked.next() {
                Ok(Event::Record(record)) if record.payload() == b"end" => return,
                Ok(Event::Record(record)) => record.frame.reply().map(str::to_owned),
                Ok(Event::Notice(_)) | Err(SubscribeError::Connection(_)) => None,
                Err(error) => panic!("the responder ended: {error}"),
            };
            if let Some(reply) = reply {
                // The reply may fail, because the requester has no connection.
                let _ = responder.reply(&reply, b"answer");
            }
        }
    });
    let ask = |requester: &mut dunlin_client::Requester| {
        requester.request("ask", b"question", Duration::from_secs(1))
    };
    publisher.publish(b"0").unwrap();
    assert_eq!(next(&mut subscriber), "0");
    assert_eq!(ask(&mut requester).unwrap().payload, b"answer");
    for round in 1..=3 {
        node = restart(node);
        let before = round.to_string();
        in_the_end("publish", || publisher.publish(before.as_str()));
        assert_eq!(next(&mut subscriber), "epoch after 1");
        assert_eq!(next(&mut subscriber), before);
        let reply = in_the_end("request", || ask(&mut requester));
        assert_eq!(reply.payload, b"answer");
    }
    clients[1].publisher("ask").unwrap().publish(b"end").unwrap();
    answering.join().unwrap();
    node.assert_no_panic();
}

/// Uses every handle while the node is down; each call must fail soon.
fn assert_all_fail_soon(
    client: &Client,
    subscriber: &mut Subscriber,
    publisher: &mut dunlin_client::Publisher,
    requester: &mut dunlin_client::Requester,
) {
    let told = soon("next", || subscriber.next().map(|event| word(&event)));
    assert!(matches!(told, Err(SubscribeError::Connection(_))), "{told:?}");
    let told = soon("publish", || publisher.publish(b"x"));
    assert!(matches!(told, Err(PublishError::Unknown(_))), "{told:?}");
    let told = soon("send and flush", || publisher.send(b"y").and_then(|()| publisher.flush()));
    assert!(matches!(told, Err(PublishError::Unknown(_))), "{told:?}");
    let told = soon("request", || requester.request("ask", b"question", Duration::from_secs(600)));
    assert!(matches!(told, Err(RequestError::Inbox(_) | RequestError::Publish(_))), "{told:?}");
    let told = soon("topics", || client.topics(""));
    assert!(matches!(told, Err(CallError::Disconnected(_) | CallError::Unknown(_))), "{told:?}");
    let told = soon("subscribe", || client.subscribe("u", earliest()).err());
    assert!(matches!(told, Some(SubscribeError::Connection(_))), "{told:?}");
    let told = soon("publisher", || client.publisher("u").err());
    assert!(matches!(told, Some(PublishError::Unknown(_))), "{told:?}");
}

#[test]
fn client_handles_of_a_dead_node_fail_within_two_heartbeats() {
    let address = port::free();
    let node = Node::start_with(address, &[SHORT_HEARTBEAT]);
    let clients: Vec<Client> = (0..4).map(|_| connect(&node)).collect();
    let mut subscriber = clients[0].subscribe("t", earliest()).unwrap();
    let mut publisher = clients[1].publisher("t").unwrap();
    let mut requester = clients[2].requester();
    // The responder never replies, so the requester creates its inbox and its publisher, and then waits.
    let _hears = clients[0].subscribe("ask", earliest()).unwrap();
    let unanswered = requester.request("ask", b"question", Duration::from_millis(50));
    assert!(matches!(unanswered, Err(RequestError::TimedOut(_))), "{unanswered:?}");
    node.kill();
    for _ in 0..2 {
        assert_all_fail_soon(&clients[3], &mut subscriber, &mut publisher, &mut requester);
    }
    let refused = soon("connect", || Client::connect(&url(address), ClientOptions::default()).err());
    assert!(refused.is_some(), "connected to a node that is dead");
}

#[test]
fn client_handles_of_a_frozen_node_fail_in_time_and_resume() {
    let node = Node::start_with(port::free(), &[SHORT_HEARTBEAT]);
    let clients: Vec<Client> = (0..4).map(|_| connect(&node)).collect();
    let mut subscriber = clients[0].subscribe("t", earliest()).unwrap();
    let mut publisher = clients[1].publisher("t").unwrap();
    let mut requester = clients[2].requester();
    let _hears = clients[0].subscribe("ask", earliest()).unwrap();
    let _ = requester.request("ask", b"question", Duration::from_millis(50));
    node.process.stop();
    assert_all_fail_soon(&clients[3], &mut subscriber, &mut publisher, &mut requester);
    node.process.go_on();
    in_the_end("publish", || publisher.publish(b"end"));
    let mut told = Vec::new();
    while told.last().is_none_or(|last: &String| last != "end") {
        told.push(next(&mut subscriber));
    }
    // Records without a response may have arrived, each once and in order.
    assert!(matches!(told.join(" ").as_str(), "end" | "x end" | "y end" | "x y end"), "{told:?}");
    in_the_end("topics", || clients[3].topics(""));
    node.assert_no_panic();
}

#[test]
fn idle_subscriber_behind_the_retention_gets_an_exact_gap() {
    let node = Node::anywhere(&[]);
    let (reading, writing) = (connect(&node), connect(&node));
    let mut subscriber = reading.subscribe("t", earliest()).unwrap();
    let mut publisher = writing.publisher("t").unwrap();
    // Together, the records are much larger than the credit of 1 MiB, the sockets' buffers and 64 KiB of retention.
    let filler = [b'.'; 1_000];
    for n in 0..20_000u32 {
        publisher.send([&n.to_le_bytes()[..], &filler].concat().as_slice()).unwrap();
    }
    publisher.flush().unwrap();
    publisher.publish(b"end").unwrap();
    let (mut due, mut gaps) = (1, 0);
    loop {
        let event = soon("next", || subscriber.next()).unwrap();
        match event {
            Event::Record(record) if record.payload() == b"end" => break,
            Event::Record(record) => {
                assert_eq!(record.seq(), due);
                assert_eq!(record.payload()[..4], (due as u32 - 1).to_le_bytes());
                due += 1;
            }
            Event::Notice(Notice::Gap(gap)) => {
                assert_eq!(gap.first, due);
                (due, gaps) = (gap.last + 1, gaps + 1);
            }
            Event::Notice(_) => {}
        }
    }
    assert_eq!(due, 20_001);
    assert!(gaps > 0, "no gap happened: the test tests nothing");
    node.assert_no_panic();
}
