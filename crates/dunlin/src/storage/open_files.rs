//! Limits how many files durable topics keep open: a part of the files that the process may have open.
//!
//! Each log of a durable topic keeps two files open: its lock file and its last file. Without a limit, many topics
//! would use up the process's file descriptors. The node could then accept no connection.

use dunlin_journal::{Disk, RealDisk};

use super::StorageError;
use crate::error::TopicError;

/// The number of files that each log of a durable topic keeps open.
const FILES_PER_LOG: u64 = 2;
/// Durable topics may always open as many files as the process's limit divided by this number, even if the reserve for
/// other uses leaves fewer files.
const TOPICS_SHARE: u64 = 2;

/// Returns an error if a topic with `partitions` logs would need files that are `reserved` for other uses. `logs_open`
/// is the number of logs that are already open, and `limit` the number of files that the process may have open.
pub(super) fn check(limit: u64, reserved: u64, logs_open: u64, partitions: u16) -> Result<(), TopicError> {
    let allowed = limit - reserved.min(limit - limit / TOPICS_SHARE);
    let (open, needed) = (FILES_PER_LOG * logs_open, FILES_PER_LOG * u64::from(partitions));
    if open + needed <= allowed {
        return Ok(());
    }
    let why = format!(
        "the limit of open files (ulimit -n) is {limit}; durable topics may use {allowed} of them and use {open}, and \
         this topic needs {needed}: raise the limit (LimitNOFILE in a systemd unit) and restart the node, or delete \
         durable topics"
    );
    Err(TopicError::OpenFiles { limit, why })
}

/// The error for a topic whose files could not be opened, because the process or the machine lacked file descriptors or
/// memory.
pub(super) fn lack_of_resource(error: &StorageError) -> TopicError {
    let why = format!(
        "the process or the machine lacks file descriptors or memory: {error}; retry, raise the limit of open files \
         (ulimit -n; LimitNOFILE in a systemd unit) and restart the node, or delete durable topics"
    );
    TopicError::OpenFiles { limit: RealDisk.open_files_max().unwrap_or(0), why }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_get_unreserved_file_descriptors_but_at_least_half() {
        let fits = |limit, reserved, logs_open| check(limit, reserved, logs_open, 1).is_ok();
        assert!(fits(1_000, 900, 249) && !fits(1_000, 900, 250), "half of the limit");
        assert!(fits(1_000, 400, 299) && !fits(1_000, 400, 300), "all files but the reserved ones");
        assert!(fits(1_000, 0, 499) && !fits(1_000, 0, 500));
        assert!(fits(u64::MAX, 50_000, 1 << 40));
        assert!(!fits(0, 50_000, 0));
    }
}
