//! The cluster's tasks, as a node has them: the scheduler, agreed on by a raft group of its own, and the way from what it decides to workers.
//!
//! The state machine is [`dunlin_tasks`]'. Every node takes every command in, so each finds out by itself what the workers that are
//! attached to it are to do ([`Outlet`]); nothing is sent from the leader to a worker. What happens to tasks is the topic [`TASKS`].
//!
//! Invariants:
//! - A command whose outcome is not known is [`ControlError::Unknown`], and never tried again by itself.
//! - Only a leader's proposals move the cluster's time, so no node ends a worker's lease by its own clock.
//! - The group shares neither log nor snapshots with what else the cluster agrees on: ten million tasks hold up no key.
//!
//! Limits: [`TasksLimits`]; those of the state stand in it, the same on every node ([`dunlin_tasks::Limits`]).
//!
//! Not here: sockets between nodes and to workers; whoever has them hands in a [`Transport`], and attaches workers.

mod alone;
mod ask;
mod error;
mod history;
mod keeper;
mod machine;
mod outlets;
mod place;
mod refused;
mod workers;

use std::io;
use std::iter;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use dunlin_journal::Disk;
use dunlin_raft::{Asking, Frozen, Group, Lane, Lead, Member, Status, Transport, seed};
use dunlin_tasks::State;
use tokio::runtime::Handle;

pub use error::TasksError;
pub use history::TASKS;
pub(crate) use history::is_of_tasks;
pub use outlets::Outlet;
pub(crate) use place::Place;
pub use workers::Attaching;

use crate::control::{ControlError, forward};
use crate::node::Node;
use history::History;
use keeper::Keeper;
use machine::Replicated;
use outlets::Outlets;

/// What requests between nodes begin with that are for this group; those for the other group begin with other bytes.
const MARK: u8 = 0xc7;

/// How a node takes part, and how much it takes. Limits of the state itself are the cluster's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TasksLimits {
    /// Bytes of events that can be read from the past; 0 for no topic of events.
    pub history_bytes: u64,
    /// What tasks may take together, bytes, roughly; more is refused. Of the nodes, the one that leads has its say.
    pub state_bytes_max: u64,
    /// Those of the raft group.
    pub raft: dunlin_raft::Limits,
}

impl Default for TasksLimits {
    fn default() -> TasksLimits {
        let raft = dunlin_raft::Limits { log_bytes_max: 128 << 20, ..dunlin_raft::Limits::default() };
        TasksLimits { history_bytes: 64 << 20, state_bytes_max: 4 << 30, raft }
    }
}

/// A node's part in its cluster's tasks. It ends when it is dropped or stopped.
pub struct Tasks {
    group: Mutex<Option<Arc<Group<Replicated>>>>,
    transport: Arc<dyn Transport>,
    outlets: Arc<Outlets>,
    keeper: Keeper,
    /// The last term in which this node led and has said how late it is.
    clock_term: AtomicU64,
    limits: TasksLimits,
}

/// A transport whose requests are this group's.
struct Marked<T>(T);

impl<T: Transport> Transport for Marked<T> {
    fn ask(&self, member: &Member, lane: Lane, request: Bytes) -> Asking {
        let mut marked = BytesMut::with_capacity(request.len() + 1);
        marked.put_u8(MARK);
        marked.extend_from_slice(&request);
        self.0.ask(member, lane, marked.freeze())
    }

    fn runtime(&self) -> Option<Handle> {
        self.0.runtime()
    }
}

impl Tasks {
    /// Takes a node's place in a cluster again, or waits to be given one: by [`Tasks::begin`] on one node, or by
    /// [`Tasks::add_learner`] on the leader. `transport` reaches the others, which hand what it brings to their
    /// [`Tasks::receive`], if [`Tasks::is_for`] says that it is theirs.
    pub fn take_part(
        node: &Node,
        id: u64,
        disk: Arc<dyn Disk>,
        dir: &Path,
        transport: impl Transport,
        limits: TasksLimits,
    ) -> io::Result<Arc<Tasks>> {
        let history = History::open(node, limits.history_bytes).map_err(io::Error::other)?;
        let outlets = Arc::<Outlets>::default();
        let (keeper, told) = Keeper::new();
        let machine = Replicated::new(history, Arc::clone(&outlets), keeper.sender());
        let transport: Arc<dyn Transport> = Arc::new(Marked(transport));
        let group = Group::start(id, disk, dir, machine, Arc::clone(&transport), limits.raft);
        let group = group.inspect_err(|_| History::close(node))?;
        let group = Mutex::new(Some(Arc::new(group)));
        let clock_term = AtomicU64::new(0);
        let tasks = Arc::new(Tasks { group, transport, outlets, keeper, clock_term, limits });
        tasks.keeper.start(told, Arc::downgrade(&tasks), node.unguarded())?;
        Ok(tasks)
    }

