//! Tests hostile and broken clients. Each must receive an error or be disconnected, and other clients must not be
//! affected.

use std::io::{Read, Write};
use std::net::TcpStream;

use bytes::Bytes;
use h2::Reason;
use h2::client::SendRequest;
use prost::Message;
use tonic::Code;

use super::*;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// An HTTP/2 frame of the type SETTINGS without any settings.
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

/// Opens an HTTP/2 connection on which the test chooses every frame.
async fn connect_h2(server: &Server, change: impl FnOnce(&mut h2::client::Builder)) -> SendRequest<Bytes> {
    let stream = tokio::net::TcpStream::connect(grpc_address(server)).await.unwrap();
    let mut builder = h2::client::Builder::new();
    change(&mut builder);
    let (client, connection) = builder.handshake(stream).await.unwrap();
    tokio::spawn(connection);
    client.ready().await.unwrap()
}

fn new_request(name: &str) -> http::Request<()> {
    let request = http::Request::post(format!("http://node/dunlin.v1.Dunlin/{name}"));
    request.header("content-type", "application/grpc").body(()).unwrap()
}

fn grpc_frame(flag: u8, message: &[u8]) -> Bytes {
    let mut bytes = vec![flag];
    bytes.extend_from_slice(&(message.len() as u32).to_be_bytes());
    bytes.extend_from_slice(message);
    bytes.into()
}

/// Calls the method `name` with this body, and returns the gRPC status of the response; `None` if there is no response.
async fn status_of(client: &mut SendRequest<Bytes>, name: &str, body: Bytes) -> Option<Code> {
    *client = client.clone().ready().await.ok()?;
    let (response, mut sending) = client.send_request(new_request(name), false).ok()?;
    // The node may refuse the call before the whole body is sent, so a failure is ignored.
    let _ = sending.send_data(body, true);
    let response = response.await.ok()?;
    let code = |headers: &http::HeaderMap| Some(Code::from_bytes(headers.get("grpc-status")?.as_bytes()));
    if let Some(code) = code(response.headers()) {
        return Some(code);
    }
    let mut body = response.into_body();
    // For a call that streams responses, the first response is enough, and the stream is then closed.
    if let Some(Ok(data)) = body.data().await {
        body.flow_control().release_capacity(data.len()).unwrap();
        if !body.is_end_stream() && name != "Publish" {
            return Some(Code::Ok);
        }
        while let Some(Ok(data)) = body.data().await {
            body.flow_control().release_capacity(data.len()).unwrap();
        }
    }
    code(&body.trailers().await.ok()??)
}

#[test]
fn message_marked_compressed_is_refused_without_decoding() {
    run(async {
        let (_node, server) = serve_grpc();
        let mut client = connect_h2(&server, |_| ()).await;
        // A gzip stream, which would become much larger if the node decompressed it.
        let bomb = [&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3][..], &[0; 1_000]].concat();
        let refused = status_of(&mut client, "Publish", grpc_frame(1, &bomb)).await;
        assert!(refused.is_some_and(|code| code != Code::Ok), "{refused:?}");
        let accepted =
            status_of(&mut client, "Publish", grpc_frame(0, &publish("t", "x").encode_to_vec())).await;
        assert_eq!(accepted, Some(Code::Ok), "the connection continues");
    });
}

#[test]
fn million_empty_elements_are_refused_without_decoding() {
    run(async {
        let (node, server) = serve_grpc();
        let mut other = connect(&server).await;
        other.publish(publish("t", "x")).await.unwrap();
        let before = node.budget().used();
        // Messages with a million empty elements in field 1 or 2. In another message, a record has a million empty
        // headers (field 4).
        let in_field = |key: u8| [key, 0].repeat(1_000_000);
        let headers = in_field(0x22);
        let mut record = vec![0x12];
        prost::encoding::encode_varint(headers.len() as u64, &mut record);
        record.extend_from_slice(&headers);
        for (name, message) in [
            ("PublishBatch", in_field(0x0a)),
            ("PublishStream", in_field(0x12)),
            ("Subscribe", in_field(0x0a)),
            ("Publish", record),
        ] {
            let mut client = connect_h2(&server, |_| ()).await;
            let refused = status_of(&mut client, name, grpc_frame(0, &message)).await;
            assert_eq!(refused, Some(Code::ResourceExhausted), "{name}");
        }
        until(async || node.budget().used() <= before + (64 << 10)).await;
        other.publish(publish("t", "x")).await.unwrap();
    });
}

