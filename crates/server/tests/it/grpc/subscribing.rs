use dunlin::topic::{Publish, ReducerConfig, Retention, TopicConfig};
use tonic::Code;

use super::*;

fn create_small_topic(node: &Node, name: &str) {
    let retention = Retention { bytes: 64 << 10, ..Default::default() };
    node.create_topic(name, TopicConfig { retention, ..Default::default() }, false).unwrap();
}

#[test]
fn grpc_subscriber_gets_records_in_sequence_order() {
    run(async {
        let (node, server) = serve_grpc();
        let mut client = connect(&server).await;
        let (mut stream, at) =
            start_subscription(&mut client, subscribe(&["t"], At::Latest(true))).await.unwrap();
        assert_eq!((at[0].topic.as_str(), at[0].seq), ("t", 0));
        let mut publisher = node.publisher("t").unwrap();
        for number in 0..10_000u64 {
            publisher.publish(&number.to_le_bytes()).unwrap();
        }
        for (number, record) in records(&mut stream, 10_000).await.iter().enumerate() {
            assert_eq!((record.seq, record.skipped), (number as u64 + 1, 0));
            assert_eq!(record.payload[..], (number as u64).to_le_bytes());
            assert!(record.append_time_ns > 0);
        }
    });
}

#[test]
fn grpc_subscriber_of_many_topics_gets_all_their_records() {
    run(async {
        let (node, server) = serve_grpc();
        // There are more topics than the node reads in one round, and each topic has more records than the node reads
        // in one round.
        let topics: Vec<String> = (0..100).map(|topic| format!("many.{topic}")).collect();
        for topic in &topics {
            let mut publisher = node.publisher(topic).unwrap();
            for _ in 0..1_500 {
                publisher.publish("x").unwrap();
            }
        }
        let mut client = connect(&server).await;
        let request = subscribe(&["many.*"], At::Earliest(true));
        let (mut stream, _) = start_subscription(&mut client, request).await.unwrap();
        assert_eq!(records(&mut stream, 150_000).await.len(), 150_000);
    });
}

/// Reads `count` records, and returns their payloads, sorted.
async fn payloads(stream: &mut Streaming<v1::SubscribeResponse>, count: usize) -> Vec<String> {
    let records = records(stream, count).await.into_iter();
    let mut payloads: Vec<_> =
        records.map(|record| String::from_utf8_lossy(&record.payload).into_owned()).collect();
    payloads.sort();
    payloads
}

#[test]
fn grpc_subscription_with_overlapping_subjects_has_no_duplicate() {
    run(async {
        let (node, server) = serve_grpc();
        node.create_topic("old.a", TopicConfig::default(), false).unwrap();
        let mut client = connect(&server).await;
        // The subscription to `new.b` creates this topic, which then is also a new topic for `new.*` and `*.b`.
        let subjects = ["old.*", "old.a", "old.>", "new.*", "*.b", "new.b"];
        let (mut stream, at) =
            start_subscription(&mut client, subscribe(&subjects, At::Latest(true))).await.unwrap();
        let mut logs: Vec<_> = at.iter().map(|log| log.topic.as_str()).collect();
        logs.sort_unstable();
        assert_eq!(logs, ["new.b", "old.a"]);
        // `old.b` is created only now, and several of the subjects match it.
        for round in ["1", "2"] {
            for topic in ["old.a", "new.b", "old.b"] {
                client.publish(publish(topic, format!("{topic} {round}"))).await.unwrap();
            }
            let expected = ["new.b", "old.a", "old.b"].map(|topic| format!("{topic} {round}"));
            assert_eq!(payloads(&mut stream, 3).await, expected);
        }
    });
}

