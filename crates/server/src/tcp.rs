//! The listener for Dunlin's own protocol over TCP and Unix sockets. The module `session` serves one connection.

mod session;

pub(crate) use session::{NODE_CLIENT, Session, WriteScratch};
