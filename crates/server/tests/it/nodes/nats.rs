//! Tests NATS subscriptions, queue groups and publishers at nodes that are not the topic's owner.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;

use dunlin::journal::FakeDisk;
use dunlin::state::ControlCommand;
use dunlin::topic::{
    Draft, DurableOptions, Event, MemoryBudget, Pattern, Payload, Publish, RecordMeta, Subscribe,
    SubscribeOptions, Topic, TopicConfig, Waiter,
};
use dunlin::wire::{self, FromClient, OnGap, StartAt};
use dunlin::{
    Config, Node, NodeLimits, Permissions, ShareMember, ShareOptions, SubjectRule, TaskRule, TopicError,
    User, Users,
};
use dunlin_wait::{PATIENCE, until};
use tokio::sync::watch;

use super::TestCluster;
use crate::nats_peer::NatsPeer;
use crate::nats_refusals::permission_violation;
use crate::peer::Peer;

/// When a member of a queue group receives this payload, it stops reading.
const END: &str = "end";

#[test]
fn queue_group_is_shared_by_members_at_all_nodes() {
    const RECORDS: usize = 300;
    let cluster = TestCluster::of(3);
    cluster.create_topic_at(1, "jobs", TopicConfig::default());
    let (sender, taken) = mpsc::channel();
    let member = |id: u64| {
        let (mut peer, sender) = (cluster.nats(id), sender.clone());
        peer.subscribe(&format!("end.{id} 1"));
        peer.subscribe("jobs workers 2");
        peer.subscribe("orders.> workers 3");
        thread::spawn(move || {
            loop {
                let (subject, payload) = peer.text();
                if payload == END {
                    return;
                }
                sender.send((subject, payload)).unwrap();
            }
        })
    };
    let members = [1, 2, 3].map(member);
    until("all are members", || {
        let topic = cluster.node(1).topic("jobs").unwrap();
        cluster.node(1).groups(&topic).first().is_some_and(|group| group.members.len() == 3)
    });
    let mut publishers = [1, 2, 3].map(|id| cluster.nats(id));
    for number in 0..RECORDS {
        let (text, of_many) = (number.to_string(), format!("orders.{}", number % 10));
        // The first record to each subject `orders.N` creates a topic, which the members of the second group then find.
        ["jobs", &of_many].iter().for_each(|subject| publishers[number % 3].publish(subject, &text));
    }
    let mut received = BTreeSet::new();
    while received.len() < 2 * RECORDS {
        let one = taken.recv_timeout(PATIENCE);
        let one = one.unwrap_or_else(|error| panic!("{error} after {} of {}", received.len(), 2 * RECORDS));
        assert!(received.insert(one.clone()), "{one:?} was given twice");
    }
    (1..=3).for_each(|id| publishers[0].publish(&format!("end.{id}"), END));
    members.into_iter().for_each(|member| member.join().unwrap());
    assert!(taken.try_recv().is_err(), "something was given twice");
}

/// The topic's name does not match its own pattern. A member at another node must still find the topic, and the owner's
/// thread for other nodes must not be blocked.
#[test]
fn queue_group_member_at_another_node_finds_topic_by_pattern() {
    let cluster = TestCluster::of(2);
    let pattern = Some("wide.>".to_owned());
    cluster.create_topic_at(1, "name", TopicConfig { pattern, ..TopicConfig::default() });
    cluster.create_topic_at(1, "other", TopicConfig::default());
    let (owner, topic) = (cluster.node(1), cluster.node(1).topic("name").unwrap());
    let (mut member, mut plain) = (cluster.nats(2), cluster.nats(2));
    member.subscribe("wide.> workers 1");
    until("it is a member", || owner.groups(&topic).len() == 1);
    plain.subscribe("other 1");
    owner.publisher("wide.x").unwrap().publish(b"shared").unwrap();
    owner.publisher("other").unwrap().publish(b"plain").unwrap();
    assert_eq!((member.text().1, plain.text().1), ("shared".to_owned(), "plain".to_owned()));
}

