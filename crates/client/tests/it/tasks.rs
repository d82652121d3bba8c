use std::future::poll_fn;
use std::pin::pin;
use std::sync::mpsc::{Sender, channel};
use std::task::Context;
use std::time::Duration;

use dunlin_client::ClientOptions;
use dunlin_client::topic::{Publish, Subscribe, SubscribeError, SubscribeOptions};
use dunlin_wait::PATIENCE;
use dunlin_wire::*;

use crate::peer::{ScriptedNode, at, event_text, heartbeats};

fn block_on<R>(task: impl Future<Output = R>) -> R {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, task).await.expect("stuck") })
}

/// Runs `task`. Each time that it has to wait, sends a message to `waits`.
async fn notify_waits<R>(waits: Sender<()>, task: impl Future<Output = R>) -> R {
    let mut task = pin!(task);
    let poll = |cx: &mut Context<'_>| {
        let polled = task.as_mut().poll(cx);
        if polled.is_pending() {
            let _ = waits.send(());
        }
        polled
    };
    poll_fn(poll).await
}

#[test]
fn async_subscriber_survives_a_lost_connection() {
    let ((first, first_waits), (second, second_waits)) = (channel(), channel());
    let (client, node) = ScriptedNode::serve(move |peer, mut link| {
        link.accept_subscription(at(1, 0));
        first_waits.recv_timeout(PATIENCE).unwrap();
        link.send_batch(1, 0, 1, &["a"]);
        drop(link);
        let mut link = peer.accept();
        link.next(|message| assert!(matches!(message, FromClient::Resume(_))));
        link.accept_subscription(at(1, 1));
        second_waits.recv_timeout(PATIENCE).unwrap();
        link.send_batch(1, 1, 2, &["b"]);
        link.wait_until_closed();
    });
    let mut subscriber = client.subscribe("orders.>", SubscribeOptions::default()).unwrap();
    block_on(async {
        assert_eq!(event_text(&notify_waits(first, subscriber.next_async()).await.unwrap()), "1-1 a");
        assert_eq!(event_text(&notify_waits(second, subscriber.next_async()).await.unwrap()), "1-2 b");
    });
    drop((subscriber, client));
    node.join().unwrap();
}

#[test]
fn async_subscriber_continues_in_a_second_runtime() {
    let (waits, waiting) = channel();
    let (client, node) = ScriptedNode::serve(move |_, mut link| {
        link.accept_subscription(at(1, 0));
        for seq in 1..=2 {
            waiting.recv_timeout(PATIENCE).unwrap();
            link.send_batch(1, seq - 1, seq, &["x"]);
        }
        link.wait_until_closed();
    });
    let mut subscriber = client.subscribe("orders.>", SubscribeOptions::default()).unwrap();
    for seq in 1..=2 {
        // Each call of `block_on` starts a runtime of its own, which ends with the call.
        let next = notify_waits(waits.clone(), subscriber.next_async());
        assert_eq!(event_text(&block_on(next).unwrap()), format!("1-{seq} x"));
    }
    drop((subscriber, client));
    node.join().unwrap();
}

#[test]
fn async_subscriber_wait_ends_at_its_timeout_despite_heartbeats() {
    let (client, node, timed_out) = ScriptedNode::serve_flood(ClientOptions::default(), heartbeats());
    let mut subscriber = client.subscribe("orders.>", SubscribeOptions::default()).unwrap();
    let has_timed_out = block_on(async {
        tokio::time::timeout(Duration::from_millis(1), subscriber.next_async()).await.is_err()
    });
    assert!(has_timed_out);
    let _ = timed_out.send(());
    // Close the connection first, because the node may still be writing to it.
    drop((subscriber, client));
    node.join().unwrap();
}

