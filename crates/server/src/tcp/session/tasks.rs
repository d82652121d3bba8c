//! Handles a client's requests for tasks and workers. The session collects requests while it handles the bytes of one
//! read, and then proposes the collected commands to the cluster together. Results are sent when they arrive. Orders
//! are sent too: they tell the client's workers which tasks to run.
//!
//! Invariants:
//! - However many commands one read contains, they cause one proposal and one notification of the results.
//! - The client receives a worker's number before the worker's first order.
//! - Results and orders are encoded only when the output has room, so that they do not take memory twice.
//!
//! Limits: a session may have at most [`REQUESTS_MAX`] requests without a response, of at most [`REQUEST_BYTES_MAX`]
//! bytes together, and at most [`WORKERS_MAX`] workers. Further requests and workers are refused. Above
//! [`UNCHARGED_MESSAGE_BYTES_MAX`](crate::charging::UNCHARGED_MESSAGE_BYTES_MAX), the requests' bytes are charged to
//! the memory budget.

mod rechecking;
mod results;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use dunlin::raft::CommandBatch;
use dunlin::scheduler::{AttachRequest, AttachResponse, ExcessValues, TaskCommand, TaskQuery, WorkerOrder};
use dunlin::wire::{self, FromNode, RequestRefused, TaskOrders, TasksKind, TasksResult, U32PrefixedBytes};
use dunlin::{Refused, TaskRule, Tasks, TasksError, WorkerAttachment, WorkerOrderQueue};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::outbound::protocol;
use super::pending::{OutcomeQueue, PendingRequest, RequestOutcome, lock, push_outcomes};
use super::{CONTROL_BYTES_MAX, Session};
use crate::charging::charge_if_large;

/// Token of the notification that results or orders have arrived.
pub(super) const TASK_RESULT: u32 = u32::MAX - 8;

/// Maximum number of requests in one session that have no response yet.
const REQUESTS_MAX: usize = 4_096;
/// Maximum total size of a session's requests that have no response yet, bytes.
const REQUEST_BYTES_MAX: usize = 64 << 20;
const WORKERS_MAX: usize = 4_096;
/// Maximum number of tenants that a session remembers as existing.
const KNOWN_TENANTS_MAX: usize = 10_000;
/// For the first commands of a request, up to this number, a refusal states the value that was too large. For later
/// commands, it does not.
const DETAILED_COMMANDS_MAX: usize = 64;
/// Maximum size of a message with orders, bytes. The last order may exceed it.
const ORDERS_BYTES_MAX: usize = 256 << 10;

#[derive(Debug, Default)]
pub(super) struct TaskRequests {
    commands: CommandBatch,
    command_batches: Vec<BatchedRequest>,
    queries: Vec<(PendingRequest, Bytes)>,
    outcomes: OutcomeQueue<ResponseContent>,
    pending_count: usize,
    pending_bytes: usize,
    /// Tenants that the session knows to exist.
    known_tenants: HashSet<Vec<u8>>,
    order_queue: Option<Arc<WorkerOrderQueue>>,
    scheduler: Weak<Tasks>,
    /// Whether the collected commands contain a heartbeat of a worker.
    has_heartbeats: bool,
    /// Number of workers that are being attached, but are not in the order queue yet.
    joining: Arc<AtomicUsize>,
    attached: HashMap<u64, AttachedWorker>,
    /// Workers whose user has lost the permission for them. They receive no more orders.
    revoked: HashSet<u64>,
    /// Handles to cancel the requests that are attaching a worker.
    attaching: Vec<AbortHandle>,
}

#[derive(Debug)]
struct AttachedWorker {
    /// Number of the request that attached the worker.
    request: u32,
    /// The worker runs only tasks of these tenants. If the list is empty, it runs tasks of all tenants.
    tenants: Vec<Vec<u8>>,
}

/// One request, and the origins of its commands in a proposal.
#[derive(Debug)]
struct BatchedRequest {
    request: PendingRequest,
    commands: Vec<CommandOrigin>,
}

/// Where a command in a proposal comes from.
#[derive(Debug)]
enum CommandOrigin {
    /// The client sent the command. The value contains the command's numbers that a refusal may have to state.
    Client(Option<Box<ExcessValues>>),
    /// The session itself added the command.
    Session,
}

/// An encoded [`TaskCommandOutcome`](dunlin::scheduler::TaskCommandOutcome), and the numbers of its command that a
/// refusal may have to state.
type CommandResult = (Bytes, Option<Box<ExcessValues>>);

