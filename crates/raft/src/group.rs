//! Defines [`GroupHandle`], with which a node takes part in a Raft group.

mod batches;
mod elections;
mod members;
mod receiver;
mod tasks;

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::marker::PhantomData;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dunlin_journal::Disk;
use openraft::{BasicNode, ChangeMembers, Config, Raft, SnapshotPolicy};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::commands::CommandBatch;
use crate::error::{RaftGroupError, damaged};
use crate::limits::{HEARTBEAT_MS, RaftLimits};
use crate::log::{self, DiskSpace, RaftLog, SpaceLevel};
use crate::machine::{FrozenMachine, StateMachine};
use crate::machines::Machines;
use crate::network::{MemberClients, RaftMember, Transport};
use crate::type_config::Types;
use batches::{Commits, PendingCommands, PendingRead, WaitingBytes};
use elections::Elections;
use receiver::SnapshotReceiver;
use tasks::{GroupTasks, GroupThread};

type OurRaft = Raft<Types, Machines>;

/// Interval at which the length of the log is checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// Longest interval at which the length of the log is checked while the disk has little room.
const CHECK_INTERVAL_MAX: Duration = Duration::from_secs(5);
/// After a snapshot, the newest entries stay in the log, up to the log's maximum size divided by this number.
const KEPT_LOG_DIVISOR: usize = 4;
/// After a large snapshot, the log may grow beyond its usual maximum size. Its maximum is then the size of the snapshot
/// divided by this number.
const SNAPSHOT_DIVISOR: u64 = 8;
/// The pauses between repeated requests to a node that does not respond.
const BACKOFF: &str = "5ms 10ms 20ms ...100ms";

/// A handle to this node's membership in a Raft group. Dropping the last handle stops the membership.
pub struct GroupHandle<M> {
    group: UntypedGroup,
    _machine: PhantomData<fn() -> M>,
}

/// The operations of a [`GroupHandle`] that do not depend on the type of the state machine.
pub struct UntypedGroup {
    raft: OurRaft,
    machines: Machines,
    limits: RaftLimits,
    room: DiskSpace,
    proposals: mpsc::Sender<PendingCommands>,
    waiting_bytes: WaitingBytes,
    reads: mpsc::Sender<PendingRead>,
    snapshot_receiver: Arc<tokio::sync::Mutex<SnapshotReceiver>>,
    elections: Elections,
    commits: Commits,
    handle: Handle,
    last_before_start: Option<u64>,
    _tasks: GroupTasks,
}

/// The leader of a Raft group, as far as this node knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leadership {
    /// This node is the leader.
    Local,
    /// Another node is the leader.
    Remote(RaftMember),
    /// No leader is known.
    Unknown,
}

/// The status of a Raft group at one node: its leader, term, log and members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// This node's id.
    pub id: u64,
    /// The id of the group's leader; `None` if this node knows no leader.
    pub leader: Option<u64>,
    /// The present term, as far as this node knows.
    pub term: u64,
    /// Index of the last entry in the node's log.
    pub last: Option<u64>,
    /// Index of the last entry that the node's state machine has applied.
    pub applied: Option<u64>,
    /// Index of the last entry that the node's snapshot contains.
    pub snapshot: Option<u64>,
    /// Index of the last entry that was removed from the log. An entry is removed only when a snapshot contains it.
    pub purged: Option<u64>,
    /// Members with a vote. During a change of the voters: the previous and the new ones.
    pub voters: Vec<RaftMember>,
    /// Members without a vote.
    pub learners: Vec<RaftMember>,
    /// Whether this node has a vote. During a change of the voters: whether it has a vote both before and after the
    /// change.
    pub has_vote: bool,
    /// Whether a change of the voters is not complete: majorities of the previous and of the new voters are needed. If
    /// the change was interrupted, the leader has to set the voters again.
    pub is_changing: bool,
    /// The error with which this node, as the leader, refuses commands that make the state larger. The error states
    /// what is lacking: room on the disk, memory or file descriptors. `None` if this node accepts such commands.
    pub lacks_room: Option<RaftGroupError>,
    /// The reason why this node no longer takes part in the group; `None` while it takes part.
    pub stopped: Option<String>,
}

