//! Keys, leases and locks on which the nodes of a cluster agree, and the topic with the changes of keys.
//!
//! A raft group replicates the state machine of [`dunlin_control`]. On a single node, the raft group has one member
//! ([`ControlGroup::start_single_node`]). The topic of changes is [`KV`]. It has one record for each revision, and the
//! record's sequence number is the revision. The topic is the same on every node, and only the state machine publishes
//! to it.
//!
//! Invariants:
//! - A command with unknown outcome returns [`Unknown`](ControlError::Unknown) and is not retried automatically.
//! - Only a leader's proposals advance the cluster's time, so that no node ends a lease by its own clock.
//! - The topic always reports a missing record: as a gap within an epoch, or as a new epoch if revisions begin again.
//!
//! Limits: [`ControlLimits`] applies to one node. The limits of the replicated state are part of that state, and equal
//! on every node ([`dunlin_control::ControlStateLimits`]). The topic keeps up to `history_bytes` of changes. Snapshots
//! contain these changes if the disk has room for them.
//!
//! Not here: connections between nodes, which the caller provides as a [`Transport`].

mod alone;
mod block;
mod cluster_directory;
mod commands;
mod error;
pub(crate) mod forward;
mod history;
mod lazy_start;
mod lock_waiters;
mod machine;
pub(crate) mod proposing;
mod refused;
mod start;
mod view;

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use dunlin_control::ControlState;
use dunlin_journal::Disk;
use dunlin_raft::{FrozenMachine, GroupHandle, Leadership, RaftMember, Status, Transport};

pub use block::block_on;
pub use cluster_directory::find_cluster_log;
pub(crate) use cluster_directory::refuse_members;
pub use error::ControlError;
pub(crate) use error::describe_shortage;
pub use history::KV;
pub(crate) use lazy_start::{LazyControl, StartFailure};
pub(crate) use start::with_room;

use crate::clock::now_ns;
use crate::node::Node;
use history::ChangeHistory;
use lock_waiters::LockWaiters;
use machine::ControlMachine;
use view::StateView;

/// The limits for keys, leases and locks at one node: the state's size, the history of changes, and the Raft group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControlLimits {
    /// The size of the history of changes, bytes. A watch can begin at any revision that the history still contains.
    pub history_bytes: u64,
    /// Maximum size of all keys and values, in approximate bytes; commands that would exceed this limit are refused.
    /// The leader's limit applies to the whole cluster.
    pub state_bytes_max: u64,
    /// Limits of the raft group.
    pub raft: dunlin_raft::RaftLimits,
}

impl Default for ControlLimits {
    fn default() -> ControlLimits {
        ControlLimits {
            history_bytes: 64 << 20,
            state_bytes_max: 256 << 20,
            raft: dunlin_raft::RaftLimits::default(),
        }
    }
}

/// The consistency of a read: the newest state of the cluster, or an older state of this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Consistency {
    /// The read sees every command that the cluster had acknowledged before the read began.
    #[default]
    Linearizable,
    /// The read sees the commands that this node has applied. After a restart, these are at least the commands that the
    /// node's log contained at the start.
    Stale,
}

/// The number of low bits of a lease number that count the leases of one epoch, on a node without a data directory. The
/// other bits are the epoch. After each start, such a node uses a later epoch, and epochs grow by 1 every 100 ms. With
/// at most 2^20 leases in 100 ms, lease numbers therefore do not repeat after a restart. The numbers stay below 2^53,
/// so that a JSON number holds them exactly.
const LEASES_PER_EPOCH_BITS: u32 = 20;

