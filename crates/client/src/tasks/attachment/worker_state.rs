//! The tasks of a worker, its queued commands, and its requests without a response.
//!
//! Invariants:
//! - A worker holds a task from its assignment until the cluster has responded to the task's result, or until the task
//!   is known to belong to another worker.
//! - Results that were lost with a connection are sent again before anything else.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dunlin_tasks::{AttachResponse, AttemptReport, CommandReply, TaskCommand, TaskStart, WorkerOrder};
use dunlin_wire::ErrorCode;
use hashbrown::HashMap;

use super::super::assigned::AssignedTask;
use super::super::pending_commands::{LENGTH_BYTES, push_command, refuse_too_long};
use crate::refusal::RefusedError;

/// The maximum number of requests without a response. While there are so many, commands are queued and later sent
/// together, so that a busy worker sends fewer and larger requests.
const REQUESTS_MAX: usize = 4;
/// A rounded-up size, in bytes, of a command that reports a result, without the result's content.
const COMMAND_BYTES: usize = 80;
/// The maximum size of a request, in bytes. A request with only one command may be larger.
const REQUEST_BYTES_MAX: usize = 1 << 20;

#[derive(Debug, Default)]
pub(super) struct WorkerState {
    /// The worker's number; 0 until the cluster has assigned one.
    pub(super) worker: u64,
    /// The epoch of the cluster's worker numbers to which `worker` belongs.
    pub(super) life: u32,
    /// Whether the worker is attached through the present connection.
    pub(super) is_attached: bool,
    /// The assigned tasks that no thread has taken yet.
    pub(super) ready: VecDeque<AssignedTask>,
    /// The tasks that the worker holds, by number: assigned tasks whose results have no response of the cluster yet.
    held: HashMap<u64, HeldTask>,
    /// The numbers and tokens of tasks that belong to other workers now, while a thread of this worker still runs them.
    /// Each of these tasks occupies a slot until the task's function ends.
    lost_but_running: HashSet<(u64, u64)>,
    /// The commands that were not sent yet, in order.
    unsent: VecDeque<QueuedCommand>,
    /// The requests that were sent and have no response yet. Each entry is the number of a request and its commands.
    unanswered_requests: VecDeque<(u32, Vec<QueuedCommand>)>,
    pub(super) is_draining: bool,
    pub(super) is_drained: bool,
    pub(super) counts: TaskCounters,
}

/// Counts of a worker's tasks.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TaskCounters {
    pub(super) assigned: u64,
    pub(super) answered: u64,
    pub(super) stale: u64,
    pub(super) lost: u64,
}

#[derive(Debug)]
struct HeldTask {
    token: u64,
    stopped: Arc<AtomicBool>,
    is_answered: bool,
}

/// A command of a worker that waits to be sent, or that was sent and has no response yet.
#[derive(Debug)]
pub(super) struct QueuedCommand {
    bytes: Vec<u8>,
    /// If the command reports the result of a task: the number and the token of this task.
    result_of: Option<(u64, u64)>,
    /// Whether to send the command again after a lost connection.
    is_kept: bool,
    /// Whether the command was sent before. The cluster may have carried it out then.
    is_repeated: bool,
}

impl QueuedCommand {
    pub(super) fn new(
        command: &TaskCommand<'_>,
        result_of: Option<(u64, u64)>,
        is_kept: bool,
    ) -> QueuedCommand {
        let mut bytes = Vec::with_capacity(COMMAND_BYTES);
        push_command(&mut bytes, command);
        QueuedCommand { bytes, result_of, is_kept, is_repeated: false }
    }
}

impl QueuedCommand {
    /// Returns the command. If the command reports a result that is too large for a request, returns a command that
    /// reports a failure of the task instead.
    pub(super) fn or_failure(self) -> QueuedCommand {
        refuse_too_long(&self.bytes).and_then(|refused| self.failure_for(&refused)).unwrap_or(self)
    }

