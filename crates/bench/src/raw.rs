//! Measures the best performance that the machine allows (the floor), with programs that do only the unavoidable work:
//! bare sockets, a bare ring and a bare hash map. For example, the receiver of a stream only counts the bytes. Figures
//! of Dunlin are compared with the floors of the same run.

pub mod lookup;
pub mod ping_pong;
pub mod relay;
pub mod ring;
pub mod stream;
