//! Tests logins with valid, invalid and missing credentials, and after repeated failures.

use dunlin::wire::ErrorCode;
use dunlin_client::Credentials;
use dunlin_wait::until;

use super::{Guarded, HttpPeer, PASSWORD, PATIENCE, Protocol, TOKEN, basic, bearer, refusal};
use crate::nats_peer::NatsPeer;

const USERS: &str = "[users.ana]\npassword = \"HASH\"\ntokens = [\"DIGEST\"]\npublish = [\">\"]\nsubscribe = [\">\"]\nsurveys = true\n\
                     [users.bob]\npassword = \"HASH\"\n";

#[test]
fn valid_credentials_are_accepted_on_every_listener() {
    let guarded = Guarded::new(USERS);
    let token = TOKEN.0.as_str();
    for credentials in [Credentials::token(token), Credentials::password("ana", PASSWORD.as_bytes())] {
        let client = guarded.connect(credentials).unwrap();
        client.publisher("a").unwrap();
    }
    for authorization in [bearer(token), basic("ana", PASSWORD)] {
        let response = guarded.http("POST", "/v1/topics/a", &authorization, b"x");
        assert_eq!(response.status, 200, "{response:?}");
    }
    for credentials in
        [format!(",\"auth_token\":\"{token}\""), format!(",\"user\":\"ana\",\"pass\":\"{PASSWORD}\"")]
    {
        guarded.nats(&credentials).ping();
    }
    assert_eq!(guarded.metric("ana", "dunlin_logins_total{outcome=\"failed\"}"), 0.0);
    assert!(guarded.metric("ana", "dunlin_logins_total{outcome=\"accepted\"}") >= 6.0);
}

/// The public key of [`NKEY_SEED`] in the format of the users file. The nkeys library computed it.
const NKEY: &str = "UDI6ND5BHG7FC7FCVXTZ33VOQLKMBW535YD3ECYGOVVD7HPS7V6YLNRM";
const NKEY_SEED: &[u8; 32] = b"dunlin's test seed of 32 bytes..";

#[test]
fn nkey_signature_is_valid_only_on_the_connection_of_its_nonce() {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let guarded = Guarded::new(&format!("[users.ana]\nnkeys = [\"{NKEY}\"]\nsubscribe = [\">\"]\n"));
    let nonce_of = |peer: &mut NatsPeer| {
        let info = peer.line();
        let (_, rest) = info.split_once("\"nonce\":\"").unwrap_or_else(|| panic!("no nonce in {info}"));
        rest.split('"').next().unwrap().to_owned()
    };
    let pair = ring::signature::Ed25519KeyPair::from_seed_unchecked(NKEY_SEED).unwrap();
    let connect = |peer: &mut NatsPeer, nonce: &str| {
        let signature = URL_SAFE_NO_PAD.encode(pair.sign(nonce.as_bytes()));
        peer.send_line(&format!("CONNECT {{\"verbose\":false,\"nkey\":\"{NKEY}\",\"sig\":\"{signature}\"}}"));
    };
    let (mut right, mut wrong) = (NatsPeer::raw(&guarded.server), NatsPeer::raw(&guarded.server));
    let (nonce, other) = (nonce_of(&mut right), nonce_of(&mut wrong));
    assert_ne!(nonce, other);
    connect(&mut right, &nonce);
    right.subscribe("a 1");
    connect(&mut wrong, &nonce);
    assert_eq!(wrong.line(), "-ERR 'Authorization Violation'", "the nonce of another connection");
    guarded.rewrite("[users.ana]\npassword = \"HASH\"\nsubscribe = [\">\"]\n");
    assert_eq!(right.line(), "-ERR 'User Authentication Revoked'");
}

