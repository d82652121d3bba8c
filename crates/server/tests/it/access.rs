//! Tests authentication and permissions over all protocols.

mod entering;
mod grpc;
mod keys;
mod limits;
mod memory;
mod permissions;
mod producers;
mod reloading;
mod revoked;
mod table;
mod tasks;
mod worlds;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::LazyLock;

use dunlin::topic::{Event, Notice, Subscribe, SubscribeError};
use dunlin::{Config, Node};
use dunlin_client::{Client, ClientOptions, ConnectError, Credentials, DisconnectReason, Subscriber};
use dunlin_server::access::{hash_password, new_token};
use dunlin_server::{Protocol, Server, ServerConfig};
use dunlin_wait::{Deadline, PATIENCE};
use tonic::Request;
use tonic::metadata::MetadataValue;

use crate::clients::patient_options;
use crate::http::peer::{HttpResponse, Peer as HttpPeer};
use crate::nats_peer::NatsPeer;
use crate::serve_node;

const PASSWORD: &str = "correct horse";

/// The hash of the password that all users in the tests have.
static HASH: LazyLock<String> = LazyLock::new(|| hash_password(PASSWORD.as_bytes()).unwrap());
/// A token and its hash.
static TOKEN: LazyLock<(String, String)> = LazyLock::new(|| new_token().unwrap());

/// A running node that has a users file.
pub struct Guarded {
    node: Node,
    server: Server,
    file: PathBuf,
    _dir: tempfile::TempDir,
}

impl Guarded {
    fn new(users: &str) -> Guarded {
        Guarded::with(users, |_| ())
    }

    /// Starts a node with the users file `users`, in which `HASH` and `DIGEST` stand for the password's hash and the
    /// token's hash.
    fn with(users: &str, change: impl FnOnce(&mut ServerConfig)) -> Guarded {
        Guarded::with_node(Node::start(Config::default()).unwrap(), users, change)
    }

    pub fn with_node(node: Node, users: &str, change: impl FnOnce(&mut ServerConfig)) -> Guarded {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("users.toml");
        std::fs::write(&file, filled(users)).unwrap();
        let any: SocketAddr = ([127, 0, 0, 1], 0).into();
        let server = serve_node(&node, |config| {
            (config.nats, config.http, config.grpc) = (vec![any], vec![any], vec![any]);
            config.users_file = Some(file.clone());
            change(config);
        });
        Guarded { node, server, file, _dir: dir }
    }

    /// Replaces the users file, and lets the server apply it.
    pub fn rewrite(&self, users: &str) {
        std::fs::write(&self.file, filled(users)).unwrap();
        self.server.reload_users().unwrap();
    }

    fn address(&self, protocol: Protocol) -> SocketAddr {
        self.server.addresses().iter().find(|(other, _)| *other == protocol).unwrap().1
    }

    fn connect(&self, credentials: Credentials) -> Result<Client, ConnectError> {
        let url = format!("dunlin://{}", self.address(Protocol::Tcp));
        Client::connect(&url, ClientOptions { credentials, ..patient_options() })
    }

    pub fn by_password(&self, user: &str) -> Client {
        self.connect(Credentials::password(user, PASSWORD.as_bytes())).unwrap()
    }

    fn http(&self, method: &str, path: &str, authorization: &str, body: &[u8]) -> HttpResponse {
        let mut peer = HttpPeer::connect(self.address(Protocol::Http));
        let headers = [("authorization", authorization)];
        let headers = if authorization.is_empty() { &[][..] } else { &headers[..] };
        peer.request(method, path, headers, body)
    }

    /// Connects a NATS client, and sends CONNECT with these additional JSON entries.
    fn nats(&self, credentials: &str) -> NatsPeer {
        let mut peer = NatsPeer::new(&self.server);
        let quiet = "\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true";
        peer.send_line(&format!("CONNECT {{{quiet}{credentials}}}"));
        peer
    }

    /// Connects a NATS client that logs in as `user` with the password.
    fn nats_by_password(&self, user: &str) -> NatsPeer {
        let mut peer = self.nats(&format!(",\"user\":\"{user}\",\"pass\":\"{PASSWORD}\""));
        peer.ping();
        peer
    }

    /// Reads `/metrics` as this user, and returns the value of the metric whose line begins with `name`.
    fn metric(&self, user: &str, name: &str) -> f64 {
        let response = self.http("GET", "/metrics", &basic(user, PASSWORD), b"");
        assert_eq!(response.status, 200, "{response:?}");
        let text = String::from_utf8(response.body).unwrap();
        let line = text.lines().find(|line| line.starts_with(name));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).rsplit(' ').next().unwrap().parse().unwrap()
    }
}

fn filled(users: &str) -> String {
    users.replace("HASH", &HASH).replace("DIGEST", &TOKEN.1)
}

fn basic(user: &str, password: &str) -> String {
    use base64::Engine as _;
    format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}")))
}

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

/// Creates a gRPC request with this `authorization` entry, or without such an entry if the text is empty.
fn authorized<T>(authorization: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    if !authorization.is_empty() {
        request.metadata_mut().insert("authorization", MetadataValue::try_from(authorization).unwrap());
    }
    request
}

/// Creates a gRPC request of this user, who logs in with the password.
fn request_of<T>(user: &str, message: T) -> Request<T> {
    authorized(&basic(user, PASSWORD), message)
}

/// Creates a gRPC request of the user `ana`.
fn as_ana<T>(message: T) -> Request<T> {
    request_of("ana", message)
}

/// Returns the refusal that the client received instead of a connection; panics for any other result.
fn refusal(connected: Result<Client, ConnectError>) -> dunlin_client::RefusedError {
    match connected {
        Err(ConnectError::Disconnected(DisconnectReason::Refused(refused))) => refused,
        other => panic!("{other:?}"),
    }
}

/// Reads records until the payload `last` arrives, and returns all payloads including this one; panics at a gap.
fn read_to(subscriber: &mut Subscriber, last: &str) -> Vec<String> {
    let mut got = Vec::new();
    loop {
        match subscriber.next_timeout(PATIENCE) {
            Ok(Some(Event::Record(record))) => {
                got.push(String::from_utf8(record.payload().to_vec()).unwrap());
                if got.last().is_some_and(|payload| payload == last) {
                    return got;
                }
            }
            Ok(Some(Event::Notice(Notice::Advance { .. }))) => {}
            Ok(None) => panic!("{last} did not come after {got:?}"),
            Ok(Some(Event::Notice(notice))) => panic!("told {notice:?} after {got:?}"),
            Err(error) => panic!("{error} after {got:?}"),
        }
    }
}

/// Reads until the subscription ends with an error, and returns the error.
fn read_subscribe_error(subscriber: &mut Subscriber) -> SubscribeError {
    let deadline = Deadline::new();
    loop {
        deadline.check("the subscription ends");
        if let Err(error) = subscriber.next_timeout(PATIENCE) {
            return error;
        }
    }
}
