//! Reads and writes recordings. A recording is a directory with a log for each topic.
//!
//! A log has the topic's records in order, with sequence numbers of its own. The recorder adds records with these
//! headers:
//!
//! | header | meaning of the record |
//! |---|---|
//! | `dunlin-state` | The payload is a complete state. Every log begins with such a record. The header's value is the reducer's kind and options: `book price_decimals=2 tick=1` |
//! | `dunlin-pattern` | Only in a state: the pattern of the topic's subjects, unless the topic's name is its only subject. Earlier versions of Dunlin ignore this header |
//! | `dunlin-sum` | The header's value is the checksum of the state at this position, as the topic's owner reported it. The record has no payload |
//! | `dunlin-end` | The topic was deleted at this position. A region's topic is deleted when its process gives the region up. If the topic was created again, a state follows |
//!
//! The crate `dunlin-journal` defines the bytes of a log.

pub mod list;
mod log;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use dunlin_topic::{Frame, Pattern, ReducerConfig};

use crate::console::{Console, format_bytes, grouped};
use crate::outcome::CommandRefusal;
pub use log::{RecordedLog, encode};

/// The header of a record that is a complete state.
const STATE: &str = "dunlin-state";
/// The header of a state with the pattern of the topic's subjects.
const PATTERN: &str = "dunlin-pattern";
/// The header of a record with the checksum of the state.
const SUM: &str = "dunlin-sum";

/// The header of a record that marks the topic's deletion.
const END: &str = "dunlin-end";

/// The kind of a frame in a recording: a record, a state, a checksum, or the end of a topic.
#[derive(Debug)]
pub enum FrameKind {
    /// A complete state of a topic with this configuration.
    State(RecordedConfig),
    /// The checksum of the state.
    Sum(u64),
    /// The topic was deleted.
    End,
    /// A record of the topic.
    Record,
}

/// The configuration of a recorded topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedConfig {
    pub reducer: ReducerConfig,
    /// The pattern of the topic's subjects; `None` if the topic's name is its only subject, or if an earlier version of
    /// Dunlin recorded the topic.
    pub pattern: Option<Pattern>,
}

/// Returns the kind of a frame. Fails if a header that the recorder added is malformed.
pub fn frame_kind(frame: &Frame<'_>) -> Result<FrameKind, CommandRefusal> {
    for (name, value) in frame.headers() {
        let text = || String::from_utf8_lossy(value).into_owned();
        match name {
            STATE => {
                let (reducer, pattern) = (parse_reducer(&text()), read_pattern(frame)?);
                return Ok(FrameKind::State(RecordedConfig { reducer, pattern }));
            }
            SUM => {
                let sum = u64::from_str_radix(&text(), 16);
                return sum
                    .map(FrameKind::Sum)
                    .map_err(|_| CommandRefusal(format!("{:?} is not a checksum", text())));
            }
            END => return Ok(FrameKind::End),
            _ => {}
        }
    }
    Ok(FrameKind::Record)
}

/// Returns the pattern in the headers of a recorded state; `None` if the headers contain no pattern.
fn read_pattern(frame: &Frame<'_>) -> Result<Option<Pattern>, CommandRefusal> {
    let invalid = |why: &dyn std::fmt::Display| {
        CommandRefusal(format!("the recorded pattern of the topic's subjects is invalid: {why}"))
    };
    let Some((_, value)) = frame.headers().find(|(name, _)| *name == PATTERN) else { return Ok(None) };
    let text = std::str::from_utf8(value).map_err(|error| invalid(&error))?;
    Pattern::parse(text).map(Some).map_err(|error| invalid(&error))
}

/// The maximum number of characters that an error message shows of a subject tail, the part of a subject after the
/// literal prefix of the pattern.
const TAIL_CHARS_SHOWN_MAX: usize = 100;

/// Checks that the pattern matches the subject of the record. States and merged records have no subject and are
/// accepted.
pub fn check_subject(pattern: &Pattern, frame: &Frame<'_>) -> Result<(), CommandRefusal> {
    let tail = frame.subject_tail();
    if tail.is_empty() || pattern.matches_parts(pattern.literal_prefix(), tail) {
        return Ok(());
    }
    let shown: String = tail.chars().take(TAIL_CHARS_SHOWN_MAX).collect();
    let message =
        format!("the subject tail {shown:?} does not match the topic's pattern {}", pattern.as_str());
    Err(CommandRefusal(message))
}

/// Formats the kind and the options of a reducer in one line.
fn reducer_text(reducer: &ReducerConfig) -> String {
    let options = reducer.options.iter().map(|(name, value)| format!(" {name}={value}"));
    std::iter::once(reducer.kind.clone()).chain(options).collect()
}

