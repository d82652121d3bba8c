//! Tests the NATS protocol with a client that checks every byte.

use dunlin::topic::{
    Draft, Event, Payload, Publish, RecordMeta, ReducerConfig, Retention, Subscribe, SubscribeOptions,
    TopicConfig,
};

use crate::nats_peer::{NatsPeer, serve_nats};

fn pair(subject: &str, payload: &str) -> (String, String) {
    (subject.to_owned(), payload.to_owned())
}

#[test]
fn all_nats_subscribers_get_all_records_in_order() {
    let (_node, server) = serve_nats(|_| {});
    let mut readers: Vec<NatsPeer> = (0..3).map(|_| NatsPeer::open(&server)).collect();
    readers.iter_mut().for_each(|reader| reader.subscribe("ticks.eu 7"));
    let mut writer = NatsPeer::open(&server);
    writer.publish("ticks.us", "not asked for");
    (0..2_000).for_each(|n| writer.publish("ticks.eu", &n.to_string()));
    for reader in &mut readers {
        for n in 0..2_000 {
            let got = reader.message();
            assert_eq!((got.sid.as_str(), got.subject.as_str()), ("7", "ticks.eu"));
            assert_eq!(got.payload, n.to_string().into_bytes());
        }
    }
}

#[test]
fn verbose_client_gets_ok_for_every_operation() {
    let (_node, server) = serve_nats(|_| {});
    let mut peer = NatsPeer::new(&server);
    peer.send(b"CONNECT {}\r\nSUB a 1\r\nPUB b 2\r\nhi\r\nPUB b 0\r\n\r\nPING\r\nUNSUB 1\r\nPING\r\n");
    let lines: Vec<String> = (0..7).map(|_| peer.line()).collect();
    assert_eq!(lines, ["+OK", "+OK", "+OK", "+OK", "PONG", "+OK", "PONG"]);
}

#[test]
fn refused_record_does_not_fail_the_rest_of_its_burst() {
    let (node, server) = serve_nats(|_| {});
    node.create_topic("small", TopicConfig { record_bytes_max: 1_024, ..TopicConfig::default() }, false)
        .unwrap();
    let mut reader = NatsPeer::open(&server);
    reader.subscribe("small 1");
    let mut peer = NatsPeer::open(&server);
    let large = "x".repeat(2_000);
    let burst: String = ["one", &large, "two", &large, "three"]
        .iter()
        .map(|text| format!("PUB small {}\r\n{text}\r\n", text.len()))
        .collect();
    peer.send(format!("{burst}PING\r\n").as_bytes());
    for _ in 0..2 {
        let line = peer.line();
        assert!(line.starts_with("-ERR") && line.contains("record_bytes_max"), "{line}");
    }
    assert_eq!(peer.line(), "PONG");
    let got: Vec<String> = (0..3).map(|_| reader.text().1).collect();
    assert_eq!(got, ["one", "two", "three"]);
}

/// Encodes a level of an order book with this price and size. The state refuses a negative size.
fn level(price: i64, size: i64) -> Vec<u8> {
    [&[1, 1, 0, 0, 0, 0, 0, 0][..], &price.to_le_bytes(), &size.to_le_bytes()].concat()
}

#[test]
fn reducer_accepts_later_records_after_it_refused_one() {
    let (node, server) = serve_nats(|_| {});
    let reducer = Some(ReducerConfig { kind: "book".to_owned(), ..ReducerConfig::default() });
    let topic = node.create_topic("book", TopicConfig { reducer, ..TopicConfig::default() }, false).unwrap();
    let mut peer = NatsPeer::open(&server);
    let mut burst = Vec::new();
    for nth in 1..=1_000 {
        burst.extend_from_slice(b"PUB book 24\r\n");
        burst.extend_from_slice(&level(nth, if nth % 100 == 0 { -1 } else { nth }));
        burst.extend_from_slice(b"\r\n");
    }
    burst.extend_from_slice(b"PING\r\n");
    peer.send(&burst);
    for _ in 0..10 {
        let line = peer.line();
        assert!(line.starts_with("-ERR") && line.contains("state refuses it"), "{line}");
    }
    assert_eq!(peer.line(), "PONG");
    let (last, info) = topic.logs()[0].state_info().unwrap();
    assert_eq!((last.seq, info.entries), (990, 990));
}

