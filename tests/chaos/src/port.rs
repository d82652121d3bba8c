//! Free ports for processes that a test restarts at the same address.

use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;

use dunlin_server::ReservedAddress;

/// Reservations of ports, which last until this process ends. Its child processes may listen on these ports repeatedly.
static RESERVED: Mutex<Vec<ReservedAddress>> = Mutex::new(Vec::new());

/// Returns an address with a random port that no other program gets while this process runs.
pub fn free(ip: IpAddr) -> SocketAddr {
    let reserved = ReservedAddress::new(SocketAddr::new(ip, 0)).expect("the system has a free port");
    let address = reserved.address();
    RESERVED.lock().expect("the lock is not poisoned").push(reserved);
    address
}
