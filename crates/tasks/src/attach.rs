//! Attaches workers to a node, for the first time or after a lost connection.
//!
//! The cluster keeps a worker's lease even when the worker's connection ends. A worker that attaches again lists the
//! tasks that it still has. If the cluster has assigned further tasks to this worker, the orders for them were lost.
//! These orders are sent again, with unchanged tokens.

use std::collections::BTreeSet;

use crate::command::NewWorker;
use crate::effects::{TaskStart, WorkerOrder};
use crate::error::{TaskDecodeError, TaskRefusal};
use crate::layout::{Fields, Later, Layout, decode, encode, layout};
use crate::state::SchedulerState;
use crate::task::TaskStage;

layout! {
    /// A worker's encoded request to attach to a node: its id, its slots and the tasks that it still holds.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct AttachRequest<'a> {
        /// Id of the worker from an earlier connection; 0 for a new worker.
        pub worker: u64,
        /// The epoch of the cluster's tasks in which the id was assigned.
        pub epoch: u32,
        /// Number of tasks that the worker can run at the same time, including the tasks that it already holds.
        pub slots: u32,
        /// Maximum number of tasks that the worker may hold beyond its slots.
        pub ahead: u32,
        /// Id and token of each task that the worker holds, or has reported without receiving a reply.
        pub held: Vec<(u64, u64)>,
        /// Description of the worker, used if the id is not known. The credit in the description is ignored; `slots` is
        /// used instead.
        pub new: NewWorker<'a>,
    }
}

layout! {
    /// The response to a worker that attaches: the worker's id, and the tasks whose results the worker must not report.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct AttachResponse {
        /// Id of the worker. If this id is new, the scheduler did not know the worker's previous id, and other workers
        /// have received the worker's tasks.
        pub worker: u64,
        /// The epoch of the cluster's tasks. On a node without a disk, each start begins a new epoch with new ids.
        pub epoch: u32,
        /// Id and token of each task that the worker has but may no longer report.
        pub lost: Vec<(u64, u64)>,
    }
}

/// The tasks that the scheduler has assigned to a worker. Also the orders to stop some of these tasks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HeldTasks {
    /// The start of each task of the worker.
    pub starts: Vec<TaskStart>,
    /// Orders to stop some of these tasks.
    pub stops: Vec<WorkerOrder>,
    /// Number of further tasks that the worker can take.
    pub credit: u32,
    /// Whether the worker takes no new tasks.
    pub is_draining: bool,
}

impl HeldTasks {
    /// Whether the worker takes no new tasks and has none.
    pub fn is_drained(&self) -> bool {
        self.is_draining && self.starts.is_empty()
    }
}

impl SchedulerState {
    /// Returns a worker's tasks.
    pub fn held(&self, worker: u64) -> Result<HeldTasks, TaskRefusal> {
        let found = &self.workers[self.find_worker(worker)?];
        let mut held =
            HeldTasks { credit: found.credit, is_draining: found.is_draining, ..HeldTasks::default() };
        for (at, task) in found.held.iter(&self.tasks) {
            held.starts.push(self.task_start(at));
            if task.stage == TaskStage::Stopping {
                held.stops.push(WorkerOrder::Stop { worker, task: self.tasks.id(at), token: task.token });
            }
        }
        Ok(held)
    }

    /// The time at which a worker begins to count as dead, ms. Each renewal of the worker's lease postpones this time.
    pub fn lease_end_ms(&self, worker: u64) -> Result<u64, TaskRefusal> {
        Ok(self.workers[self.find_worker(worker)?].end_ms)
    }

    /// Whether a worker is known and serves exactly the tenants in `tenants`. An empty list means all tenants.
    pub fn is_worker_for(&self, worker: u64, tenants: &[Vec<u8>]) -> bool {
        let Ok(at) = self.find_worker(worker) else { return false };
        let serves = &self.pools[self.workers[at].pool as usize].serves.tenants;
        serves.len() == tenants.iter().collect::<BTreeSet<_>>().len()
            && tenants.iter().all(|tenant| serves.contains(tenant.as_slice()))
    }

    /// Name of a task's tenant, if the task is known.
    pub fn tenant_of_task(&self, task: u64) -> Option<&[u8]> {
        let at = self.find_task(task).ok()?;
        Some(&self.tenants[self.tasks[at].tenant as usize].name)
    }
}

impl<'a> AttachRequest<'a> {
    /// Appends the encoded request.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(self, out);
        if self.new.has_later_fields() {
            self.new.write_more(out);
        }
    }

    /// Decodes a request, borrowing from `bytes`.
    pub fn decode(bytes: &'a [u8]) -> Result<AttachRequest<'a>, TaskDecodeError> {
        let [version, rest @ ..] = bytes else { return Err(TaskDecodeError::Short) };
        if *version != crate::VERSION {
            return Err(TaskDecodeError::Version(*version));
        }
        let mut fields = Fields { rest };
        let mut read = AttachRequest::read(&mut fields)?;
        if !fields.rest.is_empty() {
            read.new.read_more(&mut fields)?;
        }
        if fields.rest.is_empty() { Ok(read) } else { Err(TaskDecodeError::Trailing(fields.rest.len())) }
    }
}

impl AttachResponse {
    /// Appends the encoded response.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(self, out);
    }

    /// Decodes a response.
    pub fn decode(bytes: &[u8]) -> Result<AttachResponse, TaskDecodeError> {
        decode(bytes)
    }
}