#[test]
fn nats_wildcard_subscribers_read_topics_created_later() {
    let (_node, server) = serve_nats(|_| {});
    let (mut star, mut all) = (NatsPeer::open(&server), NatsPeer::open(&server));
    star.subscribe("a.*.c 1");
    all.subscribe("a.> 2");
    let mut writer = NatsPeer::open(&server);
    ["a.b.c", "a.b", "a.b.d", "a.x.c", "b.b.c"].iter().for_each(|subject| writer.publish(subject, subject));
    let mut of_star = [star.text(), star.text()];
    of_star.sort();
    assert_eq!(of_star, [pair("a.b.c", "a.b.c"), pair("a.x.c", "a.x.c")]);
    let mut of_all: Vec<_> = (0..4).map(|_| all.text().0).collect();
    of_all.sort();
    assert_eq!(of_all, ["a.b", "a.b.c", "a.b.d", "a.x.c"]);
    star.ping();
    all.ping();
}

#[test]
fn nats_subscriber_gets_only_matching_records_of_a_topic() {
    let (node, server) = serve_nats(|_| {});
    let config = TopicConfig { pattern: Some("orders.>".to_owned()), ..TopicConfig::default() };
    node.create_topic("orders", config, false).unwrap();
    let (mut one, mut some) = (NatsPeer::open(&server), NatsPeer::open(&server));
    one.subscribe("orders.eu.new 1");
    some.subscribe("*.*.new 2");
    let mut writer = NatsPeer::open(&server);
    ["orders.us.new", "orders.eu.old", "orders.eu.new", "orders.x"].iter().for_each(|s| writer.publish(s, s));
    assert_eq!(one.text(), pair("orders.eu.new", "orders.eu.new"));
    assert_eq!(some.text().0, "orders.us.new");
    assert_eq!(some.text().0, "orders.eu.new");
    one.ping();
    some.ping();
    assert_eq!(node.topics(None, "", 10).topics.len(), 1, "all lies in the one log");
}

#[test]
fn headers_and_reply_subject_pass_to_and_from_nats_clients() {
    let (node, server) = serve_nats(|_| {});
    let mut peer = NatsPeer::open(&server);
    peer.subscribe("h 1");
    let headers: [(&str, &[u8]); 4] = [("Nats-Msg-Id", b"7"), ("x", b"a b"), ("x", b""), ("y", b"1\r\nz: 2")];
    let meta = RecordMeta { reply: Some("_INBOX.me"), headers: &headers, ..RecordMeta::default() };
    node.publisher("h").unwrap().publish(Draft { meta, payload: Payload::Copied(b"hello") }).unwrap();
    let got = peer.message();
    assert_eq!(got.headers, ["", "Nats-Msg-Id: 7", "x: a b", "x: ", "y: 1  z: 2"]);
    assert_eq!((got.reply.as_deref(), &got.payload[..]), (Some("_INBOX.me"), &b"hello"[..]));

    let mut subscriber = node.subscribe("h2", &SubscribeOptions::default()).unwrap();
    peer.send(b"HPUB h2 r.1 32 34\r\nNATS/1.0 503 no\r\nA: 1\r\nb:two\r\n\r\nhi\r\n");
    peer.ping();
    assert!(subscriber.ready().unwrap());
    let Event::Record(record) = subscriber.take() else { panic!("no record") };
    let headers: Vec<_> = record.frame.headers().collect();
    assert_eq!(headers, [(":status", &b"503 no"[..]), ("A", &b"1"[..]), ("b", &b"two"[..])]);
    assert_eq!((record.frame.reply(), record.payload()), (Some("r.1"), &b"hi"[..]));

    peer.subscribe("h2 2");
    peer.send(b"HPUB h2 32 34\r\nNATS/1.0 503 no\r\nA: 1\r\nb:two\r\n\r\nhi\r\n");
    assert_eq!(peer.message().headers, [" 503 no", "A: 1", "b: two"]);
    let mut plain = NatsPeer::new(&server);
    plain.send_line("CONNECT {\"verbose\":false}");
    plain.subscribe("h2 3");
    peer.send(b"HPUB h2 32 34\r\nNATS/1.0 503 no\r\nA: 1\r\nb:two\r\n\r\nhi\r\n");
    assert_eq!(plain.text(), pair("h2", "hi"), "a client without headers gets the rest");
}

