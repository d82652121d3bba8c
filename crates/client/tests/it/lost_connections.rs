use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use dunlin_client::state::{ControlOutcome, ControlReply};
use dunlin_client::topic::{Subscribe, SubscribeError, SubscribeOptions};
use dunlin_client::{Client, ClientLimits, ClientOptions, KvError, Subscriber};
use dunlin_wait::{Deadline, PATIENCE};
use dunlin_wire::*;

use crate::peer::{FAST_HEARTBEAT_MS, Link, ScriptedNode, at, event_text, heartbeats};

/// The shortest silence after which the client may consider the node dead: two heartbeat intervals, less the time that
/// may pass before the test begins to measure.
const SILENCE_MIN: Duration = Duration::from_millis(2 * FAST_HEARTBEAT_MS as u64 - 50);

/// Reads RESUME and SUBSCRIBE, and accepts the subscription. Returns the positions that RESUME contains.
fn accept_resumption(link: &mut Link, after: Option<Position>) -> Vec<(String, Position)> {
    let positions = link.next(|message| match message {
        FromClient::Resume(resume) => {
            resume.logs.iter().map(|log| (log.topic.to_owned(), log.position)).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    });
    let subscription = link.next(|message| match message {
        FromClient::Subscribe(subscribe) => {
            assert_eq!(subscribe.start, StartAt::Resume);
            subscribe.subscription
        }
        other => panic!("{other:?}"),
    });
    if let Some(after) = after {
        link.announce(subscription, after);
    } else {
        link.send(FromNode::Subscribed(Subscribed { subscription, logs: 0 }));
    }
    positions
}

/// Subscribes, and checks that the subscriber receives exactly these events. Then ends the client and the scripted
/// node.
fn expect_events(client: Client, node: thread::JoinHandle<()>, expected: &[&str]) {
    let mut subscriber = client.subscribe("orders.>", SubscribeOptions::default()).unwrap();
    let events: Vec<String> = expected.iter().map(|_| event_text(&subscriber.next().unwrap())).collect();
    assert_eq!(events, expected);
    drop((subscriber, client));
    node.join().unwrap();
}

#[test]
fn subscription_resumes_by_position_after_a_lost_connection() {
    let (client, node) = ScriptedNode::serve(|peer, mut link| {
        link.accept_subscription(at(2, 10));
        link.send_batch(2, 10, 11, &["a", "b"]);
        drop(link);
        let mut link = peer.accept();
        assert_eq!(accept_resumption(&mut link, Some(at(2, 12))), [("orders".to_owned(), at(2, 12))]);
        link.send_batch(2, 12, 13, &["c"]);
        link.wait_until_closed();
    });
    let mut subscriber = client.subscribe("orders.>", SubscribeOptions::default()).unwrap();
    let received: Vec<String> = (0..3).map(|_| event_text(&subscriber.next().unwrap())).collect();
    assert_eq!(received, ["2-11 a", "2-12 b", "2-13 c"]);
    assert_eq!(client.connections(), 2);
    drop((subscriber, client));
    node.join().unwrap();
}

/// In this test, the deleted topic (epoch 2) gets its channel after the later topic with the same name (epoch 3).
#[test]
fn deleted_topic_does_not_hide_a_later_topic_of_the_same_name() {
    let (client, node) = ScriptedNode::serve(|peer, mut link| {
        let subscription = link.accept_subscription(at(3, 0));
        link.send(FromNode::Log(Log {
            subscription,
            channel: 5,
            partition: 0,
            after: at(2, 10),
            topic: "orders",
            subject_prefix: "orders.",
        }));
        link.send_batch(3, 0, 1, &["a"]);
        let consumed = link.next(|message| match message {
            FromClient::Credit(credit) => credit.consumed.iter().collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        });
        assert_eq!(consumed, [ChannelPosition { channel: 1, position: at(3, 1) }]);
        drop(link);
        let mut link = peer.accept();
        assert_eq!(accept_resumption(&mut link, Some(at(3, 1))), [("orders".to_owned(), at(3, 1))]);
        link.send_batch(3, 1, 2, &["b"]);
        link.wait_until_closed();
    });
    let options = SubscribeOptions { registered: true, ..SubscribeOptions::default() };
    let mut subscriber = client.subscribe("orders.>", options).unwrap();
    let received: Vec<String> = (0..2).map(|_| event_text(&subscriber.next().unwrap())).collect();
    assert_eq!(received, ["3-1 a", "3-2 b"]);
    drop((subscriber, client));
    node.join().unwrap();
}

#[test]
fn subscriber_continues_after_temporary_refusals() {
    const WAIT_MS: u64 = 300;
    let (client, node) = ScriptedNode::serve(|peer, mut link| {
        link.accept_subscription(at(2, 10));
        link.send_batch(2, 10, 11, &["a"]);
        drop(link);
        let refuse = |refusal| {
            let mut link = peer.accept_silently();
            link.read_hello();
            link.send_bytes(&Preamble::chosen(VERSION).to_bytes());
            link.send(FromNode::Refused(refusal));
            link.wait_until_closed();
        };
        let numbers = [WAIT_MS, 5, 0];
        refuse(Refusal { numbers, ..Refusal::new(ErrorCode::RateLimit, "logins_per_minute_max") });
        let refused = Instant::now();
        refuse(Refusal::new(ErrorCode::Limit, "sessions_max"));
        assert!(refused.elapsed() >= Duration::from_millis(WAIT_MS), "the client waits as it was told");
        let mut link = peer.accept();
        assert_eq!(accept_resumption(&mut link, Some(at(2, 11))), [("orders".to_owned(), at(2, 11))]);
        link.send_batch(2, 11, 12, &["b"]);
        link.wait_until_closed();
    });
    expect_events(client, node, &["2-11 a", "2-12 b"]);
}

#[test]
fn node_of_another_cluster_is_reported() {
    let peer = ScriptedNode::new();
    let url = peer.url();
    let node = thread::spawn(move || {
        let welcome = |cluster| {
            let mut link = peer.accept_silently();
            link.read_hello();
            link.welcome_in_cluster(VERSION, cluster);
            link
        };
        let mut link = welcome("5f0c");
        link.accept_subscription(at(2, 10));
        link.send_batch(2, 10, 11, &["a", "b"]);
        drop(link);
        for cluster in ["77aa", NO_CLUSTER] {
            // To a node of another cluster, the client must send nothing.
            welcome(cluster).expect_silent_close();
        }
        let mut link = welcome("5f0c");
        assert_eq!(accept_resumption(&mut link, Some(at(2, 12))), [("orders".to_owned(), at(2, 12))]);
        link.send_batch(2, 12, 13, &["c"]);
        link.wait_until_closed();
    });
    let limits = ClientLimits { connect_ms_max: PATIENCE.as_millis() as u64, ..ClientLimits::default() };
    let client = Client::connect(&url, ClientOptions { limits, ..ClientOptions::default() }).unwrap();
    let mut subscriber = client.subscribe("orders.>", SubscribeOptions::default()).unwrap();
    let (mut received, mut refused) = (Vec::new(), BTreeSet::new());
    while received.len() < 3 {
        match subscriber.next_timeout(PATIENCE) {
            Ok(Some(event)) => received.push(event_text(&event)),
            Ok(None) => panic!("nothing in time: {received:?}"),
            Err(error) => drop(refused.insert(error.to_string())),
        }
    }
    assert_eq!(received, ["2-11 a", "2-12 b", "2-13 c"]);
    let refused: Vec<&String> = refused.iter().filter(|text| text.contains("OTHER_CLUSTER")).collect();
    assert!(refused.iter().any(|text| text.contains("cluster 77aa")), "{refused:?}");
    assert_eq!(client.connections(), 2);
    drop((subscriber, client));
    node.join().unwrap();
}

#[test]
fn client_continues_with_a_node_that_became_a_cluster_member() {
    let peer = ScriptedNode::new();
    let url = peer.url();
    let node = thread::spawn(move || {
        let mut link = peer.accept();
        link.accept_subscription(at(2, 10));
        drop(link);
        let mut link = peer.accept_silently();
        link.read_hello();
        link.welcome_in_cluster(VERSION, "5f0c");
        accept_resumption(&mut link, Some(at(2, 10)));
        link.send_batch(2, 10, 11, &["a"]);
        link.wait_until_closed();
    });
    let limits = ClientLimits { connect_ms_max: PATIENCE.as_millis() as u64, ..ClientLimits::default() };
    let client = Client::connect(&url, ClientOptions { limits, ..ClientOptions::default() }).unwrap();
    let mut subscriber = client.subscribe("orders.>", SubscribeOptions::default()).unwrap();
    assert_eq!(event_text(&subscriber.next().unwrap()), "2-11 a");
    drop((subscriber, client));
    node.join().unwrap();
}

#[test]
fn subscription_resumed_at_a_later_position_gets_a_gap() {
    let (client, node) = ScriptedNode::serve(|peer, mut link| {
        link.accept_subscription(at(2, 10));
        drop(link);
        let mut link = peer.accept();
        accept_resumption(&mut link, Some(at(2, 14)));
        link.send_batch(2, 14, 15, &["c"]);
        link.wait_until_closed();
    });
    expect_events(client, node, &["gap 2-11..14", "2-15 c"]);
}

#[test]
fn topic_recreated_after_a_restart_begins_a_new_epoch() {
    let (client, node) = ScriptedNode::serve(|peer, mut link| {
        link.accept_subscription(at(2, 10));
        drop(link);
        let mut link = peer.accept();
        accept_resumption(&mut link, None);
        link.send(FromNode::Log(Log {
            subscription: 1,
            channel: 9,
            partition: 0,
            after: at(7, 0),
            topic: "orders",
            subject_prefix: "orders.",
        }));
        link.send_batch_on(9, 7, 0, 1, &["c"]);
        link.wait_until_closed();
    });
    expect_events(client, node, &["epoch 2-10 None 7-1", "7-1 c"]);
}

#[test]
fn partial_message_of_a_lost_connection_is_discarded() {
    let (client, node) = ScriptedNode::serve(|peer, mut link| {
        link.accept_subscription(at(2, 10));
        link.send_batch(2, 10, 11, &["a"]);
        let head = MessageHeader { len: 4096, kind: MessageKind::Batch as u8, flags: 0 };
        link.send_bytes(&head.to_bytes());
        drop(link);
        let mut link = peer.accept();
        accept_resumption(&mut link, Some(at(2, 11)));
        link.send_batch(2, 11, 12, &["b"]);
        link.wait_until_closed();
    });
    expect_events(client, node, &["2-11 a", "2-12 b"]);
}

#[test]
fn client_reconnects_after_a_protocol_violation() {
    let (client, node) = ScriptedNode::serve(|peer, mut link| {
        link.accept_subscription(at(2, 10));
        link.send_bytes(&[0xFF; 64]);
        let mut link = peer.accept();
        accept_resumption(&mut link, Some(at(2, 10)));
        link.send_batch(2, 10, 11, &["a"]);
        link.wait_until_closed();
    });
    let mut subscriber = client.subscribe("orders.>", SubscribeOptions::default()).unwrap();
    assert_eq!(event_text(&subscriber.next().unwrap()), "2-11 a");
    drop((subscriber, client));
    node.join().unwrap();
}

#[test]
fn client_reconnects_after_a_goodbye_message() {
    let (client, node) = ScriptedNode::serve(|peer, mut link| {
        link.accept_subscription(at(2, 10));
        let reason = Refusal::new(ErrorCode::ShuttingDown, "");
        link.send(FromNode::Goodbye(Goodbye { reconnect_after_ms: 20, reason }));
        let mut link = peer.accept();
        accept_resumption(&mut link, Some(at(2, 10)));
        link.send_batch(2, 10, 11, &["a"]);
        link.wait_until_closed();
    });
    let mut subscriber = client.subscribe("orders.>", SubscribeOptions::default()).unwrap();
    assert_eq!(event_text(&subscriber.next().unwrap()), "2-11 a");
    drop((subscriber, client));
    node.join().unwrap();
}

/// Reads a command. Returns the number of its request.
fn accept_command(link: &mut Link) -> u32 {
    link.next(|message| match message {
        FromClient::Control(control) => control.request,
        other => panic!("{other:?}"),
    })
}

fn goodbye(numbers: [u64; 3]) -> FromNode<'static> {
    let reason = Refusal { numbers, ..Refusal::new(ErrorCode::ShuttingDown, "") };
    FromNode::Goodbye(Goodbye { reconnect_after_ms: 0, reason })
}

