//! Formats records, states and notices as text. Each record or notice is one line.

use std::io::{self, Write};

use dunlin::now_ns;
use dunlin_topic::{
    EpochChanged, Gap, Lagging, LogName, Notice, PublisherStatus, Record, Snapshot, needs_escape,
};

use crate::console::{TextPainter, grouped};

/// Writes a record as `SEQ payload`. With `several_logs`, the subject comes first. From the second attempt on, the
/// number of the attempt precedes the payload. If `meaning`, the decoded payload, is given, it is written in place of
/// the payload's bytes.
pub fn record(
    record: &Record<'_>,
    attempt: Option<u32>,
    meaning: Option<&str>,
    several_logs: bool,
    paint: TextPainter,
    out: &mut impl Write,
) -> io::Result<()> {
    if several_logs {
        write!(out, "{} ", paint.strong(&record.subject()))?;
    }
    write!(out, "{} ", paint.faint(&record.seq().to_string()))?;
    if let Some(attempt) = attempt.filter(|attempt| *attempt > 1) {
        write!(out, "{} ", paint.warning(&format!("(attempt {attempt})")))?;
    }
    match meaning {
        Some(meaning) => out.write_all(meaning.as_bytes())?,
        None => escape(record.payload(), out)?,
    }
    out.write_all(b"\n")
}

/// Writes a state as a sentence with its entries below. `meaning` contains both; without it, only the size of the state
/// is written.
pub fn state(
    snapshot: &Snapshot,
    meaning: Option<(String, Vec<String>)>,
    several_logs: bool,
    paint: TextPainter,
    out: &mut impl Write,
) -> io::Result<()> {
    let log_suffix = if several_logs { format!("  in {}", log_name(&snapshot.log)) } else { String::new() };
    let (sentence, lines) =
        meaning.unwrap_or_else(|| (format!("{} bytes", snapshot.bytes.len()), Vec::new()));
    let at = snapshot.position;
    writeln!(out, "{}    at {at}: {sentence}{log_suffix}", paint.good("STATE"))?;
    lines.iter().try_for_each(|line| writeln!(out, "  {line}"))
}

/// Writes a notice. Its first word is in capitals, so that nobody mistakes the line for a record.
pub fn notice(
    notice: &Notice,
    several_logs: bool,
    paint: TextPainter,
    out: &mut impl Write,
) -> io::Result<()> {
    let log_suffix =
        |log: &LogName| if several_logs { format!("  in {}", log_name(log)) } else { String::new() };
    match notice {
        Notice::Gap(gap) => writeln!(out, "{}{}", gap_line(gap, paint), log_suffix(&gap.log)),
        Notice::Lagging(lagging) => {
            writeln!(out, "{}{}", lagging_line(lagging, paint), log_suffix(&lagging.log))
        }
        Notice::EpochChanged(change) => {
            writeln!(out, "{}{}", epoch_line(change, paint), log_suffix(&change.log))
        }
        Notice::Deleted { log, last } => {
            writeln!(out, "{}  {} at {last}", paint.bad("DELETED"), log_name(log))
        }
        // These notices need no line, because they report neither lost records nor a change for the user.
        Notice::Advance { .. } | Notice::Checksum(_) => Ok(()),
        Notice::Snapshot(snapshot) => state(snapshot, None, several_logs, paint, out),
        Notice::Publishers(publishers) => {
            let text = publishers_text(publishers, now_ns());
            let mark =
                if publishers.connected { paint.good("PUBLISHER") } else { paint.warning("PUBLISHER") };
            writeln!(out, "{mark}  {text}{}", log_suffix(&publishers.log))
        }
        other => writeln!(out, "{}   {other:?}", paint.warning("NOTICE")),
    }
}

fn gap_line(gap: &Gap, paint: TextPainter) -> String {
    format!(
        "{}      {} … {}  ({} record{})   now at {}",
        paint.bad("GAP"),
        grouped(gap.first),
        grouped(gap.last),
        grouped(gap.records()),
        if gap.records() == 1 { "" } else { "s" },
        grouped(gap.last + 1)
    )
}

fn lagging_line(lagging: &Lagging, paint: TextPainter) -> String {
    let (behind, retained) = (grouped(lagging.behind), grouped(lagging.retained));
    let mark = paint.warning("LAGGING");
    if lagging.behind > lagging.retained {
        // The log no longer contains all records that the subscriber has still to read. A gap will report the missing
        // records.
        return format!("{mark}  behind {behind}, and only {retained} of them are still retained");
    }
    format!("{mark}  behind {behind} of {retained} retained")
}

/// Returns a text that says whether a state topic has a connected publisher, and how old the topic's newest record is.
pub fn publishers_text(publishers: &PublisherStatus, now_ns: u64) -> String {
    let seconds = |since_ns: u64| format!("{:.1} s", now_ns.saturating_sub(since_ns) as f64 / 1e9);
    let state = match publishers.connected {
        true => "a publisher is connected".to_owned(),
        false => format!("no publisher has been connected for {}", seconds(publishers.since_ns)),
    };
    match publishers.last_append_ns {
        Some(ns) => format!("{state}; the newest record is {} old", seconds(ns)),
        None => format!("{state}; the log has no records yet"),
    }
}

fn epoch_line(change: &EpochChanged, paint: TextPainter) -> String {
    let missed = match change.known_through {
        Some(last) if last > change.last_seen => {
            format!("records up to {} were missed", grouped(last))
        }
        Some(last) if last < change.last_seen => {
            format!("the topic lost records after {}", grouped(last))
        }
        Some(_) => "no record was missed".to_owned(),
        None => "later records may be lost".to_owned(),
    };
    format!(
        "{}    {} → {}  last seen {}, {missed}   now at {}",
        paint.warning("EPOCH"),
        change.old,
        change.new_first.epoch,
        grouped(change.last_seen),
        change.new_first
    )
}

