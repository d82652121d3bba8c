//! The file in a recording that lists the recording's topics. It is written when the recording ends, so that `dunlin
//! feed verify` notices a missing topic.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use dunlin_journal::{Reader, RealDisk};
use dunlin_server::read_file_up_to;

const NAME: &str = "topics";
const HEADING: &str = "dunlin recording 2";
const HEADING_1: &str = "dunlin recording 1";
/// The largest size of a list of topics, in bytes.
const LIST_BYTES_MAX: u64 = 1 << 30;

/// The description of one topic in a recording's list of topics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordedTopic {
    pub records: u64,
    /// The number that identifies the log's first file; `None` in a list of version 1, which contains no identities.
    pub identity: Option<u64>,
}

impl RecordedTopic {
    /// Returns the list's entry for the closed log in directory `dir`, which contains `records` records.
    pub fn of(dir: &Path, records: u64) -> Result<RecordedTopic> {
        let reader = Reader::open(Arc::new(RealDisk), dir).context("cannot read the recorded topics")?;
        Ok(RecordedTopic { records, identity: reader.identity() })
    }
}

/// The list of the topics in a recording: a [`RecordedTopic`] for each topic name.
pub type RecordedTopics = BTreeMap<String, RecordedTopic>;

/// Writes the list into the directory of the recording, beside the logs, and syncs it to disk.
pub fn write(recording: &Path, topics: &RecordedTopics) -> Result<()> {
    let path = recording.join(NAME);
    let mut text = format!("{HEADING}\n");
    for (topic, RecordedTopic { records, identity }) in topics {
        text += &format!("{records} {:016x} {topic}\n", identity.unwrap_or(0));
    }
    text += &format!("{} topics\n", topics.len());
    let written = File::create_new(&path).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// Whether the recording has a list of its topics. A recorder writes the list after it has closed all logs.
pub fn exists(recording: &Path) -> bool {
    recording.join(NAME).is_file()
}

/// Compares the list of topics in the directory `recording` with `found`, the topics of the logs in this directory.
/// Returns a description of each difference.
pub fn find_problems(recording: &Path, found: &RecordedTopics) -> Vec<String> {
    let listed = match read_file_up_to(&recording.join(NAME), LIST_BYTES_MAX) {
        Ok(text) => match String::from_utf8(text).ok().and_then(|text| parse(&text)) {
            Some(listed) => listed,
            None => return vec!["the recording's list of topics is damaged".to_owned()],
        },
        Err(error) => {
            return vec![format!("the recording was not closed: cannot read its list of topics: {error}")];
        }
    };
    let missing = listed.keys().filter(|topic| !found.contains_key(*topic));
    let missing = missing.map(|topic| {
        format!("topic {topic} is in the recording's list of topics, but the recording has no log of it")
    });
    let other = found.iter().filter_map(|(topic, entry)| match listed.get(topic) {
        None => Some(format!("topic {topic} is not in the recording's list of topics")),
        Some(listed) if listed.records != entry.records => {
            let (records, listed) = (entry.records, listed.records);
            Some(format!(
                "topic {topic} has {records} records, but the recording's list of topics says {listed}"
            ))
        }
        Some(RecordedTopic { identity: listed @ Some(_), .. }) if *listed != entry.identity => {
            Some(format!("the log of topic {topic} belongs to another recording"))
        }
        Some(_) => None,
    });
    missing.chain(other).collect()
}

fn parse(text: &str) -> Option<RecordedTopics> {
    let mut lines = text.strip_suffix('\n')?.lines();
    let count = lines.next_back()?.strip_suffix(" topics")?.parse::<usize>().ok()?;
    let has_identities = match lines.next()? {
        HEADING => true,
        HEADING_1 => false,
        _ => return None,
    };
    let mut topics = RecordedTopics::new();
    for line in lines {
        let (records, rest) = line.split_once(' ')?;
        let (identity, topic) = match has_identities {
            true => {
                let (identity, topic) = rest.split_once(' ')?;
                (Some(u64::from_str_radix(identity, 16).ok()?), topic)
            }
            false => (None, rest),
        };
        let entry = RecordedTopic { records: records.parse().ok()?, identity };
        // If a topic has two lines, the list is invalid.
        if topics.insert(topic.to_owned(), entry).is_some() {
            return None;
        }
    }
    (topics.len() == count).then_some(topics)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_of_a_recording_finds_missing_added_and_cut_topics() {
        let folder = tempfile::tempdir().unwrap();
        let entry = |records| RecordedTopic { records, identity: Some(records * 3) };
        let topics = |all: &[(&str, u64)]| -> RecordedTopics {
            all.iter().map(|(topic, records)| ((*topic).to_owned(), entry(*records))).collect()
        };
        let problems_with = |found: &[(&str, u64)]| find_problems(folder.path(), &topics(found));
        assert!(problems_with(&[]).concat().contains("not closed"));
        write(folder.path(), &topics(&[("md.a", 5), ("md.b c", 7)])).unwrap();
        assert_eq!(problems_with(&[("md.a", 5), ("md.b c", 7)]), [""; 0]);
        assert!(problems_with(&[("md.a", 5)]).concat().contains(
            "topic md.b c is in the recording's list of topics, but the recording has no log of it"
        ));
        assert!(
            problems_with(&[("md.a", 5), ("md.b c", 7), ("md.x", 1)])
                .concat()
                .contains("topic md.x is not in the recording's list")
        );
        assert!(
            problems_with(&[("md.a", 4), ("md.b c", 7)])
                .concat()
                .contains("md.a has 4 records, but the recording")
        );
        let mut swapped = topics(&[("md.a", 5), ("md.b c", 7)]);
        swapped.insert("md.a".to_owned(), RecordedTopic { records: 5, identity: Some(1) });
        let problems = find_problems(folder.path(), &swapped);
        assert_eq!(problems, ["the log of topic md.a belongs to another recording"]);
    }

    #[test]
    fn truncated_or_changed_list_of_recorded_topics_is_rejected() {
        let (old, new) = (
            "dunlin recording 1\n5 md.a\n7 md.b\n2 topics\n",
            "dunlin recording 2\n5 1f md.a\n7 2e md.b\n2 topics\n",
        );
        for text in [old, new] {
            assert!(parse(text).is_some(), "{text}");
            for cut in 0..text.len() {
                assert!(parse(&text[..cut]).is_none(), "{cut}");
            }
            let lines: Vec<&str> = text.lines().collect();
            assert!(parse(&text.replace(&format!("{}\n", lines[2]), "")).is_none());
            assert!(parse(&text.replace(lines[2], &format!("{0}\n{0}", lines[2]))).is_none(), "a line twice");
            assert!(parse(&text.replace("dunlin recording ", "dunlin recording 9")).is_none());
        }
    }
}
