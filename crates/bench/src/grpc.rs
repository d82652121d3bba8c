//! Door `grpc` beside a plain tonic server that echoes: the same client, the same runtime, another process for each.

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
pub use unary::Load;

/// The messages of `proto/echo.proto`, made by `cargo xtask fix`.
#[allow(missing_docs, clippy::all, reason = "generated")]
mod proto {
    include!("grpc/generated/dunlin.bench.rs");
}