    /// Returns the failure to report after the cluster has refused a result because of its content: the task still
    /// belongs to this worker, so no other worker can finish it. Returns `None` if the task is lost, or if this command
    /// does not complete a task.
    fn failure_for(&self, refused: &RefusedError) -> Option<QueuedCommand> {
        if is_task_lost(refused.code) {
            return None;
        }
        let Ok(TaskCommand::Complete { report: answer, .. }) =
            TaskCommand::decode(self.bytes.get(LENGTH_BYTES..)?)
        else {
            return None;
        };
        let error = format!("the result was refused: {refused}");
        // The result of another attempt would be too large as well. The code `KeyTooLarge` comes from the cluster's
        // log.
        let retry = !matches!(refused.code, ErrorCode::TaskTooLarge | ErrorCode::KeyTooLarge);
        Some(QueuedCommand::new(
            &TaskCommand::Fail { report: answer, error: error.as_bytes(), retry },
            self.result_of,
            true,
        ))
    }

    fn is_pull(&self) -> bool {
        let command = self.bytes.get(LENGTH_BYTES..).map(TaskCommand::decode);
        matches!(command, Some(Ok(TaskCommand::Pull { .. })))
    }

    fn repeated(self) -> QueuedCommand {
        QueuedCommand { is_repeated: true, ..self }
    }
}

impl WorkerState {
    /// Returns the numbers and tokens of the held tasks.
    pub(super) fn held_tokens(&self) -> Vec<(u64, u64)> {
        self.held.iter().map(|(&task, held)| (task, held.token)).collect()
    }

    /// The number of held tasks for which the worker has no result yet.
    pub(super) fn unanswered(&self) -> usize {
        self.held.values().filter(|held| !held.is_answered).count()
    }

    /// Whether the worker holds any task, including tasks whose results have no response of the cluster yet.
    pub(super) fn holds_tasks(&self) -> bool {
        !self.held.is_empty()
    }

    /// Whether all commands were sent and have a response. For a detached worker, only results count, because other
    /// commands are only for the node to which it was attached.
    pub(super) fn is_flushed(&self) -> bool {
        let mut all = self
            .unsent
            .iter()
            .chain(self.unanswered_requests.iter().flat_map(|(_, queued_commands)| queued_commands));
        !all.any(|queued| self.is_attached || queued.result_of.is_some())
    }

    pub(super) fn enqueue(&mut self, queued: QueuedCommand) {
        self.unsent.push_back(queued);
    }

    /// Notes that a task has a result. Returns whether the result has to be reported: the worker must still hold the
    /// task, without another result. If the task has gone to another worker, its slot becomes free.
    pub(super) fn record_result(&mut self, task: u64, token: u64) -> bool {
        match self.held.get_mut(&task) {
            Some(held) if held.token == token => !std::mem::replace(&mut held.is_answered, true),
            _ => {
                if self.lost_but_running.remove(&(task, token)) {
                    self.request_one_more();
                }
                false
            }
        }
    }

    /// How many of the `slots` slots can run the worker's own tasks. In the others, threads still run tasks that belong
    /// to other workers now.
    pub(super) fn slots(&self, slots: u32) -> u32 {
        slots.saturating_sub(u32::try_from(self.lost_but_running.len()).unwrap_or(u32::MAX))
    }

    /// Requests one more task, because the slot of a task that had gone to another worker is free. A worker that is not
    /// attached states its free slots when it attaches, so it requests nothing.
    fn request_one_more(&mut self) {
        if self.is_attached && !self.is_draining {
            let pull = TaskCommand::Pull { worker: self.worker, credit: 1 };
            self.enqueue(QueuedCommand::new(&pull, None, false));
        }
    }

    /// Whether the worker holds the task with this token, as far as it knows.
    pub(super) fn holds(&self, task: u64, token: u64) -> bool {
        self.held.get(&task).is_some_and(|held| held.token == token)
    }

