use std::sync::mpsc;
use std::time::{Duration, Instant};

use dunlin_client::topic::{AckLevel, Draft, Publish, PublishError};
use dunlin_client::{ClientLimits, ClientOptions, ProducerIdentity, PublisherOptions};
use dunlin_wait::{Deadline, PATIENCE};
use dunlin_wire::*;

use crate::peer::{FAST_HEARTBEAT_MS, Link, ScriptedNode};

#[test]
fn publish_returns_the_position_of_the_record() {
    let (client, node) = ScriptedNode::serve(|_, mut link| {
        link.accept_publisher();
        link.next(|message| {
            let FromClient::Publish(publish) = message else { panic!("{message:?}") };
            assert_eq!((publish.flags, publish.header.producer_seq), (FLAG_ACK, 1));
            let (frame, _) = dunlin_frame::Frame::check(publish.frames, 4096).unwrap();
            assert_eq!((frame.subject_tail(), frame.payload()), ("eu", &b"hello"[..]));
        });
        let header = PublishHeader { publisher: 1, producer_seq: 1, count: 1, ..Default::default() };
        link.acknowledge(&header, 77);
        link.wait_until_closed();
    });
    let mut publisher = client.publisher("orders.eu").unwrap();
    let receipt = publisher.publish("hello").unwrap();
    assert_eq!((receipt.position.seq, receipt.duplicate), (77, false));
    assert_eq!(receipt.acknowledged, AckLevel::Memory);
    drop((publisher, client));
    node.join().unwrap();
}

#[test]
fn sent_records_are_batched_until_a_flush() {
    let (client, node) = ScriptedNode::serve(|_, mut link| {
        link.accept_publisher();
        let header = link.accept_publish();
        assert_eq!((header.producer_seq, header.count), (1, 100));
        link.acknowledge(&header, 100);
        link.wait_until_closed();
    });
    let mut publisher = client.publisher("orders.eu").unwrap();
    for _ in 0..100 {
        publisher.send("hello").unwrap();
    }
    assert_eq!(publisher.flush().unwrap().unwrap().position.seq, 100);
    assert_eq!(publisher.flush().unwrap(), None);
    drop((publisher, client));
    node.join().unwrap();
}

#[test]
fn client_sends_pending_records_before_a_subscriber_waits() {
    let (client, node) = ScriptedNode::serve(|_, mut link| {
        link.accept_publisher();
        link.accept_subscription(crate::peer::at(1, 0));
        let header = link.accept_publish();
        link.send_batch(1, 0, 1, &["hello"]);
        link.acknowledge(&header, 1);
        link.wait_until_closed();
    });
    let mut publisher = client.publisher("orders.eu").unwrap();
    let mut subscriber = client.subscribe("orders.>", Default::default()).unwrap();
    publisher.send("hello").unwrap();
    use dunlin_client::topic::Subscribe;
    assert_eq!(crate::peer::event_text(&subscriber.next().unwrap()), "1-1 hello");
    drop((publisher, subscriber, client));
    node.join().unwrap();
}

#[test]
fn unanswered_record_is_resent_with_the_same_sequence() {
    let (client, node) = ScriptedNode::serve(|peer, mut link| {
        let first = link.accept_publisher();
        assert_eq!(link.accept_publish().producer_seq, 1);
        drop(link);
        let mut link = peer.accept();
        assert_eq!(link.accept_publisher(), first, "the same producer, epoch and number");
        let header = link.accept_publish();
        assert_eq!((header.producer_seq, header.count), (1, 1));
        link.acknowledge(&header, 5);
        link.wait_until_closed();
    });
    let mut publisher = client.publisher("orders.eu").unwrap();
    assert_eq!(publisher.publish("once").unwrap().position.seq, 5);
    drop((publisher, client));
    node.join().unwrap();
}

#[test]
fn publish_to_a_node_that_stays_down_has_an_unknown_outcome() {
    let (client, node) = ScriptedNode::serve_with_fast_heartbeats(ClientOptions::default(), |_, mut link| {
        link.accept_publisher();
        link.accept_publish();
    });
    let mut publisher = client.publisher("orders.eu").unwrap();
    let began = Instant::now();
    let outcome = publisher.publish("once");
    assert!(matches!(outcome, Err(PublishError::Unknown(_))), "{outcome:?}");
    let silence_min = Duration::from_millis(2 * u64::from(FAST_HEARTBEAT_MS) - 50);
    assert!(began.elapsed() >= silence_min, "after {:?}", began.elapsed());
    node.join().unwrap();
}

