//! Combines commands that are proposed at about the same time into one log entry. Also combines pending reads: this
//! node confirms its leadership once for all of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use dunlin_frame::format_duration;
use openraft::ReadPolicy;
use openraft::async_runtime::watch::WatchReceiver;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::Instant;

use super::OurRaft;
use crate::commands::CommandBatch;
use crate::error::RaftGroupError;
use crate::limits::RaftLimits;
use crate::log::{DiskSpace, SpaceLevel};
use crate::machine::StateMachine;
use crate::machines::{LARGE_BYTES, Machines};
use crate::proposal;
use crate::type_config::{EntryResponses, Proposal};

/// Proposed commands that have no responses yet, and the channel on which their responses will be sent.
pub(super) struct PendingCommands {
    pub(super) commands: CommandBatch,
    pub(super) since: Instant,
    pub(super) _counted: CountedBytes,
    pub(super) response: oneshot::Sender<Result<Vec<Bytes>, (RaftGroupError, CommandBatch)>>,
}

/// The total size of a group's commands that have no response yet, bytes.
#[derive(Debug, Clone, Default)]
pub(super) struct WaitingBytes(Arc<AtomicUsize>);

/// The size of one batch of commands. The total in [`WaitingBytes`] includes this size until this value is dropped.
#[derive(Debug)]
pub(super) struct CountedBytes {
    total: Arc<AtomicUsize>,
    bytes: usize,
}

impl WaitingBytes {
    /// Adds the size of a batch of commands to the total, unless the batch is small. Returns `None` if the total would
    /// exceed `bytes_max`. If the total is 0, a batch of any size is allowed.
    pub(super) fn add(&self, bytes: usize, bytes_max: usize) -> Option<CountedBytes> {
        let bytes = if bytes <= UNCOUNTED_BYTES_MAX { 0 } else { bytes };
        if bytes > 0 {
            let within = |total: usize| {
                let after = total.saturating_add(bytes);
                (total == 0 || after <= bytes_max).then_some(after)
            };
            self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).ok()?;
        }
        Some(CountedBytes { total: Arc::clone(&self.0), bytes })
    }
}

impl Drop for CountedBytes {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The channel on which a pending read receives its result: the index of the entry that must be applied before the
/// read.
pub(super) type PendingRead = oneshot::Sender<Result<u64, RaftGroupError>>;

/// Number of committed commands, and the sum of their latencies from proposal to application.
#[derive(Debug, Clone, Default)]
pub(super) struct Commits(Arc<(AtomicU64, AtomicU64)>);

impl Commits {
    fn count(&self, batch: &[PendingCommands]) {
        let (count, latency_ns) = &*self.0;
        for pending in batch {
            let commands = pending.commands.len() as u64;
            count.fetch_add(commands, Ordering::Relaxed);
            latency_ns.fetch_add(commands * pending.since.elapsed().as_nanos() as u64, Ordering::Relaxed);
        }
    }

