//! Tests requests and replies between NATS clients at different nodes. If no node has a subscriber, a request must fail
//! at once. Subjects that are used only for a request must not leave topics at any node.

use std::sync::Arc;
use std::time::Duration;

use dunlin::state::{ControlCommand, node_key};
use dunlin::topic::{Pattern, TopicConfig};
use dunlin::{OwnershipLimits, RequestError};
use dunlin_wait::{PATIENCE, until};

use super::TestCluster;
use crate::nats_peer::{NatsMessage, NatsPeer};

/// Sends a request with the reply subject `_INBOX.me.1`, and returns the message that arrives.
fn request(requester: &mut NatsPeer, subject: &str) -> NatsMessage {
    requester.send_line(&format!("PUB {subject} _INBOX.me.1 1\r\n?"));
    requester.message()
}

fn is_no_responder(got: &NatsMessage) -> bool {
    got.subject == "_INBOX.me.1" && got.headers == [" 503"]
}

impl TestCluster {
    /// Starts a cluster whose nodes wait for each other longer than a busy machine needs to respond.
    pub(super) fn patient(count: u64) -> Arc<TestCluster> {
        let mirror_wait_max = Duration::from_secs(600);
        TestCluster::with(count, OwnershipLimits { mirror_wait_max, ..OwnershipLimits::default() })
    }

    fn requester(&self, id: u64) -> NatsPeer {
        let mut requester = self.nats(id);
        requester.subscribe("_INBOX.me.* 1");
        requester
    }

    /// Connects a NATS client with this subscription. The client then replies with [`reply_to_next`].
    fn responder(&self, id: u64, subscription: &str) -> NatsPeer {
        let mut service = self.nats(id);
        service.subscribe(subscription);
        service
    }

    /// Whether any node, or the agreed state, has a topic with this prefix.
    pub(super) fn has_topics(&self, prefix: &str) -> bool {
        let members = self.members.lock().unwrap();
        members.values().any(|member| {
            let page = member.node.topics(None, "", usize::MAX);
            page.topics.iter().any(|topic| topic.name().starts_with(prefix))
        }) || self.state.lock().unwrap().placement(prefix.as_bytes()).is_some()
    }
}

fn reply_to_next(service: &mut NatsPeer, text: &str) -> NatsMessage {
    let request = service.message();
    service.publish(request.reply.as_deref().unwrap(), text);
    request
}

#[test]
fn nats_request_gets_503_if_no_node_has_a_subscriber() {
    let cluster = TestCluster::patient(3);
    for id in [1, 2, 3] {
        let mut requester = cluster.requester(id);
        for subject in ["help", "help.me.now", "$SRV.PING.nobody", "_INBOX.gone.1", "$JS.API.INFO"] {
            assert!(is_no_responder(&request(&mut requester, subject)), "{subject} at node {id}");
        }
        requester.ping();
    }
    assert!(!cluster.has_topics("help") && !cluster.has_topics("$SRV"));
}

/// Here, the topic exists, and its other subjects have subscribers.
#[test]
fn request_to_a_topic_subject_without_subscribers_gets_503() {
    let cluster = TestCluster::patient(3);
    let mut first = cluster.requester(1);
    for prefix in ["calc", "$SRV"] {
        let mut service = cluster.responder(2, &format!("{prefix}.PING.a 1"));
        first.send_line(&format!("PUB {prefix}.PING.a _INBOX.me.1 1\r\n?"));
        reply_to_next(&mut service, "yes");
        first.text();
        assert!(cluster.has_topics(prefix));
        for id in [1, 2, 3] {
            let mut requester = cluster.requester(id);
            for subject in ["nope", "PING.nope", "PING.a.nope"] {
                assert!(
                    is_no_responder(&request(&mut requester, &format!("{prefix}.{subject}"))),
                    "{prefix}.{subject} at {id}"
                );
            }
            // Each client uses another inbox name, because other nodes may still know `_INBOX.me` from an earlier
            // client.
            let inbox = format!("_INBOX.{}{id}", prefix.len());
            requester.subscribe(&format!("{inbox}.* 2"));
            requester.send_line(&format!("PUB {prefix}.PING.a {inbox}.1 1\r\n?"));
            reply_to_next(&mut service, "yes");
            assert_eq!(requester.text(), (format!("{inbox}.1"), "yes".to_owned()));
        }
    }
}

