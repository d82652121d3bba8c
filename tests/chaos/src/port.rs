//! Ports for processes that are killed and started again at the same address.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Mutex;

use dunlin_replica::seed::Seed;

/// Given out once only in a process, though nobody listens there yet.
static GIVEN: Mutex<Vec<SocketAddr>> = Mutex::new(Vec::new());

/// An address nobody listens on.
///
/// It lies below the ports that the kernel hands out to connecting sockets: while a node is dead, somebody could
/// otherwise be given the node's own port, and be connected with itself.
pub fn free(ip: IpAddr) -> SocketAddr {
    let mut seed = Seed::new(Seed::fresh());
    let mut given = GIVEN.lock().expect("nobody panics with it");
    for _ in 0..1_000 {
        let address = SocketAddr::new(ip, seed.between(10_000, 30_000) as u16);
        if !given.contains(&address) && TcpListener::bind(address).is_ok() {
            given.push(address);
            return address;
        }
    }
    panic!("no free port at {ip}");
}
