//! Tests of clients' handles that are idle while the node is killed and restarted. When such a handle is used after
//! that, each call must return within a short time, with or without success.

use std::time::{Duration, Instant};

use dunlin_client::topic::{
    Event, Notice, Publish, PublishError, Start, Subscribe, SubscribeError, SubscribeOptions,
};
use dunlin_client::{CallError, Client, ClientOptions, RequestError, Subscriber};
use dunlin_system_tests::port;

use crate::processes::{HEARTBEAT, Node, SHORT_HEARTBEAT, url};

/// The time by which a call may exceed its time limit, because the machine may be busy.
const EXTRA_TIME: Duration = Duration::from_secs(30);

/// Makes a call. Panics if the call takes longer than the sum of two heartbeats and [`EXTRA_TIME`].
fn assert_quick<T>(what: &str, call: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let outcome = call();
    assert!(start.elapsed() < 2 * HEARTBEAT + EXTRA_TIME, "{what} took {:?}", start.elapsed());
    outcome
}

/// Repeats a call until it succeeds, at most ten times. Panics if a call takes too long.
fn retry<T, E: std::fmt::Display>(what: &str, mut call: impl FnMut() -> Result<T, E>) -> T {
    let mut errors = Vec::new();
    for _ in 0..10 {
        match assert_quick(what, &mut call) {
            Ok(done) => return done,
            Err(error) => errors.push(error.to_string()),
        }
    }
    panic!("{what} does not continue: {errors:#?}")
}

fn describe(event: &Event<'_>) -> String {
    match event {
        Event::Record(record) => String::from_utf8_lossy(record.payload()).into_owned(),
        Event::Notice(Notice::Gap(gap)) => format!("gap {}..{}", gap.first, gap.last),
        Event::Notice(Notice::Lagging(_)) => "lagging".to_owned(),
        Event::Notice(Notice::EpochChanged(changed)) => format!("epoch after {}", changed.last_seen),
        Event::Notice(other) => format!("{other:?}"),
    }
}

fn next(subscriber: &mut Subscriber) -> String {
    retry("next", || subscriber.next().map(|event| describe(&event)))
}

fn connect(node: &Node) -> Client {
    Client::connect(&node.url(), ClientOptions::default()).unwrap()
}

fn earliest() -> SubscribeOptions {
    SubscribeOptions { start: Start::Earliest, ..SubscribeOptions::default() }
}

/// Kills the node, and later restarts it. The pauses after the kill and after the restart are so long that all handles
/// become idle.
fn restart(node: Node) -> Node {
    let address = node.address;
    node.kill();
    std::thread::sleep(HEARTBEAT);
    let node = Node::start_with(address, &[SHORT_HEARTBEAT]);
    std::thread::sleep(3 * HEARTBEAT);
    node
}

#[test]
fn idle_client_reconnects_at_its_next_use_after_a_node_restart() {
    let mut node = Node::start_with(port::free(), &[SHORT_HEARTBEAT]);
    let clients: Vec<Client> = (0..4).map(|_| connect(&node)).collect();
    let mut subscriber = clients[0].subscribe("t", earliest()).unwrap();
    let mut publisher = clients[1].publisher("t").unwrap();
    let mut requester = clients[2].requester();
    let responder_client = clients[3].clone();
    let mut requests = responder_client.subscribe("ask", earliest()).unwrap();
    let responder_thread = std::thread::spawn(move || {
        let mut responder = responder_client.responder();
        loop {
            let reply = match requests.next() {
                Ok(Event::Record(record)) if record.payload() == b"end" => return,
                Ok(Event::Record(record)) => record.frame.reply().map(str::to_owned),
                Ok(Event::Notice(_)) | Err(SubscribeError::Connection(_)) => None,
                Err(error) => panic!("the responder ended: {error}"),
            };
            if let Some(reply) = reply {
                // Ignores the error, because the requester may have no connection.
                let _ = responder.reply(&reply, b"answer");
            }
        }
    });
    let request = |requester: &mut dunlin_client::Requester| {
        requester.request("ask", b"question", Duration::from_secs(1))
    };
    publisher.publish(b"0").unwrap();
    assert_eq!(next(&mut subscriber), "0");
    assert_eq!(request(&mut requester).unwrap().payload, b"answer");
    for round in 1..=3 {
        node = restart(node);
        let payload = round.to_string();
        retry("publish", || publisher.publish(payload.as_str()));
        assert_eq!(next(&mut subscriber), "epoch after 1");
        assert_eq!(next(&mut subscriber), payload);
        let reply = retry("request", || request(&mut requester));
        assert_eq!(reply.payload, b"answer");
    }
    clients[1].publisher("ask").unwrap().publish(b"end").unwrap();
    responder_thread.join().unwrap();
    node.assert_no_errors();
}

