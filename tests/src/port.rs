//! Free ports for nodes that a test restarts at the same address.

use std::net::{Ipv4Addr, SocketAddr};

/// Returns an address with a random port. As long as this process runs, the port is not given to any other program that
/// asks for a free port.
pub fn free() -> SocketAddr {
    dunlin_chaos::port::free(Ipv4Addr::LOCALHOST.into())
}