#[test]
fn nats_subscription_ends_after_its_maximum_of_messages() {
    let (_node, server) = serve_nats(|_| {});
    let mut peer = NatsPeer::open(&server);
    peer.send_line("SUB a 1\r\nUNSUB 1 3\r\nSUB a 2");
    peer.ping();
    let mut writer = NatsPeer::open(&server);
    (0..5).for_each(|n| writer.publish("a", &n.to_string()));
    let mut got: Vec<(String, String)> = (0..8)
        .map(|_| peer.message())
        .map(|got| (got.sid, String::from_utf8(got.payload).unwrap()))
        .collect();
    got.sort();
    let expected =
        [("1", "0"), ("1", "1"), ("1", "2"), ("2", "0"), ("2", "1"), ("2", "2"), ("2", "3"), ("2", "4")];
    assert_eq!(got, expected.map(|(sid, payload)| pair(sid, payload)));
    // The ids of the subscriptions that have ended can be used again.
    peer.send_line("UNSUB 2\r\nUNSUB 9\r\nSUB a 1");
    peer.ping();
    writer.publish("a", "again");
    assert_eq!(peer.text().1, "again");
    peer.ping();
}

#[test]
fn nats_inbox_is_removed_with_its_last_subscription() {
    let (node, server) = serve_nats(|_| {});
    let (mut requester, mut answerer) = (NatsPeer::open(&server), NatsPeer::open(&server));
    answerer.publish("_INBOX.x.1", "nobody is there");
    requester.subscribe("_INBOX.x.* 1");
    requester.subscribe("_INBOX.y 2");
    requester.subscribe("_INBOX.x.9 3");
    for subject in ["_INBOX.x.1", "_INBOX.y", "_INBOX.x.2", "_INBOX.x.2.3"] {
        answerer.publish(subject, subject);
    }
    let mut got: Vec<_> = (0..3).map(|_| requester.text().0).collect();
    got.sort();
    assert_eq!(got, ["_INBOX.x.1", "_INBOX.x.2", "_INBOX.y"]);
    requester.send_line("UNSUB 1\r\nUNSUB 2");
    requester.ping();
    assert!(node.topic("_INBOX.y").is_none() && node.topic("_INBOX.x.all").is_some());
    requester.send_line("UNSUB 3");
    requester.ping();
    assert!(node.topic("_INBOX.x.all").is_none());
    requester.send_line("SUB _INBOX.> 4");
    assert_eq!(requester.line(), "-ERR 'Permissions Violation for Subscription to \"_INBOX.>\"'");
}

#[test]
fn nats_payloads_of_any_size_arrive_whole() {
    let (_node, server) = serve_nats(|_| {});
    let (mut reader, mut writer) = (NatsPeer::open(&server), NatsPeer::open(&server));
    reader.subscribe("big 1");
    let sizes = [0, 1, 4_095, 4_096, 70_000, 300_000, 3_000_000];
    for size in sizes {
        let payload: String = (0..size).map(|at| char::from(b'a' + (at % 23) as u8)).collect();
        writer.publish("big", &payload);
    }
    for size in sizes {
        let got = reader.message().payload;
        assert_eq!(got.len(), size);
        assert!(got.iter().enumerate().all(|(at, byte)| *byte == b'a' + (at % 23) as u8), "{size}");
    }
}

