//! The cluster's tasks, as a node has them: the scheduler, agreed on by raft groups of its own, and the way from what it decides to workers.
//!
//! Each group has a shard of the tasks ([`Shard`]), with tenants of its own; there is one unless somebody wants more. A worker works for all of them: it joins in the
//! first, is enlisted in the others, and how many slots it has for each the node deals to which it is attached (`dealer`).
//!
//! The state machine is [`dunlin_tasks`]'. Every node takes every command in, so each finds out by itself what the workers that are
//! attached to it are to do ([`Outlet`]); nothing is sent from the leader to a worker. What happens to tasks is the topic [`TASKS`].
//!
//! Invariants:
//! - A command whose outcome is not known is [`ControlError::Unknown`], and never tried again by itself.
//! - Only a leader's proposals move the cluster's time, so no node ends a worker's lease by its own clock.
//! - The groups share neither log nor snapshots with what else the cluster agrees on: ten million tasks hold up no key.
//! - How many shards there are is decided when the directory is made, and never changes.
//! - Commands for several shards are asked of all at once, and none comes of all or none across shards: where one of them cannot be asked, the outcome is unknown.
//!
//! Limits: [`TasksLimits`]; those of the state stand in it, the same on every node ([`dunlin_tasks::Limits`]).
//!
//! Not here: sockets between nodes and to workers; whoever has them hands in a [`Transport`], and attaches workers.

mod alone;
mod ask;
mod dealer;
mod error;
mod history;
mod keeper;
mod machine;
mod outlets;
mod place;
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
use dunlin_raft::{Lead, Member, Status, Transport, seed};
use dunlin_tasks::{SHARDS_MAX, State, shard_of_id};

pub(crate) use ask::reply;
pub use error::TasksError;
pub use history::TASKS;
pub(crate) use history::is_of_tasks;
pub use outlets::Outlet;
pub(crate) use place::Place;
pub use shard::Shard;
pub use workers::Attaching;

use crate::node::Node;
use dealer::Dealer;
use history::History;
use keeper::Keeper;
use machine::Replicated;
use outlets::Outlets;

/// How a node takes part, and how much it takes. Limits of the state itself are the cluster's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TasksLimits {
    /// Shards of the cluster's tasks, 1 to [`SHARDS_MAX`]; the same on every node, for ever.
    pub shards: u8,
    /// Bytes of events that can be read from the past, of each shard; 0 for no topic of events.
    pub history_bytes: u64,
    /// What tasks may take together, bytes, roughly, each shard an equal part; more is refused. Of the nodes, the one that leads has its say.
    pub state_bytes_max: u64,
    /// Those of each raft group.
    pub raft: dunlin_raft::Limits,
}

impl Default for TasksLimits {
    fn default() -> TasksLimits {
        let raft = dunlin_raft::Limits { log_bytes_max: 128 << 20, ..dunlin_raft::Limits::default() };
        TasksLimits { shards: 1, history_bytes: 64 << 20, state_bytes_max: 256 << 20, raft }
    }
}

/// A node's part in its cluster's tasks. It ends when it is dropped or stopped.
pub struct Tasks {
    shards: Vec<Arc<Shard>>,
    outlets: Arc<Outlets>,
    dealer: Arc<Dealer>,
    limits: TasksLimits,
}

impl Tasks {
    /// Takes a node's place in a cluster again, or waits to be given one: by [`Shard::begin`] on one node, or by
    /// [`Shard::add_learner`] on the leader, for each shard. `transport` makes what reaches the others for a shard, which hand what it brings to their
    /// [`Tasks::receive`], if [`Tasks::is_for`] says that it is theirs.
    pub fn take_part<T: Transport>(
        node: &Node,
        id: u64,
        disk: &Arc<dyn Disk>,
        dir: &Path,
        mut transport: impl FnMut(u8) -> T,
        limits: TasksLimits,
    ) -> io::Result<Arc<Tasks>> {
        check_shards(&**disk, dir, limits.shards)?;
        let topic = History::open(node, limits.history_bytes, limits.shards).map_err(io::Error::other)?;
        let (outlets, dealer) = (Arc::new(Outlets::new(limits.shards)), Arc::new(Dealer::new()));
        let mut shards = Vec::new();
        // The first is the last to be made: where it is there, all are.
        for number in (0..limits.shards).rev() {
            let (keeper, told) = Keeper::new();
            let history = History::of(topic.clone(), number);
            let machine =
                Replicated::new(number, history, Arc::clone(&outlets), keeper.sender(), dealer.bell());
            let place = (Arc::clone(disk), &*shard::dir_of(dir, number));
            let shard = Shard::start((number, id), place, machine, transport(number), keeper, limits);
            let shard = shard.inspect_err(|_| History::close(node))?;
            shard.keeper.start(told, Arc::downgrade(&shard), node.unguarded())?;
            shards.insert(0, shard);
        }
        let tasks = Arc::new(Tasks { shards, outlets, dealer, limits });
        if limits.shards > 1 {
            tasks.dealer.start(Arc::downgrade(&tasks))?;
        }
        Ok(tasks)
    }

