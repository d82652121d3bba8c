use std::collections::HashSet;

use dunlin::topic::Publish;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use v1::join_group_request::Request;
use v1::join_group_response::Event;

use super::*;
use crate::nats_peer::NatsPeer;

/// A member of a group: the stream over which it sends requests, and the stream over which it receives records.
struct Member {
    requests: mpsc::Sender<v1::JoinGroupRequest>,
    responses: Streaming<v1::JoinGroupResponse>,
}

impl Member {
    async fn join(client: &mut GrpcClient, join: v1::Join) -> Result<Member, Status> {
        let (requests, receiver) = mpsc::channel(16);
        requests.send(v1::JoinGroupRequest { request: Some(Request::Join(join)) }).await.unwrap();
        let responses = client.join_group(ReceiverStream::new(receiver)).await?.into_inner();
        let mut member = Member { requests, responses };
        match member.next().await? {
            Event::Joined(_) => Ok(member),
            other => panic!("{other:?}"),
        }
    }

    async fn send(&self, request: Request) {
        self.requests.send(v1::JoinGroupRequest { request: Some(request) }).await.unwrap();
    }

    async fn next(&mut self) -> Result<Event, Status> {
        let response = self.responses.message().await?.ok_or_else(|| Status::ok(""))?;
        Ok(response.event.unwrap())
    }

    async fn deliveries(&mut self) -> Vec<v1::Delivery> {
        match self.next().await.unwrap() {
            Event::Deliveries(deliveries) => deliveries.deliveries,
            other => panic!("{other:?}"),
        }
    }

    async fn settled(&mut self) -> v1::Settled {
        match self.next().await.unwrap() {
            Event::Settled(settled) => settled,
            other => panic!("{other:?}"),
        }
    }
}

fn join(kind: v1::GroupKind, member: &str) -> v1::Join {
    v1::Join {
        topic: "jobs".to_owned(),
        group: "crew".to_owned(),
        kind: kind.into(),
        member: member.to_owned(),
        start: Some(v1::Start { at: Some(At::Earliest(true)) }),
        ..Default::default()
    }
}

#[test]
fn each_record_of_a_share_group_goes_to_one_member() {
    run(async {
        let (node, server) = serve_grpc();
        let mut client = connect(&server).await;
        let mut first = Member::join(&mut client, join(v1::GroupKind::Share, "one")).await.unwrap();
        let mut second = Member::join(&mut client, join(v1::GroupKind::Share, "two")).await.unwrap();
        let mut publisher = node.publisher("jobs").unwrap();
        (0..1_000u32).for_each(|number| drop(publisher.publish(&number.to_le_bytes())));
        let mut seqs = HashSet::new();
        let mut of_each = [0, 0];
        while seqs.len() < 1_000 {
            let (member, requests, response) = tokio::select! {
                response = first.responses.message() => (0, &first.requests, response),
                response = second.responses.message() => (1, &second.requests, response),
            };
            let Some(Event::Deliveries(delivered)) = response.unwrap().unwrap().event else { continue };
            of_each[member] += delivered.deliveries.len();
            let mut last = 0;
            for delivery in delivered.deliveries {
                last = delivery.record.unwrap().seq;
                assert!(seqs.insert(last), "{last} twice");
            }
            let consumed = Request::Consumed(v1::ConsumedPosition { partition: 0, seq: last });
            requests.send(v1::JoinGroupRequest { request: Some(consumed) }).await.unwrap();
        }
        assert_eq!(of_each.iter().sum::<usize>(), 1_000);
    });
}

#[test]
fn group_of_nats_and_grpc_members_ends_with_its_last_member() {
    run(async {
        let (node, server) = serve_grpc_with(|config| config.nats = vec![([127, 0, 0, 1], 0).into()]);
        node.create_topic("jobs", dunlin::topic::TopicConfig::default(), false).unwrap();
        let mut peer = NatsPeer::open(&server);
        peer.subscribe("jobs crew 1");
        let mut client = connect(&server).await;
        let member = Member::join(&mut client, join(v1::GroupKind::Share, "grpc")).await.unwrap();
        peer.send_line("UNSUB 1");
        peer.ping();
        let topic = node.topic("jobs").unwrap();
        assert_eq!(node.groups(&topic)[0].members.len(), 1);
        drop(member);
        until(async || node.groups(&topic).is_empty()).await;
    });
}

