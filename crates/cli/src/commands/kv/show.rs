//! Formats the keys, values and changes that `dunlin kv` prints, as text and JSON.

use std::io::{self, Write};

use dunlin_client::{Change, KvEntry};
use dunlin_topic::needs_escape;
use serde_json::{Value, json};

use crate::console::Console;
use crate::format::base64;

/// Returns the bytes as a JSON string if they are UTF-8, otherwise as an object that contains them in base64.
pub fn to_json(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => json!(text),
        Err(_) => json!({ "base64": base64(bytes) }),
    }
}

/// Returns the bytes as one line of text.
pub fn line(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().flat_map(escaped).collect()
}

fn escaped(char: char) -> Vec<char> {
    if needs_escape(char) { char.escape_default().collect() } else { vec![char] }
}

/// Returns an entry as a JSON object with the key and all its fields.
pub fn entry(entry: &KvEntry) -> Value {
    json!({
        "key": to_json(&entry.key), "value": to_json(&entry.value), "created": entry.created,
        "modified": entry.modified, "version": entry.version, "lease": entry.lease,
    })
}

/// Prints the changes of one revision.
pub fn change(change: &Change, console: &Console, out: &mut impl Write) -> io::Result<()> {
    let revision = change.revision;
    if console.json {
        let events = change.events.iter().map(|event| match event {
            Ok(put) => entry(put),
            Err(key) => json!({ "deleted": to_json(key) }),
        });
        return writeln!(
            out,
            "{}",
            json!({"epoch": change.epoch, "revision": revision, "events": events.collect::<Vec<_>>()})
        );
    }
    change.events.iter().try_for_each(|event| match event {
        Ok(entry) => writeln!(out, "{revision}\tput\t{}\t{}", line(&entry.key), line(&entry.value)),
        Err(key) => writeln!(out, "{revision}\tdel\t{}", line(key)),
    })
}
