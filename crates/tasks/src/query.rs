//! What can be asked of a [`State`] that changes nothing, and what is answered.

use std::sync::Arc;

use crate::error::{DecodeError, Refusal};
use crate::layout::{choice, decode, encode, layout};
use crate::limits::Limits;
use crate::reply::Reply;
use crate::signals::Signals;
use crate::state::State;
use crate::task::Stage;
use crate::view::{Filter, QueueView, TaskView, TenantView, WorkerView};

/// Tasks on one page of a list, unless fewer are asked for.
const PAGE_MAX: u32 = 1_000;

choice! {
    /// One question.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Query<'a> {
        /// All of a task.
        Get { /// Which.
            task: u64 } = 1,
        /// Tasks that fit, in the order of their places, which is not that of time.
        List { /// Which fit.
            filter: ListFilter<'a>, /// From where on; 0 for the first page.
            from: u32, /// At most so many; 0 for as many as may be.
            limit: u32, /// With what they are to do and what came of them.
            whole: bool } = 2,
        /// Why a task does not run, or what it does.
        Why { /// Which.
            task: u64 } = 3,
        /// What tenants have waiting, by queue and kind.
        Queues { /// Of one tenant; empty for all.
            tenant: &'a [u8] } = 4,
        /// Tenants and what they have had.
        Tenants { /// One; empty for all.
            tenant: &'a [u8] } = 5,
        /// Workers.
        Workers = 6,
        /// What a scaler goes by.
        Signals = 7,
        /// What there is in all.
        Status = 8,
    }
}

layout! {
    /// Which tasks are listed; what is empty, or 0, says nothing.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct ListFilter<'a> {
        /// Whose.
        pub tenant: &'a [u8],
        /// Where.
        pub queue: &'a [u8],
        /// Of what kind.
        pub kind: &'a [u8],
        /// How far.
        pub stage: Option<Stage>,
        /// With a label of this key, if it is not empty, and this value.
        pub label: (&'a [u8], &'a [u8]),
    }
}

choice! {
    /// What is so.
    #[derive(Debug, Clone, PartialEq, Eq)]
    // One answer at a time, on the stack of who encodes or reads it.
    #[allow(clippy::large_enum_variant)]
    pub enum Found {
        /// A task.
        Task { /// It.
            task: TaskView, /// By the cluster's count of milliseconds.
            now_ms: u64 } = 1,
        /// Tasks.
        Tasks { /// They.
            tasks: Vec<TaskView>, /// From where the next page goes on; none where there is none.
            next: Option<u32>, /// By the cluster's count of milliseconds.
            now_ms: u64 } = 2,
        /// A sentence.
        Why { /// It.
            why: String } = 3,
        /// What waits.
        Queues { /// By tenant, queue and kind.
            queues: Vec<QueueView> } = 4,
        /// Tenants.
        Tenants { /// They.
            tenants: Vec<TenantView> } = 5,
        /// Workers.
        Workers { /// They.
            workers: Vec<WorkerView> } = 6,
        /// What a scaler goes by.
        Signals { /// It.
            signals: Signals } = 7,
        /// What there is in all.
        Status { /// Tasks that are known.
            tasks: u64, /// Of how many bytes they are, roughly.
            bytes: u64, /// By the cluster's count of milliseconds.
            now_ms: u64, /// How much may be.
            limits: Limits } = 8,
    }
}

choice! {
    /// What came of a command.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Answered {
        /// It was taken in.
        Done { /// What came of it.
            reply: Reply } = 1,
        /// It was refused.
        Refused { /// Why.
            refusal: Refusal } = 2,
    }
}

impl State {
    /// Answers a question.
    pub fn answer(&self, query: &Query<'_>) -> Result<Found, Refusal> {
        let is = |wanted: &[u8], name: &Arc<[u8]>| wanted.is_empty() || *wanted == **name;
        Ok(match *query {
            Query::Get { task } => Found::Task { task: self.get(task)?, now_ms: self.now_ms() },
            Query::List { ref filter, from, limit, whole } => self.page(filter, from, limit, whole),
            Query::Why { task } => Found::Why { why: self.why(task)? },
            Query::Queues { tenant } => {
                Found::Queues { queues: self.queues().filter(|queue| is(tenant, &queue.tenant)).collect() }
            }
            Query::Tenants { tenant } => {
                Found::Tenants { tenants: self.tenants().filter(|found| is(tenant, &found.name)).collect() }
            }
            Query::Workers => Found::Workers { workers: self.workers().collect() },
            Query::Signals => Found::Signals { signals: self.signals() },
            Query::Status => Found::Status {
                tasks: self.len(),
                bytes: self.bytes(),
                now_ms: self.now_ms(),
                limits: self.limits(),
            },
        })
    }

    fn page(&self, asked: &ListFilter<'_>, from: u32, limit: u32, whole: bool) -> Found {
        let limit = if limit == 0 { PAGE_MAX } else { limit.min(PAGE_MAX) } as usize;
        let some = |name| (!<[u8]>::is_empty(name)).then_some(name);
        let (tenant, queue, kind) = (some(asked.tenant), some(asked.queue), some(asked.kind));
        let label = some(asked.label.0).map(|_| asked.label);
        let filter = Filter { tenant, queue, kind, stage: asked.stage, label };
        let (tasks, next) = self.list_within(&filter, from, limit, |task| {
            if !whole {
                task.payload = Arc::default();
                task.outcome.iter_mut().for_each(|outcome| outcome.bytes = Arc::default());
            }
            task.payload.len() + task.outcome.as_ref().map_or(0, |outcome| outcome.bytes.len())
        });
        Found::Tasks { tasks, next, now_ms: self.now_ms() }
    }
}

impl<'a> Query<'a> {
    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(self, out);
    }

    /// Reads one; its names lie in `bytes`.
    pub fn decode(bytes: &'a [u8]) -> Result<Query<'a>, DecodeError> {
        decode(bytes)
    }
}

impl Found {
    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(self, out);
    }

    /// Reads one.
    pub fn decode(bytes: &[u8]) -> Result<Found, DecodeError> {
        decode(bytes)
    }
}

impl Answered {
    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(self, out);
    }

    /// Reads one.
    pub fn decode(bytes: &[u8]) -> Result<Answered, DecodeError> {
        decode(bytes)
    }
}

impl From<Result<Reply, Refusal>> for Answered {
    fn from(result: Result<Reply, Refusal>) -> Answered {
        match result {
            Ok(reply) => Answered::Done { reply },
            Err(refusal) => Answered::Refused { refusal },
        }
    }
}
