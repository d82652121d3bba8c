//! Tests NATS services and their requesters: which topics remain after requests, and that bursts of records arrive
//! completely.

use dunlin::topic::Pattern;

use crate::nats_peer::{NatsPeer, serve_nats};

#[test]
fn replies_to_a_custom_inbox_prefix_create_no_topics() {
    let (node, server) = serve_nats(|_| {});
    let (mut service, mut requester) = (NatsPeer::open(&server), NatsPeer::open(&server));
    service.subscribe("svc 1");
    requester.subscribe("acme.reply.u1.* 1");
    for n in 0..50 {
        requester.send_line(&format!("PUB svc acme.reply.u1.{n} 1\r\nq"));
        let reply = service.message().reply.expect("it is to be answered");
        service.publish(&reply, "a");
        assert_eq!(requester.text(), (format!("acme.reply.u1.{n}"), "a".to_owned()));
    }
    let names = |pattern: &str| -> Vec<String> {
        let page = node.topics(Some(&Pattern::parse(pattern).unwrap()), "", usize::MAX);
        page.topics.iter().map(|topic| topic.name().to_owned()).collect()
    };
    assert!(names("acme.>").is_empty(), "{:?}", names("acme.>"));
    assert_eq!(names("_INBOX.>").len(), 1);
    requester.send_line("UNSUB 1");
    requester.ping();
    assert!(names("_INBOX.>").is_empty(), "{:?}", names("_INBOX.>"));
}

#[test]
fn reply_subject_of_two_tokens_becomes_a_topic() {
    let (node, server) = serve_nats(|_| {});
    let (mut service, mut monitor) = (NatsPeer::open(&server), NatsPeer::open(&server));
    service.subscribe("svc 1");
    monitor.subscribe("orders.* 1");
    monitor.send_line("PUB svc orders.results 1\r\nq");
    assert_eq!(service.message().reply.as_deref(), Some("orders.results"));
    service.publish("orders.results", "a");
    assert_eq!(monitor.text().0, "orders.results");
    assert!(node.topic("orders.results").is_some(), "it is a topic like any other");
}

#[test]
fn nats_services_are_found_by_their_discovery_subjects() {
    let (node, server) = serve_nats(|_| {});
    let (mut service, mut requester) = (NatsPeer::open(&server), NatsPeer::open(&server));
    ["$SRV.PING 1", "$SRV.PING.sums 2", "$SRV.INFO.sums.7 3"].iter().for_each(|rest| service.subscribe(rest));
    requester.subscribe("_INBOX.a.* 1");
    for subject in ["$SRV.PING", "$SRV.PING.sums", "$SRV.INFO.sums.7"] {
        requester.send_line(&format!("PUB {subject} _INBOX.a.1 0\r\n"));
        let request = service.message();
        assert_eq!((request.subject.as_str(), request.reply.as_deref()), (subject, Some("_INBOX.a.1")));
        service.publish("_INBOX.a.1", "here");
        assert_eq!(requester.text().1, "here");
    }
    requester.send_line("PUB $SRV.PING.none _INBOX.a.2 0\r\n");
    assert_eq!(requester.message().headers, [" 503"], "no such service");
    let page = node.topics(Some(&Pattern::parse("$SRV.>").unwrap()), "", usize::MAX);
    assert!(page.topics.is_empty(), "all lies in one topic");
    assert!(node.topic("$SRV").is_some());
    // Only `$SRV` may be used for requests. The other reserved subjects must stay reserved.
    requester.send_line("PUB $SYS.REQ _INBOX.a.3 0\r\n");
    assert_eq!(requester.message().headers, [" 503"]);
}

#[test]
fn nats_subscriber_gets_all_of_a_burst_larger_than_retention() {
    const MESSAGES: usize = 40_000;
    let (node, server) = serve_nats(|_| {});
    assert!(node.config().topic.retention.bytes < 1_000 * MESSAGES as u64);
    let (mut subscriber, mut writer) = (NatsPeer::open(&server), NatsPeer::open(&server));
    subscriber.subscribe("burst 1");
    let payload = "x".repeat(990);
    let burst: String = (0..MESSAGES).map(|n| format!("PUB burst 1000\r\n{n:010}{payload}\r\n")).collect();
    writer.send(burst.as_bytes());
    // The PONG shows that all records were published. The subscriber has not read any of them yet.
    writer.ping();
    for n in 0..MESSAGES {
        let got = subscriber.message();
        assert_eq!(got.payload[..10], *format!("{n:010}").as_bytes());
    }
}
