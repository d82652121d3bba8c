use std::future::poll_fn;
use std::time::Duration;

use dunlin_client::topic::{Publish, Subscribe, SubscribeError, SubscribeOptions};
use dunlin_wire::*;

use crate::peer::{Peer, at, word};

fn block_on<R>(task: impl Future<Output = R>) -> R {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(10), task).await.expect("stuck") })
}

#[test]
fn a_task_reads_what_comes_and_survives_a_loss() {
    let (client, node) = Peer::serve(|peer, mut link| {
        link.accept_subscription(at(1, 0));
        std::thread::sleep(Duration::from_millis(20));
        link.run(1, 0, 1, &["a"]);
        drop(link);
        let mut link = peer.accept();
        link.next(|message| assert!(matches!(message, FromClient::Resume(_))));
        link.accept_subscription(at(1, 1));
        std::thread::sleep(Duration::from_millis(20));
        link.run(1, 1, 2, &["b"]);
        link.until_closed();
    });
    let mut subscriber = client.subscribe("orders.>", SubscribeOptions::default()).unwrap();
    block_on(async {
        assert_eq!(word(&subscriber.next_async().await.unwrap()), "1-1 a");
        assert_eq!(word(&subscriber.next_async().await.unwrap()), "1-2 b");
    });
    drop((subscriber, client));
    node.join().unwrap();
}

#[test]
fn two_tasks_share_a_connection() {
    let (client, node) = Peer::serve(|_, mut link| {
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
            link.run_on(1, 1, seq - 1, seq, &["one"]);
            std::thread::sleep(Duration::from_micros(200));
            link.run_on(2, 1, seq - 1, seq, &["two"]);
        }
        link.until_closed();
    });
    let mut first = client.subscribe("orders", SubscribeOptions::default()).unwrap();
    let mut second = client.subscribe("orders", SubscribeOptions::default()).unwrap();
    block_on(async {
        let one = async {
            for seq in 1..=100 {
                assert_eq!(word(&first.next_async().await.unwrap()), format!("1-{seq} one"));
            }
        };
        let two = async {
            for seq in 1..=100 {
                assert_eq!(word(&second.next_async().await.unwrap()), format!("1-{seq} two"));
            }
        };
        tokio::join!(one, two);
    });
    drop((first, second, client));
    node.join().unwrap();
}

#[test]
fn a_task_flushes() {
    let (client, node) = Peer::serve(|_, mut link| {
        link.accept_publisher();
        let header = link.accept_publish();
        std::thread::sleep(Duration::from_millis(20));
        link.acknowledge(&header, 3);
        link.until_closed();
    });
    let mut publisher = client.publisher("orders.eu").unwrap();
    block_on(async {
        for _ in 0..3 {
            publisher.send("x").unwrap();
        }
        let receipt = poll_fn(|cx| publisher.poll_flush(cx)).await.unwrap();
        assert_eq!(receipt.unwrap().position.seq, 3);
    });
    drop((publisher, client));
    node.join().unwrap();
}

#[test]
fn a_task_is_told_when_the_node_is_gone() {
    let (client, node) = Peer::serve(|_, mut link| {
        link.accept_subscription(at(1, 0));
    });
    let mut subscriber = client.subscribe("orders.>", SubscribeOptions::default()).unwrap();
    node.join().unwrap();
    block_on(async {
        assert!(matches!(subscriber.next_async().await, Err(SubscribeError::Connection(_))));
    });
}

#[test]
fn a_task_that_gave_up_waiting_leaves_no_other_stuck() {
    let running = crate::running::Running::start();
    running.node.create_topic("t", Default::default(), false).unwrap();
    running.node.create_topic("quiet", Default::default(), false).unwrap();
    let client = running.client();
    let mut reads = client.subscribe("t", SubscribeOptions::default()).unwrap();
    let mut gives_up = client.subscribe("quiet", SubscribeOptions::default()).unwrap();
    let mut thread_reads = client.subscribe("t", SubscribeOptions::default()).unwrap();
    let node = running.node.clone();
    let publishing = std::thread::spawn(move || {
        let mut publisher = node.publisher("t").unwrap();
        for _ in 0..50 {
            std::thread::sleep(Duration::from_millis(5));
            publisher.publish("x").unwrap();
        }
    });
    // A thread that blocks takes the lead now and then, and leaves it.
    let thread = std::thread::spawn(move || {
        for seq in 1..=50 {
            assert!(word(&thread_reads.next().unwrap()).ends_with(&format!("-{seq} x")));
        }
    });
    block_on(async {
        for seq in 1..=50 {
            let waited = tokio::time::timeout(Duration::from_millis(1), gives_up.next_async()).await;
            assert!(waited.is_err(), "nothing comes on the quiet topic");
            let read = tokio::time::timeout(Duration::from_secs(2), reads.next_async()).await;
            assert!(word(&read.expect("stuck").unwrap()).ends_with(&format!("-{seq} x")));
        }
    });
    publishing.join().unwrap();
    thread.join().unwrap();
}