/// This node's membership in the Raft group for keys, leases and locks. Dropping or stopping a `ControlGroup` does not
/// remove the node from the group.
pub struct ControlGroup {
    group: Mutex<Option<Arc<GroupHandle<ControlMachine>>>>,
    transport: Arc<dyn Transport>,
    view: Arc<StateView>,
    lock_waiters: Arc<LockWaiters>,
    /// The epoch that this node proposes if the cluster has none yet.
    epoch: u32,
    /// Whether this node knows that the cluster has an epoch.
    begun: AtomicBool,
    /// The last term in which this node, as the leader, proposed its limits.
    limits_term: AtomicU64,
    /// The index of the last log entry that existed when this node started, if any. `caught_up` says whether the node
    /// has applied this entry.
    last_before: Option<u64>,
    caught_up: AtomicBool,
    limits: ControlLimits,
}

impl ControlGroup {
    /// Starts this node as a member of a cluster. If the node was a member before, it takes part again at once. A new
    /// node waits for a call of [`ControlGroup::begin`] on any node or of [`ControlGroup::add_learner`] on the leader.
    /// `transport` sends requests to other nodes. A node passes a received request to [`ControlGroup::receive`].
    pub fn start_member(
        node: &Node,
        id: u64,
        disk: Arc<dyn Disk>,
        dir: &Path,
        transport: impl Transport,
        limits: ControlLimits,
    ) -> io::Result<Arc<ControlGroup>> {
        ControlGroup::open(node, id, (disk, dir), transport, limits, true)
    }

    /// Like [`ControlGroup::start_member`], but also for a log that is lost when the node restarts; `durable` is `false` for
    /// such a log. With such a log, snapshots do not contain the history of changes. The node then grants only lease
    /// numbers above all that it granted before the restart.
    fn open(
        node: &Node,
        id: u64,
        (disk, dir): (Arc<dyn Disk>, &Path),
        transport: impl Transport,
        limits: ControlLimits,
        durable: bool,
    ) -> io::Result<Arc<ControlGroup>> {
        let history = ChangeHistory::open(node, limits.history_bytes, durable).map_err(io::Error::other)?;
        let epoch = node.next_epoch(KV, now_ns());
        let (view, lock_waiters) = (Arc::<StateView>::default(), Arc::<LockWaiters>::default());
        // Lease numbers begin above this number. Other nodes need not agree on it: a log that is not durable is applied
        // only by this node, and only until its next restart.
        let state = match durable {
            true => ControlState::default(),
            false => ControlState::with_leases_after(u64::from(epoch) << LEASES_PER_EPOCH_BITS),
        };
        let machine = ControlMachine::new(state, history, Arc::clone(&view), Arc::clone(&lock_waiters));
        let transport: Arc<dyn Transport> = Arc::new(transport);
        let group = GroupHandle::start(id, disk, dir, machine, Arc::clone(&transport), limits.raft);
        let group = group.inspect_err(|_| ChangeHistory::close(node))?;
        let last_before = group.last_before_start();
        let group = Mutex::new(Some(Arc::new(group)));
        let (begun, caught_up) = (AtomicBool::new(false), AtomicBool::new(false));
        let limits_term = AtomicU64::new(0);
        Ok(Arc::new(ControlGroup {
            group,
            transport,
            view,
            lock_waiters,
            epoch,
            begun,
            limits_term,
            last_before,
            caught_up,
            limits,
        }))
    }

    /// Begins a cluster whose first members are `members`. Call this once, on one of these members.
    pub async fn begin(&self, members: &[RaftMember]) -> Result<(), ControlError> {
        self.group()?.begin(members).await?;
        self.begin_epoch().await
    }

    /// Whether this node is or was part of a cluster.
    pub async fn is_begun(&self) -> Result<bool, ControlError> {
        Ok(self.group()?.is_begun().await?)
    }

    /// Handles a request of another node.
    pub async fn receive(&self, request: Bytes) -> io::Result<Bytes> {
        let group = self.group().map_err(io::Error::other)?;
        match forward::ForwardedRequest::read(&request) {
            None => group.receive(request).await,
            Some(request) => Ok(self.handle_forwarded(&group, request?).await),
        }
    }

