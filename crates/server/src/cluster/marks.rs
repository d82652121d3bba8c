//! Detects that a data directory without `identity.json` belonged to a member of a cluster.
//!
//! A new cluster must not begin in such a directory, because the member's old cluster still exists.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use dunlin::find_cluster_log;
use dunlin::journal::{Disk, RealDisk};

use super::error::ClusterError;
use super::files::ClusterDirectory;

/// Files that a node writes only after `identity.json`. The authority's files and `members.json` are not in this list:
/// they are written before `identity.json`, and remain after an interrupted join or `init`.
const AFTER_IDENTITY: [&str; 2] = ["node.pem", "node-key.pem"];

/// Refuses a directory that has no `identity.json`, but has other files of a cluster member.
pub(super) fn refuse_member(files: &ClusterDirectory, data_dir: &Path) -> Result<(), ClusterError> {
    let Some(mark) = find(files, data_dir)? else { return Ok(()) };
    let dir = data_dir.display();
    Err(ClusterError::Refused(format!(
        "{dir} is the directory of a member of a cluster ({mark}), and {} is missing. Restore that file from \
         a backup; or remove the node (`dunlin cluster status` and `dunlin cluster remove NODE` with the \
         directory of another member), empty the directory, and let the node join anew with --join. To begin \
         a new cluster in this directory instead, without the other members, first move `cluster` and all \
         files and directories whose names begin with `control` or `tasks` out of {dir}; the new cluster \
         does not have the keys and tasks in them",
        files.path("identity.json").display()
    )))
}

/// Describes a file which proves that the directory belonged to a member; `None` if there is no such file.
fn find(files: &ClusterDirectory, data_dir: &Path) -> Result<Option<String>, ClusterError> {
    let is_present = |name: &str| fs::exists(files.path(name)).unwrap_or(false);
    if let Some(name) = AFTER_IDENTITY.into_iter().find(|name| is_present(name)) {
        return Ok(Some(format!("it has cluster/{name}")));
    }
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let error_context = ClusterError::io(format!("cannot read the logs in {}", data_dir.display()));
    let found = find_cluster_log(&disk, data_dir).map_err(error_context)?;
    Ok(found.map(|(name, nodes)| {
        let nodes: Vec<String> = nodes.iter().map(u64::to_string).collect();
        format!("the log in {name} belongs to a cluster of the nodes {}", nodes.join(", "))
    }))
}
