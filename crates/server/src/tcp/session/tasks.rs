//! Handles requests for tasks and workers. Requests are collected while the read buffer is handled, and then proposed
//! to the cluster together. Results, and orders for the client's workers, are sent when they arrive.
//!
//! Invariants:
//! - One read of the socket causes one proposal and one notification of its result, however many commands were read.
//! - A worker's number is sent before its first order.
//! - Results and orders are encoded when there is room, so that they do not take memory twice.
//!
//! Limits: [`REQUESTS_MAX`] requests, and [`REQUEST_BYTES_MAX`] of their bytes, without a response; [`WORKERS_MAX`]
//! workers. Further ones are refused.

mod answers;
mod rechecking;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use dunlin::raft::Commands;
use dunlin::scheduler::{AttachRequest, AttachResponse, TaskCommand, TaskQuery, WorkerOrder};
use dunlin::topic::Waiter;
use dunlin::wire::{self, FromNode, LongBytes, RequestRefused, TaskOrders, TasksKind, TasksResult};
use dunlin::{OrderQueue, Refused, TaskRule, Tasks, TasksError, WorkerAttachment};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::outbound::protocol;
use super::{CONTROL_BYTES_MAX, Session};

/// Token with which results and orders notify the session's waiter.
pub(super) const TASKED: u32 = u32::MAX - 8;

/// Maximum number of requests of one session that have no response yet.
const REQUESTS_MAX: usize = 4_096;
/// Maximum size of the requests that have no response yet, bytes.
const REQUEST_BYTES_MAX: usize = 64 << 20;
/// Maximum number of workers of one session.
const WORKERS_MAX: usize = 4_096;
/// Maximum number of tenants of which a session remembers that they exist.
const TENANTS_KEPT_MAX: usize = 10_000;
/// Maximum number of bytes of orders in one message; a larger order is sent alone.
const ORDERS_BYTES_MAX: usize = 256 << 10;

/// The task requests of one session, and its workers.
#[derive(Debug, Default)]
pub(super) struct TaskRequests {
    commands: Commands,
    of_commands: Vec<CommandBatch>,
    questions: Vec<(PendingRequest, Bytes)>,
    outcomes: OutcomeQueue,
    unanswered: usize,
    unanswered_bytes: usize,
    /// Tenants of which the session knows that they exist.
    tenants: HashSet<Vec<u8>>,
    outlet: Option<Arc<OrderQueue>>,
    /// The scheduler of the session's workers.
    scheduler: Weak<Tasks>,
    /// Whether a worker's heartbeat is among the collected commands.
    beats: bool,
    workers: Arc<AtomicUsize>,
    /// The attached workers, by number.
    attached: HashMap<u64, AttachedWorker>,
    /// Workers that have lost their permission. They receive no more orders.
    revoked: HashSet<u64>,
    /// Handles of the requests that are attaching a worker.
    attaching: Vec<AbortHandle>,
}

/// The number and size of a request.
#[derive(Debug, Clone, Copy)]
struct PendingRequest {
    number: u32,
    bytes: usize,
}

/// A worker that is attached over this session.
#[derive(Debug)]
struct AttachedWorker {
    /// The request that attached the worker.
    request: u32,
    /// The tenants whose tasks the worker runs; empty means all tenants.
    tenants: Vec<Vec<u8>>,
}

/// The commands of one request within a proposal.
#[derive(Debug)]
struct CommandBatch {
    request: PendingRequest,
    /// For each command, true if the client sent it, and false if the session added it.
    is_own: Vec<bool>,
}

/// The result of a request that is not sent yet.
#[derive(Debug)]
struct RequestOutcome(PendingRequest, Result<ResponseContent, Refused>);