#[test]
fn nats_client_without_echo_gets_none_of_its_own_records() {
    let (_node, server) = serve_nats(|_| {});
    let mut quiet = NatsPeer::open_with(&server, ",\"echo\":false");
    let mut other = NatsPeer::open(&server);
    quiet.subscribe("e 1");
    let mut got = Vec::new();
    for n in 0..200 {
        quiet.publish("e", "mine");
        quiet.ping_collecting(&mut got);
        other.publish("e", &n.to_string());
        other.ping();
    }
    quiet.publish("e", "mine");
    while got.len() < 200 {
        quiet.ping_collecting(&mut got);
    }
    assert_eq!(got, (0..200).map(|n: u32| n.to_string()).collect::<Vec<_>>());
}

#[test]
fn nats_client_that_loses_records_gets_gaps_or_is_disconnected() {
    let (node, server) = serve_nats(|_| {});
    let retention = Retention { bytes: 64 << 10, records: None, age: None };
    node.create_topic("gaps", TopicConfig { retention, ..TopicConfig::default() }, false).unwrap();
    let (mut plain, mut gap_notices) = (NatsPeer::open(&server), NatsPeer::open(&server));
    plain.subscribe("gaps 1");
    gap_notices.subscribe("$DUNLIN.seq.gaps 1");
    let mut publisher = node.publisher("gaps").unwrap();
    // Publishes more than the kernel's buffers and the topic's log together can hold.
    let payload = vec![b'x'; 1_000];
    let count: u64 = 40_000;
    for _ in 0..count {
        publisher.publish(payload.as_slice()).unwrap();
    }
    let (mut next, mut lost) = (1, 0);
    while next <= count {
        let got = gap_notices.message();
        assert_eq!(got.subject, "gaps");
        let number = |name: &str| -> u64 {
            let found = got.headers.iter().find_map(|header| header.strip_prefix(&format!("{name}: ")));
            found.unwrap_or_else(|| panic!("no {name} in {got:?}")).parse().unwrap()
        };
        match got.headers[0].as_str() {
            "" => {
                assert_eq!(number("Dunlin-Seq"), next);
                assert!(number("Dunlin-Epoch") > 0);
                next += 1;
            }
            " 410 Gap" => {
                assert_eq!(number("Dunlin-First"), next);
                assert!(number("Dunlin-Epoch") > 0);
                next = number("Dunlin-Last") + 1;
                lost += 1;
            }
            " 429 Lagging" => assert!(number("Dunlin-Behind") > 0),
            other => panic!("{other:?}"),
        }
    }
    assert!(lost > 0, "the test is to lose something");
    // The node must close the connection without `-ERR`. Client libraries reconnect after a closed connection, but not
    // after an error.
    loop {
        let line = plain.line();
        if line.is_empty() {
            break;
        }
        assert!(!line.starts_with("-ERR"), "{line:?}");
    }
    assert!(plain.is_at_end());
}

#[test]
fn nats_client_publishes_to_more_subjects_than_are_cached() {
    let (_node, server) = serve_nats(|config| config.limits.nats.targets_max = 16);
    let (mut reader, mut writer) = (NatsPeer::open(&server), NatsPeer::open(&server));
    reader.subscribe("s.* 1");
    for round in 0..3 {
        (0..100).for_each(|n| writer.publish(&format!("s.{n}"), &round.to_string()));
    }
    let mut rounds = vec![0; 100];
    for _ in 0..300 {
        let (subject, payload) = reader.text();
        let of: usize = subject["s.".len()..].parse().unwrap();
        assert_eq!(payload, rounds[of].to_string(), "{subject}");
        rounds[of] += 1;
    }
}

#[test]
fn nats_clients_continue_with_a_recreated_topic() {
    let (node, server) = serve_nats(|_| {});
    let (mut reader, mut writer) = (NatsPeer::open(&server), NatsPeer::open(&server));
    reader.subscribe("t 1");
    writer.publish("t", "before");
    assert_eq!(reader.text().1, "before");
    node.delete_topic("t").unwrap();
    writer.publish("t", "after");
    assert_eq!(reader.text().1, "after");
}

