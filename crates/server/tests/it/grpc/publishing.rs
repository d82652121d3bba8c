use dunlin::topic::{Event as TopicEvent, Start, Subscribe, SubscribeOptions};
use tonic::Code;
use v1::publish_outcome::Outcome;

use super::*;

fn from_first() -> SubscribeOptions {
    SubscribeOptions { start: Start::Earliest, ..Default::default() }
}

#[test]
fn grpc_record_arrives_with_all_its_fields() {
    run(async {
        let (node, server) = serve_grpc();
        let mut client = connect(&server).await;
        let create = v1::CreateTopicRequest {
            name: "orders".to_owned(),
            config: Some(v1::TopicConfig { pattern: "orders.>".to_owned(), ..Default::default() }),
            or_same: false,
        };
        client.create_topic(create).await.unwrap();
        let mut request = publish("orders.eu.1", "hello");
        let draft = v1::Draft {
            key: Some(b"k".to_vec().into()),
            reply: "answers.here".to_owned(),
            headers: vec![v1::Header { name: "h".to_owned(), value: b"v".to_vec().into() }],
            event_time_ns: Some(77),
            expires_ns: Some(u64::MAX),
            ..request.record.clone().unwrap()
        };
        request.record = Some(draft);
        let receipt = client.publish(request).await.unwrap().into_inner().receipt.unwrap();
        assert_eq!((receipt.topic.as_str(), receipt.seq, receipt.duplicate), ("orders", 1, false));
        assert_eq!(receipt.level(), v1::Level::Memory);

        let mut subscriber = node.subscribe("orders.>", &from_first()).unwrap();
        match subscriber.next().unwrap() {
            TopicEvent::Record(record) => {
                let frame = record.frame;
                assert_eq!((record.subject().as_str(), record.payload()), ("orders.eu.1", &b"hello"[..]));
                assert_eq!((frame.key(), frame.reply()), (Some(&b"k"[..]), Some("answers.here")));
                assert_eq!((frame.event_time_ns(), frame.expires_ns()), (Some(77), Some(u64::MAX)));
                assert_eq!(frame.headers().collect::<Vec<_>>(), [("h", &b"v"[..])]);
            }
            other => panic!("{other:?}"),
        }
        let (mut stream, _) =
            start_subscription(&mut client, subscribe(&["orders.eu.*"], At::Earliest(true))).await.unwrap();
        let record = records(&mut stream, 1).await.remove(0);
        assert_eq!((record.subject.as_str(), &record.payload[..]), ("orders.eu.1", &b"hello"[..]));
        assert_eq!((record.reply.as_str(), record.key.as_deref()), ("answers.here", Some(&b"k"[..])));
        assert_eq!((record.event_time_ns, record.expires_ns), (Some(77), Some(u64::MAX)));
        assert_eq!(record.headers.len(), 1);
    });
}

#[test]
fn grpc_publish_with_an_invalid_reply_subject_is_refused() {
    run(async {
        let (node, server) = serve_grpc();
        let mut client = connect(&server).await;
        for reply in ["r 0\r\n\r\nMSG admin.cmd 2 4\r\nevil\r\nMSG chat 1 z", "a b", "a\u{7f}", "a.*", "a..b"]
        {
            let mut request = publish("chat", "x");
            request.record.as_mut().unwrap().reply = reply.to_owned();
            let refused = client.publish(request).await.unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument, "{reply:?}: {refused}");
        }
        assert!(node.topic("chat").is_none_or(|topic| topic.logs()[0].last().seq == 0));
    });
}

#[test]
fn each_record_of_a_grpc_batch_has_its_own_outcome() {
    run(async {
        let (_node, server) = serve_grpc();
        let mut client = connect(&server).await;
        let requests = vec![publish("a", "1"), publish("a..b", "2"), publish("b", "3"), publish("a", "4")];
        let batch = client.publish_batch(v1::PublishBatchRequest { requests }).await.unwrap().into_inner();
        let outcomes: Vec<_> = batch
            .outcomes
            .into_iter()
            .map(|outcome| match outcome.outcome.unwrap() {
                Outcome::Receipt(receipt) => format!("{} {}", receipt.topic, receipt.seq),
                Outcome::Refusal(refusal) => refusal.name,
            })
            .collect();
        assert_eq!(outcomes, ["a 1", "SUBJECT", "b 1", "a 2"]);
    });
}

