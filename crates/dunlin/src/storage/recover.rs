//! What a node finds in its directory when it starts.

use std::io;
use std::path::Path;
use std::sync::Arc;

use dunlin_journal::Disk;
use dunlin_topic::{Budget, Topic, TopicConfig};

use super::error::StorageError;
use super::{Kept, Storage, catalogue};

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
}

impl Storage {
    /// Opens all topics; `epoch` gives new ones, higher than any before.
    pub(crate) fn recover(
        &self,
        budget: &Arc<Budget>,
        epoch: impl Fn(&str) -> u32,
    ) -> Result<Vec<(Topic, RecoveredTopic)>, StorageError> {
        let mut found = Vec::new();
        let place = &self.place;
        let all = catalogue::list(&*place.disk, &place.dir)?;
        let ids: Vec<u64> = all.iter().map(|listed| listed.id).collect();
        remove_strays(&*place.disk, &place.dir.join("logs"), &ids)?;
        for listed in all {
            let next = epoch(&listed.name);
            let in_force = |report: &dunlin_journal::Recovered| match (report.clean, report.last) {
                (true, Some(last)) => last.epoch,
                _ => report.epoch_least.max(next),
            };
            let config = Arc::new(TopicConfig { limits: self.place.limits, ..listed.config });
            let (topic, logs, reports) =
                self.open_topic(listed.id, &listed.name, &config, budget, in_force)?;
            let mut topics = self.topics();
            topics.id_last = topics.id_last.max(listed.id);
            topics.by_name.insert(listed.name.clone(), Kept { id: listed.id, logs });
            found.push((topic, remarks(listed.name, &reports)));
        }
        Ok(found)
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
