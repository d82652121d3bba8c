use std::time::Duration;

use dunlin_client::topic::{Subscribe, SubscribeError, SubscribeOptions};
use dunlin_client::{ClientLimits, ClientOptions, Subscriber};
use dunlin_wait::PATIENCE;
use dunlin_wire::*;

use crate::peer::{Link, ScriptedNode, at, event_text};

/// Subscribes at a node that runs `script`. Returns the events that the subscriber receives before the record `end`,
/// each as a text.
fn received_events(script: impl FnOnce(&mut Link) + Send + 'static) -> Vec<String> {
    let (client, node) = ScriptedNode::serve(|_, mut link| {
        link.accept_subscription(at(2, 10));
        script(&mut link);
        link.wait_until_closed();
    });
    let mut subscriber = client.subscribe("orders.>", SubscribeOptions::default()).unwrap();
    let events = read_until_end(&mut subscriber);
    drop((subscriber, client));
    node.join().unwrap();
    events
}

fn read_until_end(subscriber: &mut Subscriber) -> Vec<String> {
    let mut events = Vec::new();
    while events.last().is_none_or(|last: &String| !last.ends_with(" end")) {
        let event = subscriber.next_timeout(PATIENCE).unwrap().expect("no end in time");
        events.push(event_text(&event));
    }
    events
}

#[test]
fn records_come_in_order_with_position_and_subject() {
    let (client, node) = ScriptedNode::serve(|_, mut link| {
        link.accept_subscription(at(2, 10));
        link.send_batch(2, 10, 11, &["a", "b"]);
        link.wait_until_closed();
    });
    let mut subscriber = client.subscribe("orders.>", SubscribeOptions::default()).unwrap();
    for expected in ["2-11 a", "2-12 b"] {
        let event = subscriber.next().unwrap();
        assert_eq!(event_text(&event), expected);
        let dunlin_client::topic::Event::Record(record) = event else { panic!("no record") };
        assert_eq!(record.subject(), "orders.eu");
    }
    assert!(!subscriber.wait(Some(Duration::from_millis(20))).unwrap());
    drop((subscriber, client));
    node.join().unwrap();
}

#[test]
fn missing_sequence_numbers_without_a_notice_are_a_gap() {
    let events = received_events(|link| {
        link.send_batch(2, 10, 11, &["a"]);
        link.send_batch(2, 15, 16, &["end"]);
    });
    assert_eq!(events, ["2-11 a", "gap 2-12..15", "2-16 end"]);
}

#[test]
fn filtered_records_are_not_reported_as_a_gap() {
    let events = received_events(|link| {
        link.send_batch(2, 10, 14, &["a"]);
        link.send(FromNode::Advance(Advance { channel: 1, through: at(2, 20) }));
        link.send_batch(2, 20, 21, &["end"]);
    });
    assert_eq!(events, ["2-14 a", "2-21 end"]);
}

#[test]
fn records_filtered_out_by_the_node_count_as_received() {
    let (client, node) = ScriptedNode::serve(|_, mut link| {
        link.accept_subscription(at(2, 10));
        link.send_batch(2, 10, 14, &["a"]);
        link.send(FromNode::Advance(Advance { channel: 1, through: at(2, 20) }));
        link.wait_until_closed();
    });
    let mut subscriber = client.subscribe("orders.>", SubscribeOptions::default()).unwrap();
    assert_eq!(event_text(&subscriber.next().unwrap()), "2-14 a");
    let received = dunlin_wait::find("the position has arrived", || {
        subscriber.wait(Some(Duration::from_millis(1))).unwrap();
        let received = subscriber.received_positions();
        received.iter().any(|(_, position)| position.seq == 20).then_some(received)
    });
    let [(log, position)] = &received[..] else { panic!("{received:?}") };
    assert_eq!((log.topic.as_str(), position.epoch), ("orders", 2));
    drop((subscriber, client));
    node.join().unwrap();
}

