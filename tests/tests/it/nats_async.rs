//! Tests of the NATS listener with the unmodified client library async-nats. The tests cover the same cases as module
//! `nats_clients`.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use async_nats::{Client, ConnectOptions, HeaderMap, Message, RequestErrorKind, Subscriber};
use dunlin_system_tests::process::PATIENCE;
use futures_util::{StreamExt, future};

use crate::nats_node::NatsNode;
use crate::tls_node::TlsNode;

/// Runs a test with a client whose tasks all run on the test's thread. While this thread is busy, the client therefore
/// reads nothing.
fn with_client<F: Future<Output = ()>>(run: impl FnOnce(NatsNode, Client) -> F) {
    let node = NatsNode::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async move {
        let options = ConnectOptions::new()
            .request_timeout(Some(PATIENCE))
            .subscription_capacity(100_000)
            .reconnect_delay_callback(|_| Duration::from_millis(50));
        let client = options.connect(node.url()).await.unwrap();
        run(node, client).await;
    });
}

async fn subscribe(client: &Client, subject: &'static str) -> Subscriber {
    let subscriber = client.subscribe(subject).await.unwrap();
    client.flush().await.unwrap();
    subscriber
}

async fn next(subscriber: &mut Subscriber) -> Message {
    let message = tokio::time::timeout(PATIENCE, subscriber.next()).await;
    message.expect("a message in time").expect("the subscription goes on")
}

#[test]
fn async_nats_client_receives_headers_and_uses_wildcards() {
    with_client(|node, client| async move {
        let _node = node;
        let mut ticks = subscribe(&client, "rs.ticks").await;
        for n in 0..1_000 {
            client.publish("rs.ticks", n.to_string().into()).await.unwrap();
        }
        for n in 0..1_000 {
            assert_eq!(next(&mut ticks).await.payload, n.to_string());
        }
        let mut with_headers = subscribe(&client, "rs.headers").await;
        let mut headers = HeaderMap::new();
        headers.append("Trace", "a b");
        headers.append("Trace", "c");
        headers.insert("Nats-Msg-Id", "7");
        let sent = headers.clone();
        client.publish_with_reply_and_headers("rs.headers", "rs.reply", sent, "x".into()).await.unwrap();
        let received = next(&mut with_headers).await;
        assert_eq!((received.headers, received.reply), (Some(headers), Some("rs.reply".into())));

        let (mut star, mut rest) = (subscribe(&client, "rs.w.*").await, subscribe(&client, "rs.w.>").await);
        for subject in ["rs.w.a", "rs.w.b.c", "rs.v.a"] {
            client.publish(subject, subject.into()).await.unwrap();
        }
        assert_eq!(next(&mut star).await.subject.as_str(), "rs.w.a");
        let received = [next(&mut rest).await.subject.to_string(), next(&mut rest).await.subject.to_string()];
        assert_eq!(BTreeSet::from(received), BTreeSet::from(["rs.w.a".to_owned(), "rs.w.b.c".to_owned()]));

        let mut large = subscribe(&client, "rs.large").await;
        let payload: Vec<u8> = (0..1_000_000).map(|n| (n % 251) as u8).collect();
        client.publish("rs.large", payload.clone().into()).await.unwrap();
        assert!(next(&mut large).await.payload == payload);
    });
}

