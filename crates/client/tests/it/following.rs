//! Subscribers of states at a scripted node, whose messages arrive at the worst moments.

use std::sync::mpsc;
use std::thread;

use dunlin_client::topic::{Event, Notice, OnGap, Start, Subscribe, SubscribeError, SubscribeOptions};
use dunlin_client::{Client, ClientLimits, ClientOptions, Subscriber};
use dunlin_wait::{Deadline, PATIENCE};
use dunlin_wire::*;

use crate::peer::{Link, Peer, at, word};

fn following() -> SubscribeOptions {
    SubscribeOptions { start: Start::Snapshot, on_gap: OnGap::Snapshot, ..SubscribeOptions::default() }
}

/// The next event as a word; for a record, the position before it is part of the word.
fn told(subscriber: &mut Subscriber) -> String {
    let deadline = Deadline::new();
    let event = loop {
        match subscriber.next_timeout(PATIENCE) {
            // After a cut connection, the client connects again.
            Err(SubscribeError::Connection(_)) if !deadline.is_over() => {}
            other => break other.unwrap().expect("no event in time"),
        }
    };
    match &event {
        Event::Record(record) => format!("{} after {}", word(&event), record.prev_seq),
        Event::Notice(Notice::Snapshot(snapshot)) => format!("state {}", snapshot.position),
        Event::Notice(_) => word(&event),
    }
}

fn expect_follow(link: &mut Link) {
    link.next(|message| assert!(matches!(message, FromClient::Follow(_)), "{message:?}"));
}

#[test]
fn merged_record_after_a_gap_names_the_last_read_position() {
    let (client, node) = Peer::serve(|_, mut link| {
        expect_follow(&mut link);
        link.accept_subscription(at(2, 10));
        link.run(2, 10, 11, &["a"]);
        link.send(FromNode::Gap(GapMessage { channel: 1, epoch: 2, first: 12, last: 19 }));
        link.run(2, 11, 20, &["merged"]);
        link.run(2, 20, 21, &["b"]);
        link.until_closed();
    });
    let mut subscriber = client.subscribe("orders.>", following()).unwrap();
    let all: Vec<String> = (0..4).map(|_| told(&mut subscriber)).collect();
    assert_eq!(all, ["2-11 a after 10", "gap 2-12..19", "2-20 merged after 11", "2-21 b after 20"]);
    drop((subscriber, client));
    node.join().unwrap();
}

#[test]
fn subscriber_disconnected_after_a_gap_resumes_before_it() {
    let peer = Peer::new();
    let url = peer.url();
    let (gap_told, is_told) = mpsc::channel();
    let node = thread::spawn(move || {
        let mut link = peer.accept();
        expect_follow(&mut link);
        link.accept_subscription(at(2, 10));
        link.run(2, 10, 11, &["a"]);
        link.send(FromNode::Gap(GapMessage { channel: 1, epoch: 2, first: 12, last: 19 }));
        link.send(FromNode::Advance(Advance { channel: 1, through: at(2, 19) }));
        // The scripted node ends the connection only after the subscriber has received the gap.
        is_told.recv_timeout(PATIENCE).unwrap();
        drop(link);
        let mut link = peer.accept();
        expect_follow(&mut link);
        let resumed = link.next(|message| match message {
            FromClient::Resume(resume) => resume.logs.iter().map(|log| log.position).collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        });
        link.accept_subscription(resumed[0]);
        link.run(2, 11, 25, &["merged"]);
        link.until_closed();
        resumed
    });
    let client = Client::connect(&url, ClientOptions::default()).unwrap();
    let mut subscriber = client.subscribe("orders.>", following()).unwrap();
    let mut all = Vec::new();
    while !all.last().is_some_and(|last: &String| last.contains("merged")) {
        all.push(told(&mut subscriber));
        if all.last().is_some_and(|last| *last == "gap 2-12..19") {
            let _ = gap_told.send(());
        }
    }
    assert_eq!(all.first().map(String::as_str), Some("2-11 a after 10"), "{all:?}");
    assert_eq!(all.last().map(String::as_str), Some("2-25 merged after 11"), "{all:?}");
    assert!(all[1..all.len() - 1].iter().all(|told| *told == "gap 2-12..19"), "{all:?}");
    drop((subscriber, client));
    assert_eq!(node.join().unwrap(), [at(2, 11)]);
}

#[test]
fn client_renews_credit_that_advance_messages_used() {
    const CREDIT_BYTES: usize = 16 << 10;
    let limits = ClientLimits { credit_bytes: CREDIT_BYTES, ..ClientLimits::default() };
    let (client, node) =
        Peer::serve_with(ClientOptions { limits, ..ClientOptions::default() }, |_, mut link| {
            link.accept_subscription(at(2, 10));
            let mut sent = 0;
            let mut seq = 10;
            while sent < CREDIT_BYTES {
                seq += 1;
                let mut bytes = Vec::new();
                FromNode::Advance(Advance { channel: 1, through: at(2, seq) }).encode(&mut bytes);
                sent += bytes.len();
                link.bytes(&bytes);
            }
            // The credit is used up, although the subscriber has received no event that it could consume.
            let granted = link.next(|message| match message {
                FromClient::Credit(credit) => credit.granted,
                other => panic!("{other:?}"),
            });
            assert!(granted > CREDIT_BYTES as u64, "{granted}");
            link.run(2, seq, seq + 1, &["end"]);
            link.until_closed();
        });
    let mut subscriber = client.subscribe("orders.>", SubscribeOptions::default()).unwrap();
    assert!(told(&mut subscriber).contains(" end after "));
    drop((subscriber, client));
    node.join().unwrap();
}
