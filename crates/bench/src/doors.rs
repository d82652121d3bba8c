//! A node behind its doors, and each door as the workloads see it: something to publish to, something to read.
//!
//! Another door is one more [`Way`], with a publisher and a reader of its own beside [`grpc`], [`http`] and [`lines`].

mod grpc;
mod http;
mod lines;
mod native;
pub mod node;
pub mod way;