#[test]
fn flush_returns_the_receipt_of_an_unconfirmed_record() {
    let (unknown_sender, unknown_receiver) = mpsc::channel();
    let (client, node) =
        ScriptedNode::serve_with_fast_heartbeats(ClientOptions::default(), move |peer, mut link| {
            let first = link.accept_publisher();
            assert_eq!((first.1, first.2), (42, 7));
            link.accept_publish();
            drop(link);
            unknown_receiver.recv_timeout(PATIENCE).unwrap();
            let mut link = peer.accept();
            assert_eq!(link.accept_publisher(), first);
            let header = link.accept_publish();
            assert_eq!((header.producer_seq, header.count), (1, 1));
            link.acknowledge(&header, 9);
            link.wait_until_closed();
        });
    let identity = Some(ProducerIdentity { producer: 42, epoch: 7 });
    let options = PublisherOptions { identity, ..PublisherOptions::default() };
    let mut publisher = client.publisher_with("orders.eu", options).unwrap();
    assert!(matches!(publisher.publish("once"), Err(PublishError::Unknown(_))));
    unknown_sender.send(()).unwrap();
    let deadline = Deadline::new();
    let receipt = loop {
        match publisher.flush() {
            Ok(receipt) => break receipt.unwrap(),
            // The node may have been silent for too long again. The test then tries once more.
            Err(error) => deadline.check(error),
        }
    };
    assert_eq!(receipt.position.seq, 9);
    drop((publisher, client));
    node.join().unwrap();
}

#[test]
fn unacknowledged_bytes_are_bounded_while_the_node_is_down() {
    let limits =
        ClientLimits { in_flight_bytes_max: 64 << 10, batch_bytes: 8 << 10, ..ClientLimits::default() };
    let (client, node) = ScriptedNode::serve_with_fast_heartbeats(
        ClientOptions { limits, ..ClientOptions::default() },
        |_, mut link| {
            link.accept_publisher();
        },
    );
    let mut publisher = client.publisher("orders.eu").unwrap();
    node.join().unwrap();
    let mut refused = 0;
    for _ in 0..1000 {
        refused += u32::from(publisher.send(&[7; 500]).is_err());
        assert!(publisher.unanswered_bytes() <= (64 << 10) + (9 << 10));
        if refused == 3 {
            return;
        }
    }
    panic!("sending into the void went on");
}

#[test]
fn publisher_reuses_the_number_of_a_refused_record() {
    let (client, node) = ScriptedNode::serve(|_, mut link| {
        let (publisher, ..) = link.accept_publisher();
        let header = link.accept_publish();
        let refusal = Refusal { code: ErrorCode::SeqMoved, numbers: [4, 9, 0], text: "" };
        link.send(FromNode::PublishRefused(PublishRefused {
            publisher,
            partition: 0,
            producer_seq: header.producer_seq,
            count: header.count,
            refusal,
        }));
        let header = link.accept_publish();
        assert_eq!(header.producer_seq, 1);
        link.acknowledge(&header, 10);
        link.wait_until_closed();
    });
    let mut publisher = client.publisher("orders.eu").unwrap();
    let refused = publisher.publish_expecting(4, "x");
    assert_eq!(refused, Err(PublishError::SeqMoved { expected: 4, last_seq: 9 }));
    assert_eq!(publisher.publish("y").unwrap().position.seq, 10);
    drop((publisher, client));
    node.join().unwrap();
}

