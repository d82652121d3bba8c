//! Free ports for nodes that a test restarts at the same address.

use std::net::{Ipv4Addr, SocketAddr};

/// Returns an address with a random port that no other program gets while this process runs.
pub fn free() -> SocketAddr {
    dunlin_chaos::port::free(Ipv4Addr::LOCALHOST.into())
}
