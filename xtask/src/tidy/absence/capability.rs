//! The capabilities that the table in ARCHITECTURE.md can name. The rule recognizes a capability by names from the
//! standard library and from well-known crates.

/// A capability that only some crates may use, such as sockets. Code uses the capability if it contains one of the
/// names in `paths`.
pub struct Capability {
    pub name: &'static str,
    /// Rust paths. Code that contains one of them, alone or as a part of a longer path, uses the capability.
    paths: &'static [&'static str],
    /// Names of types that only hold values. A path that ends with such a name does not count as a use of the
    /// capability.
    values: &'static [&'static str],
    pub instead: &'static str,
}

pub const CAPABILITIES: &[Capability] = &[
    Capability {
        name: "sockets",
        paths: &[
            "std::net",
            "std::os::unix::net",
            "tokio::net",
            "rustix::net",
            "socket2",
            "mio",
            "TcpStream",
            "TcpListener",
            "UdpSocket",
            "UnixStream",
            "UnixListener",
            "UnixDatagram",
        ],
        values: &[
            "SocketAddr",
            "SocketAddrV4",
            "SocketAddrV6",
            "IpAddr",
            "Ipv4Addr",
            "Ipv6Addr",
            "AddrParseError",
        ],
        instead: "take bytes in and give bytes out; the caller owns the socket",
    },
    Capability {
        name: "disk",
        paths: &[
            "std::fs",
            "std::os::unix::fs",
            "tokio::fs",
            "File::open",
            "File::create",
            "OpenOptions",
            "memmap2",
        ],
        values: &[],
        instead: "take the bytes, or something that implements Read, as an argument",
    },
    Capability {
        name: "clock",
        paths: &["Instant::now", "SystemTime", "tokio::time", "thread::sleep"],
        values: &[],
        instead: "take the time as an argument",
    },
    Capability {
        name: "threads",
        paths: &[
            "thread::spawn",
            "thread::Builder",
            "thread::scope",
            "tokio::spawn",
            "tokio::task",
            "tokio::runtime",
            "rayon",
        ],
        values: &[],
        instead: "let the caller say on which thread work happens",
    },
    Capability {
        name: "processes",
        paths: &["process::Command", "tokio::process"],
        values: &[],
        instead: "start processes in server, bench or cli",
    },
    Capability {
        name: "openraft",
        paths: &["openraft"],
        values: &[],
        instead: "go through the trait of the crate that replicates",
    },
    Capability { name: "tonic", paths: &["tonic"], values: &[], instead: "speak gRPC in its listener alone" },
    Capability {
        name: "unsafe",
        paths: &["unsafe"],
        values: &[],
        instead: "write it safely, or measure what that costs",
    },
];

impl Capability {
    /// Whether code that names this path uses the capability.
    pub fn is_used_by(&self, path: &str) -> bool {
        let last = path.rsplit("::").next().unwrap_or(path);
        !self.values.contains(&last) && self.paths.iter().any(|part| has_part(path, part))
    }
}

/// Whether `path` contains `part`, at the boundaries of words: `std::io::File::open` contains `File::open`, but
/// `File::opened` does not.
fn has_part(path: &str, part: &str) -> bool {
    format!("::{path}::").contains(&format!("::{part}::"))
}