/// A node that shuts down regularly has responded to all commands that it carried out. The client must resend the
/// commands without a response, and must not report `COMMAND_UNKNOWN`.
#[test]
fn command_is_resent_if_the_node_stops_without_answering_it() {
    let (client, node) = ScriptedNode::serve(|peer, mut link| {
        accept_command(&mut link);
        link.send(goodbye([ALL_ANSWERED, 0, 0]));
        let mut link = peer.accept();
        let request = accept_command(&mut link);
        let mut done = Vec::new();
        ControlOutcome::Done { reply: ControlReply::Changed { revision: 7, keys: 1 } }.encode(&mut done);
        link.send(FromNode::ControlResult(ControlResult { request, bytes: U32PrefixedBytes(&done) }));
        link.wait_until_closed();
    });
    assert_eq!(client.kv().put("key", "value"), Ok(7));
    drop(client);
    node.join().unwrap();
}

/// Reads a command, and sends `reply` as its response.
fn answer_command(link: &mut Link, reply: ControlReply) {
    let request = accept_command(link);
    let mut done = Vec::new();
    ControlOutcome::Done { reply }.encode(&mut done);
    link.send(FromNode::ControlResult(ControlResult { request, bytes: U32PrefixedBytes(&done) }));
}

#[test]
fn lock_wait_continues_while_the_cluster_has_no_leader() {
    let (client, node) = ScriptedNode::serve(|_, mut link| {
        answer_command(&mut link, ControlReply::Granted { lease: 7, ttl_ms: 3_600_000 });
        let request = accept_command(&mut link);
        let refusal = Refusal::new(ErrorCode::NoLeader, "no majority");
        link.send(FromNode::RequestRefused(RequestRefused { request, refusal }));
        answer_command(&mut link, ControlReply::Held { token: 5 });
        link.wait_until_closed();
    });
    let kv = client.kv();
    let lease = kv.lease(Duration::from_secs(3_600)).unwrap();
    let lock = kv.lock("gate", &lease, b"").unwrap();
    assert_eq!(lock.token(), 5);
    drop((lock, lease, kv, client));
    node.join().unwrap();
}