#[test]
fn grpc_subscription_to_several_subjects_resumes_where_it_ended() {
    run(async {
        let (node, server) = serve_grpc();
        let config = TopicConfig { pattern: Some("wide.>".to_owned()), ..TopicConfig::default() };
        let topic = node.create_topic("wide", config, false).unwrap();
        let mut client = connect(&server).await;
        for subject in ["wide.x", "wide.y", "wide.z", "wide.x", "wide.y"] {
            client.publish(publish(subject, subject)).await.unwrap();
        }
        let request = subscribe(&["wide.x", "wide.y"], At::Earliest(true));
        let (mut stream, at) = start_subscription(&mut client, request).await.unwrap();
        assert_eq!(at.len(), 1);
        let seqs = |records: Vec<v1::Record>| records.iter().map(|record| record.seq).collect::<Vec<_>>();
        assert_eq!(seqs(records(&mut stream, 4).await), [1, 2, 4, 5]);
        let epoch = topic.logs()[0].last().epoch;
        let position = v1::LogPosition { topic: "wide".to_owned(), epoch, seq: 2, ..Default::default() };
        let after = At::After(v1::Positions { logs: vec![position] });
        let (mut resumed, _) =
            start_subscription(&mut client, subscribe(&["wide.x", "wide.y"], after)).await.unwrap();
        assert_eq!(seqs(records(&mut resumed, 2).await), [4, 5]);
    });
}

#[test]
fn stalled_grpc_subscriber_gets_exact_gaps() {
    run(async {
        let (node, server) = serve_grpc();
        create_small_topic(&node, "t");
        let mut client = connect(&server).await;
        let (mut stalled, _) =
            start_subscription(&mut client, subscribe(&["t"], At::Earliest(true))).await.unwrap();
        // Publishes more records than fit in the client's and the node's buffers.
        let mut publisher = node.publisher("t").unwrap();
        const PUBLISHED: u64 = 40_000;
        for number in 1..=PUBLISHED {
            publisher.publish([&number.to_le_bytes()[..], &[7; 1_000]].concat().as_slice()).unwrap();
            if number % 100 == 0 {
                tokio::task::yield_now().await;
            }
        }
        let (mut seq, mut gaps, mut received) = (0, 0, 0);
        while seq < PUBLISHED {
            match next(&mut stalled).await.unwrap() {
                Event::Records(records) => {
                    for record in records.records {
                        assert_eq!(record.seq, seq + 1);
                        assert_eq!(record.payload[..8], record.seq.to_le_bytes());
                        (seq, received) = (record.seq, received + 1);
                    }
                }
                Event::Gap(gap) => {
                    assert_eq!(gap.first, seq + 1);
                    (seq, gaps) = (gap.last, gaps + gap.last + 1 - gap.first);
                }
                Event::Lagging(lagging) => assert!(lagging.behind * 2 > lagging.retained),
                other => panic!("{other:?}"),
            }
        }
        assert!(gaps > 0, "64 KiB of history hold 40 MB");
        assert_eq!(gaps + received, PUBLISHED);
    });
}

#[test]
fn stalled_subscription_does_not_block_others_on_its_connection() {
    run(async {
        let (node, server) = serve_grpc();
        let mut client = connect(&server).await;
        let (stalled, _) =
            start_subscription(&mut client, subscribe(&["t"], At::Latest(true))).await.unwrap();
        let mut publisher = node.publisher("t").unwrap();
        for _ in 0..200 {
            publisher.publish(vec![1; 100_000].as_slice()).unwrap();
            tokio::task::yield_now().await;
        }
        // Another stream on the same connection must still receive its records.
        let (mut other, _) =
            start_subscription(&mut client, subscribe(&["quick"], At::Latest(true))).await.unwrap();
        node.publisher("quick").unwrap().publish("here").unwrap();
        assert_eq!(records(&mut other, 1).await[0].payload[..], b"here"[..]);
        drop(stalled);
    });
}

