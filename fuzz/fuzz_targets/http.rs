//! Reads arbitrary bytes as a query, an event's id and a payload. If the bytes can be parsed as one of these, writing
//! the parsed value must give the original bytes.
#![no_main]

#[path = "../../crates/wire/tests/it/http_text.rs"]
#[allow(dead_code, reason = "the tests of random input, too")]
mod http_text;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    http_text::try_query(bytes);
    http_text::try_id(bytes);
    http_text::try_payload(bytes);
});
