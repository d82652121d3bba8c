//! Tests the NATS client protocol with random input.

use proptest::prelude::*;

use crate::any_nats::try_operations;

/// Words from which random operations are composed.
const WORDS: [&str; 24] = [
    "PUB ",
    "HPUB ",
    "SUB ",
    "UNSUB ",
    "CONNECT ",
    "PING",
    "pong",
    "a.b",
    " ",
    "\t",
    "q",
    "9",
    " 3 ",
    " 16 ",
    "\r\n",
    "\n",
    "abc\r\n",
    "NATS/1.0",
    " 503 x",
    "A: b",
    ":",
    "{\"verbose\":false}",
    "\0",
    "\u{ff}",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn arbitrary_nats_words_are_parsed_or_refused(words in proptest::collection::vec(0..WORDS.len(), 0..40)) {
        let text: String = words.into_iter().map(|word| WORDS[word]).collect();
        try_operations(text.as_bytes());
    }

    #[test]
    fn arbitrary_nats_bytes_are_parsed_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        try_operations(&bytes);
    }
}