/// Begins a call, and sends the header of a message of `announced` bytes and the first bytes of the message. The
/// returned values keep the call open.
async fn begin_message(
    client: &mut SendRequest<Bytes>,
    path: &str,
    announced: u32,
    first: &[u8],
) -> (h2::client::ResponseFuture, h2::SendStream<Bytes>) {
    *client = client.clone().ready().await.unwrap();
    let request = http::Request::post(format!("http://node{path}"));
    let request = request.header("content-type", "application/grpc").body(()).unwrap();
    let (response, mut sending) = client.send_request(request, false).unwrap();
    let bytes = [&[0][..], &announced.to_be_bytes(), first].concat();
    sending.send_data(bytes.into(), false).unwrap();
    (response, sending)
}

#[test]
fn grpc_messages_use_memory_as_they_arrive_not_when_announced() {
    run(async {
        let (node, server) = serve_grpc();
        let mut other = connect(&server).await;
        other.publish(publish("t", "x")).await.unwrap();
        let before = node.budget().used();
        let mut client = connect_h2(&server, |_| ()).await;
        let mut calls = Vec::new();
        for _ in 0..100 {
            calls.push(begin_message(&mut client, "/dunlin.v1.Dunlin/Publish", 16_000_000, &[]).await);
        }
        // The node handles the calls in order. When the memory budget includes the 8 KiB of the next call, which is the
        // last one, the node has received all earlier calls.
        let first = vec![0x7a; 8 << 10];
        calls.push(begin_message(&mut client, "/dunlin.v1.Dunlin/Publish", 16_000_000, &first).await);
        until(async || node.budget().used() >= before + (8 << 10)).await;
        let charged = node.budget().used() - before;
        assert!(charged < 1 << 20, "{charged} bytes are charged");
        drop(calls);
        until(async || node.budget().used() < before + (8 << 10)).await;
    });
}

#[test]
fn large_message_of_a_call_without_login_is_refused() {
    run(async {
        let (_node, server) = serve_grpc();
        let mut client = connect_h2(&server, |_| ()).await;
        for path in ["/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"] {
            let (response, _sending) = begin_message(&mut client, path, 2_000, &[]).await;
            assert_eq!(refusal_code(response.await.unwrap()).await, Code::ResourceExhausted, "{path}");
        }
    });
}

/// Returns the gRPC status of a response that contains no messages.
async fn refusal_code(response: http::Response<h2::RecvStream>) -> Code {
    let status = match response.headers().get("grpc-status") {
        Some(status) => status.clone(),
        None => {
            let mut body = response.into_body();
            assert!(body.data().await.is_none(), "only the end follows");
            body.trailers().await.unwrap().unwrap()["grpc-status"].clone()
        }
    };
    Code::from_bytes(status.as_bytes())
}

#[test]
fn partial_grpc_message_counts_towards_tenant_memory() {
    run(async {
        let (token, digest) = dunlin_server::access::new_token().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let users_file = dir.path().join("users.toml");
        let users = format!(
            "[tenants.small.limits]\nmemory_bytes = 1048576\n\
             [users.eve]\ntenant = \"small\"\ntokens = [\"{digest}\"]\npublish = [\">\"]\n"
        );
        std::fs::write(&users_file, users).unwrap();
        let (_node, server) = serve_grpc_with(|config| config.users_file = Some(users_file.clone()));
        let mut client = connect_h2(&server, |_| ()).await;
        let mut request = new_request("Publish");
        let authorization = format!("Bearer {token}").parse().unwrap();
        request.headers_mut().insert("authorization", authorization);
        let (response, mut sending) = client.send_request(request, false).unwrap();
        let message = grpc_frame(0, &publish("small.t", vec![7; 1_500_000]).encode_to_vec());
        sending.send_data(message.slice(..1_100_000), false).unwrap();
        assert_eq!(refusal_code(response.await.unwrap()).await, Code::ResourceExhausted);
    });
}

/// Calls `Health/Watch`, and returns the response, which keeps the call open.
async fn watch_health(client: &mut SendRequest<Bytes>) -> http::Response<h2::RecvStream> {
    *client = client.clone().ready().await.unwrap();
    let request = http::Request::post("http://node/grpc.health.v1.Health/Watch");
    let request = request.header("content-type", "application/grpc").body(()).unwrap();
    let (response, mut sending) = client.send_request(request, false).unwrap();
    sending.send_data(grpc_frame(0, &[]), true).unwrap();
    response.await.unwrap()
}

