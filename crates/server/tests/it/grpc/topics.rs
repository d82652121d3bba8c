use dunlin::topic::Publish;
use tonic::Code;
use tonic_types::StatusExt;

use super::*;

#[test]
fn topic_is_created_described_and_deleted_over_grpc() {
    run(async {
        let (_node, server) = serve_grpc();
        let mut client = connect(&server).await;
        let config = v1::TopicConfig {
            pattern: "orders.>".to_owned(),
            partitions: 3,
            retain_bytes: 1 << 20,
            retain_records: 1_000,
            retain_ms: 60_000,
            record_bytes_max: 4_096,
            reliable: Some(v1::Reliable { subscribers_max: 2, wait_ms_max: 70, evict: true }),
            ..Default::default()
        };
        let create = |or_same| v1::CreateTopicRequest {
            name: "orders".to_owned(),
            config: Some(config.clone()),
            or_same,
        };
        client.create_topic(create(false)).await.unwrap();
        client.create_topic(create(true)).await.unwrap();
        let again = client.create_topic(create(false)).await.unwrap_err();
        assert_eq!(again.code(), Code::AlreadyExists);
        let name = || v1::DescribeTopicRequest { name: "orders".to_owned() };
        let described = client.describe_topic(name()).await.unwrap().into_inner();
        assert_eq!(described.config, Some(config));
        assert_eq!(described.logs.len(), 3);
        let listed = client.list_topics(v1::ListTopicsRequest::default()).await.unwrap().into_inner();
        assert_eq!((listed.topics.len(), listed.topics[0].pattern.as_str()), (1, "orders.>"));
        client.delete_topic(v1::DeleteTopicRequest { name: "orders".to_owned() }).await.unwrap();
        assert_eq!(client.describe_topic(name()).await.unwrap_err().code(), Code::NotFound);
    });
}

#[test]
fn grpc_topic_list_is_paged() {
    run(async {
        let (node, server) = serve_grpc();
        for number in 0..25 {
            node.publisher(&format!("t{number:02}")).unwrap().publish("x").unwrap();
        }
        let mut client = connect(&server).await;
        let (mut names, mut after) = (Vec::new(), String::new());
        loop {
            let request = v1::ListTopicsRequest { after, topics_max: 10, ..Default::default() };
            let page = client.list_topics(request).await.unwrap().into_inner();
            assert!(page.topics.iter().all(|line| (line.records, line.appended) == (1, 1)));
            names.extend(page.topics.into_iter().map(|line| line.name));
            if !page.more {
                break;
            }
            after = names.last().unwrap().clone();
        }
        assert_eq!(names, (0..25).map(|number| format!("t{number:02}")).collect::<Vec<_>>());
    });
}

#[test]
fn details_of_a_grpc_refusal_carry_the_error_code() {
    run(async {
        let (_node, server) = serve_grpc();
        let mut client = connect(&server).await;
        let refused = client.publish(publish("a..b", "x")).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        let info = refused.get_details_error_info().unwrap();
        assert_eq!((info.reason.as_str(), info.domain.as_str()), ("SUBJECT", "dunlin"));
        assert_eq!((info.metadata["code"].as_str(), info.metadata["retry"].as_str()), ("20", "no"));
        let create = v1::CreateTopicRequest {
            name: "t".to_owned(),
            config: Some(v1::TopicConfig { record_bytes_max: 100, ..Default::default() }),
            or_same: false,
        };
        client.create_topic(create).await.unwrap();
        let refused = client.publish(publish("t", vec![0; 1_000])).await.unwrap_err();
        let info = refused.get_details_error_info().unwrap();
        assert_eq!(info.reason, "RECORD_TOO_LARGE");
        assert!(info.metadata["numbers"].ends_with(",100,0"), "{info:?}");
    });
}

#[test]
fn grpc_stats_contain_the_id_and_name_of_the_node() {
    run(async {
        let (node, server) = serve_grpc();
        let mut client = connect(&server).await;
        let stats = client.get_stats(v1::GetStatsRequest {}).await.unwrap().into_inner();
        assert_eq!((stats.node, stats.name.as_str(), stats.sessions), (node.id(), "dunlin", 1));
    });
}