#[test]
fn revocation_of_a_lease_is_repeated_until_it_is_confirmed() {
    let (client, node) = ScriptedNode::serve(|peer, mut link| {
        answer_command(&mut link, ControlReply::Granted { lease: 7, ttl_ms: 3_600_000 });
        accept_command(&mut link);
        link.send(goodbye([0; 3]));
        // The node carried out the first revocation, although its response was lost.
        let mut link = peer.accept();
        let request = accept_command(&mut link);
        let refusal = Refusal { numbers: [7, 0, 0], ..Refusal::new(ErrorCode::NoLease, "") };
        link.send(FromNode::RequestRefused(RequestRefused { request, refusal }));
        link.wait_until_closed();
    });
    let lease = client.kv().lease(Duration::from_secs(3_600)).unwrap();
    assert_eq!(lease.revoke(), Ok(()));
    drop(client);
    node.join().unwrap();
}

#[test]
fn release_of_a_lock_is_repeated_until_it_is_confirmed() {
    let (client, node) = ScriptedNode::serve(|peer, mut link| {
        answer_command(&mut link, ControlReply::Granted { lease: 7, ttl_ms: 3_600_000 });
        answer_command(&mut link, ControlReply::Held { token: 5 });
        accept_command(&mut link);
        link.send(goodbye([0; 3]));
        // The node carried out the first release, although its response was lost.
        let mut link = peer.accept();
        let request = accept_command(&mut link);
        let refusal = Refusal::new(ErrorCode::NoLeader, "no majority");
        link.send(FromNode::RequestRefused(RequestRefused { request, refusal }));
        let request = accept_command(&mut link);
        let refusal = Refusal { numbers: [7, 0, 0], ..Refusal::new(ErrorCode::LockNotHeld, "") };
        link.send(FromNode::RequestRefused(RequestRefused { request, refusal }));
        link.wait_until_closed();
    });
    let kv = client.kv();
    let lease = kv.lease(Duration::from_secs(3_600)).unwrap();
    let lock = kv.lock("gate", &lease, b"").unwrap();
    assert_eq!(lock.release(), Ok(()));
    drop((lease, kv, client));
    node.join().unwrap();
}

