//! Decides at a start whether a log's files may lack records.

use dunlin_journal::RecoveredLog;

use super::TopicOrigin;
use super::stored_position::{Marks, StoredPosition};

/// The reason why a log may have had more records than its files contain, although no record is known to be missing. In
/// this case, the log continues in a new epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doubt {
    /// The log was closed properly, but its files are a copy, or an older version of the files.
    Copied,
    /// The log was not closed properly, and its files are a copy, or an older version of the files.
    CopiedOpen,
    /// The log has no record, and its files are not those that this node created with the topic.
    Emptied,
}

impl std::fmt::Display for Doubt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Doubt::Copied => {
                "its files were copied, or restored from a backup, since it was closed; it goes on in a new epoch"
            }
            Doubt::CopiedOpen => {
                "its files were copied, or restored from a backup, and it was not closed before; later records may be missing; it goes \
                 on in a new epoch"
            }
            Doubt::Emptied => {
                "it has no records, and its files are not those that it was created with: all records may be lost; it begins a new epoch"
            }
        })
    }
}

impl Doubt {
    /// Compares the log's files with the position file, `stored`. `changed_ns` and `marks` describe the files as they
    /// were before the journal opened them.
    pub(super) fn of(
        topic_origin: TopicOrigin,
        report: &RecoveredLog,
        stored: Option<&StoredPosition>,
        changed_ns: Option<u64>,
        marks: &Marks,
    ) -> Option<Doubt> {
        let matches_stored = |is: &dyn Fn(&StoredPosition) -> bool| stored.is_some_and(is);
        match (topic_origin, report.last) {
            (TopicOrigin::Created(_), _) => None,
            (_, Some(_)) if report.clean => {
                (!matches_stored(&|stored| stored.is_end_of(report, changed_ns))).then_some(Doubt::Copied)
            }
            (_, Some(_)) => (!matches_stored(&|stored| stored.matches(marks))).then_some(Doubt::CopiedOpen),
            (_, None) => (!matches_stored(&|stored| stored.matches(marks))).then_some(Doubt::Emptied),
        }
    }
}
