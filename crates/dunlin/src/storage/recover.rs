//! What a node finds in its directory when it starts.

use std::io;
use std::path::Path;
use std::sync::Arc;

use dunlin_journal::Disk;
use dunlin_topic::{Budget, Topic, TopicConfig};

use super::error::StorageError;
use super::{Kept, Storage, catalogue, known};

/// A topic that was found on disk, and in what state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveredTopic {
    /// Its name.
    pub name: String,
    /// Records of all partitions.
    pub records: u64,
    /// All of it ended in good order, and goes on in the same epochs.
    pub clean: bool,
    /// What is to be known: what was cut off the end, what is damaged or lost.
    pub remarks: Vec<String>,
    /// Why it could not be opened. Its subjects are nobody's until it can.
    pub refused: Option<String>,
}

/// A topic that is on disk and could not be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedTopic {
    /// Its name, or its file's where that is unreadable.
    pub name: String,
    /// The subjects it owns; empty where nobody knows.
    pub pattern: String,
    /// Why.
    pub why: String,
}

impl Storage {
    /// Opens all topics; `epoch` gives new ones, higher than any before. One that cannot be opened is refused, and the others
    /// are opened all the same.
    pub(crate) fn recover(
        &self,
        budget: &Arc<Budget>,
        epoch: impl Fn(&str) -> u32,
    ) -> Result<Vec<(Topic, RecoveredTopic)>, StorageError> {
        let mut found = Vec::new();
        let place = &self.place;
        let (all, unreadable) = catalogue::list(&*place.disk, &place.dir)?;
        let ids: Vec<u64> =
            all.iter().map(|listed| listed.id).chain(unreadable.iter().map(|file| file.id)).collect();
        remove_strays(&*place.disk, &place.dir.join("logs"), &ids)?;
        known::remove_strays(&*place.disk, &place.dir, &ids)?;
        self.topics().id_last = ids.iter().copied().max().unwrap_or(0);
        for file in unreadable {
            self.refuse(RefusedTopic { name: file.name, pattern: String::new(), why: file.why });
        }
        for listed in all {
            let next = epoch(&listed.name);
            let in_force = |report: &dunlin_journal::Recovered| match (report.clean, report.last) {
                (true, Some(last)) => last.epoch,
                _ => report.epoch_least.max(next),
            };
            let config = Arc::new(TopicConfig { limits: self.place.limits, ..listed.config });
            let opened = if self.topics().by_name.contains_key(&listed.name) {
                Err("another file is of a topic of the same name".to_owned())
            } else {
                let opened =
                    self.open_topic(listed.id, &listed.name, &config, budget, listed.epoch, in_force);
                opened.map_err(|error| error.to_string())
            };
            match opened {
                Ok((topic, logs, reports)) => {
                    self.topics().by_name.insert(listed.name.clone(), Kept { id: listed.id, logs });
                    found.push((topic, remarks(listed.name, &reports)));
                }
                Err(why) => {
                    let pattern = config.pattern.clone().unwrap_or_else(|| listed.name.clone());
                    self.refuse(RefusedTopic { name: listed.name, pattern, why });
                }
            }
        }
        Ok(found)
    }

    /// Leaves a topic on the disk as it is.
    pub(crate) fn refuse(&self, refused: RefusedTopic) {
        self.topics().refused.push(refused);
    }

    /// Those that could not be opened, in the order of their names.
    pub(crate) fn refused(&self) -> Vec<RefusedTopic> {
        let mut refused = self.topics().refused.clone();
        refused.sort_by(|one, other| one.name.cmp(&other.name));
        refused
    }
}

impl From<&RefusedTopic> for RecoveredTopic {
    fn from(refused: &RefusedTopic) -> RecoveredTopic {
        let (name, refused) = (refused.name.clone(), Some(refused.why.clone()));
        RecoveredTopic { name, records: 0, clean: false, remarks: Vec::new(), refused }
    }
}

fn remarks(name: String, reports: &[dunlin_journal::Recovered]) -> RecoveredTopic {
    let records = |report: &dunlin_journal::Recovered| {
        let next = report.last.map_or(1, |last| last.seq + 1);
        next.saturating_sub(report.oldest.map_or(next, |oldest| oldest.seq))
    };
    let mut remarks = Vec::new();
    for (partition, report) in reports.iter().enumerate() {
        if let Some(cut) = report.cut.as_ref().filter(|cut| cut.bytes > 0) {
            let (file, last) = (cut.file.display(), cut.last_good.unwrap_or_default());
            remarks.push(format!(
                "partition {partition}: cut {} torn bytes off {file}, after {last}",
                cut.bytes
            ));
        }
        remarks.extend(report.holes.iter().map(|hole| format!("partition {partition}: {hole}")));
        remarks.extend(report.damage.iter().map(|damage| format!("partition {partition}: {damage}")));
    }
    RecoveredTopic {
        name,
        records: reports.iter().map(records).sum(),
        clean: reports.iter().all(|report| report.clean),
        remarks,
        refused: None,
    }
}

/// Removes logs of topics that were deleted, or whose creation was never answered.
fn remove_strays(disk: &dyn Disk, logs: &Path, ids: &[u64]) -> Result<(), StorageError> {
    for name in disk.list(logs).map_err(StorageError::disk("list", logs))? {
        let id = name.split_once('-').and_then(|(id, _)| u64::from_str_radix(id, 16).ok());
        if id.is_some_and(|id| !ids.contains(&id)) {
            let dir = logs.join(&name);
            remove_log(disk, &dir).map_err(StorageError::disk("remove", &dir))?;
        }
    }
    Ok(())
}

/// Takes a log's files from the disk.
pub(super) fn remove_log(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    for name in disk.list(dir)? {
        disk.remove(&dir.join(name))?;
    }
    disk.remove_dir(dir)
}
