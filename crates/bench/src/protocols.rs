//! A node with its listeners, and each protocol as workloads use it: a publisher and a subscriber.
//!
//! To add a protocol, add a [`ProtocolRoute`] with a publisher and a subscriber, like [`grpc`], [`http`] and [`lines`].

mod grpc;
mod http;
mod lines;
mod native;
pub mod node;
pub mod route;