#[test]
fn async_nats_supports_groups_and_requests_and_limits_and_drain() {
    with_client(|node, client| async move {
        let _node = node;
        let mut members = Vec::new();
        for _ in 0..3 {
            members.push(client.queue_subscribe("rs.jobs", "crew".to_owned()).await.unwrap());
        }
        client.flush().await.unwrap();
        for n in 0..100_u32 {
            client.publish("rs.jobs", n.to_string().into()).await.unwrap();
        }
        let mut received = BTreeSet::new();
        while received.len() < 100 {
            let nexts = members.iter_mut().map(|member| Box::pin(next(member)));
            let (message, ..) = future::select_all(nexts).await;
            let number: u32 = std::str::from_utf8(&message.payload).unwrap().parse().unwrap();
            assert!(received.insert(number), "{number} came twice");
        }

        let mut service = subscribe(&client, "rs.twice").await;
        let responder = client.clone();
        tokio::spawn(async move {
            while let Some(request) = service.next().await {
                let doubled = [request.payload.as_ref(), request.payload.as_ref()].concat();
                responder.publish(request.reply.unwrap(), doubled.into()).await.unwrap();
            }
        });
        for n in 0..50 {
            let reply = client.request("rs.twice", n.to_string().into()).await.unwrap();
            assert_eq!(reply.payload, format!("{n}{n}"));
        }
        for subject in ["rs.nobody", "$JS.API.INFO"] {
            let refused = client.request(subject, "".into()).await.unwrap_err();
            assert_eq!(refused.kind(), RequestErrorKind::NoResponders, "{subject}");
        }

        let mut limited = client.subscribe("rs.max").await.unwrap();
        limited.unsubscribe_after(3).await.unwrap();
        for n in 0..5 {
            client.publish("rs.max", n.to_string().into()).await.unwrap();
        }
        for n in 0..3 {
            assert_eq!(next(&mut limited).await.payload, n.to_string());
        }
        assert!(limited.next().await.is_none());

        let mut drained = subscribe(&client, "rs.drain").await;
        for _ in 0..100 {
            client.publish("rs.drain", "x".into()).await.unwrap();
        }
        client.flush().await.unwrap();
        drained.drain().await.unwrap();
        let mut count = 0;
        while drained.next().await.is_some() {
            count += 1;
        }
        assert_eq!(count, 100);
    });
}

#[test]
fn nats_client_that_asks_for_sequences_gets_exact_gaps() {
    const COUNT: u64 = 40_000;
    with_client(|node, client| async move {
        let mut subscriber = subscribe(&client, "$DUNLIN.seq.gaps").await;
        // While this thread publishes, the client reads nothing.
        node.publish("gaps", COUNT);
        let (mut next_seq, mut gaps) = (1, 0);
        while next_seq <= COUNT {
            let message = next(&mut subscriber).await;
            let headers = message.headers.expect("every message has some");
            let number =
                |name: &str| headers.get(name).map(|value| value.as_str().parse::<u64>().unwrap()).unwrap();
            match (message.status.map(|status| status.as_u16()), message.description.as_deref()) {
                (Some(410), Some("Gap")) => {
                    assert_eq!(number("Dunlin-First"), next_seq);
                    next_seq = number("Dunlin-Last") + 1;
                    gaps += 1;
                }
                (None, _) => {
                    assert_eq!(number("Dunlin-Seq"), next_seq);
                    assert!(number("Dunlin-Epoch") > 0);
                    next_seq += 1;
                }
                (status, _) => assert_eq!(status, Some(429)),
            }
        }
        assert!(gaps > 0, "the test is to lose something");
    });
}

#[test]
fn async_nats_subscription_resumes_after_a_node_restart() {
    with_client(|mut node, client| async move {
        let mut subscriber = subscribe(&client, "rs.again").await;
        node.restart();
        let start = Instant::now();
        loop {
            assert!(start.elapsed() < PATIENCE, "the connection did not come back");
            client.publish("rs.again", "back".into()).await.unwrap();
            if let Ok(Some(message)) =
                tokio::time::timeout(Duration::from_millis(50), subscriber.next()).await
            {
                return assert_eq!(message.payload, "back");
            }
        }
    });
}

#[test]
fn async_nats_over_tls_trusts_only_the_given_authority() {
    let node = TlsNode::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let trusting_options = ConnectOptions::new().add_root_certificates(node.ca()).require_tls(true);
        let client = trusting_options.connect(node.nats_url()).await.unwrap();
        let mut ticks = subscribe(&client, "rs.tls").await;
        let large = vec![7; 900_000];
        client.publish("rs.tls", "small".into()).await.unwrap();
        client.publish("rs.tls", large.clone().into()).await.unwrap();
        assert_eq!(next(&mut ticks).await.payload, "small");
        assert!(next(&mut ticks).await.payload == large);
        let untrusting = ConnectOptions::new().require_tls(true).connect(node.nats_url()).await;
        assert!(untrusting.is_err(), "a node was trusted that nobody vouches for");
    });
}