fn parse_reducer(text: &str) -> ReducerConfig {
    let (kind, rest) = text.split_once(' ').unwrap_or((text, ""));
    let pairs = rest.split(' ').filter_map(|pair| pair.split_once('='));
    let options: BTreeMap<String, String> =
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    ReducerConfig { kind: kind.to_owned(), options }
}

/// Returns the directory of a topic's log in a recording. Characters that directory names cannot contain are escaped.
pub fn topic_dir(recording: &Path, topic: &str) -> PathBuf {
    let safe = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let name: String = topic.chars().flat_map(|c| escaped(c, safe(c))).collect();
    recording.join(name)
}

fn escaped(c: char, safe: bool) -> Vec<char> {
    if safe {
        return vec![c];
    }
    let mut bytes = [0; 4];
    c.encode_utf8(&mut bytes)
        .bytes()
        .flat_map(|byte| format!("%{byte:02x}").chars().collect::<Vec<_>>())
        .collect()
}

/// Creates the directory of a recording. Fails if it exists and is not empty.
pub fn create_dir(recording: &Path) -> Result<()> {
    let shown = recording.display();
    if fs::read_dir(recording).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(CommandRefusal(format!("{shown} is not empty: give a new or empty directory")).into());
    }
    fs::create_dir_all(recording).with_context(|| format!("cannot create {shown}"))
}

/// The contents of a recording: the number of records, without checksum records, and the number of complete states.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecordCounts {
    pub records: u64,
    pub states: u64,
}

impl RecordCounts {
    /// Formats the counts of a recording of `topics` topics, such as `20,015 records and 1 state of 1 topic`.
    pub fn describe(self, topics: usize) -> String {
        let many = |count: u64, what: &str| {
            format!("{} {what}{}", grouped(count), if count == 1 { "" } else { "s" })
        };
        let states =
            if self.states == 0 { String::new() } else { format!(" and {}", many(self.states, "state")) };
        format!("{}{states} of {}", many(self.records, "record"), many(topics as u64, "topic"))
    }
}

impl std::ops::AddAssign for RecordCounts {
    fn add_assign(&mut self, other: RecordCounts) {
        self.records += other.records;
        self.states += other.states;
    }
}

/// Prints the numbers of recorded records and states.
pub fn print_counts(
    counts: RecordCounts,
    topics: usize,
    bytes: u64,
    more: &str,
    console: &Console,
) -> Result<()> {
    let mark = console.errors.good("recorded");
    Ok(writeln!(std::io::stderr(), "{mark} {}, {}{more}", counts.describe(topics), format_bytes(bytes))?)
}

/// Returns the directories of the logs in a recording. If the given directory is itself a log, returns only this
/// directory.
pub fn log_dirs(recording: &Path) -> Result<Vec<PathBuf>> {
    let context = || format!("cannot read {}", recording.display());
    let (mut folders, mut is_log) = (Vec::new(), false);
    for entry in fs::read_dir(recording).with_context(context)? {
        let path = entry.with_context(context)?.path();
        if path.is_dir() {
            folders.push(path);
        } else {
            is_log |= path.extension().is_some_and(|extension| extension == "log");
        }
    }
    if folders.is_empty() && is_log {
        folders.push(recording.to_owned());
    }
    if folders.is_empty() {
        return Err(CommandRefusal(format!("{} has no recording", recording.display())).into());
    }
    folders.sort();
    Ok(folders)
}

#[cfg(test)]
mod tests {
    use dunlin_feed::{BOOK, BookEntry, LAST, ORDERS, OrderEntry, Side, ValueEntry};
    use dunlin_topic::Reducer;
    use dunlin_topic::frame::RecordMeta;

    use super::*;
    use crate::state::State;

    fn state(kind: &str) -> State {
        State::of(&ReducerConfig { kind: kind.to_owned(), ..ReducerConfig::default() }).unwrap()
    }

    fn frame(header: (&str, &str), payload: &[u8]) -> Vec<u8> {
        let (headers, mut bytes) = ([(header.0, header.1.as_bytes())], Vec::new());
        encode(&RecordMeta { headers: &headers, ..RecordMeta::default() }, 1, payload, &mut bytes).unwrap();
        bytes
    }

    fn apply(state: &mut State, seq: u64, payload: &[u8]) {
        let bytes = frame((STATE, "x"), payload);
        let (frame, _) = Frame::split(&bytes).unwrap();
        state.check(&mut std::iter::once(frame)).unwrap();
        state.apply(seq, &frame).unwrap();
    }