#[test]
fn two_async_subscribers_share_a_connection() {
    let (read_sender, read_receiver) = channel();
    let (client, node) = ScriptedNode::serve(move |_, mut link| {
        for channel in 1..=2 {
            let subscription = link.next(|message| match message {
                FromClient::Subscribe(subscribe) => subscribe.subscription,
                other => panic!("{other:?}"),
            });
            link.send(FromNode::Log(Log {
                subscription,
                channel,
                partition: 0,
                after: at(1, 0),
                topic: "orders",
                subject_prefix: "",
            }));
            link.send(FromNode::Subscribed(Subscribed { subscription, logs: 1 }));
        }
        for seq in 1..=100 {
            for (channel, payload) in [(1, "one"), (2, "two")] {
                link.send_batch_on(channel, 1, seq - 1, seq, &[payload]);
                // One of the two tasks reads the connection, and the other waits.
                assert_eq!(read_receiver.recv_timeout(PATIENCE), Ok((channel, seq)));
            }
        }
        link.wait_until_closed();
    });
    let mut first = client.subscribe("orders", SubscribeOptions::default()).unwrap();
    let mut second = client.subscribe("orders", SubscribeOptions::default()).unwrap();
    block_on(async {
        let one = async {
            for seq in 1..=100 {
                assert_eq!(event_text(&first.next_async().await.unwrap()), format!("1-{seq} one"));
                read_sender.send((1, seq)).unwrap();
            }
        };
        let two = async {
            for seq in 1..=100 {
                assert_eq!(event_text(&second.next_async().await.unwrap()), format!("1-{seq} two"));
                read_sender.send((2, seq)).unwrap();
            }
        };
        tokio::join!(one, two);
    });
    drop((first, second, client));
    node.join().unwrap();
}

#[test]
fn async_flush_returns_the_receipt() {
    let (flushes, waits) = channel();
    let (client, node) = ScriptedNode::serve(move |_, mut link| {
        link.accept_publisher();
        let header = link.accept_publish();
        waits.recv_timeout(PATIENCE).unwrap();
        link.acknowledge(&header, 3);
        link.wait_until_closed();
    });
    let mut publisher = client.publisher("orders.eu").unwrap();
    block_on(async {
        for _ in 0..3 {
            publisher.send("x").unwrap();
        }
        let receipt = notify_waits(flushes, poll_fn(|cx| publisher.poll_flush(cx))).await.unwrap();
        assert_eq!(receipt.unwrap().position.seq, 3);
    });
    drop((publisher, client));
    node.join().unwrap();
}

#[test]
fn async_subscriber_fails_when_the_node_is_gone() {
    let (client, node) = ScriptedNode::serve_with_fast_heartbeats(ClientOptions::default(), |_, mut link| {
        link.accept_subscription(at(1, 0));
    });
    let mut subscriber = client.subscribe("orders.>", SubscribeOptions::default()).unwrap();
    node.join().unwrap();
    block_on(async {
        assert!(matches!(subscriber.next_async().await, Err(SubscribeError::Connection(_))));
    });
}

#[test]
fn abandoned_async_wait_blocks_no_other_reader() {
    let running = crate::running_node::RunningNode::start();
    running.node.create_topic("t", Default::default(), false).unwrap();
    running.node.create_topic("quiet", Default::default(), false).unwrap();
    let client = running.client();
    let mut subscriber = client.subscribe("t", SubscribeOptions::default()).unwrap();
    let mut abandoned = client.subscribe("quiet", SubscribeOptions::default()).unwrap();
    let mut thread_subscriber = client.subscribe("t", SubscribeOptions::default()).unwrap();
    let node = running.node.clone();
    let (next, publish_requests) = channel();
    let publishing = std::thread::spawn(move || {
        let mut publisher = node.publisher("t").unwrap();
        for () in publish_requests {
            publisher.publish("x").unwrap();
        }
    });
    // In the meantime, a blocking thread also reads the connection now and then.
    let thread = std::thread::spawn(move || {
        for seq in 1..=50 {
            assert!(event_text(&thread_subscriber.next().unwrap()).ends_with(&format!("-{seq} x")));
        }
    });
    block_on(async {
        for seq in 1..=50 {
            next.send(()).unwrap();
            let waited = tokio::time::timeout(Duration::from_millis(1), abandoned.next_async()).await;
            assert!(waited.is_err(), "nothing comes on the quiet topic");
            let read = tokio::time::timeout(PATIENCE, subscriber.next_async()).await;
            assert!(event_text(&read.expect("stuck").unwrap()).ends_with(&format!("-{seq} x")));
        }
    });
    drop(next);
    publishing.join().unwrap();
    thread.join().unwrap();
}
