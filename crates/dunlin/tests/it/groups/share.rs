use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;

use dunlin::journal::{Disk, FakeDisk};
use dunlin::topic::{
    CheckedBatch, DurableOptions, Event, Log, Notice, Position, Publish, Retention, Subscribe,
    SubscribeError, TopicConfig, Waiter,
};
use dunlin::{Config, EarlierMembership, GroupKind, JoinError, Node, ShareMember, ShareOptions};
use dunlin_wait::PATIENCE;

use super::{claim, keyed, number, publish, share_from_start, work_from_start};
use crate::{from_earliest, node};

/// The events that a member can read now, at most `max`, as pairs of sequence numbers. A gap is the pair of its first
/// and last number; a record is a pair of equal numbers.
fn available_events(member: &mut ShareMember, max: usize) -> Vec<(u64, u64)> {
    let mut available_events = Vec::new();
    let note = |event: Event<'_>| match event {
        Event::Record(record) => available_events.push((record.seq(), record.seq())),
        Event::Notice(Notice::Gap(gap)) => available_events.push((gap.first, gap.last)),
        Event::Notice(_) => {}
    };
    member.drain(max, note).unwrap();
    available_events
}

#[test]
fn each_record_goes_to_exactly_one_member() {
    const RECORDS: u64 = 20_000;
    let node = node();
    let (send, receive) = mpsc::channel();
    let workers: Vec<_> = (0..4)
        .map(|n| {
            let options = ShareOptions { ahead: 1 + n * 7, ..share_from_start() };
            let mut member = node.join_share("jobs", "g", &options).unwrap();
            let send = send.clone();
            thread::spawn(move || {
                while let Ok(Some(event)) = member.next_timeout(PATIENCE) {
                    match event {
                        Event::Record(record) => send.send((record.seq(), number(record.payload()))).unwrap(),
                        Event::Notice(Notice::Deleted { .. }) => break,
                        Event::Notice(other) => panic!("{other:?}"),
                    }
                }
                member.leave();
            })
        })
        .collect();
    drop(send);
    publish(&node, "jobs", 1..=RECORDS);
    node.delete_topic("jobs").unwrap();
    let all: Vec<_> = receive.iter().collect();
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    assert!(all.iter().all(|(seq, payload)| seq == payload));
    assert_eq!(all.len() as u64, RECORDS);
    assert_eq!(all.into_iter().collect::<HashSet<_>>().len() as u64, RECORDS);
}

#[test]
fn unconfirmed_records_of_a_dead_member_are_reported_as_lost() {
    let node = node();
    publish(&node, "jobs", 1..=10);
    let mut dies = node.join_share("jobs", "g", &ShareOptions { ahead: 3, ..share_from_start() }).unwrap();
    let mut stays = node.join_share("jobs", "g", &share_from_start()).unwrap();
    assert_eq!(available_events(&mut dies, 2), [(1, 1), (2, 2)]);
    drop(dies);
    let all = available_events(&mut stays, 100);
    assert_eq!(all[0], (1, 3), "none of its records certainly counts as consumed");
    assert_eq!(all[1..], (4..=10).map(|seq| (seq, seq)).collect::<Vec<_>>());
    assert_eq!(stays.lost(), 3);
}

#[test]
fn share_group_keeps_its_position_when_its_last_member_leaves() {
    let node = node();
    publish(&node, "jobs", 1..=3);
    let mut leaves = node.join_share("jobs", "g", &share_from_start()).unwrap();
    assert_eq!(available_events(&mut leaves, 2), [(1, 1), (2, 2)]);
    leaves.leave();
    let mut next = node.join_share("jobs", "g", &share_from_start()).unwrap();
    assert_eq!(available_events(&mut next, 9), [(3, 3)], "the group continues at its position");
}

#[test]
fn removed_unread_records_are_a_gap_for_every_member() {
    let node = node();
    let retention = Retention { bytes: 64 << 10, ..Default::default() };
    node.create_topic("jobs", TopicConfig { retention, ..Default::default() }, false).unwrap();
    let mut members = [0, 1].map(|_| node.join_share("jobs", "g", &share_from_start()).unwrap());
    publish(&node, "jobs", 1..=10_000);
    let first = available_events(&mut members[0], usize::MAX);
    assert_eq!(first.iter().map(|(first, last)| last - first + 1).sum::<u64>(), 10_000);
    let gap = *first.iter().find(|(first, last)| first < last).unwrap();
    assert_eq!(gap.0, 1);
    assert_eq!(available_events(&mut members[1], 9), [gap]);
    assert!(members.iter().all(|member| member.lost() == gap.1));
}

