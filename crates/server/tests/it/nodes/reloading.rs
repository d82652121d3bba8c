//! Tests changes of the users file of a node whose clients read another node's topic.

use std::sync::Arc;

use dunlin::topic::{Publish, Start, TopicConfig};
use dunlin_wait::until;

use super::{TestCluster, read_until, start_at};
use crate::access::Guarded;

const USERS: &str = "[users.ana]\npassword = \"HASH\"\nsubscribe = [\">\"]\n";

/// A subscriber that begins before the first record of the node's mirror has a mirror of its own, a private one.
#[test]
fn private_mirror_survives_a_reload_of_the_users_file() {
    let cluster = TestCluster::of(2);
    cluster.create_topic_at(1, "t", TopicConfig::default());
    let guarded = Guarded::with_node(cluster.node(2), USERS, |_| ());
    let (owned, ana) = (cluster.node(1).topic("t").unwrap(), guarded.by_password("ana"));
    let mut publisher = cluster.node(1).publisher("t").unwrap();
    let mut publish = |n: u64| publisher.publish(&n.to_le_bytes()).unwrap().position;
    let first = publish(1);
    publish(2);
    let mut shared = cluster.node(2).subscribe("t", &start_at(Start::Latest)).unwrap();
    publish(3);
    assert_eq!(read_until(&mut shared, 3).0, [3]);
    let after_first = vec![(Arc::clone(owned.logs()[0].name()), first)];
    let mut from_start = ana.subscribe("t", start_at(Start::Earliest)).unwrap();
    let mut resumed = ana.subscribe_nowait("t", start_at(Start::Latest), after_first);
    assert_eq!(read_until(&mut from_start, 3).0, [1, 2, 3]);
    assert_eq!(read_until(&mut resumed, 3).0, [2, 3]);
    let is_private = |name: &str| name == "mirror of one subscriber";
    until("both have private mirrors", || {
        owned.subscribers().iter().filter(|subscriber| is_private(&subscriber.name)).count() == 2
    });
    for n in 4..=6 {
        guarded.rewrite(USERS);
        publish(n);
        for reader in [&mut from_start, &mut resumed] {
            assert_eq!(read_until(reader, n).0, [n]);
        }
    }
}
