use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

/// The default port of Dunlin's own protocol.
pub const PORT_DEFAULT: u16 = 4220;

/// The address of a node, or of several nodes of a cluster.
///
/// Forms: `dunlin://host:4220` (the port is optional), `tls://host:4220`, `unix:///path`, and
/// `dunlin://one:4220,two:4220`. With the addresses of several nodes, a client that loses its connection to one node
/// connects to the next one. After a Unix socket, the next address needs its scheme: `unix:///path,dunlin://two:4220`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Address {
    /// A host and a port.
    Tcp {
        /// A name or an IP address. An IPv6 address is in brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// A host and a port, over TLS.
    Tls {
        /// A name or an IP address that the node's certificate must contain. An IPv6 address is in brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// A Unix socket.
    Unix(PathBuf),
    /// The addresses of several nodes. The client tries to connect to one after another.
    Any(Vec<Address>),
}

/// The error for a text that is not an address of a node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an address: {why}")]
pub struct AddressError {
    text: String,
    why: &'static str,
}

const EXPECTED: &str = "write dunlin://HOST:PORT, tls://HOST:PORT or unix:///PATH";
const PORTS: &str = "ports go from 0 to 65535";

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        let invalid = |why| AddressError { text: text.to_owned(), why };
        let error = || invalid(EXPECTED);
        // A path may contain commas: the text is a list only if a later part has a scheme.
        let is_list = |path: &str| path.split(',').skip(1).any(|part| part.contains("://"));
        if let Some(path) = text.strip_prefix("unix://").filter(|path| !is_list(path)) {
            return if path.starts_with('/') { Ok(Address::Unix(path.into())) } else { Err(error()) };
        }
        if let Some((first, rest)) = text.split_once(',') {
            let scheme = first.split_once("://").map_or(String::new(), |(scheme, _)| format!("{scheme}://"));
            let parse_part = |part: &str| match part.contains("://") {
                true => part.parse(),
                false => format!("{scheme}{part}").parse(),
            };
            let all: Vec<Address> =
                std::iter::once(first).chain(rest.split(',')).map(parse_part).collect::<Result<_, _>>()?;
            return Ok(Address::Any(all));
        }
        let (is_tls, rest) = match text.split_once("://") {
            Some((scheme @ ("dunlin" | "tcp" | "tls"), rest)) => {
                (scheme == "tls", rest.trim_end_matches('/'))
            }
            Some(_) => return Err(error()),
            None => (false, text),
        };
        let (host, port) = match rest.rsplit_once(':') {
            // `]` at the end means that the text ends with an IPv6 address, so the last colon is a part of this address
            // and no port follows.
            Some((host, port)) if !port.ends_with(']') => {
                let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
                let why = if is_number { PORTS } else { EXPECTED };
                (host, port.parse().map_err(|_| invalid(why))?)
            }
            _ => (rest, PORT_DEFAULT),
        };
        let is_valid_host = !host.is_empty() && !host.contains(['/', '@', ' ']);
        match (is_valid_host, is_tls) {
            (true, true) => Ok(Address::Tls { host: host.to_owned(), port }),
            (true, false) => Ok(Address::Tcp { host: host.to_owned(), port }),
            (false, _) => Err(error()),
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Tcp { host, port } => write!(f, "dunlin://{host}:{port}"),
            Address::Tls { host, port } => write!(f, "tls://{host}:{port}"),
            Address::Unix(path) => write!(f, "unix://{}", path.display()),
            Address::Any(all) => {
                let all: Vec<String> = all.iter().map(ToString::to_string).collect();
                f.write_str(&all.join(","))
            }
        }
    }
}

/// The address of one node: a TCP address, or the path of a Unix socket.
#[derive(Debug, Clone)]
pub(crate) enum Endpoint {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Address {
    /// Returns one element for each node of the address: the host if the node is reached over TLS, otherwise `None`.
    pub(crate) fn tls_hosts(&self) -> Vec<Option<&str>> {
        match self {
            Address::Any(all) => all.iter().flat_map(Address::tls_hosts).collect(),
            Address::Tls { host, .. } => vec![Some(host)],
            Address::Tcp { .. } | Address::Unix(_) => vec![None],
        }
    }