#[test]
fn gap_is_delivered_once_and_reading_continues() {
    let events = received_events(|link| {
        link.send(FromNode::Lagging(Lagging { channel: 1, behind: 90, retained: 100 }));
        link.send(FromNode::Gap(GapMessage { channel: 1, epoch: 2, first: 11, last: 19 }));
        link.send_batch(2, 19, 20, &["end"]);
    });
    assert_eq!(events, ["lagging 90", "gap 2-11..19", "2-20 end"]);
}

#[test]
fn reported_gap_begins_right_after_the_last_received_record() {
    let events = received_events(|link| {
        link.send(FromNode::Gap(GapMessage { channel: 1, epoch: 2, first: 15, last: 19 }));
        link.send_batch(2, 19, 20, &["end"]);
    });
    assert_eq!(events, ["gap 2-11..19", "2-20 end"]);
}

#[test]
fn heartbeat_reveals_the_loss_of_the_last_records_as_a_gap() {
    let events = received_events(|link| {
        link.send_batch(2, 10, 11, &["a"]);
        let channels = [ChannelPosition { channel: 1, position: at(2, 11) }];
        link.send(FromNode::Heartbeat(Heartbeat { channels: MessageList::new(&channels) }));
        let channels = [ChannelPosition { channel: 1, position: at(2, 13) }];
        link.send(FromNode::Heartbeat(Heartbeat { channels: MessageList::new(&channels) }));
        link.send_batch(2, 13, 14, &["end"]);
    });
    assert_eq!(events, ["2-11 a", "gap 2-12..13", "2-14 end"]);
}

#[test]
fn repeated_records_are_not_delivered_again() {
    let events = received_events(|link| {
        link.send_batch(2, 10, 11, &["a", "b", "c"]);
        link.send_batch(2, 10, 11, &["a", "b"]);
        link.send_batch(2, 11, 12, &["b", "c", "d"]);
        link.send_batch(2, 14, 15, &["end"]);
    });
    assert_eq!(events, ["2-11 a", "2-12 b", "2-13 c", "2-14 d", "2-15 end"]);
}

#[test]
fn records_of_a_replaced_owner_are_ignored_after_a_new_epoch() {
    let events = received_events(|link| {
        link.send_batch(2, 10, 11, &["a"]);
        link.send(FromNode::EpochChanged(EpochChanged {
            channel: 1,
            old: 2,
            last_seen: 11,
            known_through: Some(12),
            new_first: at(3, 1),
        }));
        link.send_batch(2, 11, 12, &["from the old owner"]);
        link.send_batch(3, 0, 1, &["end"]);
    });
    assert_eq!(events, ["2-11 a", "epoch 2-11 Some(12) 3-1", "3-1 end"]);
}

#[test]
fn client_reports_a_new_epoch_that_the_node_did_not_announce() {
    let events = received_events(|link| link.send_batch(5, 0, 1, &["end"]));
    assert_eq!(events, ["epoch 2-10 None 5-1", "5-1 end"]);
}

#[test]
fn subscriber_learns_of_topic_deletion_and_subscription_end() {
    let (client, node) = ScriptedNode::serve(|_, mut link| {
        let subscription = link.accept_subscription(at(2, 10));
        link.send_batch(2, 10, 11, &["a"]);
        link.send(FromNode::Deleted(Deleted { channel: 1, last: at(2, 11) }));
        let refusal = Refusal::new(ErrorCode::Lost, "");
        link.send(FromNode::SubscriptionEnded(SubscriptionEnded { subscription, refusal }));
        link.wait_until_closed();
    });
    let mut subscriber = client.subscribe("orders.>", SubscribeOptions::default()).unwrap();
    let events: Vec<String> = (0..2).map(|_| event_text(&subscriber.next().unwrap())).collect();
    assert_eq!(events, ["2-11 a", "deleted 2-11"]);
    assert!(matches!(subscriber.next(), Err(SubscribeError::Lost)));
    assert!(matches!(subscriber.next(), Err(SubscribeError::Lost)), "and it stays so");
    drop((subscriber, client));
    node.join().unwrap();
}