#[test]
fn share_group_members_read_every_partition() {
    let node = node();
    node.create_topic("jobs", TopicConfig { partitions: 5, ..Default::default() }, false).unwrap();
    let mut publisher = node.publisher("jobs").unwrap();
    for n in 0..100u64 {
        publisher.publish(keyed(&n.to_le_bytes(), &n.to_le_bytes())).unwrap();
    }
    let mut members = [0, 1].map(|_| node.join_share("jobs", "g", &share_from_start()).unwrap());
    let mut numbers = HashSet::new();
    for turn in 0..100 {
        let member = &mut members[turn % 2];
        let Some(Event::Record(record)) = member.try_next().unwrap() else { panic!("a record is available") };
        numbers.insert(number(record.payload()));
    }
    assert_eq!(numbers.len(), 100);
}

#[test]
fn share_group_refuses_work_members_and_a_1025th_member() {
    let node = node();
    let member = node.join_share("jobs", "g", &share_from_start()).unwrap();
    let kind = JoinError::Kind { group: "g".to_owned(), kind: GroupKind::Share };
    assert_eq!(node.join_work("jobs", "g", &work_from_start()).err(), Some(kind));
    assert!(matches!(node.join_share("jobs", "a b", &share_from_start()), Err(JoinError::Name(_))));
    assert!(matches!(node.join_share("a.*", "g", &share_from_start()), Err(JoinError::Topic(_))));
    let others: Vec<_> =
        (1..1_024).map(|_| node.join_share("jobs", "g", &share_from_start()).unwrap()).collect();
    let full = JoinError::Limit { limit: "group_members_max", value: 1_024 };
    assert_eq!(node.join_share("jobs", "g", &share_from_start()).err(), Some(full));
    assert_eq!(node.groups(member.topic())[0].members.len(), 1 + others.len());
    drop(others);
    assert!(node.join_share("jobs", "g", &share_from_start()).is_ok());
}

#[test]
fn last_records_of_a_deleted_topic_are_not_reported_as_lost() {
    let node = node();
    publish(&node, "jobs", 1..=3);
    let join = || node.join_share_with_waiter("jobs", "g", &share_from_start(), (Waiter::new(), 0)).unwrap();
    let (mut receives_all, mut other) = (join(), join());
    assert_eq!(available_events(&mut receives_all, 3), [(1, 1), (2, 2), (3, 3)]);
    node.delete_topic("jobs").unwrap();
    assert!(available_events(&mut receives_all, 9).is_empty());
    drop(receives_all);
    assert!(available_events(&mut other, 9).is_empty());
    assert_eq!(other.lost(), 0);
}

#[test]
fn old_group_member_gets_no_records_of_a_recreated_topic() {
    let node = node();
    publish(&node, "jobs", 1..=1);
    let mut member = node.join_share("jobs", "g", &share_from_start()).unwrap();
    node.delete_topic("jobs").unwrap();
    assert_eq!(available_events(&mut member, 9), [(1, 1)]);
    assert_eq!(member.ready(), Err(SubscribeError::Closed));
    publish(&node, "jobs", 1..=1);
    let mut again = node.join_share("jobs", "g", &share_from_start()).unwrap();
    assert_eq!(available_events(&mut again, 9), [(1, 1)]);
    assert_eq!(member.ready(), Err(SubscribeError::Closed));
}

/// Returns the frame of the topic's first record.
fn first_frame(node: &Node, topic: &str) -> Vec<u8> {
    let mut subscriber = node.subscribe(topic, &from_earliest()).unwrap();
    let Some(Event::Record(record)) = subscriber.next_timeout(PATIENCE).unwrap() else {
        panic!("no first record");
    };
    let mut frame = Vec::new();
    record.frame.append_to(&mut frame);
    frame
}

