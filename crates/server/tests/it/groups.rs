use std::time::Duration;

use dunlin::Node;
use dunlin::topic::{Publish, Start};
use dunlin_client::{Claimed, Group, GroupKind, GroupOptions, Member};

use crate::clients::connect;
use crate::serve;

const PATIENCE: Duration = Duration::from_secs(30);
const JOBS: Group<'static> = Group { topic: "jobs", name: "g" };

fn groups(node: &Node) -> Vec<dunlin::GroupInfo> {
    node.groups(&node.topic("jobs").unwrap())
}

fn publish(node: &Node, payloads: &[&str]) {
    let mut publisher = node.publisher("jobs").unwrap();
    for payload in payloads {
        publisher.publish(*payload).unwrap();
    }
}

fn options(kind: GroupKind) -> GroupOptions {
    GroupOptions { kind, start: Start::Earliest, ..GroupOptions::default() }
}

/// Payload, token and attempt of the next record.
fn next(member: &mut Member, patience: Duration) -> Option<(String, u64, u32)> {
    match member.next_timeout(patience).unwrap()? {
        Claimed::Record { token, attempt, frame, .. } => {
            Some((String::from_utf8(frame.payload().to_vec()).unwrap(), token, attempt))
        }
        Claimed::Notice(notice) => panic!("{notice:?}"),
    }
}

#[test]
fn clients_share_a_topics_records() {
    let (node, server) = serve();
    publish(&node, &[]);
    let (one, two) = (connect(&server), connect(&server));
    let mut a = one.join(JOBS, options(GroupKind::Share)).unwrap();
    let mut b = two.join(JOBS, options(GroupKind::Share)).unwrap();
    let mut got = Vec::new();
    for text in ["1", "2", "3", "4"] {
        publish(&node, &[text]);
        let found = loop {
            let quick = Duration::from_millis(20);
            if let Some(found) = next(&mut a, quick).or_else(|| next(&mut b, quick)) {
                break found;
            }
        };
        got.push(found.0);
    }
    assert_eq!(got, ["1", "2", "3", "4"]);
    assert_eq!(groups(&node)[0].members.len(), 2);
}

#[test]
fn work_is_claimed_acknowledged_and_comes_again_when_its_time_is_over() {
    let (node, server) = serve();
    publish(&node, &["1", "2"]);
    let client = connect(&server);
    let claim = Some(Duration::from_millis(150));
    let mut member = client.join(JOBS, GroupOptions { claim, ..options(GroupKind::Work) }).unwrap();
    assert_eq!(next(&mut member, Duration::from_millis(50)), None, "nothing was asked for");
    member.claim(4);
    let first = next(&mut member, PATIENCE).unwrap();
    let second = next(&mut member, PATIENCE).unwrap();
    assert_eq!((first.0.as_str(), second.0.as_str()), ("1", "2"));
    assert_eq!(member.ack(&[second.1]).unwrap().settled, 1);
    let again = next(&mut member, PATIENCE).unwrap();
    assert_eq!((again.0.as_str(), again.2), ("1", 2));
    let late = member.ack(&[first.1, again.1]).unwrap();
    assert_eq!((late.settled, late.stale), (1, vec![first.1]));
    assert_eq!(groups(&node)[0].waiting, 0);
}

#[test]
fn work_of_a_client_that_was_cut_off_comes_to_another() {
    let (node, server) = serve();
    publish(&node, &["1"]);
    let (one, two) = (connect(&server), connect(&server));
    let mut a = one.join(JOBS, options(GroupKind::Work)).unwrap();
    a.claim(1);
    next(&mut a, PATIENCE).unwrap();
    let mut b = two.join(JOBS, options(GroupKind::Work)).unwrap();
    b.claim(1);
    assert_eq!(next(&mut b, Duration::from_millis(50)), None);
    drop((a, one));
    assert_eq!(next(&mut b, PATIENCE).map(|found| found.0), Some("1".to_owned()));
}

#[test]
fn a_thousand_records_are_shared_out_once_each_under_little_credit() {
    let (node, server) = serve();
    let client = connect(&server);
    publish(&node, &[]);
    let mut member = client.join(JOBS, options(GroupKind::Share)).unwrap();
    let filler = "x".repeat(2_000);
    publish(&node, &vec![filler.as_str(); 1_000]);
    for _ in 0..1_000 {
        assert_eq!(next(&mut member, PATIENCE).map(|found| found.0.len()), Some(2_000));
    }
    assert_eq!(next(&mut member, Duration::from_millis(20)), None);
}
