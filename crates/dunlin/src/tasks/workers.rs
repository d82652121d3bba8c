//! Attaches workers to this node, so that the node passes them their tasks.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use dunlin_raft::{CommandBatch, GroupHandle};
use dunlin_tasks::{
    AttachResponse, CommandReply, Label, NewWorker, TaskCommand, TaskCommandOutcome, TaskRefusal, TaskStart,
    WorkerOrder,
};
use futures_util::future::join_all;

use super::machine::TasksMachine;
use super::{Tasks, TasksError, WorkerOrderQueue};
use crate::control::ControlError;
use crate::refusal::Refused;

/// The pause between two attempts to set a worker's slots.
const PAUSE: Duration = Duration::from_millis(50);
/// How long a worker whose connection has ended may take to reconnect, before its tasks go to other workers.
const RECONNECT_TIME: Duration = Duration::from_secs(1);

/// A worker's request to receive tasks from this node. The request also lists the tasks that the worker already has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorkerAttachment {
    /// The id that the worker had before; 0 for a new worker.
    pub worker: u64,
    /// The epoch of events in which the cluster assigned the id `worker`.
    pub life: u32,
    /// The number of tasks that the worker can run at the same time.
    pub slots: u32,
    /// The number of tasks that the worker may receive in addition to those that it runs.
    pub ahead: u32,
    /// The tasks that the worker already has, each as the task's id and its token.
    pub has: Vec<(u64, u64)>,
    /// The worker's name.
    pub name: Vec<u8>,
    /// The kinds of tasks that the worker runs.
    pub kinds: Vec<Vec<u8>>,
    /// The queues that the worker serves.
    pub queues: Vec<Vec<u8>>,
    /// The worker's processor capacity, in thousandths of a processor.
    pub cpu_milli: u32,
    /// The worker's memory, bytes.
    pub memory_bytes: u64,
    /// How long the worker's lease lasts without renewal, ms.
    pub ttl_ms: u64,
    /// The worker's labels, as names and values. A task can require labels.
    pub labels: Vec<(Vec<u8>, Vec<u8>)>,
    /// The tenants whose tasks the worker runs; empty for all tenants.
    pub tenants: Vec<Vec<u8>>,
}

impl From<&dunlin_tasks::AttachRequest<'_>> for WorkerAttachment {
    fn from(attach: &dunlin_tasks::AttachRequest<'_>) -> WorkerAttachment {
        let dunlin_tasks::AttachRequest { worker, epoch: life, slots, ahead, held: ref has, ref new } =
            *attach;
        let each = |names: &[&[u8]]| names.iter().map(|name| name.to_vec()).collect();
        WorkerAttachment {
            worker,
            life,
            slots,
            ahead,
            has: has.clone(),
            name: new.name.to_vec(),
            kinds: each(&new.kinds),
            queues: each(&new.queues),
            cpu_milli: new.cpu_milli,
            memory_bytes: new.memory_bytes,
            ttl_ms: new.ttl_ms,
            labels: new.labels.iter().map(|label| (label.key.to_vec(), label.value.to_vec())).collect(),
            tenants: each(&new.tenants),
        }
    }
}

