use dunlin::topic::Publish;
use dunlin::wire::{
    CreateTopic, CreateTopicWithSettings, ErrorCode, FromClient, FromNode, ListTopics, MessageList,
    NamedTopic, Setting, TopicConfig, WhenFull,
};

use crate::peer::Peer;
use crate::serve;

fn config<'a>(name: &'a str, pattern: &'a str) -> TopicConfig<'a> {
    TopicConfig {
        name,
        pattern,
        partitions: 2,
        retain_bytes: 1 << 20,
        retain_records: 0,
        retain_ms: 5_000,
        record_bytes_max: 0,
        reliable_subscribers_max: 3,
        wait_ms_max: 0,
        when_full: WhenFull::Evict,
    }
}

fn read_outcome(peer: &mut Peer) -> Result<u32, (u32, ErrorCode)> {
    let outcome = peer.next(|m| match m {
        FromNode::Done { request } => Some(Ok(request)),
        FromNode::RequestRefused(refused) => Some(Err((refused.request, refused.refusal.code))),
        _ => None,
    });
    outcome.unwrap()
}

#[test]
fn topics_are_created_listed_described_and_deleted() {
    let (_node, server) = serve();
    let mut peer = Peer::connect(&server);
    let create = |request, or_same| {
        FromClient::CreateTopic(CreateTopic { request, or_same, config: config("a", "a.>") })
    };
    peer.send(create(1, false));
    assert_eq!(read_outcome(&mut peer), Ok(1));
    peer.send(create(2, true));
    assert_eq!(read_outcome(&mut peer), Ok(2));
    peer.send(create(3, false));
    assert_eq!(read_outcome(&mut peer), Err((3, ErrorCode::TopicExists)));

    peer.send(FromClient::ListTopics(ListTopics { request: 4, topics_max: 10, pattern: "", after: "" }));
    let names = peer.next(|m| match m {
        FromNode::Topics(topics) => Some(topics.topics.iter().map(|t| t.name.to_owned()).collect::<Vec<_>>()),
        _ => None,
    });
    assert_eq!(names, Some(vec!["a".to_owned()]));

    peer.send(FromClient::DescribeTopic(NamedTopic { request: 5, topic: "a" }));
    peer.next(|m| match m {
        FromNode::Topic(state) => {
            let described = TopicConfig { record_bytes_max: 0, wait_ms_max: 0, ..state.config };
            assert_eq!(described, config("a", "a.>"));
            assert_eq!(state.logs.len(), 2);
            Some(())
        }
        _ => None,
    })
    .unwrap();

    peer.send(FromClient::DeleteTopic(NamedTopic { request: 6, topic: "a" }));
    assert_eq!(read_outcome(&mut peer), Ok(6));
    peer.send(FromClient::DeleteTopic(NamedTopic { request: 7, topic: "a" }));
    assert_eq!(read_outcome(&mut peer), Err((7, ErrorCode::NoTopic)));
}

#[test]
fn subscription_list_shows_the_lag_of_a_slow_subscriber() {
    let (node, server) = serve();
    let mut slow = Peer::connect(&server);
    slow.send(FromClient::Subscribe(dunlin::wire::Subscribe {
        subscription: 1,
        credit: 0,
        start: dunlin::wire::StartAt::Latest,
        on_gap: dunlin::wire::OnGap::Oldest,
        registered: false,
        pattern: "a",
        name: "slow",
    }));
    slow.await_subscribed();
    node.publisher("a").unwrap().publish("1").unwrap();
    let mut peer = Peer::connect(&server);
    peer.send(FromClient::DescribeTopic(NamedTopic { request: 1, topic: "a" }));
    let subscriber = peer.next(|m| match m {
        FromNode::Topic(state) => state.subscribers.iter().next().map(|r| (r.name.to_owned(), r.lag)),
        _ => None,
    });
    assert_eq!(subscriber, Some(("slow".to_owned(), 1)));
    drop(slow);
    dunlin_wait::until("the subscriber is gone", || node.topic("a").unwrap().subscribers().is_empty());
}

#[test]
fn repeated_topic_setting_is_refused() {
    let (node, server) = serve();
    let mut peer = Peer::connect(&server);
    let settings = [
        Setting { name: "reducer", value: "last" },
        Setting { name: "test_loss_every", value: "3" },
        Setting { name: "test_loss_every", value: "4" },
    ];
    let config = config("twice", "");
    let (request, settings) = (7, MessageList::new(&settings));
    peer.send(FromClient::CreateTopicWithSettings(CreateTopicWithSettings {
        request,
        or_same: false,
        config,
        settings,
    }));
    let refusal = peer.next(|message| match message {
        FromNode::RequestRefused(refused) => Some((refused.request, refused.refusal.text.to_owned())),
        _ => None,
    });
    assert_eq!(refusal, Some((7, "a setting occurs twice".to_owned())));
    assert!(node.topic("twice").is_none());
}