    /// Whether another node's request is for this group.
    pub fn is_for(request: &[u8]) -> bool {
        request.first() == Some(&MARK)
    }

    /// Answers another node: what the transport brought, whatever it is.
    pub async fn receive(&self, request: Bytes) -> io::Result<Bytes> {
        let group = self.group().map_err(io::Error::other)?;
        let request = request.slice(1.min(request.len())..);
        match forward::Request::read(&request) {
            None => group.receive(request).await,
            Some(request) => Ok(self.answer(&group, request?).await),
        }
    }

    /// Begins a cluster of these nodes; on one of them, and once in its life.
    pub async fn begin(&self, members: &[Member]) -> Result<(), TasksError> {
        Ok(self.group()?.begin(members).await?)
    }

    /// Whether it is one of a cluster, or was.
    pub async fn is_begun(&self) -> Result<bool, TasksError> {
        Ok(self.group()?.is_begun().await?)
    }

    /// How it sees its cluster.
    pub fn status(&self) -> Result<Status, TasksError> {
        Ok(self.group()?.status())
    }

    /// Who leads.
    pub fn lead(&self) -> Result<Lead, TasksError> {
        Ok(self.group()?.lead())
    }

    fn leads(&self) -> bool {
        self.lead() == Ok(Lead::Here)
    }

    /// Has a node follow without a vote; returns once it has nearly caught up. On the leader, as all that follows.
    pub async fn add_learner(&self, member: &Member) -> Result<(), TasksError> {
        Ok(self.group()?.add_learner(member).await?)
    }

    /// Gives the vote to these nodes, which follow already, and to no others; those that lose it leave.
    pub async fn set_voters(&self, voters: &[u64]) -> Result<(), TasksError> {
        Ok(self.group()?.set_voters(voters).await?)
    }

    /// Has a node that has no vote follow no more.
    pub async fn remove_learner(&self, id: u64) -> Result<(), TasksError> {
        Ok(self.group()?.remove_learner(id).await?)
    }

    /// Gives a member another address.
    pub async fn set_address(&self, member: &Member) -> Result<(), TasksError> {
        Ok(self.group()?.set_address(member).await?)
    }

    /// Asks to lead now.
    pub async fn elect(&self) -> Result<(), TasksError> {
        Ok(self.group()?.elect().await?)
    }

    /// Hands the lead to another voter.
    pub async fn transfer(&self, to: u64) -> Result<(), TasksError> {
        Ok(self.group()?.transfer(to).await?)
    }

    /// Takes a snapshot now.
    pub async fn snapshot(&self) -> Result<(), TasksError> {
        Ok(self.group()?.snapshot().await?)
    }

    /// The state as this node has it, for a backup; [`Tasks::catch_up`] first makes it as it has to be.
    pub fn freeze(&self) -> Result<Box<dyn Frozen>, TasksError> {
        Ok(self.group()?.freeze())
    }

    /// Writes what a node finds that is started in this directory: it alone is the group, with the tasks of a backup, in a
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
        Ok(self.group()?.commits())
    }

    /// Looks at the state as this node has it.
    pub fn with<R>(&self, look: impl FnOnce(&State) -> R) -> Result<R, TasksError> {
        Ok(self.group()?.with(|machine| look(machine.state())))
    }

    /// Its limits.
    pub fn limits(&self) -> &TasksLimits {
        &self.limits
    }

    /// Ends its part; whoever waits is told.
    pub fn stop(&self) {
        let group = self.group.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.keeper.stop();
        drop(group);
    }

    /// Under which number a task publishes: the same whoever leads.
    fn producer_of(&self, task: u64) -> u64 {
        let epoch = self.group().map_or(0, |group| group.with(|machine| machine.epoch()));
        // Spread over all numbers (SplitMix64, Steele et al. 2014), so that it is no other producer's.
        let mut mixed = task ^ u64::from(epoch).rotate_left(40) ^ 0x6475_6e6c_696e_0007;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)).max(1)
    }

    fn group(&self) -> Result<Arc<Group<Replicated>>, TasksError> {
        let group = self.group.lock().unwrap_or_else(PoisonError::into_inner).clone();
        group.ok_or_else(|| ControlError::Stopped("the node is stopping".to_owned()).into())
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.keeper.stop();
    }
}

impl std::fmt::Debug for Tasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tasks").field("status", &self.status()).finish_non_exhaustive()
    }
}