#[derive(Debug)]
enum ResponseContent {
    /// The bytes of a [`TaskCommandOutcome`](dunlin::scheduler::TaskCommandOutcome) for each command.
    CommandOutcome(Vec<Bytes>),
    /// A query, which can be evaluated from now on.
    Question(Bytes),
    /// The worker is attached; it runs tasks of these tenants, or of all tenants if there are none.
    Attached(AttachResponse, Vec<Vec<u8>>),
}

type OutcomeQueue = Arc<Mutex<VecDeque<RequestOutcome>>>;

fn lock(outcomes: &OutcomeQueue) -> MutexGuard<'_, VecDeque<RequestOutcome>> {
    outcomes.lock().unwrap_or_else(PoisonError::into_inner)
}

fn push_outcomes(outcomes: &OutcomeQueue, waiter: &Arc<Waiter>, came: impl Iterator<Item = RequestOutcome>) {
    lock(outcomes).extend(came);
    waiter.notify(TASKED);
}

impl Session {
    pub(super) fn tasks(&mut self, asked: &wire::Tasks<'_>) {
        if let Err(refused) = self.take_tasks(asked) {
            self.refuse_tasks(asked.request, &refused);
        }
    }

    fn take_tasks(&mut self, asked: &wire::Tasks<'_>) -> Result<(), Refused> {
        if let Some(Err(refused)) = self.waited.take() {
            return Err(refused);
        }
        let request = PendingRequest { number: asked.request, bytes: asked.bytes.0.len() };
        if self.task_requests.unanswered >= REQUESTS_MAX {
            return Err(Refused::limit("task_requests_max", REQUESTS_MAX as u64));
        }
        if self.task_requests.unanswered_bytes + request.bytes > REQUEST_BYTES_MAX {
            return Err(Refused::limit("task_request_bytes_max", REQUEST_BYTES_MAX as u64));
        }
        match asked.kind {
            TasksKind::Commands => self.take_task_commands(request, asked.bytes.0)?,
            TasksKind::Attach => self.take_worker(request, asked.bytes.0)?,
            TasksKind::Question | TasksKind::StaleQuestion => {
                TaskQuery::decode(asked.bytes.0).map_err(|error| protocol(error.to_string()))?;
                let bytes = Bytes::copy_from_slice(asked.bytes.0);
                if asked.kind == TasksKind::Question {
                    self.task_requests.questions.push((request, bytes));
                } else {
                    lock(&self.task_requests.outcomes)
                        .push_back(RequestOutcome(request, Ok(ResponseContent::Question(bytes))));
                }
            }
        }
        self.task_requests.unanswered += 1;
        self.task_requests.unanswered_bytes += request.bytes;
        Ok(())
    }

    /// Takes all commands of a request, or refuses the request and takes none.
    fn take_task_commands(&mut self, request: PendingRequest, bytes: &[u8]) -> Result<(), Refused> {
        let (mut taken, mut is_own) = (Commands::default(), Vec::new());
        let (mut rest, rule) = (bytes, self.node.task_rule());
        let short = || protocol("the commands are incomplete");
        let mut found = Vec::new();
        while !rest.is_empty() {
            let (len, after) = rest.split_first_chunk().ok_or_else(short)?;
            let (bytes, after) =
                after.split_at_checked(u32::from_le_bytes(*len) as usize).ok_or_else(short)?;
            rest = after;
            let command = TaskCommand::decode(bytes).map_err(|error| protocol(error.to_string()))?;
            self.task_requests.beats |= matches!(command, TaskCommand::Beat { .. });
            self.take_task_command((command, bytes), &rule, &mut taken, &mut is_own, &mut found)?;
        }
        for bytes in taken.iter() {
            self.task_requests.commands.push(bytes);
        }
        if self.task_requests.tenants.len() + found.len() <= TENANTS_KEPT_MAX {
            self.task_requests.tenants.extend(found);
        }
        self.task_requests.of_commands.push(CommandBatch { request, is_own });
        Ok(())
    }

