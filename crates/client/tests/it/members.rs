use std::sync::mpsc;
use std::time::Duration;

use dunlin_client::topic::Notice;
use dunlin_client::{
    CallError, Client, ClientLimits, ClientOptions, Group, GroupEvent, GroupKind, GroupOptions, Member,
};
use dunlin_wait::{PATIENCE, POLL, until};
use dunlin_wire::*;

use crate::peer::{Link, ScriptedNode, at, frame};

const JOBS: Group<'static> = Group { topic: "jobs", name: "workers" };

fn join(client: &Client) -> Member {
    client.join(JOBS, GroupOptions { kind: GroupKind::Work, ..GroupOptions::default() }).unwrap()
}

/// Reads JOIN_GROUP, and opens the log of the group on channel 4. Ignores RESUME before JOIN_GROUP.
fn accept_member(link: &mut Link) {
    let mut read = || {
        link.next(|message| match message {
            FromClient::JoinGroup(join) => {
                assert_eq!((join.topic, join.group), ("jobs", "workers"));
                Some(join.subscription)
            }
            FromClient::Resume(_) => None,
            other => panic!("{other:?}"),
        })
    };
    let subscription = read().or_else(&mut read).expect("JOIN_GROUP follows RESUME");
    link.send(FromNode::Log(Log {
        subscription,
        channel: 4,
        partition: 0,
        after: at(1, 0),
        topic: "jobs",
        subject_prefix: "jobs",
    }));
    link.send(FromNode::Subscribed(Subscribed { subscription, logs: 1 }));
}

fn accept_claim(link: &mut Link, expected: u64) {
    link.next(|message| match message {
        FromClient::Claim(claim) => assert_eq!(claim.wanted, expected),
        other => panic!("{other:?}"),
    });
}

/// Reads CREDIT, which must report the records with these sequence numbers as consumed, and no others.
fn accept_consumed(link: &mut Link, expected: &[u64]) {
    link.next(|message| match message {
        FromClient::Credit(credit) => {
            let consumed: Vec<u64> = credit.consumed.iter().map(|consumed| consumed.position.seq).collect();
            assert_eq!(consumed, expected);
        }
        other => panic!("{other:?}"),
    });
}

fn deliver(link: &mut Link, seqs: std::ops::RangeInclusive<u64>) {
    let mut out = Vec::new();
    let start = Deliver::begin(&mut out, 4);
    let count = seqs.clone().count() as u32;
    for seq in seqs {
        let record = frame("", &format!("job {seq}"));
        Deliver::add(&mut out, 100 + seq, at(1, seq), 2, 30_000, &record);
    }
    Deliver::finish(&mut out, start, count);
    link.send_bytes(&out);
}

fn next(member: &mut Member) -> (u64, u64, u32, Vec<u8>) {
    match member.next_timeout(PATIENCE).unwrap().expect("nothing came") {
        GroupEvent::Record { token, position, attempt, claim, frame, log } => {
            assert_eq!((claim, log.topic.as_str()), (Duration::from_secs(30), "jobs"));
            (token, position.seq, attempt, frame.payload().to_vec())
        }
        GroupEvent::Notice(notice) => panic!("{notice:?}"),
    }
}

#[test]
fn member_can_claim_acknowledge_renew_and_return_records() {
    let (client, node) = ScriptedNode::serve(|_, mut link| {
        accept_member(&mut link);
        accept_claim(&mut link, 2);
        deliver(&mut link, 7..=8);
        let request = link.next(|message| match message {
            FromClient::Ack(ack) => {
                assert_eq!(ack.tokens.iter().collect::<Vec<_>>(), [107, 108]);
                ack.request
            }
            other => panic!("{other:?}"),
        });
        link.send(FromNode::Settled(Settled { request, settled: 1, stale: MessageList::new(&[108]) }));
        let request = link.next(|message| match message {
            FromClient::Renew(renew) => {
                assert_eq!(renew.tokens.iter().collect::<Vec<_>>(), [108]);
                renew.request
            }
            other => panic!("{other:?}"),
        });
        link.send(FromNode::Settled(Settled { request, settled: 1, stale: MessageList::new(&[]) }));
        let request = link.next(|message| match message {
            FromClient::Nack(nack) => {
                let expected = NackedToken { token: 108, delay_ms: 50 };
                assert_eq!(nack.tokens.iter().collect::<Vec<_>>(), [expected]);
                nack.request
            }
            other => panic!("{other:?}"),
        });
        link.send(FromNode::Settled(Settled { request, settled: 1, stale: MessageList::new(&[]) }));
        link.wait_until_closed();
    });
    let mut member = join(&client);
    member.claim(2);
    assert_eq!(next(&mut member), (107, 7, 2, b"job 7".to_vec()));
    assert_eq!(next(&mut member), (108, 8, 2, b"job 8".to_vec()));
    assert!(member.try_next().unwrap().is_none());
    let settlement = member.ack(&[107, 108]).unwrap();
    assert_eq!((settlement.settled, settlement.stale), (1, vec![108]));
    assert_eq!(member.renew(&[108]).unwrap().settled, 1);
    assert_eq!(member.nack(&[(108, Duration::from_millis(50))]).unwrap().settled, 1);
    drop((member, client));
    node.join().unwrap();
}

