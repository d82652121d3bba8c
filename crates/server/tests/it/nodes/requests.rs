//! Tests requests and replies of NATS clients at different nodes. A request without a subscriber on any node fails at
//! once. Subjects that are used once leave no topic on any node.

use std::sync::Arc;
use std::time::Duration;

use dunlin::state::{ControlCommand, node_key};
use dunlin::topic::{Pattern, TopicConfig};
use dunlin::{OwnershipLimits, RequestError};
use dunlin_wait::{PATIENCE, until};

use super::TestCluster;
use crate::nats_peer::{Got, NatsPeer};

/// Publishes a request whose reply subject is `_INBOX.me.1`, and returns the reply.
fn ask(asker: &mut NatsPeer, subject: &str) -> Got {
    asker.say(&format!("PUB {subject} _INBOX.me.1 1\r\n?"));
    asker.message()
}

fn is_no_responder(got: &Got) -> bool {
    got.subject == "_INBOX.me.1" && got.headers == [" 503"]
}

impl TestCluster {
    /// A cluster whose nodes wait for each other's responses as long as a busy machine needs.
    pub(super) fn patient(count: u64) -> Arc<TestCluster> {
        let mirror_wait_max = Duration::from_secs(600);
        TestCluster::with(count, OwnershipLimits { mirror_wait_max, ..OwnershipLimits::default() })
    }

    fn asker(&self, id: u64) -> NatsPeer {
        let mut asker = self.nats(id);
        asker.subscribe("_INBOX.me.* 1");
        asker
    }

    /// A NATS client that answers each request with the request's subject.
    fn answers(&self, id: u64, subscription: &str) -> NatsPeer {
        let mut service = self.nats(id);
        service.subscribe(subscription);
        service
    }

    /// Whether a node, or the agreed state, has a topic whose name begins with this prefix.
    pub(super) fn has_topics(&self, prefix: &str) -> bool {
        let members = self.members.lock().unwrap();
        members.values().any(|member| {
            let page = member.node.topics(None, "", usize::MAX);
            page.topics.iter().any(|topic| topic.name().starts_with(prefix))
        }) || self.state.lock().unwrap().placement(prefix.as_bytes()).is_some()
    }
}

fn answer(service: &mut NatsPeer, text: &str) -> Got {
    let request = service.message();
    service.publish(request.reply.as_deref().unwrap(), text);
    request
}

#[test]
fn request_without_subscriber_on_any_node_gets_503() {
    let hall = TestCluster::patient(3);
    for id in [1, 2, 3] {
        let mut asker = hall.asker(id);
        for subject in ["help", "help.me.now", "$SRV.PING.nobody", "_INBOX.gone.1", "$JS.API.INFO"] {
            assert!(is_no_responder(&ask(&mut asker, subject)), "{subject} at node {id}");
        }
        asker.settle();
    }
    assert!(!hall.has_topics("help") && !hall.has_topics("$SRV"));
}

/// The topic exists, and other subjects of it have subscribers.
#[test]
fn request_to_an_unread_subject_of_a_topic_gets_503() {
    let hall = TestCluster::patient(3);
    let mut first = hall.asker(1);
    for prefix in ["calc", "$SRV"] {
        let mut service = hall.answers(2, &format!("{prefix}.PING.a 1"));
        first.say(&format!("PUB {prefix}.PING.a _INBOX.me.1 1\r\n?"));
        answer(&mut service, "yes");
        first.text();
        assert!(hall.has_topics(prefix));
        for id in [1, 2, 3] {
            let mut asker = hall.asker(id);
            for subject in ["nope", "PING.nope", "PING.a.nope"] {
                assert!(
                    is_no_responder(&ask(&mut asker, &format!("{prefix}.{subject}"))),
                    "{prefix}.{subject} at {id}"
                );
            }
            // Uses a new inbox name, because other nodes may still list `_INBOX.me` for an earlier client.
            let inbox = format!("_INBOX.{}{id}", prefix.len());
            asker.subscribe(&format!("{inbox}.* 2"));
            asker.say(&format!("PUB {prefix}.PING.a {inbox}.1 1\r\n?"));
            answer(&mut service, "yes");
            assert_eq!(asker.text(), (format!("{inbox}.1"), "yes".to_owned()));
        }
    }
}