impl<M: StateMachine> GroupHandle<M> {
    /// Starts this node's membership. A node that was in a group before rejoins the group. Any other node waits until
    /// it begins a group or the leader of a group adds it. `machine` must be in its initial state.
    ///
    /// The group's tasks run on the runtime that [`Transport::runtime`] returns. If that method returns `None`, they
    /// run on a new thread. Do not call `start` on the thread of the returned runtime.
    pub fn start(
        id: u64,
        disk: Arc<dyn Disk>,
        dir: &Path,
        machine: M,
        transport: impl Transport,
        limits: RaftLimits,
    ) -> io::Result<GroupHandle<M>> {
        let log = log::open(Arc::clone(&disk), dir, &limits)?;
        let (snapshots, room) = (dir.join("snapshots"), log.room().clone());
        let machines = Machines::open(disk, &snapshots, machine, limits.reserve_bytes, room)?;
        if log.purged() > machines.applied() {
            let why = format!(
                "its log begins after entry {}, but no snapshot contains that entry",
                log.purged().map_or(0, |last| last.index)
            );
            return Err(damaged("snapshot", &why));
        }
        let group = UntypedGroup::start(id, log, machines, Arc::new(transport), limits)?;
        Ok(GroupHandle { group, _machine: PhantomData })
    }

    /// Calls `read` with this node's state machine. Its state may be old: call [`UntypedGroup::catch_up`] first to read
    /// the latest.
    pub fn with<R>(&self, read: impl FnOnce(&M) -> R) -> R {
        self.group.machines.with(|machine| {
            let machine: &dyn Any = machine;
            read(
                machine
                    .downcast_ref()
                    .expect("the state machine has the type with which the group was started"),
            )
        })
    }
}

impl<M> Deref for GroupHandle<M> {
    type Target = UntypedGroup;

    fn deref(&self) -> &UntypedGroup {
        &self.group
    }
}

impl UntypedGroup {
    fn start(
        id: u64,
        log: RaftLog,
        machines: Machines,
        transport: Arc<dyn Transport>,
        limits: RaftLimits,
    ) -> io::Result<UntypedGroup> {
        let (room, last_before_start) = (log.room().clone(), log.last());
        let config = config(&limits)?;
        let (started, start_result) = std::sync::mpsc::channel();
        let (proposals, pending_proposals) = mpsc::channel(limits.waiting_max);
        let (reads, pending_reads) = mpsc::channel(limits.waiting_max);
        let (elections, commits) = (Elections::default(), Commits::default());
        let snapshot_receiver: Arc<tokio::sync::Mutex<SnapshotReceiver>> = Arc::default();
        let receiver_of_task = Arc::clone(&snapshot_receiver);
        let (handle, thread) = match transport.runtime() {
            Some(handle) => (handle, None),
            None => GroupThread::open().map(|(handle, thread)| (handle, Some(thread)))?,
        };
        let (machines_of_tasks, elections_of_task, commits_of_task) =
            (machines.clone(), elections.clone(), commits.clone());
        let (room_of_proposals, room_of_shutdown) = (room.clone(), room.clone());
        let (end, ended) = oneshot::channel();
        let (ending, tasks_ended) = std::sync::mpsc::channel::<()>();
        let run = async move {
            let _ending = ending;
            let peers = MemberClients { transport, limits };
            let raft =
                OurRaft::new(id, Arc::new(config), peers, log.clone(), machines_of_tasks.clone()).await;
            let raft = match raft {
                Ok(raft) => raft,
                Err(fatal) => return drop(started.send(Err(io::Error::other(fatal)))),
            };
            let mut tasks = JoinSet::new();
            tasks.spawn(batches::propose(
                raft.clone(),
                machines_of_tasks.clone(),
                pending_proposals,
                room_of_proposals,
                commits_of_task,
                limits,
            ));
            tasks.spawn(batches::confirm(raft.clone(), pending_reads, limits));
            tasks.spawn(elections_of_task.watch(raft.clone()));
            tasks.spawn(receiver::drop_idle_snapshots(receiver_of_task, limits));
            tasks.spawn(compact_log(raft.clone(), log, machines_of_tasks, limits.log_bytes_max));
            let _ = started.send(Ok((raft.clone(), std::thread::current().id())));
            let _ = ended.await;
            room_of_shutdown.cancel_waits();
            let _ = raft.shutdown().await;
            tasks.shutdown().await;
        };
        handle.spawn(run);
        let (raft, thread_id) = start_result.recv().map_err(io::Error::other)??;
        let _tasks = GroupTasks { end: Some(end), ended: tasks_ended.into(), thread_id, _thread: thread };
        Ok(UntypedGroup {
            raft,
            machines,
            limits,
            room,
            proposals,
            waiting_bytes: WaitingBytes::default(),
            reads,
            snapshot_receiver,
            elections,
            commits,
            handle,
            last_before_start,
            _tasks,
        })
    }

