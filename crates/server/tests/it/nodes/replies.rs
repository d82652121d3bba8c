//! Tests NATS requests with a reply subject of any name. A reply must not create a topic. But if other clients publish
//! to the same subject, a topic is created, and the records reach subscribers at all nodes.

use std::sync::Arc;

use dunlin::topic::{Event, Pattern, Publish, Start, Subscribe, TopicConfig};
use dunlin_wait::{PATIENCE, until};

use super::{TestCluster, start_at};
use crate::nats_peer::NatsPeer;

/// Lets a NATS client at node 1 send a request with this reply subject to a service at node 2. Returns the client and
/// the service, which has received the request. The client subscribes to the reply subject with `*` as the last token.
fn request(cluster: &Arc<TestCluster>, reply: &str) -> (NatsPeer, NatsPeer) {
    let (mut requester, mut service) = (cluster.nats(1), cluster.nats(2));
    service.subscribe("svc 1");
    let (prefix, _) = reply.rsplit_once('.').unwrap();
    requester.subscribe(&format!("{prefix}.* 1"));
    requester.send_line(&format!("PUB svc {reply} 1\r\n?"));
    assert_eq!(service.message().reply.as_deref(), Some(reply));
    (requester, service)
}

fn is_topic_everywhere(cluster: &TestCluster, name: &str) -> bool {
    [1, 2, 3].iter().all(|&id| cluster.node(id).topic(name).is_some())
}

#[test]
fn custom_reply_subject_stays_readable_on_other_nodes() {
    let cluster = TestCluster::patient(3);
    let mut before = cluster.nats(3);
    before.subscribe("other.> 1");
    let (mut requester, mut service) = request(&cluster, "shop.orders.1");
    let mut after = cluster.nats(3);
    after.subscribe("shop.> 1");
    let mut publisher = cluster.nats(2);
    // Only the first of these subjects is the reply subject of a request. A client that has nothing to do with the
    // request publishes to both.
    for subject in ["shop.orders.1", "shop.orders.2"] {
        publisher.publish(subject, "order");
        let order = (subject.to_owned(), "order".to_owned());
        assert_eq!((after.text(), requester.text()), (order.clone(), order));
        until("it has a topic", || is_topic_everywhere(&cluster, subject));
    }
    service.publish("shop.orders.3", "order");
    let order = ("shop.orders.3".to_owned(), "order".to_owned());
    assert_eq!((after.text(), requester.text()), (order.clone(), order));
    let mut wide = cluster.client(3).subscribe("shop.orders.*", start_at(Start::Earliest)).unwrap();
    for _ in 0..3 {
        let event = wide.next_timeout(PATIENCE).unwrap();
        assert!(matches!(event, Some(Event::Record(record)) if record.payload() == b"order"));
    }
}

#[test]
fn reply_subject_used_by_other_clients_becomes_a_topic() {
    let cluster = TestCluster::patient(3);
    let (mut requester, mut service) = request(&cluster, "shop.orders.1");
    // Nobody but the requester has subscribed to the reply subject.
    cluster.nats(3).publish("shop.orders.1", "order");
    assert_eq!(requester.text(), ("shop.orders.1".to_owned(), "order".to_owned()));
    until("it has a topic", || is_topic_everywhere(&cluster, "shop.orders.1"));
    // The reply subject has a topic now. The reply is therefore appended to it, so that all subscribers can read the
    // reply.
    service.publish("shop.orders.1", "reply");
    assert_eq!(requester.text().1, "reply");
    let mut subscriber = cluster.client(2).subscribe("shop.orders.1", start_at(Start::Earliest)).unwrap();
    for text in ["order", "reply"] {
        let event = subscriber.next_timeout(PATIENCE).unwrap();
        assert!(
            matches!(event, Some(Event::Record(record)) if record.payload() == text.as_bytes()),
            "{text}"
        );
    }
}

#[test]
fn reply_subject_without_subscribers_is_an_ordinary_subject() {
    let cluster = TestCluster::patient(3);
    let (mut requester, mut service) = (cluster.nats(1), cluster.nats(2));
    service.subscribe("svc 1");
    requester.send_line("PUB svc shop.orders.new 1\r\n?");
    service.message();
    let mut publisher = cluster.client(3).publisher("shop.orders.new").unwrap();
    publisher.publish(b"order").unwrap();
    until("it has a topic", || is_topic_everywhere(&cluster, "shop.orders.new"));
}

#[test]
fn dunlin_publisher_reaches_all_subscribers_of_a_reply_subject() {
    let cluster = TestCluster::patient(3);
    let (mut requester, _service) = request(&cluster, "shop.orders.1");
    let mut watcher = cluster.client(3).subscribe("shop.>", start_at(Start::Latest)).unwrap();
    for id in [1, 2] {
        cluster.client(id).publisher("shop.orders.1").unwrap().publish(b"order").unwrap();
        assert_eq!(requester.text().1, "order");
        let event = watcher.next_timeout(PATIENCE).unwrap();
        assert!(matches!(event, Some(Event::Record(record)) if record.payload() == b"order"));
    }
}

