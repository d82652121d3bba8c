//! What the doors of a node are opened with.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::access::AccessLimits;
use crate::door::Door;
use crate::tls::TlsConfig;

/// Where and how to listen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerConfig {
    /// TCP addresses of door `tcp`; port 0 picks a free one.
    pub tcp: Vec<SocketAddr>,
    /// Unix sockets of door `tcp`; a socket left behind by a dead process is replaced.
    pub unix: Vec<PathBuf>,
    /// TCP addresses of door `nats`.
    pub nats: Vec<SocketAddr>,
    /// TCP addresses of door `http`.
    pub http: Vec<SocketAddr>,
    /// Pages of these origins, like `https://example.com`, may use door `http` from a browser, beside its own.
    pub http_origins: Vec<String>,
    /// The file that door `http` gives at `/report`.
    pub http_report: Option<PathBuf>,
    /// TCP addresses of door `grpc`.
    pub grpc: Vec<SocketAddr>,
    /// TLS for all TCP addresses, of every door.
    pub tls: Option<TlsConfig>,
    /// Who may come in, and what they may do (`docs/security.md`); without it everybody who reaches a door may do
    /// everything.
    pub users_file: Option<PathBuf>,
    /// Listen on addresses that other machines reach, though there is no encryption, or no check of who connects.
    /// Without it such addresses are refused, unless there is TLS, and clients have to show a certificate (`client_ca`)
    /// or to be users of a file.
    pub anyone_on_the_network_may_connect: bool,
    /// Threads that serve sessions; 0 for one per core, or for every second one if they spin.
    pub threads: usize,
    /// Never park: the threads use whole cores, and answers come sooner.
    pub spin: bool,
    /// What the doors hold at most.
    pub limits: Limits,
}

impl ServerConfig {
    /// Each TCP address, and the door it is of.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = (Door, SocketAddr)> {
        let of = |door, addresses: &[SocketAddr]| {
            addresses.iter().map(move |&address| (door, address)).collect::<Vec<_>>()
        };
        [
            of(Door::Tcp, &self.tcp),
            of(Door::Nats, &self.nats),
            of(Door::Http, &self.http),
            of(Door::Grpc, &self.grpc),
        ]
        .into_iter()
        .flatten()
    }
}

/// Every bound of the doors, in one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Sessions; one more is refused.
    pub sessions_max: usize,
    /// Subscriptions and memberships of one session.
    pub subscriptions_max: u32,
    /// Publishers of one session.
    pub publishers_max: u32,
    /// Logs that all subscriptions of one session read.
    pub channels_max: usize,
    /// How long a client may take to say HELLO, and before it for the handshake of TLS, ms; then it is refused.
    pub handshake_ms_max: u32,
    /// Handshakes of TLS at a time, each of which holds some 30 KiB; who comes then waits for its turn.
    pub handshakes_max: usize,
    /// A session sends something at least this often, ms.
    pub heartbeat_ms: u32,
    /// The largest message with records, bytes.
    pub run_bytes_max: u32,
    /// The largest other message, bytes.
    pub control_bytes_max: u32,
    /// Bytes of PUBLISH that a client may have unanswered.
    pub in_flight_bytes_max: u32,
    /// Sessions of the first thread before others get any: sessions of one thread wake each other
    /// without a system call.
    pub sessions_before_spreading: usize,
    /// How long sessions have to take what they were sent when the server stops, ms.
    pub stop_ms_max: u32,
    /// Clients that were refused or cut off, of which is remembered why.
    pub departures_max: usize,
    /// Those of finding out who somebody is.
    pub access: AccessLimits,
    /// What only door `nats` has.
    pub nats: NatsLimits,
    /// Those of door `http`.
    pub http: HttpLimits,
    /// What only door `ws` has.
    pub ws: WsLimits,
    /// What only door `grpc` has.
    pub grpc: GrpcLimits,
}

/// The bounds of door `nats`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NatsLimits {
    /// A client is asked this often whether it is there, ms.
    pub ping_ms: u32,
    /// So many times it may leave that unanswered.
    pub pings_max: u32,
    /// How long a client may take over one operation, from its first byte to its last, ms.
    pub publish_ms_max: u32,
    /// How long a client that publishes more than its user may is made to wait, ms; what may not pass even then is
    /// refused.
    pub rate_wait_ms_max: u32,
    /// Subjects whose topics a session remembers for publishing.
    pub targets_max: usize,
    /// For clients that do not want their own records back: stretches of them, in each log, that they have yet to pass.
    pub own_ranges_max: usize,
}

impl Default for NatsLimits {
    fn default() -> NatsLimits {
        NatsLimits {
            ping_ms: 120_000,
            pings_max: 2,
            publish_ms_max: 30_000,
            rate_wait_ms_max: 5_000,
            targets_max: 4_096,
            own_ranges_max: 65_536,
        }
    }
}