#[derive(Debug)]
enum ResponseContent {
    /// The results of a request's commands, in order.
    CommandOutcome(Vec<CommandResult>),
    /// A query that can be evaluated as soon as the output has room.
    Query(Bytes),
    /// A worker was attached. It runs only tasks of these tenants; if the list is empty, it runs tasks of all tenants.
    Attached(AttachResponse, Vec<Vec<u8>>),
}

impl Session {
    pub(super) fn tasks(&mut self, message: &wire::Tasks<'_>) {
        if let Err(refused) = self.accept_tasks(message) {
            self.slow_down(&refused);
            self.refuse_tasks(message.request, &refused);
        }
    }

    fn accept_tasks(&mut self, message: &wire::Tasks<'_>) -> Result<(), Refused> {
        if let Some(Err(refused)) = self.prepared.take() {
            return Err(refused);
        }
        let (number, bytes) = (message.request, message.bytes.0.len());
        if self.task_requests.pending_count >= REQUESTS_MAX {
            return Err(Refused::limit("task_requests_max", REQUESTS_MAX as u64));
        }
        if self.task_requests.pending_bytes + bytes > REQUEST_BYTES_MAX {
            return Err(Refused::limit("task_request_bytes_max", REQUEST_BYTES_MAX as u64));
        }
        let pending_bytes = self.task_requests.pending_bytes;
        let request = PendingRequest::new(number, bytes, pending_bytes, self.node.connection_budget())?;
        match message.kind {
            TasksKind::Commands => self.accept_task_commands(request, message.bytes.0)?,
            TasksKind::Attach => self.accept_worker(request, message.bytes.0)?,
            TasksKind::Query | TasksKind::StaleQuery => {
                TaskQuery::decode(message.bytes.0).map_err(|error| protocol(error.to_string()))?;
                let bytes = Bytes::copy_from_slice(message.bytes.0);
                if message.kind == TasksKind::Query {
                    self.task_requests.queries.push((request, bytes));
                } else {
                    lock(&self.task_requests.outcomes)
                        .push_back(RequestOutcome(request, Ok(ResponseContent::Query(bytes))));
                }
            }
        }
        self.task_requests.pending_count += 1;
        self.task_requests.pending_bytes += bytes;
        Ok(())
    }

    /// Accepts all commands of a request. If it fails, it has accepted none of them.
    fn accept_task_commands(&mut self, request: PendingRequest, bytes: &[u8]) -> Result<(), Refused> {
        let (mut accepted, mut commands) = (CommandBatch::default(), Vec::new());
        let (mut rest, rule) = (bytes, self.node.task_rule());
        let short = || protocol("the commands are incomplete");
        let mut new_tenants = HashSet::new();
        while !rest.is_empty() {
            let (len, after) = rest.split_first_chunk().ok_or_else(short)?;
            let (bytes, after) =
                after.split_at_checked(u32::from_le_bytes(*len) as usize).ok_or_else(short)?;
            rest = after;
            let command = TaskCommand::decode(bytes).map_err(|error| protocol(error.to_string()))?;
            self.task_requests.has_heartbeats |= matches!(command, TaskCommand::Renew { .. });
            self.accept_task_command(
                (command, bytes),
                &rule,
                &mut accepted,
                &mut commands,
                &mut new_tenants,
            )?;
        }
        for bytes in accepted.iter() {
            self.task_requests.commands.push(bytes);
        }
        if self.task_requests.known_tenants.len() + new_tenants.len() <= KNOWN_TENANTS_MAX {
            self.task_requests.known_tenants.extend(new_tenants);
        }
        self.task_requests.command_batches.push(BatchedRequest { request, commands });
        Ok(())
    }

