//! Tests of the wire format: the bytes never change, messages survive encoding and decoding, and invalid input leads to
//! errors.

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