#[test]
fn queue_group_ends_when_its_last_remote_member_leaves() {
    let cluster = TestCluster::of(2);
    cluster.create_topic_at(1, "jobs", TopicConfig::default());
    let (owner, topic) = (cluster.node(1), cluster.node(1).topic("jobs").unwrap());
    let mut member = cluster.nats(2);
    member.subscribe("jobs workers 1");
    until("it is a member", || owner.groups(&topic).len() == 1);
    member.send_line("UNSUB 1");
    member.ping();
    until("it has left", || owner.groups(&topic).is_empty());
    member.subscribe("jobs workers 2");
    until("it is a member again", || owner.groups(&topic).len() == 1);
    drop(member);
    until("it is gone", || owner.groups(&topic).is_empty());
}

/// When a member leaves, it must still receive the records that the owner sent before the member left.
#[test]
fn queue_group_member_gets_records_sent_before_its_unsub() {
    let cluster = TestCluster::of(2);
    cluster.create_topic_at(1, "jobs", TopicConfig::default());
    let (owner, topic) = (cluster.node(1), cluster.node(1).topic("jobs").unwrap());
    for round in 0..20 {
        let mut member = cluster.nats(2);
        member.subscribe("jobs workers 1");
        until("it is a member", || owner.groups(&topic).len() == 1);
        let published: Vec<String> = (0..20).map(|n| format!("{n} of {round}")).collect();
        for text in &published {
            owner.publisher("jobs").unwrap().publish(text.as_bytes()).unwrap();
        }
        let mut got = Vec::new();
        member.send_line("UNSUB 1");
        member.ping_collecting(&mut got);
        assert_eq!(got, published);
        until("it has left", || owner.groups(&topic).is_empty());
    }
}

#[test]
fn records_beyond_the_unsub_maximum_go_to_other_queue_members() {
    let cluster = TestCluster::of(2);
    cluster.create_topic_at(1, "jobs", TopicConfig::default());
    let (owner, topic) = (cluster.node(1), cluster.node(1).topic("jobs").unwrap());
    let are_members =
        |count: usize| owner.groups(&topic).first().is_some_and(|group| group.members.len() == count);
    let mut stays = cluster.nats(2);
    stays.subscribe("jobs workers 1");
    for round in 0..20 {
        until("one is a member", || are_members(1));
        let mut ends = cluster.nats(2);
        ends.send_line("SUB jobs workers 1\r\nUNSUB 1 2");
        until("both are members", || are_members(2));
        let mut published: Vec<String> = (0..20).map(|n| format!("{n} of {round}")).collect();
        for text in &published {
            owner.publisher("jobs").unwrap().publish(text.as_bytes()).unwrap();
        }
        let (mut got, mut received_while_closing) = (Vec::new(), Vec::new());
        until("each was given to a member", || {
            stays.ping_collecting(&mut got);
            ends.ping_collecting(&mut received_while_closing);
            got.len() + received_while_closing.len() >= published.len()
        });
        assert!(received_while_closing.len() <= 2, "{received_while_closing:?}");
        got.append(&mut received_while_closing);
        got.sort_unstable();
        published.sort_unstable();
        assert_eq!(got, published);
    }
}

#[test]
fn nats_clients_continue_after_the_death_of_a_topic_owner() {
    let cluster = TestCluster::of(3);
    cluster.create_topic_at(1, "t", TopicConfig::default());
    let (mut plain, mut queue, mut publisher) = (cluster.nats(2), cluster.nats(3), cluster.nats(3));
    plain.subscribe("t 1");
    queue.subscribe("t workers 1");
    until("it is a member", || {
        let topic = cluster.node(1).topic("t").unwrap();
        cluster.node(1).groups(&topic).len() == 1
    });
    publisher.publish("t", "first");
    assert_eq!((plain.text().1, queue.text().1), ("first".to_owned(), "first".to_owned()));
    cluster.kill(1);
    until("another node owns it", || cluster.owner("t") != 1);
    // The subscribers must not receive `-ERR` when the owner changes, because client libraries close the connection
    // after an error.
    publisher.publish("t", "next");
    assert_eq!((plain.text().1, queue.text().1), ("next".to_owned(), "next".to_owned()));
    publisher.publish("t", "last");
    assert_eq!((plain.text().1, queue.text().1), ("last".to_owned(), "last".to_owned()));
}