    fn accept_task_command<'c>(
        &self,
        (mut command, bytes): (TaskCommand<'c>, &[u8]),
        rule: &'c TaskRule,
        accepted: &mut CommandBatch,
        commands: &mut Vec<CommandOrigin>,
        new_tenants: &mut HashSet<Vec<u8>>,
    ) -> Result<(), Refused> {
        let is_named = set_default_tenant(&mut command, rule.tenant.as_bytes());
        if rule.is_bounded() && !self.task_requests.owns_workers(command.workers(), rule) {
            return Err(Refused::new(wire::ErrorCode::Forbidden, "the worker belongs to another connection"));
        }
        self.admit_command(&command, bytes.len())?;
        if let TaskCommand::Submit { tenant, .. } | TaskCommand::Schedule { tenant, .. } = command {
            self.create_unknown_tenant(tenant, accepted, commands, new_tenants);
        } else if let TaskCommand::Join { .. } = command {
            return Err(Refused::new(
                wire::ErrorCode::BadTask,
                "Join is not allowed here: attaching the worker joins it",
            ));
        } else if let TaskCommand::Published { .. }
        | TaskCommand::Clock { .. }
        | TaskCommand::BeginRestored { .. } = command
        {
            return Err(Refused::new(wire::ErrorCode::Forbidden, "only nodes may send this command"));
        }
        let as_is = (!is_named).then_some(bytes);
        self.node.permit_task(rule, &command, as_is, accepted).map_err(|error| Refused::from(&error))?;
        let is_detailed = commands.len() < DETAILED_COMMANDS_MAX;
        commands.push(CommandOrigin::Client(is_detailed.then(|| ExcessValues::of(&command)).flatten()));
        Ok(())
    }

    /// With `auto_create`, adds a command that creates the tenant, unless the tenant is known to exist.
    fn create_unknown_tenant(
        &self,
        tenant: &[u8],
        accepted: &mut CommandBatch,
        commands: &mut Vec<CommandOrigin>,
        new_tenants: &mut HashSet<Vec<u8>>,
    ) {
        let is_known = || self.task_requests.known_tenants.contains(tenant) || new_tenants.contains(tenant);
        if tenant.is_empty() || !self.node.config().auto_create || is_known() {
            return;
        }
        accepted.push_with(|out| TaskCommand::EnsureTenant { tenant }.encode(out));
        commands.push(CommandOrigin::Session);
        new_tenants.insert(tenant.to_vec());
    }

    fn accept_worker(&mut self, request: PendingRequest, bytes: &[u8]) -> Result<(), Refused> {
        let attach = AttachRequest::decode(bytes).map_err(|error| protocol(error.to_string()))?;
        let mut attachment = WorkerAttachment::from(&attach);
        attachment.tenants = self.node.may_work(attachment.tenants).map_err(|error| Refused::from(&error))?;
        let joining = &self.task_requests.joining;
        let known = self.task_requests.order_queue.as_ref().map_or(0, |queue| queue.worker_count());
        if known + joining.load(Ordering::Relaxed) >= WORKERS_MAX {
            return Err(Refused::limit("session_workers_max", WORKERS_MAX as u64));
        }
        let tasks = self.scheduler()?;
        joining.fetch_add(1, Ordering::Relaxed);
        let waiter = Arc::clone(&self.waiter);
        self.task_requests.scheduler = Arc::downgrade(&tasks);
        let order_queue =
            self.task_requests.order_queue.get_or_insert_with(|| WorkerOrderQueue::new(waiter, TASK_RESULT));
        let (order_queue, outcomes) = (Arc::downgrade(order_queue), Arc::clone(&self.task_requests.outcomes));
        let (waiter, joining) = (Arc::clone(&self.waiter), Arc::clone(&self.task_requests.joining));
        let tenants = attachment.tenants.clone();
        let attaching = tokio::spawn(async move {
            let Some(order_queue) = order_queue.upgrade() else { return };
            let mut request = Some(request);
            let attached = tasks.attach(&attachment, &order_queue, |attached| {
                let Some(request) = request.take() else { return };
                joining.fetch_sub(1, Ordering::Relaxed);
                let outcome = RequestOutcome(request, Ok(ResponseContent::Attached(attached, tenants)));
                push_outcomes(&outcomes, &waiter, TASK_RESULT, [outcome]);
            });
            let attached = attached.await;
            if let (Err(error), Some(request)) = (attached, request) {
                joining.fetch_sub(1, Ordering::Relaxed);
                let outcome = RequestOutcome(request, Err(attachment.refusal(&error)));
                push_outcomes(&outcomes, &waiter, TASK_RESULT, [outcome]);
            }
        });
        self.task_requests.attaching.retain(|attaching| !attaching.is_finished());
        self.task_requests.attaching.push(attaching.abort_handle());
        Ok(())
    }

    fn scheduler(&self) -> Result<Arc<Tasks>, Refused> {
        self.node.tasks().map(Arc::clone).map_err(|error| Refused::from(&error))
    }

