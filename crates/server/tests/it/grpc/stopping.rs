use std::path::Path;
use std::sync::Arc;

use dunlin::Config;
use dunlin::journal::{FakeDisk, Faults};
use dunlin::topic::{DurableOptions, Publish, TopicConfig};
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::*;
use crate::serve_node;

#[test]
fn node_that_stops_ends_every_grpc_stream_as_unavailable() {
    run(async {
        let (_node, server) = serve_grpc();
        let mut client = connect(&server).await;
        let (mut stream, _) =
            start_subscription(&mut client, subscribe(&["t"], At::Latest(true))).await.unwrap();
        let (messages, rest) = tokio::sync::mpsc::channel(1);
        messages
            .send(v1::PublishStreamRequest {
                subject: "t".to_owned(),
                records: vec![v1::Draft::default()],
                ..v1::PublishStreamRequest::default()
            })
            .await
            .unwrap();
        let rest = tokio_stream::wrappers::ReceiverStream::new(rest);
        let mut acks = client.publish_stream(rest).await.unwrap().into_inner();
        assert_eq!(acks.message().await.unwrap().unwrap().through, 1);
        let stopping = std::thread::spawn(move || server.stop());
        let ended = loop {
            match next(&mut stream).await {
                Ok(event) => assert!(matches!(event, Event::Records(_)), "{event:?}"),
                Err(status) => break status,
            }
        };
        assert_eq!(ended.code(), Code::Unavailable);
        assert_eq!(acks.message().await.unwrap_err().code(), Code::Unavailable);
        drop(client);
        stopping.join().unwrap();
    });
}

#[test]
fn health_is_reported_for_each_service() {
    run(async {
        let (_node, server) = serve_grpc();
        let mut health = HealthClient::new(channel(&server).await);
        for service in ["", "dunlin.v1.Dunlin", "dunlin.v1.Kv", "dunlin.v1.Tasks", "ratatoskr.MessageBroker"]
        {
            let request = HealthCheckRequest { service: service.to_owned() };
            let response = health.check(request).await.unwrap().into_inner();
            assert_eq!(response.status(), ServingStatus::Serving);
        }
        let unknown = HealthCheckRequest { service: "nobody".to_owned() };
        assert_eq!(health.check(unknown).await.unwrap_err().code(), Code::NotFound);
    });
}

#[test]
fn grpc_health_follows_readiness() {
    run(async {
        let disk = FakeDisk::new(1);
        let (node, _) = Node::open(Config::default(), Arc::new(disk.clone()), Path::new("/data")).unwrap();
        let durable = TopicConfig { durable: Some(DurableOptions::default()), ..TopicConfig::default() };
        node.create_topic("orders", durable, false).unwrap();
        let server = serve_node(&node, |config| config.grpc = vec![([127, 0, 0, 1], 0).into()]);
        let mut health = HealthClient::new(channel(&server).await);
        let request = || HealthCheckRequest { service: "dunlin.v1.Dunlin".to_owned() };
        let mut watch = health.watch(request()).await.unwrap().into_inner();
        let first = watch.message().await.unwrap().unwrap();
        assert_eq!(first.status(), ServingStatus::Serving);
        disk.set_faults(Faults { sync_fails: Some(0), ..Faults::default() });
        node.publisher("orders").unwrap().publish("x").unwrap_err();
        disk.set_faults(Faults::default());
        let failed = health.check(request()).await.unwrap().into_inner();
        assert_eq!(failed.status(), ServingStatus::NotServing);
        let second = watch.message().await.unwrap().unwrap();
        assert_eq!(second.status(), ServingStatus::NotServing);
        node.delete_topic("orders").unwrap();
        let third = watch.message().await.unwrap().unwrap();
        assert_eq!(third.status(), ServingStatus::Serving, "housekeeping reports it");
    });
}

#[test]
fn grpc_client_reconnects_after_its_idle_connection_is_closed() {
    run(async {
        let (node, server) = serve_grpc_with(|config| config.limits.grpc.idle_ms_max = 50);
        let mut client = connect(&server).await;
        client.publish(publish("t", "1")).await.unwrap();
        until(async || server.sessions() == 0).await;
        client.publish(publish("t", "2")).await.unwrap();
        assert_eq!(node.topic("t").unwrap().logs()[0].last().seq, 2);
    });
}