#[test]
fn nats_publisher_continues_after_the_death_of_one_owner() {
    let cluster = TestCluster::of(3);
    cluster.create_topic_at(2, "live", TopicConfig::default());
    cluster.create_topic_at(3, "dead", TopicConfig::default());
    let reducer = Some(dunlin::topic::ReducerConfig { kind: "book".to_owned(), ..Default::default() });
    cluster.create_topic_at(2, "book", TopicConfig { reducer, ..TopicConfig::default() });
    let (mut peer, mut other) = (cluster.nats(1), cluster.nats(2));
    other.subscribe("live 1");
    // The owner is alive, and its state refuses this record.
    peer.publish("book", "no book");
    let text = permission_violation(&peer.line(), "Publish", "book");
    assert!(text.contains("refuses it"), "{text}");
    // After the owner has died, any batch without a response may be refused, at any time.
    (0..500).for_each(|n| peer.publish("dead", &n.to_string()));
    cluster.kill(3);
    (0..500).for_each(|n| peer.publish("dead", &n.to_string()));
    peer.publish("live", "goes on");
    assert_eq!(other.text().1, "goes on");
    until("another node owns it", || cluster.owner("dead") != 3);
    peer.send_line("PING");
    loop {
        match peer.line().as_str() {
            "PONG" => break,
            refused => drop(permission_violation(refused, "Publish", "dead")),
        }
    }
}

#[test]
fn queue_group_members_follow_a_moved_topic() {
    let cluster = TestCluster::of(3);
    cluster.create_topic_at(1, "t", TopicConfig::default());
    let (mut member, mut publisher) = (cluster.nats(2), cluster.nats(3));
    member.subscribe("t workers 1");
    let is_member_at = |id: u64| {
        let node = cluster.node(id);
        until("it is a member", || {
            let topic = node.topic("t").unwrap();
            node.groups(&topic).first().is_some_and(|group| group.members.len() == 1)
        });
    };
    // The publisher is at node 2. The topic moves between two other nodes, then to node 2, and then away from it.
    for (round, id) in [1, 3, 2, 1].into_iter().enumerate() {
        if round > 0 {
            // The lock is released before the move, because the move itself locks `members`.
            let ownership = cluster.members.lock().unwrap()[&1].ownership.clone();
            ownership.move_topic("t", id).unwrap();
        }
        is_member_at(id);
        publisher.publish("t", &round.to_string());
        assert_eq!(member.text().1, round.to_string());
    }
}

/// The members in this test are like those of NATS sessions, but read only when the test tells them to.
#[test]
fn moved_topic_loses_no_record_of_its_queue_group() {
    const RECORDS: usize = 100;
    let cluster = TestCluster::of(3);
    cluster.create_topic_at(1, "t", TopicConfig::default());
    let member = |id: u64| {
        let options = ShareOptions {
            member: id.to_string(),
            registered: true,
            lasting: false,
            anywhere: true,
            ..ShareOptions::default()
        };
        cluster.node(id).join_share_with_waiter("t", "workers", &options, (Waiter::new(), 0)).unwrap()
    };
    let publish = |id: u64, from: usize| {
        let mut publisher = cluster.node(id).publisher("t").unwrap();
        for number in from..from + RECORDS {
            publisher.publish(number.to_string().as_str()).unwrap();
        }
    };
    let move_to = |id: u64| {
        // Epochs depend on the clock. The next epoch is therefore usually not the next number.
        let epoch = cluster.state.lock().unwrap().placement(b"t").unwrap().epoch + 10;
        cluster.apply(&ControlCommand::Move { topic: b"t", node: id, epoch }).unwrap();
        until("the owner has it", || !cluster.node(id).topic("t").unwrap().logs()[0].is_mirror());
    };
    let mut received = BTreeSet::new();
    // When a member reads, it connects to the topic's owner. After a move, it connects to the next owner.
    let mut read_until = |members: &mut [ShareMember], what: &str, is_so: &dyn Fn(usize) -> bool| {
        until(what, || {
            for member in members.iter_mut() {
                while member.ready().unwrap() {
                    let Event::Record(record) = member.take() else { continue };
                    let number: usize = std::str::from_utf8(record.payload()).unwrap().parse().unwrap();
                    let (partition, seq) = (record.log.partition, record.seq());
                    assert!(received.insert(number), "{number} was given twice");
                    member.consume(partition, seq);
                }
            }
            is_so(received.len())
        });
    };
    // The only member is at the owner. When the topic moves, the member has not read any record.
    let mut members = vec![member(1)];
    publish(1, 0);
    move_to(3);
    publish(3, RECORDS);
    read_until(&mut members, "each record is given to the member", &|received| received == 2 * RECORDS);
    // Now there are members at the present owner, at the next owner, and at a third node.
    members.extend([2, 3].map(member));
    let mut count = 2 * RECORDS;
    for (owner, next) in [(3, 2), (2, 1)] {
        read_until(&mut members, "all are members", &|_| {
            let topic = cluster.node(owner).topic("t").unwrap();
            cluster.node(owner).groups(&topic).first().is_some_and(|group| group.members.len() == 3)
        });
        publish(owner, count);
        move_to(next);
        publish(next, count + RECORDS);
        count += 2 * RECORDS;
        read_until(&mut members, "each record is given to a member", &|received| received == count);
    }
}