/// Subscribes at a node that runs `script`, and then ends the subscription, whose number the script returns. Returns
/// the partition and the start position of each log.
fn start_positions_after_the_end(
    script: impl FnOnce(&ScriptedNode, Link) -> (Link, u32) + Send + 'static,
) -> Vec<(u16, u32, u64)> {
    let (client, node) = ScriptedNode::serve(|node, link| {
        let (mut link, subscription) = script(node, link);
        let refusal = Refusal::new(ErrorCode::Closed, "");
        link.send(FromNode::SubscriptionEnded(SubscriptionEnded { subscription, refusal }));
        link.wait_until_closed();
    });
    let mut subscriber = client.subscribe_nowait("orders.>", SubscribeOptions::default(), Vec::new());
    assert!(matches!(subscriber.next(), Err(SubscribeError::Closed)));
    let starts = subscriber.start_positions().expect("the node has accepted the subscription");
    let starts = starts.iter().map(|(log, start)| (log.partition, start.epoch, start.seq)).collect();
    drop((subscriber, client));
    node.join().unwrap();
    starts
}

/// Announces partition `partition` of the topic `orders` on a channel of its own.
fn announce_partition(link: &mut Link, subscription: u32, partition: u16, after: Position) {
    link.send(FromNode::Log(Log {
        subscription,
        channel: u32::from(partition) + 1,
        partition,
        after,
        topic: "orders",
        subject_prefix: "orders.",
    }));
}

#[test]
fn start_positions_can_be_read_after_the_subscription_ended() {
    let starts = start_positions_after_the_end(|_, mut link| {
        let subscription = link.accept_subscription(at(2, 10));
        (link, subscription)
    });
    assert_eq!(starts, [(0, 2, 10)]);
}

#[test]
fn start_positions_exclude_logs_that_are_announced_later() {
    let starts = start_positions_after_the_end(|_, mut link| {
        let subscription = link.accept_subscription(at(2, 10));
        announce_partition(&mut link, subscription, 1, at(2, 20));
        (link, subscription)
    });
    assert_eq!(starts, [(0, 2, 10)]);
}

#[test]
fn start_positions_are_not_repeated_after_a_reconnect() {
    let starts = start_positions_after_the_end(|node, mut link| {
        let subscription = link.next(|message| match message {
            FromClient::Subscribe(subscribe) => subscribe.subscription,
            other => panic!("{other:?}"),
        });
        announce_partition(&mut link, subscription, 0, at(2, 10));
        drop(link);
        let mut link = node.accept();
        let subscription = link.accept_subscription(at(2, 12));
        (link, subscription)
    });
    assert_eq!(starts, [(0, 2, 12)]);
}

#[test]
fn subscribe_call_returns_the_reason_of_a_refusal() {
    let (client, node) = ScriptedNode::serve(|_, mut link| {
        let subscription = link.next(|message| match message {
            FromClient::Subscribe(subscribe) => subscribe.subscription,
            other => panic!("{other:?}"),
        });
        let refusal = Refusal::new(ErrorCode::NoTopic, "orders.eu");
        link.send(FromNode::SubscriptionEnded(SubscriptionEnded { subscription, refusal }));
        link.wait_until_closed();
    });
    let refused = client.subscribe("orders.eu", SubscribeOptions::default());
    assert_eq!(refused.err(), Some(SubscribeError::NoTopic("orders.eu".to_owned())));
    drop(client);
    node.join().unwrap();
}