/// While the node is down or frozen, makes a call with every handle. Each call must fail soon.
fn assert_all_fail_soon(
    client: &Client,
    subscriber: &mut Subscriber,
    publisher: &mut dunlin_client::Publisher,
    requester: &mut dunlin_client::Requester,
) {
    let outcome = assert_quick("next", || subscriber.next().map(|event| describe(&event)));
    assert!(matches!(outcome, Err(SubscribeError::Connection(_))), "{outcome:?}");
    let outcome = assert_quick("publish", || publisher.publish(b"x"));
    assert!(matches!(outcome, Err(PublishError::Unknown(_))), "{outcome:?}");
    let outcome = assert_quick("send and flush", || publisher.send(b"y").and_then(|()| publisher.flush()));
    assert!(matches!(outcome, Err(PublishError::Unknown(_))), "{outcome:?}");
    let outcome = assert_quick("request", || requester.request("ask", b"question", Duration::from_secs(600)));
    assert!(matches!(outcome, Err(RequestError::Inbox(_) | RequestError::Publish(_))), "{outcome:?}");
    let outcome = assert_quick("topics", || client.topics(""));
    assert!(matches!(outcome, Err(CallError::Disconnected(_) | CallError::Unknown(_))), "{outcome:?}");
    let outcome = assert_quick("subscribe", || client.subscribe("u", earliest()).err());
    assert!(matches!(outcome, Some(SubscribeError::Connection(_))), "{outcome:?}");
    let outcome = assert_quick("publisher", || client.publisher("u").err());
    assert!(matches!(outcome, Some(PublishError::Unknown(_))), "{outcome:?}");
}

#[test]
fn calls_to_a_dead_node_fail_within_two_heartbeats() {
    let address = port::free();
    let node = Node::start_with(address, &[SHORT_HEARTBEAT]);
    let clients: Vec<Client> = (0..4).map(|_| connect(&node)).collect();
    let mut subscriber = clients[0].subscribe("t", earliest()).unwrap();
    let mut publisher = clients[1].publisher("t").unwrap();
    let mut requester = clients[2].requester();
    // The subscriber of `ask` never replies. The request is made only so that the requester creates its inbox and its
    // publisher before the node is killed.
    let _listener = clients[0].subscribe("ask", earliest()).unwrap();
    let unanswered = requester.request("ask", b"question", Duration::from_millis(50));
    assert!(matches!(unanswered, Err(RequestError::TimedOut(_))), "{unanswered:?}");
    node.kill();
    for _ in 0..2 {
        assert_all_fail_soon(&clients[3], &mut subscriber, &mut publisher, &mut requester);
    }
    let refused = assert_quick("connect", || Client::connect(&url(address), ClientOptions::default()).err());
    assert!(refused.is_some(), "connected to a node that is dead");
}

#[test]
fn calls_to_a_frozen_node_fail_in_time_and_succeed_later() {
    let node = Node::start_with(port::free(), &[SHORT_HEARTBEAT]);
    let clients: Vec<Client> = (0..4).map(|_| connect(&node)).collect();
    let mut subscriber = clients[0].subscribe("t", earliest()).unwrap();
    let mut publisher = clients[1].publisher("t").unwrap();
    let mut requester = clients[2].requester();
    let _listener = clients[0].subscribe("ask", earliest()).unwrap();
    let _ = requester.request("ask", b"question", Duration::from_millis(50));
    node.process.stop();
    assert_all_fail_soon(&clients[3], &mut subscriber, &mut publisher, &mut requester);
    node.process.resume();
    retry("publish", || publisher.publish(b"end"));
    let mut events = Vec::new();
    while events.last().is_none_or(|last: &String| last != "end") {
        events.push(next(&mut subscriber));
    }
    // The calls that published `x` and `y` got no response. The node may or may not have appended each of these
    // records. It must not have appended one of them twice, or `y` before `x`.
    assert!(matches!(events.join(" ").as_str(), "end" | "x end" | "y end" | "x y end"), "{events:?}");
    retry("topics", || clients[3].topics(""));
    node.assert_no_errors();
}

#[test]
fn idle_subscriber_gets_an_exact_gap_for_dropped_records() {
    let node = Node::start_anywhere(&[]);
    let (reader_client, writer_client) = (connect(&node), connect(&node));
    let mut subscriber = reader_client.subscribe("t", earliest()).unwrap();
    let mut publisher = writer_client.publisher("t").unwrap();
    // The records together are much larger than all that can hold them: the credit of 1 MiB, the sockets' buffers, and
    // the retention of 64 KiB.
    let filler = [b'.'; 1_000];
    for n in 0..20_000u32 {
        publisher.send([&n.to_le_bytes()[..], &filler].concat().as_slice()).unwrap();
    }
    publisher.flush().unwrap();
    publisher.publish(b"end").unwrap();
    let (mut expected, mut gaps) = (1, 0);
    loop {
        let event = assert_quick("next", || subscriber.next()).unwrap();
        match event {
            Event::Record(record) if record.payload() == b"end" => break,
            Event::Record(record) => {
                assert_eq!(record.seq(), expected);
                assert_eq!(record.payload()[..4], (expected as u32 - 1).to_le_bytes());
                expected += 1;
            }
            Event::Notice(Notice::Gap(gap)) => {
                assert_eq!(gap.first, expected);
                (expected, gaps) = (gap.last + 1, gaps + 1);
            }
            Event::Notice(_) => {}
        }
    }
    assert_eq!(expected, 20_001);
    assert!(gaps > 0, "no gap happened: the test tests nothing");
    node.assert_no_errors();
}