    /// The number of commands so far, and the sum of their latencies.
    pub(super) fn totals(&self) -> (u64, Duration) {
        let (count, latency_ns) = &*self.0;
        (count.load(Ordering::Relaxed), Duration::from_nanos(latency_ns.load(Ordering::Relaxed)))
    }
}

/// Maximum number of commands in one log entry. Also the maximum number of reads for which this node confirms its
/// leadership together.
const BATCH_MAX: usize = 4 << 10;

/// Batches of commands up to this size, in bytes, are not counted towards `waiting_bytes_max`.
const UNCOUNTED_BYTES_MAX: usize = 4 << 10;

/// Pause before the leader retries an entry that openraft has refused because the leader lacks timely responses.
const RETRY_PAUSE: Duration = Duration::from_millis(5);

/// Interval at which a leader checks whether the state machine has to act because time has passed.
const CLOCK_INTERVAL: Duration = Duration::from_millis(50);

/// Joins pending commands into log entries. Several entries may be in flight at the same time.
pub(super) async fn propose(
    raft: OurRaft,
    machines: Machines,
    pending_proposals: mpsc::Receiver<PendingCommands>,
    room: DiskSpace,
    commits: Commits,
    limits: RaftLimits,
) {
    let slots = Arc::new(Semaphore::new(limits.in_flight_max));
    let leadership_timeout = Duration::from_millis(2 * limits.election_ms_max());
    let mut clock = Clock::default();
    let mut queue = Queue { pending_proposals, carried_over: None, bytes_max: limits.entry_bytes_max };
    loop {
        let first = tokio::time::timeout(CLOCK_INTERVAL, queue.first()).await;
        let first = match first {
            Ok(None) => return,
            Ok(first) => first,
            Err(_elapsed) if clock.is_due(&raft, &machines) => None,
            Err(_elapsed) => continue,
        };
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        let batch = queue.collect_batch(first);
        let (level, is_time_only) = (room.level(), batch.is_empty());
        // Only the leader refuses commands for lack of room. A follower does not refuse them: the leader decides, and
        // has another disk.
        let batch = match level > SpaceLevel::Ample && raft.is_leader() {
            true => refuse(batch, &room, level, machines.grows),
            false => batch,
        };
        // If all commands are refused, an entry without commands may still be needed, to carry the group's time. If the
        // time did not advance, no lease would end.
        let is_time_needed = is_time_only || batch.is_empty() && clock.is_due(&raft, &machines);
        if batch.is_empty() && (!is_time_needed || level == SpaceLevel::Out) {
            continue;
        }
        // The time is read only after the wait for a slot. With an earlier time, a lease that this entry grants would
        // begin too early and end too soon.
        let (now_ms, _) = clock.read(&raft, &machines);
        let Some((joined, batch)) = join(now_ms, batch).await else { return };
        let (raft, commits) = (raft.clone(), commits.clone());
        let timeout = Duration::from_millis(limits.answer_ms_max);
        tokio::spawn(async move {
            let written = tokio::time::timeout(timeout, write(&raft, joined, leadership_timeout)).await;
            drop(slot);
            if written.as_ref().is_ok_and(Result::is_ok) {
                commits.count(&batch);
            }
            // If the write takes too long, the entry may still be committed later, because it is in this node's log.
            // The outcome of its commands is therefore unknown.
            respond(batch, written.unwrap_or(Err(RaftGroupError::Unknown)));
        });
    }
}

/// Joins commands into an entry. Commands with many bytes are joined on another thread. Returns `None` while the
/// runtime is ending.
async fn join(now_ms: u64, batch: Vec<PendingCommands>) -> Option<(Proposal, Vec<PendingCommands>)> {
    let bytes: usize = batch.iter().map(|pending| pending.commands.bytes().len()).sum();
    let join = move || (proposal::join(now_ms, batch.iter().map(|pending| &pending.commands)), batch);
    if bytes > LARGE_BYTES { tokio::task::spawn_blocking(join).await.ok() } else { Some(join()) }
}

/// Refuses the commands for which the disk has no room, and returns the remaining commands.
fn refuse(
    batch: Vec<PendingCommands>,
    room: &DiskSpace,
    level: SpaceLevel,
    grows: fn(&[u8]) -> bool,
) -> Vec<PendingCommands> {
    let why = room.shortage().unwrap_or_else(|| RaftGroupError::NoRoom(String::new()));
    let fits = |pending: &PendingCommands| level < SpaceLevel::Out && !pending.commands.iter().any(grows);
    let (accepted, refused): (Vec<PendingCommands>, Vec<PendingCommands>) = batch.into_iter().partition(fits);
    respond(refused, Err(why));
    accepted
}

/// Writes an entry. openraft refuses an entry, without writing it, while the leader lacks timely responses from its
/// followers, for example because their disks are slow. In this case, this function tries again until `timeout`.
async fn write(
    raft: &OurRaft,
    proposal: Proposal,
    timeout: Duration,
) -> Result<EntryResponses, RaftGroupError> {
    let deadline = Instant::now() + timeout;
    loop {
        let result = raft.client_write(proposal.clone()).await;
        match result.map(|response| response.data).map_err(RaftGroupError::from) {
            Err(RaftGroupError::NotLeader { leader: None })
                if raft.is_leader() && Instant::now() < deadline =>
            {
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            result => return result,
        }
    }
}

fn respond(batch: Vec<PendingCommands>, responses: Result<EntryResponses, RaftGroupError>) {
    match responses {
        Ok(responses) => {
            let mut responses = responses.0.into_iter();
            for pending in batch {
                let _ = pending.response.send(Ok(responses.by_ref().take(pending.commands.len()).collect()));
            }
        }
        Err(error) => {
            for pending in batch {
                let _ = pending.response.send(Err((error.clone(), pending.commands)));
            }
        }
    }
}

struct Queue {
    pending_proposals: mpsc::Receiver<PendingCommands>,
    /// The commands that were taken from the channel last, but exceeded the size of the entry.
    carried_over: Option<PendingCommands>,
    bytes_max: usize,
}

impl Queue {
    async fn first(&mut self) -> Option<PendingCommands> {
        match self.carried_over.take() {
            Some(carried_over) => Some(carried_over),
            None => self.pending_proposals.recv().await,
        }
    }

    /// Returns `first`, and then the commands that have arrived since, as far as they fit into the entry.
    fn collect_batch(&mut self, first: Option<PendingCommands>) -> Vec<PendingCommands> {
        let mut batch = Vec::from_iter(first);
        let mut bytes: usize = batch.iter().map(|pending| pending.commands.bytes().len()).sum();
        let mut count: usize = batch.iter().map(|pending| pending.commands.len()).sum();
        while count < BATCH_MAX
            && let Ok(next) = self.pending_proposals.try_recv()
        {
            bytes += next.commands.bytes().len();
            count += next.commands.len();
            if bytes > self.bytes_max && !batch.is_empty() {
                self.carried_over = Some(next);
                break;
            }
            batch.push(next);
        }
        batch
    }
}

/// Confirms that this node is still the leader. One confirmation serves all reads that are pending when it begins.
pub(super) async fn confirm(
    raft: OurRaft,
    mut pending_reads: mpsc::Receiver<PendingRead>,
    limits: RaftLimits,
) {
    let mut batch = Vec::new();
    let timeout = Duration::from_millis(limits.answer_ms_max);
    while pending_reads.recv_many(&mut batch, BATCH_MAX).await > 0 {
        let result = tokio::time::timeout(timeout, raft.ensure_linearizable(ReadPolicy::ReadIndex)).await;
        let result = match result {
            Ok(result) => result.map(|read| read.index()).map_err(RaftGroupError::from),
            Err(_late) => {
                let timeout = format_duration(timeout);
                Err(RaftGroupError::NoQuorum(format!("no majority responded within {timeout}")))
            }
        };
        batch.drain(..).for_each(|read| drop(read.send(result.clone())));
    }
}

/// The group's time, which the leader counts. A new leader continues from the time in its state machine. While there is
/// no leader, the time does not advance, so leases last longer. The time never decreases, even if a computer's clock is
/// set back.
#[derive(Default)]
struct Clock {
    /// The term in which the clock was started, the group's time at its start, and the local time of the start.
    started: Option<(u64, u64, Instant)>,
}

impl Clock {
    /// Returns the group's time, and the time at which the state machine next has to act. If this node does not lead,
    /// returns 0 and `None`.
    fn read(&mut self, raft: &OurRaft, machines: &Machines) -> (u64, Option<u64>) {
        let term = raft.metrics().borrow_watched().current_term;
        // A follower must not wait for its machine here: a snapshot may keep the machine busy for a long time.
        if !raft.is_leader() {
            self.stop();
            return (0, None);
        }
        let times = |machine: &dyn StateMachine| (machine.now_ms(), machine.next_due_ms());
        let (machine_ms, due_ms) = match self.started {
            // If the machine is busy with a large entry, the clock continues from its own start.
            Some((clock_term, base_ms, _)) if clock_term == term => {
                machines.try_with(times).unwrap_or((base_ms, None))
            }
            _ => machines.with(times),
        };
        (self.now_ms(Instant::now(), term, machine_ms), due_ms)
    }

    /// Whether this node leads and its state machine has to act now.
    fn is_due(&mut self, raft: &OurRaft, machines: &Machines) -> bool {
        let (now_ms, due_ms) = self.read(raft, machines);
        due_ms.is_some_and(|due_ms| due_ms <= now_ms)
    }

    /// The group's time, ms. A restarted node may become the leader before its machine has applied the last entries of
    /// earlier leaders. When the machine then applies such entries, its time may become later than this clock's time.
    /// The clock then starts again from the machine's time.
    fn now_ms(&mut self, now: Instant, term: u64, machine_ms: u64) -> u64 {
        let elapsed_ms = |base_ms: u64, since: Instant| base_ms + (now - since).as_millis() as u64;
        let started = self.started.filter(|(clock_term, ..)| *clock_term == term);
        let started = started.filter(|(_, base_ms, since)| elapsed_ms(*base_ms, *since) >= machine_ms);
        let (_, base_ms, since) = *self.started.insert(started.unwrap_or((term, machine_ms, now)));
        elapsed_ms(base_ms, since)
    }

    fn stop(&mut self) {
        self.started = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_over_the_limit_of_waiting_bytes_are_refused() {
        let (waiting, bytes_max) = (WaitingBytes::default(), 100_000);
        let large = waiting.add(200_000, bytes_max).expect("a single batch may be larger");
        assert!(waiting.add(5_000, bytes_max).is_none());
        let small = waiting.add(UNCOUNTED_BYTES_MAX, bytes_max).expect("small batches are accepted");
        drop(large);
        let first = waiting.add(60_000, bytes_max).expect("the large batch has its response");
        assert!(waiting.add(40_001, bytes_max).is_none());
        let second = waiting.add(40_000, bytes_max).expect("this batch fits exactly");
        drop((small, first, second));
        assert_eq!(waiting.0.load(Ordering::Relaxed), 0);
    }

    /// A restarted leader's clock may start before its machine has applied all entries of the log.
    #[test]
    fn leader_clock_continues_from_the_latest_applied_entry() {
        let (mut clock, began) = (Clock::default(), Instant::now());
        let at = |ms| began + Duration::from_millis(ms);
        assert_eq!(clock.now_ms(at(0), 7, 0), 0, "no entry is applied yet");
        assert_eq!(clock.now_ms(at(100), 7, 60_000), 60_000, "the log is applied");
        assert_eq!(clock.now_ms(at(150), 7, 60_000), 60_050);
        assert_eq!(clock.now_ms(at(1_100), 7, 60_050), 61_000);
    }

    #[test]
    fn leader_clock_continues_from_the_time_of_the_state_machine() {
        let (mut clock, began) = (Clock::default(), Instant::now());
        let at = |ms| began + Duration::from_millis(ms);
        assert_eq!(clock.now_ms(at(0), 1, 500), 500);
        assert_eq!(clock.now_ms(at(100), 1, 500), 600);
        clock.stop();
        assert_eq!(clock.now_ms(at(10_000), 3, 5_000), 5_000, "another node led meanwhile");
        assert_eq!(clock.now_ms(at(10_020), 3, 5_000), 5_020);
        assert_eq!(clock.now_ms(at(20_000), 4, 5_020), 5_020, "another node may have led in between");
    }
}
