use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dunlin::journal::FakeDisk;
use dunlin::topic::{DurableOptions, Publish, TopicConfig};
use dunlin::wire::{
    Claim, Credit, ErrorCode, FromClient, FromNode, GroupKind, JoinGroup, LogPosition, MessageList, Nack,
    Position, Resume, Settle, StartAt,
};
use dunlin::{Config, Node};

use crate::peer::Peer;
use crate::{serve, serve_node};

const CREDIT: u64 = 1 << 20;

/// Delivered records of a work group, each with its token, attempt and sequence number.
type Deliveries = Vec<(u64, u32, u64)>;

fn join(peer: &mut Peer, kind: GroupKind, credit: u64) {
    join_with(peer, kind, credit, 0);
}

fn join_with(peer: &mut Peer, kind: GroupKind, credit: u64, claim_ms: u32) {
    peer.send(FromClient::JoinGroup(JoinGroup {
        subscription: 1,
        credit,
        kind,
        start: StartAt::Earliest,
        claim_ms,
        attempts_max: 0,
        dead_letter: "",
        topic: "jobs",
        group: "g",
        member: "",
    }));
}

fn connect_member(server: &dunlin_server::Server, kind: GroupKind, credit: u64) -> Peer {
    let mut peer = Peer::connect(server);
    join(&mut peer, kind, credit);
    peer.await_subscribed();
    peer
}

fn claim(peer: &mut Peer, wanted: u64) {
    peer.send(FromClient::Claim(Claim { subscription: 1, wanted }));
}

fn records(peer: &mut Peer, count: usize) -> Deliveries {
    let mut deliveries = Deliveries::new();
    while deliveries.len() < count {
        let more: Option<Deliveries> = peer.next(|message| match message {
            FromNode::Deliver(deliver) => {
                Some(deliver.records.iter().map(|r| (r.token, r.attempt, r.position.seq)).collect())
            }
            FromNode::Gap(_) | FromNode::Error(_) | FromNode::SubscriptionEnded(_) => panic!("{message:?}"),
            _ => None,
        });
        deliveries.extend(more.expect("the connection continues"));
    }
    deliveries
}

/// Reads the response to an acknowledgement or renewal. Returns the number of valid claims, and the tokens of the stale
/// ones.
fn read_settled(peer: &mut Peer) -> (u32, Vec<u64>) {
    let settled = peer.next(|message| match message {
        FromNode::Settled(settled) => Some((settled.settled, settled.stale.iter().collect())),
        _ => None,
    });
    settled.expect("the connection continues")
}

fn read_end(peer: &mut Peer) -> ErrorCode {
    let ended = peer.next(|message| match message {
        FromNode::SubscriptionEnded(ended) => Some(ended.refusal.code),
        _ => None,
    });
    ended.expect("the connection continues")
}

fn publish(node: &Node, records: usize) {
    let mut publisher = node.publisher("jobs").unwrap();
    (0..records).for_each(|_| publisher.send(b"work").unwrap());
}

#[test]
fn claims_of_a_killed_connection_go_to_other_members_at_once() {
    let (node, server) = serve();
    publish(&node, 3);
    // The claims of this member last for an hour. The other member therefore cannot get the records by waiting until
    // the claims end.
    let mut killed = Peer::connect(&server);
    join_with(&mut killed, GroupKind::Work, CREDIT, 3_600_000);
    killed.await_subscribed();
    claim(&mut killed, 2);
    assert_eq!(records(&mut killed, 2).len(), 2);
    let mut other = connect_member(&server, GroupKind::Work, CREDIT);
    claim(&mut other, 3);
    assert_eq!(records(&mut other, 1)[0].2, 3);
    drop(killed);
    let again = records(&mut other, 2);
    assert_eq!(again.iter().map(|(_, attempt, seq)| (*attempt, *seq)).collect::<Vec<_>>(), [(2, 1), (2, 2)]);
}