#[test]
fn request_reaches_a_subscriber_at_another_node() {
    let cluster = TestCluster::patient(3);
    let mut requester = cluster.requester(1);
    let subscriptions = [(2, "plain 1", "plain"), (3, "jobs workers 1", "jobs"), (2, "wide.> 1", "wide.a.b")];
    for (id, subscription, subject) in subscriptions {
        assert!(is_no_responder(&request(&mut requester, subject)), "{subject}");
        let mut service = cluster.responder(id, subscription);
        for round in 0..3 {
            requester.send_line(&format!("PUB {subject} _INBOX.me.1 1\r\n?"));
            let text = format!("{subject} {round}");
            assert_eq!(reply_to_next(&mut service, &text).subject, subject);
            assert_eq!(requester.text(), ("_INBOX.me.1".to_owned(), text));
        }
    }
}

#[test]
fn request_after_the_last_subscriber_has_left_gets_503() {
    let cluster = TestCluster::patient(3);
    // The service may be at the topic's owner, at a node with a mirror, or at the requester's node.
    for (owner, id) in [(1, 2), (2, 3), (3, 1), (2, 2)] {
        let subject = format!("left.{owner}.{id}");
        cluster.create_topic_at(owner, &subject, TopicConfig::default());
        let mut requester = cluster.requester(1);
        let mut service = cluster.responder(id, &format!("{subject} 1"));
        requester.send_line(&format!("PUB {subject} _INBOX.me.1 1\r\n?"));
        reply_to_next(&mut service, "here");
        assert_eq!(requester.text().1, "here");
        service.send_line("UNSUB 1");
        service.ping();
        // The requester's node may still count the ended subscription for a moment. A request that is sent in this
        // moment gets no response, and is repeated.
        until("it is told", || {
            requester.send_line(&format!("PUB {subject} _INBOX.me.1 1\r\n?"));
            requester.send_line("PING");
            let line = requester.line();
            if line == "PONG" {
                return false;
            }
            let words: Vec<&str> = line.split(' ').collect();
            assert_eq!(words[..2], ["HMSG", "_INBOX.me.1"]);
            (0..3).for_each(|_| drop(requester.line()));
            assert_eq!(requester.line(), "PONG");
            true
        });
    }
}

#[test]
fn dunlin_request_fails_if_no_node_has_a_responder() {
    let cluster = TestCluster::patient(3);
    let assert_no_responder = |subject: &str| {
        let outcome = cluster.client(1).request(subject, "?", PATIENCE);
        assert_eq!(outcome.unwrap_err(), RequestError::NoResponder(subject.to_owned()));
        let outcome = cluster.node(2).request(subject, "?", PATIENCE);
        assert_eq!(outcome.unwrap_err(), RequestError::NoResponder(subject.to_owned()));
    };
    assert_no_responder("help");
    let _responder = cluster.node(3).respond("help", |mut request| drop(request.reply("here"))).unwrap();
    for _ in 0..2 {
        assert_eq!(cluster.client(1).request("help", "?", PATIENCE).unwrap().payload, b"here");
        assert_eq!(cluster.node(2).request("help", "?", PATIENCE).unwrap().payload, b"here");
    }
    assert!(!cluster.has_topics("other"));
    assert_no_responder("other");
    assert!(!cluster.has_topics("other"));
}

#[test]
fn request_is_published_while_a_member_node_is_silent() {
    let cluster = TestCluster::patient(3);
    let mut requester = cluster.requester(1);
    assert!(is_no_responder(&request(&mut requester, "help")));
    cluster.stop_with_lease(3);
    // Node 3 may have a subscriber, because it is still a member. The request is therefore published.
    requester.send_line("PUB help _INBOX.me.1 1\r\n?");
    requester.ping();
    assert!(cluster.has_topics("help"));
    let lease = cluster.state.lock().unwrap().get(&node_key(3)).map(|item| item.lease);
    cluster.apply(&ControlCommand::Revoke { lease: lease.unwrap() }).unwrap();
    assert!(is_no_responder(&request(&mut requester, "other")));
}