#[test]
fn full_reliable_topic_delays_its_nats_publisher_without_loss() {
    let (node, server) = serve_nats(|_| {});
    let config = TopicConfig {
        retention: Retention { bytes: 64 << 10, records: None, age: None },
        reliable: Some(dunlin::topic::ReliableOptions {
            wait_max: std::time::Duration::from_secs(60),
            ..dunlin::topic::ReliableOptions::default()
        }),
        ..TopicConfig::default()
    };
    node.create_topic("r", config, false).unwrap();
    let (mut reader, mut writer) = (NatsPeer::open(&server), NatsPeer::open(&server));
    reader.subscribe("r 1");
    let writing = std::thread::spawn(move || {
        let filler = "x".repeat(1_000);
        (0..20_000).for_each(|n| writer.publish("r", &format!("{n} {filler}")));
        writer.ping();
    });
    for n in 0..20_000 {
        let (_, payload) = reader.text();
        assert_eq!(payload.split(' ').next(), Some(n.to_string().as_str()));
    }
    writing.join().unwrap();
}

#[test]
fn backlog_of_a_queue_group_delays_no_other_subscription() {
    // More records than fit in the buffers between the node and the client.
    const RECORDS: usize = 4_000;
    let (node, server) = serve_nats(|_| {});
    let retention = Retention { bytes: 64 << 20, records: None, age: None };
    node.create_topic("jobs", TopicConfig { retention, ..TopicConfig::default() }, false).unwrap();
    let mut worker = NatsPeer::open(&server);
    worker.subscribe("jobs crew 1");
    worker.subscribe("news 2");
    let mut publisher = node.publisher("jobs").unwrap();
    let job = vec![b'x'; 10 << 10];
    for _ in 0..RECORDS {
        publisher.publish(job.as_slice()).unwrap();
    }
    node.publisher("news").unwrap().publish("hello").unwrap();
    let before = (0..RECORDS).take_while(|_| worker.text().0 == "jobs").count();
    assert!(before < RECORDS, "the news came after all jobs");
}

#[test]
fn queue_group_shares_messages_and_plain_subscribers_get_all() {
    let (node, server) = serve_nats(|_| {});
    let mut members: Vec<NatsPeer> = (0..3).map(|_| NatsPeer::open(&server)).collect();
    members.iter_mut().for_each(|member| member.subscribe("jobs.* crew 1"));
    let (mut other_queue, mut all) = (NatsPeer::open(&server), NatsPeer::open(&server));
    other_queue.subscribe("jobs.eu other 1");
    all.subscribe("jobs.> 1");
    let mut writer = NatsPeer::open(&server);
    (0..300).for_each(|n| writer.publish("jobs.eu", &n.to_string()));
    let numbers = |peer: &mut NatsPeer, got: &mut Vec<String>| peer.ping_collecting(got);
    let expected: Vec<String> = (0..300).map(|n| n.to_string()).collect();
    for peer in [&mut other_queue, &mut all] {
        let mut got = Vec::new();
        while got.len() < 300 {
            numbers(peer, &mut got);
        }
        assert_eq!(got, expected);
    }
    let mut got = Vec::new();
    while got.len() < 300 {
        members.iter_mut().for_each(|member| numbers(member, &mut got));
    }
    let mut in_order: Vec<u32> = got.iter().map(|n| n.parse().unwrap()).collect();
    in_order.sort_unstable();
    assert_eq!(in_order, (0..300).collect::<Vec<_>>());
    members.iter_mut().for_each(|member| {
        member.send_line("UNSUB 1");
        member.ping();
    });
    let groups = |node: &dunlin::Node| node.groups(&node.topic("jobs.eu").unwrap()).len();
    assert_eq!(groups(&node), 1, "a group ends with its last member");
}

