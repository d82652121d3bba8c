//! Reads and writes the files that describe durable topics. Each topic has one text file, `ID.topic`.
//!
//! A file is written under another name, synced and then renamed, so that it is always either complete or missing. A
//! file with an unknown line is refused, because the line would change the topic's behaviour. A checksum detects
//! damage.
//!
//! When a topic is deleted, its file becomes a mark `ID.deleted`, which stays until the logs are removed. If a log's
//! topic has neither a file nor a mark, the node did not delete the topic. If such a log has records, it is kept.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dunlin_journal::{Disk, replace_file};
use dunlin_topic::{
    DurableOptions, LogLimits, OnFull, Pattern, ReducerConfig, ReliableOptions, Retention, Subject,
    TopicConfig,
};

use super::error::StorageError;
use super::{checksum, read_file};
use crate::error::TopicError;

const FIRST_LINE: &str = "dunlin topic 1";
const LAST_LINE: &str = "end";
const EVICT: &str = "evict";
const REFUSE: &str = "refuse";
const SUFFIX: &str = ".topic";
const TEMPORARY_SUFFIX: &str = ".topic.new";
const DELETED_SUFFIX: &str = ".deleted";
/// The maximum size of a topic's file, bytes.
const BYTES_MAX: u64 = 64 << 10;

/// The content of a topic's file.
#[derive(Debug, PartialEq)]
pub(super) struct TopicFileContent {
    pub(super) id: u64,
    pub(super) name: String,
    pub(super) config: TopicConfig,
    /// The epoch in which the topic was created; `None` in files of older versions.
    pub(super) epoch: Option<u32>,
}

/// The file of a topic, if its content is damaged or cannot be read.
#[derive(Debug, PartialEq)]
pub(super) struct UnreadableTopicFile {
    pub(super) id: u64,
    /// The topic's name, if the file has a line with it. The line may be damaged, too.
    pub(super) name: Option<String>,
    /// The topic's pattern, if the file has a line with it.
    pub(super) pattern: Option<String>,
    pub(super) why: String,
}

/// The topics that the files in a data directory describe.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Catalogue {
    /// The topics whose files are intact, sorted by number.
    pub(super) listed: Vec<TopicFileContent>,
    pub(super) unreadable: Vec<UnreadableTopicFile>,
    /// The numbers of topics whose deletion was not completed.
    pub(super) deleted: Vec<u64>,
}

pub(super) fn list(disk: &dyn Disk, dir: &Path) -> Result<Catalogue, StorageError> {
    let dir = dir.join("topics");
    let Catalogue { mut listed, mut unreadable, mut deleted } = Catalogue::default();
    let number = |id: &str| u64::from_str_radix(id, 16).ok();
    for file in disk.list(&dir).map_err(StorageError::disk("list", &dir))? {
        let path = dir.join(&file);
        if file.ends_with(TEMPORARY_SUFFIX) {
            // A topic's creation was not completed.
            disk.remove(&path).map_err(StorageError::disk("remove", &path))?;
        } else if let Some(id) = file.strip_suffix(DELETED_SUFFIX).and_then(number) {
            deleted.push(id);
        } else if let Some(id) = file.strip_suffix(SUFFIX).and_then(number) {
            let text = match read(disk, &path) {
                // The file may be intact, so that a later start can read it.
                Err(error) if error.lacks_resource() => return Err(error),
                text => text,
            };
            let parsed = text.as_deref().map_err(ToString::to_string).and_then(parse);
            match parsed {
                Ok((name, config, epoch)) => listed.push(TopicFileContent { id, name, config, epoch }),
                Err(why) => {
                    let text = text.unwrap_or_default();
                    let valid = |value: &&str| Pattern::parse(value).is_ok();
                    let name = find_value(&text, "name").filter(|name| Subject::parse_existing(name).is_ok());
                    let name = name.map(str::to_owned);
                    let pattern = find_value(&text, "pattern").filter(valid).map(str::to_owned);
                    let why = format!("{}: {why}", path.display());
                    unreadable.push(UnreadableTopicFile { id, name, pattern, why });
                }
            }
        }
    }
    listed.sort_by_key(|topic| topic.id);
    unreadable.sort_by_key(|file| file.id);
    Ok(Catalogue { listed, unreadable, deleted })
}

