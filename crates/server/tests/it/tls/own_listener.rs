//! Tests Dunlin's own client over TLS, with a node that it trusts and with nodes that it must not trust.

use std::io::{Read, Write};
use std::net::TcpStream;

use dunlin::topic::{Event, Publish, Retention, Start, Subscribe, SubscribeOptions, TopicConfig};
use dunlin_client::tls::TlsOptions;
use dunlin_client::{Client, ClientOptions};
use dunlin_server::Protocol;
use dunlin_wait::{Deadline, PATIENCE, until};
use rcgen::{DnType, SanType};

use super::authority::Authority;
use super::{at, connect, patient_options, refusal_text, serve_tls, serve_tls_with};
use crate::serve_with;

fn earliest() -> SubscribeOptions {
    SubscribeOptions { start: Start::Earliest, ..SubscribeOptions::default() }
}

#[test]
fn records_of_every_size_pass_over_tls() {
    let authority = Authority::new();
    let (_node, server) = serve_tls(&authority, false);
    let client = connect(&server, authority.client_options()).unwrap();
    let mut subscriber = client.subscribe("sizes", earliest()).unwrap();
    let mut publisher = client.publisher("sizes").unwrap();
    let sizes = [0, 1, 100, 16_383, 16_384, 70_000, 1 << 20, 3 << 20, 5];
    for (number, bytes) in sizes.into_iter().enumerate() {
        publisher.publish(vec![number as u8; bytes].as_slice()).unwrap();
    }
    for (number, bytes) in sizes.into_iter().enumerate() {
        match subscriber.next_timeout(PATIENCE).unwrap() {
            Some(Event::Record(record)) => assert!(record.payload() == vec![number as u8; bytes], "{bytes}"),
            other => panic!("{other:?}"),
        }
    }
}

/// The subscriber begins to read only when all buffers are full. No bytes may then be left unread in the TLS layer.
#[test]
fn resumed_tls_subscriber_receives_every_record() {
    const RECORDS: u32 = 60_000;
    let authority = Authority::new();
    let (node, server) = serve_tls(&authority, false);
    let retention = Retention { bytes: 64 << 20, ..Retention::default() };
    node.create_topic("many", TopicConfig { retention, ..TopicConfig::default() }, false).unwrap();
    let client = connect(&server, authority.client_options()).unwrap();
    let mut subscriber = client.subscribe("many", earliest()).unwrap();
    let mut publisher = node.publisher("many").unwrap();
    for number in 0..RECORDS {
        publisher.publish([&number.to_le_bytes()[..], &[7; 200]].concat().as_slice()).unwrap();
    }
    for number in 0..RECORDS {
        match subscriber.next_timeout(PATIENCE).unwrap() {
            Some(Event::Record(record)) => assert_eq!(record.payload()[..4], number.to_le_bytes()),
            other => panic!("{other:?} instead of {number}"),
        }
    }
}