    /// If all writes wait because room, file descriptors or memory are lacking, returns an error that states what is
    /// lacking. Otherwise returns `None`.
    pub fn room_shortage(&self) -> Option<RaftGroupError> {
        if self.room.level() == SpaceLevel::Out { self.room.shortage() } else { None }
    }

    /// Index of the last entry that was in the node's log when the node started. Right after a start,
    /// [`UntypedGroup::status`] may not report this entry yet.
    pub fn last_before_start(&self) -> Option<u64> {
        self.last_before_start
    }

    /// Begins a group that consists of `members`. This method must be called only once, on one of these members.
    pub async fn begin(&self, members: &[RaftMember]) -> Result<(), RaftGroupError> {
        let result = self.raft.initialize(nodes(members)).await;
        result.map_err(|error| RaftGroupError::Refused(error.to_string()))
    }

    /// Whether this node takes part in a group or did so earlier.
    pub async fn is_begun(&self) -> Result<bool, RaftGroupError> {
        self.raft.is_initialized().await.map_err(|fatal| RaftGroupError::Stopped(fatal.to_string()))
    }

    /// Proposes a command, waits until this node has applied it, and returns the response of this node's state machine.
    pub async fn propose(&self, command: Bytes) -> Result<Bytes, RaftGroupError> {
        let mut responses =
            self.propose_all(CommandBatch::one(&command)).await.map_err(|(error, _)| error)?;
        responses.pop().ok_or(RaftGroupError::Unknown)
    }

    /// Proposes commands. They are applied one after another, without other commands between them. Returns the response
    /// of this node's state machine to each command. In case of an error, the commands are returned with the error; if
    /// the group has ended, the returned batch is empty.
    pub async fn propose_all(
        &self,
        commands: CommandBatch,
    ) -> Result<Vec<Bytes>, (RaftGroupError, CommandBatch)> {
        let (bytes, bytes_max) = (commands.longest(), self.limits.command_bytes_max);
        if bytes > bytes_max {
            return Err((RaftGroupError::TooLarge { bytes, bytes_max }, commands));
        }
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        let waiting_bytes_max = self.limits.waiting_bytes_max;
        let Some(counted) = self.waiting_bytes.add(commands.bytes().len(), waiting_bytes_max) else {
            return Err((RaftGroupError::BusyBytes(waiting_bytes_max), commands));
        };
        let (response, receiver) = oneshot::channel();
        let pending = PendingCommands { commands, since: Instant::now(), _counted: counted, response };
        if let Err(refused) = self.proposals.try_send(pending) {
            return Err((self.queue_error(&refused), refused.into_inner().commands));
        }
        receiver.await.unwrap_or_else(|_| Err((RaftGroupError::Unknown, CommandBatch::default())))
    }

