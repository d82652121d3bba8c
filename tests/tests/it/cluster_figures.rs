//! Tests that every node reports the same counts of a topic as the topic's owner.

use dunlin_client::scheduler::NewTask;
use dunlin_client::topic::{
    DurableOptions, Event, Position, Retention, Start, Subscribe, SubscribeError, SubscribeOptions,
    TopicConfig,
};
use dunlin_client::{Client, TopicSummary};
use dunlin_server::grpc::proto::dunlin as v1;
use dunlin_system_tests::process::PATIENCE;
use serde_json::{Value, json};
use tokio::runtime::Builder;
use tonic::Code;
use tonic::transport::Endpoint;
use v1::kv_client::KvClient;

use super::cluster_topics::{from, http, publish, until};
use super::cluster_under_test::{ClusterNode, ClusterUnderTest};

fn topic_summary(client: &Client, topic: &str) -> TopicSummary {
    let topics = client.topics(topic).expect("a list");
    topics.into_iter().next().expect("the topic is listed")
}

fn fetch_json(member: &ClusterNode, path: &str) -> Value {
    let response = http(member, "GET", path, "");
    let (_, body) = response.split_once("\r\n\r\n").expect("a body");
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {response}"))
}

/// Returns four counts of the topic, as the member's HTTP listener reports them: appended records, retained records,
/// subscribers, and rows in the list of subscriptions.
fn topic_counts(member: &ClusterNode) -> [Value; 4] {
    let listed = &fetch_json(member, "/v1/topics?pattern=x")["topics"][0];
    let subscriptions = fetch_json(member, "/v1/subscriptions");
    let rows =
        subscriptions["subscriptions"].as_array().expect("a list").iter().filter(|row| row["topic"] == "x");
    let subscribers = listed["subscribers"].clone();
    [listed["records"].clone(), listed["retained_records"].clone(), subscribers, rows.count().into()]
}

#[test]
fn every_node_shows_the_figures_of_a_topic() {
    let cluster = ClusterUnderTest::of(2);
    let clients: Vec<Client> = cluster.members.iter().map(ClusterNode::connect).collect();
    clients[0].create_topic("x", &TopicConfig::default(), false).expect("the name is free");
    publish(&clients[0], "x", 1..=3);
    clients[0].move_topic("x", cluster.members[1].number).expect("the topic moves");
    publish(&clients[0], "x", [4]);
    let named_options = |name: &str| SubscribeOptions { name: name.to_owned(), ..from(Start::Earliest) };
    let _near = clients[1].subscribe("x", named_options("near")).expect("the subscription is accepted");
    let _far = clients[0].subscribe("x", named_options("far")).expect("the subscription is accepted");
    for (member, client) in cluster.members.iter().zip(&clients) {
        until("the list has its figures", || {
            let listed = topic_summary(client, "x");
            (listed.appended, listed.records, listed.subscribers) == (Some(4), Some(4), Some(2))
        });
        until("HTTP has them", || topic_counts(member) == [json!(4), json!(4), json!(2), json!(2)]);
        until("the description has them", || {
            let described = client.describe_topic("x").expect("the topic exists");
            let last = described.logs.iter().map(|log| log.last_seq).max();
            // The subscription `far` reads old records, which the first node requests from the owner separately. The
            // list must contain `far` only once nevertheless.
            let mut names: Vec<&str> = described.subscribers.iter().map(|one| one.name.as_str()).collect();
            names.sort_unstable();
            (last, described.subscribers_total) == (Some(4), Some(2)) && names == ["far", "near"]
        });
        until("the dashboard has them", || {
            let topics = fetch_json(member, "/v1/node/topics");
            let row = topics["topics"].as_array().expect("a list").iter().find(|row| row["name"] == "x");
            row.is_some_and(|x| (&x["records"], &x["subscribers"]) == (&json!(4), &json!(2)))
        });
    }
    let metrics = http(&cluster.members[0], "GET", "/metrics", "");
    assert!(
        !metrics.contains("dunlin_topic_records_total{topic=\"x\"}"),
        "another node's records: {metrics}"
    );
}

