use std::time::Duration;

use dunlin_client::RequestError;
use dunlin_client::topic::{Event, PublishError, Subscribe};
use dunlin_wait::PATIENCE;
use dunlin_wire::*;

use crate::peer::{ScriptedNode, at, frame};

/// Reads the client's subscription to its inbox for replies, and opens the log of the inbox. Returns the pattern of the
/// subscription.
fn accept_inbox(link: &mut crate::peer::Link) -> String {
    let (subscription, pattern) = link.next(|message| match message {
        FromClient::Subscribe(subscribe) => (subscribe.subscription, subscribe.pattern.to_owned()),
        other => panic!("{other:?}"),
    });
    assert!(pattern.starts_with("_INBOX.2.") && pattern.ends_with(".>"), "{pattern}");
    link.send(FromNode::Log(Log {
        subscription,
        channel: 5,
        partition: 0,
        after: at(1, 0),
        topic: "_INBOX.2",
        subject_prefix: "_INBOX.2.",
    }));
    link.send(FromNode::Subscribed(Subscribed { subscription, logs: 1 }));
    pattern
}

/// Reads the query that asks whether a subject has a subscriber, and responds that the subject has one.
fn confirm_subscriber(link: &mut crate::peer::Link) {
    let request = link.next(|message| match message {
        FromClient::DescribeSettings(NamedTopic { request, topic: "$DUNLIN.heard.orders.eu" }) => request,
        other => panic!("{other:?}"),
    });
    link.send(FromNode::Settings(Settings { request, settings: MessageList::new(&[]) }));
}

fn accept_request(link: &mut crate::peer::Link) -> String {
    link.next(|message| match message {
        FromClient::Publish(publish) => {
            assert_eq!(publish.flags, FLAG_QUIET);
            let (frame, _) = dunlin_frame::Frame::check(publish.frames, 4096).unwrap();
            frame.reply().unwrap().to_owned()
        }
        other => panic!("{other:?}"),
    })
}

fn reply(link: &mut crate::peer::Link, seq: u64, subject: &str, payload: &str) {
    let frames = frame(subject.strip_prefix("_INBOX.2.").unwrap(), payload);
    let header = dunlin_frame::BatchHeader {
        topic_id: 5,
        epoch: 1,
        prev_seq: seq - 1,
        first_seq: seq,
        count: 1,
        bytes: frames.len() as u32,
    };
    link.send(FromNode::Batch(Batch { header, frames: &frames }));
}

#[test]
fn request_gets_its_reply_and_skips_late_replies() {
    let (client, node) = ScriptedNode::serve(|_, mut link| {
        accept_inbox(&mut link);
        confirm_subscriber(&mut link);
        link.accept_publisher();
        let late = accept_request(&mut link);
        let second = accept_request(&mut link);
        assert_ne!(late, second);
        reply(&mut link, 1, &late, "too late");
        reply(&mut link, 2, &second, "in time");
        link.wait_until_closed();
    });
    let mut requester = client.requester();
    let timeout = Duration::from_millis(50);
    assert_eq!(requester.request("orders.eu", "a", timeout), Err(RequestError::TimedOut(timeout)));
    let response = requester.request("orders.eu", "b", PATIENCE).unwrap();
    assert_eq!(response.payload, b"in time");
    drop((requester, client));
    node.join().unwrap();
}

#[test]
fn request_survives_a_lost_connection_while_its_inbox_opens() {
    let (client, node) = ScriptedNode::serve(|peer, mut link| {
        link.next(|message| assert!(matches!(message, FromClient::Subscribe(_)), "{message:?}"));
        drop(link);
        let mut link = peer.accept();
        let continued = accept_inbox(&mut link);
        link.next(|message| assert!(matches!(message, FromClient::Unsubscribe { .. }), "{message:?}"));
        assert_ne!(accept_inbox(&mut link), continued);
        confirm_subscriber(&mut link);
        link.accept_publisher();
        let subject = accept_request(&mut link);
        reply(&mut link, 1, &subject, "in time");
        link.wait_until_closed();
    });
    let mut requester = client.requester();
    assert_eq!(requester.request("orders.eu", "a", PATIENCE).unwrap().payload, b"in time");
    drop((requester, client));
    node.join().unwrap();
}

