//! Any bytes as a query, as an event's id and as a payload: what is understood comes out as it went in.
#![no_main]

#[path = "../../crates/wire/tests/it/http_text.rs"]
#[allow(dead_code, reason = "the tests of random input, too")]
mod http_text;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    http_text::try_query(bytes);
    http_text::try_id(bytes);
    http_text::try_payload(bytes);
});
