//! Writes records and notices as server-sent events.

use dunlin::topic::{LogName, Notice, Position, Record};
use dunlin::wire::http::{base64, plain_text, write_event};
use serde_json::{Map, Value, json};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) enum RecordFormat {
    /// The event contains only the record's payload.
    Payload,
    /// The event contains the whole record as JSON, in the format of `dunlin sub --json`.
    Json,
}

/// The name of an event whose payload is encoded as base64, because it is not UTF-8.
const BASE64: &str = "base64";

pub(in crate::http) fn write_record(
    format: RecordFormat,
    record: &Record<'_>,
    id: Option<&str>,
    out: &mut String,
) {
    match (format, plain_text(record.payload())) {
        (RecordFormat::Payload, Some(text)) => write_event(id, None, text, out),
        (RecordFormat::Payload, None) => {
            let mut text = String::with_capacity(record.payload().len().div_ceil(3) * 4);
            base64(record.payload(), &mut text);
            write_event(id, Some(BASE64), &text, out);
        }
        (RecordFormat::Json, _) => {
            write_event(id, None, &Value::Object(record_object(record)).to_string(), out)
        }
    }
}

pub(in crate::http) fn record_object(record: &Record<'_>) -> Map<String, Value> {
    let frame = &record.frame;
    let mut object = head(record.log);
    let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
    put("subject", record.subject().into());
    put("position", record.position.to_string().into());
    put("epoch", record.position.epoch.into());
    put("seq", record.seq().into());
    // Times are written as text, because most JSON parsers do not represent numbers above 2^53 exactly.
    put("append_time_ns", frame.append_time_ns().to_string().into());
    frame.event_time_ns().map(|ns| put("event_time_ns", ns.to_string().into()));
    frame.expires_ns().map(|ns| put("expires_ns", ns.to_string().into()));
    frame.reply().map(|reply| put("reply", reply.into()));
    if let Some(key) = frame.key() {
        put_bytes(&mut object, "key", key);
    }
    let headers: Vec<Value> = frame.headers().map(header_json).collect();
    if !headers.is_empty() {
        object.insert("headers".to_owned(), headers.into());
    }
    put_bytes(&mut object, "payload", record.payload());
    object
}

fn header_json((name, value): (&str, &[u8])) -> Value {
    let mut object = Map::new();
    object.insert("name".to_owned(), name.into());
    put_bytes(&mut object, "value", value);
    object.into()
}

fn put_bytes(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object.insert(name.to_owned(), text.into()),
        Err(_) => {
            let mut text = String::new();
            base64(bytes, &mut text);
            object.insert(format!("{name}_base64"), text.into())
        }
    };
}

fn head(log: &LogName) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("topic".to_owned(), log.topic.clone().into());
    object.insert("partition".to_owned(), log.partition.into());
    object
}

/// Converts a notice to the name and the data of an event. `None` for a notice that causes no event.
pub(in crate::http) fn notice_event(notice: &Notice) -> Option<(&'static str, Value)> {
    let event = |name, log: &LogName, more: Value| {
        let mut object = head(log);
        if let Value::Object(more) = more {
            object.extend(more);
        }
        Some((name, Value::Object(object)))
    };
    match notice {
        Notice::Gap(gap) => {
            let more =
                json!({"epoch": gap.epoch, "first": gap.first, "last": gap.last, "records": gap.records()});
            event("gap", &gap.log, more)
        }
        Notice::Lagging(lagging) => {
            event("lagging", &lagging.log, json!({"behind": lagging.behind, "retained": lagging.retained}))
        }
        Notice::EpochChanged(changed) => {
            let more = json!({
                "old": changed.old, "last_seen": changed.last_seen, "known_through": changed.known_through,
                "new_first": changed.new_first.to_string(),
            });
            event("epoch", &changed.log, more)
        }
        Notice::Snapshot(snapshot) => {
            let mut state = String::with_capacity(snapshot.bytes.len().div_ceil(3) * 4);
            base64(&snapshot.bytes, &mut state);
            let more = json!({
                "position": snapshot.position.to_string(), "checksum": format!("{:016x}", snapshot.checksum),
                "state_base64": state,
            });
            event("snapshot", &snapshot.log, more)
        }
        Notice::Checksum(sum) => {
            let more =
                json!({"position": sum.position.to_string(), "checksum": format!("{:016x}", sum.checksum)});
            event("checksum", &sum.log, more)
        }
        Notice::Publishers(publishers) => {
            let mut more = json!({
                "connected": publishers.connected, "since_ns": publishers.since_ns.to_string(),
            });
            if let Some(ns) = publishers.last_append_ns {
                more["last_append_ns"] = ns.to_string().into();
            }
            event("publishers", &publishers.log, more)
        }
        Notice::Deleted { log, last } => event("deleted", log, json!({"last": last.to_string()})),
        _ => None,
    }
}

/// The log and the position at which a subscriber is after a notice; `None` if the notice does not change the position.
pub(in crate::http) fn position_after(notice: &Notice) -> Option<(&std::sync::Arc<LogName>, Position)> {
    let before = |next: Position| Position { seq: next.seq - 1, ..next };
    match notice {
        Notice::Gap(gap) => Some((&gap.log, Position { epoch: gap.epoch, seq: gap.last })),
        Notice::EpochChanged(changed) => Some((&changed.log, before(changed.new_first))),
        Notice::Snapshot(snapshot) => Some((&snapshot.log, snapshot.position)),
        Notice::Advance { log, through } => Some((log, *through)),
        _ => None,
    }
}

/// Writes an event with the number of logs for which the client stated positions, but which no longer exist.
pub(in crate::http) fn write_deleted_logs(logs: usize, out: &mut String) {
    write_event(None, Some("deleted"), &json!({"topic": null, "logs": logs}).to_string(), out);
}