    /// Proposes the collected commands to the cluster. If there are collected queries, also waits in the background
    /// until this node has applied all acknowledged commands. Then the queries can be evaluated.
    pub(super) fn propose_task_requests(&mut self) {
        if self.task_requests.command_batches.is_empty() && self.task_requests.queries.is_empty() {
            return;
        }
        let commands = std::mem::take(&mut self.task_requests.commands);
        let command_batches = std::mem::take(&mut self.task_requests.command_batches);
        let queries = std::mem::take(&mut self.task_requests.queries);
        let tasks = match self.scheduler() {
            Ok(tasks) => tasks,
            Err(refused) => {
                let requests = command_batches.into_iter().map(|batch| batch.request);
                let requests = requests.chain(queries.into_iter().map(|(request, _)| request));
                let mut outcomes = lock(&self.task_requests.outcomes);
                outcomes.extend(requests.map(|request| RequestOutcome(request, Err(refused.clone()))));
                return;
            }
        };
        let (outcomes, waiter) = (&self.task_requests.outcomes, &self.waiter);
        if !command_batches.is_empty() {
            let (tasks, outcomes, waiter) = (Arc::clone(&tasks), Arc::clone(outcomes), Arc::clone(waiter));
            let renewed = self
                .task_requests
                .order_queue
                .clone()
                .filter(|_| std::mem::take(&mut self.task_requests.has_heartbeats));
            tokio::spawn(async move {
                let results = tasks.propose_decoded(commands).await;
                push_outcomes(&outcomes, &waiter, TASK_RESULT, outcomes_of(command_batches, results));
                if let Some(order_queue) = renewed {
                    // If this fails, the leases of the workers simply end at their usual time.
                    let _ = tasks.refresh_leases(&order_queue).await;
                }
            });
        }
        if !queries.is_empty() {
            let (outcomes, waiter) = (Arc::clone(outcomes), Arc::clone(waiter));
            tokio::spawn(async move {
                let caught_up = tasks.catch_up().await.map_err(|error| Refused::from(&error));
                let new = queries.into_iter().map(|(request, bytes)| {
                    RequestOutcome(request, caught_up.clone().map(|()| ResponseContent::Query(bytes)))
                });
                push_outcomes(&outcomes, &waiter, TASK_RESULT, new);
            });
        }
    }

    /// Sends the results that are ready, and then orders, while the output has room.
    pub(super) fn send_task_results(&mut self) {
        while self.outbound.control.len() <= CONTROL_BYTES_MAX {
            let Some(RequestOutcome(request, content)) = lock(&self.task_requests.outcomes).pop_front()
            else {
                return self.send_orders();
            };
            self.task_requests.pending_count -= 1;
            self.task_requests.pending_bytes -= request.bytes;
            let sent = content.and_then(|content| match content {
                ResponseContent::CommandOutcome(results) => {
                    self.send_task_result(request.number, &results::write_all(&results));
                    Ok(())
                }
                ResponseContent::Query(bytes) => self.send_task_query_result(request.number, &bytes),
                ResponseContent::Attached(attached, tenants) => {
                    let worker = AttachedWorker { request: request.number, tenants };
                    self.task_requests.revoked.remove(&attached.worker);
                    self.task_requests.attached.insert(attached.worker, worker);
                    self.task_requests.forget_ended_workers();
                    let mut out = Vec::new();
                    attached.encode(&mut out);
                    self.send_task_result(request.number, &out);
                    // The user's permissions may have changed while the worker was being attached.
                    self.recheck_workers();
                    Ok(())
                }
            });
            if let Err(refused) = sent {
                self.refuse_tasks(request.number, &refused);
            }
        }
    }

    fn send_task_query_result(&mut self, request: u32, bytes: &[u8]) -> Result<(), Refused> {
        let mut query = TaskQuery::decode(bytes).map_err(|error| protocol(error.to_string()))?;
        let rule = self.node.task_rule();
        if !rule.manage {
            limit_query_to_tenant(&mut query, rule.tenant.as_bytes());
        }
        self.node.may_query_tasks(&query).map_err(|error| Refused::from(&error))?;
        let mut out = Vec::new();
        self.scheduler()?.answer(&query).map_err(|error| Refused::from(&error))?.encode(&mut out);
        let charge = charge_if_large(self.node.connection_budget(), out.len(), 0)?;
        self.send_task_result(request, &out);
        self.outbound.hold_charge(charge);
        Ok(())
    }

    fn send_task_result(&mut self, request: u32, bytes: &[u8]) {
        self.outbound.push(FromNode::TasksResult(TasksResult { request, bytes: U32PrefixedBytes(bytes) }));
    }

