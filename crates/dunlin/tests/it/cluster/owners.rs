//! Tests of topics that move to another owner, or whose owner is lost or restarts.

use dunlin::TopicError;

use super::*;

#[test]
fn subscribers_of_a_moved_topic_get_a_new_epoch_but_no_loss() {
    let cluster = TestCluster::of(3);
    cluster.create_topic_at(1, "t");
    let mut readers = [1, 2, 3].map(|id| cluster.node(id).subscribe("t", &from(Start::Latest)).unwrap());
    publish(&cluster.node(3), "t", "before");
    cluster.ownership(3).move_topic("t", 2).unwrap();
    cluster.until_owned_by("t", 2);
    publish(&cluster.node(1), "t", "after");
    for reader in &mut readers {
        assert_eq!(next_events(reader, 3), ["before", "epoch after 1 of Some(1)", "after"]);
    }
}

#[test]
fn publishing_continues_while_a_topic_moves_back_and_forth() {
    let cluster = TestCluster::of(3);
    cluster.create_topic_at(1, "t");
    let mut reader = cluster.node(3).subscribe("t", &from(Start::Latest)).unwrap();
    let node = cluster.node(2);
    let is_finished = Arc::new(AtomicBool::new(false));
    let finished = Arc::clone(&is_finished);
    let publishing = thread::spawn(move || {
        let mut publisher = node.publisher("t").unwrap();
        let mut count = 0_u64;
        while !finished.load(Ordering::Relaxed) {
            publisher.publish(count.to_string().as_str()).unwrap();
            count += 1;
        }
        count
    });
    let published = || {
        let owner = cluster.node(cluster.owner("t").0);
        owner.topic("t").unwrap().logs()[0].last().seq
    };
    for to in [2, 3, 1, 2, 3] {
        let before = published();
        until("publishing continues", || published() > before);
        cluster.ownership(1).move_topic("t", to).unwrap();
        cluster.until_owned_by("t", to);
    }
    is_finished.store(true, Ordering::Relaxed);
    let count = publishing.join().unwrap();
    let mut next = 0;
    while next < count {
        let event = next_events(&mut reader, 1).remove(0);
        match event.parse::<u64>() {
            Ok(n) => {
                assert_eq!(n, next);
                next += 1;
            }
            Err(_) => assert!(
                event.starts_with("epoch after") && event.ends_with(&format!("Some({next})")),
                "{event}"
            ),
        }
    }
}

#[test]
fn last_record_of_the_old_epoch_is_unknown_after_a_failover() {
    let cluster = TestCluster::of(3);
    cluster.create_topic_at(1, "t");
    let mut reader = cluster.node(3).subscribe("t", &from(Start::Latest)).unwrap();
    publish(&cluster.node(2), "t", "before");
    assert_eq!(next_events(&mut reader, 1), ["before"]);
    cluster.cut(1);
    cluster.end_lease(1);
    publish(&cluster.node(2), "t", "after");
    assert_eq!(next_events(&mut reader, 2), ["epoch after 1 of None", "after"]);
    assert_ne!(cluster.owner("t").0, 1);
}

#[test]
fn deposed_owner_accepts_no_record_until_it_rejoins() {
    let cluster = TestCluster::with_short_leases(3);
    cluster.create_topic_at(1, "t");
    let mut reader = cluster.node(1).subscribe("t", &from(Start::Latest)).unwrap();
    publish(&cluster.node(1), "t", "before");
    cluster.cut(1);
    let refused = || cluster.node(1).publisher("t").unwrap().publish("into the void").is_err();
    until("the node does not know that it is the owner", refused);
    let known = cluster.node(1).topic("t").unwrap().logs()[0].last().seq;
    assert_eq!(next_events(&mut reader, known as usize)[0], "before");
    publish(&cluster.node(2), "t", "elsewhere");
    cluster.reconnect(1);
    publish(&cluster.node(1), "t", "again");
    let changed = format!("epoch after {known} of None");
    assert_eq!(next_events(&mut reader, 3), [&changed, "elsewhere", "again"]);
}

