//! The thread of a shard that publishes due tasks and keeps the cluster's clock right.
//!
//! Invariants:
//! - Only the leader publishes, and only unconfirmed tasks: a node that applies its log again publishes nothing.
//! - An unconfirmed task is published again after `publish_retry_ms`, with the same producer and sequence number. A
//!   topic that remembers the producer appends it once.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use dunlin_raft::Commands;
use dunlin_tasks::{Destination, TaskCommand, TaskPublication as Due, TaskStage};
use dunlin_topic::{Draft, Payload, ProducerMark, Publish, PublishError};

use super::TaskShard;
use crate::control::block_on;
use crate::node::Node;

/// The interval at which the leader checks the cluster's clock.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum number of tasks confirmed by one command.
const BATCH_MAX: usize = 1_000;

pub(super) enum HousekeeperCommand {
    Publish(Vec<Due>),
    End,
}

#[derive(Debug)]
pub(super) struct TasksHousekeeper {
    work: Sender<HousekeeperCommand>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl TasksHousekeeper {
    /// A handle, and the receiver for the thread.
    pub(super) fn new() -> (TasksHousekeeper, Receiver<HousekeeperCommand>) {
        let (work, receiver) = channel();
        (TasksHousekeeper { work, thread: Mutex::default() }, receiver)
    }

    pub(super) fn sender(&self) -> Sender<HousekeeperCommand> {
        self.work.clone()
    }

    /// Starts the thread, which ends with the shard.
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

fn run(receiver: &Receiver<HousekeeperCommand>, shard: &Weak<TaskShard>, node: &Node) {
    loop {
        let work = receiver.recv_timeout(CHECK_INTERVAL);
        let Some(shard) = shard.upgrade() else { return };
        match work {
            Ok(HousekeeperCommand::Publish(due)) => publish(&shard, node, due),
            Ok(HousekeeperCommand::End) | Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                // If this node does not lead, the leader corrects the clock.
                let _ = block_on(shard.correct_clock());
            }
        }
    }
}

fn publish(shard: &Arc<TaskShard>, node: &Node, due: Vec<Due>) {
    // After this call, this node knows all confirmations, even after a restart.
    if !shard.leads() || block_on(shard.catch_up()).is_err() {
        return;
    }
    let is_due = |due: &Due| {
        shard
            .with(|state| state.get(due.task).is_ok_and(|task| task.stage == TaskStage::Running))
            .unwrap_or(false)
    };
    let (mut done, mut refused) = (Vec::new(), Commands::default());
    for due in due.into_iter().filter(is_due) {
        match publish_one(shard, node, &due) {
            Ok(()) => done.push(due.task),
            Err(NotPublished::Refused(why)) => {
                let (task, error) = (due.task, why.as_bytes());
                refused.push_with(|out| TaskCommand::Unpublished { task, error }.encode(out));
            }
            Err(NotPublished::NotYet) => {}
        }
    }
    if !refused.is_empty() {
        // If this fails, the tasks are due again, because they are not confirmed.
        let _ = block_on(shard.propose_decoded(refused));
    }
    for chunk in done.chunks(BATCH_MAX) {
        let mut commands = Commands::default();
        commands.push_with(|out| TaskCommand::Published { tasks: chunk.to_vec() }.encode(out));
        // If this fails, the tasks are due again, because they are not confirmed.
        let _ = block_on(shard.propose_decoded(commands));
    }
}

/// The reason why a task was not published.
enum NotPublished {
    /// The task could not be published at present. It is due again soon.
    NotYet,
    /// The user who submitted the task lacks the permission.
    Refused(String),
}

/// Publishes the record of a task, if the user who submitted the task still has the permission.
fn publish_one(shard: &TaskShard, node: &Node, due: &Due) -> Result<(), NotPublished> {
    let Destination { subject, user } = Destination::read(&due.subject);
    let text = |bytes| std::str::from_utf8(bytes).map_err(|error| NotPublished::Refused(error.to_string()));
    let (subject, user) = (text(subject)?, user.map(text).transpose()?);
    let node = node.with_current_permissions(user).map_err(NotPublished::Refused)?;
    let mark = ProducerMark { producer: shard.producer_of(due.task), producer_epoch: 1, producer_seq: 1 };
    let payload = Payload::Shared(Bytes::copy_from_slice(&due.payload));
    let draft = Draft { meta: Default::default(), payload };
    let published =
        node.publisher(subject).and_then(|publisher| publisher.with_producer(mark).publish(draft));
    match published {
        // The record was appended by an earlier attempt.
        Ok(_) | Err(PublishError::DuplicateForgotten { .. }) => Ok(()),
        Err(PublishError::Forbidden(why)) => Err(NotPublished::Refused(why)),
        Err(_) => Err(NotPublished::NotYet),
    }
}
