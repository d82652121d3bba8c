//! Configuration of a node's listeners.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::access::AccessLimits;
use crate::protocol::Protocol;
use crate::tls::TlsConfig;

/// The configuration of a node's listeners: addresses, TLS, users and limits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerConfig {
    /// TCP addresses of Dunlin's own protocol; port 0 selects a free port.
    pub tcp: Vec<SocketAddr>,
    /// Unix sockets of Dunlin's own protocol. A socket file of a dead process is replaced.
    pub unix: Vec<PathBuf>,
    /// TCP addresses of the NATS protocol.
    pub nats: Vec<SocketAddr>,
    /// TCP addresses of HTTP.
    pub http: Vec<SocketAddr>,
    /// Origins, such as `https://example.com`, whose web pages may use HTTP from a browser, in addition to the node's
    /// own origin.
    pub http_origins: Vec<String>,
    /// The file served at `/report`.
    pub http_report: Option<PathBuf>,
    /// TCP addresses of gRPC.
    pub grpc: Vec<SocketAddr>,
    /// TLS for all TCP addresses of every protocol.
    pub tls: Option<TlsConfig>,
    /// The users and their permissions (`docs/security.md`). Without this file, every client has all
    /// permissions.
    pub users_file: Option<PathBuf>,
    /// Allows clients on other machines to connect without encryption and authentication. If false, a listener that
    /// other machines can reach requires TLS, and its clients need a certificate (`client_ca`) or a user in the users
    /// file.
    pub anyone_on_the_network_may_connect: bool,
    /// Number of threads that serve sessions; 0 for one per core, or one per two cores with `spin`.
    pub threads: usize,
    /// If true, the threads never park: they use whole cores and respond sooner.
    pub spin: bool,
    /// Limits of the listeners.
    pub limits: ServerLimits,
}

impl ServerConfig {
    /// Each TCP address with its protocol.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = (Protocol, SocketAddr)> {
        let with_protocol = |protocol, addresses: &[SocketAddr]| {
            addresses.iter().map(move |&address| (protocol, address)).collect::<Vec<_>>()
        };
        [
            with_protocol(Protocol::Tcp, &self.tcp),
            with_protocol(Protocol::Nats, &self.nats),
            with_protocol(Protocol::Http, &self.http),
            with_protocol(Protocol::Grpc, &self.grpc),
        ]
        .into_iter()
        .flatten()
    }
}

/// Limits of a node's listeners: sessions, message sizes and waiting times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerLimits {
    /// Maximum number of sessions; further connections are refused.
    pub sessions_max: usize,
    /// Maximum number of subscriptions and group memberships of one session.
    pub subscriptions_max: u32,
    /// Maximum number of publishers of one session.
    pub publishers_max: u32,
    /// Maximum number of logs that all subscriptions of one session read together.
    pub channels_max: usize,
    /// Maximum time for the TLS handshake, and then for HELLO, ms. A slower client is disconnected.
    pub handshake_ms_max: u32,
    /// Maximum number of TLS handshakes at a time, about 30 KiB each; further handshakes wait. The clients of one
    /// address get at most half of this number.
    pub handshakes_max: usize,
    /// Longest pause between two messages of a session to its client, ms.
    pub heartbeat_ms: u32,
    /// Largest message with records, bytes.
    pub run_bytes_max: u32,
    /// Largest message without records, bytes.
    pub control_bytes_max: u32,
    /// Maximum total size of a client's PUBLISH messages that have no response yet, bytes.
    pub in_flight_bytes_max: u32,
    /// Number of sessions that the first thread serves before other threads are used. Sessions of one thread wake each
    /// other without a system call.
    pub sessions_before_spreading: usize,
    /// Maximum time for sessions to send their pending output when the server stops, ms.
    pub stop_ms_max: u32,
    /// Maximum number of refused or disconnected clients whose reasons the node remembers.
    pub departures_max: usize,
    /// Limits of authentication.
    pub access: AccessLimits,
    /// Limits of the NATS protocol.
    pub nats: NatsLimits,
    /// Limits of HTTP.
    pub http: HttpLimits,
    /// Limits of WebSocket.
    pub ws: WsLimits,
    /// Limits of gRPC.
    pub grpc: GrpcLimits,
}

