use dunlin_server::grpc::proto::ratatoskr as rata;
use rata::message_broker_client::MessageBrokerClient;
use tonic::Code;

use super::*;

type Broker = MessageBrokerClient<Channel>;

async fn broker(server: &Server) -> Broker {
    MessageBrokerClient::new(channel(server).await)
}

fn message(topic: &str, payload: &str) -> rata::PublishRequest {
    rata::PublishRequest {
        topic: topic.to_owned(),
        payload: payload.as_bytes().to_vec().into(),
        metadata: [("trace".to_owned(), "7".to_owned())].into(),
    }
}

async fn create(broker: &mut Broker, name: &str) -> String {
    let request = rata::CreateTopicRequest { name: name.to_owned() };
    let response = broker.create_topic(request).await.unwrap().into_inner();
    assert_eq!(response.created, response.error.is_empty());
    response.error
}

#[test]
fn ratatoskr_topic_calls_get_the_error_codes_of_ratatoskr() {
    run(async {
        let (_node, server) = serve_grpc();
        let mut broker = broker(&server).await;
        assert_eq!(create(&mut broker, "orders").await, "");
        assert_eq!(create(&mut broker, "orders").await, "already_exists");
        assert_eq!(create(&mut broker, "").await, "empty_topic");
        assert_eq!(create(&mut broker, &"x".repeat(256)).await, "topic_too_long");
        assert_eq!(create(&mut broker, &"x".repeat(255)).await, "");
        assert_eq!(create(&mut broker, "a.b").await, "invalid_topic_format");
        let listed = broker.list_topics(rata::ListTopicsRequest {}).await.unwrap().into_inner().topics;
        assert_eq!(listed, ["orders".to_owned(), "x".repeat(255)]);
        let exists = |name: &str| rata::TopicExistsRequest { name: name.to_owned() };
        assert!(broker.topic_exists(exists("orders")).await.unwrap().into_inner().exists);
        assert!(!broker.topic_exists(exists("none")).await.unwrap().into_inner().exists);
        let delete = || rata::DeleteTopicRequest { name: "orders".to_owned() };
        assert!(broker.delete_topic(delete()).await.unwrap().into_inner().success);
        let again = broker.delete_topic(delete()).await.unwrap().into_inner();
        assert_eq!((again.success, again.error.as_str()), (false, "topic_not_found"));
        let stats = broker.get_stats(rata::GetStatsRequest { topic: "orders".to_owned() }).await.unwrap();
        assert_eq!(stats.into_inner().error, "topic_not_found");
    });
}

#[test]
fn message_is_delivered_with_the_id_of_its_publish_response() {
    run(async {
        let (_node, server) = serve_grpc();
        let mut broker = broker(&server).await;
        let request = |subscriber: &str| rata::SubscribeRequest {
            topic: "news".to_owned(),
            subscriber_id: subscriber.to_owned(),
        };
        assert_eq!(broker.subscribe(request("me")).await.unwrap_err().code(), Code::NotFound);
        // Publishing creates the topic. A client that subscribes later must not receive the earlier record.
        let old = broker.publish(message("news", "old")).await.unwrap().into_inner();
        assert!(old.success && old.timestamp > 0);
        let mut stream = broker.subscribe(request("me")).await.unwrap().into_inner();
        let requests =
            vec![message("news", "1"), message("", "2"), message("a.b", "3"), message("other", "4")];
        let batch = rata::PublishBatchRequest { topic: "news".to_owned(), messages: requests };
        let batch = broker.publish_batch(batch).await.unwrap().into_inner();
        assert_eq!((batch.success_count, batch.error_count), (3, 1));
        assert_eq!(batch.results[2].error, "invalid_topic_format");
        for (number, payload) in ["1", "2"].into_iter().enumerate() {
            let got = stream.message().await.unwrap().unwrap();
            assert_eq!((&got.payload[..], got.topic.as_str()), (payload.as_bytes(), "news"));
            assert_eq!(
                (&got.id, got.timestamp),
                (&batch.results[number].message_id, batch.results[number].timestamp)
            );
            assert_eq!(got.metadata["trace"], "7");
        }
        let stats = broker.get_stats(rata::GetStatsRequest { topic: "news".to_owned() }).await.unwrap();
        let stats = stats.into_inner();
        assert_eq!((stats.message_count, stats.subscriber_count, stats.error.as_str()), (3, 1, ""));
    });
}

#[test]
fn ratatoskr_unsubscribe_accepts_a_reference_or_subscriber_id() {
    run(async {
        let (_node, server) = serve_grpc();
        let mut broker = broker(&server).await;
        create(&mut broker, "news").await;
        let mut streams = Vec::new();
        for subscriber in ["one", "two", "three"] {
            let request =
                rata::SubscribeRequest { topic: "news".to_owned(), subscriber_id: subscriber.to_owned() };
            streams.push(broker.subscribe(request).await.unwrap());
        }
        let reference = streams[0].metadata().get("subscription-ref").unwrap().to_str().unwrap().to_owned();
        for (subscription_ref, success, error) in [
            (reference.as_str(), true, ""),
            ("two", true, ""),
            ("nobody", false, "subscription_not_found"),
            ("", false, "Invalid subscription reference"),
        ] {
            let request = rata::UnsubscribeRequest {
                topic: "news".to_owned(),
                subscription_ref: subscription_ref.to_owned(),
            };
            let response = broker.unsubscribe(request).await.unwrap().into_inner();
            assert_eq!((response.success, response.error.as_str()), (success, error));
        }
        let mut streams = streams.into_iter().map(Response::into_inner);
        for mut ended in streams.by_ref().take(2) {
            assert_eq!(ended.message().await.unwrap(), None);
        }
        broker.publish(message("news", "x")).await.unwrap();
        assert!(streams.next().unwrap().message().await.unwrap().is_some());
    });
}

#[test]
fn number_of_subscribers_per_ratatoskr_topic_is_limited() {
    run(async {
        let (_node, server) = serve_grpc_with(|config| config.limits.grpc.message_subscribers_max = 2);
        let mut broker = broker(&server).await;
        create(&mut broker, "news").await;
        let request = || rata::SubscribeRequest { topic: "news".to_owned(), ..Default::default() };
        let first = broker.subscribe(request()).await.unwrap();
        let _second = broker.subscribe(request()).await.unwrap();
        let third = broker.subscribe(request()).await.unwrap_err();
        assert_eq!((third.code(), third.message()), (Code::ResourceExhausted, "max_subscribers_reached"));
        drop(first);
        // The node needs a moment to notice that the stream has ended.
        until(async || broker.subscribe(request()).await.is_ok()).await;
    });
}

#[test]
fn ratatoskr_stream_ends_with_status_data_loss_after_a_loss() {
    run(async {
        let (node, server) = serve_grpc();
        let retention = dunlin::topic::Retention { bytes: 64 << 10, ..Default::default() };
        let config = dunlin::topic::TopicConfig { retention, ..Default::default() };
        node.create_topic("news", config, false).unwrap();
        let mut broker = broker(&server).await;
        let request = rata::SubscribeRequest { topic: "news".to_owned(), ..Default::default() };
        let mut stream = broker.subscribe(request).await.unwrap().into_inner();
        let mut publisher = node.publisher("news").unwrap();
        for _ in 0..40_000 {
            dunlin::topic::Publish::publish(&mut publisher, &[7; 1_000]).unwrap();
        }
        let ended = loop {
            match stream.message().await {
                Ok(message) => assert!(message.is_some(), "an end without a word"),
                Err(status) => break status,
            }
        };
        assert_eq!(ended.code(), Code::DataLoss);
    });
}