/// The node refuses the first batch because its disk is full, and all later batches with `PRODUCER_GAP`, because they
/// follow a refused batch. A publisher that waits until its unanswered bytes are below the limit must wait for all
/// these responses, and report only the first refusal.
#[test]
fn refusal_is_reported_after_the_responses_to_all_later_batches() {
    let refuse = |link: &mut Link, header: &PublishHeader, refusal: Refusal<'_>| {
        let PublishHeader { publisher, partition, producer_seq, count, .. } = *header;
        link.send(FromNode::PublishRefused(PublishRefused {
            publisher,
            partition,
            producer_seq,
            count,
            refusal,
        }));
    };
    let limits = ClientLimits { in_flight_bytes_max: 1_200, batch_bytes: 100, ..ClientLimits::default() };
    let options = ClientOptions { limits, ..ClientOptions::default() };
    let (client, node) = ScriptedNode::serve_with(options, move |_, mut link| {
        link.accept_publisher();
        let [first, second, third] = [(); 3].map(|()| link.accept_publish());
        refuse(&mut link, &first, Refusal { code: ErrorCode::DiskFull, numbers: [0; 3], text: "full" });
        // The client must send nothing before all later batches have a response.
        let early = link.next_within(Duration::from_millis(300), |message| format!("{message:?}"));
        assert_eq!(early, None);
        for header in [second, third] {
            let numbers = [header.producer_seq, 0, 0];
            refuse(&mut link, &header, Refusal { code: ErrorCode::ProducerGap, numbers, text: "" });
        }
        for seq in 1..=3 {
            let header = link.accept_publish();
            assert_eq!(header.producer_seq, seq);
            link.acknowledge(&header, seq);
        }
        link.wait_until_closed();
    });
    let mut publisher = client.publisher("orders.eu").unwrap();
    (0..3).for_each(|_| publisher.send(&[7; 500]).unwrap());
    assert!(matches!(publisher.send(&[7; 500]), Err(PublishError::DiskFull(_))));
    publisher.send_refused_again().unwrap();
    assert_eq!(publisher.flush().unwrap().unwrap().position.seq, 3);
    drop((publisher, client));
    node.join().unwrap();
}

/// Reads one batch, and refuses it with the error code `code`.
fn refuse(link: &mut Link, publisher: u32, code: ErrorCode) -> PublishHeader {
    let header = link.accept_publish();
    assert_eq!(header.publisher, publisher);
    send_refusal(link, &header, code);
    header
}

fn send_refusal(link: &mut Link, header: &PublishHeader, code: ErrorCode) {
    link.send(FromNode::PublishRefused(PublishRefused {
        publisher: header.publisher,
        partition: header.partition,
        producer_seq: header.producer_seq,
        count: header.count,
        refusal: Refusal { code, numbers: [0; 3], text: "" },
    }));
}

#[test]
fn published_record_is_resent_if_an_earlier_record_is_refused() {
    let (client, node) = ScriptedNode::serve(|_, mut link| {
        link.accept_publisher();
        let first = link.accept_publish();
        link.acknowledge(&first, 7);
        let [bad, good] = [(); 2].map(|()| link.accept_publish());
        assert_eq!((bad.producer_seq, good.producer_seq), (2, 3));
        send_refusal(&mut link, &bad, ErrorCode::Reducer);
        send_refusal(&mut link, &good, ErrorCode::ProducerGap);
        let again = link.accept_publish();
        assert_eq!((again.producer_seq, again.count), (2, 1));
        link.acknowledge(&again, 8);
        link.wait_until_closed();
    });
    let mut publisher = client.publisher("orders.eu").unwrap();
    publisher.send("first").unwrap();
    assert_eq!(publisher.flush().unwrap().unwrap().position.seq, 7);
    publisher.send("bad").unwrap();
    assert_eq!(publisher.publish("good").unwrap().position.seq, 8, "not the receipt of the first record");
    let refused = publisher.flush();
    assert!(matches!(refused, Err(PublishError::LeftOut { record: 2, more: 0, .. })), "{refused:?}");
    drop((publisher, client));
    node.join().unwrap();
}

#[test]
fn record_of_unknown_outcome_keeps_its_number_in_retries() {
    let (client, node) = ScriptedNode::serve(|_, mut link| {
        let (publisher, ..) = link.accept_publisher();
        let unknown = refuse(&mut link, publisher, ErrorCode::OutcomeUnknown);
        assert_eq!(unknown.producer_seq, 1);
        // The owner may have appended the batch at the first attempt. The second attempt does not reach the owner, so
        // the outcome is still unknown.
        for expected in [1, 2] {
            let header = refuse(&mut link, publisher, ErrorCode::OwnerAway);
            assert_eq!(header.producer_seq, expected);
        }
        let headers: Vec<PublishHeader> = (0..2).map(|_| link.accept_publish()).collect();
        assert_eq!(headers.iter().map(|header| header.producer_seq).collect::<Vec<_>>(), [1, 2]);
        link.acknowledge(&headers[1], 8);
        link.wait_until_closed();
    });
    let mut publisher = client.publisher("orders.eu").unwrap();
    assert!(matches!(publisher.publish("a"), Err(PublishError::Unknown(_))));
    assert!(matches!(publisher.publish("b"), Err(PublishError::OwnerAway(_))));
    assert_eq!(publisher.publish("c").unwrap().position.seq, 8);
    drop((publisher, client));
    node.join().unwrap();
}

