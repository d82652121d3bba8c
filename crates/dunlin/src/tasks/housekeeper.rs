//! The thread of a shard that publishes due tasks and corrects the cluster's clock.
//!
//! Invariants:
//! - Only the leader publishes tasks, and it publishes only tasks that are not confirmed. A node that applies its log
//!   again therefore publishes nothing.
//! - A task that is not confirmed is published again after `publish_retry_ms`, with the same producer and sequence
//!   number. A topic that remembers the producer appends the record once.
//! - A topic that is full, or whose owner is unreachable, does not delay tasks for other topics. The thread does not
//!   wait for room in a topic. It waits for the confirmations of all due tasks together, for at most
//!   [`CONFIRM_WAIT_MAX`]. Tasks that become due during a wait share the next wait. A record whose outcome is unknown
//!   is not sent again: when its task is due again, the thread only asks for the outcome.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bytes::Bytes;
use dunlin_raft::CommandBatch;
use dunlin_tasks::{Destination, SchedulerState, TaskCommand, TaskPublication as Due, TaskStage};
use dunlin_topic::{Draft, Payload, ProducerMark, Publish, PublishError, Publisher, thread_waker};

use super::TaskShard;
use crate::control::block_on;
use crate::node::Node;

/// The interval at which the leader compares the cluster's clock with its own.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum number of tasks that one command confirms.
const BATCH_MAX: usize = 1_000;
/// The number of due tasks that are handled together. Once this many tasks are collected, tasks that become due later
/// wait for the next round.
const DUE_MAX: usize = 10_000;
/// How long the thread waits for the confirmations of tasks that were due together.
const CONFIRM_WAIT_MAX: Duration = Duration::from_secs(1);

pub(super) enum HousekeeperCommand {
    Publish(Vec<Due>),
    End,
}

