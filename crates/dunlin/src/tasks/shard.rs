//! One shard of the task scheduler. It has its own tenants, and a raft group of its own replicates it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use dunlin_journal::Disk;
use dunlin_raft::{
    FrozenMachine, GroupHandle, Leadership, RaftMember, RequestLane, ResponseFuture, Status, Transport,
};
use dunlin_tasks::SchedulerState;
use tokio::runtime::Handle;

use super::housekeeper::TasksHousekeeper;
use super::machine::TasksMachine;
use super::{TasksError, TasksLimits};
use crate::control::{ControlError, forward};

/// The first byte of requests for the first shard. Requests for keys, leases and locks begin with other bytes.
const FIRST: u8 = 0xc7;
/// The first byte of requests for another shard. The shard's number follows.
const ANOTHER: u8 = 0xc8;

/// A node's membership in one shard of the task scheduler. The membership ends when the value is stopped or dropped.
pub struct TaskShard {
    pub(super) number: u8,
    group: Mutex<Option<Arc<GroupHandle<TasksMachine>>>>,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) housekeeper: TasksHousekeeper,
    /// The last term in which this node, as the leader, set the cluster's clock.
    pub(super) clock_term: AtomicU64,
    /// The index of the last log entry that existed when this node started, if any.
    pub(super) last_before: Option<u64>,
    pub(super) caught_up: AtomicBool,
    pub(super) limits: TasksLimits,
}

/// A transport that marks each request with the number of its shard.
struct ShardTransport<T>(T, u8);

impl<T: Transport> Transport for ShardTransport<T> {
    fn request(&self, member: &RaftMember, lane: RequestLane, mut request: Vec<Bytes>) -> ResponseFuture {
        let mark = match self.1 {
            0 => Bytes::from_static(&[FIRST]),
            shard => Bytes::copy_from_slice(&[ANOTHER, shard]),
        };
        request.insert(0, mark);
        self.0.request(member, lane, request)
    }

    fn runtime(&self) -> Option<Handle> {
        self.0.runtime()
    }
}

/// Reads and removes the mark at the beginning of a request. Returns the number of the shard that the request is for,
/// and the rest of the request. `None` if the request is not for the task scheduler.
pub(super) fn unmark(request: &Bytes) -> Option<(u8, Bytes)> {
    match **request {
        [FIRST, ..] => Some((0, request.slice(1..))),
        [ANOTHER, shard, ..] => Some((shard, request.slice(2..))),
        _ => None,
    }
}

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

impl TaskShard {
    pub(super) fn start(
        (number, id): (u8, u64),
        (disk, dir): (Arc<dyn Disk>, &Path),
        machine: TasksMachine,
        transport: impl Transport,
        housekeeper: TasksHousekeeper,
        limits: TasksLimits,
    ) -> io::Result<Arc<TaskShard>> {
        let transport: Arc<dyn Transport> = Arc::new(ShardTransport(transport, number));
        let group = GroupHandle::start(id, disk, dir, machine, Arc::clone(&transport), limits.raft)?;
        let last_before = group.last_before_start();
        let (group, clock_term) = (Mutex::new(Some(Arc::new(group))), AtomicU64::new(0));
        let caught_up = AtomicBool::new(false);
        Ok(Arc::new(TaskShard {
            number,
            group,
            transport,
            housekeeper,
            clock_term,
            last_before,
            caught_up,
            limits,
        }))
    }

    /// The shard's number.
    pub fn number(&self) -> u8 {
        self.number
    }

    /// Handles a request from another node for this shard.
    pub(super) async fn receive(&self, request: Bytes) -> io::Result<Bytes> {
        let group = self.group().map_err(io::Error::other)?;
        match forward::ForwardedRequest::read(&request) {
            None => group.receive(request).await,
            Some(request) => Ok(self.handle_forwarded(&group, request?).await),
        }
    }

    /// Begins the shard's Raft group with `members` as its first members. Call this once, on one of these members.
    pub async fn begin(&self, members: &[RaftMember]) -> Result<(), TasksError> {
        Ok(self.group()?.begin(members).await?)
    }

