//! What a cluster agrees on, as a node has it: keys and values, leases, locks, and the topic of their changes.
//!
//! The state machine is [`dunlin_control`]'s; a raft group takes it through every command, a group of one by default
//! ([`Control::alone`]). What each revision changed is one record of the topic [`KV`], whose sequence is the revision: on
//! every node, in order, and nobody else publishes there.
//!
//! Invariants:
//! - A command whose outcome is not known is [`Unknown`](ControlError::Unknown), and never tried again by itself.
//! - Only a leader's proposals move the cluster's time, so no node ends a lease by its own clock.
//! - A record of the topic is never missing in silence: where history does not join, its readers are told a gap, and
//!   where the revisions are another cluster's life, a new epoch.
//!
//! Limits: [`ControlLimits`]; those of the state stand in it, the same on every node ([`dunlin_control::Limits`]). History is
//! kept up to `history_bytes`, oldest given up first; snapshots hold it, where their disk has room.
//!
//! Not here: sockets between nodes; whoever has them hands in a [`Transport`].

mod alone;
mod ask;
pub(crate) mod asking;
mod block;
mod error;
pub(crate) mod forward;
mod history;
mod machine;
mod place;
mod refused;
mod view;
mod waiting;

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use dunlin_control::State;
use dunlin_journal::Disk;
use dunlin_raft::{Frozen, Group, Lead, Member, Status, Transport};

pub(crate) use alone::refuse_members;
pub use block::block_on;
pub use error::ControlError;
pub use history::KV;
pub(crate) use place::{Place, StartFailure};

use crate::clock::now_ns;
use crate::node::Node;
use history::History;
use machine::Replicated;
use view::View;
use waiting::Waiting;

/// How a node takes part, and how much it takes. Limits of the state itself are the cluster's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControlLimits {
    /// Bytes of changes that can be watched from the past.
    pub history_bytes: u64,
    /// What clients' keys and values may take together, bytes, roughly; more is refused. Of the nodes, the one that leads has its say.
    pub state_bytes_max: u64,
    /// Those of the raft group.
    pub raft: dunlin_raft::Limits,
}

impl Default for ControlLimits {
    fn default() -> ControlLimits {
        ControlLimits {
            history_bytes: 64 << 20,
            state_bytes_max: 256 << 20,
            raft: dunlin_raft::Limits::default(),
        }
    }
}

/// How fresh what is read has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Consistency {
    /// All that was answered to anybody before the question.
    #[default]
    Linearizable,
    /// What this node has taken in by now, and no less than what it had before it was started again: it waits for that.
    Stale,
}

/// A node's part in what its cluster agrees on. It ends when it is dropped or stopped.
pub struct Control {
    group: Mutex<Option<Arc<Group<Replicated>>>>,
    transport: Arc<dyn Transport>,
    view: Arc<View>,
    waiting: Arc<Waiting>,
    /// The epoch that revisions begin with if nobody has begun one.
    epoch: u32,
    /// An epoch is known to have begun.
    begun: AtomicBool,
    /// The last term in which this node led and has said how much there may be.
    limits_term: AtomicU64,
    /// The last entry of its log when it was started, and whether it has applied all up to there.
    last_before: Option<u64>,
    caught_up: AtomicBool,
    limits: ControlLimits,
}

impl Control {
    /// Takes a node's place in a cluster again, or waits to be given one: by [`Control::begin`] on one node, or by
    /// [`Control::add_learner`] on the leader. `transport` reaches the others, which hand what it brings to their
    /// [`Control::receive`].
    pub fn take_part(
        node: &Node,
        id: u64,
        disk: Arc<dyn Disk>,
        dir: &Path,
        transport: impl Transport,
        limits: ControlLimits,
    ) -> io::Result<Arc<Control>> {
        Control::open(node, id, (disk, dir), transport, limits, true)
    }

    /// The same; `keeps_history`: its snapshots hold the history of changes, too.
    fn open(
        node: &Node,
        id: u64,
        (disk, dir): (Arc<dyn Disk>, &Path),
        transport: impl Transport,
        limits: ControlLimits,
        keeps_history: bool,
    ) -> io::Result<Arc<Control>> {
        let history = History::open(node, limits.history_bytes, keeps_history).map_err(io::Error::other)?;
        let epoch = node.next_epoch(KV, now_ns());
        let (view, waiting) = (Arc::<View>::default(), Arc::<Waiting>::default());
        let machine = Replicated::new(history, Arc::clone(&view), Arc::clone(&waiting));
        let transport: Arc<dyn Transport> = Arc::new(transport);
        let group = Group::start(id, disk, dir, machine, Arc::clone(&transport), limits.raft);
        let group = group.inspect_err(|_| History::close(node))?;
        let last_before = group.last_before_start();
        let group = Mutex::new(Some(Arc::new(group)));
        let (begun, caught_up) = (AtomicBool::new(false), AtomicBool::new(false));
        let limits_term = AtomicU64::new(0);
        Ok(Arc::new(Control {
            group,
            transport,
            view,
            waiting,
            epoch,
            begun,
            limits_term,
            last_before,
            caught_up,
            limits,
        }))
    }

