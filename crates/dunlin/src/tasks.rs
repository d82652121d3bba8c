//! The cluster's tasks: shards of the scheduler, each replicated by a raft group, and the dispatch of tasks to
//! workers.
//!
//! Each group replicates one shard ([`TaskShard`]) with its own tenants. A worker serves all shards: it joins the first
//! shard, and the node adds it to the others. The node to which a worker is attached divides the worker's slots among
//! the shards (`dealer`).
//!
//! The state machine is in [`dunlin_tasks`]. Every node applies every command, and so determines the orders for the
//! workers that are attached to it ([`WorkerOrderQueue`]). The leader does not send orders to workers of other nodes.
//! Events of tasks are published to the topic [`TASKS`].
//!
//! Invariants:
//! - A command with unknown outcome returns [`ControlError::Unknown`] and is not retried automatically.
//! - Only a leader's proposals advance the cluster's time, so that no node ends a worker's lease by its own
//!   clock.
//! - Keys have a raft group of their own, with a separate log and separate snapshots. Millions of tasks therefore do
//!   not delay keys.
//! - The number of shards is fixed when the directory is created.
//! - Commands for several shards are proposed to all of these shards at the same time, and not as one transaction. If
//!   some shards fail and others do not, the outcome is unknown.
//!
//! Limits: [`TasksLimits`]. Limits of the state are part of the state, and equal on every node
//! ([`dunlin_tasks::SchedulerLimits`]).
//!
//! Not here: connections to nodes, which the caller provides as a [`Transport`], and to workers, which the caller
//! attaches.

mod alone;
mod commands;
mod dealer;
mod dispatcher;
mod error;
mod history;
mod housekeeper;
mod lazy_start;
mod machine;
mod refused;
mod routed;
mod shard;
mod workers;

use std::io;
use std::iter;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dunlin_journal::Disk;
use dunlin_raft::{Leadership, RaftMember, Status, Transport, seed};
use dunlin_tasks::{SHARDS_MAX, SchedulerLimits, SchedulerState, shard_of_id};

pub(crate) use commands::decode_reply;
pub use dispatcher::WorkerOrderQueue;
pub use error::TasksError;
pub use history::TASKS;
pub(crate) use history::is_tasks_pattern;
pub(crate) use lazy_start::LazyTasks;
pub use shard::TaskShard;
pub use workers::WorkerAttachment;

use crate::clock::now_ns;
use crate::node::Node;
use dealer::Dealer;
use dispatcher::Dispatcher;
use history::TaskHistory;
use housekeeper::TasksHousekeeper;
use machine::TasksMachine;

/// Limits of a node's task scheduler. The cluster's leader sets the limits that all nodes share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TasksLimits {
    /// The number of shards, 1 to [`SHARDS_MAX`]. It must be the same on every node, and can never be changed.
    pub shards: u8,
    /// The history of events for each shard, bytes; 0 means that no events are published.
    pub history_bytes: u64,
    /// Maximum size of all tasks, in approximate bytes, divided equally among the shards. Tasks above the limit are
    /// refused. The leader's limit applies to the whole cluster.
    pub state_bytes_max: u64,
    /// Limits of each raft group.
    pub raft: dunlin_raft::RaftLimits,
}

impl Default for TasksLimits {
    fn default() -> TasksLimits {
        let raft = dunlin_raft::RaftLimits { log_bytes_max: 128 << 20, ..dunlin_raft::RaftLimits::default() };
        TasksLimits { shards: 1, history_bytes: 64 << 20, state_bytes_max: 256 << 20, raft }
    }
}

/// A node's membership in all shards of the cluster's task scheduler, until it is dropped or stopped.
pub struct Tasks {
    shards: Vec<Arc<TaskShard>>,
    dispatcher: Arc<Dispatcher>,
    dealer: Arc<Dealer>,
    limits: TasksLimits,
}