/// Users who have all permissions. A user's name begins with the tenant's name, followed by `-`.
#[derive(Debug)]
struct TenantUsers(Arc<MemoryBudget>);

#[derive(Debug)]
struct TenantUser {
    name: String,
    permissions: Arc<Permissions>,
    budget: Arc<MemoryBudget>,
}

impl Users for TenantUsers {
    fn user(&self, name: &str) -> Option<Arc<dyn User>> {
        let all = SubjectRule { allow: vec![Pattern::parse(">").unwrap()], deny: Vec::new() };
        let permissions = Permissions {
            tenant: all.clone(),
            subscribe: all.clone(),
            groups: all,
            tasks: TaskRule { tenant: name.split('-').next()?.to_owned(), ..TaskRule::default() },
            ..Permissions::default()
        };
        let (permissions, budget) = (Arc::new(permissions), Arc::clone(&self.0));
        Some(Arc::new(TenantUser { name: name.to_owned(), permissions, budget }))
    }
}

impl User for TenantUser {
    fn name(&self) -> &str {
        &self.name
    }

    fn permissions(&self) -> Arc<Permissions> {
        Arc::clone(&self.permissions)
    }

    fn changes(&self) -> watch::Receiver<()> {
        watch::channel(()).1
    }

    fn budget(&self) -> &Arc<MemoryBudget> {
        &self.budget
    }

    fn connection_budget(&self) -> &Arc<MemoryBudget> {
        &self.budget
    }

    fn reserve_topic(&self, _: &str, _: bool) -> Result<(), TopicError> {
        Ok(())
    }

    fn confirm_topic(&self, _: &Arc<Topic>) {}

    fn release_topic(&self, _: &str) {}
}

#[test]
fn limit_of_groups_per_user_includes_joins_at_other_nodes() {
    let cluster = TestCluster::of(1);
    let limits = NodeLimits { groups_max: 8, ..NodeLimits::default() };
    cluster.start_with(2, Node::start(Config { limits, ..Config::default() }).unwrap());
    cluster.create_topic_at(2, "jobs", TopicConfig::default());
    let users: Arc<dyn Users> = Arc::new(TenantUsers(MemoryBudget::node(1 << 30, 0)));
    let (owner, topic) = (cluster.node(2), cluster.node(2).topic("jobs").unwrap());
    owner.set_users(Arc::downgrade(&users));
    let join = |user: &str, group: &str| {
        let options = ShareOptions { anywhere: true, ..ShareOptions::default() };
        let node = cluster.node(1).with_user(users.user(user).unwrap());
        node.join_share_with_waiter("jobs", group, &options, (Waiter::new(), 0)).unwrap()
    };
    let mut members = Vec::new();
    for user in ["evil-1", "evil-2", "evil-3"] {
        for number in 0..2 {
            members.push(join(user, &format!("{user}.{number}")));
            until("the group exists", || owner.groups(&topic).len() == members.len());
        }
    }
    let refusal = |user: &str, group: &str| {
        let mut member = join(user, group);
        let mut refused = None;
        until("the owner refuses", || {
            refused = member.ready().err();
            refused.is_some()
        });
        refused.unwrap().to_string()
    };
    let refused = refusal("evil-1", "more");
    assert!(refused.contains("groups_of_user_max"), "{refused}");
    let refused = refusal("evil-4", "more");
    assert!(refused.contains("groups_of_tenant_max"), "{refused}");
    members.push(join("acme-1", "first"));
    until("another tenant has room", || owner.groups(&topic).len() == members.len());
}

