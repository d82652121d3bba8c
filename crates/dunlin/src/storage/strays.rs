//! Finds logs whose topic has no file. Reads from logs the names of topics whose own files are damaged or missing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use dunlin_journal::{Disk, OpenError, Position, Reader};
use dunlin_topic::Subject;

use super::error::StorageError;
use super::{recover::remove_log, stored_position};

/// The names of the logs' directories, by the numbers of their topics.
#[derive(Debug)]
pub(super) struct Logs(BTreeMap<u64, Vec<String>>);

impl Logs {
    pub(super) fn list(disk: &dyn Disk, dir: &Path) -> Result<Logs, StorageError> {
        let logs = dir.join("logs");
        let mut by_id: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        for name in disk.list(&logs).map_err(StorageError::disk("list", &logs))? {
            if let Some(id) = number_of(&name) {
                by_id.entry(id).or_default().push(name);
            }
        }
        by_id.values_mut().for_each(|names| names.sort());
        Ok(Logs(by_id))
    }

    /// The name of a topic, which the files of its logs contain.
    pub(super) fn topic_of(&self, disk: &Arc<dyn Disk>, dir: &Path, id: u64) -> Option<String> {
        self.0.get(&id)?.iter().find_map(|name| {
            let reader = Reader::open(Arc::clone(disk), &dir.join("logs").join(name)).ok()?;
            let (topic, _partition) = reader.name().rsplit_once('/')?;
            Subject::parse_existing(topic).is_ok().then(|| topic.to_owned())
        })
    }

    /// Looks for logs of topics that are not in `ids`. Removes the logs of topics in `deleted`. Also removes the logs
    /// of topics without records, because the creation of these topics was not completed. Returns the numbers of the
    /// remaining topics: their logs have records, but the topics' files are missing.
    pub(super) fn remove_strays(
        &self,
        disk: &Arc<dyn Disk>,
        dir: &Path,
        ids: &BTreeSet<u64>,
        deleted: &BTreeSet<u64>,
    ) -> Result<Vec<u64>, StorageError> {
        let mut orphans = Vec::new();
        for (id, names) in self.0.iter().filter(|(id, _)| !ids.contains(id)) {
            let dirs = || names.iter().map(|name| dir.join("logs").join(name));
            if !deleted.contains(id) && dirs().any(|log| has_records(disk, &log)) {
                orphans.push(*id);
                continue;
            }
            for log in dirs() {
                remove_log(&**disk, &log).map_err(StorageError::disk("remove", &log))?;
            }
        }
        Ok(orphans)
    }
}

/// Removes all logs of a topic, with their position files.
pub(super) fn remove_logs(disk: &dyn Disk, dir: &Path, id: u64) -> Result<(), StorageError> {
    let logs = Logs::list(disk, dir)?;
    for name in logs.0.get(&id).into_iter().flatten() {
        let log = dir.join("logs").join(name);
        remove_log(disk, &log).map_err(StorageError::disk("remove", &log))?;
    }
    stored_position::remove_of(disk, dir, id)
}

/// Whether a log contains records, or may contain some.
fn has_records(disk: &Arc<dyn Disk>, log: &Path) -> bool {
    let has_snapshot =
        || disk.list(log).map_or(true, |names| names.iter().any(|name| name.ends_with(".snapshot")));
    match Reader::open(Arc::clone(disk), log) {
        Ok(reader) => {
            let from = reader.oldest().unwrap_or(Position::new(0, 0));
            !matches!(reader.scan(from).next(), Ok(None)) || has_snapshot()
        }
        Err(OpenError::NoLog(_)) => has_snapshot(),
        Err(_) => true,
    }
}

/// The number of the topic in a name `ID-PARTITION…`.
pub(super) fn number_of(name: &str) -> Option<u64> {
    name.split_once('-').and_then(|(id, _)| u64::from_str_radix(id, 16).ok())
}