#[test]
fn busy_polling_server_serves_tls_clients() {
    let authority = Authority::new();
    let (_node, server) = serve_tls_with(&authority, false, |config| config.spin = true);
    let client = connect(&server, authority.client_options()).unwrap();
    let mut subscriber = client.subscribe("s", Default::default()).unwrap();
    let mut publisher = client.publisher("s").unwrap();
    for number in 0..300u64 {
        publisher.publish(&number.to_le_bytes()).unwrap();
        match subscriber.next_timeout(PATIENCE).unwrap() {
            Some(Event::Record(record)) => assert_eq!(record.payload(), number.to_le_bytes()),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn async_client_reads_over_tls() {
    let authority = Authority::new();
    let (node, server) = serve_tls(&authority, false);
    let client = connect(&server, authority.client_options()).unwrap();
    let mut subscriber = client.subscribe("t", Default::default()).unwrap();
    let mut publisher = node.publisher("t").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for number in 0..300u64 {
            publisher.publish(&number.to_le_bytes()).unwrap();
            let next = std::future::poll_fn(|cx| subscriber.poll_ready(cx));
            tokio::time::timeout(PATIENCE, next).await.expect("it hangs").unwrap();
            match subscriber.try_next().unwrap() {
                Some(Event::Record(record)) => assert_eq!(record.payload(), number.to_le_bytes()),
                other => panic!("{other:?}"),
            }
        }
    });
}

#[test]
fn tls_client_continues_after_a_node_restart() {
    let authority = Authority::new();
    let (node, server) = serve_tls(&authority, false);
    let address = server.tcp_addresses()[0];
    let client = connect(&server, authority.client_options()).unwrap();
    let mut subscriber = client.subscribe("t", earliest()).unwrap();
    node.publisher("t").unwrap().publish("before").unwrap();
    assert!(matches!(subscriber.next_timeout(PATIENCE).unwrap(), Some(Event::Record(_))));
    server.stop();
    let config = dunlin_server::ServerConfig {
        tcp: vec![address],
        tls: Some(authority.tls(false)),
        ..Default::default()
    };
    let _server = dunlin_server::Server::start(node.clone(), config).unwrap();
    node.publisher("t").unwrap().publish("after").unwrap();
    let deadline = Deadline::new();
    loop {
        match subscriber.next_timeout(PATIENCE) {
            Ok(Some(Event::Record(record))) => break assert_eq!(record.payload(), b"after"),
            other => deadline.check(format!("a record instead of {other:?}")),
        }
    }
}

#[test]
fn certificate_of_an_unknown_authority_is_not_trusted() {
    let (mine, theirs) = (Authority::new(), Authority::new());
    let (_node, server) = serve_tls(&theirs, false);
    let error = refusal_text(connect(&server, mine.client_options()));
    assert!(error.contains("signed by an authority that is not trusted here"), "{error}");
    // Without options, the client trusts the authorities of the operating system. None of them has signed the node's
    // certificate.
    let error = refusal_text(connect(&server, TlsOptions::default()));
    assert!(error.contains("authority"), "{error}");
}

#[test]
fn certificate_for_another_name_is_not_trusted() {
    let authority = Authority::new();
    authority.write_certificate("server", &authority.sign("elsewhere.example"));
    let (_node, server) = serve_tls(&authority, false);
    let error = refusal_text(connect(&server, authority.client_options()));
    assert!(error.contains("elsewhere.example") && error.contains("not for localhost"), "{error}");
}

#[test]
fn expired_certificate_is_not_trusted() {
    let authority = Authority::new();
    authority.write_certificate("server", &authority.sign_expired("localhost"));
    let (_node, server) = serve_tls(&authority, false);
    let error = refusal_text(connect(&server, authority.client_options()));
    assert!(error.contains("certificate has expired"), "{error}");
}

#[test]
fn mutual_tls_admits_only_certificates_of_the_authority() {
    let (authority, other) = (Authority::new(), Authority::new());
    let (_node, server) = serve_tls(&authority, true);
    let client = connect(&server, authority.with_certificate(&authority.sign("worker-7"))).unwrap();
    client.publisher("t").unwrap().publish("hello").unwrap();
    let error = refusal_text(connect(&server, authority.client_options()));
    assert!(error.contains("requires a client certificate"), "{error}");
    let error = refusal_text(connect(&server, authority.with_certificate(&other.sign("worker-7"))));
    assert!(error.contains("does not accept the client's certificate"), "{error}");
    let error =
        refusal_text(connect(&server, authority.with_certificate(&authority.sign_expired("worker-7"))));
    assert!(error.contains("the client's certificate has expired"), "{error}");
}

#[test]
fn invalid_tls_options_are_refused_before_connecting() {
    let authority = Authority::new();
    let connect = |tls| {
        refusal_text(Client::connect("tls://localhost:1", ClientOptions { tls, ..ClientOptions::default() }))
    };
    let mut tls = authority.client_options();
    tls.ca = Some(b"nonsense".to_vec());
    assert!(connect(tls.clone()).contains("the CA file: the file has no certificate"));
    tls = authority.with_certificate(&authority.sign("a"));
    tls.key = Some(authority.sign("b").key.into_bytes());
    assert!(connect(tls.clone()).contains("the key does not belong to the certificate"));
    tls.key = None;
    assert!(connect(tls).contains("belong together"));
}

#[test]
fn client_without_tls_gets_tls_required() {
    let authority = Authority::new();
    let (_node, server) = serve_tls(&authority, false);
    let options = patient_options(TlsOptions::default());
    let error = refusal_text(Client::connect(&format!("dunlin://{}", at(&server, Protocol::Tcp)), options));
    assert!(error.contains("TLS_REQUIRED"), "{error}");
}

#[test]
fn tls_client_learns_that_the_node_has_no_tls() {
    let authority = Authority::new();
    let (_node, server) = serve_with(|_| ());
    let error = refusal_text(connect(&server, authority.client_options()));
    assert!(error.contains("does not use TLS: use dunlin:// instead of tls://"), "{error}");
}

#[test]
fn client_recognizes_another_protocol_behind_tls() {
    let authority = Authority::new();
    let (_node, server) = serve_tls(&authority, false);
    let options = patient_options(authority.client_options());
    let error = refusal_text(Client::connect(&format!("tls://{}", at(&server, Protocol::Http)), options));
    assert!(error.contains("not Dunlin's own protocol"), "{error}");
}

/// A handshake that arrives slowly must be ended in time, and must not affect other clients.
#[test]
fn slow_handshakes_time_out_and_do_not_block_others() {
    let authority = Authority::new();
    let (_node, server) = serve_tls_with(&authority, false, |config| config.limits.handshake_ms_max = 500);
    let mut dripping: Vec<_> =
        (0..20).map(|_| TcpStream::connect(server.tcp_addresses()[0]).unwrap()).collect();
    // Sends the first bytes of a ClientHello, which announces 512 bytes.
    dripping.iter_mut().for_each(|socket| socket.write_all(&[0x16, 3, 1, 2, 0, 1, 0]).unwrap());
    // A client of normal speed must still connect, despite the short time limit.
    let patient = patient_options(authority.client_options());
    let url = format!("tls://{}", at(&server, Protocol::Tcp));
    let client = (0..100).find_map(|_| Client::connect(&url, patient.clone()).ok()).expect("it comes in");
    client.publisher("t").unwrap().publish("hello").unwrap();
    for socket in &mut dripping {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        // Continues to send single bytes until the node disconnects the client.
        while socket.write_all(&[1]).is_ok() {
            match socket.read(&mut [0; 64]) {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
        }
    }
}

#[test]
fn pending_handshakes_count_as_sessions() {
    let authority = Authority::new();
    let (_node, server) = serve_tls_with(&authority, false, |config| {
        config.limits.sessions_max = 1;
        config.limits.handshake_ms_max = 60_000;
    });
    let idle = TcpStream::connect(server.tcp_addresses()[0]).unwrap();
    until("it is a session", || server.sessions() > 0);
    let error = refusal_text(connect(&server, authority.client_options()));
    assert!(error.contains("may have reached its limit of connections"), "{error}");
    drop(idle);
    until("it is a session no more", || server.sessions() == 0);
    connect(&server, authority.client_options()).unwrap();
}

#[test]
fn tls_handshakes_over_the_limit_wait_until_another_ends() {
    let authority = Authority::new();
    let (_node, server) = serve_tls_with(&authority, false, |config| {
        config.limits.handshakes_max = 1;
        config.limits.handshake_ms_max = 60_000;
    });
    let mut stalled = TcpStream::connect(server.tcp_addresses()[0]).unwrap();
    stalled.write_all(&[0x16, 3, 1, 2, 0, 1, 0]).unwrap();
    until("it is a session", || server.sessions() > 0);
    // A connection without any byte must not take one of the permits for handshakes.
    let _silent = TcpStream::connect(server.tcp_addresses()[0]).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| connect(&server, authority.client_options()));
        until("it waits for its turn", || server.sessions() == 3);
        // The server's only thread must still accept connections.
        let _more: Vec<_> = (4..24)
            .map(|sessions| {
                let more = TcpStream::connect(server.tcp_addresses()[0]).unwrap();
                until("one more is a session", || server.sessions() == sessions);
                more
            })
            .collect();
        assert!(!waiting.is_finished(), "it waits");
        drop(stalled);
        waiting.join().unwrap().unwrap();
    });
}