/// Renews a claim so that it lasts longer than its first deadline, while another member waits. Returns whether each
/// renewal came in time.
fn is_renewed_in_time(claim_ms: u32) -> bool {
    let (node, server) = serve();
    publish(&node, 1);
    let mut holder = Peer::connect(&server);
    join_with(&mut holder, GroupKind::Work, CREDIT, claim_ms);
    holder.await_subscribed();
    claim(&mut holder, 1);
    let (token, ..) = records(&mut holder, 1)[0];
    let mut waiting = connect_member(&server, GroupKind::Work, CREDIT);
    claim(&mut waiting, 1);
    for _ in 0..8 {
        std::thread::sleep(Duration::from_millis(u64::from(claim_ms) / 4));
        holder.send(FromClient::Renew(Settle {
            request: 1,
            subscription: 1,
            tokens: MessageList::new(&[token, 99]),
        }));
        let (renewed, stale) = read_settled(&mut holder);
        if renewed == 0 {
            return false;
        }
        assert_eq!((renewed, stale), (1, vec![99]));
    }
    holder.send(FromClient::Ack(Settle { request: 2, subscription: 1, tokens: MessageList::new(&[token]) }));
    if read_settled(&mut holder).0 == 0 {
        return false;
    }
    waiting.send(FromClient::Ping(dunlin::wire::Ping { token: 7 }));
    let received = waiting.next(|message| match message {
        FromNode::Deliver(_) => Some(true),
        FromNode::Pong(_) => Some(false),
        _ => None,
    });
    assert_eq!(received, Some(false), "the first member kept the record");
    true
}

#[test]
fn claim_renewed_over_tcp_outlives_its_first_deadline() {
    // If the machine stalls longer than a claim lasts, the other member gets the record, as it should. The test then
    // tries longer claims.
    assert!([600, 3_000, 15_000, 60_000].into_iter().any(is_renewed_in_time));
}

#[test]
fn work_group_loses_no_record_over_100_killed_connections() {
    const RECORDS: usize = 500;
    let (node, server) = serve();
    publish(&node, RECORDS);
    let mut done = Vec::new();
    for round in 0.. {
        let mut peer = connect_member(&server, GroupKind::Work, CREDIT);
        claim(&mut peer, 10);
        let deliveries = records(&mut peer, 10.min(RECORDS - done.len()));
        let acked = &deliveries[..deliveries.len().min(3 + round % 5)];
        let tokens: Vec<u64> = acked.iter().map(|(token, ..)| *token).collect();
        peer.send(FromClient::Ack(Settle { request: 1, subscription: 1, tokens: MessageList::new(&tokens) }));
        assert_eq!(read_settled(&mut peer), (tokens.len() as u32, vec![]));
        done.extend(acked.iter().map(|(_, _, seq)| *seq));
        if done.len() == RECORDS {
            break;
        }
        drop(peer);
        // Other members get the remaining records after the node has noticed the lost connection.
        let topic = node.topic("jobs").unwrap();
        while node.groups(&topic)[0].claimed > 0 {
            std::thread::yield_now();
        }
    }
    done.sort_unstable();
    assert_eq!(done, (1..=RECORDS as u64).collect::<Vec<_>>());
}

#[test]
fn unconfirmed_records_of_a_killed_member_become_a_gap() {
    let (node, server) = serve();
    publish(&node, 10);
    let mut killed = connect_member(&server, GroupKind::Share, CREDIT);
    assert_eq!(records(&mut killed, 10).len(), 10);
    let channel = 1;
    let epoch = node.topic("jobs").unwrap().logs()[0].last().epoch;
    let position = dunlin::wire::Position { epoch, seq: 4 };
    let consumed = [dunlin::wire::ChannelPosition { channel, position }];
    killed.send(FromClient::Credit(Credit {
        subscription: 1,
        granted: CREDIT,
        consumed: MessageList::new(&consumed),
    }));
    killed.send(FromClient::Ping(dunlin::wire::Ping { token: 7 }));
    killed.next(|message| matches!(message, FromNode::Pong(_)).then_some(())).unwrap();
    let mut other = connect_member(&server, GroupKind::Share, CREDIT);
    drop(killed);
    let gap = other.next(|message| match message {
        FromNode::Gap(gap) => Some((gap.first, gap.last)),
        _ => None,
    });
    assert_eq!(gap, Some((5, 10)));
}

#[test]
fn member_without_credit_delays_no_other_member() {
    let (node, server) = serve();
    let mut stalled = connect_member(&server, GroupKind::Share, 1);
    publish(&node, 1);
    assert_eq!(records(&mut stalled, 1)[0].2, 1, "one message over its credit");
    let mut reader = connect_member(&server, GroupKind::Share, CREDIT);
    for seq in 2..20 {
        publish(&node, 1);
        assert_eq!(records(&mut reader, 1)[0].2, seq);
    }
    stalled.send(FromClient::Credit(Credit {
        subscription: 1,
        granted: CREDIT,
        consumed: MessageList::new(&[]),
    }));
    drop(reader);
    let gap = stalled.next(|message| matches!(message, FromNode::Gap(_)).then_some(()));
    assert_eq!(gap, Some(()), "records that the other member had not confirmed");
    publish(&node, 1);
    assert_eq!(records(&mut stalled, 1)[0].2, 20);
}