/// Writes a topic's file. After the next [`sync_dir`], the file is durable.
pub(super) fn write(
    disk: &dyn Disk,
    dir: &Path,
    id: u64,
    name: &str,
    config: &TopicConfig,
    epoch: u32,
) -> Result<(), StorageError> {
    let path = path(dir, id);
    let text = with_line(encode(name, config), &format!("epoch {epoch}"));
    let text = checksum::seal(text, LAST_LINE);
    // The file does not contain the limits: they belong to the node's configuration, which may change.
    let expected = TopicConfig { limits: LogLimits::default(), ..config.clone() };
    if parse(&text) != Ok((name.to_owned(), expected, Some(epoch))) {
        let why = "its name, pattern or reducer cannot be written as lines".to_owned();
        return Err(StorageError::Catalogue { path, why });
    }
    Ok(replace_file(disk, &path, text.as_bytes())?)
}

/// Replaces a topic's file by the mark that the topic is deleted. On return, the mark is durable, so that the logs may
/// be removed.
pub(super) fn mark_deleted(disk: &dyn Disk, dir: &Path, id: u64) -> Result<(), StorageError> {
    let (path, mark) = (path(dir, id), mark(dir, id));
    match disk.rename(&path, &mark) {
        // Another program has removed the topic's file.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            disk.create(&mark).map_err(StorageError::disk("create", &mark))?;
        }
        renamed => renamed.map_err(StorageError::disk("rename", &path))?,
    }
    sync_dir(disk, dir)
}

/// Removes the deletion marks of topics whose logs were removed. If a mark remains, the next start removes it.
pub(super) fn remove_marks(disk: &dyn Disk, dir: &Path, ids: &[u64]) {
    // First make the removal of the logs durable. Only then may the marks be removed.
    if !ids.is_empty() && disk.sync_dir(&dir.join("logs")).is_ok() {
        ids.iter().for_each(|id| drop(disk.remove(&mark(dir, *id))));
    }
}

/// Makes created, renamed and removed files in `topics` durable.
pub(super) fn sync_dir(disk: &dyn Disk, dir: &Path) -> Result<(), StorageError> {
    let dir = dir.join("topics");
    disk.sync_dir(&dir).map_err(StorageError::disk("sync", &dir))
}

pub(super) fn path(dir: &Path, id: u64) -> PathBuf {
    dir.join("topics").join(format!("{id:08x}{SUFFIX}"))
}

fn mark(dir: &Path, id: u64) -> PathBuf {
    dir.join("topics").join(format!("{id:08x}{DELETED_SUFFIX}"))
}

fn read(disk: &dyn Disk, path: &Path) -> Result<String, StorageError> {
    let bytes = read_file(disk, path, BYTES_MAX).map_err(StorageError::disk("read", path))?;
    let not_text = |_| StorageError::Catalogue { path: path.to_owned(), why: "it is no text".to_owned() };
    String::from_utf8(bytes).map_err(not_text)
}

/// Writes a topic's configuration as text for other nodes. The text has the same lines as the topic's file.
pub(crate) fn encode_config(name: &str, config: &TopicConfig) -> String {
    let mut text = encode(name, config);
    if config.durable.is_none() {
        text = with_line(text, "volatile yes");
        if let Some(ReliableOptions { subscribers_max, wait_max, on_full }) = &config.reliable {
            let on_full = if *on_full == OnFull::Evict { EVICT } else { REFUSE };
            text = with_line(text, &format!("reliable {subscribers_max} {} {on_full}", wait_max.as_nanos()));
        }
        if let Some(every) = config.test_loss_every {
            text = with_line(text, &format!("lose_every {every}"));
        }
    }
    text
}

/// Inserts `line` before the last line of the text.
fn with_line(mut text: String, line: &str) -> String {
    text.truncate(text.len() - LAST_LINE.len() - 1);
    let _ = writeln!(text, "{line}\n{LAST_LINE}");
    text
}