    #[test]
    fn state_restored_from_a_recording_equals_the_recorded_state() {
        let mut levels = Vec::new();
        BookEntry::Set { side: Side::Bid, price: 7, size: 2 }.encode(&mut levels);
        let mut orders = Vec::new();
        for id in [3, 1, 2] {
            OrderEntry::Add { side: Side::Ask, id, price: 9, size: 5 }.encode(&mut orders);
        }
        let mut values = Vec::new();
        ValueEntry::Set { key: b"k", value: b"v" }.encode(&mut values);
        for (kind, payload) in [(BOOK, levels), (ORDERS, orders), (LAST, values)] {
            let mut recorded = state(kind);
            apply(&mut recorded, 1, &payload);
            let mut other = state(kind);
            apply(&mut other, 1, &recorded.encode_snapshot());
            assert_eq!(other.checksum(), recorded.checksum(), "{kind}");
            assert_ne!(other.checksum(), state(kind).checksum(), "{kind}");
        }
    }

    #[test]
    fn recording_ends_when_its_topic_gets_another_reducer() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = RecordedLog::create(folder.path(), "t", None).unwrap();
        log.append_state(&state(LAST)).unwrap();
        log.append_state(&state(LAST)).unwrap();
        let refused = log.append_state(&state(BOOK)).unwrap_err();
        assert!(refused.to_string().contains("another reducer"), "{refused}");
        assert_eq!(log.counts().states, 2);
        log.close().unwrap();
    }

    #[test]
    fn recording_with_an_invalid_topic_pattern_is_refused() {
        let read = |pattern: Option<&[u8]>| {
            let mut headers = vec![(STATE, &b"last"[..])];
            headers.extend(pattern.map(|pattern| (PATTERN, pattern)));
            let mut bytes = Vec::new();
            encode(&RecordMeta { headers: &headers, ..RecordMeta::default() }, 1, b"", &mut bytes).unwrap();
            frame_kind(&Frame::split(&bytes).unwrap().0)
        };
        let has_pattern = |kind: Result<FrameKind, CommandRefusal>, expected: Option<&str>| match kind {
            Ok(FrameKind::State(config)) => config.pattern.as_ref().map(Pattern::as_str) == expected,
            _ => false,
        };
        assert!(has_pattern(read(None), None), "an earlier version wrote it");
        assert!(has_pattern(read(Some(&b"p.*.>"[..])), Some("p.*.>")));
        let long = "a".repeat(dunlin_topic::SUBJECT_BYTES_MAX + 1);
        for malformed in [&b""[..], b"p..q", b"p.>.q", b"\xff", b"p q", long.as_bytes()] {
            let refused = read(Some(malformed)).unwrap_err();
            assert!(refused.0.starts_with("the recorded pattern of the topic's subjects is invalid: "));
        }
    }

    #[test]
    fn record_outside_the_recorded_pattern_is_refused() {
        let check = |pattern: &str, subject_tail: &str| {
            let mut bytes = Vec::new();
            encode(&RecordMeta { subject_tail, ..RecordMeta::default() }, 1, b"", &mut bytes).unwrap();
            check_subject(&Pattern::parse(pattern).unwrap(), &Frame::split(&bytes).unwrap().0)
        };
        assert!(check("p.*", "a").is_ok() && check("p.*", "").is_ok() && check("p.>", "a.b").is_ok());
        assert_eq!(
            check("p.*", "a.b").unwrap_err().0,
            "the subject tail \"a.b\" does not match the topic's pattern p.*"
        );
        assert!(check("p", "a").is_err());
        assert!(check("p.*", &".".repeat(60_000)).unwrap_err().0.len() < 200);
    }

    #[test]
    fn state_and_checksum_frames_of_a_recording_are_recognized() {
        let reducer =
            ReducerConfig { kind: BOOK.to_owned(), options: [("tick".to_owned(), "5".to_owned())].into() };
        let bytes = frame((STATE, &reducer_text(&reducer)), b"x");
        let (first, taken) = Frame::split(&bytes).unwrap();
        assert!(matches!(frame_kind(&first), Ok(FrameKind::State(read)) if read.reducer == reducer));
        assert_eq!(taken, bytes.len());
        let bytes = frame((SUM, "00ff"), b"");
        assert!(matches!(frame_kind(&Frame::split(&bytes).unwrap().0), Ok(FrameKind::Sum(0xff))));
        let bytes = frame((SUM, "soon"), b"");
        assert!(frame_kind(&Frame::split(&bytes).unwrap().0).is_err());
    }

    #[test]
    fn counts_of_records_and_states_use_singular_and_plural() {
        let counts = |records, states| RecordCounts { records, states };
        assert_eq!(counts(20_015, 1).describe(1), "20,015 records and 1 state of 1 topic");
        assert_eq!(counts(1, 0).describe(2), "1 record of 2 topics");
    }

    #[test]
    fn recording_folder_name_escapes_special_characters() {
        let root = Path::new("/r");
        assert_eq!(topic_dir(root, "md.BTC-USD"), Path::new("/r/md.BTC-USD"));
        assert_eq!(topic_dir(root, "md.a/b%"), Path::new("/r/md.a%2fb%25"));
    }
}
