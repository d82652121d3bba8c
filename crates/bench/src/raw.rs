//! Floors: bare sockets, a bare ring, a bare hash map.
//! Every figure is compared with these floors, measured in the same run. A floor makes only the necessary
//! checks (a stream counts its bytes), so it shows the maximum of the machine.

pub mod lookup;
pub mod ping_pong;
pub mod relay;
pub mod ring;
pub mod stream;