#[test]
fn each_protocol_refuses_wrong_credentials_in_its_own_format() {
    let guarded = Guarded::new(USERS);
    for wrong in [
        Credentials::default(),
        Credentials::token("dunlin_guess"),
        Credentials::password("ana", b"guess"),
        Credentials::password("nobody", PASSWORD.as_bytes()),
        Credentials::password("a b", b""),
    ] {
        let refused = refusal(guarded.connect(wrong));
        assert_eq!(refused.code, ErrorCode::Unauthenticated, "{refused}");
    }
    for wrong in [String::new(), bearer("dunlin_guess"), basic("bob", "guess"), "Digest x".to_owned()] {
        for path in ["/v1/topics", "/metrics", "/v1/subscriptions", "/v1/topics/a/events"] {
            let response = guarded.http("GET", path, &wrong, b"");
            // After five failures, the node may refuse the request with 429 without checking the credentials.
            assert!([401, 429].contains(&response.status), "{path} {wrong:?}: {response:?}");
            let challenge = response.headers.iter().any(|(name, _)| name == "www-authenticate");
            assert_eq!(challenge, response.status == 401, "{response:?}");
        }
    }
    for wrong in ["", ",\"auth_token\":\"dunlin_guess\"", ",\"user\":\"carl\",\"pass\":\"guess\""] {
        let mut peer = guarded.nats(wrong);
        let line = peer.line();
        // After twenty failures from this address, the node may refuse the login without checking the credentials.
        let is_throttled = line.starts_with("-ERR 'too many failed logins, try again in ");
        assert!(line == "-ERR 'Authorization Violation'" || is_throttled, "{wrong:?}: {line}");
    }
    let mut peer = crate::nats_peer::NatsPeer::raw(&guarded.server);
    assert!(peer.line().contains("\"auth_required\":true"));
    peer.send_line("SUB a 1");
    assert_eq!(peer.line(), "-ERR 'Authorization Violation'", "nothing goes before CONNECT");
}

#[test]
fn health_probes_and_the_dashboard_need_no_credentials() {
    let guarded = Guarded::new(USERS);
    for path in ["/healthz", "/readyz", "/startupz", "/"] {
        assert_eq!(guarded.http("GET", path, "", b"").status, 200, "{path}");
    }
}

#[test]
fn password_flood_from_one_address_locks_out_no_other_address() {
    let guarded = Guarded::with(USERS, |config| {
        // On a busy machine, verifying all passwords takes a while, so the time limit is long.
        config.limits.handshake_ms_max = 60_000;
        config.limits.access.logins_at_once = 1;
        config.limits.access.logins_waiting_max = 8;
    });
    // The flood comes from 127.0.0.2, so that it has another address than the other clients.
    let mut flood: Vec<_> = (0..16)
        .map(|number| {
            let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
            socket.bind(&std::net::SocketAddr::from(([127, 0, 0, 2], 0)).into()).unwrap();
            socket.connect(&guarded.address(Protocol::Nats).into()).unwrap();
            let mut stream = std::net::TcpStream::from(socket);
            let connect = format!("CONNECT {{\"user\":\"guess{number}\",\"pass\":\"x\"}}\r\n");
            std::io::Write::write_all(&mut stream, connect.as_bytes()).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream
        })
        .collect();
    // The node's first bytes show that it has accepted a connection. Once each connection of the flood has received
    // them, the flood's logins are queued before those of other addresses.
    for stream in &mut flood {
        std::io::Read::read_exact(stream, &mut [0; 4]).unwrap();
    }
    for user in ["ana", "bob"] {
        guarded.nats_by_password(user);
    }
}

#[test]
fn correct_password_is_throttled_after_many_wrong_ones() {
    let guarded = Guarded::new(USERS);
    let ana = || guarded.connect(Credentials::password("ana", PASSWORD.as_bytes()));
    let mut last = None;
    for _ in 0..12 {
        let refused = refusal(guarded.connect(Credentials::password("ana", b"guess")));
        last = Some(refused.code);
        if refused.code == ErrorCode::RateLimit {
            assert!(refused.numbers[0] > 0, "{refused:?}");
            break;
        }
    }
    assert_eq!(last, Some(ErrorCode::RateLimit));
    // As long as the throttle lasts, every attempt with the right password must be refused with `RATE_LIMIT`.
    until("the throttle lets the right password in", || match ana() {
        Ok(_) => true,
        refused => {
            assert_eq!(refusal(refused).code, ErrorCode::RateLimit);
            false
        }
    });
    assert!(guarded.metric("ana", "dunlin_logins_total{outcome=\"throttled\"}") >= 1.0);
    assert!(guarded.metric("ana", "dunlin_logins_total{outcome=\"failed\"}") >= 5.0);
}

