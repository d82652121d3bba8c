//! The listener of Dunlin's own protocol over TCP and Unix sockets. `session` serves one connection.

mod session;

pub(crate) use session::{NODE_CLIENT, Session, WriteScratch};