impl Tasks {
    /// Attaches a worker, which may be new or known: from now on, its orders go to `order_queue`. Before the queue
    /// receives the first order, `on_attached` is called. Returns the worker's id.
    pub async fn attach(
        &self,
        attachment: &WorkerAttachment,
        order_queue: &Arc<WorkerOrderQueue>,
        on_attached: impl FnOnce(AttachResponse),
    ) -> Result<u64, TasksError> {
        let known = self.renew_known_worker(attachment).await?;
        let worker = match known {
            Some(worker) => worker,
            None => self.join_worker(attachment).await?,
        };
        self.enlist_in_other_shards(worker, attachment).await?;
        let groups = self.shards.iter().map(|shard| shard.group()).collect::<Result<Vec<_>, _>>()?;
        // A worker may list many tasks, so make the set before the state machines are locked.
        let has: HashSet<(u64, u64)> = attachment.has.iter().copied().collect();
        with_all_machines(&groups, &[], |machines| {
            self.start_orders(machines, worker, &attachment.has, &has, order_queue, on_attached)
        })?;
        if self.shards.len() > 1 {
            self.dealer.worker_attached(worker, attachment.slots, attachment.ahead);
            return Ok(worker);
        }
        // The worker is attached once the cluster has set or refused its slots.
        loop {
            let slots = TaskCommand::Slots { worker, slots: attachment.slots, ahead: attachment.ahead };
            // After an unknown outcome, send the command again: it only sets a value.
            match self.execute(&slots).await {
                Ok(_) | Err(TasksError::Refused(_)) => return Ok(worker),
                Err(TasksError::Agreeing(ControlError::Stopped(why))) => {
                    return Err(ControlError::Stopped(why).into());
                }
                Err(_) => self.first_shard().group()?.pause(PAUSE).await,
            }
        }
    }

    /// If the cluster still knows the worker's previous id, renews the worker's lease and returns the id.
    async fn renew_known_worker(&self, attachment: &WorkerAttachment) -> Result<Option<u64>, TasksError> {
        if attachment.worker == 0 {
            return Ok(None);
        }
        self.first_shard().catch_up().await?;
        // An id that belongs to a worker for other tenants counts as unknown.
        let is_same_worker = |machine: &TasksMachine| {
            machine.epoch() == attachment.life
                && machine.state().is_worker_for(attachment.worker, &attachment.tenants)
        };
        if !self.first_shard().group()?.with(is_same_worker) {
            return Ok(None);
        }
        match self.first_shard().execute(&TaskCommand::Renew { workers: vec![attachment.worker] }).await? {
            CommandReply::Renewed { gone } if gone.is_empty() => Ok(Some(attachment.worker)),
            _ => Ok(None),
        }
    }

    async fn join_worker(&self, attachment: &WorkerAttachment) -> Result<u64, TasksError> {
        match self.first_shard().execute(&TaskCommand::Join { worker: attachment.new_worker() }).await? {
            CommandReply::Joined { worker } => {
                // Wait until this node has applied the command, too, so that its state contains the worker.
                self.first_shard().catch_up().await?;
                Ok(worker)
            }
            _ => Err(TasksError::unknown()),
        }
    }

    /// Adds the worker to all shards but the first. Where the worker is already known, renews its lease.
    async fn enlist_in_other_shards(&self, id: u64, attachment: &WorkerAttachment) -> Result<(), TasksError> {
        let others = self.shards[1..].iter().map(|shard| async move {
            shard.execute(&TaskCommand::Enlist { id, worker: attachment.new_worker() }).await?;
            shard.catch_up().await
        });
        join_all(others).await.into_iter().collect()
    }

    /// Passes the worker's present orders to `order_queue`, and from then on all later orders. Leaves out present
    /// orders for tasks that the worker already has. The list `listed` and the set `has` both contain these tasks with
    /// their tokens. The state machines apply no commands during this call.
    fn start_orders(
        &self,
        machines: &[&TasksMachine],
        worker: u64,
        listed: &[(u64, u64)],
        has: &HashSet<(u64, u64)>,
        order_queue: &Arc<WorkerOrderQueue>,
        on_attached: impl FnOnce(AttachResponse),
    ) -> Result<(), TaskRefusal> {
        let (mut starts, mut stops, mut drained_shards) = (Vec::new(), Vec::new(), Vec::new());
        for machine in machines {
            let orders = machine.state().held(worker)?;
            drained_shards.extend(orders.is_drained().then(|| machine.state().shard()));
            starts.extend(orders.starts);
            stops.extend(orders.stops);
        }
        let first_machine = machines[0];
        let held: HashSet<(u64, u64)> = starts.iter().map(|start| (start.task, start.token)).collect();
        let lost = listed.iter().filter(|task| !held.contains(*task)).copied().collect();
        self.dispatcher.attach(worker, order_queue);
        order_queue.remove_ended(first_machine.state());
        order_queue.add_worker(worker, first_machine.state());
        on_attached(AttachResponse { worker, epoch: first_machine.epoch(), lost });
        let is_missing = |start: &&TaskStart| !has.contains(&(start.task, start.token));
        let missing = starts.iter().filter(is_missing).cloned().map(WorkerOrder::Start);
        self.dispatcher.dispatch(first_machine.state().shard(), missing.chain(stops));
        for shard in drained_shards {
            self.dispatcher.dispatch(shard, std::iter::once(WorkerOrder::Drained { worker }));
        }
        Ok(())
    }
}

