//! Provides a node with listeners and, for each protocol, a publisher and a subscriber for the measurements.
//!
//! To add a protocol, add a [`ProtocolRoute`] with a publisher and a subscriber, as in [`grpc`], [`http`] and [`nats`].

mod grpc;
mod http;
mod native;
mod nats;
pub mod node;
pub mod route;
