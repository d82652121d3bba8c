//! The cluster's task scheduler: its shards, each of which a raft group replicates, and the dispatch of tasks to
//! workers.
//!
//! Each raft group replicates one shard ([`TaskShard`]) with the shard's own tenants. A worker serves all shards: it
//! joins the first shard, and the node adds it to the others. The node to which a worker is attached divides the
//! worker's slots among the shards (`dealer`).
//!
//! The state machine is in [`dunlin_tasks`]. Every node applies every command, and so computes the orders for its own
//! workers ([`WorkerOrderQueue`]). The leader therefore need not send orders to the workers of other nodes. Events of
//! tasks are published to the topic [`TASKS`].
//!
//! Invariants:
//! - A command with unknown outcome returns [`ControlError::Unknown`] and is not retried automatically.
//! - Only a leader's proposals advance the cluster's time, so that no node ends a worker's lease by its own clock.
//! - Keys have a raft group of their own, with a separate log and separate snapshots. Millions of tasks therefore do
//!   not delay keys.
//! - The number of shards is fixed when the data directory is created.
//! - Commands for several shards are proposed to all of these shards at the same time, and not as one transaction. If
//!   some shards fail and others do not, the outcome is unknown.
//!
//! Limits: [`TasksLimits`] applies to one node. The limits of the replicated state are part of that state, and equal on
//! every node ([`dunlin_tasks::SchedulerLimits`]).
//!
//! Not here: connections to nodes, which the caller provides as a [`Transport`], and connections to workers, for which
//! the caller attaches a [`WorkerOrderQueue`].

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
use crate::control::describe_shortage;
use crate::node::Node;
use dealer::Dealer;
use dispatcher::Dispatcher;
use history::TaskHistory;
use housekeeper::TasksHousekeeper;
use machine::TasksMachine;

/// The limits of a node's task scheduler. `state_bytes_max` of the leader applies to the whole cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TasksLimits {
    /// The number of shards, 1 to [`SHARDS_MAX`]. It must be the same on every node, and cannot be changed later.
    pub shards: u8,
    /// The size of the history of events for each shard, bytes; 0 means that no events are published.
    pub history_bytes: u64,
    /// Maximum size of all tasks, in approximate bytes, divided equally among the shards. At this limit, new tasks are
    /// refused. The leader's limit applies to the whole cluster.
    pub state_bytes_max: u64,
    /// The limits of each shard's raft group.
    pub raft: dunlin_raft::RaftLimits,
}

impl Default for TasksLimits {
    fn default() -> TasksLimits {
        let raft = dunlin_raft::RaftLimits { log_bytes_max: 128 << 20, ..dunlin_raft::RaftLimits::default() };
        TasksLimits { shards: 1, history_bytes: 64 << 20, state_bytes_max: 256 << 20, raft }
    }
}

/// A node's membership in the Raft groups of all shards. The membership ends when the value is stopped or dropped.
pub struct Tasks {
    shards: Vec<Arc<TaskShard>>,
    dispatcher: Arc<Dispatcher>,
    dealer: Arc<Dealer>,
    limits: TasksLimits,
}

impl Tasks {
    /// Starts this node as a member of a cluster. If the node was a member before, it takes part again at once. A new
    /// node waits until each shard adds it: by [`TaskShard::begin`] on one node, or by [`TaskShard::add_learner`] on
    /// the leader. `transport` creates the transport of a shard. This transport sends requests to other nodes. A node
    /// passes a received request to [`Tasks::receive`] if [`Tasks::is_for`] returns `true` for it.
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

    /// Like [`Tasks::start_member`], but also for a log that is lost when the node restarts; `durable` is `false` for
    /// such a log. In this case, fencing tokens and ids begin at numbers that are computed from the clock.
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
        // Create the first shard last: if it exists after a crash, all other shards exist, too.
        for number in (0..limits.shards).rev() {
            let (housekeeper, receiver) = TasksHousekeeper::new();
            let history = TaskHistory::of(topic.clone(), number);
            // Fencing tokens and ids begin at numbers after `start`. Other nodes need not agree on these numbers: a log
            // that is not durable is applied only by this node, and only until its next restart.
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

    /// Whether a request from another node is for the task scheduler.
    pub fn is_for(request: &Bytes) -> bool {
        shard::unmark(request).is_some()
    }

    /// Handles a request from another node.
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

    /// All shards, in the order of their numbers.
    pub fn shards(&self) -> &[Arc<TaskShard>] {
        &self.shards
    }

    /// The shard with number 0, through which workers join.
    fn first_shard(&self) -> &Arc<TaskShard> {
        &self.shards[0]
    }

    /// The status of the first shard's Raft group at this node.
    pub fn status(&self) -> Result<Status, TasksError> {
        self.first_shard().status()
    }

    /// If the log of a shard cannot grow, returns a description of the error: the disk has too little room, or the
    /// process or the machine lacks file descriptors or memory. While this lasts, the shard's leader refuses commands
    /// that make the state larger.
    pub fn lacks_room(&self) -> Option<String> {
        let error = self.shards.iter().find_map(|shard| shard.status().ok()?.lacks_room)?;
        Some(describe_shortage("tasks", error))
    }

    /// The leader of the first shard's Raft group, as far as this node knows.
    pub fn lead(&self) -> Result<Leadership, TasksError> {
        self.first_shard().lead()
    }

    /// The directory of a shard. The first shard uses `dir`, and each other shard uses a directory next to it.
    pub fn dir_of(dir: &Path, shard: u8) -> PathBuf {
        shard::dir_of(dir, shard)
    }

    /// Writes a shard's directory ([`Tasks::dir_of`]) from a backup. `member` is the only member of the shard's new
    /// Raft group. The shard's events continue in a new epoch, so that they cannot be confused with events from the
    /// time after the backup.
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

    /// The number of commands that this node committed as the leader, and the sum of the commands' latencies.
    pub fn commits(&self) -> Result<(u64, Duration), TasksError> {
        self.shards.iter().try_fold((0, Duration::ZERO), |(count, latency), shard| {
            let (shard_count, shard_latency) = shard.commits()?;
            Ok((count + shard_count, latency + shard_latency))
        })
    }

    /// Calls `read` with the state of one shard after another, and returns the results.
    pub fn read_each<R>(&self, mut read: impl FnMut(&SchedulerState) -> R) -> Result<Vec<R>, TasksError> {
        self.shards.iter().map(|shard| shard.with(&mut read)).collect()
    }

    /// The name of the tenant to which a task belongs, if this node knows the task.
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

/// Returns an error if the data directory was created with another number of shards. With a different number, the node
/// would search for tenants in the wrong shards.
fn check_shards(disk: &dyn Disk, dir: &Path, shards: u8) -> io::Result<()> {
    let refused = |why: String| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    if !(1..=SHARDS_MAX).contains(&shards) {
        return refused(format!("tasks.shards = {shards}: expected 1 to {SHARDS_MAX}"));
    }
    // A shard exists if it has a log or a snapshot; after a restore from a backup, it has only a snapshot.
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