    /// The leader, as far as this node knows.
    pub fn leadership(&self) -> Leadership {
        use openraft::async_runtime::watch::WatchReceiver;
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        match metrics.current_leader {
            Some(id) if id == metrics.id => Leadership::Local,
            Some(id) => match metrics.membership_config.membership().get_node(&id) {
                Some(node) => Leadership::Remote(RaftMember { id, address: node.addr.clone() }),
                None => Leadership::Unknown,
            },
            None => Leadership::Unknown,
        }
    }

    /// The present term, as far as this node knows. No term has more than one leader.
    pub fn term(&self) -> u64 {
        use openraft::async_runtime::watch::WatchReceiver;
        self.raft.metrics().borrow_watched().current_term
    }

    /// Sleeps for the time `pause`. May be called on any thread.
    pub async fn pause(&self, pause: Duration) {
        let _ = self.handle.spawn(async move { tokio::time::sleep(pause).await }).await;
    }

    /// Changes the address of the group's member `member.id`.
    pub async fn set_address(&self, member: &RaftMember) -> Result<(), RaftGroupError> {
        let node = BTreeMap::from([(member.id, BasicNode::new(&member.address))]);
        self.raft.change_membership(ChangeMembers::SetNodes(node), true).await?;
        Ok(())
    }

    fn queue_error<T>(&self, refused: &mpsc::error::TrySendError<T>) -> RaftGroupError {
        match refused {
            mpsc::error::TrySendError::Full(_) => RaftGroupError::Busy(self.limits.waiting_max),
            mpsc::error::TrySendError::Closed(_) => stopped(),
        }
    }

    /// Waits until this node has applied every command that was acknowledged before the call. Only the leader can wait
    /// in this way. Other nodes return an error.
    pub async fn catch_up(&self) -> Result<(), RaftGroupError> {
        self.read_index().await.map(drop)
    }

    /// Returns the index of the last entry that [`UntypedGroup::catch_up`] would wait for. Another node can wait for
    /// this index with [`UntypedGroup::applied`]. After this wait, its state is as recent as the leader's was at this
    /// call.
    pub async fn read_index(&self) -> Result<u64, RaftGroupError> {
        let (confirm, confirmed) = oneshot::channel();
        self.reads.try_send(confirm).map_err(|refused| self.queue_error(&refused))?;
        confirmed.await.unwrap_or_else(|_| Err(stopped()))
    }

    /// Waits until this node has applied the entry with this index. Fails after `answer_ms_max`.
    pub async fn applied(&self, index: u64) -> Result<(), RaftGroupError> {
        self.wait_until(move |metrics| {
            (metrics.last_applied.map(|last| last.index) >= Some(index)).then_some(())
        })
        .await
        .ok_or_else(|| RaftGroupError::NoQuorum(format!("entry {index} was not applied in time")))
    }

    /// Returns the leader. If this node knows no leader, waits for one for at most `answer_ms_max`.
    pub async fn leader(&self) -> Option<RaftMember> {
        self.wait_until(|metrics| {
            let id = metrics.current_leader?;
            let node = metrics.membership_config.membership().get_node(&id)?;
            Some(RaftMember { id, address: node.addr.clone() })
        })
        .await
    }

