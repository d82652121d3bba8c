use std::collections::HashSet;

use dunlin::topic::Publish;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use v1::join_group_request::Request as Asked;
use v1::join_group_response::Event as Told;

use super::*;

/// A member's stream of requests, and its stream of records.
struct Member {
    asks: mpsc::Sender<v1::JoinGroupRequest>,
    told: Streaming<v1::JoinGroupResponse>,
}

impl Member {
    async fn join(client: &mut Dunlin, join: v1::Join) -> Result<Member, Status> {
        let (asks, asked) = mpsc::channel(16);
        asks.send(v1::JoinGroupRequest { request: Some(Asked::Join(join)) }).await.unwrap();
        let told = client.join_group(ReceiverStream::new(asked)).await?.into_inner();
        let mut member = Member { asks, told };
        match member.next().await? {
            Told::Joined(_) => Ok(member),
            other => panic!("{other:?}"),
        }
    }

    async fn ask(&self, request: Asked) {
        self.asks.send(v1::JoinGroupRequest { request: Some(request) }).await.unwrap();
    }

    async fn next(&mut self) -> Result<Told, Status> {
        let told = self.told.message().await?.ok_or_else(|| Status::ok(""))?;
        Ok(told.event.unwrap())
    }

    async fn deliveries(&mut self) -> Vec<v1::Delivery> {
        match self.next().await.unwrap() {
            Told::Deliveries(deliveries) => deliveries.deliveries,
            other => panic!("{other:?}"),
        }
    }

    async fn settled(&mut self) -> v1::Settled {
        match self.next().await.unwrap() {
            Told::Settled(settled) => settled,
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
        let mut one = Member::join(&mut client, join(v1::GroupKind::Share, "one")).await.unwrap();
        let mut two = Member::join(&mut client, join(v1::GroupKind::Share, "two")).await.unwrap();
        let mut publisher = node.publisher("jobs").unwrap();
        (0..1_000u32).for_each(|number| drop(publisher.publish(&number.to_le_bytes())));
        let mut seqs = HashSet::new();
        let mut of_each = [0, 0];
        while seqs.len() < 1_000 {
            let (who, member, told) = tokio::select! {
                told = one.told.message() => (0, &one.asks, told),
                told = two.told.message() => (1, &two.asks, told),
            };
            let Some(Told::Deliveries(given)) = told.unwrap().unwrap().event else { continue };
            of_each[who] += given.deliveries.len();
            let mut last = 0;
            for delivery in given.deliveries {
                last = delivery.record.unwrap().seq;
                assert!(seqs.insert(last), "{last} twice");
            }
            let consumed = Asked::Consumed(v1::Consumed { partition: 0, seq: last });
            member.send(v1::JoinGroupRequest { request: Some(consumed) }).await.unwrap();
        }
        assert_eq!(of_each.iter().sum::<usize>(), 1_000);
    });
}

#[test]
fn grpc_work_is_redelivered_until_acknowledged() {
    run(async {
        let (node, server) = serve_grpc();
        let mut publisher = node.publisher("jobs").unwrap();
        (0..3u8).for_each(|number| drop(publisher.publish(&[number])));
        let mut client = connect(&server).await;
        let mut member = Member::join(&mut client, join(v1::GroupKind::Work, "one")).await.unwrap();
        member.ask(Asked::Claim(v1::Claim { wanted: 3 })).await;
        let mut given = Vec::new();
        while given.len() < 3 {
            given.extend(member.deliveries().await);
        }
        let tokens: Vec<_> = given.iter().map(|delivery| delivery.token).collect();
        assert!(given.iter().all(|delivery| delivery.attempt == 1 && delivery.claim_ms > 0));
        member.ask(Asked::Renew(v1::Renew { request: 1, tokens: vec![tokens[2]] })).await;
        assert_eq!(member.settled().await.settled, 1);
        member.ask(Asked::Ack(v1::Ack { request: 2, tokens: vec![tokens[0], tokens[0]] })).await;
        let settled = member.settled().await;
        assert_eq!((settled.request, settled.settled, settled.stale), (2, 1, vec![tokens[0]]));
        member.ask(Asked::Nack(v1::Nack { request: 3, tokens: vec![tokens[1]], delay_ms: 1 })).await;
        assert_eq!(member.settled().await.settled, 1);
        member.ask(Asked::Claim(v1::Claim { wanted: 4 })).await;
        let again = member.deliveries().await.remove(0);
        assert_eq!((again.attempt, again.record.unwrap().payload[..].to_vec()), (2, vec![1]));

        // A member that leaves returns its records, and the returned delivery does not count as an attempt.
        let Member { asks, mut told } = member;
        drop(asks);
        assert!(told.message().await.unwrap().is_none());
        let mut other = Member::join(&mut client, join(v1::GroupKind::Work, "other")).await.unwrap();
        other.ask(Asked::Claim(v1::Claim { wanted: 2 })).await;
        let mut given = Vec::new();
        while given.len() < 2 {
            given.extend(other.deliveries().await);
        }
        let mut seqs: Vec<_> = given.iter().map(|d| (d.record.as_ref().unwrap().seq, d.attempt)).collect();
        seqs.sort();
        assert_eq!(seqs, [(2, 2), (3, 1)]);
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
        member.ask(Asked::Claim(v1::Claim { wanted: 1 })).await;
        assert_eq!(member.next().await.unwrap_err().code(), Code::InvalidArgument);
        let other_kind = Member::join(&mut client, join(v1::GroupKind::Work, "y")).await;
        assert!(other_kind.is_err());
    });
}