#[test]
fn client_is_logged_in_as_the_user_of_its_certificate() {
    let authority = Authority::new();
    let file = authority.path("users.toml");
    let users = "[users.worker]\ncertificates = ['CN=worker-7']\npublish = ['jobs']\n\
                 [users.other]\ncertificates = ['other.example']\npublish = ['other']\n";
    authority.write("users.toml", users);
    let (_node, server) = serve_tls_with(&authority, true, |config| config.users_file = Some(file));
    let worker = authority.sign("worker-7");
    let client = connect(&server, authority.with_certificate(&worker)).unwrap();
    client.publisher("jobs").unwrap().publish("by the subject").unwrap();
    assert!(client.publisher("other").is_err(), "it is the worker's permissions that hold");
    let other = connect(&server, authority.with_certificate(&authority.sign("other.example"))).unwrap();
    other.publisher("other").unwrap().publish("by a name").unwrap();
    let error = refusal_text(connect(&server, authority.with_certificate(&authority.sign("stranger"))));
    assert!(error.contains("the certificate belongs to no user"), "{error}");
    // If a client sends credentials and a certificate, the credentials count.
    let credentials = dunlin_client::Credentials::token("dunlin_guess");
    let options = ClientOptions { credentials, ..patient_options(authority.with_certificate(&worker)) };
    let error = refusal_text(Client::connect(&format!("tls://{}", at(&server, Protocol::Tcp)), options));
    assert!(error.contains("wrong credentials"), "{error}");
    authority.write("users.toml", &users.replace("worker-7", "worker-8"));
    server.reload_users().unwrap();
    until("its certificate is no longer the user's", || client.publisher("jobs").is_err());
}