    /// Waits until `condition` returns a value, but no longer than `answer_ms_max`. May be called on any thread.
    async fn wait_until<R: Send + 'static>(
        &self,
        condition: impl Fn(&openraft::RaftMetrics<Types>) -> Option<R> + Send + 'static,
    ) -> Option<R> {
        use openraft::async_runtime::watch::WatchReceiver;
        let mut metrics = self.raft.metrics();
        if let Some(now) = condition(&metrics.borrow_watched()) {
            return Some(now);
        }
        let timeout = Duration::from_millis(self.limits.answer_ms_max);
        let waited = async move {
            loop {
                metrics.changed().await.ok()?;
                if let Some(now) = condition(&metrics.borrow_watched()) {
                    return Some(now);
                }
            }
        };
        self.handle.spawn(async move { tokio::time::timeout(timeout, waited).await }).await.ok()?.ok()?
    }

    /// Handles a request from another node. If several requests are handled at the same time, they are processed in the
    /// order in which the returned futures are first polled.
    pub async fn receive(&self, request: Bytes) -> io::Result<Bytes> {
        receiver::receive(&self.raft, &self.snapshot_receiver, self.limits.snapshot_bytes_max, request).await
    }

    /// Takes a snapshot now.
    pub async fn snapshot(&self) -> Result<(), RaftGroupError> {
        let result = self.raft.trigger().snapshot().await;
        result.map_err(|fatal| RaftGroupError::Stopped(fatal.to_string()))
    }

    /// Returns a copy of this node's present state. Later commands do not change the copy. Copying takes constant time.
    /// This node's state may lag behind: for the latest state, call [`UntypedGroup::catch_up`] first.
    pub fn freeze(&self) -> Box<dyn FrozenMachine> {
        self.machines.with(|machine| machine.freeze())
    }

    /// The durations of the recent elections that this node won. A duration begins when this node becomes a candidate.
    pub fn elections_won(&self) -> Vec<Duration> {
        self.elections.won()
    }

    /// The number of commands that this node has committed as the leader, and the sum of their latencies. A command's
    /// latency is the time from its proposal until it is applied.
    pub fn commits(&self) -> (u64, Duration) {
        self.commits.totals()
    }

    /// The status of the group, as far as this node knows.
    pub fn status(&self) -> Status {
        use openraft::async_runtime::watch::WatchReceiver;
        let metrics = self.raft.metrics().borrow_watched().clone();
        let membership = metrics.membership_config.membership();
        let voters: BTreeSet<u64> = membership.voter_ids().collect();
        let configs = membership.get_joint_config();
        let has_vote = !configs.is_empty() && configs.iter().all(|voters| voters.contains(&metrics.id));
        let is_changing = configs.len() > 1;
        let member = |(id, node): (&u64, &BasicNode)| RaftMember { id: *id, address: node.addr.clone() };
        let (voters, learners) =
            membership.nodes().map(member).partition(|member| voters.contains(&member.id));
        Status {
            id: metrics.id,
            leader: metrics.current_leader,
            term: metrics.current_term,
            last: metrics.last_log_index,
            applied: metrics.last_applied.map(|last| last.index),
            snapshot: metrics.snapshot.map(|last| last.index),
            purged: metrics.purged.map(|last| last.index),
            voters,
            learners,
            has_vote,
            is_changing,
            lacks_room: self.room.shortage(),
            stopped: metrics.running_state.err().map(|fatal| fatal.to_string()),
        }
    }
}

fn stopped() -> RaftGroupError {
    RaftGroupError::Stopped("the group is ending".to_owned())
}

fn nodes(members: &[RaftMember]) -> BTreeMap<u64, BasicNode> {
    members.iter().map(|member| (member.id, BasicNode::new(&member.address))).collect()
}

