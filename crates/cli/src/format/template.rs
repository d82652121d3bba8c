//! A template in which the user describes each output line, such as `{seq} {subject} {payload}`.

use std::io::{self, Write};
use std::str::FromStr;

use dunlin_topic::Record;

use super::text::{self, escape};
use crate::commands::parse::unescaped;

/// A user's output template, such as `{seq} {payload}`, parsed into text and fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Field(Field),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Subject,
    Topic,
    Partition,
    Seq,
    Epoch,
    Position,
    Payload,
    Key,
    Headers,
    Time,
    EventTime,
    Reply,
    Attempt,
}

const FIELDS: &[(&str, Field)] = &[
    ("subject", Field::Subject),
    ("topic", Field::Topic),
    ("partition", Field::Partition),
    ("seq", Field::Seq),
    ("epoch", Field::Epoch),
    ("position", Field::Position),
    ("payload", Field::Payload),
    ("key", Field::Key),
    ("headers", Field::Headers),
    ("time", Field::Time),
    ("event_time", Field::EventTime),
    ("reply", Field::Reply),
    ("attempt", Field::Attempt),
];

impl FromStr for Template {
    type Err = String;

    fn from_str(text: &str) -> Result<Template, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}').ok_or("a { has no matching }")?;
            let field = FIELDS.iter().find(|field| field.0 == name).map(|field| field.1);
            let field = field.ok_or_else(|| {
                let names: Vec<_> = FIELDS.iter().map(|field| field.0).collect();
                format!("there is no field {{{name}}}: the fields are {}", names.join(", "))
            })?;
            parts.extend([Part::Text(unescaped(before)?), Part::Field(field)]);
            rest = after;
        }
        parts.push(Part::Text(unescaped(rest)?));
        Ok(Template { parts })
    }
}

impl Template {
    pub fn write(
        &self,
        record: &Record<'_>,
        attempt: Option<u32>,
        is_terminal: bool,
        out: &mut impl Write,
    ) -> io::Result<()> {
        for part in &self.parts {
            match part {
                Part::Text(text) => out.write_all(text.as_bytes())?,
                // On a terminal, control characters in the payload are escaped; otherwise, the payload is written
                // unchanged.
                Part::Field(Field::Payload) => text::payload(record.payload(), is_terminal, out)?,
                Part::Field(field) => field.write(record, attempt, out)?,
            }
        }
        Ok(())
    }
}

impl Field {
    fn write(self, record: &Record<'_>, attempt: Option<u32>, out: &mut impl Write) -> io::Result<()> {
        let frame = &record.frame;
        match self {
            Field::Subject => write!(out, "{}", record.subject()),
            Field::Topic => write!(out, "{}", record.log.topic),
            Field::Partition => write!(out, "{}", record.log.partition),
            Field::Seq => write!(out, "{}", record.seq()),
            Field::Epoch => write!(out, "{}", record.position.epoch),
            Field::Position => write!(out, "{}", record.position),
            Field::Payload => out.write_all(record.payload()),
            Field::Key => escape(frame.key().unwrap_or_default(), out),
            Field::Headers => headers(record, out),
            Field::Time => write!(out, "{}", rfc3339(frame.append_time_ns())),
            Field::EventTime => write!(out, "{}", frame.event_time_ns().map(rfc3339).unwrap_or_default()),
            Field::Reply => escape(frame.reply().unwrap_or_default().as_bytes(), out),
            Field::Attempt => write!(out, "{}", attempt.unwrap_or(1)),
        }
    }
}

fn headers(record: &Record<'_>, out: &mut impl Write) -> io::Result<()> {
    for (at, (name, value)) in record.frame.headers().enumerate() {
        write!(out, "{}{}=", if at == 0 { "" } else { " " }, text::escaped(name.as_bytes()))?;
        escape(value, out)?;
    }
    Ok(())
}

/// Formats a time as RFC 3339 text with nanoseconds.
pub fn rfc3339(unix_ns: u64) -> String {
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_nanos(unix_ns);
    humantime::format_rfc3339_nanos(time).to_string()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use dunlin_topic::{Frame, LogName, Position, RecordMeta};

    use super::*;

    #[test]
    fn template_writes_text_and_fields_in_order() {
        let meta =
            RecordMeta { key: Some(b"k\n"), headers: &[("a", b"1"), ("b", b"2")], ..RecordMeta::default() };
        let encoded = meta.measure(2).unwrap();
        let mut bytes = vec![0; encoded.padded()];
        meta.encode(encoded, 1_000_000_000, b"hi", &mut bytes);
        let (frame, _) = Frame::check(&bytes, 1 << 20).unwrap();
        let log = Arc::new(LogName { topic: "t".into(), subject_prefix: "t".into(), partition: 0 });
        let record = Record { position: Position { epoch: 3, seq: 42 }, prev_seq: 41, frame, log: &log };

        let template: Template =
            r"{position}\t{subject}={payload} [{key}] {headers} {time}{event_time} {attempt}"
                .parse()
                .unwrap();
        let mut text = Vec::new();
        template.write(&record, Some(2), false, &mut text).unwrap();
        let expected = "3-42\tt=hi [k\\n] a=1 b=2 1970-01-01T00:00:01.000000000Z 2";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }

    #[test]
    fn error_for_an_unknown_template_field_lists_the_known_fields() {
        let error = "{sequence}".parse::<Template>().unwrap_err();
        assert!(error.starts_with("there is no field {sequence}: the fields are subject, "), "{error}");
        assert!("{seq".parse::<Template>().is_err());
    }
}
