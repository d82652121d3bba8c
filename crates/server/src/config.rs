//! Defines the configuration of a node's listeners.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::access::AccessLimits;
use crate::protocol::Protocol;
use crate::tls::TlsConfig;

/// The configuration of a node's listeners: addresses, TLS, users and limits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerConfig {
    /// TCP addresses at which the node serves Dunlin's own protocol; port 0 selects a free port.
    pub tcp: Vec<SocketAddr>,
    /// Paths of Unix sockets at which the node serves Dunlin's own protocol. If a socket file remains from a process
    /// that has ended, it is replaced.
    pub unix: Vec<PathBuf>,
    /// TCP addresses at which the node serves the NATS protocol.
    pub nats: Vec<SocketAddr>,
    /// TCP addresses at which the node serves HTTP.
    pub http: Vec<SocketAddr>,
    /// Origins, such as `https://example.com`, from which web pages may send HTTP requests to this node. Pages of the
    /// node's own origin always may.
    pub http_origins: Vec<String>,
    /// Path of the file that the node serves at `/report`.
    pub http_report: Option<PathBuf>,
    /// TCP addresses at which the node serves gRPC.
    pub grpc: Vec<SocketAddr>,
    /// TLS certificates and keys. If set, all TCP addresses use TLS.
    pub tls: Option<TlsConfig>,
    /// Path of the users file (`docs/security.md`). Without a users file, every client has all permissions.
    pub users_file: Option<PathBuf>,
    /// If true, clients on other machines may connect without encryption and authentication. If false, a listener that
    /// other machines can reach must use TLS, and its clients need a certificate (`client_ca`) or an entry in the users
    /// file.
    pub anyone_on_the_network_may_connect: bool,
    /// Number of threads that serve sessions; 0 selects one per core, or with `spin` one per two cores.
    pub threads: usize,
    /// If true, idle threads poll instead of sleeping. They respond sooner, but each uses a whole core.
    pub spin: bool,
    /// Limits of the listeners and their sessions.
    pub limits: ServerLimits,
}

impl ServerConfig {
    /// Returns each TCP address with the protocol that is served there.
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

/// Limits of a node's listeners: sessions, message sizes and time limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerLimits {
    /// Maximum number of sessions; above it, new connections are refused.
    pub sessions_max: usize,
    /// Maximum number of a session's subscriptions and group memberships, counted together.
    pub subscriptions_max: u32,
    /// Maximum number of publishers that one session may have open.
    pub publishers_max: u32,
    /// Maximum number of logs that all subscriptions of one session may read together.
    pub channels_max: usize,
    /// Time limit for the TLS handshake, and then again for the HELLO message, ms. Slower clients are disconnected.
    pub handshake_ms_max: u32,
    /// Maximum number of TLS handshakes at the same time; further handshakes wait. Each handshake takes about 30 KiB.
    /// At most half of the handshakes may be with clients of one address.
    pub handshakes_max: usize,
    /// Longest time for which a session sends nothing to its client, ms. After this time, it sends a heartbeat.
    pub heartbeat_ms: u32,
    /// Largest message with records, bytes.
    pub run_bytes_max: u32,
    /// Largest message without records, bytes.
    pub control_bytes_max: u32,
    /// Maximum total size of a session's PUBLISH messages that have no response yet, bytes.
    pub in_flight_bytes_max: u32,
    /// While there are at most this many sessions, the first thread serves them all. Further sessions are spread over
    /// all threads. Sessions of the same thread can wake each other without a system call.
    pub sessions_before_spreading: usize,
    /// How long a stopping server lets its sessions send their pending output, ms.
    pub stop_ms_max: u32,
    /// Number of refused or disconnected clients that the node remembers, with the reasons.
    pub departures_max: usize,
    /// Limits of authentication.
    pub access: AccessLimits,
    /// Limits of the NATS protocol.
    pub nats: NatsLimits,
    /// Limits of HTTP.
    pub http: HttpLimits,
    /// Limits of WebSocket connections.
    pub ws: WsLimits,
    /// Limits of gRPC.
    pub grpc: GrpcLimits,
}