#[test]
fn ended_queue_group_no_longer_counts_as_a_subscriber() {
    let (node, server) = serve_nats(|_| {});
    node.create_topic("jobs", TopicConfig::default(), false).unwrap();
    let waiting = || node.topic("jobs").unwrap().logs()[0].info().waiting;
    let mut member = NatsPeer::open(&server);
    member.subscribe("jobs crew 1");
    dunlin_wait::until("the group waits for records", || waiting() == 1);
    member.send_line("UNSUB 1");
    dunlin_wait::until("the group has left", || waiting() == 0);
}

#[test]
fn queue_group_gets_only_records_of_its_subscribed_subjects() {
    let (node, server) = serve_nats(|_| {});
    let config = TopicConfig { pattern: Some("orders.>".to_owned()), ..TopicConfig::default() };
    node.create_topic("orders", config, false).unwrap();
    let (mut eu, mut writer) = (NatsPeer::open(&server), NatsPeer::open(&server));
    eu.send_line("SUB orders.eu.* crew 1\r\nUNSUB 1 2");
    eu.ping();
    ["orders.us.1", "orders.eu.2", "orders.us.3", "orders.eu.4", "orders.eu.5"]
        .iter()
        .for_each(|subject| writer.publish(subject, subject));
    assert_eq!([eu.text().1, eu.text().1], ["orders.eu.2", "orders.eu.4"]);
    eu.ping();
}

#[test]
fn nats_request_gets_a_reply_or_503_at_once() {
    let (node, server) = serve_nats(|_| {});
    let mut requester = NatsPeer::open(&server);
    requester.subscribe("_INBOX.me.* 1");
    let assert_no_responder = |requester: &mut NatsPeer, subject: &str| {
        requester.send_line(&format!("PUB {subject} _INBOX.me.1 0\r\n"));
        let got = requester.message();
        assert_eq!(
            (got.subject.as_str(), got.headers),
            ("_INBOX.me.1", vec![" 503".to_owned()]),
            "{subject}"
        );
    };
    assert_no_responder(&mut requester, "help");
    assert_no_responder(&mut requester, "$JS.API.INFO");
    assert_no_responder(&mut requester, "_INBOX.gone.1");
    assert!(node.topic("help").is_none(), "it is not published either");
    let mut answerer = NatsPeer::open(&server);
    for subscription in ["help 1", "help.> 2", "helpers q 3"] {
        answerer.subscribe(subscription);
    }
    for (subject, sid) in [("help", "1"), ("help.me", "2"), ("helpers", "3")] {
        requester.send_line(&format!("PUB {subject} _INBOX.me.2 1\r\n?"));
        let got = answerer.message();
        assert_eq!((got.sid.as_str(), got.reply.as_deref()), (sid, Some("_INBOX.me.2")));
        answerer.publish("_INBOX.me.2", subject);
        assert_eq!(requester.text(), pair("_INBOX.me.2", subject));
    }
    answerer.send_line("UNSUB 1\r\nUNSUB 2\r\nUNSUB 3");
    answerer.ping();
    ["help", "help.me", "help.other", "helpers"]
        .iter()
        .for_each(|subject| assert_no_responder(&mut requester, subject));
    // This client's CONNECT does not state that the client supports updates of INFO. The node must send no updates to
    // this client.
    let mut old = NatsPeer::new(&server);
    old.send_line("CONNECT {\"verbose\":false}\r\nSUB _INBOX.old 1\r\nPUB help _INBOX.old 0\r\n");
    old.ping();
}

#[test]
fn in_process_responder_answers_nats_requests() {
    let (node, server) = serve_nats(|_| {});
    let responder = node.respond("twice.>", |mut request| {
        let text = String::from_utf8_lossy(request.record().payload()).repeat(2);
        request.reply(text.as_str()).unwrap();
    });
    let responder = responder.unwrap();
    let mut requester = NatsPeer::open(&server);
    requester.subscribe("_INBOX.me 1");
    requester.send_line("PUB twice.a _INBOX.me 2\r\nho");
    assert_eq!(requester.text().1, "hoho");
    drop(responder);
    requester.send_line("PUB twice.a _INBOX.me 2\r\nho");
    assert_eq!(requester.message().headers, [" 503"]);
}