#[test]
fn reply_reaches_subscribers_of_its_subject_on_all_nodes() {
    let cluster = TestCluster::patient(3);
    let (mut requester, mut service) = request(&cluster, "shop.orders.1");
    let mut watcher = cluster.nats(3);
    watcher.subscribe("shop.> 1");
    service.publish("shop.orders.1", "reply");
    let reply = ("shop.orders.1".to_owned(), "reply".to_owned());
    assert_eq!((requester.text(), watcher.text()), (reply.clone(), reply));
}

#[test]
fn topic_may_cover_subjects_that_are_used_for_replies() {
    let cluster = TestCluster::patient(3);
    let config = || TopicConfig { pattern: Some("shop.>".to_owned()), ..TopicConfig::default() };
    let (mut requester, mut service) = request(&cluster, "shop.orders.1");
    cluster.create_topic_at(3, "shop", config());
    service.publish("shop.orders.1", "reply");
    assert_eq!(requester.text().1, "reply");
    requester.send_line("PUB svc shop.orders.2 1\r\n?");
    service.message();
    service.publish("shop.orders.2", "reply");
    assert_eq!(requester.text(), ("shop.orders.2".to_owned(), "reply".to_owned()));
    let last = cluster.node(3).topic("shop").unwrap().logs()[0].last();
    assert_eq!(last.seq, 2, "both replies are in the topic");
}

/// The reply subjects of the tests' requesters, which are no inboxes by name.
fn acme() -> [Pattern; 1] {
    [Pattern::parse("acme.>").unwrap()]
}

fn reply_to_acme(mut request: dunlin::Request<'_, '_>) {
    let _ = request.reply_within(&acme(), "here");
}

#[test]
fn replies_of_dunlin_services_create_no_topics() {
    let cluster = TestCluster::patient(3);
    let _in_process = cluster.node(2).respond("svc.2", reply_to_acme).unwrap();
    let _at_the_asker = cluster.node(1).respond("svc.1", reply_to_acme).unwrap();
    let mut service = cluster.client(3).subscribe("svc.3", start_at(Start::Latest)).unwrap();
    let mut responder = cluster.client(3).responder();
    let mut requester = cluster.nats(1);
    requester.subscribe("acme.reply.u.* 1");
    for number in 0..10 {
        for id in [1, 2, 3] {
            let reply = format!("acme.reply.u.{id}-{number}");
            requester.send_line(&format!("PUB svc.{id} {reply} 1\r\n?"));
            if id == 3 {
                let Some(Event::Record(request)) = service.next_timeout(PATIENCE).unwrap() else {
                    panic!("a request")
                };
                responder.reply_within(&acme(), request.frame.reply().unwrap(), b"here").unwrap();
            }
            assert_eq!(requester.text(), (reply, "here".to_owned()));
        }
    }
    assert!(!cluster.has_topics("acme."));
}

#[test]
fn replies_create_no_topics_while_a_member_node_is_silent() {
    let cluster = TestCluster::patient(3);
    let _at_the_asker = cluster.node(1).respond("svc.1", reply_to_acme).unwrap();
    let (mut requester, mut service) = request(&cluster, "acme.reply.u.0");
    service.publish("acme.reply.u.0", "here");
    assert_eq!(requester.text().1, "here");
    // From now on, node 3 does not respond, but its lease lasts.
    cluster.stop_with_lease(3);
    for number in 1..=10 {
        let reply = format!("acme.reply.u.{number}");
        requester.send_line(&format!("PUB svc {reply} 1\r\n?"));
        assert_eq!(service.message().reply.as_ref(), Some(&reply));
        service.publish(&reply, "here");
        assert_eq!(requester.text(), (reply, "here".to_owned()));
        let reply = format!("acme.reply.u.own-{number}");
        requester.send_line(&format!("PUB svc.1 {reply} 1\r\n?"));
        assert_eq!(requester.text(), (reply, "here".to_owned()));
    }
    assert!(!cluster.has_topics("acme."));
}

#[test]
fn replies_of_one_service_to_another_node_keep_their_order() {
    const REPLIES: usize = 500;
    let cluster = TestCluster::patient(3);
    let (mut requester, mut service) = request(&cluster, "acme.reply.u.1");
    let message: String =
        (0..REPLIES).map(|number| format!("PUB acme.reply.u.1 3\r\n{number:03}\r\n")).collect();
    service.send(message.as_bytes());
    for number in 0..REPLIES {
        assert_eq!(requester.text().1, format!("{number:03}"));
    }
    assert!(!cluster.has_topics("acme."));
}