    /// Whether another node's request is for one of these groups.
    pub fn is_for(request: &Bytes) -> bool {
        shard::unmark(request).is_some()
    }

    /// Answers another node: what the transport brought, whatever it is.
    pub async fn receive(&self, request: Bytes) -> io::Result<Bytes> {
        let (number, request) = shard::unmark(&request).ok_or(io::ErrorKind::InvalidData)?;
        let shard = self.shards.get(usize::from(number)).ok_or_else(|| {
            io::Error::other(format!(
                "there is no shard {number} of tasks here: tasks.shards is {}",
                self.shards.len()
            ))
        })?;
        shard.receive(request).await
    }

    /// All of its shards, by their numbers.
    pub fn shards(&self) -> &[Arc<Shard>] {
        &self.shards
    }

    /// Where workers join.
    fn home(&self) -> &Arc<Shard> {
        &self.shards[0]
    }

    /// How the first shard sees its cluster.
    pub fn status(&self) -> Result<Status, TasksError> {
        self.home().status()
    }

    /// What the disk of a shard's log said when it had too little room last, as long as that is so: tasks that make the log longer are
    /// refused where this node leads the shard.
    pub fn lacks_room(&self) -> Option<String> {
        let why = self.shards.iter().find_map(|shard| shard.status().ok()?.lacks_room)?;
        Some(format!("no room for tasks: {why}"))
    }

    /// Who leads the first shard.
    pub fn lead(&self) -> Result<Lead, TasksError> {
        self.home().lead()
    }

    /// Where a shard lies that lives in this directory: the first in it, others in directories beside it.
    pub fn dir_of(dir: &Path, shard: u8) -> PathBuf {
        shard::dir_of(dir, shard)
    }

    /// Writes what a node finds that is started in this directory, of one shard ([`Tasks::dir_of`]): it alone is the group, with the tasks of a backup, in a
    /// life of their own: their next events are in another epoch than those that followed the backup.
    pub fn seed(
        disk: Arc<dyn Disk>,
        dir: &Path,
        member: &Member,
        mut blocks: impl Iterator<Item = io::Result<Bytes>>,
    ) -> io::Result<()> {
        let head = blocks.next().transpose()?.as_ref().and_then(history::read_head);
        let (_, count) =
            head.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no state of tasks"))?;
        let anew = Bytes::from(history::write_head((0, count)));
        seed(disk, dir, member, iter::once(Ok(anew)).chain(blocks))
    }

    /// How many commands were committed through this node as the leader, and how long they took together.
    pub fn commits(&self) -> Result<(u64, Duration), TasksError> {
        self.shards.iter().try_fold((0, Duration::ZERO), |(count, took), shard| {
            let (more, also) = shard.commits()?;
            Ok((count + more, took + also))
        })
    }

    /// Looks at the state of each shard as this node has it, one after another.
    pub fn each<R>(&self, mut look: impl FnMut(&State) -> R) -> Result<Vec<R>, TasksError> {
        self.shards.iter().map(|shard| shard.with(&mut look)).collect()
    }

    /// Whose a task is, by name, if this node knows it.
    pub fn tenant_of_task(&self, task: u64) -> Option<Vec<u8>> {
        let shard = self.shards.get(usize::from(shard_of_id(task)))?;
        shard.with(|state| state.tenant_of_task(task).map(<[u8]>::to_vec)).ok()?
    }

    /// Its limits.
    pub fn limits(&self) -> &TasksLimits {
        &self.limits
    }

    /// Ends its part; whoever waits is told.
    pub fn stop(&self) {
        self.dealer.stop();
        self.shards.iter().for_each(|shard| shard.stop());
    }
}

/// Refuses another number of shards than a directory was made with: tenants would be looked for where they are not.
fn check_shards(disk: &dyn Disk, dir: &Path, shards: u8) -> io::Result<()> {
    let refused = |why: String| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    if !(1..=SHARDS_MAX).contains(&shards) {
        return refused(format!("tasks.shards = {shards}: expected 1 to {SHARDS_MAX}"));
    }
    // One that was made of a backup has a snapshot, and no log yet.
    let has =
        |shard, part| disk.list(&shard::dir_of(dir, shard).join(part)).is_ok_and(|files| !files.is_empty());
    let is_there = |shard| has(shard, "log") || has(shard, "snapshots");
    let made = (0..SHARDS_MAX).take_while(|shard| is_there(*shard)).count() as u8;
    match made {
        0 => Ok(()),
        made if made == shards => Ok(()),
        made => refused(format!(
            "tasks.shards = {shards}, and the tasks in {} are in {made}: set tasks.shards = {made}. How many there are is decided when a cluster is made",
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