#[test]
fn inbox_with_custom_prefix_creates_no_topic_on_any_node() {
    const REQUESTS: usize = 50;
    let cluster = TestCluster::patient(3);
    for (requester_node, responder_node) in [(1, 2), (2, 3), (3, 3)] {
        let mut requester = cluster.nats(requester_node);
        let prefix = format!("acme.reply.{requester_node}{responder_node}");
        requester.subscribe(&format!("{prefix}.* 1"));
        let subject = format!("svc.{requester_node}.{responder_node}");
        let mut service = cluster.responder(responder_node, &format!("{subject} 1"));
        for number in 0..REQUESTS {
            let reply = format!("{prefix}.{number}");
            requester.send_line(&format!("PUB {subject} {reply} 1\r\n?"));
            reply_to_next(&mut service, "here");
            assert_eq!(requester.text(), (reply, "here".to_owned()));
        }
        drop(requester);
        service.ping();
    }
    assert!(!cluster.has_topics("acme."));
    let replies = Pattern::parse("acme.reply.12.0").unwrap();
    until("the inboxes end with their clients", || cluster.node(1).local_interest(&replies).inbox.is_none());
    let state = cluster.state.lock().unwrap();
    assert!(
        (0..REQUESTS).all(|number| state.placement(format!("acme.reply.12.{number}").as_bytes()).is_none())
    );
}

#[test]
fn reply_reaches_subscribers_of_its_subject_at_two_nodes() {
    let cluster = TestCluster::patient(2);
    let (mut requester, mut watcher) = (cluster.nats(1), cluster.nats(2));
    watcher.subscribe("acme.> 1");
    requester.subscribe("acme.reply.u.* 1");
    let mut service = cluster.responder(2, "svc 1");
    requester.send_line("PUB svc acme.reply.u.1 1\r\n?");
    reply_to_next(&mut service, "here");
    let reply = ("acme.reply.u.1".to_owned(), "here".to_owned());
    assert_eq!((requester.text(), watcher.text()), (reply.clone(), reply));
}

#[test]
fn replies_go_to_a_new_topic_that_matches_their_subject() {
    let cluster = TestCluster::patient(2);
    let mut requester = cluster.nats(1);
    requester.subscribe("acme.reply.u.* 1");
    let mut service = cluster.responder(2, "svc 1");
    requester.send_line("PUB svc acme.reply.u.1 1\r\n?");
    reply_to_next(&mut service, "here");
    assert_eq!(requester.text().1, "here");
    let config = TopicConfig { pattern: Some("acme.>".to_owned()), ..TopicConfig::default() };
    cluster.node(2).create_topic("acme", config, false).unwrap();
    until("node 1 has it, too", || cluster.node(1).topic("acme").is_some());
    let mut publisher = cluster.nats(2);
    publisher.publish("acme.reply.u.2", "by the topic");
    assert_eq!(requester.text(), ("acme.reply.u.2".to_owned(), "by the topic".to_owned()));
}

#[test]
fn late_reply_creates_no_topic_on_any_node() {
    let cluster = TestCluster::patient(3);
    // In all three cases, the requester no longer waits when the service replies. In the first case, the requester had
    // subscribed to the reply subject. In the third case, the service is a member of a queue group.
    for (number, subscription) in ["svc.0 1", "svc.1 1", "svc.2 workers 1"].into_iter().enumerate() {
        let (mut requester, mut service) = (cluster.nats(1), cluster.responder(2, subscription));
        let reply = format!("acme.late.{number}.1");
        if number == 0 {
            requester.subscribe("acme.late.0.* 1");
        }
        requester.send_line(&format!("PUB svc.{number} {reply} 1\r\n?"));
        let request = service.message();
        assert_eq!(request.reply.as_deref(), Some(reply.as_str()));
        requester.send_line("UNSUB 1");
        requester.ping();
        service.publish(&reply, "too late");
        // If the node had refused the reply, an error would arrive before PONG.
        service.ping();
    }
    assert!(!cluster.has_topics("acme."));
}

#[test]
fn shared_inbox_lasts_until_its_last_connection_unsubscribes() {
    let cluster = TestCluster::patient(2);
    let (mut before, mut after, mut replies) = (cluster.requester(1), cluster.requester(1), cluster.nats(2));
    before.send_line("UNSUB 1");
    before.ping();
    replies.publish("_INBOX.me.1", "to the one that stayed");
    assert_eq!(after.text().1, "to the one that stayed");
    after.send_line("UNSUB 1");
    after.ping();
    let mut again = cluster.requester(1);
    replies.publish("_INBOX.me.1", "to the next");
    assert_eq!(again.text().1, "to the next");
}