#[test]
fn large_and_small_batches_are_read_in_order() {
    let big = "x".repeat(100_000);
    let events = received_events(move |link| {
        for seq in (11..51).step_by(2) {
            link.send_batch(2, seq - 1, seq, &[&big]);
            link.send_batch(2, seq, seq + 1, &["small"]);
        }
        link.send_batch(2, 50, 51, &["end"]);
    });
    assert_eq!(events.len(), 41);
    for (at, text) in events.iter().enumerate() {
        assert!(text.starts_with(&format!("2-{} ", at + 11)), "{at}");
    }
}

#[test]
fn client_renews_credit_after_reading_half_of_the_credit() {
    let payload = "x".repeat(1000);
    let limits = ClientLimits { credit_bytes: 64 << 10, ..ClientLimits::default() };
    let (client, node) =
        ScriptedNode::serve_with(ClientOptions { limits, ..ClientOptions::default() }, move |_, mut link| {
            let (subscription, mut granted) = link.next(|message| match message {
                FromClient::Subscribe(subscribe) => (subscribe.subscription, subscribe.credit),
                other => panic!("{other:?}"),
            });
            assert_eq!(granted, 64 << 10);
            link.announce(subscription, at(1, 0));
            let mut sent = 0;
            for seq in 1..=1000 {
                while sent >= granted {
                    granted = link.next(|message| match message {
                        FromClient::Credit(credit) => {
                            assert!(credit.granted > granted);
                            credit.granted
                        }
                        other => panic!("{other:?}"),
                    });
                    assert!(granted <= sent + (64 << 10), "more than a whole credit is open");
                }
                link.send_batch(1, seq - 1, seq, &[&payload]);
                sent += 40 + 8 + 8 + 4 + 1000 + 4;
            }
            link.wait_until_closed();
        });
    let mut subscriber = client.subscribe("orders.>", SubscribeOptions::default()).unwrap();
    let mut read = 0;
    while read < 1000 {
        subscriber.wait(None).unwrap();
        read += subscriber.drain(64, |event| assert!(event_text(&event).starts_with("1-"))).unwrap();
    }
    drop((subscriber, client));
    node.join().unwrap();
}

#[test]
fn subscriber_returns_no_credit_before_reading_records() {
    let limits = ClientLimits { credit_bytes: 1, ..ClientLimits::default() };
    let (client, node) =
        ScriptedNode::serve_with(ClientOptions { limits, ..ClientOptions::default() }, move |_, mut link| {
            link.accept_subscription(at(1, 0));
            let is_credit = |message: FromClient<'_>| matches!(message, FromClient::Credit(_));
            while let Some(is_credit_message) = link.try_next(is_credit) {
                assert!(!is_credit_message, "nothing was consumed");
            }
        });
    let mut subscriber = client.subscribe("orders.>", SubscribeOptions::default()).unwrap();
    for _ in 0..10 {
        // The wait may also fail: after a pause of the machine, the client may consider the connection lost.
        let waited = subscriber.wait(Some(Duration::from_millis(1)));
        assert_ne!(waited, Ok(true), "there is nothing to read");
    }
    drop((subscriber, client));
    node.join().unwrap();
}

#[test]
fn registered_subscriber_reports_consumed_positions() {
    let (client, node) = ScriptedNode::serve(|_, mut link| {
        link.accept_subscription(at(2, 10));
        link.send_batch(2, 10, 11, &["a", "b"]);
        let consumed = link.next(|message| match message {
            FromClient::Credit(credit) => credit.consumed.iter().collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        });
        assert_eq!(consumed, [ChannelPosition { channel: 1, position: at(2, 12) }]);
        link.send_batch(2, 12, 13, &["end"]);
        link.wait_until_closed();
    });
    let options = SubscribeOptions { registered: true, ..SubscribeOptions::default() };
    let mut subscriber = client.subscribe("orders.>", options).unwrap();
    assert_eq!(read_until_end(&mut subscriber), ["2-11 a", "2-12 b", "2-13 end"]);
    drop((subscriber, client));
    node.join().unwrap();
}