#[test]
fn outcome_of_a_command_is_unknown_if_its_node_stops() {
    let (client, node) = ScriptedNode::serve(|peer, mut link| {
        accept_command(&mut link);
        link.send(goodbye([0; 3]));
        // On this connection, the client must not send the command again.
        let mut link = peer.accept();
        accept_command(&mut link);
        link.send(goodbye([0; 3]));
    });
    for key in ["one", "other"] {
        assert!(matches!(client.kv().put(key, "value"), Err(KvError::Unknown(_))));
    }
    drop(client);
    node.join().unwrap();
}

#[test]
fn subscriber_reports_a_silent_node_after_two_missed_heartbeats() {
    let (client, node) = ScriptedNode::serve_with_fast_heartbeats(ClientOptions::default(), |_, mut link| {
        link.accept_subscription(at(2, 10));
        link.wait_until_closed();
    });
    let mut subscriber = client.subscribe("orders.>", SubscribeOptions::default()).unwrap();
    let began = Instant::now();
    assert!(matches!(subscriber.next(), Err(SubscribeError::Connection(_))));
    assert!(began.elapsed() >= SILENCE_MIN, "after {:?}", began.elapsed());
    drop((subscriber, client));
    node.join().unwrap();
}

#[test]
fn every_wait_for_a_dead_node_fails_after_two_heartbeats() {
    let (client, node) = ScriptedNode::serve_with_fast_heartbeats(ClientOptions::default(), |_, mut link| {
        link.accept_subscription(at(2, 10));
    });
    let mut subscriber = client.subscribe("orders.>", SubscribeOptions::default()).unwrap();
    node.join().unwrap();
    for _ in 0..2 {
        let began = Instant::now();
        assert!(matches!(subscriber.next(), Err(SubscribeError::Connection(_))));
        assert!(began.elapsed() >= SILENCE_MIN, "after {:?}", began.elapsed());
    }
    dunlin_wait::until("polling is told", || {
        subscriber.try_next().map(|event| assert!(event.is_none())).is_err()
    });
}