/// Returns the name of a log: its topic's name, followed by `/` and the partition unless the partition is 0.
pub fn log_name(log: &LogName) -> String {
    if log.partition == 0 { log.topic.clone() } else { format!("{}/{}", log.topic, log.partition) }
}

/// Like [`escape`], but returns text.
pub fn escaped(bytes: &[u8]) -> String {
    let mut text = Vec::new();
    // Writing to a vector does not fail.
    let _ = escape(bytes, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Writes a payload unchanged; for a terminal, control characters other than line ends are escaped.
pub fn payload(bytes: &[u8], is_terminal: bool, out: &mut impl Write) -> io::Result<()> {
    if !is_terminal {
        return out.write_all(bytes);
    }
    for (at, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        out.write_all(if at == 0 { b"" } else { b"\n" })?;
        escape(line, out)?;
    }
    Ok(())
}

/// Escapes control characters, except line ends.
pub fn escaped_lines(text: &str) -> String {
    text.split('\n').map(|line| escaped(line.as_bytes())).collect::<Vec<_>>().join("\n")
}

/// Escapes control characters, including line ends.
pub fn escape(bytes: &[u8], out: &mut impl Write) -> io::Result<()> {
    let harmless = |byte: &u8| (b' '..=b'~').contains(byte) || *byte == b'\t';
    if bytes.iter().all(harmless) {
        return out.write_all(bytes);
    }
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\t' => write!(out, "\t")?,
                c if needs_escape(c) => write!(out, "{}", c.escape_default())?,
                c => write!(out, "{c}")?,
            }
        }
        for byte in chunk.invalid() {
            write!(out, "\\x{byte:02x}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use dunlin_topic::Position;

    use super::*;

    fn line(notice_of: impl Fn(Arc<LogName>) -> Notice, several_logs: bool) -> String {
        let log = LogName { topic: "ticks".into(), subject_prefix: "ticks".into(), partition: 0 };
        let mut text = Vec::new();
        notice(&notice_of(Arc::new(log)), several_logs, TextPainter::PLAIN, &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn gap_line_shows_missing_records_and_next_position() {
        let gap = |log| Notice::Gap(Gap { log, epoch: 1, first: 40_211, last: 1_311_873 });
        assert_eq!(line(gap, false), "GAP      40,211 … 1,311,873  (1,271,663 records)   now at 1,311,874\n");
        let one = |log| Notice::Gap(Gap { log, epoch: 1, first: 5, last: 5 });
        assert_eq!(line(one, true), "GAP      5 … 5  (1 record)   now at 6  in ticks\n");
    }

    #[test]
    fn lag_warning_shows_unread_and_retained_record_counts() {
        let lagging = |log| Notice::Lagging(Lagging { log, behind: 524_288, retained: 1_048_576 });
        assert_eq!(line(lagging, false), "LAGGING  behind 524,288 of 1,048,576 retained\n");
        let lagging = |log| Notice::Lagging(Lagging { log, behind: 600, retained: 500 });
        assert_eq!(line(lagging, false), "LAGGING  behind 600, and only 500 of them are still retained\n");
    }

    #[test]
    fn text_of_an_epoch_change_names_the_missed_records() {
        let change = |known_through| {
            move |log| {
                let new_first = Position { epoch: 4, seq: 1 };
                Notice::EpochChanged(EpochChanged { log, old: 3, last_seen: 10, known_through, new_first })
            }
        };
        assert!(line(change(None), false).contains("3 → 4  last seen 10, later records may be lost"));
        assert!(line(change(Some(10)), false).contains("no record was missed"));
        assert!(line(change(Some(12)), false).contains("records up to 12 were missed"));
        assert!(line(change(Some(7)), false).contains("the topic lost records after 7"));
    }

    #[test]
    fn publisher_status_text_has_the_age_of_the_newest_record() {
        let log = Arc::new(LogName { topic: "md".into(), subject_prefix: "md".into(), partition: 0 });
        let (since_ns, last_append_ns) = (7_000_000_000, Some(5_500_000_000));
        let disconnected = PublisherStatus { log, connected: false, since_ns, last_append_ns };
        let text = "no publisher has been connected for 3.0 s; the newest record is 4.5 s old";
        assert_eq!(publishers_text(&disconnected, 10_000_000_000), text);
        let connected = PublisherStatus { connected: true, last_append_ns: None, ..disconnected };
        assert_eq!(
            publishers_text(&connected, 10_000_000_000),
            "a publisher is connected; the log has no records yet"
        );
    }

    #[test]
    fn payload_is_escaped_for_terminals_and_raw_for_pipes() {
        let bytes = b"a\tb\n\x1b[2J\r\xff\xc2\x9b\n";
        let written = |is_terminal| {
            let mut out = Vec::new();
            payload(bytes, is_terminal, &mut out).unwrap();
            out
        };
        assert_eq!(String::from_utf8(written(true)).unwrap(), "a\tb\n\\u{1b}[2J\\r\\xff\\u{9b}\n");
        assert_eq!(written(false), bytes);
    }

    #[test]
    fn escaped_payload_has_no_newline_or_terminal_command() {
        let escaped = |bytes: &[u8]| {
            let mut text = Vec::new();
            escape(bytes, &mut text).unwrap();
            String::from_utf8(text).unwrap()
        };
        assert_eq!(escaped("tick – ö\t1".as_bytes()), "tick – ö\t1");
        assert_eq!(escaped(b"a\nb\x1b[31m\xff"), "a\\nb\\u{1b}[31m\\xff");
    }
}