/// Number of files that a node may have open besides its clients' connections and the files of durable topics.
const OTHER_FILES: u64 = 1_024;

impl ServerLimits {
    /// Number of file descriptors that the clients' connections and the node's files need, without those of durable
    /// topics. For [`NodeLimits::reserved_files`](dunlin::NodeLimits::reserved_files).
    pub fn reserved_files(&self) -> u64 {
        (self.sessions_max as u64).saturating_add(OTHER_FILES)
    }
}

/// Limits of connections that use the NATS protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NatsLimits {
    /// Interval of PING to a client, ms.
    pub ping_ms: u32,
    /// Maximum number of unanswered PINGs before the connection is closed.
    pub pings_max: u32,
    /// Maximum time for one operation, from its first byte to its last, ms.
    pub publish_ms_max: u32,
    /// Longest delay of a client that exceeds its publish rate, ms; records that would wait longer are refused.
    pub rate_wait_ms_max: u32,
    /// Maximum number of subjects whose topics a session caches for publishing.
    pub targets_max: usize,
    /// Maximum number of ranges of a client's own records that its session remembers for each log, in order to skip
    /// them. Applies only to clients that disable echo.
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

/// Limits of HTTP requests, responses and event streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpLimits {
    /// Maximum size of a request's head, bytes; also the size of the buffer for responses.
    pub header_bytes_max: u32,
    /// Maximum number of headers of a request.
    pub headers_max: u32,
    /// Maximum time for a request's head, and longest idle time of a kept-alive connection, ms.
    pub header_ms_max: u32,
    /// Maximum time for a request's body, ms.
    pub body_ms_max: u32,
    /// Time after which a client is disconnected if it reads nothing and does not respond to TCP keep-alive, ms.
    pub stalled_ms_max: u32,
    /// Longest pause between two messages of an event stream, ms.
    pub heartbeat_ms: u32,
    /// Approximate bytes of an event stream that are written at once. A larger record is written as a whole.
    pub event_bytes: u32,
    /// Maximum number of topics that `/metrics` shows; the busiest are shown.
    pub topics_shown: u32,
    /// Largest file at `/report`, bytes.
    pub report_bytes_max: u64,
    /// Number of subscriptions that `/v1/subscriptions` lists; the slowest are listed.
    pub subscriptions_shown: u32,
    /// Maximum number of subscriptions that `/metrics` shows; the slowest are shown.
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

/// Limits of WebSocket connections that use JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WsLimits {
    /// Maximum number of bytes of a client's first message, which has its credentials.
    pub hello_bytes_max: usize,
    /// Largest message from a client, bytes.
    pub message_bytes_max: usize,
    /// Maximum time for a message, from its first byte to its last, ms.
    pub message_ms_max: u32,
    /// Maximum number of subscriptions of one connection.
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

/// Limits of gRPC connections and calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrpcLimits {
    /// Maximum number of calls of one connection at a time; further calls wait in the client.
    pub streams_max: u32,
    /// Largest message of a call, bytes.
    pub message_bytes_max: usize,
    /// Maximum number of repeated elements in one message of a call, including the elements of nested messages.
    pub message_elements_max: usize,
    /// Maximum time for a message, from its first byte to its last, ms.
    pub message_ms_max: u32,
    /// Maximum size of the metadata of one call, bytes.
    pub header_bytes_max: u32,
    /// Maximum number of subjects of one subscription.
    pub subjects_max: usize,
    /// Approximate size of a response to a subscriber, bytes.
    pub batch_bytes_max: usize,
    /// Maximum number of subscribers of one topic through `MessageBroker`.
    pub message_subscribers_max: usize,
    /// Interval of HTTP/2 pings to a client, and time limit for the response to each ping, ms.
    pub keep_alive_ms: u32,
    /// Maximum time that a connection may stay open without a call, ms.
    pub idle_ms_max: u32,
    /// Flow-control window of a call, bytes.
    pub stream_window_bytes: u32,
    /// Flow-control window of a connection, bytes.
    pub connection_window_bytes: u32,
}

impl Default for ServerLimits {
    fn default() -> ServerLimits {
        ServerLimits {
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
            message_elements_max: 1 << 18,
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
