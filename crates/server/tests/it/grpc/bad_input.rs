use std::io::{Read, Write};
use std::net::TcpStream;

use tonic::Code;
use tonic_types::StatusExt as _;

use super::*;

fn open_stream(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(grpc_address(server)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Reads until the node closes the connection, and returns all bytes.
fn read_to_end(mut stream: TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    // If the connection is reset, this counts as its end.
    let _ = stream.read_to_end(&mut all);
    all
}

#[test]
fn http1_request_at_the_grpc_listener_gets_505() {
    let (_node, server) = serve_grpc();
    let mut stream = open_stream(&server);
    stream.write_all(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n").unwrap();
    let response = read_to_end(stream);
    assert!(response.starts_with(b"HTTP/1.1 505 "), "{}", String::from_utf8_lossy(&response));
    let text = String::from_utf8(response).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(
        head.contains(&format!("content-length: {}\r\n", body.len()))
            || head.ends_with(&format!("content-length: {}", body.len())),
        "{head}"
    );
}

#[test]
fn unfinished_http2_preface_ends_the_connection() {
    let (_node, server) = serve_grpc_with(|config| config.limits.handshake_ms_max = 100);
    let mut stream = open_stream(&server);
    stream.write_all(b"PRI * HTT").unwrap();
    assert_eq!(read_to_end(stream), b"");
}

#[test]
fn garbage_ends_only_the_connection_that_sent_it() {
    run(async {
        let (_node, server) = serve_grpc();
        let mut client = connect(&server).await;
        let mut stream = open_stream(&server);
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        stream.write_all(&[0xff; 4_096]).unwrap();
        tokio::task::spawn_blocking(move || read_to_end(stream)).await.unwrap();
        client.publish(publish("t", "x")).await.unwrap();
    });
}

#[test]
fn grpc_message_over_the_limit_is_refused() {
    run(async {
        let (_node, server) = serve_grpc_with(|config| config.limits.grpc.message_bytes_max = 10_000);
        let mut client = connect(&server).await;
        let refused = client.publish(publish("t", vec![0; 20_000])).await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
        client.publish(publish("t", vec![0; 5_000])).await.unwrap();
    });
}

#[test]
fn grpc_message_with_too_many_elements_is_refused() {
    run(async {
        let (_node, server) = serve_grpc_with(|config| config.limits.grpc.message_elements_max = 100);
        let mut client = connect(&server).await;
        let batch = |records| v1::PublishBatchRequest { requests: vec![publish("t", "x"); records] };
        let outcomes = client.publish_batch(batch(100)).await.unwrap().into_inner().outcomes;
        assert_eq!(outcomes.len(), 100);
        let refused = client.publish_batch(batch(101)).await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
        let text = refused.message();
        assert!(text.contains("grpc.message_elements_max") && text.contains("100"), "{text}");
        // The elements of nested messages count towards the limit too.
        let mut with_headers = publish("t", "x");
        let header = v1::Header { name: "h".to_owned(), value: "v".into() };
        with_headers.record.as_mut().unwrap().headers = vec![header; 101];
        let refused = client.publish(with_headers).await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
        client.publish(publish("t", "x")).await.unwrap();
    });
}

#[test]
fn compressed_messages_are_refused() {
    run(async {
        let (_node, server) = serve_grpc();
        let mut client = connect(&server).await;
        let mut request = tonic::Request::new(publish("t", "x"));
        request.metadata_mut().insert("grpc-encoding", "gzip".parse().unwrap());
        assert_eq!(client.publish(request).await.unwrap_err().code(), Code::Unimplemented);
    });
}

#[test]
fn unknown_grpc_call_is_refused_as_unimplemented() {
    run(async {
        let (_node, server) = serve_grpc();
        let mut grpc = tonic::client::Grpc::new(channel(&server).await);
        grpc.ready().await.unwrap();
        for path in ["/dunlin.v1.Dunlin/Fly", "/nobody.Home/Call", "/nonsense"] {
            let codec: tonic_prost::ProstCodec<v1::PublishRequest, v1::PublishResponse> = Default::default();
            let path = path.parse().unwrap();
            let response = grpc.unary(tonic::Request::new(publish("t", "x")), path, codec).await;
            assert_eq!(response.unwrap_err().code(), Code::Unimplemented);
            grpc.ready().await.unwrap();
        }
    });
}

#[test]
fn invalid_protobuf_message_fails_only_its_call() {
    run(async {
        let (_node, server) = serve_grpc();
        let mut grpc = tonic::client::Grpc::new(channel(&server).await);
        grpc.ready().await.unwrap();
        // Field 1 of the request is the subject. These bytes in it are not UTF-8.
        let wrong = v1::Draft { payload: vec![0xff, 0xfe].into(), ..Default::default() };
        let codec: tonic_prost::ProstCodec<v1::Draft, v1::PublishResponse> = Default::default();
        let path = "/dunlin.v1.Dunlin/Publish".parse().unwrap();
        let response = grpc.unary(tonic::Request::new(wrong), path, codec).await;
        assert_eq!(response.unwrap_err().code(), Code::InvalidArgument);
    });
}

#[test]
fn short_invalid_protobuf_is_refused_as_a_protocol_error() {
    run(async {
        let (_node, server) = serve_grpc();
        let mut grpc = tonic::client::Grpc::new(channel(&server).await);
        for path in [
            "/dunlin.v1.Dunlin/Publish",
            "/dunlin.v1.Dunlin/CreateTopic",
            "/dunlin.v1.Dunlin/ListTopics",
            "/dunlin.v1.Dunlin/Subscribe",
            "/dunlin.v1.Dunlin/PublishStream",
            "/dunlin.v1.Dunlin/JoinGroup",
            "/dunlin.v1.Kv/Txn",
            "/dunlin.v1.Kv/Watch",
            "/dunlin.v1.Kv/LeaseKeepAlive",
            "/dunlin.v1.Tasks/Submit",
            "/ratatoskr.MessageBroker/Publish",
            "/ratatoskr.MessageBroker/Subscribe",
            "/grpc.health.v1.Health/Check",
        ] {
            grpc.ready().await.unwrap();
            let codec: tonic_prost::ProstCodec<WrongTypes, v1::PublishResponse> = Default::default();
            let request = tonic::Request::new(WrongTypes { one: 1, two: 2, three: 3 });
            let response = grpc.server_streaming(request, path.parse().unwrap(), codec).await;
            let refused = match response {
                Err(refused) => refused,
                Ok(stream) => stream.into_inner().message().await.unwrap_err(),
            };
            assert_eq!(refused.code(), Code::InvalidArgument, "{path}: {refused}");
            let info = refused.get_details_error_info().expect("the error has an ErrorInfo");
            assert_eq!(info.reason, "PROTOCOL", "{path}");
        }
    });
}

/// A message in which each of the first fields has a type that no request has for the field with this number.
#[derive(Clone, PartialEq, prost::Message)]
struct WrongTypes {
    #[prost(fixed32, tag = "1")]
    one: u32,
    #[prost(fixed32, tag = "2")]
    two: u32,
    #[prost(fixed32, tag = "3")]
    three: u32,
}

#[test]
fn error_of_an_excess_grpc_connection_names_the_limit() {
    run(async {
        let (_node, server) = serve_grpc_with(|config| config.limits.sessions_max = 1);
        let mut first = connect(&server).await;
        first.publish(publish("t", "x")).await.unwrap();
        let mut second = connect(&server).await;
        let refused = second.publish(publish("t", "x")).await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);
        assert!(refused.message().contains("sessions_max"), "{refused}");
        first.publish(publish("t", "x")).await.unwrap();
    });
}

#[test]
fn grpc_call_with_many_subjects_or_large_metadata_is_refused() {
    run(async {
        let (_node, server) = serve_grpc();
        let mut client = connect(&server).await;
        let subjects: Vec<_> = (0..2_000).map(|number| format!("t{number}")).collect();
        let many = v1::SubscribeRequest { subjects, ..Default::default() };
        assert_eq!(client.subscribe(many).await.unwrap_err().code(), Code::ResourceExhausted);
        let mut large = tonic::Request::new(publish("t", "x"));
        large.metadata_mut().insert("large", "x".repeat(100_000).parse().unwrap());
        assert!(client.publish(large).await.is_err());
        client.publish(publish("t", "x")).await.unwrap();
    });
}

#[test]
fn unfinished_grpc_message_ends_its_call() {
    run(async {
        let (_node, server) = serve_grpc_with(|config| config.limits.grpc.message_ms_max = 100);
        let stream = tokio::net::TcpStream::connect(grpc_address(&server)).await.unwrap();
        let (client, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let mut client = client.ready().await.unwrap();
        let request = http::Request::post("http://node/dunlin.v1.Dunlin/PublishStream");
        let request = request.header("content-type", "application/grpc").body(()).unwrap();
        let (response, mut sending) = client.send_request(request, false).unwrap();
        // Sends the header of a message of 16 bytes, but only the first two bytes of the message.
        sending.send_data(bytes::Bytes::from_static(&[0, 0, 0, 0, 16, 1, 2]), false).unwrap();
        let mut body = response.await.unwrap().into_body();
        assert!(body.data().await.is_none(), "only the end follows");
        let trailers = body.trailers().await.unwrap().unwrap();
        assert_eq!(trailers["grpc-status"], "8");
        assert!(trailers["grpc-message"].to_str().unwrap().contains("message_ms_max"), "{trailers:?}");
    });
}
