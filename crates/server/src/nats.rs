//! The listener of the NATS client protocol (`docs/listeners.md` lists what it supports). `session` is one
//! connection.

mod session;

pub(crate) use session::{NatsScratch, Session, refusal, write_info};
