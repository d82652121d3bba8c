//! Ports for nodes that are killed and started again at the same address.

use std::net::{Ipv4Addr, SocketAddr};

/// An address at a port of the system's choice, which no other program is given while this process runs.
pub fn free() -> SocketAddr {
    dunlin_chaos::port::free(Ipv4Addr::LOCALHOST.into())
}
