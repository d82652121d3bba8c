//! Door `nats`: the NATS client protocol (`docs/listeners.md` says what of it). `session` is one connection.

mod session;

pub(crate) use session::{NatsScratch, Session, refusal, say_info};