/// Parses `value`, the words that follow `reliable` in the line.
fn reliable(line: &str, value: &str) -> Result<ReliableOptions, String> {
    let mut words = value.split(' ');
    let mut next_word = || words.next().ok_or_else(|| format!("a line ends early: {line:?}"));
    let (subscribers_max, wait_ns, on_full) =
        (number(line, next_word()?)?, number(line, next_word()?)?, next_word()?);
    let on_full = match on_full {
        EVICT => OnFull::Evict,
        REFUSE => OnFull::Refuse,
        _ => return Err(format!("expected {EVICT} or {REFUSE}: {line:?}")),
    };
    Ok(ReliableOptions { subscribers_max, wait_max: Duration::from_nanos(wait_ns), on_full })
}

/// Parses a text that [`encode_config`] has written.
pub(crate) fn decode_config(config_text: &[u8]) -> Result<TopicConfig, TopicError> {
    let text = std::str::from_utf8(config_text).map_err(|error| error.to_string());
    let parsed = text.and_then(parse).map_err(|why| TopicError::Cluster(format!("its configuration: {why}")));
    parsed.map(|(_, config, _)| config)
}

fn encode(name: &str, config: &TopicConfig) -> String {
    let mut text = format!("{FIRST_LINE}\nname {name}\n");
    let mut line = |key: &str, value: &dyn std::fmt::Display| {
        let _ = writeln!(text, "{key} {value}");
    };
    if let Some(pattern) = &config.pattern {
        line("pattern", pattern);
    }
    line("partitions", &config.partitions);
    line("retention_bytes", &config.retention.bytes);
    if let Some(records) = &config.retention.records {
        line("retention_records", records);
    }
    if let Some(age) = &config.retention.age {
        line("retention_ns", &age.as_nanos());
    }
    line("record_bytes_max", &config.record_bytes_max);
    line("by_ref_bytes_min", &config.by_ref_bytes_min);
    if let Some(durable) = &config.durable {
        line("acknowledge", &durable.acknowledge);
        line("memory_bytes", &durable.memory_bytes);
    }
    if let Some(reducer) = &config.reducer {
        line("fold", &reducer.kind);
        for (option, value) in &reducer.options {
            line("fold_option", &format!("{option} {value}"));
        }
    }
    text.push_str(LAST_LINE);
    text.push('\n');
    text
}

/// The value of the line with this key, even if the rest of the text is invalid.
fn find_value<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))
}

fn parse(text: &str) -> Result<(String, TopicConfig, Option<u32>), String> {
    checksum::check(text)?;
    let mut lines = text.lines();
    match lines.next() {
        Some(FIRST_LINE) => {}
        Some(other) if other.starts_with("dunlin topic ") => {
            return Err(format!(
                "a newer version of Dunlin wrote this file ({other:?}); this build reads {FIRST_LINE:?}"
            ));
        }
        _ => return Err("the file does not describe a topic".to_owned()),
    }
    let (mut name, mut durable, mut has_end) = (None, DurableOptions::default(), false);
    let (mut is_volatile, mut epoch) = (false, None);
    let mut config = TopicConfig { retention: Retention::default(), ..TopicConfig::default() };
    for line in lines {
        if line == LAST_LINE {
            has_end = true;
            break;
        }
        let (key, value) = line.split_once(' ').ok_or_else(|| format!("a line has no value: {line:?}"))?;
        match key {
            _ if checksum::is_line(line) => {}
            "name" => name = Some(value.to_owned()),
            "epoch" => epoch = Some(number(line, value)?),
            "pattern" => config.pattern = Some(value.to_owned()),
            "partitions" => config.partitions = number(line, value)?,
            "retention_bytes" => config.retention.bytes = number(line, value)?,
            "retention_records" => config.retention.records = Some(number(line, value)?),
            "retention_ns" => config.retention.age = Some(Duration::from_nanos(number(line, value)?)),
            "record_bytes_max" => config.record_bytes_max = number(line, value)?,
            "by_ref_bytes_min" => config.by_ref_bytes_min = number(line, value)?,
            "acknowledge" => durable.acknowledge = value.parse()?,
            "memory_bytes" => durable.memory_bytes = number(line, value)?,
            "volatile" => is_volatile = true,
            "reliable" => config.reliable = Some(reliable(line, value)?),
            "lose_every" => config.test_loss_every = Some(number(line, value)?),
            "fold" => {
                config.reducer = Some(ReducerConfig { kind: value.to_owned(), options: BTreeMap::new() })
            }
            "fold_option" => {
                let reducer =
                    config.reducer.as_mut().ok_or("the line `fold_option` comes before the line `fold`")?;
                let (option, value) = value.split_once(' ').unwrap_or((value, ""));
                reducer.options.insert(option.to_owned(), value.to_owned());
            }
            _ => return Err(format!("unknown line {line:?}")),
        }
    }
    if !has_end {
        return Err("the end of the file is missing".to_owned());
    }
    config.durable = (!is_volatile).then_some(durable);
    Ok((name.ok_or("the file has no topic name")?, config, epoch))
}