    /// The status of the Raft group at this node.
    pub fn status(&self) -> Result<Status, ControlError> {
        Ok(self.group()?.status())
    }

    /// If the log of the Raft group cannot grow, returns a description of the error: the disk has too little room, or
    /// the process or the machine lacks file descriptors or memory. While this lasts, a leader refuses commands that
    /// make the state larger.
    pub fn lacks_room(&self) -> Option<String> {
        Some(describe_shortage("keys", self.status().ok()?.lacks_room?))
    }

    /// The leader of the Raft group, as far as this node knows.
    pub fn lead(&self) -> Result<Leadership, ControlError> {
        Ok(self.group()?.leadership())
    }

    /// Adds a learner, a member without a vote. Returns once the learner has nearly caught up. Like all membership
    /// changes, this call succeeds only on the leader.
    pub async fn add_learner(&self, member: &RaftMember) -> Result<(), ControlError> {
        Ok(self.group()?.add_learner(member).await?)
    }

    /// Sets the voters. Each must already be a member. Present voters that are not in `voters` leave the cluster.
    pub async fn set_voters(&self, voters: &[u64]) -> Result<(), ControlError> {
        Ok(self.group()?.set_voters(voters).await?)
    }

    /// Removes a learner, a member without a vote.
    pub async fn remove_learner(&self, id: u64) -> Result<(), ControlError> {
        Ok(self.group()?.remove_learner(id).await?)
    }

    /// The durations of the recent elections that this node won.
    pub fn elections_won(&self) -> Result<Vec<Duration>, ControlError> {
        Ok(self.group()?.elections_won())
    }

    /// The number of commands that this node committed as the leader, and the sum of the commands' latencies.
    pub fn commits(&self) -> Result<(u64, Duration), ControlError> {
        Ok(self.group()?.commits())
    }

    /// Returns this node's state for a backup. Call [`ControlGroup::catch_up`] first if the backup has to include the latest
    /// commands.
    pub fn freeze(&self) -> Result<Box<dyn FrozenMachine>, ControlError> {
        Ok(self.group()?.freeze())
    }

    /// Changes a member's address.
    pub async fn set_address(&self, member: &RaftMember) -> Result<(), ControlError> {
        Ok(self.group()?.set_address(member).await?)
    }

    /// Starts an election in which this node is a candidate.
    pub async fn elect(&self) -> Result<(), ControlError> {
        Ok(self.group()?.elect().await?)
    }

    /// Transfers leadership to another voter.
    pub async fn transfer(&self, to: u64) -> Result<(), ControlError> {
        Ok(self.group()?.transfer(to).await?)
    }

    /// Writes a snapshot of the present state to the log's disk.
    pub async fn snapshot(&self) -> Result<(), ControlError> {
        Ok(self.group()?.snapshot().await?)
    }

    /// Calls `read` with the state after the last applied entry. Does not wait for an entry that is being applied.
    pub fn with<R>(&self, read: impl FnOnce(&ControlState) -> R) -> Result<R, ControlError> {
        self.group()?;
        Ok(read(&self.view.state()))
    }

    /// The limits of this node.
    pub fn limits(&self) -> &ControlLimits {
        &self.limits
    }

    /// Stops the group; pending calls return errors.
    pub fn stop(&self) {
        let group = self.group.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(group);
        self.lock_waiters.end_all();
    }

    fn group(&self) -> Result<Arc<GroupHandle<ControlMachine>>, ControlError> {
        let group = self.group.lock().unwrap_or_else(PoisonError::into_inner).clone();
        group.ok_or_else(|| ControlError::Stopped("the node is stopping".to_owned()))
    }

    fn has_begun(&self) -> bool {
        let begun = self.begun.load(Ordering::Relaxed) || self.view.state().epoch() > 0;
        self.begun.store(begun, Ordering::Relaxed);
        begun
    }
}

impl std::fmt::Debug for ControlGroup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ControlGroup").field("status", &self.status()).finish_non_exhaustive()
    }
}
