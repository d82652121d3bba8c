use std::time::Duration;

use dunlin::Node;
use dunlin::topic::{Publish, Start};
use dunlin_client::{Group, GroupEvent, GroupKind, GroupOptions, Member};
use dunlin_wait::{Deadline, PATIENCE, POLL, find};

use crate::clients::connect;
use crate::serve;

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

/// Returns payload, token and attempt of the next record; `None` if no record arrives within `patience`.
fn next(member: &mut Member, patience: Duration) -> Option<(String, u64, u32)> {
    match member.next_timeout(patience).unwrap()? {
        GroupEvent::Record { token, attempt, frame, .. } => {
            Some((String::from_utf8(frame.payload().to_vec()).unwrap(), token, attempt))
        }
        GroupEvent::Notice(notice) => panic!("{notice:?}"),
    }
}

#[test]
fn two_clients_of_a_share_group_get_each_record_once() {
    let (node, server) = serve();
    publish(&node, &[]);
    let (one, two) = (connect(&server), connect(&server));
    let mut a = one.join(JOBS, options(GroupKind::Share)).unwrap();
    let mut b = two.join(JOBS, options(GroupKind::Share)).unwrap();
    let mut got = Vec::new();
    for text in ["1", "2", "3", "4"] {
        publish(&node, &[text]);
        let found = find("one member has the record", || next(&mut a, POLL).or_else(|| next(&mut b, POLL)));
        got.push(found.0);
    }
    assert_eq!(got, ["1", "2", "3", "4"]);
    assert_eq!(groups(&node)[0].members.len(), 2);
}

#[test]
fn work_group_delivers_claimed_records_and_counts_each_ack_once() {
    let (node, server) = serve();
    publish(&node, &["1", "2"]);
    let client = connect(&server);
    let mut member = client.join(JOBS, options(GroupKind::Work)).unwrap();
    // The response to this acknowledgement shows that the member has joined the group.
    assert_eq!(member.ack(&[99]).unwrap().settled, 0);
    assert_eq!((groups(&node)[0].claimed, groups(&node)[0].waiting), (0, 2), "no record was claimed");
    member.claim(2);
    let first = next(&mut member, PATIENCE).unwrap();
    let second = next(&mut member, PATIENCE).unwrap();
    assert_eq!((first.0.as_str(), second.0.as_str()), ("1", "2"));
    assert_eq!(member.ack(&[second.1]).unwrap().settled, 1);
    let again = member.ack(&[first.1, second.1]).unwrap();
    assert_eq!((again.settled, again.stale), (1, vec![second.1]));
    assert_eq!(groups(&node)[0].waiting, 0);
}

#[test]
fn work_group_record_is_redelivered_when_its_claim_expires() {
    let (node, server) = serve();
    publish(&node, &["1"]);
    let client = connect(&server);
    let claim = Some(Duration::from_millis(150));
    let mut member = client.join(JOBS, GroupOptions { claim, ..options(GroupKind::Work) }).unwrap();
    member.claim(2);
    let first = next(&mut member, PATIENCE).unwrap();
    let mut again = next(&mut member, PATIENCE).unwrap();
    assert_eq!((again.0.as_str(), again.2), ("1", 2));
    // On a slow machine, the second claim and later claims may also expire before they are settled.
    let deadline = Deadline::new();
    let late = loop {
        let late = member.ack(&[first.1, again.1]).unwrap();
        if late.settled == 1 {
            break late;
        }
        deadline.check("a claim is settled in time");
        member.claim(1);
        again = next(&mut member, PATIENCE).unwrap();
    };
    assert_eq!(late.stale, [first.1]);
    assert_eq!(groups(&node)[0].waiting, 0);
}

#[test]
fn records_claimed_by_a_lost_client_go_to_another_client() {
    let (node, server) = serve();
    publish(&node, &["1"]);
    let (one, two) = (connect(&server), connect(&server));
    let mut a = one.join(JOBS, options(GroupKind::Work)).unwrap();
    a.claim(1);
    next(&mut a, PATIENCE).unwrap();
    let mut b = two.join(JOBS, options(GroupKind::Work)).unwrap();
    b.claim(2);
    // Records are delivered in order. The first record is claimed by the other member, so this member gets the second.
    publish(&node, &["2"]);
    assert_eq!(next(&mut b, PATIENCE).map(|found| found.0), Some("2".to_owned()));
    drop((a, one));
    assert_eq!(next(&mut b, PATIENCE).map(|found| found.0), Some("1".to_owned()));
}

#[test]
fn share_group_delivers_each_record_once_with_little_credit() {
    let (node, server) = serve();
    let client = connect(&server);
    publish(&node, &[]);
    let mut member = client.join(JOBS, options(GroupKind::Share)).unwrap();
    let filler = "x".repeat(2_000);
    publish(&node, &vec![filler.as_str(); 1_000]);
    for _ in 0..1_000 {
        assert_eq!(next(&mut member, PATIENCE).map(|found| found.0.len()), Some(2_000));
    }
    publish(&node, &["end"]);
    assert_eq!(
        next(&mut member, PATIENCE).map(|found| found.0),
        Some("end".to_owned()),
        "no record was delivered twice"
    );
}
