//! Opens the topics in a data directory when a node starts.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use dunlin_journal::Disk;
use dunlin_topic::{MemoryBudget, Topic, TopicConfig};

use super::doubt::Doubt;
use super::error::StorageError;
use super::strays::{self, Logs};
use super::{Storage, StoredTopic, TopicOrigin, catalogue, stored_position};

/// A report about a topic that a starting node found in its data directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveredTopic {
    /// The topic's name.
    pub name: String,
    /// The number of retained records, in all partitions together.
    pub records: u64,
    /// Whether all logs were closed properly. If so, the topic continues in the same epochs, unless a remark says that
    /// its files were copied or restored.
    pub clean: bool,
    /// Remarks about truncated, damaged or lost records.
    pub remarks: Vec<String>,
    /// If the topic could not be opened, the reason. The topic's subjects then stay reserved.
    pub refused: Option<String>,
}

/// A topic in the data directory that is not open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedTopic {
    /// The topic's name or, if the name is unknown, the name of the topic's file.
    pub name: String,
    /// The topic's pattern or, if the pattern is unknown, the same text as `name`.
    pub pattern: String,
    /// The reason why the topic is not open.
    pub why: String,
    /// The topic's number, if its files could not be opened and have to be repaired or deleted. `None` if the files are
    /// intact and the topic was refused for another reason: for example, another topic has the same name or some of the
    /// subjects.
    pub(crate) id: Option<u64>,
}

impl RefusedTopic {
    /// Whether the topic's files could not be opened.
    pub fn is_damaged(&self) -> bool {
        self.id.is_some()
    }
}

impl Storage {
    /// Opens all topics in the data directory. For a topic's name, `epoch` returns a new epoch that is later than all
    /// earlier epochs of the topic. A topic that cannot be opened is listed as refused. But if the process lacks file
    /// descriptors or memory, this function returns an error, because the files may be intact.
    pub(crate) fn recover(
        &self,
        budget: &Arc<MemoryBudget>,
        epoch: impl Fn(&str) -> u32,
    ) -> Result<Vec<(Topic, RecoveredTopic)>, StorageError> {
        let mut found = Vec::new();
        let context = &self.context;
        let (disk, dir) = (&context.disk, &*context.dir);
        let catalogue::Catalogue { listed: all, unreadable, deleted } = catalogue::list(&**disk, dir)?;
        let logs = Logs::list(&**disk, dir)?;
        let mut ids: BTreeSet<u64> = all.iter().map(|listed| listed.id).collect();
        ids.extend(unreadable.iter().map(|file| file.id));
        let deleted: BTreeSet<u64> = deleted.into_iter().collect();
        let orphans = logs.remove_strays(disk, dir, &ids, &deleted)?;
        ids.extend(&orphans);
        stored_position::remove_strays(&**disk, dir, &ids)?;
        catalogue::remove_marks(&**disk, dir, &deleted.iter().copied().collect::<Vec<_>>());
        self.topics().id_last = ids.iter().chain(&deleted).copied().max().unwrap_or(0);
        for file in unreadable {
            let recorded = stored_position::pattern(&**disk, dir, file.id);
            let name = logs.topic_of(disk, dir, file.id).or(file.name);
            self.refuse(refused(file.id, name, recorded.or(file.pattern), &file.why));
        }
        for id in orphans {
            let path = catalogue::path(dir, id);
            let why = format!("{}: the file is missing, but logs of its topic exist", path.display());
            self.refuse(refused(
                id,
                logs.topic_of(disk, dir, id),
                stored_position::pattern(&**disk, dir, id),
                &why,
            ));
        }
        for listed in all {
            let next = epoch(&listed.name);
            let epoch_of = |report: &dunlin_journal::RecoveredLog| match (report.clean, report.last) {
                (true, Some(last)) => last.epoch,
                _ => report.epoch_least.max(next),
            };
            let config = Arc::new(TopicConfig { limits: self.context.limits, ..listed.config });
            let opened = if self.topics().by_name.contains_key(&listed.name) {
                Err("another file describes a topic of the same name".to_owned())
            } else {
                let opened = self.open_topic(
                    listed.id,
                    &listed.name,
                    &config,
                    budget,
                    TopicOrigin::Existing(listed.epoch),
                    epoch_of,
                );
                match opened {
                    Err(error) if error.lacks_resource() => return Err(error),
                    opened => opened.map_err(|error| {
                        let name = &listed.name;
                        format!(
                            "{error}; correct the permissions of the topic's files, or restore the files from a \
                             backup, and restart the node, or delete the topic: dunlin topics delete {name}"
                        )
                    }),
                }
            };
            match opened {
                Ok((topic, logs, reports)) => {
                    let doubts: Vec<Option<Doubt>> = logs.iter().map(|log| log.doubt()).collect();
                    self.topics().by_name.insert(listed.name.clone(), StoredTopic { id: listed.id, logs });
                    found.push((topic, recovered_topic(listed.name, &reports, &doubts)));
                }
                Err(why) => {
                    let pattern = config.pattern.clone().unwrap_or_else(|| listed.name.clone());
                    self.refuse(RefusedTopic { name: listed.name, pattern, why, id: Some(listed.id) });
                }
            }
        }
        Ok(found)
    }

