//! Tests of the wire format: stable bytes, round trips, and errors for hostile input.

mod any_bytes;
mod any_nats;
mod document;
mod golden;
mod hostile;
mod http_text;
mod nats;
mod round_trip;
mod samples;
mod version;