/// hyper panics when it writes a date before 1970. The node must therefore omit the date.
#[test]
fn grpc_responses_have_no_date_header() {
    run(async {
        let (_node, server) = serve_grpc();
        let mut client = connect_h2(&server, |_| ()).await;
        let response = watch_health(&mut client).await;
        assert!(!response.headers().contains_key("date"), "{:?}", response.headers());
    });
}

#[test]
fn number_of_open_calls_without_login_is_limited() {
    run(async {
        let (node, server) = serve_grpc();
        let before = node.budget().used();
        let mut client = connect_h2(&server, |_| ()).await;
        let mut open = Vec::new();
        for _ in 0..16 {
            let response = watch_health(&mut client).await;
            assert!(!response.headers().contains_key("grpc-status"));
            open.push(response);
        }
        assert!(node.budget().used() >= before + (16 << 14));
        let refused = watch_health(&mut client).await;
        assert_eq!(refused.headers()["grpc-status"], "8");
        // Other calls of the same client must still succeed.
        let message = grpc_frame(0, &publish("t", "x").encode_to_vec());
        assert_eq!(status_of(&mut client, "Publish", message).await, Some(Code::Ok));
        // When a call ends, another one must be accepted.
        drop(open);
        until(async || !watch_health(&mut client).await.headers().contains_key("grpc-status")).await;
    });
}

#[test]
fn second_message_of_a_unary_call_is_refused() {
    run(async {
        let (_node, server) = serve_grpc();
        let mut client = connect_h2(&server, |_| ()).await;
        let message = grpc_frame(0, &publish("t", "x").encode_to_vec());
        let refused = status_of(&mut client, "Publish", [&message[..], &message[..]].concat().into()).await;
        assert_eq!(refused, Some(Code::InvalidArgument));
        assert_eq!(status_of(&mut client, "Publish", message).await, Some(Code::Ok));
    });
}

#[test]
fn invalid_utf8_text_is_refused_but_the_connection_works() {
    run(async {
        let (node, server) = serve_grpc();
        let mut client = connect_h2(&server, |_| ()).await;
        // Field 1 is a text in all these requests. The two bytes in it are not UTF-8.
        for name in ["Publish", "Request", "CreateTopic", "ListTopics", "Subscribe", "JoinGroup"] {
            let refused = status_of(&mut client, name, grpc_frame(0, &[0x0a, 2, 0xff, 0xfe])).await;
            assert!(refused.is_some_and(|code| code != Code::Ok), "{name}: {refused:?}");
        }
        let accepted =
            status_of(&mut client, "Publish", grpc_frame(0, &publish("t", "x").encode_to_vec())).await;
        assert_eq!(accepted, Some(Code::Ok));
        assert_eq!(node.topic("t").unwrap().logs()[0].info().next_seq, 2);
    });
}

/// Sends calls of several kinds with a few damaged bytes. If a check fails, its message contains the seed.
#[test]
fn arbitrary_grpc_bytes_always_get_a_status() {
    run(async {
        let (_node, server) = serve_grpc();
        let mut other = connect(&server).await;
        let valid: [(&str, Vec<u8>); 6] = [
            ("Publish", publish("t", "payload").encode_to_vec()),
            ("PublishBatch", {
                let requests = vec![publish("t", "one"), publish("u", "two")];
                v1::PublishBatchRequest { requests }.encode_to_vec()
            }),
            ("Subscribe", subscribe(&["t", "u.>"], At::Earliest(true)).encode_to_vec()),
            ("Request", {
                let v1::PublishRequest { subject, record, .. } = publish("t", "ask");
                v1::RequestRequest { subject, record, timeout_ms: 1 }.encode_to_vec()
            }),
            (
                "CreateTopic",
                v1::CreateTopicRequest { name: "c".to_owned(), ..Default::default() }.encode_to_vec(),
            ),
            ("DescribeTopic", v1::DescribeTopicRequest { name: "t".to_owned() }.encode_to_vec()),
        ];
        let mut client = connect_h2(&server, |_| ()).await;
        for seed in 1..=300u64 {
            let (name, valid) = &valid[seed as usize % valid.len()];
            let invalid = corrupt(valid, seed);
            let status = status_of(&mut client, name, grpc_frame(0, &invalid)).await;
            assert!(status.is_some(), "{name}, seed {seed}: no answer to {invalid:?}");
        }
        other.publish(publish("other", "x")).await.unwrap();
    });
}