/// The bounds of door `http`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpLimits {
    /// The head of a request over HTTP, bytes; as much of an answer waits to be written.
    pub header_bytes_max: u32,
    /// Headers of a request over HTTP.
    pub headers_max: u32,
    /// How long a client may take over the head of a request, and may be without one on a connection that is kept, ms.
    pub header_ms_max: u32,
    /// How long a client may take over the body of a request, ms.
    pub body_ms_max: u32,
    /// How long a client may take nothing of what was sent, or not show that it is there, ms; then the connection is
    /// cut.
    pub stalled_ms_max: u32,
    /// A stream of events sends something at least this often, ms.
    pub heartbeat_ms: u32,
    /// How much of a stream of events is written at once, bytes; one record may go beyond it.
    pub event_bytes: u32,
    /// Topics in `/metrics`, the busiest.
    pub topics_shown: u32,
    /// Bytes of the file at `/report`.
    pub report_bytes_max: u64,
    /// Subscriptions that are listed, the slowest.
    pub subscriptions_shown: u32,
    /// Subscriptions in `/metrics`, the slowest.
    pub metrics_subscriptions_max: u32,
}

impl Default for HttpLimits {
    fn default() -> HttpLimits {
        HttpLimits {
            header_bytes_max: 64 << 10,
            headers_max: 100,
            header_ms_max: 10_000,
            body_ms_max: 30_000,
            stalled_ms_max: 120_000,
            heartbeat_ms: 10_000,
            event_bytes: 32 << 10,
            topics_shown: 100,
            report_bytes_max: 16 << 20,
            subscriptions_shown: 1_000,
            metrics_subscriptions_max: 20,
        }
    }
}

/// The bounds of door `ws`, where it speaks JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WsLimits {
    /// The first message of a client, which says who it is, bytes.
    pub hello_bytes_max: usize,
    /// The largest message from a client, bytes.
    pub message_bytes_max: usize,
    /// How long a message may take from its first byte to its last, ms.
    pub message_ms_max: u32,
    /// Subscriptions of one connection.
    pub subscriptions_max: u32,
}

impl Default for WsLimits {
    fn default() -> WsLimits {
        WsLimits {
            hello_bytes_max: 16 << 10,
            message_bytes_max: 16 << 20,
            message_ms_max: 30_000,
            subscriptions_max: 1_024,
        }
    }
}

/// The bounds of door `grpc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrpcLimits {
    /// Calls of one connection at a time; more wait with the client.
    pub streams_max: u32,
    /// The largest message of a call, bytes.
    pub message_bytes_max: usize,
    /// How long a message may take from its first byte to its last, ms.
    pub message_ms_max: u32,
    /// Metadata of one call, bytes.
    pub header_bytes_max: u32,
    /// Subjects of one subscription.
    pub subjects_max: usize,
    /// About how large an answer to a subscriber may be, bytes.
    pub batch_bytes_max: usize,
    /// Subscribers of one topic through `MessageBroker`.
    pub message_subscribers_max: usize,
    /// How often a client is asked for a sign of life, and how long it has for it, ms.
    pub keep_alive_ms: u32,
    /// How long a connection stands without a call, ms.
    pub idle_ms_max: u32,
    /// What a client may send of a call before somebody reads it, bytes.
    pub stream_window_bytes: u32,
    /// What it may send of all calls, bytes.
    pub connection_window_bytes: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            sessions_max: 50_000,
            subscriptions_max: 65_536,
            publishers_max: 65_536,
            channels_max: 1_000_000,
            handshake_ms_max: 5_000,
            handshakes_max: 2_048,
            heartbeat_ms: 1_000,
            run_bytes_max: 16 << 20,
            control_bytes_max: 64 << 10,
            in_flight_bytes_max: 4 << 20,
            sessions_before_spreading: 8,
            stop_ms_max: 2_000,
            departures_max: 200,
            access: AccessLimits::default(),
            nats: NatsLimits::default(),
            http: HttpLimits::default(),
            ws: WsLimits::default(),
            grpc: GrpcLimits::default(),
        }
    }
}

impl Default for GrpcLimits {
    fn default() -> GrpcLimits {
        GrpcLimits {
            streams_max: 1_024,
            message_bytes_max: 16 << 20,
            message_ms_max: 30_000,
            header_bytes_max: 16 << 10,
            subjects_max: 1_024,
            batch_bytes_max: 1 << 20,
            message_subscribers_max: 1_000,
            keep_alive_ms: 20_000,
            idle_ms_max: 600_000,
            stream_window_bytes: 1 << 20,
            connection_window_bytes: 2 << 20,
        }
    }
}
