//! Data directories of a cluster's members, in which a node must not start alone.

use std::io;
use std::path::Path;
use std::sync::Arc;

use dunlin_journal::Disk;
use dunlin_raft::members_on_disk;

use super::ControlError;

/// The advice of an error about a member's data directory from which the node's identity is missing.
pub(crate) const RESTORE_MEMBER: &str = "`cluster/identity.json` is missing: restore it from a backup; or `dunlin cluster remove` this node \
    on another one, empty the directory, and let it join anew";

/// Finds a log of a cluster's member in a data directory. Returns the log's subdirectory and the numbers of its members
/// in ascending order; `None` if each log is that of a single node. A member that stopped before it received an entry
/// has a log without members. One log with members therefore shows that the whole directory belongs to a cluster.
pub fn log_of_cluster(disk: &Arc<dyn Disk>, data_dir: &Path) -> io::Result<Option<(&'static str, Vec<u64>)>> {
    // The first shard of tasks has the members of all shards.
    for name in ["control", "tasks"] {
        let members = members_on_disk(disk, &data_dir.join(name))?;
        let mut nodes: Vec<u64> = members.iter().map(|member| member.id).collect();
        nodes.sort_unstable();
        // The log of a single node has this node as its only member, with number 1.
        if !matches!(*nodes, [] | [1]) {
            return Ok(Some((name, nodes)));
        }
    }
    Ok(None)
}

/// Returns an error if the data directory has a log of a cluster's member. The other members may have a newer state.
pub(crate) fn refuse_log_of_cluster(disk: &Arc<dyn Disk>, data_dir: &Path) -> Result<(), ControlError> {
    match log_of_cluster(disk, data_dir).map_err(ControlError::from_start_error)? {
        None => Ok(()),
        Some((_, nodes)) => {
            let nodes: Vec<String> = nodes.iter().map(u64::to_string).collect();
            Err(ControlError::Start(format!(
                "the directory belongs to a member of a cluster of the nodes {}; {RESTORE_MEMBER}",
                nodes.join(", ")
            )))
        }
    }
}
