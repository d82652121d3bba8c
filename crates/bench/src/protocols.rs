//! Provides a node with listeners, and for each protocol a publisher and a subscriber that workloads use.
//!
//! To add a protocol, add a [`ProtocolRoute`] with a publisher and a subscriber, like [`grpc`], [`http`] and [`nats`].

mod grpc;
mod http;
mod native;
mod nats;
pub mod node;
pub mod route;