    /// Returns the bytes of the next request, which will have the number `number`. Returns `None` if no command is
    /// queued, or if no request may be sent now.
    pub(super) fn next_request(&mut self, number: u32) -> Option<Vec<u8>> {
        if !self.is_attached || self.unsent.is_empty() || self.unanswered_requests.len() >= REQUESTS_MAX {
            return None;
        }
        let (mut bytes, mut queued_commands) = (Vec::new(), Vec::new());
        while let Some(next) = self.unsent.front()
            && (bytes.is_empty() || bytes.len() + next.bytes.len() <= REQUEST_BYTES_MAX)
            && let Some(next) = self.unsent.pop_front()
        {
            bytes.extend_from_slice(&next.bytes);
            queued_commands.push(next);
        }
        self.unanswered_requests.push_back((number, queued_commands));
        Some(bytes)
    }

    pub(super) fn can_send(&self) -> bool {
        self.is_attached && !self.unsent.is_empty() && self.unanswered_requests.len() < REQUESTS_MAX
    }

    /// Handles a lost connection. Commands without a response that must not be lost are queued again, before all
    /// others. Commands that may be lost are dropped.
    pub(super) fn handle_disconnect(&mut self) {
        self.is_attached = false;
        let kept_commands = |(_, queued_commands): (u32, Vec<QueuedCommand>)| {
            queued_commands.into_iter().filter(|queued| queued.is_kept)
        };
        let repeated: Vec<QueuedCommand> =
            self.unanswered_requests.drain(..).flat_map(kept_commands).map(QueuedCommand::repeated).collect();
        repeated.into_iter().rev().for_each(|queued| self.unsent.push_front(queued));
        self.unsent.retain(|queued| queued.is_kept);
    }

    /// Handles the cluster's response to the attach request, after which commands can be sent again. Stops the tasks
    /// that have gone to other workers.
    pub(super) fn handle_attached(&mut self, attached: &AttachResponse) {
        if self.worker != 0 && (self.worker, self.life) != (attached.worker, attached.epoch) {
            self.handle_lost_lease();
        }
        (self.worker, self.life, self.is_attached) = (attached.worker, attached.epoch, true);
        for &(task, token) in &attached.lost {
            if self.held.get(&task).is_some_and(|held| held.token == token && !held.is_answered) {
                self.counts.lost += 1;
                self.release_task(task);
            }
        }
    }

    /// Handles the end of the lease, after which all tasks belong to other workers.
    pub(super) fn handle_lost_lease(&mut self) {
        (self.worker, self.is_attached) = (0, false);
        let all: Vec<u64> = self.held.keys().copied().collect();
        for task in all {
            self.counts.lost += 1;
            self.release_task(task);
        }
        self.unsent.clear();
        self.unanswered_requests.clear();
        self.is_drained |= self.is_draining;
    }

    fn release_task(&mut self, task: u64) -> Option<HeldTask> {
        let held = self.held.remove(&task)?;
        held.stopped.store(true, Ordering::Release);
        let ready = self.ready.len();
        self.ready.retain(|assigned| assigned.task() != task || assigned.token() != held.token);
        if self.ready.len() == ready && !held.is_answered {
            self.lost_but_running.insert((task, held.token));
        }
        Some(held)
    }

    /// Carries out an order of the node. If the order stops a task that no thread has taken yet, the worker returns
    /// this task at once.
    pub(super) fn handle_order(&mut self, order: WorkerOrder) {
        match order {
            WorkerOrder::Start(start) => self.accept_task(start),
            WorkerOrder::Stop { task, token, .. } if self.holds(task, token) => {
                let Some(held) = self.held.get(&task) else { return };
                held.stopped.store(true, Ordering::Release);
                if self.ready.iter().any(|assigned| assigned.task() == task) {
                    self.ready.retain(|assigned| assigned.task() != task);
                    self.return_task(task, token);
                }
            }
            WorkerOrder::Stop { .. } => {}
            WorkerOrder::Drained { .. } => (self.is_draining, self.is_drained) = (true, true),
        }
    }

    fn return_task(&mut self, task: u64, token: u64) {
        if self.record_result(task, token) {
            let answer = AttemptReport {
                worker: self.worker,
                task,
                token,
                run_us: 0,
                cpu_us: 0,
                memory_bytes: 0,
                credit: 1,
            };
            let command =
                TaskCommand::Fail { report: answer, error: b"stopped before it began", retry: true };
            self.enqueue(QueuedCommand::new(&command, Some((task, token)), true));
        }
    }

