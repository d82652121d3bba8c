//! The list of a recording's topics, written when it ends: without it nobody could tell that one of them is missing.
//!
//! ```text
//! dunlin recording 1
//! 15825 md.1.200806927.228749         records, and the topic
//! 300994 md.bitstamp.btcusd
//! 2 topics
//! ```

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};

const NAME: &str = "topics";
const HEADING: &str = "dunlin recording 1";

/// Records by topic.
pub type Topics = BTreeMap<String, u64>;

/// Writes the list beside the logs, to the disk.
pub fn write(recording: &Path, topics: &Topics) -> Result<()> {
    let path = recording.join(NAME);
    let mut text = format!("{HEADING}\n");
    topics.iter().for_each(|(topic, records)| text += &format!("{records} {topic}\n"));
    text += &format!("{} topics\n", topics.len());
    let written = File::create_new(&path).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// What is wrong with the list of a recording in which these were found.
pub fn problems(recording: &Path, found: &Topics) -> Vec<String> {
    let listed = match std::fs::read_to_string(recording.join(NAME)) {
        Ok(text) => match parse(&text) {
            Some(listed) => listed,
            None => return vec!["the list of its topics is damaged".to_owned()],
        },
        Err(error) => return vec![format!("not ended in good order: the list of its topics: {error}")],
    };
    let missing = listed.keys().filter(|topic| !found.contains_key(*topic));
    let missing = missing.map(|topic| format!("{topic} is in the list of its topics, and missing"));
    let other = found.iter().filter_map(|(topic, records)| match listed.get(topic) {
        None => Some(format!("{topic} is not in the list of its topics")),
        Some(listed) if listed != records => {
            Some(format!("{topic} has {records} records, and {listed} in the list of its topics"))
        }
        Some(_) => None,
    });
    missing.chain(other).collect()
}

fn parse(text: &str) -> Option<Topics> {
    let mut lines = text.strip_suffix('\n')?.lines();
    let count = lines.next_back()?.strip_suffix(" topics")?.parse::<usize>().ok()?;
    if lines.next()? != HEADING {
        return None;
    }
    let topic = |line: &str| {
        let (records, topic) = line.split_once(' ')?;
        Some((topic.to_owned(), records.parse().ok()?))
    };
    let topics: Topics = lines.map(topic).collect::<Option<_>>()?;
    (topics.len() == count).then_some(topics)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_that_is_missing_added_or_shorter_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let topics = |all: &[(&str, u64)]| -> Topics {
            all.iter().map(|(topic, records)| ((*topic).to_owned(), *records)).collect()
        };
        let told = |found: &[(&str, u64)]| problems(folder.path(), &topics(found));
        assert!(told(&[]).concat().contains("not ended in good order"));
        write(folder.path(), &topics(&[("md.a", 5), ("md.b c", 7)])).unwrap();
        assert_eq!(told(&[("md.a", 5), ("md.b c", 7)]), [""; 0]);
        assert!(told(&[("md.a", 5)]).concat().contains("md.b c is in the list of its topics, and missing"));
        assert!(
            told(&[("md.a", 5), ("md.b c", 7), ("md.x", 1)]).concat().contains("md.x is not in the list")
        );
        assert!(told(&[("md.a", 4), ("md.b c", 7)]).concat().contains("md.a has 4 records, and 5"));
    }

    #[test]
    fn a_list_that_was_cut_or_changed_is_none() {
        let text = "dunlin recording 1\n5 md.a\n7 md.b\n2 topics\n";
        assert!(parse(text).is_some());
        for cut in 0..text.len() {
            assert!(parse(&text[..cut]).is_none(), "{cut}");
        }
        assert!(parse(&text.replace("7 md.b\n", "")).is_none());
        assert!(parse(&text.replace("recording 1", "recording 2")).is_none());
    }
}
