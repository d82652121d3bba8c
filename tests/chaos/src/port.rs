//! Ports for processes that are killed and started again at the same address.

use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;

use dunlin_server::ReservedAddress;

/// Reserved until this process ends: the processes that it starts listen there as often as they like.
static GIVEN: Mutex<Vec<ReservedAddress>> = Mutex::new(Vec::new());

/// An address at a port of the system's choice, which no other program is given while this process runs.
pub fn free(ip: IpAddr) -> SocketAddr {
    let reserved = ReservedAddress::new(SocketAddr::new(ip, 0)).expect("the system has a free port");
    let address = reserved.address();
    GIVEN.lock().expect("nobody panics with it").push(reserved);
    address
}
