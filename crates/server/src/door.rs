//! The protocols that a node serves.

/// A protocol that a node serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Door {
    /// Dunlin's own protocol.
    Tcp,
    /// The NATS client protocol.
    Nats,
    /// HTTP/1.1.
    Http,
    /// gRPC.
    Grpc,
    /// WebSocket, at the addresses of HTTP.
    Ws,
}

impl Door {
    /// Every protocol.
    pub const ALL: [Door; 5] = [Door::Tcp, Door::Nats, Door::Http, Door::Grpc, Door::Ws];

    /// The name in the `READY` line and in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Door::Tcp => "tcp",
            Door::Nats => "nats",
            Door::Http => "http",
            Door::Grpc => "grpc",
            Door::Ws => "ws",
        }
    }

    /// The scheme of its URLs without TLS.
    pub fn scheme(self) -> &'static str {
        match self {
            Door::Tcp => "dunlin",
            Door::Nats => "nats",
            Door::Http | Door::Grpc => "http",
            Door::Ws => "ws",
        }
    }

    /// The scheme of its URLs with TLS.
    pub fn tls_scheme(self) -> &'static str {
        match self {
            Door::Tcp | Door::Nats => "tls",
            Door::Http | Door::Grpc => "https",
            Door::Ws => "wss",
        }
    }
}

impl std::fmt::Display for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