#[test]
fn messages_published_before_an_unsub_arrive_before_the_pong() {
    let (_node, server) = serve_nats(|_| {});
    let mut peer = NatsPeer::open(&server);
    for round in 0..20 {
        // The topics that match the second subscription are created by the records that follow.
        let mut all = format!("SUB d 1\r\nSUB d.{round}.* 2\r\nSUB d crew 3\r\n");
        (0..50).for_each(|n| all.push_str(&format!("PUB d 2\r\n{n:02}\r\nPUB d.{round}.x 0\r\n\r\n")));
        all.push_str("UNSUB 1\r\nUNSUB 2\r\nUNSUB 3\r\nSUB d 1\r\nUNSUB 1\r\nPUB d 2\r\nno\r\nPING");
        peer.send_line(&all);
        let mut of_sid = [0, 0, 0];
        for _ in 0..150 {
            let got = peer.message();
            of_sid[got.sid.parse::<usize>().unwrap() - 1] += 1;
        }
        assert_eq!(of_sid, [50, 50, 50], "round {round}");
        assert_eq!(peer.line(), "PONG");
    }
}

#[test]
fn publishers_cannot_forge_sequence_and_status_headers() {
    let (node, server) = serve_nats(|_| {});
    let (mut plain, mut numbered) = (NatsPeer::open(&server), NatsPeer::open(&server));
    plain.subscribe("f 1");
    numbered.subscribe("$DUNLIN.seq.f 1");
    // Client libraries read a message's status from headers with these names. Subscribers must be able to tell such
    // headers of a publisher from the node's own.
    let block = "NATS/1.0 410 Gap\r\nStatus: 410\r\nDESCRIPTION: Gap\r\nDunlin-First: 1\r\ndunlin-seq: 777\r\nDunlin-Epoch: 7\r\nA: 1\r\n\r\n";
    let mut publisher = NatsPeer::open(&server);
    publisher.send(format!("HPUB f {} {}\r\n{block}x\r\n", block.len(), block.len() + 1).as_bytes());
    let got = plain.message();
    assert_eq!(got.headers[..3], [" 410 Gap", "Status: 410", "DESCRIPTION: Gap"]);
    assert_eq!(got.headers[3..], ["Dunlin-First: 1", "dunlin-seq: 777", "Dunlin-Epoch: 7", "A: 1"]);
    let got = numbered.message();
    assert_eq!(got.headers[..3], ["", "A: 1", "Dunlin-Seq: 1"]);
    assert!(got.headers.len() == 4 && got.headers[3].starts_with("Dunlin-Epoch: "), "{got:?}");
    // Also over other protocols, a publisher may set headers with these names. A subscriber of `$DUNLIN.seq.f` must not
    // receive them.
    let headers: &[(&str, &[u8])] = &[("status", b"410"), ("Description", b"Gap"), ("B", b"2")];
    let meta = RecordMeta { headers, ..RecordMeta::default() };
    node.publisher("f").unwrap().publish(Draft { meta, payload: Payload::Copied(b"x") }).unwrap();
    assert_eq!(numbered.message().headers[..3], ["", "B: 2", "Dunlin-Seq: 2"]);
}

#[test]
fn nats_client_with_many_operations_blocks_no_other_client() {
    const SUBSCRIPTIONS: usize = 20_000;
    // One thread serves all connections. If it were blocked for a second, the watchdog would abort the process.
    let (_node, server) = serve_nats(|_| {});
    let (mut busy, mut other) = (NatsPeer::open(&server), NatsPeer::open(&server));
    let all = |operation: &dyn Fn(usize) -> String| (0..SUBSCRIPTIONS).map(operation).collect::<String>();
    let subscribe = all(&|n| format!("SUB x.{n} {n}\r\n"));
    busy.send(subscribe.as_bytes());
    other.ping();
    busy.ping();
    busy.send("PING\r\n".repeat(SUBSCRIPTIONS).as_bytes());
    other.ping();
    (0..SUBSCRIPTIONS).for_each(|_| assert_eq!(busy.line(), "PONG"));
    // For each record with a reply subject, the node searches the requester's 20,000 subscriptions for one that
    // receives the reply.
    busy.send("PUB nobody reply.to.me 0\r\n\r\n".repeat(1_000).as_bytes());
    other.ping();
    busy.ping();
    busy.send(all(&|n| format!("UNSUB {n}\r\n")).as_bytes());
    other.ping();
    busy.ping();
    other.publish("x.1", "no subscription is left");
    other.ping();
    busy.ping();
    busy.send(subscribe.as_bytes());
    busy.ping();
    drop(busy);
    other.ping();
}

