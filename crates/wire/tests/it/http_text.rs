//! Checks of the HTTP text formats with any input. The random tests here and the fuzzer use these checks.

use dunlin_wire::http::{ResumeToken, plain_text, query_pairs, write_event};

/// Checks that the names and values of a query string can be written and read again unchanged, unless the query string
/// is refused.
pub fn try_query(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(pairs) = query_pairs(text).collect::<Result<Vec<_>, _>>() else { return };
    let encode = |text: &str| text.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
    let again: Vec<_> =
        pairs.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect();
    assert_eq!(query_pairs(&again.join("&")).collect::<Result<Vec<_>, _>>(), Ok(pairs));
}

/// Checks that an event id is either refused, or can be written and read again unchanged.
pub fn try_id(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(resume) = ResumeToken::parse(text) else { return };
    let mut again = String::new();
    resume.write(&mut again);
    assert_eq!(ResumeToken::parse(&again), Ok(resume));
}

/// Checks that a client that reads the event receives exactly these bytes, unless they are not sent as text.
pub fn try_payload(bytes: &[u8]) {
    let Some(text) = plain_text(bytes) else { return };
    let mut out = String::new();
    write_event(Some("1-1"), None, text, &mut out);
    let mut lines = out.split('\n');
    assert_eq!(lines.next(), Some("id: 1-1"));
    let data: Vec<_> = lines.map_while(|line| line.strip_prefix("data: ")).collect();
    assert_eq!(data.join("\n"), text);
    assert_eq!(out.matches("\n\n").count(), 1, "one event");
    assert!(out.ends_with("\n\n"));
}