/// After the `PONG`, the owner appends a record. The subscriber at the other node must receive it.
#[test]
fn remote_nats_subscriber_gets_records_published_after_its_pong() {
    let cluster = TestCluster::of(2);
    let mut reader = cluster.nats(1);
    for n in 0..40 {
        let name = format!("t{n}");
        cluster.create_topic_at(2, &name, TopicConfig::default());
        reader.subscribe(&format!("{name} {n}"));
        cluster.node(2).publisher(&name).unwrap().publish(name.as_bytes()).unwrap();
        assert_eq!(reader.text().1, name);
    }
}

/// A group that a NATS client creates starts with new records. Its first member must therefore have joined before the
/// `PONG`.
#[test]
fn group_member_at_another_node_has_joined_before_the_pong() {
    let cluster = TestCluster::of(2);
    let mut reader = cluster.nats(1);
    for n in 0..40 {
        let name = format!("t{n}");
        cluster.create_topic_at(2, &name, TopicConfig::default());
        reader.subscribe(&format!("{name} workers {n}"));
        cluster.node(2).publisher(&name).unwrap().publish(name.as_bytes()).unwrap();
        assert_eq!(reader.text().1, name);
    }
}

/// At each start, the owner of a durable topic begins a new epoch of the topic's log. The epoch of the topic's
/// placement, on which the nodes have agreed, stays the same.
#[test]
fn queue_group_gets_no_old_records_after_an_owner_restart() {
    const STARTS: usize = 4;
    let cluster = TestCluster::of(2);
    let disk = FakeDisk::new(1);
    let open = || Node::open(Config::default(), Arc::new(disk.clone()), Path::new("/data")).unwrap().0;
    cluster.start_with(3, open());
    let config = TopicConfig { durable: Some(DurableOptions::default()), ..TopicConfig::default() };
    cluster.node(3).create_topic("t", config, false).unwrap();
    until("node 1 knows the topic", || cluster.node(1).topic("t").is_some());
    let mut member = cluster.nats(1);
    member.subscribe("t workers 1");
    for start in 1..=STARTS {
        until("it is a member", || {
            let node = cluster.node(3);
            let topic = node.topic("t").unwrap();
            node.groups(&topic).first().is_some_and(|group| group.members.len() == 1)
        });
        let published: Vec<String> = (0..5).map(|n| format!("{n} of start {start}")).collect();
        let mut publisher = cluster.nats(3);
        published.iter().for_each(|text| publisher.publish("t", text));
        for text in published {
            assert_eq!(member.text().1, text);
        }
        if start < STARTS {
            cluster.kill(3);
            cluster.start_with(3, open());
        }
    }
}

#[test]
fn queue_group_members_learn_of_new_epochs_and_topic_deletion() {
    let cluster = TestCluster::of(2);
    cluster.create_topic_at(1, "t", TopicConfig::default());
    let mut members = [1, 2].map(|id| cluster.nats(id));
    for (id, member) in (1..).zip(&mut members) {
        member.subscribe(&format!("$DUNLIN.seq.t group{id} 1"));
    }
    let mut publisher = cluster.nats(1);
    let mut expect = |statuses: &[&str]| {
        for member in &mut members {
            for status in statuses {
                assert_eq!(member.message().headers[0].trim(), *status);
            }
        }
    };
    publisher.publish("t", "first");
    expect(&[""]);
    let ownership = cluster.members.lock().unwrap()[&1].ownership.clone();
    ownership.move_topic("t", 2).unwrap();
    publisher.publish("t", "next");
    expect(&["410 Epoch Changed", ""]);
    cluster.node(2).delete_topic("t").unwrap();
    expect(&["410 Deleted"]);
}

/// The member's node learns of the deletion before the owner, which still accepts records.
#[test]
fn queue_group_gets_the_last_records_of_a_deleted_topic() {
    const RECORDS: usize = 20;
    let cluster = TestCluster::of(2);
    cluster.create_topic_at(1, "t", TopicConfig { partitions: 2, ..TopicConfig::default() });
    let mut member = cluster.nats(2);
    member.subscribe("$DUNLIN.seq.t workers 1");
    cluster.hold_back_changes(1);
    cluster.node(2).delete_topic("t").unwrap();
    member.ping();
    let mut publisher = cluster.node(1).publisher("t").unwrap();
    for n in 0..RECORDS {
        let key = n.to_le_bytes();
        let meta = RecordMeta { key: Some(&key), ..RecordMeta::default() };
        publisher.publish(Draft { meta, payload: Payload::Copied(&key) }).unwrap();
    }
    cluster.release_changes(1);
    let (mut records, mut deleted_logs) = (BTreeSet::new(), 0);
    while deleted_logs < 2 {
        let message = member.message();
        match message.headers[0].trim() {
            "410 Deleted" => deleted_logs += 1,
            _ => assert!(records.insert(message.payload)),
        }
    }
    assert_eq!(records.len(), RECORDS);
    member.ping();
}