#[test]
fn queue_group_member_takes_few_large_records_in_advance() {
    const RECORDS: usize = 40;
    /// Number of records that fit in the buffers of the two sockets.
    const BUFFERED_MAX: usize = 16;
    let (node, server) = serve_nats(|_| {});
    let retention = Retention { bytes: 128 << 20, ..Retention::default() };
    node.create_topic("jobs", TopicConfig { retention, ..TopicConfig::default() }, false).unwrap();
    let mut peer = NatsPeer::open(&server);
    peer.subscribe("jobs crew 1");
    let large = vec![b'x'; 2 << 20];
    let mut publisher = node.publisher("jobs").unwrap();
    for _ in 0..RECORDS {
        publisher.publish(&large[..]).unwrap();
    }
    let topic = node.topic("jobs").unwrap();
    for read in 1..=RECORDS {
        assert_eq!(peer.message().payload.len(), large.len());
        let taken = RECORDS - node.groups(&topic)[0].waiting as usize;
        assert!(taken <= read + BUFFERED_MAX, "{taken} of {read}");
    }
}

/// The client begins to read after the topic was deleted, so that one of the two logs ends while the other has unread
/// records.
#[test]
fn queue_group_member_reads_all_records_of_a_deleted_topic() {
    const RECORDS: usize = 180;
    let (node, server) = serve_nats(|_| {});
    let retention = Retention { bytes: 64 << 20, ..Retention::default() };
    let config = TopicConfig { partitions: 2, retention, ..TopicConfig::default() };
    node.create_topic("jobs", config, false).unwrap();
    let mut member = NatsPeer::open(&server);
    member.subscribe("$DUNLIN.seq.jobs workers 1");
    let (mut publisher, payload) = (node.publisher("jobs").unwrap(), vec![0; 64 << 10]);
    for n in 0..RECORDS {
        // Three keys never divide the records equally among two logs.
        let key = [n as u8 % 3];
        let meta = RecordMeta { key: Some(&key), ..RecordMeta::default() };
        publisher.publish(Draft { meta, payload: Payload::Copied(&payload) }).unwrap();
    }
    node.delete_topic("jobs").unwrap();
    let (mut records, mut deleted_logs) = (0, 0);
    while deleted_logs < 2 {
        match member.message().headers[0].trim() {
            "410 Deleted" => deleted_logs += 1,
            _ => records += 1,
        }
    }
    assert_eq!(records, RECORDS);
    member.ping();
}

#[test]
fn unsub_of_a_queue_group_member_loses_no_large_record() {
    const RECORDS: usize = 20;
    let (node, server) = serve_nats(|_| {});
    let retention = Retention { bytes: 128 << 20, ..Retention::default() };
    node.create_topic("jobs", TopicConfig { retention, ..TopicConfig::default() }, false).unwrap();
    let mut peer = NatsPeer::open(&server);
    peer.subscribe("jobs crew 1");
    let large = vec![b'x'; 2 << 20];
    let mut publisher = node.publisher("jobs").unwrap();
    for _ in 0..RECORDS {
        publisher.publish(&large[..]).unwrap();
    }
    peer.send_line("UNSUB 1\r\nPING");
    for read in 0..RECORDS {
        assert_eq!(peer.message().payload.len(), large.len(), "after {read}");
    }
    assert_eq!(peer.line(), "PONG");
    assert!(node.groups(&node.topic("jobs").unwrap()).is_empty());
}