#[test]
fn refused_request_fails_at_once() {
    let (client, node) = ScriptedNode::serve(|_, mut link| {
        accept_inbox(&mut link);
        confirm_subscriber(&mut link);
        let (publisher, ..) = link.accept_publisher();
        accept_request(&mut link);
        let refusal = Refusal { code: ErrorCode::BudgetSpent, numbers: [1, 2, 3], text: "" };
        link.send(FromNode::PublishRefused(PublishRefused {
            publisher,
            partition: 0,
            producer_seq: 1,
            count: 1,
            refusal,
        }));
        link.wait_until_closed();
    });
    let refused = client.requester().request("orders.eu", "a", PATIENCE);
    let expected = PublishError::BudgetSpent { requested: 1, used: 2, limit: 3 };
    assert_eq!(refused, Err(RequestError::Publish(expected)));
    drop(client);
    node.join().unwrap();
}

#[test]
fn replies_are_sent_without_waiting_for_an_acknowledgement() {
    let (client, node) = ScriptedNode::serve(|_, mut link| {
        link.accept_subscription(at(1, 0));
        link.send_batch(1, 0, 1, &["ask"]);
        // The responder must send both replies through one publisher, which requests no acknowledgements.
        link.next(|message| match message {
            FromClient::OpenPublisher(open) => {
                assert_eq!((open.subject, open.producer), ("_INBOX.9.>", NO_PRODUCER));
            }
            other => panic!("{other:?}"),
        });
        for tail in ["3.1", "4.7"] {
            link.next(|message| match message {
                FromClient::Publish(publish) => {
                    let (frame, _) = dunlin_frame::Frame::check(publish.frames, 4096).unwrap();
                    assert_eq!((frame.subject_tail(), frame.payload()), (tail, &b"answer"[..]));
                }
                other => panic!("{other:?}"),
            });
        }
        link.wait_until_closed();
    });
    let mut subscriber = client.subscribe("orders.>", Default::default()).unwrap();
    let mut responder = client.responder();
    assert!(matches!(subscriber.next().unwrap(), Event::Record(_)));
    responder.reply("_INBOX.9.3.1", "answer").unwrap();
    responder.reply("_INBOX.9.4.7", "answer").unwrap();
    drop((subscriber, responder, client));
    node.join().unwrap();
}

#[test]
fn refused_reply_does_not_prevent_the_next_reply() {
    let (returned_sender, first_returned) = std::sync::mpsc::channel();
    let (client, node) = ScriptedNode::serve(move |_, mut link| {
        link.accept_subscription(at(1, 0));
        let publisher = link.next(|message| match message {
            FromClient::OpenPublisher(open) => open.publisher,
            other => panic!("{other:?}"),
        });
        link.accept_publish();
        first_returned.recv_timeout(PATIENCE).unwrap();
        let refusal = Refusal::new(ErrorCode::Forbidden, "_INBOX.9.3.1");
        link.send(FromNode::PublisherRefused(PublisherRefused { publisher, refusal }));
        link.send_batch(1, 0, 1, &["ask"]);
        let mut replies = Vec::new();
        while replies.is_empty() {
            link.next(|message| {
                if let FromClient::Publish(publish) = message {
                    let (frame, _) = dunlin_frame::Frame::check(publish.frames, 4096).unwrap();
                    replies.push((frame.subject_tail().to_owned(), frame.payload().to_vec()));
                }
            });
        }
        assert_eq!(replies, [("4.7".to_owned(), b"second".to_vec())]);
        link.wait_until_closed();
    });
    let mut subscriber = client.subscribe("orders.>", Default::default()).unwrap();
    let mut responder = client.responder();
    responder.reply("_INBOX.9.3.1", "first").unwrap();
    returned_sender.send(()).unwrap();
    // The node has sent this record after the refusal, so the client has also received the refusal.
    assert!(matches!(subscriber.next().unwrap(), Event::Record(_)));
    let refused = responder.reply("_INBOX.9.4.7", "second");
    assert!(matches!(refused, Err(PublishError::Forbidden(_))), "{refused:?}");
    drop((subscriber, responder, client));
    node.join().unwrap();
}

