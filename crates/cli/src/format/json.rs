//! Formats records, states and notices as JSON objects with all their values.

use std::io::{self, Write};

use dunlin_topic::{LogName, Notice, PublisherStatus, Record, Snapshot};
use serde_json::{Map, Value, json};

/// Writes a record. `entries` are the decoded entries of its payload, if the record belongs to a state topic. Payload,
/// key and header values are text if they are UTF-8. Other bytes are in base64, in a field whose name ends with
/// `_base64`.
pub fn record(
    record: &Record<'_>,
    attempt: Option<u32>,
    entries: Option<Value>,
    out: &mut impl Write,
) -> io::Result<()> {
    let frame = &record.frame;
    let mut object = head("record", record.log);
    object.insert("subject".into(), record.subject().into());
    object.insert("epoch".into(), record.position.epoch.into());
    object.insert("seq".into(), record.seq().into());
    // Times are text, because most JSON readers cannot represent numbers above 2^53 exactly.
    object.insert("append_time_ns".into(), frame.append_time_ns().to_string().into());
    let mut optional =
        |name: &str, value: Option<Value>| value.map(|value| object.insert(name.into(), value));
    optional("attempt", attempt.map(Value::from));
    // This field is written only if the sequence numbers directly before this record's were not delivered, for example
    // because of conflation.
    optional("prev_seq", (record.prev_seq + 1 < record.seq()).then(|| record.prev_seq.into()));
    optional("entries", entries);
    optional("event_time_ns", frame.event_time_ns().map(|ns| ns.to_string().into()));
    optional("expires_ns", frame.expires_ns().map(|ns| ns.to_string().into()));
    optional("reply", frame.reply().map(Value::from));
    if let Some(key) = frame.key() {
        put_bytes(&mut object, "key", key);
    }
    let headers: Vec<Value> = frame.headers().map(header).collect();
    if !headers.is_empty() {
        object.insert("headers".into(), headers.into());
    }
    put_bytes(&mut object, "payload", record.payload());
    write_line(object, out)
}

/// Returns a header as an object. A record has a JSON array of such objects, because a name may appear twice and the
/// order of headers matters.
fn header((name, value): (&str, &[u8])) -> Value {
    let mut object = Map::new();
    object.insert("name".into(), name.into());
    put_bytes(&mut object, "value", value);
    object.into()
}

/// Writes a state: its kind and its entries if `known` contains them, otherwise its bytes.
pub fn state(snapshot: &Snapshot, known: Option<(String, Value)>, out: &mut impl Write) -> io::Result<()> {
    let mut object = head("state", &snapshot.log);
    object.insert("epoch".into(), snapshot.position.epoch.into());
    object.insert("seq".into(), snapshot.position.seq.into());
    object.insert("checksum".into(), format!("{:016x}", snapshot.checksum).into());
    match known {
        Some((kind, entries)) => {
            object.insert("kind".into(), kind.into());
            object.insert("entries".into(), entries);
        }
        None => {
            object.insert("bytes_base64".into(), base64(&snapshot.bytes).into());
        }
    }
    write_line(object, out)
}

pub fn notice(notice: &Notice, out: &mut impl Write) -> io::Result<()> {
    let (mut object, more) = match notice {
        Notice::Gap(gap) => (
            head("gap", &gap.log),
            json!({"epoch": gap.epoch, "first": gap.first, "last": gap.last, "records": gap.records()}),
        ),
        Notice::Lagging(lagging) => {
            (head("lagging", &lagging.log), json!({"behind": lagging.behind, "retained": lagging.retained}))
        }
        Notice::EpochChanged(change) => (
            head("epoch_changed", &change.log),
            json!({
                "old": change.old, "last_seen": change.last_seen, "known_through": change.known_through,
                "epoch": change.new_first.epoch, "seq": change.new_first.seq,
            }),
        ),
        Notice::Advance { log, through } => {
            (head("advance", log), json!({"epoch": through.epoch, "through": through.seq}))
        }
        Notice::Deleted { log, last } => {
            (head("deleted", log), json!({"epoch": last.epoch, "last": last.seq}))
        }
        Notice::Snapshot(snapshot) => return state(snapshot, None, out),
        Notice::Publishers(status) => return publishers(status, out),
        Notice::Checksum(sum) => (
            head("checksum", &sum.log),
            json!({
                "epoch": sum.position.epoch, "seq": sum.position.seq,
                "checksum": format!("{:016x}", sum.checksum),
            }),
        ),
        other => (Map::new(), json!({"event": "notice", "text": format!("{other:?}")})),
    };
    if let Value::Object(more) = more {
        object.extend(more);
    }
    write_line(object, out)
}