#[test]
fn claim_of_a_leaving_member_does_not_count_as_an_attempt() {
    let (node, server) = serve();
    publish(&node, 1);
    for leave in [FromClient::Unsubscribe { subscription: 1 }, FromClient::Leave] {
        let mut leaving = connect_member(&server, GroupKind::Work, CREDIT);
        claim(&mut leaving, 1);
        let deliveries = records(&mut leaving, 1);
        assert_eq!((deliveries[0].1, deliveries[0].2), (1, 1));
        leaving.send(leave);
        if let FromClient::Unsubscribe { .. } = leave {
            assert_eq!(read_end(&mut leaving), ErrorCode::Ended);
        } else {
            while leaving.next_text().is_some() {}
        }
    }
}

#[test]
fn sender_of_an_invalid_group_message_gets_an_error() {
    let (node, server) = serve();
    node.join_share("jobs", "g", &Default::default()).unwrap();
    let mut peer = Peer::connect(&server);
    join(&mut peer, GroupKind::Work, CREDIT);
    assert_eq!(read_end(&mut peer), ErrorCode::GroupKind);
    join(&mut peer, GroupKind::Share, CREDIT);
    peer.await_subscribed();
    let read_refusal = |peer: &mut Peer| {
        peer.next(|message| match message {
            FromNode::RequestRefused(refused) => Some((refused.request, refused.refusal.code)),
            _ => None,
        })
    };
    peer.send(FromClient::Ack(Settle { request: 5, subscription: 1, tokens: MessageList::new(&[1]) }));
    assert_eq!(read_refusal(&mut peer), Some((5, ErrorCode::NotOpen)));
    peer.send(FromClient::Nack(Nack { request: 6, subscription: 9, tokens: MessageList::new(&[]) }));
    assert_eq!(read_refusal(&mut peer), Some((6, ErrorCode::NotOpen)));
    peer.send(FromClient::Renew(Settle { request: 7, subscription: 1, tokens: MessageList::new(&[1]) }));
    assert_eq!(read_refusal(&mut peer), Some((7, ErrorCode::NotOpen)));
    claim(&mut peer, 9);
    publish(&node, 1);
    assert_eq!(records(&mut peer, 1)[0].0, 0);
    join(&mut peer, GroupKind::Share, CREDIT);
    assert!(peer.next_text().unwrap().contains("in use"));
    assert_eq!(peer.next_text(), None, "the connection is closed");
}

#[test]
fn acks_with_unknown_tokens_are_reported_as_stale() {
    let (node, server) = serve();
    publish(&node, 1);
    let mut peer = connect_member(&server, GroupKind::Work, CREDIT);
    claim(&mut peer, 5);
    let token = records(&mut peer, 1)[0].0;
    let tokens = [token, u64::MAX, token, 0];
    peer.send(FromClient::Ack(Settle { request: 1, subscription: 1, tokens: MessageList::new(&tokens) }));
    assert_eq!(read_settled(&mut peer), (1, vec![u64::MAX, token, 0]));
    node.delete_topic("jobs").unwrap();
    assert!(peer.next_text().unwrap().starts_with("Deleted"));
    assert_eq!(read_end(&mut peer), ErrorCode::Closed);
}

#[test]
fn returning_group_member_learns_where_its_epoch_ended() {
    let disk = FakeDisk::new(1);
    let open = || Node::open(Config::default(), Arc::new(disk.clone()), Path::new("/data")).unwrap().0;
    let node = open();
    let durable = TopicConfig { durable: Some(DurableOptions::default()), ..TopicConfig::default() };
    node.create_topic("jobs", durable, false).unwrap();
    let mut publisher = node.publisher("jobs").unwrap();
    let epoch = ["1", "2", "3"].map(|payload| publisher.publish(payload).unwrap().position.epoch)[2];
    drop(publisher);
    // A log that was closed properly would continue in the same epoch.
    disk.crash();
    drop(node);
    let node = open();
    let server = serve_node(&node, |_| ());
    let mut peer = Peer::connect(&server);
    let logs = [LogPosition { topic: "jobs", partition: 0, position: Position { epoch, seq: 2 } }];
    peer.send(FromClient::Resume(Resume { subscription: 1, logs: MessageList::new(&logs) }));
    join(&mut peer, GroupKind::Work, CREDIT);
    let after = peer.next(|message| match message {
        FromNode::Log(log) => Some(log.after),
        _ => None,
    });
    assert_eq!(after, Some(Position { epoch, seq: 0 }));
    let changed = peer.next(|message| match message {
        FromNode::EpochChanged(changed) => Some((changed.old, changed.last_seen, changed.known_through)),
        _ => None,
    });
    assert_eq!(changed, Some((epoch, 2, Some(3))));
}