#[test]
fn publisher_waits_until_its_node_regains_its_lost_lease() {
    let limits = OwnershipLimits { owner_wait_max: PATIENCE, ..OwnershipLimits::default() };
    let cluster = TestCluster::with(3, OwnershipLimits { lease_ttl: Duration::from_secs(2), ..limits });
    cluster.create_topic_at(1, "t");
    let before = publish(&cluster.node(1), "t", "before");
    cluster.cut(1);
    until("the owner's lease has expired", || !cluster.ownership(1).has_lease());
    let mut publisher = cluster.node(1).publisher("t").unwrap();
    publisher.send("after").unwrap();
    cluster.reconnect(1);
    let after = publisher.flush().unwrap().unwrap().position;
    assert_eq!(after, Position { seq: before.seq + 1, ..before });
}

#[test]
fn topic_without_a_publisher_moves_when_its_owner_is_lost() {
    let cluster = TestCluster::of(3);
    cluster.create_topic_at(1, "t");
    publish(&cluster.node(1), "t", "first");
    let readers = [Start::Latest, Start::Earliest].map(|start| cluster.node(3).subscribe("t", &from(start)));
    let [mut newest, mut oldest] = readers.map(Result::unwrap);
    assert_eq!(next_events(&mut oldest, 1), ["first"]);
    drop(newest);
    cluster.cut(1);
    cluster.end_lease(1);
    // The subscriber finds a new owner although the topic has no publisher and no other subscriber.
    assert_eq!(next_events(&mut oldest, 1), ["epoch after 1 of None"]);
    assert_ne!(cluster.owner("t").0, 1);
    newest = cluster.node(2).subscribe("t", &from(Start::Latest)).unwrap();
    publish(&cluster.node(2), "t", "second");
    assert_eq!(
        (next_events(&mut oldest, 1), next_events(&mut newest, 1)),
        (vec!["second".to_owned()], vec!["second".to_owned()])
    );
}

#[test]
fn subscriber_follows_a_moved_topic_while_the_old_owner_lives() {
    let cluster = TestCluster::of(3);
    cluster.create_topic_at(1, "t");
    publish(&cluster.node(1), "t", "first");
    let mut reader = cluster.node(3).subscribe("t", &from(Start::Earliest)).unwrap();
    assert_eq!(next_events(&mut reader, 1), ["first"]);
    cluster.ownership(1).move_topic("t", 2).unwrap();
    cluster.until_owned_by("t", 2);
    publish(&cluster.node(2), "t", "second");
    assert_eq!(next_events(&mut reader, 2), ["epoch after 1 of Some(1)", "second"]);
    let first = cluster.node(1).topic("t").unwrap();
    until("the node does not read there any more", || !first.logs()[0].has_subscribers());
    publish(&cluster.node(2), "t", "third");
    assert_eq!(next_events(&mut reader, 1), ["third"]);
}

#[test]
fn restarted_node_does_not_repeat_an_old_topic_move() {
    let cluster = TestCluster::of(3);
    cluster.create_topic_at(1, "t");
    let before = cluster.hub.state.lock().unwrap().clone();
    cluster.ownership(1).move_topic("t", 2).unwrap();
    cluster.until_owned_by("t", 2);
    let (_, epoch) = cluster.owner("t");
    let last = ["1", "2", "3"].map(|payload| publish(&cluster.node(3), "t", payload))[2];
    assert_eq!(last.epoch, epoch);
    // Node 2 restarts, and receives all changes of the agreed state one after another.
    let ownership = cluster.join(2);
    ownership.apply_state(&before);
    let now = cluster.hub.state.lock().unwrap().clone();
    ownership.apply_placement("t", &now.placement(b"t").unwrap()).unwrap();
    let mut reader = cluster.node(2).subscribe("t", &from(Start::After(last))).unwrap();
    ownership.begin_membership(Vec::new()).unwrap();
    assert_eq!(next_events(&mut reader, 1), ["epoch after 3 of None"]);
}

