//! One shard of a cluster's tasks, as a node has it: a raft group of its own, with tenants of its own.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use dunlin_journal::Disk;
use dunlin_raft::{Asking, Frozen, Group, Lane, Lead, Member, Status, Transport};
use dunlin_tasks::State;
use tokio::runtime::Handle;

use super::keeper::Keeper;
use super::machine::Replicated;
use super::{TasksError, TasksLimits};
use crate::control::{ControlError, forward};

/// What requests between nodes begin with that are for the first shard; those for what is agreed on besides begin with other bytes.
const FIRST: u8 = 0xc7;
/// The same for another, whose number follows.
const ANOTHER: u8 = 0xc8;

/// A node's part in one shard. It ends when it is dropped or stopped.
pub struct Shard {
    pub(super) number: u8,
    group: Mutex<Option<Arc<Group<Replicated>>>>,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) keeper: Keeper,
    /// The last term in which this node led and has said how late it is.
    pub(super) clock_term: AtomicU64,
    /// The last entry of its log when it was started, and whether it has applied all up to there.
    pub(super) last_before: Option<u64>,
    pub(super) caught_up: AtomicBool,
    pub(super) limits: TasksLimits,
}

/// A transport whose requests are this shard's.
struct Marked<T>(T, u8);

impl<T: Transport> Transport for Marked<T> {
    fn ask(&self, member: &Member, lane: Lane, mut request: Vec<Bytes>) -> Asking {
        let mark = match self.1 {
            0 => Bytes::from_static(&[FIRST]),
            shard => Bytes::copy_from_slice(&[ANOTHER, shard]),
        };
        request.insert(0, mark);
        self.0.ask(member, lane, request)
    }

    fn runtime(&self) -> Option<Handle> {
        self.0.runtime()
    }
}

/// For which shard another node's request is, and what it is without saying so.
pub(super) fn unmark(request: &Bytes) -> Option<(u8, Bytes)> {
    match **request {
        [FIRST, ..] => Some((0, request.slice(1..))),
        [ANOTHER, shard, ..] => Some((shard, request.slice(2..))),
        _ => None,
    }
}

/// Where a shard has its log: the first in the directory itself, another in one beside it.
pub(super) fn dir_of(dir: &Path, shard: u8) -> PathBuf {
    match shard {
        0 => dir.to_owned(),
        shard => {
            let mut name = dir.file_name().unwrap_or_default().to_owned();
            name.push(format!("-{shard}"));
            dir.with_file_name(name)
        }
    }
}

impl Shard {
    pub(super) fn start(
        (number, id): (u8, u64),
        (disk, dir): (Arc<dyn Disk>, &Path),
        machine: Replicated,
        transport: impl Transport,
        keeper: Keeper,
        limits: TasksLimits,
    ) -> io::Result<Arc<Shard>> {
        let transport: Arc<dyn Transport> = Arc::new(Marked(transport, number));
        let group = Group::start(id, disk, dir, machine, Arc::clone(&transport), limits.raft)?;
        let last_before = group.last_before_start();
        let (group, clock_term) = (Mutex::new(Some(Arc::new(group))), AtomicU64::new(0));
        let caught_up = AtomicBool::new(false);
        Ok(Arc::new(Shard { number, group, transport, keeper, clock_term, last_before, caught_up, limits }))
    }

    /// Its number.
    pub fn number(&self) -> u8 {
        self.number
    }

    /// Answers another node, whose request is for this shard.
    pub(super) async fn receive(&self, request: Bytes) -> io::Result<Bytes> {
        let group = self.group().map_err(io::Error::other)?;
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

    pub(super) fn leads(&self) -> bool {
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

    /// The state as this node has it, for a backup; [`Shard::catch_up`] first makes it as it has to be.
    pub fn freeze(&self) -> Result<Box<dyn Frozen>, TasksError> {
        Ok(self.group()?.freeze())
    }

    /// How many commands were committed through this node as the leader, and how long they took together.
    pub fn commits(&self) -> Result<(u64, Duration), TasksError> {
        Ok(self.group()?.commits())
    }

    /// Looks at the shard's state as this node has it.
    pub fn with<R>(&self, look: impl FnOnce(&State) -> R) -> Result<R, TasksError> {
        Ok(self.group()?.with(|machine| look(machine.state())))
    }

    /// Ends its part; whoever waits is told.
    pub(super) fn stop(&self) {
        let group = self.group.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.keeper.stop();
        drop(group);
    }

    /// Under which number a task publishes: the same whoever leads.
    pub(super) fn producer_of(&self, task: u64) -> u64 {
        let epoch = self.group().map_or(0, |group| group.with(|machine| machine.epoch()));
        // Spread over all numbers (SplitMix64, Steele et al. 2014), so that it is no other producer's.
        let mut mixed = task ^ u64::from(epoch).rotate_left(40) ^ 0x6475_6e6c_696e_0007;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)).max(1)
    }

    pub(super) fn group(&self) -> Result<Arc<Group<Replicated>>, TasksError> {
        let group = self.group.lock().unwrap_or_else(PoisonError::into_inner).clone();
        group.ok_or_else(|| ControlError::Stopped("the node is stopping".to_owned()).into())
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        self.keeper.stop();
    }
}

impl std::fmt::Debug for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shard")
            .field("number", &self.number)
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}
