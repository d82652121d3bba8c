//! Messages keep their bytes, survive a round trip, and nothing hostile gets further than an error.

mod any_bytes;
mod document;
mod golden;
mod hostile;
mod http_text;
mod round_trip;
mod samples;
mod version;