#[test]
fn request_reaches_a_subscriber_at_another_node() {
    let hall = TestCluster::patient(3);
    let mut asker = hall.asker(1);
    let subscriptions = [(2, "plain 1", "plain"), (3, "jobs workers 1", "jobs"), (2, "wide.> 1", "wide.a.b")];
    for (id, subscription, subject) in subscriptions {
        assert!(is_no_responder(&ask(&mut asker, subject)), "{subject}");
        let mut service = hall.answers(id, subscription);
        for round in 0..3 {
            asker.say(&format!("PUB {subject} _INBOX.me.1 1\r\n?"));
            let text = format!("{subject} {round}");
            assert_eq!(answer(&mut service, &text).subject, subject);
            assert_eq!(asker.text(), ("_INBOX.me.1".to_owned(), text));
        }
    }
}

#[test]
fn request_after_the_last_subscriber_has_left_gets_503() {
    let hall = TestCluster::patient(3);
    // The service is at the owner, at a node that reads the topic through its mirror, or at the node of the requester.
    for (owner, id) in [(1, 2), (2, 3), (3, 1), (2, 2)] {
        let subject = format!("left.{owner}.{id}");
        hall.topic_at(owner, &subject, TopicConfig::default());
        let mut asker = hall.asker(1);
        let mut service = hall.answers(id, &format!("{subject} 1"));
        asker.say(&format!("PUB {subject} _INBOX.me.1 1\r\n?"));
        answer(&mut service, "here");
        assert_eq!(asker.text().1, "here");
        service.say("UNSUB 1");
        service.settle();
        // For a moment, the node still counts the ended subscription. A request during that time gets no response.
        until("it is told", || {
            asker.say(&format!("PUB {subject} _INBOX.me.1 1\r\n?"));
            asker.say("PING");
            let line = asker.line();
            if line == "PONG" {
                return false;
            }
            let words: Vec<&str> = line.split(' ').collect();
            assert_eq!(words[..2], ["HMSG", "_INBOX.me.1"]);
            (0..3).for_each(|_| drop(asker.line()));
            assert_eq!(asker.line(), "PONG");
            true
        });
    }
}

#[test]
fn dunlin_request_fails_if_no_node_has_a_responder() {
    let hall = TestCluster::patient(3);
    let nobody = |subject: &str| {
        let outcome = hall.client(1).request(subject, "?", PATIENCE);
        assert_eq!(outcome.unwrap_err(), RequestError::NoResponder(subject.to_owned()));
        let outcome = hall.node(2).request(subject, "?", PATIENCE);
        assert_eq!(outcome.unwrap_err(), RequestError::NoResponder(subject.to_owned()));
    };
    nobody("help");
    let _responder = hall.node(3).respond("help", |mut request| drop(request.reply("here"))).unwrap();
    for _ in 0..2 {
        assert_eq!(hall.client(1).request("help", "?", PATIENCE).unwrap().payload, b"here");
        assert_eq!(hall.node(2).request("help", "?", PATIENCE).unwrap().payload, b"here");
    }
    assert!(!hall.has_topics("other"));
    nobody("other");
    assert!(!hall.has_topics("other"));
}

#[test]
fn request_is_published_while_a_member_node_is_silent() {
    let hall = TestCluster::patient(3);
    let mut asker = hall.asker(1);
    assert!(is_no_responder(&ask(&mut asker, "help")));
    hall.silence(3);
    // The node is still a member, so the request is published.
    asker.say("PUB help _INBOX.me.1 1\r\n?");
    asker.settle();
    assert!(hall.has_topics("help"));
    let lease = hall.state.lock().unwrap().get(&node_key(3)).map(|item| item.lease);
    hall.apply(&ControlCommand::Revoke { lease: lease.unwrap() }).unwrap();
    assert!(is_no_responder(&ask(&mut asker, "other")));
}