/// Returns a client and `count` of its subscribers, whose node has ended. The client's patience is two seconds: 200
/// heartbeat intervals of 10 ms. It is shorter than `PATIENCE`; 200 seconds, or two seconds for each of 80 subscribers,
/// are longer.
fn subscribers_of_a_dead_node(count: usize) -> (Client, Vec<Subscriber>) {
    let limits = ClientLimits { patience_heartbeats: 200, ..ClientLimits::default() };
    let options = ClientOptions { limits, ..ClientOptions::default() };
    let (client, node) = ScriptedNode::serve_with_heartbeat(10, options, move |_, mut link| {
        for _ in 0..count {
            let subscription = link.next(|message| match message {
                FromClient::Subscribe(subscribe) => subscribe.subscription,
                other => panic!("{other:?}"),
            });
            link.send(FromNode::Subscribed(Subscribed { subscription, logs: 0 }));
        }
    });
    let subscribe = |_| client.subscribe("orders.>", SubscribeOptions::default()).unwrap();
    let subscribers = (0..count).map(subscribe).collect();
    node.join().unwrap();
    (client, subscribers)
}

#[test]
fn subscriber_poll_fails_if_the_node_sends_no_heartbeat() {
    let (_client, mut subscribers) = subscribers_of_a_dead_node(1);
    dunlin_wait::until("the poll fails", || {
        subscribers[0].try_next().map(|event| assert!(event.is_none())).is_err()
    });
}

#[test]
fn waiting_threads_fail_together_when_their_node_is_lost() {
    let (_client, subscribers) = subscribers_of_a_dead_node(80);
    let wait = |mut subscriber: Subscriber| thread::spawn(move || subscriber.next().map(drop));
    let waits: Vec<_> = subscribers.into_iter().map(wait).collect();
    dunlin_wait::until("all waits end", || waits.iter().all(thread::JoinHandle::is_finished));
    for wait in waits {
        assert!(matches!(wait.join().unwrap(), Err(SubscribeError::Connection(_))));
    }
}

#[test]
fn waiting_tasks_fail_together_when_their_node_is_lost() {
    let (_client, subscribers) = subscribers_of_a_dead_node(80);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let all_fail = async {
        let wait = |mut subscriber: Subscriber| async move { subscriber.next_async().await.map(drop) };
        let waits: Vec<_> = subscribers.into_iter().map(|one| tokio::task::spawn_local(wait(one))).collect();
        for wait in waits {
            assert!(matches!(wait.await.unwrap(), Err(SubscribeError::Connection(_))));
        }
    };
    let tasks = tokio::task::LocalSet::new();
    tasks
        .block_on(&runtime, async { tokio::time::timeout(PATIENCE, all_fail).await.expect("all waits end") });
}