#[test]
fn gap_ends_a_grpc_subscription_that_asked_to_fail_on_gaps() {
    run(async {
        let (node, server) = serve_grpc();
        create_small_topic(&node, "t");
        let mut publisher = node.publisher("t").unwrap();
        publisher.publish("first").unwrap();
        let epoch = node.topic("t").unwrap().logs()[0].last().epoch;
        (0..1_000).for_each(|_| drop(publisher.publish(&[0; 1_000])));
        let mut client = connect(&server).await;
        let at = v1::LogPosition { epoch, seq: 1, ..Default::default() };
        let request = v1::SubscribeRequest {
            on_gap: v1::OnGap::Fail.into(),
            ..subscribe(&["t"], At::After(v1::Positions { logs: vec![at] }))
        };
        let (mut stream, _) = start_subscription(&mut client, request).await.unwrap();
        let ended = loop {
            match next(&mut stream).await {
                Ok(Event::Gap(gap)) => assert_eq!(gap.first, 2),
                Ok(Event::Lagging(_)) => {}
                Ok(other) => panic!("{other:?}"),
                Err(status) => break status,
            }
        };
        assert_eq!(ended.code(), Code::DataLoss);
    });
}

#[test]
fn wildcard_subscriber_reads_later_topics_from_their_start() {
    run(async {
        let (node, server) = serve_grpc();
        let mut client = connect(&server).await;
        let (mut stream, at) =
            start_subscription(&mut client, subscribe(&["eu.*"], At::Latest(true))).await.unwrap();
        assert!(at.is_empty());
        for number in 0..20 {
            node.publisher(&format!("eu.{number}")).unwrap().publish("hello").unwrap();
        }
        let mut subjects = Vec::new();
        while subjects.len() < 20 {
            match next(&mut stream).await.unwrap() {
                Event::Records(records) => {
                    subjects.extend(records.records.iter().map(|record| {
                        if record.subject.is_empty() {
                            records.subject.clone()
                        } else {
                            record.subject.clone()
                        }
                    }));
                }
                other => panic!("{other:?}"),
            }
        }
        subjects.sort();
        subjects.dedup();
        assert_eq!(subjects.len(), 20);
    });
}

#[test]
fn subscriber_resumes_at_its_position_in_every_log() {
    run(async {
        let (node, server) = serve_grpc();
        for topic in ["m.a", "m.b"] {
            let mut publisher = node.publisher(topic).unwrap();
            (0..10u8).for_each(|number| drop(publisher.publish(&[number])));
        }
        let mut client = connect(&server).await;
        let (_, mut logs) =
            start_subscription(&mut client, subscribe(&["m.*"], At::Earliest(true))).await.unwrap();
        assert_eq!(logs.len(), 2);
        logs.sort_by(|a, b| a.topic.cmp(&b.topic));
        (logs[0].seq, logs[1].seq) = (7, 10);
        node.publisher("m.c").unwrap().publish("new").unwrap();
        let resume = subscribe(&["m.*"], At::After(v1::Positions { logs }));
        let (mut stream, _) = start_subscription(&mut client, resume).await.unwrap();
        let mut payloads: Vec<_> =
            records(&mut stream, 4).await.into_iter().map(|record| record.payload.to_vec()).collect();
        payloads.sort();
        assert_eq!(payloads, [b"\x07".to_vec(), b"\x08".to_vec(), b"\x09".to_vec(), b"new".to_vec()]);
    });
}

#[test]
fn subscriber_resumes_when_the_missing_topic_is_created() {
    run(async {
        let (node, server) = serve_grpc();
        let mut client = connect(&server).await;
        let lost = v1::LogPosition { epoch: 7, seq: 3, ..Default::default() };
        let resume = || At::After(v1::Positions { logs: vec![lost.clone()] });
        let (mut plain, at) = start_subscription(&mut client, subscribe(&["t"], resume())).await.unwrap();
        assert!(at.is_empty() && node.topic("t").is_none());
        let follows = |request| v1::SubscribeRequest { on_gap: v1::OnGap::Snapshot.into(), ..request };
        let (mut state, _) =
            start_subscription(&mut client, follows(subscribe(&["t"], resume()))).await.unwrap();
        let merges = v1::SubscribeRequest { conflate: true, ..subscribe(&["t"], resume()) };
        let (mut merged, _) = start_subscription(&mut client, merges).await.unwrap();
        node.publisher("t").unwrap().publish("new").unwrap();
        match next(&mut plain).await.unwrap() {
            Event::EpochChanged(changed) => assert_eq!((changed.old, changed.last_seen), (7, 3)),
            other => panic!("{other:?}"),
        }
        assert_eq!(records(&mut plain, 1).await[0].payload[..], b"new"[..]);
        // The new topic keeps no state. These two subscribers followed a state, so their streams must end.
        for stream in [&mut state, &mut merged] {
            let ended = next(stream).await.unwrap_err();
            assert!(ended.message().contains("keeps no state"), "{ended}");
        }
        let refused = client.subscribe(follows(subscribe(&["t"], resume()))).await.unwrap_err();
        assert!(refused.message().contains("keeps no state"), "{refused}");
        // A single position does not state its log. With several topics, it is therefore not sufficient to resume.
        let refused = client.subscribe(subscribe(&["t", "u"], resume())).await.unwrap_err();
        assert!(refused.message().contains("MANY_LOGS"), "{refused}");
    });
}

