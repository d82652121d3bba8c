//! Tests NATS, HTTP and gRPC over TLS with raw sockets, with `curl` and with a generated gRPC client.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use dunlin::topic::{Publish, TopicConfig};
use dunlin_client::tls::{authorities, provider};
use dunlin_server::grpc::proto::dunlin as v1;
use dunlin_server::{Protocol, Server};
use dunlin_wait::PATIENCE;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use v1::dunlin_client::DunlinClient;

use super::authority::{Authority, SignedCertificate};
use super::{at, serve_tls, serve_tls_with};

fn socket(server: &Server, protocol: Protocol) -> TcpStream {
    let socket = TcpStream::connect(at(server, protocol)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Does the TLS handshake on the socket as a client.
pub(super) fn connect_tls(
    socket: TcpStream,
    authority: &Authority,
) -> BufReader<StreamOwned<ClientConnection, TcpStream>> {
    let config =
        ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
    let config =
        config.with_root_certificates(authorities(authority.ca().as_bytes()).unwrap()).with_no_client_auth();
    let connection = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
    BufReader::new(StreamOwned::new(connection, socket))
}

pub(super) fn read_line(reader: &mut impl BufRead) -> String {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

#[test]
fn nats_client_upgrades_to_tls_after_an_unencrypted_info() {
    let authority = Authority::new();
    let (node, server) = serve_tls(&authority, false);
    let mut plain = BufReader::new(socket(&server, Protocol::Nats));
    let info = read_line(&mut plain);
    assert!(info.contains("\"tls_required\":true") && info.contains("\"tls_available\":true"), "{info}");
    assert!(!info.contains("tls_verify"), "{info}");
    let mut peer = connect_tls(plain.into_inner(), &authority);
    peer.get_mut().write_all(b"CONNECT {\"verbose\":false}\r\nSUB t.* 1\r\nPING\r\n").unwrap();
    assert_eq!(read_line(&mut peer), "PONG", "no second INFO");
    node.publisher("t.a").unwrap().publish("from inside").unwrap();
    assert_eq!(
        (read_line(&mut peer).as_str(), read_line(&mut peer).as_str()),
        ("MSG t.a 1 11", "from inside")
    );
    peer.get_mut().write_all(b"PUB t.b 2\r\nhi\r\n").unwrap();
    assert_eq!((read_line(&mut peer).as_str(), read_line(&mut peer).as_str()), ("MSG t.b 1 2", "hi"));
}

#[test]
fn nats_info_follows_the_tls_handshake_in_tls_first_mode() {
    let authority = Authority::new();
    let (_node, server) = serve_tls_with(&authority, false, |config| {
        config.tls.iter_mut().for_each(|tls| tls.nats_first = true);
    });
    let mut peer = connect_tls(socket(&server, Protocol::Nats), &authority);
    assert!(read_line(&mut peer).contains("\"tls_required\":true"));
    peer.get_mut().write_all(b"CONNECT {}\r\nPING\r\n").unwrap();
    assert_eq!((read_line(&mut peer).as_str(), read_line(&mut peer).as_str()), ("+OK", "PONG"));
}

#[test]
fn nats_client_without_tls_is_refused_with_the_reason() {
    let authority = Authority::new();
    let (_node, server) = serve_tls(&authority, true);
    let mut plain = BufReader::new(socket(&server, Protocol::Nats));
    assert!(read_line(&mut plain).contains("\"tls_verify\":true"), "a certificate is asked for");
    plain.get_mut().write_all(b"CONNECT {}\r\nPING\r\n").unwrap();
    assert_eq!(read_line(&mut plain), "-ERR 'Secure Connection - TLS Required'");
    assert_eq!(read_line(&mut plain), "", "it is parted");
}

#[test]
fn nats_client_over_the_session_limit_is_refused_before_tls() {
    let authority = Authority::new();
    let (_node, server) = serve_tls_with(&authority, false, |config| config.limits.sessions_max = 1);
    let mut first = BufReader::new(socket(&server, Protocol::Nats));
    assert!(read_line(&mut first).starts_with("INFO "));
    let mut second = BufReader::new(socket(&server, Protocol::Nats));
    assert!(read_line(&mut second).starts_with("INFO "));
    assert_eq!(read_line(&mut second), "-ERR 'maximum connections exceeded'");
}

#[test]
fn health_probe_over_tls_is_served_at_the_session_limit() {
    let authority = Authority::new();
    let (_node, server) = serve_tls_with(&authority, false, |config| config.limits.sessions_max = 1);
    let mut first = BufReader::new(socket(&server, Protocol::Nats));
    assert!(read_line(&mut first).starts_with("INFO "));
    let (ca, url) = (authority.path("ca.pem"), format!("https://{}", at(&server, Protocol::Http)));
    let request = |path: &str| curl(&["--cacert", ca.to_str().unwrap(), &format!("{url}{path}")]);
    let alive = request("/healthz");
    assert!(text(&alive.stdout).contains("\"alive\":true"), "{alive:?}");
    let refused = request("/v1/topics");
    assert!(text(&refused.stdout).contains("sessions_max"), "{refused:?}");
}

pub(super) fn curl(arguments: &[&str]) -> Output {
    let curl = Command::new("curl").args(["-sS", "--max-time", "120"]).args(arguments).output();
    curl.expect("curl is there")
}

pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn curl_publishes_and_reads_over_tls() {
    let authority = Authority::new();
    let (_node, server) = serve_tls(&authority, false);
    let (ca, url) = (authority.path("ca.pem"), format!("https://{}", at(&server, Protocol::Http)));
    let ca = ca.to_str().unwrap();
    let large = "x".repeat(100_000);
    let published = curl(&["--cacert", ca, "--data-binary", &large, &format!("{url}/v1/topics/t")]);
    assert!(published.status.success(), "{published:?}");
    let events = format!("{url}/v1/topics/t/events?from=earliest");
    let mut following = Command::new("curl");
    following.args(["-sS", "-N", "--max-time", "120", "--cacert", ca, &events]).stdout(Stdio::piped());
    let mut following = following.spawn().expect("curl is there");
    let lines = BufReader::new(following.stdout.take().unwrap()).lines().map(Result::unwrap);
    let data = lines.into_iter().find_map(|line| line.strip_prefix("data: ").map(str::len));
    // The stream of events does not end by itself, so `curl` is killed.
    following.kill().and_then(|()| following.wait()).unwrap();
    assert_eq!(data, Some(large.len()));
    let distrusted = curl(&[&format!("{url}/healthz")]);
    assert!(
        !distrusted.status.success() && text(&distrusted.stderr).contains("certificate"),
        "{distrusted:?}"
    );
}

/// Sends and receives one text frame over `wss://`, as a browser does.
#[test]
fn websocket_publishes_over_tls() {
    let authority = Authority::new();
    let (_node, server) = serve_tls(&authority, false);
    let mut peer = connect_tls(socket(&server, Protocol::Http), &authority);
    let handshake = "GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: dunlin.v1.json\r\n\r\n";
    peer.get_mut().write_all(handshake.as_bytes()).unwrap();
    assert_eq!(read_line(&mut peer), "HTTP/1.1 101 Switching Protocols");
    while !read_line(&mut peer).is_empty() {}
    let exchange = |peer: &mut BufReader<StreamOwned<ClientConnection, TcpStream>>, text: &str| {
        let mut frame = vec![0x81, 0x80 | u8::try_from(text.len()).unwrap(), 0, 0, 0, 0];
        frame.extend(text.as_bytes());
        peer.get_mut().write_all(&frame).unwrap();
        let mut head = [0; 2];
        peer.read_exact(&mut head).unwrap();
        let long = if head[1] == 126 { 2 } else { 0 };
        let mut length = [0; 2];
        peer.read_exact(&mut length[..long]).unwrap();
        let length = if long > 0 { u16::from_be_bytes(length).into() } else { usize::from(head[1]) };
        let mut reply = vec![0; length];
        peer.read_exact(&mut reply).unwrap();
        serde_json::from_slice::<serde_json::Value>(&reply).unwrap()
    };
    assert_eq!(exchange(&mut peer, r#"{"op":"hello"}"#)["op"], "welcome");
    let reply = exchange(&mut peer, r#"{"op":"publish","request":5,"subject":"t","payload":"by tls"}"#);
    assert_eq!((&reply["op"], &reply["request"]), (&"published".into(), &5.into()), "{reply}");
}

#[test]
fn http_request_without_tls_gets_the_error_tls_required() {
    let authority = Authority::new();
    let (_node, server) = serve_tls(&authority, false);
    let output = curl(&["-i", &format!("http://{}/healthz", at(&server, Protocol::Http))]);
    let head = text(&output.stdout);
    assert!(head.starts_with("HTTP/1.1 400 ") && head.contains("TLS_REQUIRED"), "{output:?}");
    assert!(head.contains("https:// instead of http://"), "{head}");
    assert!(!head.contains("retry-after"), "a retry would be refused again: {head}");
}

#[test]
fn http_clients_need_a_certificate_under_mutual_tls() {
    let authority = Authority::new();
    authority.write_certificate("me", &authority.sign("me"));
    let (_node, server) = serve_tls(&authority, true);
    let (ca, url) = (authority.path("ca.pem"), format!("https://{}/healthz", at(&server, Protocol::Http)));
    let (ca, cert, key) = (ca.to_str().unwrap(), authority.path("me.pem"), authority.path("me-key.pem"));
    let (cert, key) = (cert.to_str().unwrap(), key.to_str().unwrap());
    let let_in = curl(&["--cacert", ca, "--cert", cert, "--key", key, &url]);
    assert!(let_in.status.success() && text(&let_in.stdout).contains("alive"), "{let_in:?}");
    let refused = curl(&["--cacert", ca, &url]);
    assert!(
        !refused.status.success() && text(&refused.stderr).contains("certificate required"),
        "{refused:?}"
    );
}

async fn channel(server: &Server, authority: &Authority, shown: Option<&SignedCertificate>) -> Channel {
    let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authority.ca()));
    if let Some(SignedCertificate { cert, key }) = shown {
        tls = tls.identity(Identity::from_pem(cert, key));
    }
    let endpoint = Endpoint::from_shared(format!("https://{}", at(server, Protocol::Grpc))).unwrap();
    endpoint.tls_config(tls).unwrap().connect().await.unwrap()
}

fn publish(payload: Vec<u8>) -> v1::PublishRequest {
    let record = v1::Draft { payload: payload.into(), ..Default::default() };
    v1::PublishRequest { subject: "t".to_owned(), record: Some(record), ..Default::default() }
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, test).await.expect("it hangs") });
}

#[test]
fn grpc_clients_publish_and_subscribe_over_tls() {
    let authority = Authority::new();
    let (node, server) = serve_tls(&authority, false);
    node.create_topic("t", TopicConfig::default(), false).unwrap();
    run(async {
        let mut client = DunlinClient::new(channel(&server, &authority, None).await);
        client = client.max_decoding_message_size(64 << 20).max_encoding_message_size(64 << 20);
        let request = v1::SubscribeRequest {
            subjects: vec!["t".to_owned()],
            start: Some(v1::Start { at: Some(v1::start::At::Earliest(true)) }),
            ..Default::default()
        };
        for bytes in [1, 3 << 20] {
            client.publish(publish(vec![7; bytes])).await.unwrap();
        }
        let mut stream = client.subscribe(request).await.unwrap().into_inner();
        let mut sizes = Vec::new();
        while sizes.len() < 2 {
            let response = stream.message().await.unwrap().unwrap();
            if let Some(v1::subscribe_response::Event::Records(records)) = response.event {
                sizes.extend(records.records.iter().map(|record| record.payload.len()));
            }
        }
        assert_eq!(sizes, [1, 3 << 20]);
    });
}

#[test]
fn grpc_clients_need_a_certificate_under_mutual_tls() {
    let authority = Authority::new();
    let (_node, server) = serve_tls(&authority, true);
    run(async {
        let me = authority.sign("me");
        let mut client = DunlinClient::new(channel(&server, &authority, Some(&me)).await);
        client.publish(publish(vec![1])).await.unwrap();
        // With TLS 1.3, a client is connected before the node has noticed that the client's certificate is missing.
        // Therefore the call fails, not the connection.
        let mut stranger = DunlinClient::new(channel(&server, &authority, None).await);
        assert!(stranger.publish(publish(vec![1])).await.is_err());
    });
}

#[test]
fn certificate_identifies_a_user_over_http_and_grpc() {
    let authority = Authority::new();
    authority.write("users.toml", "[users.me]\ncertificates = ['CN=me']\npublish = ['t']\n");
    let file = authority.path("users.toml");
    let (_node, server) = serve_tls_with(&authority, true, |config| config.users_file = Some(file));
    let (me, stranger) = (authority.sign("me"), authority.sign("stranger"));
    authority.write_certificate("me", &me);
    let path = |name: &str| authority.path(name).to_str().unwrap().to_owned();
    let (ca, cert, key) = (path("ca.pem"), path("me.pem"), path("me-key.pem"));
    let status = |topic: &str| {
        let url = format!("https://{}/v1/topics/{topic}", at(&server, Protocol::Http));
        let shown = ["--cacert", &ca, "--cert", &cert, "--key", &key, "--data", "x"];
        let output = curl(&[&shown[..], &["-o", "/dev/null", "-w", "%{http_code}", &url]].concat());
        text(&output.stdout)
    };
    assert_eq!((status("t").as_str(), status("other").as_str()), ("200", "403"));
    run(async {
        let mut client = DunlinClient::new(channel(&server, &authority, Some(&me)).await);
        client.publish(publish(vec![1])).await.unwrap();
        let mut other = DunlinClient::new(channel(&server, &authority, Some(&stranger)).await);
        let refused = other.publish(publish(vec![1])).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::Unauthenticated, "{refused:?}");
    });
}

#[test]
fn grpc_client_without_tls_gets_goaway_with_the_reason() {
    let authority = Authority::new();
    let (_node, server) = serve_tls(&authority, false);
    let mut plain = socket(&server, Protocol::Grpc);
    plain.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    let mut bytes = Vec::new();
    plain.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes[..9], [0, 0, 0, 4, 0, 0, 0, 0, 0], "SETTINGS first");
    assert_eq!((bytes[12], bytes[25]), (7, 12), "GOAWAY with INADEQUATE_SECURITY");
    assert!(text(&bytes[26..]).contains("TLS_REQUIRED: Connect with TLS"), "{}", text(&bytes));
}

#[test]
fn http1_request_over_tls_at_the_grpc_listener_gets_505() {
    let authority = Authority::new();
    let (_node, server) = serve_tls(&authority, false);
    let mut peer = connect_tls(socket(&server, Protocol::Grpc), &authority);
    peer.get_mut().write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    assert!(read_line(&mut peer).starts_with("HTTP/1.1 505 "));
}