    fn take_task_command<'c>(
        &self,
        (mut command, bytes): (TaskCommand<'c>, &[u8]),
        rule: &'c TaskRule,
        taken: &mut Commands,
        is_own: &mut Vec<bool>,
        found: &mut Vec<Vec<u8>>,
    ) -> Result<(), Refused> {
        let is_named = name_tenant(&mut command, rule.tenant.as_bytes());
        if rule.is_bounded() && !self.task_requests.are_own(command.workers(), rule) {
            return Err(Refused::new(wire::ErrorCode::Forbidden, "the worker belongs to another connection"));
        }
        if let TaskCommand::Submit { tenant, ref tasks } = command {
            self.admit_publish(tasks.len() as u32, bytes.len())?;
            self.found_tenant(tenant, taken, is_own, found);
        } else if let TaskCommand::Schedule { tenant, .. } = command {
            self.found_tenant(tenant, taken, is_own, found);
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
        self.node.permit_task(rule, &command, as_is, taken).map_err(|error| Refused::from(&error))?;
        is_own.push(true);
        Ok(())
    }

    /// If the tenant is not known to exist and `auto_create` is set, adds a command that creates it.
    fn found_tenant(
        &self,
        tenant: &[u8],
        taken: &mut Commands,
        is_own: &mut Vec<bool>,
        found: &mut Vec<Vec<u8>>,
    ) {
        let is_known =
            || self.task_requests.tenants.contains(tenant) || found.iter().any(|known| known == tenant);
        if tenant.is_empty() || !self.node.config().auto_create || is_known() {
            return;
        }
        taken.push_with(|out| TaskCommand::Found { tenant }.encode(out));
        is_own.push(false);
        found.push(tenant.to_vec());
    }

    fn take_worker(&mut self, request: PendingRequest, bytes: &[u8]) -> Result<(), Refused> {
        let attach = AttachRequest::decode(bytes).map_err(|error| protocol(error.to_string()))?;
        let mut asked = WorkerAttachment::from(&attach);
        asked.tenants = self.node.may_work(asked.tenants).map_err(|error| Refused::from(&error))?;
        let workers = &self.task_requests.workers;
        if workers.load(Ordering::Relaxed) >= WORKERS_MAX {
            return Err(Refused::limit("session_workers_max", WORKERS_MAX as u64));
        }
        workers.fetch_add(1, Ordering::Relaxed);
        let tasks = self.scheduler()?;
        let waiter = Arc::clone(&self.waiter);
        self.task_requests.scheduler = Arc::downgrade(&tasks);
        let outlet = self.task_requests.outlet.get_or_insert_with(|| OrderQueue::new(waiter, TASKED));
        let (outlet, outcomes) = (Arc::downgrade(outlet), Arc::clone(&self.task_requests.outcomes));
        let (waiter, workers) = (Arc::clone(&self.waiter), Arc::clone(&self.task_requests.workers));
        let tenants = asked.tenants.clone();
        let attaching = tokio::spawn(async move {
            let Some(outlet) = outlet.upgrade() else { return };
            let mut is_told = false;
            let attached = tasks.attach(&asked, &outlet, |attached| {
                is_told = true;
                let outcome = RequestOutcome(request, Ok(ResponseContent::Attached(attached, tenants)));
                push_outcomes(&outcomes, &waiter, std::iter::once(outcome));
            });
            let attached = attached.await;
            if let (Err(error), false) = (attached, is_told) {
                workers.fetch_sub(1, Ordering::Relaxed);
                let outcome = RequestOutcome(request, Err(Refused::from(&error)));
                push_outcomes(&outcomes, &waiter, std::iter::once(outcome));
            }
        });
        self.task_requests.attaching.retain(|attaching| !attaching.is_finished());
        self.task_requests.attaching.push(attaching.abort_handle());
        Ok(())
    }

    fn scheduler(&self) -> Result<Arc<Tasks>, Refused> {
        self.node.tasks().map(Arc::clone).map_err(|error| Refused::from(&error))
    }

    /// Proposes the collected commands, and catches up for the collected queries.
    pub(super) fn ask_scheduler(&mut self) {
        if self.task_requests.of_commands.is_empty() && self.task_requests.questions.is_empty() {
            return;
        }
        let commands = std::mem::take(&mut self.task_requests.commands);
        let of_commands = std::mem::take(&mut self.task_requests.of_commands);
        let questions = std::mem::take(&mut self.task_requests.questions);
        let tasks = match self.scheduler() {
            Ok(tasks) => tasks,
            Err(refused) => {
                let requests = of_commands.into_iter().map(|batch| batch.request);
                let requests = requests.chain(questions.into_iter().map(|(request, _)| request));
                let mut outcomes = lock(&self.task_requests.outcomes);
                outcomes.extend(requests.map(|request| RequestOutcome(request, Err(refused.clone()))));
                return;
            }
        };
        let (outcomes, waiter) = (&self.task_requests.outcomes, &self.waiter);
        if !of_commands.is_empty() {
            let (tasks, outcomes, waiter) = (Arc::clone(&tasks), Arc::clone(outcomes), Arc::clone(waiter));
            let heard =
                self.task_requests.outlet.clone().filter(|_| std::mem::take(&mut self.task_requests.beats));
            tokio::spawn(async move {
                let answers = tasks.propose_known(commands).await;
                push_outcomes(&outcomes, &waiter, each(of_commands, answers).into_iter());
                if let Some(outlet) = heard {
                    // If this fails, the workers' leases end at their usual time.
                    let _ = tasks.heard(&outlet).await;
                }
            });
        }
        if !questions.is_empty() {
            let (outcomes, waiter) = (Arc::clone(outcomes), Arc::clone(waiter));
            tokio::spawn(async move {
                let caught_up = tasks.catch_up().await.map_err(|error| Refused::from(&error));
                let came = questions.into_iter().map(|(request, bytes)| {
                    RequestOutcome(request, caught_up.clone().map(|()| ResponseContent::Question(bytes)))
                });
                push_outcomes(&outcomes, &waiter, came);
            });
        }
    }

    /// Sends results, and then orders, as far as there is room.
    pub(super) fn answer_tasks(&mut self) {
        while self.outbound.control.len() <= CONTROL_BYTES_MAX {
            let Some(RequestOutcome(request, content)) = lock(&self.task_requests.outcomes).pop_front()
            else {
                return self.say_orders();
            };
            self.task_requests.unanswered -= 1;
            self.task_requests.unanswered_bytes -= request.bytes;
            let said = content.and_then(|content| match content {
                ResponseContent::CommandOutcome(answers) => {
                    self.say_tasked(request.number, &answers::write_all(&answers));
                    Ok(())
                }
                ResponseContent::Question(bytes) => self.say_task_found(request.number, &bytes),
                ResponseContent::Attached(attached, tenants) => {
                    let worker = AttachedWorker { request: request.number, tenants };
                    self.task_requests.revoked.remove(&attached.worker);
                    self.task_requests.attached.insert(attached.worker, worker);
                    let mut out = Vec::new();
                    attached.encode(&mut out);
                    self.say_tasked(request.number, &out);
                    // The users file may have changed while the worker was being attached.
                    self.recheck_workers();
                    Ok(())
                }
            });
            if let Err(refused) = said {
                self.refuse_tasks(request.number, &refused);
            }
        }
    }

    fn say_task_found(&mut self, request: u32, bytes: &[u8]) -> Result<(), Refused> {
        let mut query = TaskQuery::decode(bytes).map_err(|error| protocol(error.to_string()))?;
        let rule = self.node.task_rule();
        if !rule.manage {
            ask_of_tenant(&mut query, rule.tenant.as_bytes());
        }
        self.node.may_ask_of_tasks(&query).map_err(|error| Refused::from(&error))?;
        let mut out = Vec::new();
        self.scheduler()?.answer(&query).map_err(|error| Refused::from(&error))?.encode(&mut out);
        self.say_tasked(request, &out);
        Ok(())
    }

    fn say_tasked(&mut self, request: u32, bytes: &[u8]) {
        self.outbound.push(FromNode::TasksResult(TasksResult { request, bytes: LongBytes(bytes) }));
    }

    fn say_orders(&mut self) {
        let Some(outlet) = self.task_requests.outlet.clone() else { return };
        while self.outbound.control.len() <= CONTROL_BYTES_MAX && !outlet.is_empty() {
            let mut out = Vec::new();
            WorkerOrder::begin(&mut out);
            let none = out.len();
            outlet.take(|order| {
                if !self.task_requests.revoked.contains(&order.worker()) {
                    order.encode(&mut out);
                }
                out.len() < ORDERS_BYTES_MAX
            });
            if out.len() == none {
                continue;
            }
            self.outbound.push(FromNode::TaskOrders(TaskOrders { bytes: LongBytes(&out) }));
        }
    }

    fn refuse_tasks(&mut self, request: u32, refused: &Refused) {
        let refusal = refused.as_wire();
        self.outbound.push(FromNode::RequestRefused(RequestRefused { request, refusal }));
    }
}

impl TaskRequests {
    /// Whether all requests have their results.
    pub(super) fn is_answered(&self) -> bool {
        self.unanswered == 0
    }

