//! Tests of state topics whose state is copied to other nodes than the owner.

use dunlin::topic::{Draft, OnGap, ReducerConfig};

use super::*;

fn from_snapshot() -> SubscribeOptions {
    SubscribeOptions { on_gap: OnGap::Snapshot, ..from(Start::Snapshot) }
}

fn create_stateful_topic_at(cluster: &TestCluster, id: u64, name: &str) {
    let reducer = ReducerConfig { kind: "last".to_owned(), options: Default::default() };
    let config = TopicConfig { reducer: Some(reducer), ..TopicConfig::default() };
    cluster.node(id).create_topic(name, config, false).unwrap();
    until("all nodes know the topic", || (1..=3).all(|other| cluster.node(other).topic(name).is_some()));
    if cluster.owner(name).0 != id {
        cluster.ownership(id).move_topic(name, id).unwrap();
        cluster.until_owned_by(name, id);
    }
}

fn set(node: &Node, topic: &str, key: u64, value: u64) {
    let (key, value) = (key.to_le_bytes(), value.to_le_bytes());
    // If the machine was so busy that the owner's lease ended, the owner appends nothing until it has another lease.
    until("an owner appends the record", || {
        let mut draft = Draft::from(&value);
        draft.meta.key = Some(&key);
        let mut publisher = node.publisher(topic).unwrap();
        match publisher.send(draft).and_then(|()| publisher.flush()) {
            Ok(_) => true,
            Err(PublishError::OwnerAway(_)) => false,
            Err(other) => panic!("{other}"),
        }
    });
}

/// The state of a topic at the node `id`: its position, its number of keys, and its checksum. `None` if the node has no
/// state.
fn state(cluster: &TestCluster, id: u64, topic: &str) -> Option<(Position, u64, u64)> {
    let log = Arc::clone(&cluster.node(id).topic(topic).unwrap().logs()[0]);
    let (at, info) = log.state_info().unwrap();
    log.is_positioned().then_some((at, info.entries, info.checksum))
}

#[test]
fn lost_owner_is_replaced_by_a_node_that_has_the_state() {
    let cluster = TestCluster::of(3);
    create_stateful_topic_at(&cluster, 1, "t");
    let mut reader = cluster.node(3).subscribe("t", &from_snapshot()).unwrap();
    (0..20).for_each(|key| set(&cluster.node(2), "t", key, key));
    until("the state is there", || {
        reader.next_timeout(POLL).unwrap();
        state(&cluster, 3, "t").is_some_and(|(at, ..)| at.seq >= 20)
    });
    cluster.cut(1);
    cluster.end_lease(1);
    // Publish at node 2, which has none of the topic's records. Node 3 has the state.
    set(&cluster.node(2), "t", 99, 99);
    assert_eq!(cluster.owner("t").0, 3);
    let (_, keys, _) = state(&cluster, 3, "t").unwrap();
    assert_eq!(keys, 21, "records read there are not lost");
}

#[test]
fn subscribers_at_all_nodes_have_the_state_of_the_owner() {
    let cluster = TestCluster::with_short_leases(3);
    create_stateful_topic_at(&cluster, 1, "t");
    let mut readers: HashMap<u64, Subscriber> = HashMap::new();
    let (mut random, mut cut_node) = (1_u64, None);
    let mut random_below = |of: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % of
    };
    for round in 0..30_u64 {
        if let Some(returning) = cut_node.take() {
            cluster.reconnect(returning);
        }
        let connected = |cut_node: Option<u64>| (1..=3).filter(move |id| Some(*id) != cut_node);
        match random_below(4) {
            0 => {
                let to = 1 + random_below(3);
                // Ignore the error: the node `to` may not be a member again yet.
                let _ = cluster.ownership(1).move_topic("t", to);
            }
            1 => {
                cut_node = Some(cluster.owner("t").0);
                cluster.cut(cut_node.unwrap());
            }
            2 => drop(readers.remove(&(1 + random_below(3)))),
            // Sleep for up to 300 ms, a time in which mirrors without subscribers may be dropped.
            _ => thread::sleep(Duration::from_millis(random_below(300))),
        }
        for _ in 0..random_below(30) {
            let by =
                connected(cut_node).nth(random_below(connected(cut_node).count() as u64) as usize).unwrap();
            set(&cluster.node(by), "t", random_below(50), round);
        }
        for id in connected(cut_node) {
            readers.entry(id).or_insert_with(|| cluster.node(id).subscribe("t", &from_snapshot()).unwrap());
        }
        let owner = || cluster.owner("t").0;
        until("a node owns the topic", || {
            cut_node != Some(owner()) && state(&cluster, owner(), "t").is_some()
        });
        for id in connected(cut_node) {
            until("the subscribers reach the owner's position", || {
                let (theirs, ours) = (state(&cluster, owner(), "t"), state(&cluster, id, "t"));
                if let (Some(theirs), Some(ours)) = (theirs, ours)
                    && theirs.0 == ours.0
                {
                    assert_eq!(ours, theirs, "node {id} in round {round}");
                }
                ours.is_some() && ours == theirs
            });
        }
        for reader in readers.values_mut() {
            while reader.next_timeout(Duration::ZERO).unwrap().is_some() {}
        }
    }
}
