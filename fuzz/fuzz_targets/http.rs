//! Reads any bytes as a query, an event's id and a payload. A value that is parsed must have the same bytes
//! when it is written again.
#![no_main]

#[path = "../../crates/wire/tests/it/http_text.rs"]
#[allow(dead_code, reason = "the tests of random input, too")]
mod http_text;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    http_text::try_query(bytes);
    http_text::try_id(bytes);
    http_text::try_payload(bytes);
});