/// Number of files that a node may have open, not counting clients' connections and the files of durable topics.
const OTHER_FILES: u64 = 1_024;

impl ServerLimits {
    /// Number of file descriptors that clients' connections and the node's own files need, without the files of durable
    /// topics. Meant as the value of [`NodeLimits::reserved_files`](dunlin::NodeLimits::reserved_files).
    pub fn reserved_files(&self) -> u64 {
        (self.sessions_max as u64).saturating_add(OTHER_FILES)
    }
}

/// Limits of connections that use the NATS protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NatsLimits {
    /// Interval at which the node sends PING to a client, ms.
    pub ping_ms: u32,
    /// Maximum number of PINGs without a response. If the next PING is due while this many are without a response, the
    /// connection is closed.
    pub pings_max: u32,
    /// Time limit from the first to the last byte of an operation such as PUB, ms.
    pub publish_ms_max: u32,
    /// Longest time for which a client that exceeds its publish rate is delayed, ms. Records that would have to wait
    /// longer are refused.
    pub rate_wait_ms_max: u32,
    /// Maximum number of subjects for which a session caches the topic to publish to.
    pub targets_max: usize,
    /// If a client disables echo, its session remembers which records the client itself has published, in order to skip
    /// them. This is the maximum number of ranges of such records that a session remembers for each log.
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
    /// Maximum size of a request's head, bytes. The buffer for responses has this size too.
    pub header_bytes_max: u32,
    /// Maximum number of headers in a request.
    pub headers_max: u32,
    /// Time limit for a request's head, ms. It also limits how long a connection that is kept alive may be idle.
    pub header_ms_max: u32,
    /// Time limit for a request's body, ms.
    pub body_ms_max: u32,
    /// A client that reads nothing and does not respond to TCP keep-alive probes is disconnected after this time, ms.
    pub stalled_ms_max: u32,
    /// Longest time for which an event stream sends nothing, ms. After this time, it sends a heartbeat.
    pub heartbeat_ms: u32,
    /// Approximate number of bytes that an event stream writes at once. A larger record is still written at once.
    pub event_bytes: u32,
    /// Maximum number of topics that `/metrics` shows; the busiest are shown.
    pub topics_shown: u32,
    /// Largest file that the node serves at `/report`, bytes.
    pub report_bytes_max: u64,
    /// Maximum number of subscriptions that `/v1/subscriptions` lists; the slowest are listed.
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

/// Limits of WebSocket connections, whose messages are JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WsLimits {
    /// Largest first message from a client, bytes. This message has the client's credentials.
    pub hello_bytes_max: usize,
    /// Largest message from a client, bytes.
    pub message_bytes_max: usize,
    /// Time limit from the first to the last byte of a message, ms.
    pub message_ms_max: u32,
    /// Maximum number of subscriptions on one connection.
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

/// Limits of gRPC connections and of the calls on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrpcLimits {
    /// Maximum number of calls on one connection at the same time. The client must delay further calls.
    pub streams_max: u32,
    /// Largest message in a call, bytes.
    pub message_bytes_max: usize,
    /// Maximum number of repeated elements in one message, counted with those of nested messages.
    pub message_elements_max: usize,
    /// Time limit from the first to the last byte of a message, ms.
    pub message_ms_max: u32,
    /// Maximum total size of a call's metadata, bytes.
    pub header_bytes_max: u32,
    /// Maximum number of subjects in one subscription.
    pub subjects_max: usize,
    /// Approximate size of each response to a subscriber, bytes.
    pub batch_bytes_max: usize,
    /// Maximum number of subscribers that one topic may have through the gRPC service `MessageBroker`.
    pub message_subscribers_max: usize,
    /// Interval at which the node pings a client over HTTP/2, ms. The client must respond to each ping within the same
    /// time.
    pub keep_alive_ms: u32,
    /// A connection without any call is closed after this time, ms.
    pub idle_ms_max: u32,
    /// HTTP/2 flow-control window of each call, bytes.
    pub stream_window_bytes: u32,
    /// HTTP/2 flow-control window of each connection, bytes.
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