#[test]
fn heartbeats_keep_a_quiet_connection_alive() {
    /// Runs the test once. Returns whether the client kept its connection. If the machine pauses, heartbeats come late,
    /// and the client may rightly lose the connection.
    fn keeps_alive() -> bool {
        let (in_time_sender, in_time) = std::sync::mpsc::channel();
        let (client, node) =
            ScriptedNode::serve_with_fast_heartbeats(ClientOptions::default(), move |_, mut link| {
                link.accept_subscription(at(2, 10));
                let (mut last, mut slowest) = (Instant::now(), Duration::ZERO);
                for _ in 0..8 {
                    std::thread::sleep(Duration::from_millis(FAST_HEARTBEAT_MS.into()) / 2);
                    link.send(FromNode::Heartbeat(Heartbeat { channels: MessageList::new(&[]) }));
                    slowest = slowest.max(last.elapsed());
                    last = Instant::now();
                }
                link.send_batch(2, 10, 11, &["a"]);
                in_time_sender.send(slowest < Duration::from_millis(FAST_HEARTBEAT_MS.into())).unwrap();
                link.wait_until_closed();
            });
        let mut subscriber = client.subscribe("orders.>", SubscribeOptions::default()).unwrap();
        let received = subscriber.next().map(|event| event_text(&event));
        let is_kept = received == Ok("2-11 a".to_owned()) && client.connections() == 1;
        let in_time = in_time.recv_timeout(PATIENCE).unwrap();
        drop((subscriber, client));
        node.join().unwrap();
        assert!(is_kept || !in_time, "{received:?}");
        is_kept
    }
    let deadline = Deadline::new();
    while !keeps_alive() {
        deadline.check("a machine that does not stand still");
    }
}

#[test]
fn subscriber_wait_ends_at_its_timeout_despite_many_heartbeats() {
    let (client, node, timed_out) = ScriptedNode::serve_flood(ClientOptions::default(), heartbeats());
    let mut subscriber = client.subscribe("orders.>", SubscribeOptions::default()).unwrap();
    assert!(subscriber.next_timeout(Duration::from_millis(1)).unwrap().is_none());
    let _ = timed_out.send(());
    // Close the connection first, because the node may still be writing to it.
    drop((subscriber, client));
    node.join().unwrap();
}

#[test]
fn messages_without_events_do_not_extend_the_read_timeout() {
    // With this limit, the client has credit to report after each message, and each report ends a wait.
    let limits = ClientLimits { credit_bytes: 1, ..ClientLimits::default() };
    let mut advances = Vec::new();
    for _ in 0..10_000 {
        FromNode::Advance(Advance { channel: 1, through: at(2, 20) }).encode(&mut advances);
    }
    let options = ClientOptions { limits, ..ClientOptions::default() };
    let (client, node, timed_out) = ScriptedNode::serve_flood(options, advances);
    let mut subscriber = client.subscribe("orders.>", SubscribeOptions::default()).unwrap();
    assert!(subscriber.next_timeout(Duration::from_millis(1)).unwrap().is_none());
    let _ = timed_out.send(());
    // Close the connection first, because the node may still be writing to it.
    drop((subscriber, client));
    node.join().unwrap();
}

#[test]
fn idle_subscriber_continues_after_a_reconnect() {
    let (client, node) =
        ScriptedNode::serve_with_fast_heartbeats(ClientOptions::default(), |peer, mut link| {
            link.accept_subscription(at(2, 10));
            drop(link);
            let mut link = peer.accept();
            accept_resumption(&mut link, Some(at(2, 10)));
            link.send_batch(2, 10, 11, &["a"]);
            link.wait_until_closed();
        });
    let mut subscriber = client.subscribe("orders.>", SubscribeOptions::default()).unwrap();
    // Pause for longer than a node may be silent.
    std::thread::sleep(Duration::from_millis(u64::from(FAST_HEARTBEAT_MS) * 3));
    let deadline = Deadline::new();
    let received = loop {
        match subscriber.next() {
            Ok(event) => break event_text(&event),
            // The machine has paused for longer than a node may be silent. The next call connects again.
            Err(SubscribeError::Connection(_)) => deadline.check("the connection comes back"),
            Err(other) => panic!("{other}"),
        }
    };
    assert_eq!(received, "2-11 a");
    drop((subscriber, client));
    node.join().unwrap();
}

