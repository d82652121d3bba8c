//! Starts the task scheduler of a single node, which is a cluster of one.

use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use dunlin_journal::{Disk, MemoryDisk};
use dunlin_raft::{RaftMember, RequestLane, ResponseFuture, Transport};
use futures_util::future::join_all;

use super::history::TaskHistory;
use super::{TaskShard, Tasks, TasksError, TasksLimits};
use crate::control::{ControlError, block_on, refuse_members, with_room};
use crate::node::Node;

/// The number of the cluster's only member.
const ID: u64 = 1;
const LOG_BYTES_MAX_IN_MEMORY: usize = 16 << 20;

/// A transport for a cluster without other nodes.
struct NoPeers;

impl Transport for NoPeers {
    fn request(&self, _member: &RaftMember, _lane: RequestLane, _request: Vec<Bytes>) -> ResponseFuture {
        Box::pin(async { Err(io::ErrorKind::NotConnected.into()) })
    }
}

impl Tasks {
    /// Starts a cluster of one, in a directory or in memory. On return, the node leads and has applied its log. If
    /// `is_restored` is set, the files may be older than what clients have read, and events continue in a later epoch.
    pub fn start_single_node(
        node: &Node,
        disk_and_dir: Option<(Arc<dyn Disk>, &Path)>,
        mut limits: TasksLimits,
        is_restored: bool,
    ) -> Result<Arc<Tasks>, TasksError> {
        let start = |error: io::Error| TasksError::from(ControlError::from_start_error(error));
        let tasks = match disk_and_dir {
            Some((disk, dir)) => Tasks::start_member(node, ID, &disk, dir, |_| NoPeers, limits),
            None => {
                limits.raft.log_bytes_max = limits.raft.log_bytes_max.min(LOG_BYTES_MAX_IN_MEMORY);
                // A log in memory needs no reserve of disk space.
                limits.raft.reserve_bytes = 0;
                let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
                Tasks::open(node, ID, (&disk, Path::new("/tasks")), |_| NoPeers, limits, false)
            }
        };
        let tasks = tasks.map_err(start)?;
        TaskHistory::mark_unreplicated(node);
        let lead = |shard: &Arc<TaskShard>| {
            let shard = Arc::clone(shard);
            async move {
                let group = shard.group()?;
                let start = async {
                    if shard.is_begun().await? {
                        refuse_members(&shard.status()?)?;
                        // Elect this node at once: no other node can become the leader.
                        shard.elect().await?;
                    } else {
                        shard.begin(&[RaftMember { id: ID, address: String::new() }]).await?;
                    }
                    shard.catch_up().await?;
                    shard.correct_clock().await?;
                    if is_restored { shard.begin_restored().await } else { Ok(()) }
                };
                with_room(&*group, start).await
            }
        };
        let led = block_on(join_all(tasks.shards.iter().map(lead))).into_iter().collect::<Result<(), _>>();
        if let Err(error) = led {
            tasks.stop();
            TaskHistory::close(node);
            return Err(error);
        }
        Ok(tasks)
    }
}