    /// Whether this node is or was a member of the shard's Raft group.
    pub async fn is_begun(&self) -> Result<bool, TasksError> {
        Ok(self.group()?.is_begun().await?)
    }

    /// The status of the shard's Raft group at this node.
    pub fn status(&self) -> Result<Status, TasksError> {
        Ok(self.group()?.status())
    }

    /// The leader of the shard's Raft group, as far as this node knows.
    pub fn lead(&self) -> Result<Leadership, TasksError> {
        Ok(self.group()?.leadership())
    }

    pub(super) fn leads(&self) -> bool {
        self.lead() == Ok(Leadership::Local)
    }

    /// Adds a learner, a member without a vote. Returns once the learner has nearly caught up. Like all membership
    /// changes, this call succeeds only on the leader.
    pub async fn add_learner(&self, member: &RaftMember) -> Result<(), TasksError> {
        Ok(self.group()?.add_learner(member).await?)
    }

    /// Sets the voters. Each must already be a member. Present voters that are not in `voters` leave the shard's Raft
    /// group.
    pub async fn set_voters(&self, voters: &[u64]) -> Result<(), TasksError> {
        Ok(self.group()?.set_voters(voters).await?)
    }

    /// Removes a learner, a member without a vote.
    pub async fn remove_learner(&self, id: u64) -> Result<(), TasksError> {
        Ok(self.group()?.remove_learner(id).await?)
    }

    /// Changes a member's address.
    pub async fn set_address(&self, member: &RaftMember) -> Result<(), TasksError> {
        Ok(self.group()?.set_address(member).await?)
    }

    /// Starts an election in which this node is a candidate.
    pub async fn elect(&self) -> Result<(), TasksError> {
        Ok(self.group()?.elect().await?)
    }

    /// Transfers the leadership of the shard's Raft group to another voter.
    pub async fn transfer(&self, to: u64) -> Result<(), TasksError> {
        Ok(self.group()?.transfer(to).await?)
    }

    /// Writes a snapshot of the present state to the log's disk.
    pub async fn snapshot(&self) -> Result<(), TasksError> {
        Ok(self.group()?.snapshot().await?)
    }

    /// Returns this node's state for a backup. Call [`TaskShard::catch_up`] first if the backup has to include the
    /// latest commands.
    pub fn freeze(&self) -> Result<Box<dyn FrozenMachine>, TasksError> {
        Ok(self.group()?.freeze())
    }

    /// The number of commands that this node committed as the leader, and the sum of the commands' latencies.
    pub fn commits(&self) -> Result<(u64, Duration), TasksError> {
        Ok(self.group()?.commits())
    }

    /// Calls `read` with the shard's state at this node, and returns the result.
    pub fn with<R>(&self, read: impl FnOnce(&SchedulerState) -> R) -> Result<R, TasksError> {
        Ok(self.group()?.with(|machine| read(machine.state())))
    }

    /// Stops the group; pending calls return errors.
    pub(super) fn stop(&self) {
        let group = self.group.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.housekeeper.stop();
        drop(group);
    }

    /// The producer id with which the record of a task is published. The id is the same on every node.
    pub(super) fn producer_of(&self, task: u64) -> u64 {
        let epoch = self.group().map_or(0, |group| group.with(|machine| machine.epoch()));
        // Spread the ids over all numbers (SplitMix64, Steele et al. 2014), so that they differ from the ids of other
        // producers.
        let mut mixed = task ^ u64::from(epoch).rotate_left(40) ^ 0x6475_6e6c_696e_0007;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)).max(1)
    }

    pub(super) fn group(&self) -> Result<Arc<GroupHandle<TasksMachine>>, TasksError> {
        let group = self.group.lock().unwrap_or_else(PoisonError::into_inner).clone();
        group.ok_or_else(|| ControlError::Stopped("the node is stopping".to_owned()).into())
    }
}

impl Drop for TaskShard {
    fn drop(&mut self) {
        self.housekeeper.stop();
    }
}

impl std::fmt::Debug for TaskShard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shard")
            .field("number", &self.number)
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}
