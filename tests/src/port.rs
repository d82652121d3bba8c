//! Ports for nodes that are killed and started again at the same address.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use crate::seed::Seed;

/// An address nobody listens on.
///
/// It lies below the ports that the kernel hands out to connecting sockets: while the node is dead, a
/// client could otherwise be given the node's own port, and be connected with itself.
pub fn free() -> SocketAddr {
    let mut seed = Seed::new(Seed::fresh());
    for _ in 0..1_000 {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, seed.between(10_000, 30_000) as u16));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
    panic!("no free port");
}
