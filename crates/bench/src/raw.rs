//! Measures the floors: bare sockets, a bare ring and a bare hash map. Floors show the best performance of the machine,
//! because they do only the necessary work. A stream, for example, only counts its bytes. Figures of Dunlin are
//! compared with the floors of the same run.

pub mod lookup;
pub mod ping_pong;
pub mod relay;
pub mod ring;
pub mod stream;
