//! Floors: bare sockets, a bare ring, a bare hash map.
//!
//! Every figure is compared with these, measured in the same run. They check only what they must (a stream
//! counts its bytes), so they show the most that the machine gives.

pub mod lookup;
pub mod ping_pong;
pub mod relay;
pub mod ring;
pub mod stream;
