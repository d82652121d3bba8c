//! A cluster of one.

use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use dunlin_journal::{Disk, MemoryDisk};
use dunlin_raft::{Asking, Lane, Member, Transport};

use super::history::History;
use super::{Tasks, TasksError, TasksLimits};
use crate::control::{ControlError, block_on};
use crate::node::Node;

/// A cluster of one's only member.
const ID: u64 = 1;
/// The log of what nobody will read again is shortened early.
const LOG_BYTES_MAX_IN_MEMORY: usize = 16 << 20;

/// There is nobody else.
struct Nobody;

impl Transport for Nobody {
    fn ask(&self, _member: &Member, _lane: Lane, _request: Bytes) -> Asking {
        Box::pin(async { Err(io::ErrorKind::NotConnected.into()) })
    }
}

impl Tasks {
    /// A cluster of one: in a directory of a disk, or in memory. It leads when this returns, and knows all it did.
    pub fn alone(
        node: &Node,
        place: Option<(Arc<dyn Disk>, &Path)>,
        mut limits: TasksLimits,
    ) -> Result<Arc<Tasks>, TasksError> {
        let start = |error: io::Error| TasksError::from(ControlError::Start(error.to_string()));
        let tasks = match place {
            Some((disk, dir)) => Tasks::take_part(node, ID, disk, dir, Nobody, limits),
            None => {
                limits.raft.log_bytes_max = limits.raft.log_bytes_max.min(LOG_BYTES_MAX_IN_MEMORY);
                // Memory has its own budget.
                limits.raft.reserve_bytes = 0;
                let (disk, dir) = (Arc::new(MemoryDisk::default()), Path::new("/tasks"));
                Tasks::take_part(node, ID, disk, dir, Nobody, limits)
            }
        };
        let tasks = tasks.map_err(start)?;
        History::is_nowhere_else(node);
        let lead = async {
            if tasks.is_begun().await? {
                // Nobody else can.
                tasks.elect().await?;
            } else {
                tasks.begin(&[Member { id: ID, address: String::new() }]).await?;
            }
            tasks.catch_up().await?;
            tasks.see_to_clock().await
        };
        if let Err(error) = block_on(lead) {
            tasks.stop();
            History::close(node);
            return Err(error);
        }
        Ok(tasks)
    }
}
