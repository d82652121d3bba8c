//! Tests in which a node refuses a client's requests. Other clients of the node must not be affected.

use dunlin_client::topic::{
    Draft, Publish, PublishError, Retention, Start, Subscribe, SubscribeOptions, TopicConfig,
};
use dunlin_client::{Client, ClientOptions};
use dunlin_system_tests::process::PATIENCE;

use crate::processes::{Node, role};

#[test]
fn error_for_a_port_in_use_names_the_address() {
    let node = Node::start_anywhere(&[]);
    let mut second = role("second node", &["node", &node.address.to_string()]);
    assert_eq!(second.finish(PATIENCE), Vec::<String>::new(), "the node printed READY");
    assert!(!second.wait().success());
    let errors = second.errors();
    assert!(errors.contains(&format!("listen on {}", node.address)), "{errors}");
    assert!(!errors.contains("panicked"), "{errors}");
    Client::connect(&node.url(), ClientOptions::default()).unwrap();
}

#[test]
fn only_the_publisher_over_the_memory_budget_is_refused() {
    // The heartbeat interval is long. With a short interval, clients could assume that the node is dead when the
    // machine pauses.
    let node = Node::start_anywhere(&["memory=4194304", "heartbeat=30000"]);
    let client = Client::connect(&node.url(), ClientOptions::default()).unwrap();
    let retention = Retention { bytes: 1 << 30, ..Retention::default() };
    let config = TopicConfig { retention, record_bytes_max: 8 << 20, ..TopicConfig::default() };
    client.create_topic("greedy", &config, false).unwrap();
    let options = SubscribeOptions { start: Start::Earliest, ..SubscribeOptions::default() };
    let mut subscriber = client.subscribe("modest", options).unwrap();
    let mut modest = client.publisher("modest").unwrap();
    let mut greedy = client.publisher("greedy").unwrap();
    modest.publish(b"before").unwrap();
    let oversized = vec![7u8; 5 << 20];
    for _ in 0..3 {
        let refused = greedy.publish(Draft::from(oversized.as_slice()));
        let Err(PublishError::BudgetSpent { requested: asked, used, limit }) = refused else {
            panic!("{refused:?}")
        };
        assert!(limit == 4 << 20 && asked + used > limit, "{asked} more on top of {used} of {limit}");
        modest.publish(b"meanwhile").unwrap();
    }
    // The node still accepts smaller records for both topics. The retention of the topic `greedy` alone is many times
    // the memory budget.
    for _ in 0..20 {
        greedy.publish(Draft::from(&oversized[..500_000])).unwrap();
        modest.publish(b"meanwhile").unwrap();
    }
    modest.publish(b"end").unwrap();
    let mut expected = 1;
    while expected <= 25 {
        let dunlin_client::topic::Event::Record(record) = subscriber.next().unwrap() else {
            panic!("a notice")
        };
        assert_eq!(record.seq(), expected);
        expected += 1;
    }
    assert_eq!(client.connections(), 1, "the connection was cut, and everybody on it disturbed");
    assert!(node.process.rss_bytes() < 256 << 20);
    node.assert_no_errors();
}