#[test]
fn grpc_subscriber_position_advances_past_unmatched_records() {
    run(async {
        let (node, server) = serve_grpc();
        let config = TopicConfig { pattern: Some("all.>".to_owned()), ..Default::default() };
        node.create_topic("all", config, false).unwrap();
        let mut client = connect(&server).await;
        let (mut stream, _) =
            start_subscription(&mut client, subscribe(&["all.wanted"], At::Latest(true))).await.unwrap();
        let mut unwanted = node.publisher("all.unwanted").unwrap();
        (0..5).for_each(|_| drop(unwanted.publish("x")));
        match next(&mut stream).await.unwrap() {
            Event::Advance(advance) => assert!((1..=5).contains(&advance.through.unwrap().seq)),
            other => panic!("{other:?}"),
        }
        node.publisher("all.wanted").unwrap().publish("y").unwrap();
        loop {
            match next(&mut stream).await.unwrap() {
                Event::Advance(_) => {}
                Event::Records(records) => {
                    assert_eq!(records.records[0].seq, 6);
                    assert_eq!(records.records[0].subject, "all.wanted");
                    break;
                }
                other => panic!("{other:?}"),
            }
        }
    });
}

#[test]
fn state_is_sent_in_parts_before_its_changes() {
    run(async {
        let (node, server) = serve_grpc();
        let reducer = ReducerConfig { kind: "last".to_owned(), ..Default::default() };
        node.create_topic("s", TopicConfig { reducer: Some(reducer), ..Default::default() }, false).unwrap();
        let mut publisher = node.publisher("s").unwrap();
        for number in 0..1_000u32 {
            let key = number.to_le_bytes();
            let meta = dunlin::topic::RecordMeta { key: Some(&key), ..Default::default() };
            let payload = dunlin::topic::Payload::Copied(&[5; 200]);
            publisher.publish(dunlin::topic::Draft { meta, payload }).unwrap();
        }
        let mut client = connect(&server).await;
        let (mut stream, _) =
            start_subscription(&mut client, subscribe(&["s"], At::Snapshot(true))).await.unwrap();
        let mut state = Vec::new();
        let position = loop {
            match next(&mut stream).await.unwrap() {
                Event::Snapshot(part) => {
                    assert_eq!(part.offset as usize, state.len());
                    state.extend_from_slice(&part.part);
                    if state.len() as u64 == part.bytes_total {
                        break part.position.unwrap();
                    }
                }
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(position.seq, 1_000);
        assert!(state.len() > 200_000, "it came in several parts");
        let mut mine = dunlin::feed::make_reducer("last", &Default::default()).unwrap();
        mine.restore(1_000, &state).unwrap();
        let mut publish = || {
            let meta = dunlin::topic::RecordMeta { key: Some(b"new"), ..Default::default() };
            let payload = dunlin::topic::Payload::Copied(b"value");
            publisher.publish(dunlin::topic::Draft { meta, payload }).unwrap();
        };
        publish();
        let mut checked = false;
        while !checked {
            match next(&mut stream).await.unwrap() {
                Event::Records(records) => {
                    let record = &records.records[0];
                    let meta = dunlin::topic::RecordMeta { key: record.key.as_deref(), ..Default::default() };
                    let encoded = meta.measure(record.payload.len()).unwrap();
                    let mut frame = vec![0; encoded.padded()];
                    meta.encode(encoded, record.append_time_ns, &record.payload, &mut frame);
                    let (frame, _) = dunlin::topic::Frame::split(&frame).unwrap();
                    mine.apply(record.seq, &frame).unwrap();
                    // The owner sends a checksum only together with a record, and at most twice a second.
                    tokio::time::sleep(POLL).await;
                    publish();
                }
                Event::Checksum(sum) => {
                    if sum.position.unwrap().seq > 1_000 {
                        assert_eq!(sum.checksum, mine.checksum());
                        checked = true;
                    }
                }
                Event::Publishers(_) => {}
                other => panic!("{other:?}"),
            }
        }
    });
}

#[test]
fn deleted_topic_ends_grpc_streams_after_its_last_record() {
    run(async {
        let (node, server) = serve_grpc();
        let mut client = connect(&server).await;
        let (mut stream, _) =
            start_subscription(&mut client, subscribe(&["t"], At::Latest(true))).await.unwrap();
        node.publisher("t").unwrap().publish("last").unwrap();
        node.delete_topic("t").unwrap();
        assert_eq!(records(&mut stream, 1).await[0].payload[..], b"last"[..]);
        match next(&mut stream).await.unwrap() {
            Event::Deleted(deleted) => assert_eq!(deleted.last.unwrap().seq, 1),
            other => panic!("{other:?}"),
        }
        assert_eq!(next(&mut stream).await.unwrap_err().code(), Code::Aborted);
    });
}

#[test]
fn subscriber_is_listed_by_name_until_its_stream_ends() {
    run(async {
        let (node, server) = serve_grpc();
        let mut client = connect(&server).await;
        let request = v1::SubscribeRequest { name: "me".to_owned(), ..subscribe(&["t"], At::Latest(true)) };
        let (stream, _) = start_subscription(&mut client, request).await.unwrap();
        let topic = node.topic("t").unwrap();
        assert_eq!(topic.subscribers()[0].name, "me");
        drop(stream);
        until(async || topic.subscribers().is_empty()).await;
    });
}

#[test]
fn large_record_arrives_whole_over_grpc() {
    run(async {
        let (node, server) = serve_grpc();
        let mut client = connect(&server).await;
        let (mut stream, _) =
            start_subscription(&mut client, subscribe(&["t"], At::Latest(true))).await.unwrap();
        let payload: Vec<u8> = (0..3_000_000u32).map(|number| number as u8).collect();
        client.publish(publish("t", payload.clone())).await.unwrap();
        let shared = bytes::Bytes::from(payload.clone());
        node.publisher("t").unwrap().publish(shared).unwrap();
        for record in records(&mut stream, 2).await {
            assert!(record.payload[..] == payload[..]);
        }
    });
}

#[test]
fn invalid_subscriptions_are_refused_with_fitting_codes() {
    run(async {
        let (node, server) = serve_grpc();
        let mut client = connect(&server).await;
        node.create_topic("plain", TopicConfig::default(), false).unwrap();
        for (subjects, at, code) in [
            (&[][..], At::Latest(true), Code::InvalidArgument),
            (&["a..b"], At::Latest(true), Code::InvalidArgument),
            (&["_INBOX.1.>"], At::Latest(true), Code::PermissionDenied),
            (&["plain"], At::Snapshot(true), Code::FailedPrecondition),
            (&["none"], At::Snapshot(true), Code::NotFound),
        ] {
            let refused = client.subscribe(subscribe(subjects, at)).await.unwrap_err();
            assert_eq!(refused.code(), code, "{subjects:?}: {refused}");
        }
        let at = v1::LogPosition { epoch: u32::MAX, seq: 5, ..Default::default() };
        node.create_topic("t", TopicConfig::default(), false).unwrap();
        let ahead = subscribe(&["t"], At::After(v1::Positions { logs: vec![at] }));
        assert_eq!(client.subscribe(ahead).await.unwrap_err().code(), Code::OutOfRange);
    });
}