#[test]
fn node_that_exceeds_its_credit_is_disconnected() {
    let limits = ClientLimits { credit_bytes: 64 << 10, run_bytes_max: 64 << 10, ..ClientLimits::default() };
    let (client, node) = ScriptedNode::serve_with_fast_heartbeats(
        ClientOptions { limits, ..ClientOptions::default() },
        |peer, mut link| {
            link.accept_subscription(at(2, 0));
            let payload = "x".repeat(10_000);
            for seq in 1..=30 {
                link.send_batch(2, seq - 1, seq, &[&payload]);
            }
            let mut link = peer.accept();
            let positions = accept_resumption(&mut link, None)[0].1.seq;
            assert!((19..22).contains(&positions), "{positions} were kept");
            link.wait_until_closed();
        },
    );
    let mut unread = client.subscribe("orders.>", SubscribeOptions::default()).unwrap();
    let deadline = Deadline::new();
    while client.connections() < 2 {
        deadline.check("the connection is left");
        // This call waits for a response that never comes. In the meantime, the client receives messages for the
        // subscription, and no caller reads them.
        let _ = client.publisher("orders.eu");
    }
    assert!(unread.next().is_ok());
    drop((unread, client));
    node.join().unwrap();
}

#[test]
fn client_survives_damaged_messages_from_a_node() {
    const CONNECTIONS: u64 = 150;
    let (client, node) =
        ScriptedNode::serve_with_fast_heartbeats(ClientOptions::default(), |peer, mut link| {
            for number in 1..=CONNECTIONS {
                let mut bytes = valid_messages();
                let mut random = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
                for _ in 0..number % 7 {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    let at = random as usize % bytes.len();
                    bytes[at] = (random >> 32) as u8;
                }
                link.try_next(|_| ());
                link.send_bytes(&bytes);
                drop(link);
                link = peer.accept();
            }
            link.try_next(|_| ());
            link.wait_until_closed();
        });
    let mut subscriber = client
        .subscribe("orders.>", SubscribeOptions::default())
        .expect("the first connection's bytes begin with sound ones");
    let deadline = Deadline::new();
    while client.connections() <= CONNECTIONS {
        deadline.check(format_args!("{} connections", client.connections()));
        match subscriber.next_timeout(Duration::from_millis(100)) {
            Ok(event) => drop(event.map(|event| event_text(&event))),
            Err(SubscribeError::Connection(_)) => {}
            Err(_) => {
                // If the changed bytes have ended the subscription, a new one replaces it.
                if let Ok(new_subscriber) = client.subscribe("orders.>", SubscribeOptions::default()) {
                    subscriber = new_subscriber;
                }
            }
        }
    }
    drop((subscriber, client));
    node.join().unwrap();
}

/// Returns a valid message of each kind that a node sends to a subscriber.
fn valid_messages() -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encode = |message: FromNode<'_>| message.encode(&mut bytes);
    encode(FromNode::Log(Log {
        subscription: 1,
        channel: 1,
        partition: 0,
        after: at(2, 10),
        topic: "orders",
        subject_prefix: "orders.",
    }));
    encode(FromNode::Subscribed(Subscribed { subscription: 1, logs: 1 }));
    let frames = [crate::peer::frame("eu", "one"), crate::peer::frame("eu", "two")].concat();
    let (count, len) = (2, frames.len() as u32);
    for first_seq in [11, 12, 30] {
        let header = dunlin_frame::BatchHeader {
            topic_id: 1,
            epoch: 2,
            prev_seq: first_seq - 1,
            first_seq,
            count,
            bytes: len,
        };
        encode(FromNode::Batch(Batch { header, frames: &frames }));
    }
    encode(FromNode::Gap(GapMessage { channel: 1, epoch: 2, first: 32, last: 40 }));
    encode(FromNode::Advance(Advance { channel: 1, through: at(2, 50) }));
    let channels = [ChannelPosition { channel: 1, position: at(2, 50) }];
    encode(FromNode::Heartbeat(Heartbeat { channels: MessageList::new(&channels) }));
    encode(FromNode::EpochChanged(EpochChanged {
        channel: 1,
        old: 2,
        last_seen: 50,
        known_through: None,
        new_first: at(3, 1),
    }));
    bytes
}
