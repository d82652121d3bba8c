//! Measures floors, which show the best performance that the machine allows: bare sockets, a bare ring and a bare hash
//! map. These floors do only the unavoidable work; a stream, for example, only counts its bytes. Figures of Dunlin are
//! compared with the floors of the same run.

pub mod lookup;
pub mod ping_pong;
pub mod relay;
pub mod ring;
pub mod stream;