#[test]
fn nats_echo_off_works_if_another_node_owns_the_topic() {
    const ROUNDS: u64 = 200;
    const OWN_RECORDS: u64 = 5;
    let cluster = TestCluster::of(2);
    cluster.create_topic_at(1, "e", TopicConfig::default());
    let mut quiet =
        NatsPeer::open_with(cluster.members.lock().unwrap()[&2].server.as_ref().unwrap(), ",\"echo\":false");
    let mut others = [1, 2].map(|id| cluster.nats(id));
    quiet.subscribe("e 1");
    let mut got = Vec::new();
    for n in 0..ROUNDS {
        (0..OWN_RECORDS).for_each(|_| quiet.publish("e", "own"));
        let other = &mut others[n as usize % 2];
        other.publish("e", &n.to_string());
        other.ping();
        quiet.ping_collecting(&mut got);
    }
    let log = Arc::clone(&cluster.node(1).topic("e").unwrap().logs()[0]);
    until("the owner has all records", || log.last().seq == ROUNDS * (OWN_RECORDS + 1));
    others[0].publish("e", END);
    while got.last().is_none_or(|last| last != END) {
        got.push(quiet.text().1);
    }
    got.pop();
    // Records that are published through different nodes have no fixed order.
    got.sort_by_key(|text| text.parse().unwrap_or(ROUNDS));
    assert_eq!(got, (0..ROUNDS).map(|n| n.to_string()).collect::<Vec<_>>());
}

/// The subscribers read nothing. Some of them subscribe like mirrors of another node.
#[test]
fn owner_exceeds_the_retention_only_for_a_lagging_mirror() {
    let cluster = TestCluster::of(1);
    let subscribers = [
        ("reader", "t1", false),
        ("mirror of one subscriber", "t2", false),
        (SubscribeOptions::MIRROR_WITH_HISTORY, "t3", true),
        (SubscribeOptions::MIRROR, "t4", true),
    ];
    for (name, topic, keeps_history) in subscribers {
        cluster.create_topic_at(1, topic, TopicConfig::default());
        let mut peer =
            Peer::connect_as(cluster.members.lock().unwrap()[&1].server.as_ref().unwrap(), "$node-7");
        peer.send(FromClient::Subscribe(wire::Subscribe {
            subscription: 1,
            credit: 0,
            start: StartAt::Latest,
            on_gap: OnGap::Oldest,
            registered: false,
            pattern: topic,
            name,
        }));
        peer.await_subscribed();
        let (mut publisher, payload) = (cluster.node(1).publisher(topic).unwrap(), [0_u8; 64 << 10]);
        let retained = TopicConfig::default().retention.bytes as usize;
        for _ in 0..4 * retained / payload.len() {
            publisher.publish(&payload[..]).unwrap();
        }
        let oldest_seq = cluster.node(1).topic(topic).unwrap().logs()[0].info().oldest_seq;
        assert_eq!(oldest_seq == 1, keeps_history, "{name}: the oldest record is {oldest_seq}");
    }
}

/// A subscription reads a topic that is newer than itself from the first record, through a mirror of its own.
#[test]
fn stalled_reader_gets_all_40_mib_of_a_new_remote_topic() {
    const RECORDS: u64 = 40 * 16;
    let cluster = TestCluster::of(3);
    let mut reader = cluster.nats(1);
    reader.subscribe("new.> 1");
    let mut payload = vec![0_u8; 64 << 10];
    cluster.node(2).publisher("new.t").unwrap().publish(&payload[..]).unwrap();
    assert_eq!(reader.message().payload, payload);
    let owner = cluster.owner("new.t");
    assert_ne!(owner, 1);
    let mut publisher = cluster.node(owner).publisher("new.t").unwrap();
    for number in 1..=RECORDS {
        payload[..8].copy_from_slice(&number.to_le_bytes());
        publisher.publish(&payload[..]).unwrap();
    }
    for number in 1..=RECORDS {
        assert_eq!(reader.message().payload[..8], number.to_le_bytes());
    }
}