    /// Resolves the address to endpoints, in the order in which the client tries them. The number with each endpoint is
    /// the index of the endpoint's node in the address.
    pub(crate) fn resolve(&self) -> std::io::Result<Vec<(usize, Endpoint)>> {
        let resolve_indexed = |(at, address): (usize, &Address)| {
            address.resolve_one().map(|found| found.into_iter().map(move |endpoint| (at, endpoint)))
        };
        let Address::Any(all) = self else { return resolve_indexed((0, self)).map(Iterator::collect) };
        let found: Vec<_> = all.iter().enumerate().map(resolve_indexed).collect();
        let why = found.iter().find_map(|found| found.as_ref().err().map(|error| error.kind()));
        let known: Vec<_> = found.into_iter().flatten().flatten().collect();
        match (known.is_empty(), why) {
            (true, Some(why)) => Err(why.into()),
            _ => Ok(known),
        }
    }

    fn resolve_one(&self) -> std::io::Result<Vec<Endpoint>> {
        match self {
            // An `Any` inside another one counts as a single node with several endpoints.
            Address::Any(all) => {
                Ok(all.iter().flat_map(|address| address.resolve_one().unwrap_or_default()).collect())
            }
            Address::Unix(path) => Ok(vec![Endpoint::Unix(path.clone())]),
            Address::Tcp { host, port } | Address::Tls { host, port } => {
                let host = host.trim_start_matches('[').trim_end_matches(']');
                let mut all: Vec<SocketAddr> = (host, *port).to_socket_addrs()?.collect();
                // Try 127.0.0.1 before ::1 for `localhost`: nodes listen on 127.0.0.1 by default.
                all.sort_by_key(|addr| !addr.is_ipv4());
                Ok(all.into_iter().map(Endpoint::Tcp).collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_with_or_without_scheme_and_port_are_parsed() {
        let tcp = |host: &str, port| Ok(Address::Tcp { host: host.to_owned(), port });
        for (text, address) in [
            ("dunlin://localhost:9", tcp("localhost", 9)),
            ("dunlin://localhost", tcp("localhost", PORT_DEFAULT)),
            ("tcp://10.0.0.1:7/", tcp("10.0.0.1", 7)),
            ("node-3:4221", tcp("node-3", 4221)),
            ("dunlin://[::1]:5", tcp("[::1]", 5)),
            ("dunlin://[::1]", tcp("[::1]", PORT_DEFAULT)),
            ("tls://node-3", Ok(Address::Tls { host: "node-3".to_owned(), port: PORT_DEFAULT })),
            ("unix:///run/dunlin.sock", Ok(Address::Unix("/run/dunlin.sock".into()))),
            ("unix:///run/a,b.sock", Ok(Address::Unix("/run/a,b.sock".into()))),
            ("dunlin://a:1,b", Ok(Address::Any(vec![tcp("a", 1).unwrap(), tcp("b", PORT_DEFAULT).unwrap()]))),
            (
                "unix:///run/a,dunlin://b:1",
                Ok(Address::Any(vec![Address::Unix("/run/a".into()), tcp("b", 1).unwrap()])),
            ),
        ] {
            assert_eq!(text.parse::<Address>(), address, "{text}");
        }
        let beyond = "dunlin://h:99999".parse::<Address>().unwrap_err();
        assert!(beyond.to_string().contains("ports go from 0 to 65535"), "{beyond}");
        for text in [
            "",
            "http://a",
            "unix://relative",
            "dunlin://",
            "dunlin://h:port",
            "dunlin://h:99999",
            "a b",
            "dunlin://a,",
            "unix:///a,b,dunlin://c",
        ] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