impl Tasks {
    /// Starts a member of a cluster. A member that was in the cluster before joins again. A new member waits until each
    /// shard adds it: by [`TaskShard::begin`] on one node, or by [`TaskShard::add_learner`] on the leader. `transport`
    /// creates the transport of a shard. Other nodes pass its requests to [`Tasks::receive`] if [`Tasks::is_for`]
    /// accepts them.
    pub fn start_member<T: Transport>(
        node: &Node,
        id: u64,
        disk: &Arc<dyn Disk>,
        dir: &Path,
        transport: impl FnMut(u8) -> T,
        limits: TasksLimits,
    ) -> io::Result<Arc<Tasks>> {
        Tasks::open(node, id, (disk, dir), transport, limits, true)
    }

    /// Like [`Tasks::start_member`]. If the log is not `durable`, fencing tokens and ids begin at numbers that follow
    /// the clock.
    fn open<T: Transport>(
        node: &Node,
        id: u64,
        (disk, dir): (&Arc<dyn Disk>, &Path),
        mut transport: impl FnMut(u8) -> T,
        limits: TasksLimits,
        durable: bool,
    ) -> io::Result<Arc<Tasks>> {
        check_shards(&**disk, dir, limits.shards)?;
        let topic = TaskHistory::open(node, limits.history_bytes, limits.shards).map_err(io::Error::other)?;
        let (dispatcher, dealer) = (Arc::new(Dispatcher::new(limits.shards)), Arc::new(Dealer::new()));
        let start = node.next_epoch(TASKS, now_ns());
        let mut shards = Vec::new();
        // The first shard is created last, so that all shards exist if the first one does.
        for number in (0..limits.shards).rev() {
            let (housekeeper, receiver) = TasksHousekeeper::new();
            let history = TaskHistory::of(topic.clone(), number);
            // On this node only, the state begins with these numbers. The nodes need not agree here, because no other
            // node, and no later start, applies a log that is not durable.
            let state = SchedulerState::of_shard(SchedulerLimits::default(), number);
            let state = if durable { state } else { state.started_at(start) };
            let machine = TasksMachine::new(
                state,
                history,
                Arc::clone(&dispatcher),
                housekeeper.sender(),
                dealer.signal(),
            );
            let shard_dir = (Arc::clone(disk), &*shard::dir_of(dir, number));
            let shard =
                TaskShard::start((number, id), shard_dir, machine, transport(number), housekeeper, limits);
            let shard = shard.inspect_err(|_| TaskHistory::close(node))?;
            shard.housekeeper.start(receiver, Arc::downgrade(&shard), node.unguarded())?;
            shards.insert(0, shard);
        }
        let tasks = Arc::new(Tasks { shards, dispatcher, dealer, limits });
        if limits.shards > 1 {
            tasks.dealer.start(Arc::downgrade(&tasks))?;
        }
        Ok(tasks)
    }

    /// Whether a request of another node concerns the task scheduler.
    pub fn is_for(request: &Bytes) -> bool {
        shard::unmark(request).is_some()
    }

    /// Handles a request of another node.
    pub async fn receive(&self, request: Bytes) -> io::Result<Bytes> {
        let (number, request) = shard::unmark(&request).ok_or(io::ErrorKind::InvalidData)?;
        let shard = self.shards.get(usize::from(number)).ok_or_else(|| {
            io::Error::other(format!(
                "tasks' shard {number} does not exist: tasks.shards is {}",
                self.shards.len()
            ))
        })?;
        shard.receive(request).await
    }

    /// All shards, by number.
    pub fn shards(&self) -> &[Arc<TaskShard>] {
        &self.shards
    }

    /// The shard through which workers join.
    fn first_shard(&self) -> &Arc<TaskShard> {
        &self.shards[0]
    }

    /// The status of the first shard's Raft group at this node.
    pub fn status(&self) -> Result<Status, TasksError> {
        self.first_shard().status()
    }