    fn accept_task(&mut self, start: TaskStart) {
        if self.holds(start.task, start.token) {
            return;
        }
        // The cluster may have assigned the task to this worker before, and would refuse a result with the old token.
        self.release_task(start.task);
        let stopped = Arc::new(AtomicBool::new(false));
        let held = HeldTask { token: start.token, stopped: Arc::clone(&stopped), is_answered: false };
        self.held.insert(start.task, held);
        self.counts.assigned += 1;
        self.ready.push_back(AssignedTask { start, stopped });
    }

    /// Handles the response to a request, which contains one response for each command of the request. Returns `false`
    /// if the cluster does not know this worker.
    pub(super) fn handle_responses(
        &mut self,
        request: u32,
        responses: Vec<Result<CommandReply, RefusedError>>,
    ) -> bool {
        let Some(at) = self.unanswered_requests.iter().position(|(number, _)| *number == request) else {
            return true;
        };
        let Some((_, queued_commands)) = self.unanswered_requests.remove(at) else { return true };
        let mut is_known = true;
        for (queued, response) in queued_commands.into_iter().zip(responses) {
            match &response {
                Ok(CommandReply::Renewed { gone }) => is_known &= !gone.contains(&self.worker),
                Err(refused) => is_known &= refused.code != ErrorCode::NoWorker,
                Ok(_) => {}
            }
            let Some((task, token)) = queued.result_of else { continue };
            if self.holds(task, token) {
                if let Some(failure) = response.as_ref().err().and_then(|refused| queued.failure_for(refused))
                {
                    self.enqueue(failure);
                    continue;
                }
                self.held.remove(&task);
                match response {
                    Ok(_) => self.counts.answered += 1,
                    // An earlier attempt to send the result has succeeded, but its response was lost.
                    Err(refused) if queued.is_repeated && refused.code == ErrorCode::TaskOver => {
                        self.counts.answered += 1;
                    }
                    Err(_) => {
                        self.counts.stale += 1;
                        if !queued.is_repeated {
                            self.request_one_more();
                        }
                    }
                }
            }
        }
        is_known
    }

    /// Handles the temporary refusal of a request: queues again those of its commands that must not be lost. A `Pull`
    /// command is queued again only if `had_no_effect` is set, because a second `Pull` would request a second task.
    pub(super) fn requeue_request(&mut self, request: u32, had_no_effect: bool) {
        let Some(at) = self.unanswered_requests.iter().position(|(number, _)| *number == request) else {
            return;
        };
        let Some((_, queued_commands)) = self.unanswered_requests.remove(at) else { return };
        let repeated: Vec<QueuedCommand> = queued_commands
            .into_iter()
            .filter(|queued| queued.is_kept || had_no_effect && queued.is_pull())
            .map(QueuedCommand::repeated)
            .collect();
        repeated.into_iter().rev().for_each(|queued| self.unsent.push_front(queued));
    }

    /// Handles the final refusal of a request, whose commands are not sent again. If one of them reports the result of
    /// a task, the worker reports a failure of the task instead.
    pub(super) fn discard_request(&mut self, request: u32, refused: &RefusedError) {
        let Some(at) = self.unanswered_requests.iter().position(|(number, _)| *number == request) else {
            return;
        };
        let Some((_, queued_commands)) = self.unanswered_requests.remove(at) else { return };
        for queued in queued_commands {
            let Some((task, token)) = queued.result_of else { continue };
            if !self.holds(task, token) {
                continue;
            }
            match queued.failure_for(refused) {
                Some(failure) => self.enqueue(failure),
                None => {
                    self.held.remove(&task);
                    self.counts.stale += 1;
                }
            }
        }
    }
}

/// Whether the code means that the task belongs to another worker now, or has ended.
fn is_task_lost(code: ErrorCode) -> bool {
    use ErrorCode::{NoTask, NoWorker, StaleToken, TaskOver};
    matches!(code, NoTask | NoWorker | StaleToken | TaskOver)
}
