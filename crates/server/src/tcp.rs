//! Door `tcp`: Dunlin's own protocol over TCP and Unix sockets.
//!
//! `listener` lets connections in, `stream` is what TCP and Unix sockets have in common, `session`
//! is one connection.

mod listener;
mod session;
mod stream;

pub(crate) use listener::{Listener, accept};
pub(crate) use session::beat;
