//! Messages keep their bytes, survive a round trip, and nothing hostile gets further than an error.

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
