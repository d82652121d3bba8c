//! Reserves a TCP address for a server that will listen at the address later.

use std::io;
use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram};

use socket2::{Domain, Socket, Type};

/// Reserves a TCP address: while this value exists, the system gives the address to no other program.
///
/// The value holds a socket that is bound to the address, but never listens. The system therefore chooses this port
/// neither for a program that asks for any free port, nor for an outgoing connection. A server that sets
/// `SO_REUSEADDR`, as Dunlin's servers do, can still listen at the address, even repeatedly.
#[derive(Debug)]
pub struct ReservedAddress {
    address: SocketAddr,
    _socket: Socket,
    /// Makes a second reservation of the same address fail. Two sockets with `SO_REUSEADDR` could have the same
    /// address, but two abstract Unix sockets cannot have the same name.
    _lock: UnixDatagram,
}

impl ReservedAddress {
    /// Reserves `address`. If its port is 0, the system chooses a free port.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] if a program listens at the address or has reserved it.
    pub fn new(address: SocketAddr) -> io::Result<ReservedAddress> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        let address = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let name = UnixAddress::from_abstract_name(format!("dunlin-reserved-{address}"))?;
        Ok(ReservedAddress { address, _socket: socket, _lock: UnixDatagram::bind_addr(&name)? })
    }

    /// The reserved address, with the port that was actually chosen.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::*;

    fn any() -> ReservedAddress {
        ReservedAddress::new((Ipv4Addr::LOCALHOST, 0).into()).unwrap()
    }

    #[test]
    fn reserved_address_cannot_be_reserved_again() {
        let reserved = any();
        let again = ReservedAddress::new(reserved.address()).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AddrInUse);
        let others: Vec<ReservedAddress> = (0..200).map(|_| any()).collect();
        assert!(others.iter().all(|other| other.address() != reserved.address()));
        let address = reserved.address();
        drop(reserved);
        ReservedAddress::new(address).unwrap();
    }

    #[test]
    fn reserved_address_can_be_bound_repeatedly() {
        let reserved = any();
        for _ in 0..3 {
            let listener = TcpListener::bind(reserved.address()).unwrap();
            let client = TcpStream::connect(reserved.address()).unwrap();
            drop((listener.accept().unwrap(), listener, client));
            let dead = TcpStream::connect(reserved.address()).unwrap_err();
            assert_eq!(dead.kind(), io::ErrorKind::ConnectionRefused);
        }
    }

    #[test]
    fn address_in_use_by_a_listener_cannot_be_reserved() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let refused = ReservedAddress::new(listener.local_addr().unwrap()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
    }
}