#[test]
fn topics_are_listed_page_by_page() {
    let (client, node) = ScriptedNode::serve(|_, mut link| {
        for (after, names, more) in [("", &["a", "b"][..], true), ("b", &["c"], false)] {
            let request = link.next(|message| match message {
                FromClient::ListTopics(list) => {
                    assert_eq!(list.after, after);
                    list.request
                }
                other => panic!("{other:?}"),
            });
            let line = |name| ListedTopic {
                name,
                pattern: name,
                partitions: 1,
                reliable: false,
                records: 0,
                bytes: 0,
                appended: 0,
                subscribers: 0,
            };
            let lines: Vec<ListedTopic<'_>> = names.iter().map(|&name| line(name)).collect();
            link.send(FromNode::Topics(Topics { request, more, topics: MessageList::new(&lines) }));
        }
        let request = link.next(|message| match message {
            FromClient::DeleteTopic(delete) => delete.request,
            other => panic!("{other:?}"),
        });
        let refusal = Refusal::new(ErrorCode::NoTopic, "z");
        link.send(FromNode::RequestRefused(RequestRefused { request, refusal }));
        link.wait_until_closed();
    });
    let names: Vec<String> = client.topics("").unwrap().into_iter().map(|topic| topic.name).collect();
    assert_eq!(names, ["a", "b", "c"]);
    let Err(dunlin_client::CallError::Refused(refused)) = client.delete_topic("z") else { panic!("done") };
    assert_eq!(refused.code, ErrorCode::NoTopic);
    drop(client);
    node.join().unwrap();
}

#[test]
fn topic_queries_are_repeated_after_a_lost_connection() {
    let settings_request = |message: FromClient<'_>| match message {
        FromClient::DescribeSettings(NamedTopic { request, topic: "jobs" }) => request,
        other => panic!("{other:?}"),
    };
    let (client, node) = ScriptedNode::serve(move |node, mut link| {
        link.next(|message| assert!(matches!(message, FromClient::ListTopics(_)), "{message:?}"));
        drop(link);
        let mut link = node.accept();
        let request = link.next(|message| match message {
            FromClient::ListTopics(list) => list.request,
            other => panic!("{other:?}"),
        });
        link.send(FromNode::Topics(Topics { request, more: false, topics: MessageList::new(&[]) }));
        for _ in 0..2 {
            link.next(settings_request);
            drop(link);
            link = node.accept();
            let request = link.next(settings_request);
            link.send(FromNode::Settings(Settings { request, settings: MessageList::new(&[]) }));
        }
        link.wait_until_closed();
    });
    assert!(client.topics("").unwrap().is_empty());
    assert!(client.topic_settings("jobs").unwrap().is_empty());
    assert_eq!(client.settings_of_topics(&["jobs"]), [Ok(Vec::new())]);
    drop(client);
    node.join().unwrap();
}

#[test]
fn request_with_a_lost_response_has_an_unknown_outcome() {
    let (client, node) = ScriptedNode::serve(|_, mut link| {
        link.next(|message| assert!(matches!(message, FromClient::DeleteTopic(_))));
    });
    assert!(matches!(client.delete_topic("z"), Err(dunlin_client::CallError::Unknown(_))));
    drop(client);
    node.join().unwrap();
}
