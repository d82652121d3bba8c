//! Tests authentication, permissions and rate limits over gRPC.

use dunlin::topic::{Publish as _, TopicConfig};
use dunlin_server::grpc::proto::{dunlin as v1, ratatoskr as rata};
use rata::message_broker_client::MessageBrokerClient;
use tonic::Code;
use tonic::metadata::MetadataValue;
use tonic_types::StatusExt as _;
use v1::start::At;

use super::{Guarded, PASSWORD, TOKEN, authorized, basic, bearer};
use crate::grpc::{GrpcClient, channel, connect, next, publish, records, run, subscribe};

const USERS: &str = "[users.ana]\npassword = \"HASH\"\ntokens = [\"DIGEST\"]\npublish = [\"orders.>\"]\nsubscribe = [\">\"]\n\
                     subscribe_deny = [\"secret.>\", \"orders.secret.>\"]\n";

async fn refusal(client: &mut GrpcClient, authorization: &str, subject: &str) -> (Code, String) {
    let refused = client.publish(authorized(authorization, publish(subject, "x"))).await.unwrap_err();
    let reason = refused.get_details_error_info().map(|info| info.reason).unwrap_or_default();
    (refused.code(), reason)
}

#[test]
fn grpc_call_without_credentials_or_permission_is_refused() {
    run(async {
        let guarded = Guarded::new(USERS);
        let mut client = connect(&guarded.server).await;
        for wrong in [String::new(), bearer("dunlin_guess"), basic("ana", "guess")] {
            let refused = refusal(&mut client, &wrong, "orders.eu").await;
            assert_eq!(refused, (Code::Unauthenticated, "UNAUTHENTICATED".to_owned()), "{wrong:?}");
        }
        for right in [bearer(&TOKEN.0), basic("ana", PASSWORD)] {
            client.publish(authorized(&right, publish("orders.eu", "x"))).await.unwrap();
            let refused = refusal(&mut client, &right, "secret.a").await;
            assert_eq!(refused, (Code::PermissionDenied, "FORBIDDEN".to_owned()));
            let denied =
                client.subscribe(authorized(&right, subscribe(&["secret.a"], At::Latest(true)))).await;
            assert_eq!(denied.unwrap_err().code(), Code::PermissionDenied);
            let denied = client.request(authorized(
                &right,
                v1::RequestRequest {
                    subject: "secret.a".to_owned(),
                    record: Some(v1::Draft::default()),
                    ..Default::default()
                },
            ));
            assert_eq!(denied.await.unwrap_err().code(), Code::PermissionDenied);
            let create = v1::CreateTopicRequest { name: "orders.us".to_owned(), ..Default::default() };
            let denied = client.create_topic(authorized(&right, create)).await.unwrap_err();
            assert_eq!(denied.code(), Code::PermissionDenied);
        }
    });
}

#[test]
fn grpc_call_with_two_credentials_is_refused() {
    run(async {
        let guarded = Guarded::new(USERS);
        let mut client = connect(&guarded.server).await;
        let mut request = authorized(&basic("ana", PASSWORD), publish("orders.eu", "x"));
        let other = MetadataValue::try_from(bearer("dunlin_guess")).unwrap();
        request.metadata_mut().append("authorization", other);
        let refused = client.publish(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated);
        assert!(refused.message().contains("more than one"), "{refused}");
    });
}

#[test]
fn grpc_wildcard_subscriber_counts_denied_records_as_skipped() {
    run(async {
        let guarded = Guarded::new(USERS);
        let config = TopicConfig { pattern: Some("orders.>".to_owned()), ..TopicConfig::default() };
        guarded.node.create_topic("all", config, false).unwrap();
        for (subject, payload) in
            [("orders.eu", "a"), ("orders.secret.x", "hidden"), ("secret.x", "hidden"), ("orders.eu", "b")]
        {
            guarded.node.publisher(subject).unwrap().publish(payload.as_bytes()).unwrap();
        }
        let mut client = connect(&guarded.server).await;
        let request = authorized(&bearer(&TOKEN.0), subscribe(&[">"], At::Earliest(true)));
        let mut stream = client.subscribe(request).await.unwrap().into_inner();
        let began = next(&mut stream).await.unwrap();
        assert!(
            matches!(&began, v1::subscribe_response::Event::Subscribed(s) if s.logs.len() == 1),
            "{began:?}"
        );
        let got = records(&mut stream, 2).await;
        assert_eq!((got[0].seq, got[1].seq, got[1].skipped), (1, 3, 1), "{got:?}");
        // The stream must end with `PermissionDenied`, because the read permissions of its user change here.
        guarded.rewrite(&USERS.replace("\"secret.>\", ", "\"secret.>\", \"more.>\", "));
        let ended = next(&mut stream).await.unwrap_err();
        assert_eq!(ended.code(), Code::PermissionDenied, "{ended:?}");
        guarded.rewrite("[users]\n");
        let gone = refusal(&mut client, &bearer(&TOKEN.0), "orders.eu").await;
        assert_eq!(gone.0, Code::Unauthenticated);
    });
}

#[test]
fn grpc_publish_over_the_rate_is_refused_with_a_retry_delay() {
    run(async {
        let limits = "[users.ana.limits]\npublish_records_per_s = 1\n";
        let guarded = Guarded::new(&format!("{USERS}{limits}"));
        let mut client = connect(&guarded.server).await;
        let refused = loop {
            let one = authorized(&bearer(&TOKEN.0), publish("orders.eu", "x"));
            if let Err(refused) = client.publish(one).await {
                break refused;
            }
        };
        assert_eq!(refused.code(), Code::ResourceExhausted);
        let retry = refused.get_details_retry_info().and_then(|info| info.retry_delay);
        assert!(retry.is_some_and(|delay| !delay.is_zero()), "{refused:?}");
    });
}

