//! Tests of subscribers that follow the states of state topics. A scripted node sends its messages at the most
//! unfavourable moments.

use std::sync::mpsc;
use std::thread;

use dunlin_client::topic::{Event, Notice, OnGap, Start, Subscribe, SubscribeError, SubscribeOptions};
use dunlin_client::{Client, ClientLimits, ClientOptions, Subscriber};
use dunlin_wait::{Deadline, PATIENCE};
use dunlin_wire::*;

use crate::peer::{Link, ScriptedNode, at, event_text};

fn with_snapshots() -> SubscribeOptions {
    SubscribeOptions { start: Start::Snapshot, on_gap: OnGap::Snapshot, ..SubscribeOptions::default() }
}

/// Returns the next event as a text. The text about a record also contains the position of the previous record.
fn next_event(subscriber: &mut Subscriber) -> String {
    let deadline = Deadline::new();
    let event = loop {
        match subscriber.next_timeout(PATIENCE) {
            // The connection was cut. The next call connects again.
            Err(SubscribeError::Connection(_)) if !deadline.is_over() => {}
            other => break other.unwrap().expect("no event in time"),
        }
    };
    match &event {
        Event::Record(record) => format!("{} after {}", event_text(&event), record.prev_seq),
        Event::Notice(Notice::Snapshot(snapshot)) => format!("state {}", snapshot.position),
        Event::Notice(_) => event_text(&event),
    }
}

fn expect_follow(link: &mut Link) {
    link.next(|message| assert!(matches!(message, FromClient::Follow(_)), "{message:?}"));
}

#[test]
fn merged_record_after_a_gap_names_the_position_before_the_gap() {
    let (client, node) = ScriptedNode::serve(|_, mut link| {
        expect_follow(&mut link);
        link.accept_subscription(at(2, 10));
        link.send_batch(2, 10, 11, &["a"]);
        link.send(FromNode::Gap(GapMessage { channel: 1, epoch: 2, first: 12, last: 19 }));
        link.send_batch(2, 11, 20, &["merged"]);
        link.send_batch(2, 20, 21, &["b"]);
        link.wait_until_closed();
    });
    let mut subscriber = client.subscribe("orders.>", with_snapshots()).unwrap();
    let events: Vec<String> = (0..4).map(|_| next_event(&mut subscriber)).collect();
    assert_eq!(events, ["2-11 a after 10", "gap 2-12..19", "2-20 merged after 11", "2-21 b after 20"]);
    drop((subscriber, client));
    node.join().unwrap();
}

#[test]
fn client_resumes_before_a_gap_if_no_record_came_after_it() {
    let peer = ScriptedNode::new();
    let url = peer.url();
    let (gap_sender, gap_receiver) = mpsc::channel();
    let node = thread::spawn(move || {
        let mut link = peer.accept();
        expect_follow(&mut link);
        link.accept_subscription(at(2, 10));
        link.send_batch(2, 10, 11, &["a"]);
        link.send(FromNode::Gap(GapMessage { channel: 1, epoch: 2, first: 12, last: 19 }));
        link.send(FromNode::Advance(Advance { channel: 1, through: at(2, 19) }));
        // Before the scripted node cuts the connection, the subscriber must have received the gap.
        gap_receiver.recv_timeout(PATIENCE).unwrap();
        drop(link);
        let mut link = peer.accept();
        expect_follow(&mut link);
        let resumed = link.next(|message| match message {
            FromClient::Resume(resume) => resume.logs.iter().map(|log| log.position).collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        });
        link.accept_subscription(resumed[0]);
        link.send_batch(2, 11, 25, &["merged"]);
        link.wait_until_closed();
        resumed
    });
    let client = Client::connect(&url, ClientOptions::default()).unwrap();
    let mut subscriber = client.subscribe("orders.>", with_snapshots()).unwrap();
    let mut events = Vec::new();
    while !events.last().is_some_and(|last: &String| last.contains("merged")) {
        events.push(next_event(&mut subscriber));
        if events.last().is_some_and(|last| *last == "gap 2-12..19") {
            let _ = gap_sender.send(());
        }
    }
    assert_eq!(events.first().map(String::as_str), Some("2-11 a after 10"), "{events:?}");
    assert_eq!(events.last().map(String::as_str), Some("2-25 merged after 11"), "{events:?}");
    assert!(events[1..events.len() - 1].iter().all(|event| *event == "gap 2-12..19"), "{events:?}");
    drop((subscriber, client));
    assert_eq!(node.join().unwrap(), [at(2, 11)]);
}

#[test]
fn client_grants_new_credit_even_if_messages_carry_no_event() {
    const CREDIT_BYTES: usize = 16 << 10;
    let limits = ClientLimits { credit_bytes: CREDIT_BYTES, ..ClientLimits::default() };
    let (client, node) =
        ScriptedNode::serve_with(ClientOptions { limits, ..ClientOptions::default() }, |_, mut link| {
            link.accept_subscription(at(2, 10));
            let mut sent = 0;
            let mut seq = 10;
            while sent < CREDIT_BYTES {
                seq += 1;
                let mut bytes = Vec::new();
                FromNode::Advance(Advance { channel: 1, through: at(2, seq) }).encode(&mut bytes);
                sent += bytes.len();
                link.send_bytes(&bytes);
            }
            // Although the subscriber has received no event, the node has used up the credit. The client must grant new
            // credit.
            let granted = link.next(|message| match message {
                FromClient::Credit(credit) => credit.granted,
                other => panic!("{other:?}"),
            });
            assert!(granted > CREDIT_BYTES as u64, "{granted}");
            link.send_batch(2, seq, seq + 1, &["end"]);
            link.wait_until_closed();
        });
    let mut subscriber = client.subscribe("orders.>", SubscribeOptions::default()).unwrap();
    assert!(next_event(&mut subscriber).contains(" end after "));
    drop((subscriber, client));
    node.join().unwrap();
}