    /// The error of a shard's disk, if the disk has too little room. If this node leads the shard, it then refuses
    /// commands that make the state larger.
    pub fn lacks_room(&self) -> Option<String> {
        let why = self.shards.iter().find_map(|shard| shard.status().ok()?.lacks_room)?;
        Some(format!("no room for tasks: {why}"))
    }

    /// The leader of the first shard.
    pub fn lead(&self) -> Result<Leadership, TasksError> {
        self.first_shard().lead()
    }

    /// The directory of a shard. The first shard uses `dir`, and each other shard uses a directory next to it.
    pub fn dir_of(dir: &Path, shard: u8) -> PathBuf {
        shard::dir_of(dir, shard)
    }

    /// Writes a shard's directory ([`Tasks::dir_of`]) from a backup, as a group whose only member is `member`. The
    /// shard's events continue in a new epoch, so that they cannot be confused with events from the time after the
    /// backup.
    pub fn seed(
        disk: Arc<dyn Disk>,
        dir: &Path,
        member: &RaftMember,
        mut blocks: impl Iterator<Item = io::Result<Bytes>>,
    ) -> io::Result<()> {
        let head = blocks.next().transpose()?.as_ref().and_then(history::read_head);
        let (_, count) =
            head.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the node has no state of tasks"))?;
        let head = Bytes::from(history::write_head((0, count)));
        seed(disk, dir, member, iter::once(Ok(head)).chain(blocks))
    }

    /// Number of commands that this node committed as the leader, and the sum of their latencies.
    pub fn commits(&self) -> Result<(u64, Duration), TasksError> {
        self.shards.iter().try_fold((0, Duration::ZERO), |(count, latency), shard| {
            let (shard_count, shard_latency) = shard.commits()?;
            Ok((count + shard_count, latency + shard_latency))
        })
    }

    /// Calls `read` with the state of each shard, one after another.
    pub fn read_each<R>(&self, mut read: impl FnMut(&SchedulerState) -> R) -> Result<Vec<R>, TasksError> {
        self.shards.iter().map(|shard| shard.with(&mut read)).collect()
    }

    /// The name of the tenant that owns a task, if this node knows the task.
    pub fn tenant_of_task(&self, task: u64) -> Option<Vec<u8>> {
        let shard = self.shards.get(usize::from(shard_of_id(task)))?;
        shard.with(|state| state.tenant_of_task(task).map(<[u8]>::to_vec)).ok()?
    }

    /// The limits of this node.
    pub fn limits(&self) -> &TasksLimits {
        &self.limits
    }

    /// Stops all shards; pending calls return errors.
    pub fn stop(&self) {
        self.dealer.stop();
        self.shards.iter().for_each(|shard| shard.stop());
    }
}

/// Returns an error if the directory was created with another number of shards, because the node would then search for
/// tenants in the wrong shards.
fn check_shards(disk: &dyn Disk, dir: &Path, shards: u8) -> io::Result<()> {
    let refused = |why: String| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    if !(1..=SHARDS_MAX).contains(&shards) {
        return refused(format!("tasks.shards = {shards}: expected 1 to {SHARDS_MAX}"));
    }
    // A shard exists if it has a log or a snapshot. A shard that was restored from a backup has only a snapshot.
    let has_files =
        |shard, part| disk.list(&shard::dir_of(dir, shard).join(part)).is_ok_and(|files| !files.is_empty());
    let exists = |shard| has_files(shard, "log") || has_files(shard, "snapshots");
    let existing = (0..SHARDS_MAX).take_while(|shard| exists(*shard)).count() as u8;
    match existing {
        0 => Ok(()),
        existing if existing == shards => Ok(()),
        existing => refused(format!(
            "tasks.shards = {shards}, but {} has {existing} shards of tasks: set tasks.shards = {existing}. The number of shards is fixed when a cluster is created",
            dir.display()
        )),
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.dealer.stop();
    }
}

impl std::fmt::Debug for Tasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tasks").field("shards", &self.shards).finish_non_exhaustive()
    }
}
