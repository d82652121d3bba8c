use dunlin::topic::{Event as TopicEvent, Subscribe, SubscribeOptions};
use tonic::Code;
use tonic_types::StatusExt;

use super::*;

fn request_message(subject: &str, payload: &str, timeout_ms: u32) -> v1::RequestRequest {
    let v1::PublishRequest { subject, record, .. } = publish(subject, payload);
    v1::RequestRequest { subject, record, timeout_ms }
}

async fn request_reply(client: &mut GrpcClient, subject: &str, payload: &str) -> String {
    let response = client.request(request_message(subject, payload, 30_000)).await.unwrap().into_inner();
    String::from_utf8(response.reply.unwrap().payload.to_vec()).unwrap()
}

#[test]
fn in_process_and_grpc_responders_answer_grpc_requests() {
    run(async {
        let (node, server) = serve_grpc();
        let mut client = connect(&server).await;
        let _inside = node.respond("inside", |mut request| {
            let response = request.record().payload().to_ascii_uppercase();
            request.reply(&response[..]).unwrap();
        });
        assert_eq!(request_reply(&mut client, "inside", "one").await, "ONE");

        let mut responder_client = connect(&server).await;
        let (mut stream, _) =
            start_subscription(&mut responder_client, subscribe(&["outside"], At::Latest(true)))
                .await
                .unwrap();
        let responder = tokio::spawn(async move {
            for _ in 0..2 {
                let request = records(&mut stream, 1).await.remove(0);
                let response = request.payload.to_ascii_uppercase();
                responder_client.publish(publish(&request.reply, response)).await.unwrap();
            }
        });
        assert_eq!(request_reply(&mut client, "outside", "two").await, "TWO");
        assert_eq!(request_reply(&mut client, "outside", "three").await, "THREE");
        responder.await.unwrap();
    });
}

#[test]
fn concurrent_requests_each_get_their_own_reply() {
    run(async {
        let (node, server) = serve_grpc();
        let client = connect(&server).await;
        let _inside = node.respond("echo", |mut request| {
            let response = request.record().payload().to_vec();
            request.reply(&response[..]).unwrap();
        });
        let requests = (0..200).map(|number| {
            let mut client = client.clone();
            tokio::spawn(async move {
                let text = format!("number {number}");
                assert_eq!(request_reply(&mut client, "echo", &text).await, text);
            })
        });
        for request in requests.collect::<Vec<_>>() {
            request.await.unwrap();
        }
    });
}

#[test]
fn grpc_request_without_responder_publishes_nothing() {
    run(async {
        let (node, server) = serve_grpc();
        let mut client = connect(&server).await;
        let refused = client.request(request_message("nobody", "x", 30_000)).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable, "{refused}");
        assert_eq!(refused.get_details_error_info().unwrap().reason, "NO_RESPONDER");
        let published = node.topic("nobody").map_or(0, |topic| topic.logs()[0].info().next_seq - 1);
        assert_eq!(published, 0);
    });
}

#[test]
fn unanswered_grpc_request_times_out_and_ignores_a_late_reply() {
    run(async {
        let (node, server) = serve_grpc();
        let mut client = connect(&server).await;
        let mut silent = node.subscribe("slow", &SubscribeOptions::default()).unwrap();
        let refused = client.request(request_message("slow", "x", 50)).await.unwrap_err();
        assert_eq!(refused.code(), Code::DeadlineExceeded, "{refused}");
        assert_eq!(refused.get_details_error_info().unwrap().reason, "NO_REPLY");
        let reply_to = match silent.next().unwrap() {
            TopicEvent::Record(request) => request.frame.reply().unwrap().to_owned(),
            other => panic!("{other:?}"),
        };
        client.publish(publish(&reply_to, "late")).await.unwrap();
        let _inside = node.respond("slow", |mut request| {
            request.reply(&b"in time"[..]).unwrap();
        });
        assert_eq!(request_reply(&mut client, "slow", "y").await, "in time");
    });
}

#[test]
fn grpc_request_with_a_reply_subject_or_no_record_is_refused() {
    run(async {
        let (_node, server) = serve_grpc();
        let mut client = connect(&server).await;
        let mut with_reply = request_message("t", "x", 0);
        with_reply.record.as_mut().unwrap().reply = "mine".to_owned();
        assert_eq!(client.request(with_reply).await.unwrap_err().code(), Code::InvalidArgument);
        let none = v1::RequestRequest { record: None, ..request_message("t", "x", 0) };
        assert_eq!(client.request(none).await.unwrap_err().code(), Code::InvalidArgument);
    });
}

#[test]
fn inbox_of_a_grpc_connection_ends_with_the_connection() {
    run(async {
        let (node, server) = serve_grpc();
        let _inside = node.respond("echo", |mut request| {
            request.reply(&b"here"[..]).unwrap();
        });
        let inboxes = || {
            let page = node.topics(Some(&dunlin::topic::Pattern::parse("_INBOX.>").unwrap()), "", 10);
            page.topics.len()
        };
        let mut client = connect(&server).await;
        assert_eq!(request_reply(&mut client, "echo", "x").await, "here");
        assert_eq!(inboxes(), 1);
        drop(client);
        until(async || inboxes() == 0).await;
    });
}
