//! Serves clients of the NATS protocol (`docs/listeners.md` lists which parts of the protocol are supported). The
//! module `session` serves one connection.

mod session;

pub(crate) use session::{AnnouncedInfo, NatsScratch, Session, refusal, write_info};