#[test]
fn inbox_with_custom_prefix_creates_no_topic_on_any_node() {
    const REQUESTS: usize = 50;
    let hall = TestCluster::patient(3);
    for (asks, answers) in [(1, 2), (2, 3), (3, 3)] {
        let mut asker = hall.nats(asks);
        let prefix = format!("acme.reply.{asks}{answers}");
        asker.subscribe(&format!("{prefix}.* 1"));
        let subject = format!("svc.{asks}.{answers}");
        let mut service = hall.answers(answers, &format!("{subject} 1"));
        for number in 0..REQUESTS {
            let reply = format!("{prefix}.{number}");
            asker.say(&format!("PUB {subject} {reply} 1\r\n?"));
            answer(&mut service, "here");
            assert_eq!(asker.text(), (reply, "here".to_owned()));
        }
        drop(asker);
        service.settle();
    }
    assert!(!hall.has_topics("acme."));
    let replies = Pattern::parse("acme.reply.12.0").unwrap();
    until("the inboxes end with their clients", || hall.node(1).interest_here(&replies).inbox.is_none());
    let state = hall.state.lock().unwrap();
    assert!(
        (0..REQUESTS).all(|number| state.placement(format!("acme.reply.12.{number}").as_bytes()).is_none())
    );
}

#[test]
fn reply_subject_read_at_two_nodes_reaches_both_subscribers() {
    let hall = TestCluster::patient(2);
    let (mut asker, mut watcher) = (hall.nats(1), hall.nats(2));
    watcher.subscribe("acme.> 1");
    asker.subscribe("acme.reply.u.* 1");
    let mut service = hall.answers(2, "svc 1");
    asker.say("PUB svc acme.reply.u.1 1\r\n?");
    answer(&mut service, "here");
    let reply = ("acme.reply.u.1".to_owned(), "here".to_owned());
    assert_eq!((asker.text(), watcher.text()), (reply.clone(), reply));
}

#[test]
fn topic_created_on_another_node_replaces_a_custom_inbox() {
    let hall = TestCluster::patient(2);
    let mut asker = hall.nats(1);
    asker.subscribe("acme.reply.u.* 1");
    let mut service = hall.answers(2, "svc 1");
    asker.say("PUB svc acme.reply.u.1 1\r\n?");
    answer(&mut service, "here");
    assert_eq!(asker.text().1, "here");
    let config = TopicConfig { pattern: Some("acme.>".to_owned()), ..TopicConfig::default() };
    hall.node(2).create_topic("acme", config, false).unwrap();
    until("node 1 has it, too", || hall.node(1).topic("acme").is_some());
    let mut publisher = hall.nats(2);
    publisher.publish("acme.reply.u.2", "by the topic");
    assert_eq!(asker.text(), ("acme.reply.u.2".to_owned(), "by the topic".to_owned()));
}

#[test]
fn late_reply_creates_no_topic_on_any_node() {
    let hall = TestCluster::patient(3);
    // The service publishes to a subject that was an inbox, to another subject, and as a member of a queue group.
    for (number, subscription) in ["svc.0 1", "svc.1 1", "svc.2 workers 1"].into_iter().enumerate() {
        let (mut asker, mut service) = (hall.nats(1), hall.answers(2, subscription));
        let reply = format!("acme.late.{number}.1");
        if number == 0 {
            asker.subscribe("acme.late.0.* 1");
        }
        asker.say(&format!("PUB svc.{number} {reply} 1\r\n?"));
        let request = service.message();
        assert_eq!(request.reply.as_deref(), Some(reply.as_str()));
        asker.say("UNSUB 1");
        asker.settle();
        service.publish(&reply, "too late");
        // The node must not refuse any record.
        service.settle();
    }
    assert!(!hall.has_topics("acme."));
}

#[test]
fn shared_inbox_lasts_until_its_last_connection_unsubscribes() {
    let hall = TestCluster::patient(2);
    let (mut before, mut after, mut replies) = (hall.asker(1), hall.asker(1), hall.nats(2));
    before.say("UNSUB 1");
    before.settle();
    replies.publish("_INBOX.me.1", "to the one that stayed");
    assert_eq!(after.text().1, "to the one that stayed");
    after.say("UNSUB 1");
    after.settle();
    let mut again = hall.asker(1);
    replies.publish("_INBOX.me.1", "to the next");
    assert_eq!(again.text().1, "to the next");
}