    /// Lists a topic as refused. Its files stay on disk.
    pub(crate) fn refuse(&self, refused: RefusedTopic) {
        self.topics().refused.push(refused);
    }

    /// Whether there is a topic with this name whose files could not be opened.
    pub(crate) fn has_refused(&self, name: &str) -> bool {
        self.topics().refused.iter().any(|refused| refused.name == name && refused.is_damaged())
    }

    /// Deletes a topic whose files could not be opened, with its records.
    pub(crate) fn delete_refused(&self, name: &str) -> Result<(), StorageError> {
        let found = self
            .topics()
            .refused
            .iter()
            .find(|refused| refused.name == name && refused.is_damaged())
            .cloned();
        let Some(RefusedTopic { id: Some(id), .. }) = found else { return Ok(()) };
        let (disk, dir) = (&*self.context.disk, &*self.context.dir);
        catalogue::mark_deleted(disk, dir, id)?;
        self.topics().refused.retain(|refused| refused.id != Some(id));
        // Ignore an error: the next start removes files that remain.
        if strays::remove_logs(disk, dir, id).is_ok() {
            catalogue::remove_marks(disk, dir, &[id]);
        }
        Ok(())
    }

    /// The topics that are not open, sorted by name.
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

/// Makes the entry for a topic whose file is damaged or missing.
fn refused(id: u64, name: Option<String>, pattern: Option<String>, why: &str) -> RefusedTopic {
    let name = name.unwrap_or_else(|| format!("{id:08x}.topic"));
    let pattern = pattern.unwrap_or_else(|| name.clone());
    let why =
        format!("{why}; restore the file from a backup, or delete the topic: dunlin topics delete {name}");
    RefusedTopic { name, pattern, why, id: Some(id) }
}

fn recovered_topic(
    name: String,
    reports: &[dunlin_journal::RecoveredLog],
    doubts: &[Option<Doubt>],
) -> RecoveredTopic {
    let records = |report: &dunlin_journal::RecoveredLog| {
        let next = report.last.map_or(1, |last| last.seq + 1);
        next.saturating_sub(report.oldest.map_or(next, |oldest| oldest.seq))
    };
    let mut remarks = Vec::new();
    for (partition, report) in reports.iter().enumerate() {
        if let Some(doubt) = doubts.get(partition).copied().flatten() {
            remarks.push(format!("partition {partition}: {doubt}"));
        }
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
        clean: reports
            .iter()
            .zip(doubts)
            .all(|(report, doubt)| report.clean || *doubt == Some(Doubt::Copied)),
        remarks,
        refused: None,
    }
}

pub(super) fn remove_log(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    for name in disk.list(dir)? {
        disk.remove(&dir.join(name))?;
    }
    disk.remove_dir(dir)
}

#[cfg(test)]
mod tests {
    use dunlin_journal::RealDisk;
    use dunlin_topic::{DurableOptions, Publish as _};

    use super::*;
    use crate::config::Config;
    use crate::node::Node;

    #[test]
    fn refusal_of_a_topic_with_a_flipped_bit_still_names_the_topic() {
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        let (node, _) = Node::open(Config::default(), Arc::clone(&disk), dir).unwrap();
        let config = TopicConfig {
            pattern: Some("a.>".to_owned()),
            durable: Some(DurableOptions::default()),
            ..TopicConfig::default()
        };
        let config = node.create_topic("a", config, false).unwrap().config().clone();
        node.publisher("a.x").unwrap().publish("1").unwrap();
        node.stop();
        drop(node);
        let file = disk.open(&catalogue::path(dir, 1), true).unwrap();
        let mut whole = vec![0; file.bytes().unwrap() as usize];
        file.read_at(&mut whole, 0).unwrap();
        for (at, mask) in (0..whole.len()).flat_map(|at| [(at, 1), (at, 0x20), (at, 0x80)]) {
            let mut damaged = whole.clone();
            damaged[at] ^= mask;
            file.write_at(&[&damaged], 0).unwrap();
            let storage = Storage::open(Arc::clone(&disk), dir, &Config::default().limits).unwrap();
            let found = storage.recover(&MemoryBudget::node(1 << 30, 1 << 20), |_| 1).unwrap();
            if let Some((topic, _)) = found.first() {
                assert_eq!((topic.name(), &**topic.config()), ("a", &*config), "byte {at} ^ {mask}");
                assert_eq!(at, whole.len() - 1, "byte {at} ^ {mask}");
                continue;
            }
            let refused = storage.refused();
            assert_eq!(refused.len(), 1, "byte {at} ^ {mask}");
            assert_eq!(
                (refused[0].name.as_str(), refused[0].pattern.as_str()),
                ("a", "a.>"),
                "byte {at} ^ {mask}"
            );
        }
    }
}