#[test]
fn topics_of_an_absent_owner_are_listed_without_figures() {
    let mut cluster = ClusterUnderTest::of(3);
    let retention = Retention { bytes: DurableOptions::RETENTION_BYTES_DEFAULT, ..Retention::default() };
    let config =
        TopicConfig { durable: Some(DurableOptions::default()), retention, ..TopicConfig::default() };
    let owner = cluster.members[2].connect();
    owner.create_topic("x", &config, false).expect("the name is free");
    publish(&owner, "x", 1..=3);
    let client = cluster.members[0].connect();
    until("the owner says what it has", || topic_summary(&client, "x").appended == Some(3));
    drop(owner);
    let _dead = cluster.kill(2);
    let unknown =
        |listed: &TopicSummary| (listed.appended, listed.records, listed.bytes) == (None, None, None);
    until("the list has no figures of a dead owner's topic", || {
        let listed = topic_summary(&client, "x");
        assert_ne!(listed.appended, Some(0), "a topic that holds records is shown as empty");
        unknown(&listed)
    });
    let listed = &fetch_json(&cluster.members[0], "/v1/topics?pattern=x")["topics"][0];
    assert_eq!((&listed["records"], &listed["retained_bytes"]), (&Value::Null, &Value::Null), "{listed}");
    assert!(client.describe_topic("x").expect("the topic exists").logs.is_empty());
}

/// Starts a watch of keys through gRPC at the revision `start_revision`. Returns the status code with which the watch
/// ends.
fn watch_by_grpc(member: &ClusterNode, start_revision: u64) -> Option<Code> {
    let address = format!("http://{}", member.listener("grpc"));
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let channel = Endpoint::from_shared(address).expect("an address").connect().await;
        let mut kv = KvClient::new(channel.expect("the port is open"));
        let (key, range_end) = (b"a"[..].into(), b"\0"[..].into());
        let watch = v1::WatchRequest { key, range_end, start_revision, ..Default::default() };
        match kv.watch(watch).await {
            Ok(mut responses) => responses.get_mut().message().await.err().map(|status| status.code()),
            Err(status) => Some(status.code()),
        }
    })
}

#[test]
fn watch_from_a_future_revision_or_epoch_is_refused() {
    let cluster = ClusterUnderTest::of(2);
    let client = cluster.members[1].connect();
    client.kv().put(b"a", b"1").expect("the key is written");
    client.tasks().submit("t", NewTask::new(b"work", b"")).expect("the task is accepted");
    for topic in ["$kv", "$tasks.>"] {
        let mut changes =
            client.subscribe(topic, from(Start::Earliest)).expect("the subscription is accepted");
        let epoch = match changes.next_timeout(PATIENCE).expect("the subscription is open") {
            Some(Event::Record(record)) => record.position.epoch,
            other => panic!("{other:?}"),
        };
        for position in [Position { epoch, seq: 1_000_000 }, Position { epoch: u32::MAX, seq: 1 }] {
            let outcome = client
                .subscribe(topic, from(Start::After(position)))
                .and_then(|mut watch| watch.next_timeout(PATIENCE).map(|event| format!("{event:?}")));
            assert!(matches!(outcome, Err(SubscribeError::Ahead { .. })), "{topic}: {outcome:?}");
        }
    }
    let response = http(&cluster.members[1], "GET", "/v1/watch?from=1000000", "");
    assert!(response.starts_with("HTTP/1.1 416"), "{response}");
    assert!(response.contains("AHEAD"), "{response}");
    assert_eq!(watch_by_grpc(&cluster.members[1], 1_000_000), Some(Code::OutOfRange));
    assert_eq!(watch_by_grpc(&cluster.members[1], 1), None);
}