/// Calls `read` with all state machines at one moment. Locks the state machines in the order of their shards, so that
/// two calls cannot block each other.
fn with_all_machines<R>(
    groups: &[Arc<GroupHandle<TasksMachine>>],
    locked: &[&TasksMachine],
    read: impl FnOnce(&[&TasksMachine]) -> R,
) -> R {
    match groups.split_first() {
        None => read(locked),
        Some((first, rest)) => {
            first.with(|machine| with_all_machines(rest, &[locked, &[machine]].concat(), read))
        }
    }
}

impl WorkerAttachment {
    /// Converts `error`, with which this request to attach has failed, into a refusal. If a value of the request
    /// exceeds a limit, the text names this value.
    pub fn refusal(&self, error: &TasksError) -> Refused {
        Refused::from_task_error(&TaskCommand::Join { worker: self.new_worker() }, error)
    }

    fn new_worker(&self) -> NewWorker<'_> {
        NewWorker {
            name: &self.name,
            kinds: self.kinds.iter().map(Vec::as_slice).collect(),
            queues: self.queues.iter().map(Vec::as_slice).collect(),
            cpu_milli: self.cpu_milli,
            memory_bytes: self.memory_bytes,
            ttl_ms: self.ttl_ms,
            // The worker gets no slots before its connection is known.
            credit: 0,
            labels: self.labels.iter().map(|(key, value)| Label { key, value }).collect(),
            tenants: self.tenants.iter().map(Vec::as_slice).collect(),
        }
    }
}

impl Tasks {
    /// Called after a heartbeat has renewed the leases of this connection's workers. Stores in the queue when these
    /// leases end.
    pub async fn refresh_leases(&self, order_queue: &WorkerOrderQueue) -> Result<(), TasksError> {
        if !self.first_shard().leads() {
            self.first_shard().catch_up().await?;
        }
        self.first_shard().with(|state| order_queue.refresh_leases(state))
    }

    /// Called when a connection has ended. Waits for `RECONNECT_TIME`, and then ends the leases of the connection's
    /// workers that have not reconnected to any node. When a worker's process is killed, its connection ends at once,
    /// so that the worker's tasks need not wait for the end of the lease. If a worker is alive but reconnects too late,
    /// its results are refused because of their old tokens.
    pub async fn connection_ended(&self, order_queue: &WorkerOrderQueue) -> Result<(), TasksError> {
        self.first_shard().group()?.pause(RECONNECT_TIME).await;
        self.first_shard().catch_up().await?;
        let silent = self.first_shard().with(|state| order_queue.silent_workers(state))?;
        if silent.is_empty() {
            return Ok(());
        }
        let mut commands = CommandBatch::default();
        silent.iter().for_each(|&worker| commands.push_with(|out| TaskCommand::Leave { worker }.encode(out)));
        self.propose_decoded(commands).await.map(drop)
    }

    /// Like [`Tasks::propose_decoded`], but first checks that the commands can be decoded. Returns the responses
    /// decoded.
    pub async fn propose(&self, commands: CommandBatch) -> Result<Vec<TaskCommandOutcome>, TasksError> {
        commands.iter().try_for_each(|command| TaskCommand::decode(command).map(drop))?;
        let responses = self.propose_decoded(commands).await?;
        responses.iter().map(|response| Ok(TaskCommandOutcome::decode(response)?)).collect()
    }
}