/// Returns a copy of `valid` with a few bytes changed, removed or inserted, depending on `seed`.
fn corrupt(valid: &[u8], seed: u64) -> Vec<u8> {
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut below = |bound: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % bound.max(1) as u64) as usize
    };
    let mut invalid = valid.to_vec();
    for _ in 0..=below(4) {
        let at = below(invalid.len());
        match below(3) {
            0 if !invalid.is_empty() => invalid[at] = below(256) as u8,
            1 if !invalid.is_empty() => drop(invalid.remove(at)),
            _ => invalid.insert(at, below(256) as u8),
        }
    }
    invalid
}

#[test]
fn unresponsive_grpc_client_is_disconnected() {
    run(async {
        let (_node, server) = serve_grpc_with(|config| config.limits.grpc.keep_alive_ms = 200);
        let mut other = connect(&server).await;
        let address = grpc_address(&server);
        let disconnected = tokio::task::spawn_blocking(move || {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.write_all(&[PREFACE, SETTINGS].concat()).unwrap();
            let mut received = Vec::new();
            // A connection that is reset counts as closed. A connection that is still open when reading times out does
            // not.
            match stream.read_to_end(&mut received) {
                Ok(_) => true,
                Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
            }
        });
        assert!(disconnected.await.unwrap(), "the client was never cut off");
        other.publish(publish("t", "x")).await.unwrap();
    });
}

#[test]
fn cancelled_grpc_calls_leak_no_memory_and_delay_no_client() {
    run(async {
        let (node, server) = serve_grpc();
        let mut other = connect(&server).await;
        let before = node.budget().used();
        for _ in 0..5 {
            let mut client = connect_h2(&server, |_| ()).await;
            for _ in 0..2_000 {
                // The node may already have closed this connection.
                let Ok(ready) = client.clone().ready().await else { break };
                client = ready;
                let Ok((_, mut sending)) = client.send_request(new_request("PublishStream"), false) else {
                    break;
                };
                sending.send_reset(Reason::CANCEL);
            }
            other.publish(publish("t", "x")).await.unwrap();
        }
        // Waits until the memory for the calls is free again.
        until(async || node.budget().used() <= before + (1 << 20)).await;
    });
}

#[test]
fn call_over_the_stream_limit_delays_no_other_client() {
    run(async {
        let (_node, server) = serve_grpc_with(|config| config.limits.grpc.streams_max = 2);
        let (mut greedy, mut other) = (connect(&server).await, connect(&server).await);
        let (first, _) = start_subscription(&mut greedy, subscribe(&["t"], At::Latest(true))).await.unwrap();
        let (_second, _) =
            start_subscription(&mut greedy, subscribe(&["t"], At::Latest(true))).await.unwrap();
        let waiting = tokio::spawn(async move { greedy.publish(publish("t", "late")).await });
        // One thread serves both clients. While the call of `greedy` waits, the thread must still serve the calls of
        // `other`.
        for _ in 0..100 {
            other.publish(publish("t", "x")).await.unwrap();
        }
        assert!(!waiting.is_finished(), "a third call was accepted");
        drop(first);
        waiting.await.unwrap().unwrap();
    });
}

#[test]
fn subscriber_with_a_zero_window_delays_no_other_subscriber() {
    run(async {
        let (node, server) = serve_grpc();
        let mut other = connect(&server).await;
        let (mut stream, _) =
            start_subscription(&mut other, subscribe(&["t"], At::Latest(true))).await.unwrap();
        let mut client = connect_h2(&server, |builder| {
            builder.initial_window_size(0);
        })
        .await;
        let (response, mut sending) = client.send_request(new_request("Subscribe"), false).unwrap();
        let request = subscribe(&["t"], At::Earliest(true)).encode_to_vec();
        sending.send_data(grpc_frame(0, &request), true).unwrap();
        let _response = response.await.unwrap();
        let before = node.budget().used();
        for _ in 0..200 {
            other.publish(publish("t", vec![7; 10_000])).await.unwrap();
        }
        assert_eq!(records(&mut stream, 200).await.len(), 200);
        // The memory may contain only the topic's log and at most two batches of the stream.
        assert!(node.budget().used() < before + (8 << 20), "{}", node.budget().used() - before);
    });
}