#[test]
fn grpc_work_group_redelivers_a_record_until_it_is_acknowledged() {
    run(async {
        let (node, server) = serve_grpc();
        let mut publisher = node.publisher("jobs").unwrap();
        (0..3u8).for_each(|number| drop(publisher.publish(&[number])));
        let mut client = connect(&server).await;
        let mut member = Member::join(&mut client, join(v1::GroupKind::Work, "one")).await.unwrap();
        member.send(Request::Claim(v1::Claim { wanted: 3 })).await;
        let mut deliveries = Vec::new();
        while deliveries.len() < 3 {
            deliveries.extend(member.deliveries().await);
        }
        let tokens: Vec<_> = deliveries.iter().map(|delivery| delivery.token).collect();
        assert!(deliveries.iter().all(|delivery| delivery.attempt == 1 && delivery.claim_ms > 0));
        member.send(Request::Renew(v1::RenewClaims { request: 1, tokens: vec![tokens[2]] })).await;
        assert_eq!(member.settled().await.settled, 1);
        member.send(Request::Ack(v1::Ack { request: 2, tokens: vec![tokens[0], tokens[0]] })).await;
        let settled = member.settled().await;
        assert_eq!((settled.request, settled.settled, settled.stale), (2, 1, vec![tokens[0]]));
        member.send(Request::Nack(v1::Nack { request: 3, tokens: vec![tokens[1]], delay_ms: 1 })).await;
        assert_eq!(member.settled().await.settled, 1);
        member.send(Request::Claim(v1::Claim { wanted: 4 })).await;
        let again = member.deliveries().await.remove(0);
        assert_eq!((again.attempt, again.record.unwrap().payload[..].to_vec()), (2, vec![1]));

        // When a member leaves, its records go to other members. The delivery to the member that left must not count as
        // an attempt.
        let Member { requests, mut responses } = member;
        drop(requests);
        assert!(responses.message().await.unwrap().is_none());
        let mut other = Member::join(&mut client, join(v1::GroupKind::Work, "other")).await.unwrap();
        other.send(Request::Claim(v1::Claim { wanted: 2 })).await;
        let mut deliveries = Vec::new();
        while deliveries.len() < 2 {
            deliveries.extend(other.deliveries().await);
        }
        let mut seqs: Vec<_> =
            deliveries.iter().map(|d| (d.record.as_ref().unwrap().seq, d.attempt)).collect();
        seqs.sort();
        assert_eq!(seqs, [(2, 2), (3, 1)]);
    });
}

#[test]
fn grpc_group_option_decides_if_dead_letters_are_published() {
    run(async {
        let (node, server) = serve_grpc();
        node.publisher("jobs").unwrap().publish(b"poison").unwrap();
        let mut client = connect(&server).await;
        for (group, drop_dead_letters, letters) in [("drops", true, None), ("publishes", false, Some(1))] {
            let join = v1::Join {
                group: group.to_owned(),
                attempts_max: 1,
                drop_dead_letters,
                ..join(v1::GroupKind::Work, "one")
            };
            let mut member = Member::join(&mut client, join).await.unwrap();
            member.send(Request::Claim(v1::Claim { wanted: 1 })).await;
            let tokens = vec![member.deliveries().await[0].token];
            member.send(Request::Nack(v1::Nack { request: 1, tokens, delay_ms: 0 })).await;
            assert_eq!(member.settled().await.settled, 1);
            assert_eq!(node.topic("dead.jobs").map(|topic| topic.logs()[0].last().seq), letters);
        }
        let both = v1::Join {
            dead_letter: "graves".to_owned(),
            drop_dead_letters: true,
            ..join(v1::GroupKind::Work, "one")
        };
        let refused = Member::join(&mut client, both).await.err().unwrap();
        assert_eq!(refused.code(), Code::InvalidArgument);
    });
}

#[test]
fn invalid_group_requests_are_refused() {
    run(async {
        let (_node, server) = serve_grpc();
        let mut client = connect(&server).await;
        let unspecified = Member::join(&mut client, join(v1::GroupKind::Unspecified, "x")).await;
        assert!(unspecified.is_err());
        let mut member = Member::join(&mut client, join(v1::GroupKind::Share, "x")).await.unwrap();
        member.send(Request::Claim(v1::Claim { wanted: 1 })).await;
        assert_eq!(member.next().await.unwrap_err().code(), Code::InvalidArgument);
        let other_kind = Member::join(&mut client, join(v1::GroupKind::Work, "y")).await;
        assert!(other_kind.is_err());
    });
}
