use std::sync::mpsc;
use std::thread;

use dunlin_client::topic::{Publish, Subscribe, SubscribeOptions, WaitStrategy};
use dunlin_client::{ClientLimits, ClientOptions};
use dunlin_wait::PATIENCE;
use dunlin_wire::*;

use crate::peer::{ScriptedNode, at, event_text};

/// Reads SUBSCRIBE, and opens one log on the channel `channel`.
fn accept_subscription_on(link: &mut crate::peer::Link, channel: u32) -> u64 {
    let (subscription, credit) = link.next(|message| match message {
        FromClient::Subscribe(subscribe) => (subscribe.subscription, subscribe.credit),
        other => panic!("{other:?}"),
    });
    let topic = format!("t{channel}");
    link.send(FromNode::Log(Log {
        subscription,
        channel,
        partition: 0,
        after: at(1, 0),
        topic: &topic,
        subject_prefix: "",
    }));
    link.send(FromNode::Subscribed(Subscribed { subscription, logs: 1 }));
    credit
}

#[test]
fn threads_waiting_on_one_connection_get_their_own_records() {
    const RECORDS: u64 = 300;
    let (read_sender, read_receiver) = mpsc::channel();
    let (client, node) = ScriptedNode::serve(move |_, mut link| {
        for channel in 1..=3 {
            accept_subscription_on(&mut link, channel);
        }
        for seq in 1..=RECORDS {
            for channel in 1..=3 {
                link.send_batch_on(channel, 1, seq - 1, seq, &[&format!("{channel}")]);
            }
            // Wait until all subscribers have read all records, so that they all wait for the next one.
            if seq % 50 == 0 {
                for _ in 1..=3 {
                    assert_eq!(read_receiver.recv_timeout(PATIENCE), Ok(seq));
                }
            }
        }
        link.wait_until_closed();
    });
    let subscribers: Vec<_> = [WaitStrategy::Parked, WaitStrategy::Default, WaitStrategy::Parked]
        .into_iter()
        .map(|wait| client.subscribe("t", SubscribeOptions { wait, ..Default::default() }).unwrap())
        .collect();
    let readers: Vec<_> = subscribers
        .into_iter()
        .zip(1..)
        .map(|(mut subscriber, channel)| {
            let read_sender = read_sender.clone();
            thread::spawn(move || {
                for seq in 1..=RECORDS {
                    assert_eq!(event_text(&subscriber.next().unwrap()), format!("1-{seq} {channel}"));
                    if seq % 50 == 0 {
                        read_sender.send(seq).unwrap();
                    }
                }
            })
        })
        .collect();
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    drop(client);
    node.join().unwrap();
}

#[test]
fn unread_subscription_delays_no_other_subscription() {
    let payload = "x".repeat(1000);
    let limits = ClientLimits { credit_bytes: 256 << 10, ..ClientLimits::default() };
    let (client, node) =
        ScriptedNode::serve_with(ClientOptions { limits, ..ClientOptions::default() }, move |_, mut link| {
            let credit = accept_subscription_on(&mut link, 1);
            accept_subscription_on(&mut link, 2);
            let mut sent = 0;
            for seq in 1..=5000 {
                if sent < credit {
                    link.send_batch_on(1, 1, seq - 1, seq, &[&payload]);
                    sent += 1060;
                }
                link.send_batch_on(2, 1, seq - 1, seq, &["y"]);
            }
            link.wait_until_closed();
        });
    let mut unread = client.subscribe("t1", SubscribeOptions::default()).unwrap();
    let mut read = client.subscribe("t2", SubscribeOptions::default()).unwrap();
    for seq in 1..=5000 {
        assert_eq!(event_text(&read.next().unwrap()), format!("1-{seq} y"));
    }
    assert!(event_text(&unread.next().unwrap()).starts_with("1-1 x"));
    drop((unread, read, client));
    node.join().unwrap();
}

#[test]
fn threads_publish_and_subscribe_over_one_connection() {
    const RECORDS: u64 = 200;
    let (client, node) = ScriptedNode::serve(|_, mut link| {
        accept_subscription_on(&mut link, 1);
        let mut open = 0;
        let mut published = 0;
        // The scripted node returns each published record to the client, as a record of the subscription.
        while published < 2 * RECORDS {
            enum ClientMessage {
                Open(u32),
                Publish(PublishHeader),
                Other,
            }
            match link.next(|message| match message {
                FromClient::OpenPublisher(open) => ClientMessage::Open(open.publisher),
                FromClient::Publish(publish) => ClientMessage::Publish(publish.header),
                _ => ClientMessage::Other,
            }) {
                ClientMessage::Open(publisher) => {
                    open += 1;
                    link.send(FromNode::PublisherOpened(PublisherOpened {
                        publisher,
                        partitions: 1,
                        record_bytes_max: 1 << 20,
                        topic: "t",
                        subject_prefix: "t",
                        last_seqs: MessageList::new(&[]),
                    }));
                }
                ClientMessage::Publish(header) => {
                    published += 1;
                    link.send_batch_on(1, 1, published - 1, published, &["echo"]);
                    link.acknowledge(&header, published);
                }
                ClientMessage::Other => {}
            }
        }
        assert_eq!(open, 2);
        link.wait_until_closed();
    });
    let mut subscriber = client.subscribe("t", SubscribeOptions::default()).unwrap();
    let publishers: Vec<_> = (0..2)
        .map(|_| {
            let client = client.clone();
            thread::spawn(move || {
                let mut publisher = client.publisher("t").unwrap();
                for _ in 0..RECORDS {
                    publisher.publish("x").unwrap();
                }
            })
        })
        .collect();
    for seq in 1..=2 * RECORDS {
        assert_eq!(event_text(&subscriber.next().unwrap()), format!("1-{seq} echo"));
    }
    publishers.into_iter().for_each(|publisher| publisher.join().unwrap());
    drop((subscriber, client));
    node.join().unwrap();
}