#[test]
fn subscriber_from_an_old_epoch_gets_the_whole_current_epoch() {
    let cluster = TestCluster::of(2);
    cluster.create_topic_at(1, "t");
    let last = ["1", "2", "3", "4", "5"].map(|payload| publish(&cluster.node(2), "t", payload))[4];
    let before = cluster.hub.state.lock().unwrap().clone();
    // Both nodes restart. Node 2 receives the changes only after node 1 has begun new epochs and appended records.
    let ownership = cluster.join(2);
    ownership.apply_state(&before);
    cluster.start(1);
    until("another epoch has begun", || cluster.owner("t").1 > last.epoch);
    until("the owner knows", || !cluster.node(1).topic("t").unwrap().logs()[0].is_mirror());
    for payload in ["a", "b"] {
        publish(&cluster.node(1), "t", payload);
    }
    let _newest = cluster.node(2).subscribe("t", &from(Start::Latest)).unwrap();
    until("the mirror is fed", || cluster.node(2).topic("t").unwrap().logs()[0].is_positioned());
    let mut reader = cluster.node(2).subscribe("t", &from(Start::After(last))).unwrap();
    assert_eq!(next_events(&mut reader, 3), ["epoch after 5 of None", "a", "b"]);
}

#[test]
fn node_without_a_lease_accepts_no_record_as_owner() {
    let limits = OwnershipLimits { owner_wait_max: Duration::from_secs(1), ..OwnershipLimits::default() };
    let cluster = TestCluster::with(3, OwnershipLimits { lease_ttl: Duration::from_secs(2), ..limits });
    cluster.create_topic_at(1, "t");
    cluster.create_topic_at(2, "own");
    let (_, epoch) = cluster.owner("t");
    cluster.cut(2);
    let node = cluster.node(2);
    let publishing = thread::spawn(move || {
        dunlin_wait::find("the owner is reachable", || match node.publisher("t").unwrap().publish("waits") {
            Err(PublishError::OwnerAway(_)) => None,
            outcome => Some(outcome),
        })
    });
    // The lease of node 2 ends, so that its topic `own` gets another owner.
    until("the node knows that it owns nothing", || {
        cluster.node(2).publisher("own").unwrap().publish("x").is_err()
    });
    for to in [3, 1] {
        cluster.ownership(1).move_topic("t", to).unwrap();
        until("it is moved", || !cluster.node(to).topic("t").unwrap().logs()[0].is_mirror());
    }
    let state = cluster.hub.state.lock().unwrap().clone();
    let now = state.placement(b"t").unwrap();
    cluster
        .ownership(2)
        .apply_placement("t", &Placement { owner: 2, epoch: epoch + 1, from: 0, ..now })
        .unwrap();
    // Node 2 still believes that it owns the topic. When this call returns, node 2 has tried to append the waiting
    // batch.
    assert!(cluster.node(2).publisher("t").unwrap().publish("tried").is_err());
    cluster.reconnect(2);
    let position = publishing.join().unwrap().unwrap().position;
    assert_eq!(position.epoch, now.epoch);
    until("the owner has the record", || cluster.node(1).topic("t").unwrap().logs()[0].last() == position);
}

#[test]
fn refusal_of_a_pattern_names_the_overlapping_remote_topic() {
    let cluster = TestCluster::of(2);
    let create = |id: u64, name: &str, pattern: &str| {
        let config = TopicConfig { pattern: Some(pattern.to_owned()), ..TopicConfig::default() };
        cluster.node(id).create_topic(name, config, false).map(drop)
    };
    create(1, "orders", "orders.>").unwrap();
    assert_eq!(create(2, "eu", "*.eu"), Err(TopicError::Overlaps("orders".to_owned())));
}
