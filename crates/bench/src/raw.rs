//! Floors: measurements of bare sockets, a bare ring and a bare hash map. They show the best that the machine can do,
//! because they make only the necessary checks; a stream only counts its bytes. Figures of Dunlin are compared with the
//! floors of the same run.

pub mod lookup;
pub mod ping_pong;
pub mod relay;
pub mod ring;
pub mod stream;