/// A handle to the thread that publishes the due tasks of a shard.
#[derive(Debug)]
pub(super) struct TasksHousekeeper {
    work: Sender<HousekeeperCommand>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl TasksHousekeeper {
    /// Returns a handle, and the receiver of the commands for the thread.
    pub(super) fn new() -> (TasksHousekeeper, Receiver<HousekeeperCommand>) {
        let (work, receiver) = channel();
        (TasksHousekeeper { work, thread: Mutex::default() }, receiver)
    }

    pub(super) fn sender(&self) -> Sender<HousekeeperCommand> {
        self.work.clone()
    }

    /// Starts the thread. It ends when the shard is stopped or dropped.
    pub(super) fn start(
        &self,
        receiver: Receiver<HousekeeperCommand>,
        shard: Weak<TaskShard>,
        node: Node,
    ) -> io::Result<()> {
        let run = move || run(&receiver, &shard, &node);
        let thread = thread::Builder::new().name("dunlin-tasks".to_owned()).spawn(run)?;
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(())
    }

    pub(super) fn stop(&self) {
        let _ = self.work.send(HousekeeperCommand::End);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.thread().id() != thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

/// The earlier attempts to publish tasks that are not published yet.
#[derive(Default)]
struct Attempts {
    /// The tasks that a full topic has refused, each with the time of the first refusal.
    full_since: HashMap<u64, Instant>,
    /// By task, the publishers of records that were sent but not confirmed in time.
    unconfirmed: HashMap<u64, Publisher>,
}

fn run(receiver: &Receiver<HousekeeperCommand>, shard: &Weak<TaskShard>, node: &Node) {
    let (mut attempts, mut checked_at) = (Attempts::default(), Instant::now());
    loop {
        let work = receiver.recv_timeout(CHECK_INTERVAL.saturating_sub(checked_at.elapsed()));
        let Some(shard) = shard.upgrade() else { return };
        match work {
            Ok(HousekeeperCommand::Publish(due)) => {
                let Some(due) = with_later_tasks(due, receiver) else { return };
                publish(&shard, node, due, &mut attempts);
            }
            Ok(HousekeeperCommand::End) | Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {}
        }
        if checked_at.elapsed() >= CHECK_INTERVAL {
            checked_at = Instant::now();
            // Ignore the error: if this node no longer leads, the leader corrects the clock.
            let _ = block_on(shard.correct_clock());
            // Drop the publishers of ended tasks only after the call, when the shard's state is not locked any more.
            let _ = shard.with(|state| {
                attempts.full_since.retain(|task, _| is_publishing(state, *task));
                attempts.unconfirmed.extract_if(|task, _| !is_publishing(state, *task)).collect::<Vec<_>>()
            });
        }
    }
}

/// Adds the tasks that have become due since `due` was received. All of these tasks then share one wait for
/// confirmations. Returns `None` if the thread has to end.
fn with_later_tasks(mut due: Vec<Due>, receiver: &Receiver<HousekeeperCommand>) -> Option<Vec<Due>> {
    while due.len() < DUE_MAX {
        match receiver.try_recv() {
            Ok(HousekeeperCommand::Publish(later)) => due.extend(later),
            Ok(HousekeeperCommand::End) => return None,
            Err(_none) => break,
        }
    }
    Some(due)
}

fn is_publishing(state: &SchedulerState, task: u64) -> bool {
    state.get(task).is_ok_and(|task| task.stage == TaskStage::Running)
}

fn publish(shard: &Arc<TaskShard>, node: &Node, due: Vec<Due>, attempts: &mut Attempts) {
    // After `catch_up`, this node knows all confirmations, even after a restart.
    if !shard.leads() || block_on(shard.catch_up()).is_err() {
        return;
    }
    let mut tasks = HashSet::new();
    let is_due = |due: &Due| {
        tasks.insert(due.task) && shard.with(|state| is_publishing(state, due.task)).unwrap_or(false)
    };
    let (began, mut sent) = (Instant::now(), Vec::new());
    // Check before each task whether this node still leads: the topic of the previous task may have had to be created,
    // which takes time.
    for due in due.into_iter().filter(is_due).take_while(|_| shard.leads()) {
        // If the record was sent earlier, do not wait for its outcome again.
        let (publisher, until) = match attempts.unconfirmed.remove(&due.task) {
            Some(earlier) => (Ok(Some(earlier)), began),
            None => (send(shard, node, &due, &mut attempts.full_since), began + CONFIRM_WAIT_MAX),
        };
        sent.push((due.task, publisher, until));
    }
    let (mut done, mut refused) = (Vec::new(), CommandBatch::default());
    for (task, publisher, until) in sent {
        let outcome = match publisher {
            Ok(Some(mut publisher)) => match confirm(&mut publisher, until) {
                Poll::Ready(outcome) => outcome,
                Poll::Pending => {
                    attempts.unconfirmed.insert(task, publisher);
                    continue;
                }
            },
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        match outcome {
            Ok(()) => done.push(task),
            Err(NotPublished::Refused(why)) => {
                refused.push_with(|out| TaskCommand::Unpublished { task, error: why.as_bytes() }.encode(out));
            }
            Err(NotPublished::NotYet) => {}
        }
    }
    if !refused.is_empty() {
        // Ignore the error: the tasks are not confirmed, so they become due again.
        let _ = block_on(shard.propose_decoded(refused));
    }
    for chunk in done.chunks(BATCH_MAX) {
        let mut commands = CommandBatch::default();
        commands.push_with(|out| TaskCommand::Published { tasks: chunk.to_vec() }.encode(out));
        // Ignore the error: the tasks are not confirmed, so they become due again.
        let _ = block_on(shard.propose_decoded(commands));
    }
}

/// The reason why a task was not published.
enum NotPublished {
    /// The task cannot be published at present. It becomes due again soon.
    NotYet,
    /// The task will never be published, for this reason: its user lacks the permission, or the topic never accepts
    /// such a record.
    Refused(String),
}

impl From<PublishError> for NotPublished {
    fn from(error: PublishError) -> NotPublished {
        match error {
            PublishError::Forbidden(why) => NotPublished::Refused(why),
            PublishError::RecordTooLarge { .. } | PublishError::Frame(_) => {
                NotPublished::Refused(error.to_string())
            }
            _ => NotPublished::NotYet,
        }
    }
}

/// Sends the record of a task, if the user that submitted the task still has the permission. Returns the publisher,
/// from which the caller learns the record's outcome. Returns `None` if an earlier attempt has already appended the
/// record.
fn send(
    shard: &TaskShard,
    node: &Node,
    due: &Due,
    full_since: &mut HashMap<u64, Instant>,
) -> Result<Option<Publisher>, NotPublished> {
    let Destination { subject, user } = Destination::read(&due.subject);
    let text = |bytes| std::str::from_utf8(bytes).map_err(|error| NotPublished::Refused(error.to_string()));
    let (subject, user) = (text(subject)?, user.map(text).transpose()?);
    let node = node.with_current_permissions(user).map_err(NotPublished::Refused)?;
    let mark = ProducerMark { producer: shard.producer_of(due.task), producer_epoch: 1, producer_seq: 1 };
    let payload = Payload::Shared(Bytes::copy_from_slice(&due.payload));
    let draft = Draft { meta: Default::default(), payload };
    let publisher = node.publisher(subject)?;
    let wait_max = publisher.topic().room_wait_max();
    let is_overdue = full_since.get(&due.task).is_some_and(|since| since.elapsed() >= wait_max);
    let mut publisher = publisher.with_producer(mark).without_room_wait(is_overdue);
    match publisher.send(draft) {
        Ok(()) => Ok(Some(publisher)),
        Err(PublishError::DuplicateForgotten { .. }) => Ok(None),
        Err(error) => {
            if error.is_retryable() {
                full_since.entry(due.task).or_insert_with(Instant::now);
            }
            Err(error.into())
        }
    }
}

/// Waits until the outcome of the publisher's record is known, but not after `until`. Returns `Pending` if it is not
/// known by then.
fn confirm(publisher: &mut Publisher, until: Instant) -> Poll<Result<(), NotPublished>> {
    let waker = thread_waker();
    let outcome = loop {
        let outcome = publisher.poll_flush(&mut Context::from_waker(&waker));
        let remaining = until.saturating_duration_since(Instant::now());
        if outcome.is_ready() || remaining.is_zero() {
            break outcome;
        }
        thread::park_timeout(remaining);
    };
    outcome.map(|outcome| match outcome {
        Ok(_) | Err(PublishError::DuplicateForgotten { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    })
}
