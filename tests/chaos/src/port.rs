//! Free ports for processes that a test restarts at the same address.

use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;

use dunlin_server::ReservedAddress;

/// Reservations of ports. A reservation lasts until this process ends. Meanwhile, child processes of this process may
/// listen on the reserved ports.
static RESERVED: Mutex<Vec<ReservedAddress>> = Mutex::new(Vec::new());

/// Returns an address with a random port. As long as this process runs, the port is not given to any other program that
/// asks for a free port.
pub fn free(ip: IpAddr) -> SocketAddr {
    let reserved = ReservedAddress::new(SocketAddr::new(ip, 0)).expect("the system has a free port");
    let address = reserved.address();
    RESERVED.lock().expect("the lock is not poisoned").push(reserved);
    address
}