fn config(limits: &RaftLimits) -> io::Result<Config> {
    if !HEARTBEAT_MS.contains(&limits.heartbeat_ms) {
        let (from, to) = HEARTBEAT_MS.into_inner();
        let why = format!("heartbeat_ms is {}: expected {from} to {to}", limits.heartbeat_ms);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let config = Config {
        cluster_name: "dunlin".to_owned(),
        heartbeat_interval: limits.heartbeat_ms,
        election_timeout_min: limits.election_ms_min(),
        election_timeout_max: limits.election_ms_max(),
        enable_pre_vote: Some(true),
        // The option is off. With the option, a leader that crashes could continue in the same term, although it may
        // lack an entry that it acknowledged. For example, the leader may acknowledge an entry that two followers have
        // synced, but that it has not synced itself. After a crash, it would give this entry's index to another entry.
        // The power-cut test shows this.
        enable_leader_restore: Some(false),
        // The sizes of entries differ much. This crate therefore counts bytes, not entries, when it decides when to
        // take a snapshot, and how many entries a request contains.
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: u64::MAX,
        max_payload_entries: 4_096,
        backoff: BACKOFF.to_owned(),
        ..Config::default()
    };
    config.validate().map_err(io::Error::other)
}

/// Takes a snapshot whenever the log has grown too long, and then removes entries that the snapshot contains. The
/// larger the last snapshot, the longer the log may grow. When the disk has little room, two rules change: the log
/// keeps no entry that a snapshot contains, and a new snapshot follows as soon as there is a new entry.
async fn compact_log(raft: OurRaft, log: RaftLog, machines: Machines, bytes_max: usize) {
    use openraft::async_runtime::watch::WatchReceiver;
    let retained_bytes = (bytes_max / KEPT_LOG_DIVISOR) as u64;
    let (mut requests, mut pause) = (SnapshotRequests::default(), CHECK_INTERVAL);
    loop {
        tokio::time::sleep(pause).await;
        let bytes_max = (bytes_max as u64).max(machines.snapshot_bytes() / SNAPSHOT_DIVISOR);
        let (snapshot, purged, applied) = {
            let metrics = raft.metrics();
            let metrics = metrics.borrow_watched();
            let index = |id: Option<crate::type_config::LogId>| id.map(|id| id.index);
            (index(metrics.snapshot), index(metrics.purged), index(metrics.last_applied))
        };
        let is_low = log.room().needs_purge();
        let last = match is_low {
            true => snapshot,
            false => snapshot.and_then(|snapshot| log.last_before(snapshot, retained_bytes)),
        };
        if last > purged
            && let Some(last) = last
            && raft.trigger().purge_log(last).await.is_err()
        {
            return;
        }
        // Each attempt costs time, so the pauses grow while the disk has little room.
        pause = if is_low { (pause * 2).min(CHECK_INTERVAL_MAX) } else { CHECK_INTERVAL };
        machines.fill_reserve().await;
        let is_long = log.bytes_after(snapshot) > if is_low { 0 } else { bytes_max };
        if is_long && requests.is_due(snapshot, applied) && raft.trigger().snapshot().await.is_err() {
            return;
        }
    }
}

/// Decides when to request a snapshot. openraft ignores a request while a snapshot is being made.
#[derive(Default)]
struct SnapshotRequests {
    /// The last entry of the newest snapshot, and the last applied entry, both at the time of the last request.
    last: Option<(Option<u64>, Option<u64>)>,
}

impl SnapshotRequests {
    /// Whether to request a snapshot. There are two conditions. First, entries were applied that the newest snapshot
    /// lacks. Second, since the last request, further entries were applied, or a snapshot was made.
    fn is_due(&mut self, snapshot: Option<u64>, applied: Option<u64>) -> bool {
        let request = Some((snapshot, applied));
        applied > snapshot && std::mem::replace(&mut self.last, request) != request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_snapshot_is_made_if_the_last_one_lacks_entries() {
        let mut requests = SnapshotRequests::default();
        assert!(requests.is_due(None, Some(5)));
        assert!(!requests.is_due(None, Some(5)), "this snapshot is being made");
        assert!(requests.is_due(None, Some(9)));
        assert!(!requests.is_due(None, Some(9)));
        assert!(requests.is_due(Some(5), Some(9)), "the last request was ignored");
        assert!(!requests.is_due(Some(9), Some(9)), "another snapshot would have the same content");
    }
}
