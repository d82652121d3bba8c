//! Defines the protocols that a node serves.

/// A protocol that a node serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Protocol {
    /// Dunlin's own protocol.
    Tcp,
    /// The protocol of NATS clients.
    Nats,
    /// HTTP/1.1, including event streams.
    Http,
    /// gRPC over HTTP/2.
    Grpc,
    /// WebSocket, which is served at the same addresses as HTTP.
    Ws,
}

impl Protocol {
    /// All protocols.
    pub const ALL: [Protocol; 5] =
        [Protocol::Tcp, Protocol::Nats, Protocol::Http, Protocol::Grpc, Protocol::Ws];

    /// The name of the protocol in the `READY` line, in reports and in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Tcp => "tcp",
            Protocol::Nats => "nats",
            Protocol::Http => "http",
            Protocol::Grpc => "grpc",
            Protocol::Ws => "ws",
        }
    }

    /// The scheme of URLs with this protocol, without TLS.
    pub fn scheme(self) -> &'static str {
        match self {
            Protocol::Tcp => "dunlin",
            Protocol::Nats => "nats",
            Protocol::Http | Protocol::Grpc => "http",
            Protocol::Ws => "ws",
        }
    }

    /// The scheme of URLs with this protocol, with TLS.
    pub fn tls_scheme(self) -> &'static str {
        match self {
            Protocol::Tcp | Protocol::Nats => "tls",
            Protocol::Http | Protocol::Grpc => "https",
            Protocol::Ws => "wss",
        }
    }
}

impl std::fmt::Display for Protocol {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
