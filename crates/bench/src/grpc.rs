//! Measures listener `grpc` of a node, and for comparison a plain echo server made with the library tonic. The node and
//! the echo server are called by the same client on the same async runtime. Each of them runs in a process of its own.

mod callee;
mod echo;
mod node;
mod points;
mod stream;
pub mod unary;

pub use callee::{Callee, channel};
pub use echo::serve as serve_echo;
pub use node::serve as serve_node;
pub use points::SUITE;
pub use unary::CallLoad;

/// The messages of `proto/echo.proto`. `cargo xtask fix` generates this module.
#[allow(missing_docs, clippy::all, reason = "generated")]
mod proto {
    include!("grpc/generated/dunlin.bench.rs");
}