#[test]
fn flush_resends_a_record_of_unknown_outcome() {
    let (client, node) = ScriptedNode::serve(|_, mut link| {
        let (publisher, ..) = link.accept_publisher();
        let header = link.accept_publish();
        link.acknowledge(&header, 7);
        refuse(&mut link, publisher, ErrorCode::OutcomeUnknown);
        let again = link.accept_publish();
        assert_eq!(again.producer_seq, 2);
        link.acknowledge(&again, 8);
        link.wait_until_closed();
    });
    let mut publisher = client.publisher("orders.eu").unwrap();
    assert_eq!(publisher.publish("a").unwrap().position.seq, 7);
    assert!(matches!(publisher.publish("b"), Err(PublishError::Unknown(_))));
    assert_eq!(publisher.flush().unwrap().unwrap().position.seq, 8, "not the receipt of the record before");
    assert_eq!(publisher.flush(), Ok(None));
    drop((publisher, client));
    node.join().unwrap();
}

#[test]
fn publisher_can_be_opened_later_if_its_topic_was_missing() {
    let (client, node) = ScriptedNode::serve(|_, mut link| {
        for _ in 0..2 {
            let publisher = link.next(|message| match message {
                FromClient::OpenPublisher(open) => open.publisher,
                other => panic!("{other:?}"),
            });
            let refusal = Refusal::new(ErrorCode::NoTopic, "orders.eu");
            link.send(FromNode::PublisherRefused(PublisherRefused { publisher, refusal }));
            link.next(|message| assert!(matches!(message, FromClient::ClosePublisher { .. })));
        }
        link.accept_publisher();
        link.wait_until_closed();
    });
    for _ in 0..2 {
        assert_eq!(client.publisher("orders.eu").err(), Some(PublishError::NoTopic("orders.eu".to_owned())));
    }
    assert!(client.publisher("orders.eu").is_ok());
    drop(client);
    node.join().unwrap();
}

#[test]
fn record_over_the_size_limit_of_its_topic_is_never_sent() {
    let (client, node) = ScriptedNode::serve(|_, mut link| {
        link.accept_publisher();
        link.wait_until_closed();
    });
    let mut publisher = client.publisher("orders.eu").unwrap();
    let big = vec![0; 2 << 20];
    assert!(matches!(publisher.publish(&big[..]), Err(PublishError::RecordTooLarge { .. })));
    assert!(matches!(publisher.send(&big[..]), Err(PublishError::RecordTooLarge { .. })));
    assert!(matches!(publisher.publish_batch(&[]), Err(PublishError::Batch(_))));
    drop((publisher, client));
    node.join().unwrap();
}

#[test]
fn batch_is_sent_as_one_message() {
    let (client, node) = ScriptedNode::serve(|_, mut link| {
        link.accept_publisher();
        let header = link.accept_publish();
        assert_eq!((header.producer_seq, header.count), (1, 3));
        link.acknowledge(&header, 3);
        link.wait_until_closed();
    });
    let mut publisher = client.publisher("orders.eu").unwrap();
    let drafts: Vec<Draft<'_>> = ["a", "b", "c"].into_iter().map(Draft::from).collect();
    assert_eq!(publisher.publish_batch(&drafts).unwrap().position.seq, 3);
    drop((publisher, client));
    node.join().unwrap();
}

#[test]
fn send_waits_while_too_many_bytes_are_unacknowledged() {
    let limits =
        ClientLimits { in_flight_bytes_max: 64 << 10, batch_bytes: 8 << 10, ..ClientLimits::default() };
    let (client, node) =
        ScriptedNode::serve_with(ClientOptions { limits, ..ClientOptions::default() }, |_, mut link| {
            link.accept_publisher();
            let mut received = 0;
            while received < 2000 {
                let header = link.accept_publish();
                received += u64::from(header.count);
                link.acknowledge(&header, received);
            }
            link.wait_until_closed();
        });
    let mut publisher = client.publisher("orders.eu").unwrap();
    for _ in 0..2000 {
        publisher.send(&[7; 500]).unwrap();
        assert!(publisher.unanswered_bytes() <= (64 << 10) + (9 << 10));
    }
    assert_eq!(publisher.flush().unwrap().unwrap().position.seq, 2000);
    drop((publisher, client));
    node.join().unwrap();
}
