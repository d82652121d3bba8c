//! The protocols through which a node is reached.

/// A protocol through which a node is reached.
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
    /// WebSocket, at the addresses of door `http`.
    Ws,
}

impl Door {
    /// Every door.
    pub const ALL: [Door; 5] = [Door::Tcp, Door::Nats, Door::Http, Door::Grpc, Door::Ws];

    /// As it stands in the `READY` line.
    pub fn name(self) -> &'static str {
        match self {
            Door::Tcp => "tcp",
            Door::Nats => "nats",
            Door::Http => "http",
            Door::Grpc => "grpc",
            Door::Ws => "ws",
        }
    }

    /// What a URL of it begins with.
    pub fn scheme(self) -> &'static str {
        match self {
            Door::Tcp => "dunlin",
            Door::Nats => "nats",
            Door::Http | Door::Grpc => "http",
            Door::Ws => "ws",
        }
    }

    /// The same where it is reached by TLS.
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