#[test]
fn certificate_that_imitates_another_subject_is_refused() {
    let authority = Authority::new();
    let file = authority.path("users.toml");
    let subject = "CN=ana, O=Ex";
    authority
        .write("users.toml", &format!("[users.ana]\ncertificates = ['{subject}']\npublish = ['jobs']\n"));
    let (_node, server) = serve_tls_with(&authority, true, |config| config.users_file = Some(file));
    let ana = authority.sign_with("ana", |params| {
        params.distinguished_name.push(DnType::OrganizationName, "Ex");
    });
    let client = connect(&server, authority.with_certificate(&ana)).unwrap();
    client.publisher("jobs").unwrap().publish("by the subject").unwrap();
    let imitations = [
        authority.sign_with("mallory", |params| {
            params.distinguished_name.push(DnType::CommonName, "ana, O=Ex");
        }),
        authority.sign_with("mallory", |params| {
            params.subject_alt_names.push(SanType::URI(subject.try_into().unwrap()));
        }),
        authority.sign_with("mallory", |params| {
            params.subject_alt_names.push(SanType::Rfc822Name(subject.try_into().unwrap()));
        }),
    ];
    for imitation in imitations {
        let error = refusal_text(connect(&server, authority.with_certificate(&imitation)));
        assert!(error.contains("the certificate belongs to no user"), "{error}");
    }
}

#[test]
fn unfinished_handshake_does_not_delay_the_stop_of_the_server() {
    let authority = Authority::new();
    let (_node, server) = serve_tls_with(&authority, false, |config| {
        config.limits.handshake_ms_max = 600_000;
        config.limits.stop_ms_max = 600_000;
    });
    let mut socket = TcpStream::connect(server.tcp_addresses()[0]).unwrap();
    socket.write_all(&[0x16]).unwrap();
    while server.sessions() == 0 {
        std::thread::yield_now();
    }
    server.stop();
}