/// The node responds to a refused call only when the client may publish again. If a client ignores the refusal, its
/// next call therefore succeeds.
#[test]
fn ratatoskr_client_over_its_rate_is_slowed_down() {
    run(async {
        let guarded = Guarded::new(
            "[users.ana]\npassword = \"HASH\"\ntokens = [\"DIGEST\"]\npublish = [\">\"]\n\
             [users.ana.limits]\npublish_records_per_s = 5\n",
        );
        let mut broker = MessageBrokerClient::new(channel(&guarded.server).await);
        let message = || rata::PublishRequest {
            topic: "rata".to_owned(),
            payload: b"x".to_vec().into(),
            ..Default::default()
        };
        for is_batch in [false, true] {
            let refused = loop {
                let last = if is_batch {
                    let messages = (0..20).map(|_| message()).collect();
                    let batch = rata::PublishBatchRequest { topic: "rata".to_owned(), messages };
                    let batch = broker.publish_batch(authorized(&bearer(&TOKEN.0), batch)).await.unwrap();
                    batch.into_inner().results.pop().unwrap()
                } else {
                    broker.publish(authorized(&bearer(&TOKEN.0), message())).await.unwrap().into_inner()
                };
                if !last.success {
                    break last;
                }
            };
            assert!(refused.error.contains("publish_records_per_s"), "{refused:?}");
            let next = broker.publish(authorized(&bearer(&TOKEN.0), message())).await.unwrap().into_inner();
            assert!(next.success, "{next:?}");
        }
    });
}

#[test]
fn node_stats_need_the_permission_to_survey_all_tenants() {
    let guarded = Guarded::new(
        "[tenants.acme]\n[users.ana]\npassword = \"HASH\"\n\
         [users.eve]\ntenant = \"acme\"\npassword = \"HASH\"\nsurveys = true\n\
         [users.root]\npassword = \"HASH\"\nsurveys = true\n",
    );
    run(async {
        let mut client = connect(&guarded.server).await;
        for (user, may) in [("ana", false), ("eve", false), ("root", true)] {
            let stats = client.get_stats(authorized(&basic(user, PASSWORD), v1::GetStatsRequest {})).await;
            let code = stats.map_or_else(|refused| refused.code(), |_| Code::Ok);
            assert_eq!(code, if may { Code::Ok } else { Code::PermissionDenied }, "{user}");
        }
    });
}

#[test]
fn subscription_of_another_user_is_reported_as_not_found() {
    let guarded = Guarded::new(
        "[tenants.acme]\n[users.ana]\ntenant = \"acme\"\npassword = \"HASH\"\nsubscribe = [\"acme.>\"]\n\
         [users.bob]\npassword = \"HASH\"\npublish = [\"rata\"]\nsubscribe = [\"rata\"]\n\
         [users.root]\npassword = \"HASH\"\npublish = [\">\"]\nsubscribe = [\">\"]\ncreate = [\">\"]\n",
    );
    run(async {
        let mut broker = MessageBrokerClient::new(channel(&guarded.server).await);
        let as_user = |user: &str| basic(user, PASSWORD);
        let create = rata::CreateTopicRequest { name: "rata".to_owned() };
        assert!(
            broker.create_topic(authorized(&as_user("root"), create)).await.unwrap().into_inner().created
        );
        let subscribe =
            || rata::SubscribeRequest { topic: "rata".to_owned(), subscriber_id: "billing".to_owned() };
        let stream = broker.subscribe(authorized(&as_user("root"), subscribe())).await.unwrap();
        let reference = stream.metadata().get("subscription-ref").unwrap().to_str().unwrap().to_owned();
        let mut stream = stream.into_inner();
        let mut own = broker.subscribe(authorized(&as_user("bob"), subscribe())).await.unwrap().into_inner();
        let unsubscribe = |topic: &str, subscription_ref: &str| rata::UnsubscribeRequest {
            topic: topic.to_owned(),
            subscription_ref: subscription_ref.to_owned(),
        };
        let missing = unsubscribe("missing", "billing");
        let missing = broker.unsubscribe(authorized(&as_user("ana"), missing)).await.unwrap().into_inner();
        assert_eq!((missing.success, missing.error.as_str()), (false, "subscription_not_found"));
        for (user, subscription) in
            [("ana", "billing"), ("ana", reference.as_str()), ("bob", reference.as_str())]
        {
            let foreign = authorized(&as_user(user), unsubscribe("rata", subscription));
            let response = broker.unsubscribe(foreign).await.unwrap().into_inner();
            assert_eq!(response, missing, "{user} {subscription}");
        }
        // Two users may use the same subscription name. Each name then belongs to the user's own subscription.
        let ended = authorized(&as_user("bob"), unsubscribe("rata", "billing"));
        assert!(broker.unsubscribe(ended).await.unwrap().into_inner().success);
        assert_eq!(own.message().await.unwrap(), None);

        let one = rata::PublishRequest {
            topic: "rata".to_owned(),
            payload: b"1".to_vec().into(),
            ..Default::default()
        };
        assert!(broker.publish(authorized(&as_user("root"), one)).await.unwrap().into_inner().success);
        assert_eq!(&stream.message().await.unwrap().unwrap().payload[..], b"1");
        let ended = authorized(&as_user("root"), unsubscribe("rata", "billing"));
        assert!(broker.unsubscribe(ended).await.unwrap().into_inner().success);
        assert_eq!(stream.message().await.unwrap(), None);
    });
}