#[test]
fn grpc_publish_detects_retries_and_sequence_conflicts() {
    run(async {
        let (_node, server) = serve_grpc();
        let mut client = connect(&server).await;
        let producer = Some(v1::Producer { id: 9, epoch: 1, seq: 1 });
        let request = || v1::PublishRequest { producer, ..publish("t", "once") };
        let first = client.publish(request()).await.unwrap().into_inner().receipt.unwrap();
        let again = client.publish(request()).await.unwrap().into_inner().receipt.unwrap();
        assert_eq!((first.seq, first.duplicate, again.seq, again.duplicate), (1, false, 1, true));
        let expecting = |seq| v1::PublishRequest { expect_last_seq: Some(seq), ..publish("t", "two") };
        client.publish(expecting(1)).await.unwrap();
        assert_eq!(client.publish(expecting(1)).await.unwrap_err().code(), Code::Aborted);
    });
}

#[test]
fn grpc_producer_record_without_id_or_number_is_refused() {
    run(async {
        let (node, server) = serve_grpc();
        node.create_topic("t", dunlin::topic::TopicConfig::default(), false).unwrap();
        let mut client = connect(&server).await;
        let producers =
            [v1::Producer { id: 9, epoch: 1, seq: 0 }, v1::Producer { id: 0, epoch: 1, seq: 1 }].map(Some);
        for producer in producers {
            let request = v1::PublishRequest { producer, ..publish("t", "one") };
            assert_eq!(client.publish(request).await.unwrap_err().code(), Code::InvalidArgument);
            let message = v1::PublishStreamRequest {
                subject: "t".to_owned(),
                producer,
                records: vec![v1::Draft::default(), v1::Draft::default()],
                ..v1::PublishStreamRequest::default()
            };
            let mut acks = client.publish_stream(tokio_stream::iter([message])).await.unwrap().into_inner();
            let response = acks.message().await.unwrap().unwrap();
            let refused = response.refused.into_iter().map(|refused| refused.refusal.unwrap().name);
            assert_eq!(refused.collect::<Vec<_>>(), ["PROTOCOL", "PROTOCOL"]);
        }
        assert_eq!(node.topic("t").unwrap().logs()[0].last().seq, 0);
    });
}

#[test]
fn publish_stream_acks_cumulatively_and_lists_refused_records() {
    run(async {
        let (node, server) = serve_grpc();
        node.create_topic(
            "small",
            dunlin::topic::TopicConfig { record_bytes_max: 128, ..Default::default() },
            false,
        )
        .unwrap();
        let mut client = connect(&server).await;
        let message = |number: u32| v1::PublishStreamRequest {
            subject: if number == 0 { "small".to_owned() } else { String::new() },
            records: [10, if number == 3 { 500 } else { 10 }]
                .map(|bytes| v1::Draft { payload: vec![number as u8; bytes].into(), ..Default::default() })
                .to_vec(),
            ..v1::PublishStreamRequest::default()
        };
        let messages = tokio_stream::iter((0..100).map(message));
        let mut acks = client.publish_stream(messages).await.unwrap().into_inner();
        let (mut through, mut refused, mut last) = (0, Vec::new(), None);
        while let Some(response) = acks.message().await.unwrap() {
            assert!(response.through > through, "it only grows");
            through = response.through;
            refused.extend(response.refused);
            last = response.last.or(last);
        }
        assert_eq!((through, last.unwrap().seq), (200, 199));
        assert_eq!((refused.len(), refused[0].index), (1, 7));
        assert_eq!(refused[0].refusal.as_ref().unwrap().name, "RECORD_TOO_LARGE");
        assert_eq!(node.topic("small").unwrap().logs()[0].last().seq, 199);
    });
}

