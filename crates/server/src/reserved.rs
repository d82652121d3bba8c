//! A TCP address that is kept for a server which does not run yet, or does not run at the moment.

use std::io;
use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram};

use socket2::{Domain, Socket, Type};

/// A TCP address that no other program is given while this value lives.
///
/// A socket is bound to the address and never listens. The system then gives the port to no other socket: neither to one
/// that listens at a port of the system's choice, nor to one that connects. A server that sets `SO_REUSEADDR`, as all
/// of Dunlin's do, still listens there, ends, and listens there again.
#[derive(Debug)]
pub struct ReservedAddress {
    address: SocketAddr,
    _socket: Socket,
    /// Two bound sockets do not exclude each other when both reuse addresses; two abstract Unix sockets of one name do.
    _lock: UnixDatagram,
}

impl ReservedAddress {
    /// Reserves this address; a port of the system's choice where the port is 0.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] where a program listens there, or has reserved the address.
    pub fn new(address: SocketAddr) -> io::Result<ReservedAddress> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        let address = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let name = UnixAddress::from_abstract_name(format!("dunlin-reserved-{address}"))?;
        Ok(ReservedAddress { address, _socket: socket, _lock: UnixDatagram::bind_addr(&name)? })
    }

    /// The address, with its real port.
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
    fn reserved_address_is_refused_to_others() {
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
    fn reserved_address_can_be_bound_again_and_again() {
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
    fn address_of_a_listener_is_not_reserved() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let refused = ReservedAddress::new(listener.local_addr().unwrap()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
    }
}