    /// Whether these workers belong to this connection, and run tasks only of tenants that the user may work for.
    fn are_own(&self, workers: &[u64], rule: &TaskRule) -> bool {
        workers
            .iter()
            .all(|worker| self.attached.get(worker).is_some_and(|worker| rule.serves(&worker.tenants)))
    }
}

impl Drop for TaskRequests {
    fn drop(&mut self) {
        self.attaching.iter().for_each(AbortHandle::abort);
        let Some(outlet) = self.outlet.take().filter(|outlet| outlet.has_workers()) else { return };
        if let (Some(tasks), Ok(runtime)) = (self.scheduler.upgrade(), Handle::try_current()) {
            // If this fails, the workers' leases end at their usual time.
            runtime.spawn(async move { tasks.connection_ended(&outlet).await });
        }
    }
}

/// Sets the user's tenant in a command that names no tenant. Returns whether it named none.
fn name_tenant<'a>(command: &mut TaskCommand<'a>, own: &'a [u8]) -> bool {
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

/// Sets the user's tenant in a query that names no tenant. Otherwise the query would cover all tenants.
fn ask_of_tenant<'a>(query: &mut TaskQuery<'a>, own: &'a [u8]) {
    match query {
        TaskQuery::List { filter, .. } if filter.tenant.is_empty() => filter.tenant = own,
        TaskQuery::Queues { tenant } | TaskQuery::Tenants { tenant } if tenant.is_empty() => *tenant = own,
        _ => {}
    }
}

fn each(batches: Vec<CommandBatch>, answers: Result<Vec<Bytes>, TasksError>) -> Vec<RequestOutcome> {
    match answers {
        Ok(answers) => {
            let mut answers = answers.into_iter();
            let of = |CommandBatch { request, is_own }: CommandBatch| {
                // A command without a result gets empty bytes, so that the order of the results is kept.
                let mut next = || answers.next().unwrap_or_default();
                let own = is_own.into_iter().map(|is_own| (is_own, next()));
                let own = own.filter_map(|(is_own, answer)| is_own.then_some(answer));
                RequestOutcome(request, Ok(ResponseContent::CommandOutcome(own.collect())))
            };
            batches.into_iter().map(of).collect()
        }
        Err(error) => {
            let refused = Refused::from(&error);
            batches.into_iter().map(|batch| RequestOutcome(batch.request, Err(refused.clone()))).collect()
        }
    }
}
