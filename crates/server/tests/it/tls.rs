//! Tests TLS in every protocol: which clients are accepted, which are refused, and with which errors.

mod authority;
mod files;
mod opening;
mod origin;
mod other_listeners;
mod own_listener;

use dunlin::Node;
use dunlin_client::tls::TlsOptions;
use dunlin_client::{Client, ClientLimits, ClientOptions, ConnectError};
use dunlin_server::{Protocol, Server, ServerConfig};

use crate::serve_with;
use authority::Authority;

/// Starts a node that uses TLS in all protocols. If `mutual` is true, clients need a certificate.
fn serve_tls(authority: &Authority, mutual: bool) -> (Node, Server) {
    serve_tls_with(authority, mutual, |_| ())
}

fn serve_tls_with(
    authority: &Authority,
    mutual: bool,
    change: impl FnOnce(&mut ServerConfig),
) -> (Node, Server) {
    serve_with(|config| {
        let any = ([127, 0, 0, 1], 0).into();
        (config.nats, config.http, config.grpc) = (vec![any], vec![any], vec![any]);
        config.tls = Some(authority.tls(mutual));
        config.limits.handshake_ms_max = 60_000;
        change(config);
    })
}

/// Returns the host and port for URLs of this protocol.
fn at(server: &Server, protocol: Protocol) -> String {
    let find_port =
        |(of, address): &(Protocol, std::net::SocketAddr)| (*of == protocol).then(|| address.port());
    format!("localhost:{}", server.addresses().iter().find_map(find_port).unwrap())
}

fn connect(server: &Server, tls: TlsOptions) -> Result<Client, ConnectError> {
    Client::connect(&format!("tls://{}", at(server, Protocol::Tcp)), patient_options(tls))
}

/// Options for a client with time limits that suffice on slow machines.
fn patient_options(tls: TlsOptions) -> ClientOptions {
    let limits = ClientLimits { connect_ms_max: 60_000, ..ClientLimits::default() };
    ClientOptions { tls, limits, ..ClientOptions::default() }
}

/// Returns the text of the error with which the client was refused; panics if the client connected.
fn refusal_text(connected: Result<Client, ConnectError>) -> String {
    connected.map(|client| client.node_name()).expect_err("it came in").to_string()
}