/// Appends a record to the log of a topic that has moved, as if the record came from the new owner.
fn feed(log: &Log, epoch: u32, seq: u64, frame: &[u8]) {
    let batch = CheckedBatch::check(frame, 1, 1 << 20).unwrap();
    log.feed(Position { epoch, seq }, seq - 1, batch).unwrap();
}

/// In this test, the topic has moved to another owner, but this node has not ended the topic's groups yet.
#[test]
fn group_at_the_former_owner_gets_no_record_of_the_new_epoch() {
    let node = node();
    publish(&node, "jobs", 1..=2);
    let mut member = node.join_share("jobs", "g", &share_from_start()).unwrap();
    let mut worker = node.join_work("jobs", "w", &work_from_start()).unwrap();
    let (frame, topic) = (first_frame(&node, "jobs"), node.topic("jobs").unwrap());
    let log = &topic.logs()[0];
    let epoch = log.last().epoch;
    log.hand_over(false, Some(epoch + 1));
    feed(log, epoch + 1, 3, &frame);
    assert_eq!(available_events(&mut member, 9), [(1, 1), (2, 2)]);
    assert!(!member.ready().unwrap());
    let claims = std::iter::from_fn(|| claim(&mut worker));
    assert_eq!(Vec::from_iter(claims.map(|claimed| claimed.record().seq())), [1, 2]);
}

/// In this test, the topic has moved to another owner and back. A group at the other owner may have delivered that
/// owner's records.
#[test]
fn member_of_a_new_group_gets_a_notice_of_a_missed_epoch() {
    let node = node();
    publish(&node, "jobs", 1..=2);
    let (frame, topic) = (first_frame(&node, "jobs"), node.topic("jobs").unwrap());
    let log = &topic.logs()[0];
    let epoch = log.last().epoch;
    log.hand_over(false, Some(epoch + 1));
    feed(log, epoch + 1, 3, &frame);
    feed(log, epoch + 2, 4, &frame);
    log.take_over(epoch + 2, false);
    let earlier = Some(EarlierMembership { epoch, is_before_restart: false });
    let options = ShareOptions { earlier, ..ShareOptions::default() };
    let mut member = node.join_share("jobs", "g", &options).unwrap();
    let Some(Event::Notice(Notice::EpochChanged(changed))) = member.next_timeout(PATIENCE).unwrap() else {
        panic!("no notice of the skipped epoch");
    };
    assert_eq!((changed.old, changed.last_seen, changed.new_first.seq), (epoch, 2, 4));
    assert_eq!(available_events(&mut member, 9), [(4, 4)]);
}

/// In this test, the node is stopped properly and started again, so that its topic continues in the same epoch.
#[test]
fn member_that_joins_again_gets_all_records_since_the_restart() {
    let disk: Arc<dyn Disk> = Arc::new(FakeDisk::new(1));
    let open = || Node::open(Config::default(), Arc::clone(&disk), Path::new("/data")).unwrap().0;
    let node = open();
    let durable = TopicConfig { durable: Some(DurableOptions::default()), ..TopicConfig::default() };
    node.create_topic("jobs", durable, false).unwrap();
    publish(&node, "jobs", 1..=2);
    let epoch = node.topic("jobs").unwrap().logs()[0].last().epoch;
    let at = |owner: &Node| Position { epoch, seq: owner.id() };
    let before_restart = at(&node);
    node.stop();
    drop(node);

    let node = open();
    publish(&node, "jobs", 3..=4);
    assert_eq!(node.topic("jobs").unwrap().logs()[0].last(), Position { epoch, seq: 4 });
    let join = |group: &str, after: Option<Position>| {
        let earlier = after.map(|after| EarlierMembership::from_position(after, &node));
        node.join_share("jobs", group, &ShareOptions { earlier, ..ShareOptions::default() }).unwrap()
    };
    let mut older = join("older", Some(before_restart));
    assert_eq!(available_events(&mut older, 9), [(3, 3), (4, 4)]);
    let mut same = join("same", Some(at(&node)));
    assert_eq!(available_events(&mut same, 9), []);
    let mut new = join("new", None);
    publish(&node, "jobs", 5..=5);
    assert_eq!(available_events(&mut new, 9), [(5, 5)]);
    let mut joins_second = join("new", Some(before_restart));
    assert_eq!(available_events(&mut joins_second, 9), [(3, 3), (4, 4)]);
}