#[test]
fn publish_stream_reports_each_refused_record_with_a_reason() {
    run(async {
        let (_node, server) = serve_grpc();
        let mut client = connect(&server).await;
        let message = |subject: &str| v1::PublishStreamRequest {
            subject: subject.to_owned(),
            records: vec![v1::Draft::default(), v1::Draft::default()],
            ..v1::PublishStreamRequest::default()
        };
        let messages = tokio_stream::iter([message(""), message("a..b"), message(""), message("sound")]);
        let mut acks = client.publish_stream(messages).await.unwrap().into_inner();
        let mut refused = Vec::new();
        while let Some(response) = acks.message().await.unwrap() {
            refused.extend(response.refused);
        }
        let texts: Vec<_> = refused
            .iter()
            .map(|refused| (refused.index, refused.refusal.as_ref().unwrap().text.as_str()))
            .collect();
        for (index, text) in &texts {
            let reason = if *index < 2 {
                "the stream has no subject yet; set subject in the first message"
            } else {
                "empty token"
            };
            assert!(text.contains(reason), "{index}: {text}");
        }
        assert_eq!(texts.len(), 6, "{texts:?}");
    });
}

#[test]
fn full_reliable_topic_delays_only_its_grpc_publisher() {
    run(async {
        let (node, server) = serve_grpc();
        let reliable = dunlin::topic::ReliableOptions {
            wait_max: std::time::Duration::from_secs(3_600),
            ..Default::default()
        };
        let config = dunlin::topic::TopicConfig {
            retention: dunlin::topic::Retention { bytes: 64 << 10, ..Default::default() },
            reliable: Some(reliable),
            ..Default::default()
        };
        node.create_topic("r", config, false).unwrap();
        let registered = SubscribeOptions { registered: true, ..from_first() };
        let mut reader = node.subscribe("r", &registered).unwrap();
        let mut client = connect(&server).await;
        let mut other = client.clone();
        let mut publishing = tokio::spawn(async move {
            for number in 0..400u32 {
                client
                    .publish(publish("r", [&number.to_le_bytes()[..], &[0; 1_000]].concat()))
                    .await
                    .unwrap();
            }
        });
        // The 400 KB of the stream exceed the flow-control window of 64 KB. The stream must therefore not end before
        // the subscriber reads.
        for _ in 0..50 {
            other.publish(publish("elsewhere", "x")).await.unwrap();
        }
        assert!(!publishing.is_finished());
        for number in 0..400u32 {
            let payload = loop {
                match reader.try_next().unwrap() {
                    Some(TopicEvent::Record(record)) => break record.payload()[..4].to_vec(),
                    Some(other) => panic!("{other:?}"),
                    None => tokio::time::sleep(POLL).await,
                }
            };
            assert_eq!(payload, number.to_le_bytes());
        }
        (&mut publishing).await.unwrap();
    });
}

#[test]
fn grpc_publisher_learns_that_its_topic_was_recreated() {
    run(async {
        let (node, server) = serve_grpc();
        let mut client = connect(&server).await;
        let after = |receipt: &v1::Receipt| Some(v1::LastPosition { epoch: receipt.epoch, seq: receipt.seq });
        let next_request = |last_position| v1::PublishRequest { last_position, ..publish("t", "next") };
        let first = client.publish(publish("t", "first")).await.unwrap().into_inner().receipt.unwrap();
        node.delete_topic("t").unwrap();
        assert_eq!(client.publish(next_request(after(&first))).await.unwrap_err().code(), Code::NotFound);
        node.create_topic("t", dunlin::topic::TopicConfig::default(), false).unwrap();
        let recreated =
            client.publish(next_request(after(&first))).await.unwrap().into_inner().receipt.unwrap();
        assert_eq!((first.new_epoch, recreated.new_epoch, recreated.seq), (false, true, 1));
        let records = vec![v1::Draft::default()];
        let message = |last: &v1::Receipt| v1::PublishStreamRequest {
            subject: "t".to_owned(),
            records: records.clone(),
            last_position: after(last),
            ..v1::PublishStreamRequest::default()
        };
        for (last, is_new) in [(&first, true), (&recreated, false)] {
            let messages = tokio_stream::iter([message(last)]);
            let mut acks = client.publish_stream(messages).await.unwrap().into_inner();
            let receipt = acks.message().await.unwrap().unwrap().last.unwrap();
            assert_eq!(receipt.new_epoch, is_new, "{receipt:?}");
        }
    });
}