#[test]
fn client_refuses_to_renew_claims_at_a_node_of_an_older_version() {
    let peer = ScriptedNode::new();
    let url = peer.url();
    let node = std::thread::spawn(move || {
        let mut link = peer.accept_silently();
        link.read_hello();
        link.welcome_with_version(2);
        accept_member(&mut link);
        accept_claim(&mut link, 1);
        deliver(&mut link, 7..=7);
        link.wait_until_closed();
    });
    let client = Client::connect(&url, ClientOptions::default()).unwrap();
    let mut member = join(&client);
    member.claim(1);
    assert_eq!(next(&mut member).0, 107);
    let refused = member.renew(&[107]).unwrap_err();
    assert!(matches!(&refused, CallError::Refused(why) if why.code == ErrorCode::Version), "{refused:?}");
    drop((member, client));
    node.join().unwrap();
}

#[test]
fn reconnected_member_requests_only_missing_records() {
    let (client, node) = ScriptedNode::serve(|peer, mut link| {
        accept_member(&mut link);
        accept_claim(&mut link, 5);
        deliver(&mut link, 1..=2);
        drop(link);
        let mut link = peer.accept();
        accept_member(&mut link);
        accept_claim(&mut link, 3);
        deliver(&mut link, 3..=5);
        accept_claim(&mut link, 4);
        link.wait_until_closed();
    });
    let mut member = join(&client);
    member.claim(5);
    for seq in 1..=5 {
        assert_eq!(next(&mut member).1, seq);
    }
    member.claim(1);
    drop((member, client));
    node.join().unwrap();
}

#[test]
fn rejoined_member_confirms_only_newly_delivered_records() {
    let (received_sender, received) = mpsc::channel();
    let (client, node) = ScriptedNode::serve(move |peer, mut link| {
        accept_member(&mut link);
        deliver(&mut link, 7..=7);
        received.recv_timeout(PATIENCE).unwrap();
        drop(link);
        let mut link = peer.accept();
        accept_member(&mut link);
        accept_consumed(&mut link, &[]);
        // Another member has returned this record.
        deliver(&mut link, 3..=3);
        accept_consumed(&mut link, &[3]);
        link.wait_until_closed();
    });
    let mut member = client.join_nowait(JOBS, GroupOptions::default()).unwrap();
    until("the first record has arrived", || member.ready().unwrap());
    assert_eq!(member.start_epoch(), Ok(Some(1)));
    received_sender.send(()).unwrap();
    until("the member has joined again", || {
        client.pump(POLL);
        member.start_epoch() == Ok(Some(1))
    });
    assert_eq!(next(&mut member).1, 7);
    assert_eq!(next(&mut member).1, 3);
    assert!(member.try_next().unwrap().is_none());
    drop((member, client));
    node.join().unwrap();
}

#[test]
fn member_with_tiny_credit_does_not_wake_without_an_event() {
    let limits = ClientLimits { credit_bytes: 1, ..ClientLimits::default() };
    let (client, node) =
        ScriptedNode::serve_with(ClientOptions { limits, ..ClientOptions::default() }, |_, mut link| {
            accept_member(&mut link);
            link.wait_until_closed();
        });
    let mut member = join(&client);
    assert!(!member.wait(Some(Duration::from_millis(20))).unwrap(), "woken without an event");
    drop((member, client));
    node.join().unwrap();
}

#[test]
fn member_that_joins_again_learns_how_its_epoch_ended() {
    let (client, node) = ScriptedNode::serve(|node, mut link| {
        accept_member(&mut link);
        drop(link);
        let mut link = node.accept();
        link.next(|message| match message {
            FromClient::Resume(resume) => {
                let positions: Vec<_> = resume.logs.iter().map(|log| (log.partition, log.position)).collect();
                assert_eq!(positions, [(0, at(1, 0))]);
            }
            other => panic!("{other:?}"),
        });
        accept_member(&mut link);
        link.send(FromNode::EpochChanged(EpochChanged {
            channel: 4,
            old: 1,
            last_seen: 0,
            known_through: Some(0),
            new_first: at(2, 1),
        }));
        link.wait_until_closed();
    });
    let mut member = join(&client);
    let event = member.next_timeout(PATIENCE).unwrap().expect("the notice arrives");
    let GroupEvent::Notice(Notice::EpochChanged(changed)) = event else { panic!("another event") };
    assert_eq!((changed.old, changed.known_through), (1, Some(0)));
    drop((member, client));
    node.join().unwrap();
}
