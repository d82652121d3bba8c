//! Tests that users may choose the same producer id without affecting each other.

use dunlin::topic::Publish as _;
use dunlin_client::{ProducerIdentity, PublisherOptions};
use dunlin_server::grpc::proto::dunlin as v1;

use super::{Guarded, PASSWORD, basic, request_of};
use crate::grpc::{connect, publish, run};
use crate::http::peer::Peer as HttpPeer;

const USERS: &str = "[users.ana]\npassword = \"HASH\"\npublish = [\"acme.>\"]\ncreate = [\"acme.>\"]\n\
                     [users.cid]\npassword = \"HASH\"\npublish = [\"acme.orders.>\"]\n";
/// The producer id that both users choose over HTTP. Over the other protocols, both choose the next ids after this one.
const PRODUCER: u64 = 7;

type PublishFn = fn(&Guarded, &str, &str, u32) -> Result<bool, String>;

/// Publishes the first record of a producer's epoch over HTTP as this user. Returns whether the node took the record
/// for a duplicate.
fn publish_over_http(guarded: &Guarded, user: &str, subject: &str, epoch: u32) -> Result<bool, String> {
    let mut peer = HttpPeer::connect(guarded.address(dunlin_server::Protocol::Http));
    let (authorization, producer) = (basic(user, PASSWORD), PRODUCER.to_string());
    let epoch = epoch.to_string();
    let headers = [
        ("authorization", authorization.as_str()),
        ("dunlin-producer", &producer),
        ("dunlin-producer-epoch", &epoch),
        ("dunlin-producer-seq", "1"),
    ];
    let response = peer.request("POST", &format!("/v1/topics/{subject}"), &headers, b"x");
    match response.status {
        200 => Ok(response.json()["duplicate"] == true),
        _ => Err(response.code()),
    }
}

/// Publishes the first record of a producer's epoch over gRPC as this user. Returns whether the node took the record
/// for a duplicate.
fn publish_over_grpc(guarded: &Guarded, user: &str, subject: &str, epoch: u32) -> Result<bool, String> {
    run(async {
        let producer = Some(v1::Producer { id: PRODUCER + 1, epoch, seq: 1 });
        let request = request_of(user, v1::PublishRequest { producer, ..publish(subject, "x") });
        let published = connect(&guarded.server).await.publish(request).await;
        let published = published.map_err(|status| status.message().to_owned())?;
        Ok(published.into_inner().receipt.unwrap().duplicate)
    })
}

/// Publishes the first record of a producer's epoch with the Rust client as this user. Returns whether the node took
/// the record for a duplicate.
fn publish_over_tcp(guarded: &Guarded, user: &str, subject: &str, epoch: u32) -> Result<bool, String> {
    let identity = Some(ProducerIdentity { producer: PRODUCER + 2, epoch });
    let options = PublisherOptions { identity, ..PublisherOptions::default() };
    let mut publisher = guarded.by_password(user).publisher_with(subject, options).unwrap();
    publisher.publish(b"x").map(|receipt| receipt.duplicate).map_err(|error| error.to_string())
}

/// Two users with the same producer id must not have their records taken for duplicates, and must not fence each other.
#[test]
fn two_users_with_the_same_producer_id_are_two_producers() {
    let guarded = Guarded::new(USERS);
    let created =
        guarded.http("PUT", "/v1/topics/acme.all", &basic("ana", PASSWORD), br#"{"pattern":"acme.>"}"#);
    assert!(created.status < 300, "{created:?}");
    for (protocol, publish) in
        [("HTTP", publish_over_http as PublishFn), ("gRPC", publish_over_grpc), ("TCP", publish_over_tcp)]
    {
        let published =
            [("cid", "acme.orders.z", u32::MAX - 1), ("ana", "acme.pay", 1), ("ana", "acme.pay", 1)]
                .map(|(user, subject, epoch)| publish(&guarded, user, subject, epoch));
        assert_eq!(published, [Ok(false), Ok(false), Ok(true)], "{protocol}");
    }
}