#[test]
fn token_login_is_not_throttled_by_failed_password_logins() {
    let guarded = Guarded::new(USERS);
    let is_throttled = (0..40).any(|number| {
        let guess = Credentials::password(&format!("user{number}"), b"guess");
        refusal(guarded.connect(guess)).code == ErrorCode::RateLimit
    });
    assert!(is_throttled, "40 failures of one address");
    guarded.connect(Credentials::token(TOKEN.0.as_str())).unwrap();
}

#[test]
fn throttled_login_gets_a_retry_time_on_every_listener() {
    let guarded = Guarded::new(USERS);
    let is_throttled = (0..40).any(|number| {
        let guess = Credentials::password(&format!("user{number}"), b"guess");
        refusal(guarded.connect(guess)).code == ErrorCode::RateLimit
    });
    assert!(is_throttled, "40 failures of one address");
    let line = guarded.nats(&format!(",\"user\":\"bob\",\"pass\":\"{PASSWORD}\"")).line();
    // The text must differ from nats-server's texts for wrong credentials. After those texts, client libraries do not
    // connect again.
    let seconds = line
        .strip_prefix("-ERR 'too many failed logins, try again in ")
        .and_then(|rest| rest.strip_suffix(" s'"));
    assert!(seconds.is_some_and(|seconds| seconds.parse::<u64>().unwrap() > 0), "{line}");
    let response = guarded.http("GET", "/v1/topics", &basic("bob", PASSWORD), b"");
    assert_eq!((response.status, response.code().as_str()), (429, "RATE_LIMIT"), "{response:?}");
    assert!(
        response.headers.iter().any(|(name, seconds)| name == "retry-after" && seconds != "0"),
        "{response:?}"
    );
    let refused = refusal(guarded.connect(Credentials::password("bob", PASSWORD.as_bytes())));
    assert!(refused.code == ErrorCode::RateLimit && refused.numbers[0] > 0, "{refused:?}");
}

#[test]
fn failed_logins_do_not_block_a_known_user_of_the_same_address() {
    let guarded = Guarded::new(USERS);
    guarded.by_password("ana");
    let is_throttled = (0..40).any(|number| {
        let guess = Credentials::password(&format!("user{number}"), b"guess");
        refusal(guarded.connect(guess)).code == ErrorCode::RateLimit
    });
    assert!(is_throttled, "40 failures of one address");
    guarded.by_password("ana");
    guarded.nats_by_password("ana");
    assert_eq!(guarded.http("GET", "/v1/topics", &basic("ana", PASSWORD), b"").status, 200);
}

#[test]
fn request_with_two_credentials_is_refused() {
    let guarded = Guarded::new(USERS);
    let (password, token) = (basic("ana", PASSWORD), bearer("dunlin_guess"));
    let mut peer = HttpPeer::connect(guarded.address(Protocol::Http));
    let response =
        peer.request("GET", "/v1/topics", &[("authorization", &password), ("authorization", &token)], b"");
    assert_eq!(response.status, 401, "{response:?}");
    assert!(String::from_utf8_lossy(&response.body).contains("more than one"), "{response:?}");
}

#[test]
fn login_that_names_another_tenant_is_refused() {
    let guarded = Guarded::new(USERS);
    let url = format!("dunlin://{}", guarded.address(dunlin_server::Protocol::Tcp));
    let options = dunlin_client::ClientOptions {
        tenant: "acme".to_owned(),
        credentials: Credentials::token(TOKEN.0.as_str()),
        ..Default::default()
    };
    let refused = refusal(dunlin_client::Client::connect(&url, options));
    assert_eq!(refused.code, ErrorCode::TenantUnknown);
}

#[test]
fn start_error_for_a_broken_users_file_names_the_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("users.toml");
    std::fs::write(&file, "[users.ana]\npublish = [\"a..b\"]\n").unwrap();
    let node = dunlin::Node::start(dunlin::Config::default()).unwrap();
    let config = dunlin_server::ServerConfig { users_file: Some(file.clone()), ..Default::default() };
    let error = dunlin_server::Server::start(node, config).unwrap_err().to_string();
    assert!(error.contains(&format!("{}:2: ", file.display())) && error.contains("empty token"), "{error}");
}