/// Writes whether a state topic has a connected publisher, and since when this is so.
fn publishers(publishers: &PublisherStatus, out: &mut impl Write) -> io::Result<()> {
    let mut object = head("publishers", &publishers.log);
    object.insert("connected".into(), publishers.connected.into());
    object.insert("since_ns".into(), publishers.since_ns.to_string().into());
    object.insert("last_append_ns".into(), publishers.last_append_ns.map(|ns| ns.to_string()).into());
    write_line(object, out)
}

fn head(event: &str, log: &LogName) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("event".into(), event.into());
    object.insert("topic".into(), log.topic.clone().into());
    object.insert("partition".into(), log.partition.into());
    object
}

pub fn put_bytes(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object.insert(name.into(), text.into()),
        Err(_) => object.insert(format!("{name}_base64"), base64(bytes).into()),
    };
}

fn write_line(object: Map<String, Value>, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer(&mut *out, &Value::Object(object))?;
    out.write_all(b"\n")
}

pub fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let bits =
            three.iter().fold(0u32, |bits, &byte| bits << 8 | u32::from(byte)) << (8 * (3 - three.len()));
        for digit in 0..4 {
            let six = (bits >> (18 - 6 * digit)) & 63;
            text.push(if digit <= three.len() { DIGITS[six as usize] as char } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use dunlin_topic::{Frame, Position, RecordMeta};

    use super::*;

    #[test]
    fn base64_encodes_bytes_with_padding() {
        let pairs: [(&[u8], &str); 5] =
            [(b"", ""), (b"f", "Zg=="), (b"fo", "Zm8="), (b"foo", "Zm9v"), (b"\xff\xfe\xfd\xfc", "//79/A==")];
        for (bytes, text) in pairs {
            assert_eq!(base64(bytes), text);
        }
    }

    #[test]
    fn json_object_has_every_field_of_a_record() {
        let headers: &[(&str, &[u8])] = &[("trace", b"7f"), ("raw", b"\xff")];
        let meta = RecordMeta {
            subject_tail: "eu",
            key: Some(b"k"),
            headers,
            event_time_ns: Some(5),
            ..RecordMeta::default()
        };
        let encoded = meta.measure(2).unwrap();
        let mut bytes = vec![0; encoded.padded()];
        meta.encode(encoded, 9, b"hi", &mut bytes);
        let (frame, _) = Frame::check(&bytes, 1 << 20).unwrap();
        let log =
            Arc::new(LogName { topic: "orders".into(), subject_prefix: "orders.".into(), partition: 2 });
        let mut text = Vec::new();
        record(
            &Record { position: Position { epoch: 1, seq: 42 }, prev_seq: 41, frame, log: &log },
            None,
            None,
            &mut text,
        )
        .unwrap();
        let object: Value = serde_json::from_slice(&text).unwrap();
        let expected = json!({
            "event": "record", "topic": "orders", "partition": 2, "subject": "orders.eu", "epoch": 1, "seq": 42,
            "append_time_ns": "9", "event_time_ns": "5", "key": "k", "payload": "hi",
            "headers": [{"name": "trace", "value": "7f"}, {"name": "raw", "value_base64": "/w=="}],
        });
        assert_eq!(object, expected);
    }
}
