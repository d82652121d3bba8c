//! Finds data directories that belong to members of a cluster. A node must not start as a single node in such a
//! directory.

use std::io;
use std::path::Path;
use std::sync::Arc;

use dunlin_journal::{Disk, lacks_resource};
use dunlin_raft::{RaftMember, Status, members_on_disk};

use super::ControlError;

/// The advice to an operator whose node has the data directory of a cluster's member, but no file with its identity.
pub(crate) const RESTORE_MEMBER: &str = "`cluster/identity.json` is missing: restore that file \
    from a backup; or remove this node (`dunlin cluster remove` on another node), empty the directory, and let the node \
    join anew";

/// The subdirectories with the logs of keys and of the first shard of tasks.
const LOGS: [&str; 2] = ["control", "tasks"];

/// Looks in a data directory for the log of a member of a cluster. Returns the log's subdirectory and the numbers of
/// the cluster's nodes in ascending order; `None` if each log is that of a single node. One log with members is enough
/// to show that the whole directory belongs to a cluster: the node may have stopped before the other log received its
/// first entry.
pub fn find_cluster_log(
    disk: &Arc<dyn Disk>,
    data_dir: &Path,
) -> io::Result<Option<(&'static str, Vec<u64>)>> {
    for name in LOGS {
        let members = members_on_disk(disk, &data_dir.join(name))?;
        if let Some(nodes) = nodes_of_cluster(&members) {
            return Ok(Some((name, nodes)));
        }
    }
    Ok(None)
}

/// The numbers of a cluster's nodes in ascending order; `None` if `members` are those of a single node's log.
fn nodes_of_cluster<'a>(members: impl IntoIterator<Item = &'a RaftMember>) -> Option<Vec<u64>> {
    let mut nodes: Vec<u64> = members.into_iter().map(|member| member.id).collect();
    nodes.sort_unstable();
    // The log of a single node has this node as its only member, with number 1.
    (!matches!(*nodes, [] | [1])).then_some(nodes)
}

/// Returns an error if the data directory has the log of a member of a cluster, because the other members may have a
/// newer state. Also returns an error if the process lacks file descriptors or memory for reading a log. A log that
/// cannot be read for another reason is skipped here; the keys or tasks that use the log report the error.
pub(super) fn refuse_cluster_log(disk: &Arc<dyn Disk>, data_dir: &Path) -> Result<(), ControlError> {
    for name in LOGS {
        match members_on_disk(disk, &data_dir.join(name)) {
            Ok(members) => nodes_of_cluster(&members).map_or(Ok(()), |nodes| Err(refusal(&nodes)))?,
            Err(error) if lacks_resource(&error) => return Err(ControlError::from_start_error(error)),
            Err(_) => {}
        }
    }
    Ok(())
}

/// Returns an error if the Raft group with this status has other members than this node, because they may have a newer
/// state.
pub(crate) fn refuse_members(status: &Status) -> Result<(), ControlError> {
    let members = status.voters.iter().chain(&status.learners);
    nodes_of_cluster(members).map_or(Ok(()), |nodes| Err(refusal(&nodes)))
}

fn refusal(nodes: &[u64]) -> ControlError {
    let nodes: Vec<String> = nodes.iter().map(u64::to_string).collect();
    ControlError::Start(format!(
        "the directory belongs to a member of a cluster of the nodes {}; {RESTORE_MEMBER}",
        nodes.join(", ")
    ))
}
