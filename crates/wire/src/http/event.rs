//! Writes server-sent events, the text format of HTTP event streams.
//!
//! A client joins the data lines of an event with line feeds, and treats `\n`, `\r\n` and `\r` as line ends. A text
//! that contains `\r` would not arrive unchanged, and is therefore sent as binary data.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The bytes as text; `None` if they are not valid UTF-8, or if a client would not receive the text unchanged in an
/// event.
pub fn plain_text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\r'))
}

/// Appends the bytes to `out`, encoded in base64.
pub fn base64(bytes: &[u8], out: &mut String) {
    STANDARD.encode_string(bytes, out);
}

/// Writes one event. `data` must not contain `\r`; `id` and `event` must not contain a line end.
pub fn write_event(id: Option<&str>, event: Option<&str>, data: &str, out: &mut String) {
    for (name, value) in [("id: ", id), ("event: ", event)] {
        if let Some(value) = value {
            debug_assert!(!value.contains(['\n', '\r']));
            out.extend([name, value, "\n"]);
        }
    }
    data.split('\n').for_each(|line| out.extend(["data: ", line, "\n"]));
    out.push('\n');
}

/// Writes an id without an event. The client thereby learns that it has received everything up to this id.
pub fn write_id(id: &str, out: &mut String) {
    out.extend(["id: ", id, "\n\n"]);
}

/// Writes how long a client should wait before it reconnects, ms.
pub fn write_retry(ms: u64, out: &mut String) {
    out.extend(["retry: ", &ms.to_string(), "\n\n"]);
}

/// Writes a comment, which clients ignore. It shows that the connection still works.
pub fn write_comment(text: &str, out: &mut String) {
    out.extend([": ", text, "\n\n"]);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads events as the standard requires. Returns three values for each event: its data, its name, and the last id
    /// so far.
    fn read(text: &str) -> Vec<(String, Option<String>, String)> {
        let (mut events, mut id, mut event, mut data) = (Vec::new(), String::new(), None, String::new());
        for line in text.split('\n') {
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match (line, name) {
                ("", _) if data.is_empty() => event = None,
                ("", _) => {
                    let data = std::mem::take(&mut data);
                    let data = data.strip_suffix('\n').unwrap_or(&data).to_owned();
                    events.push((data, event.take(), id.clone()));
                }
                (_, "id") => id = value.to_owned(),
                (_, "event") => event = Some(value.to_owned()),
                (_, "data") => data.extend([value, "\n"]),
                _ => {}
            }
        }
        events
    }

    #[test]
    fn event_text_is_read_back_unchanged() {
        for text in ["", " ", "a", " a", "a\n", "\n", "\n\na: b\n\n", "data: x", ": no comment", "ä😀\0"] {
            let mut out = String::new();
            write_retry(1_000, &mut out);
            write_comment("x", &mut out);
            write_event(Some("7-1"), Some("gap"), plain_text(text.as_bytes()).unwrap(), &mut out);
            write_id("7-2", &mut out);
            write_event(None, None, text, &mut out);
            let expected = [
                (text.to_owned(), Some("gap".to_owned()), "7-1".to_owned()),
                (text.to_owned(), None, "7-2".to_owned()),
            ];
            assert_eq!(read(&out), expected, "{text:?}");
        }
    }

    #[test]
    fn payload_with_carriage_return_or_bad_utf8_is_no_plain_text() {
        for bytes in [b"a\r\nb".as_slice(), b"\r", b"\xff", b"a\xc3"] {
            assert_eq!(plain_text(bytes), None, "{bytes:?}");
        }
    }
}