    fn send_orders(&mut self) {
        let Some(order_queue) = self.task_requests.order_queue.clone() else { return };
        while self.outbound.control.len() <= CONTROL_BYTES_MAX && !order_queue.is_empty() {
            let mut out = Vec::new();
            WorkerOrder::begin(&mut out);
            let none = out.len();
            order_queue.take(|order| {
                if !self.task_requests.revoked.contains(&order.worker()) {
                    order.encode(&mut out);
                }
                out.len() < ORDERS_BYTES_MAX
            });
            if out.len() == none {
                continue;
            }
            self.outbound.push(FromNode::TaskOrders(TaskOrders { bytes: U32PrefixedBytes(&out) }));
        }
    }

    fn refuse_tasks(&mut self, request: u32, refused: &Refused) {
        let refusal = refused.as_wire();
        self.outbound.push(FromNode::RequestRefused(RequestRefused { request, refusal }));
    }
}

impl TaskRequests {
    /// Whether all requests have responses.
    pub(super) fn all_responded(&self) -> bool {
        self.pending_count == 0
    }

    /// If the session remembers too many workers, forgets those that have ended.
    fn forget_ended_workers(&mut self) {
        if self.attached.len() > WORKERS_MAX
            && let Some(order_queue) = &self.order_queue
        {
            self.attached.retain(|worker, _| order_queue.has_worker(*worker));
        }
    }

    /// Whether all these workers belong to this connection, and serve only tenants that the user may work for.
    fn owns_workers(&self, workers: &[u64], rule: &TaskRule) -> bool {
        workers
            .iter()
            .all(|worker| self.attached.get(worker).is_some_and(|worker| rule.serves(&worker.tenants)))
    }
}

impl Drop for TaskRequests {
    fn drop(&mut self) {
        self.attaching.iter().for_each(AbortHandle::abort);
        let Some(order_queue) = self.order_queue.take().filter(|order_queue| order_queue.has_workers())
        else {
            return;
        };
        if let (Some(tasks), Ok(runtime)) = (self.scheduler.upgrade(), Handle::try_current()) {
            // If this fails, the leases of the workers simply end at their usual time.
            runtime.spawn(async move { tasks.connection_ended(&order_queue).await });
        }
    }
}

/// If the command names no tenant, sets the user's tenant and returns `true`.
fn set_default_tenant<'a>(command: &mut TaskCommand<'a>, own: &'a [u8]) -> bool {
    match command {
        TaskCommand::Submit { tenant, .. }
        | TaskCommand::Redrive { tenant, .. }
        | TaskCommand::RedriveSafe { tenant, .. }
        | TaskCommand::Discard { tenant, .. }
        | TaskCommand::Schedule { tenant, .. }
        | TaskCommand::Unschedule { tenant, .. }
            if tenant.is_empty() =>
        {
            *tenant = own;
            true
        }
        _ => false,
    }
}

/// If the query names no tenant, sets the user's tenant. Otherwise, the result would cover all tenants.
fn limit_query_to_tenant<'a>(query: &mut TaskQuery<'a>, own: &'a [u8]) {
    match query {
        TaskQuery::List { filter, .. } if filter.tenant.is_empty() => filter.tenant = own,
        TaskQuery::Queues { tenant } | TaskQuery::Tenants { tenant } if tenant.is_empty() => *tenant = own,
        _ => {}
    }
}

fn outcomes_of(
    batches: Vec<BatchedRequest>,
    results: Result<Vec<Bytes>, TasksError>,
) -> Vec<RequestOutcome<ResponseContent>> {
    match results {
        Ok(results) => {
            let mut results = results.into_iter();
            let outcome_of = |BatchedRequest { request, commands }: BatchedRequest| {
                // If the cluster returned too few results, each missing result counts as empty.
                let mut next = || results.next().unwrap_or_default();
                let own = commands.into_iter().map(|origin| (origin, next()));
                let own = own.filter_map(|(origin, result)| match origin {
                    CommandOrigin::Client(excess) => Some((result, excess)),
                    CommandOrigin::Session => None,
                });
                RequestOutcome(request, Ok(ResponseContent::CommandOutcome(own.collect())))
            };
            batches.into_iter().map(outcome_of).collect()
        }
        Err(error) => {
            let refused = Refused::from(&error);
            batches.into_iter().map(|batch| RequestOutcome(batch.request, Err(refused.clone()))).collect()
        }
    }
}
