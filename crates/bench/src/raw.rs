//! The floor: bare sockets, a bare ring, a bare hash map.
//!
//! Every figure of ours and of a peer is read against these, measured in the same run. They check
//! nothing they need not (a stream only counts its bytes), so they are the most the machine gives.

pub mod lookup;
pub mod ping_pong;
pub mod relay;
pub mod ring;
pub mod stream;