fn number<N: std::str::FromStr>(line: &str, value: &str) -> Result<N, String> {
    value.parse().map_err(|_| format!("expected a number: {line:?}"))
}

#[cfg(test)]
mod tests {
    use dunlin_topic::AckLevel;

    use super::*;

    #[test]
    fn topic_settings_sent_to_other_nodes_are_read_back_equal() {
        let reliable = ReliableOptions {
            subscribers_max: 3,
            wait_max: Duration::from_millis(7),
            on_full: OnFull::Evict,
        };
        let test_loss_every = std::num::NonZeroU32::new(9);
        let lossy = TopicConfig { durable: None, test_loss_every, ..config() };
        let volatile = TopicConfig { durable: None, reliable: Some(reliable), ..config() };
        for config in [config(), lossy, volatile, TopicConfig::default()] {
            let config_text = encode_config("orders", &config);
            assert_eq!(decode_config(config_text.as_bytes()), Ok(config));
        }
        assert!(decode_config(b"dunlin topic 1\nreliable 3 7 maybe\nend\n").is_err());
    }

    fn config() -> TopicConfig {
        TopicConfig {
            pattern: Some("orders.>".to_owned()),
            partitions: 3,
            retention: Retention {
                bytes: 1 << 30,
                records: Some(7),
                age: Some(Duration::from_nanos(1_500_000_001)),
            },
            reducer: Some(ReducerConfig {
                kind: "book".to_owned(),
                options: [("depth".to_owned(), "a b".to_owned())].into(),
            }),
            durable: Some(DurableOptions { acknowledge: AckLevel::Written, memory_bytes: 1 << 20 }),
            ..TopicConfig::default()
        }
    }

    #[test]
    fn topic_file_reads_back_as_written() {
        assert_eq!(parse(&encode("orders", &config())), Ok(("orders".to_owned(), config(), None)));
        let text = with_line(encode("orders", &config()), "epoch 7");
        assert_eq!(parse(&text), Ok(("orders".to_owned(), config(), Some(7))));
        let plain = TopicConfig { durable: Some(DurableOptions::default()), ..TopicConfig::default() };
        assert_eq!(parse(&encode("a", &plain)), Ok(("a".to_owned(), plain, None)));
    }

    #[test]
    fn topic_file_is_refused_if_damaged_or_truncated_or_too_new() {
        let text = encode("orders", &config());
        let why = |text: &str| parse(text).unwrap_err();
        for cut in 0..text.len() - 1 {
            why(&text[..cut]);
        }
        let sealed = checksum::seal(with_line(text.clone(), "epoch 7"), LAST_LINE);
        for at in 0..sealed.len() {
            for bit in 0..8 {
                let mut bytes = sealed.clone().into_bytes();
                bytes[at] ^= 1 << bit;
                // Only a change of the last byte is not detected: this byte is the last line break, and no line follows
                // it.
                let is_end = at == sealed.len() - 1;
                let parsed = String::from_utf8(bytes).map_err(|error| error.to_string());
                assert!(parsed.and_then(|text| parse(&text)).is_err() || is_end, "byte {at}, bit {bit}");
            }
        }
        assert!(why(&text.replace("topic 1", "topic 2")).contains("newer version"));
        assert!(why(&text.replace("partitions 3", "partitions many")).contains("expected a number"));
        assert!(why(&text.replace("partitions 3", "colour red")).contains("unknown line"));
    }
}
