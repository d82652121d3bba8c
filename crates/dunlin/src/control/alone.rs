//! Starts the keys, leases and locks of a single node, which is a cluster of one.

use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use dunlin_journal::{Disk, MemoryDisk};
use dunlin_raft::{RaftMember, RequestLane, ResponseFuture, Transport};

use super::history::ChangeHistory;
use super::{ControlError, ControlGroup, ControlLimits, block_on, refuse_members, with_room};
use crate::node::Node;

/// The number of the cluster's only member.
const ID: u64 = 1;

const LOG_BYTES_MAX_IN_MEMORY: usize = 8 << 20;

/// A transport for a cluster without other nodes.
struct NoPeers;

impl Transport for NoPeers {
    fn request(&self, _member: &RaftMember, _lane: RequestLane, _request: Vec<Bytes>) -> ResponseFuture {
        Box::pin(async { Err(io::ErrorKind::NotConnected.into()) })
    }
}

impl ControlGroup {
    /// Starts a cluster of one, in a directory or in memory. On return, the node leads and has applied its log. If
    /// `is_restored` is set, the files may be older than what clients have read, and revisions continue in a later
    /// epoch.
    pub fn start_single_node(
        node: &Node,
        disk_and_dir: Option<(Arc<dyn Disk>, &Path)>,
        mut limits: ControlLimits,
        is_restored: bool,
    ) -> Result<Arc<ControlGroup>, ControlError> {
        let start = ControlError::from_start_error;
        let control = match disk_and_dir {
            Some(disk_and_dir) => ControlGroup::open(node, ID, disk_and_dir, NoPeers, limits, true),
            None => {
                limits.raft.log_bytes_max = limits.raft.log_bytes_max.min(LOG_BYTES_MAX_IN_MEMORY);
                // A log in memory needs no reserve of disk space.
                limits.raft.reserve_bytes = 0;
                let (disk, dir) = (Arc::new(MemoryDisk::default()), Path::new("/control"));
                ControlGroup::open(node, ID, (disk, dir), NoPeers, limits, false)
            }
        };
        let control = control.map_err(start)?;
        let lead = async {
            if control.is_begun().await? {
                refuse_members(&control.status()?)?;
                // Elect this node at once: no other node can become the leader.
                control.elect().await?;
            } else {
                control.begin(&[RaftMember { id: ID, address: String::new() }]).await?;
            }
            control.catch_up().await?;
            if is_restored { control.begin_restored().await } else { Ok(()) }
        };
        let led = control.group().and_then(|group| block_on(with_room(&*group, lead)));
        if let Err(error) = led {
            control.stop();
            ChangeHistory::close(node);
            return Err(error);
        }
        ChangeHistory::mark_unreplicated(node);
        Ok(control)
    }
}