    /// Begins a cluster of these nodes; on one of them, and once in its life.
    pub async fn begin(&self, members: &[Member]) -> Result<(), ControlError> {
        self.group()?.begin(members).await?;
        self.begin_epoch().await
    }

    /// Whether it is one of a cluster, or was.
    pub async fn is_begun(&self) -> Result<bool, ControlError> {
        Ok(self.group()?.is_begun().await?)
    }

    /// Answers another node: what the transport brought, whatever it is.
    pub async fn receive(&self, request: Bytes) -> io::Result<Bytes> {
        let group = self.group().map_err(io::Error::other)?;
        match forward::Request::read(&request) {
            None => group.receive(request).await,
            Some(request) => Ok(self.answer(&group, request?).await),
        }
    }

    /// How it sees its cluster.
    pub fn status(&self) -> Result<Status, ControlError> {
        Ok(self.group()?.status())
    }

    /// What the disk of its log said when it had too little room last, as long as that is so: keys that make the log longer are refused
    /// where this node leads.
    pub fn lacks_room(&self) -> Option<String> {
        Some(format!("no room for keys: {}", self.status().ok()?.lacks_room?))
    }

    /// Who leads.
    pub fn lead(&self) -> Result<Lead, ControlError> {
        Ok(self.group()?.lead())
    }

    /// Has a node follow without a vote; returns once it has nearly caught up. On the leader, as all that follows.
    pub async fn add_learner(&self, member: &Member) -> Result<(), ControlError> {
        Ok(self.group()?.add_learner(member).await?)
    }

    /// Gives the vote to these nodes, which follow already, and to no others; those that lose it leave.
    pub async fn set_voters(&self, voters: &[u64]) -> Result<(), ControlError> {
        Ok(self.group()?.set_voters(voters).await?)
    }

    /// Has a node that has no vote follow no more.
    pub async fn remove_learner(&self, id: u64) -> Result<(), ControlError> {
        Ok(self.group()?.remove_learner(id).await?)
    }

    /// How long the elections took that this node won, of late.
    pub fn elections_won(&self) -> Result<Vec<Duration>, ControlError> {
        Ok(self.group()?.elections_won())
    }

    /// How many commands were committed through this node as the leader, and how long they took together: from being asked for
    /// until they were taken in here.
    pub fn commits(&self) -> Result<(u64, Duration), ControlError> {
        Ok(self.group()?.commits())
    }

    /// The state as this node has it, for a backup; [`Control::catch_up`] first makes it as it has to be.
    pub fn freeze(&self) -> Result<Box<dyn Frozen>, ControlError> {
        Ok(self.group()?.freeze())
    }

    /// Gives a member another address.
    pub async fn set_address(&self, member: &Member) -> Result<(), ControlError> {
        Ok(self.group()?.set_address(member).await?)
    }

    /// Asks to lead now.
    pub async fn elect(&self) -> Result<(), ControlError> {
        Ok(self.group()?.elect().await?)
    }

    /// Hands the lead to another voter.
    pub async fn transfer(&self, to: u64) -> Result<(), ControlError> {
        Ok(self.group()?.transfer(to).await?)
    }

    /// Takes a snapshot now.
    pub async fn snapshot(&self) -> Result<(), ControlError> {
        Ok(self.group()?.snapshot().await?)
    }

    /// Looks at the state as this node has it, after the last entry. It waits for no entry that is being taken in.
    pub fn with<R>(&self, look: impl FnOnce(&State) -> R) -> Result<R, ControlError> {
        self.group()?;
        Ok(look(&self.view.state()))
    }

    /// Its limits.
    pub fn limits(&self) -> &ControlLimits {
        &self.limits
    }

    /// Ends its part; whoever waits is told.
    pub fn stop(&self) {
        let group = self.group.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(group);
        self.waiting.end_all();
    }

    fn group(&self) -> Result<Arc<Group<Replicated>>, ControlError> {
        let group = self.group.lock().unwrap_or_else(PoisonError::into_inner).clone();
        group.ok_or_else(|| ControlError::Stopped("the node is stopping".to_owned()))
    }

    fn has_begun(&self) -> bool {
        let begun = self.begun.load(Ordering::Relaxed) || self.view.state().epoch() > 0;
        self.begun.store(begun, Ordering::Relaxed);
        begun
    }
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").field("status", &self.status()).finish_non_exhaustive()
    }
}
