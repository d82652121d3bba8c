//! What can be asked of a [`State`](crate::State) that changes it.

use crate::error::DecodeError;
use crate::layout::{Later, Whole, choice, decode, encode, layout};
use crate::limits::Limits;
use crate::quota::Quota;
use crate::rate::Rate;
use crate::retry::Retry;

choice! {
    /// One change, whole or refused. Times that people give are milliseconds since 1970, 0 for none; times that pass are the
    /// cluster's own, so that a clock that is set does not change them.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Command<'a> {
        /// Makes a tenant, or changes one; its limits hold from the next start on.
        Tenant { /// It.
            tenant: Tenant<'a> } = 1,
        /// Takes tasks in, all or none.
        Submit { /// Whose they are.
            tenant: &'a [u8], /// They.
            tasks: Vec<NewTask<'a>> } = 2,
        /// Ends a task, and those that wait for it. A running one is over when its worker says so, or its time is.
        Cancel { /// Which.
            task: u64 } = 3,
        /// Begins a dead letter anew, with all its retries.
        Retry { /// Which.
            task: u64 } = 4,
        /// Does so with the oldest dead letters of a tenant, those under which workers died among them.
        Redrive { /// Whose.
            tenant: &'a [u8], /// At most so many; 0 for as many as may be.
            count: u32 } = 5,
        /// Lets go of the oldest dead letters of a tenant, and ends what waits for them.
        Discard { /// Whose.
            tenant: &'a [u8], /// At most so many; 0 for as many as may be.
            count: u32 } = 6,
        /// A worker comes.
        Join { /// It.
            worker: NewWorker<'a> } = 7,
        /// A worker takes so many more tasks.
        Pull { /// Which.
            worker: u64, /// How many more.
            credit: u32 } = 8,
        /// These workers live.
        Beat { /// Which.
            workers: Vec<u64> } = 9,
        /// A task is done.
        Complete { /// By whom, under which token.
            answer: Answer, /// What came of it.
            result: &'a [u8] } = 10,
        /// A task has failed.
        Fail { /// By whom, under which token.
            answer: Answer, /// Why.
            error: &'a [u8], /// It may be tried again.
            retry: bool } = 11,
        /// How far a task has come.
        Progress { /// By whom.
            worker: u64, /// Which task.
            task: u64, /// The token it was given with.
            token: u64, /// In thousandths.
            permille: u16, /// In words.
            note: &'a [u8] } = 12,
        /// A task takes longer: its timeout begins anew.
        Extend { /// By whom.
            worker: u64, /// Which task.
            task: u64, /// The token it was given with.
            token: u64, /// From now on; 0 for what it was.
            timeout_ms: u32 } = 13,
        /// A worker takes nothing new, and is to go when it has done what it holds.
        Drain { /// Which.
            worker: u64 } = 14,
        /// A worker goes; what it holds goes to others.
        Leave { /// Which.
            worker: u64 } = 15,
        /// Makes a schedule, or changes one: a task for each time that the expression names, in UTC.
        Schedule { /// Whose.
            tenant: &'a [u8], /// Its name.
            name: &'a [u8], /// Five fields, or six with seconds.
            cron: &'a [u8], /// What it submits.
            task: NewTask<'a> } = 16,
        /// Ends a schedule; what it submitted stays.
        Unschedule { /// Whose.
            tenant: &'a [u8], /// Its name.
            name: &'a [u8] } = 17,
        /// These tasks have been published.
        Published { /// Which.
            tasks: Vec<u64> } = 18,
        /// So late it is in the world.
        Clock { /// Milliseconds since 1970.
            unix_ms: u64 } = 19,
        /// Other limits; what is there already stays.
        Limit { /// The limits.
            limits: Limits } = 20,
        /// Makes a tenant with a share of 1 and no limits, where there is none of this name; else changes nothing.
        Found { /// Its name.
            tenant: &'a [u8] } = 21,
        /// A worker does so many tasks at once, those that it holds among them, whatever it took before.
        Slots { /// Which.
            worker: u64, /// How many.
            slots: u32, /// And where many wait, so many more are given to it before it can begin them.
            ahead: u32 } = 22,
        /// A worker that has joined in another shard takes tasks of this one as well, under the id that it has there. One that is known lives on.
        Enlist { /// Under which id.
            id: u64, /// It.
            worker: NewWorker<'a> } = 23,
        /// Begins the oldest dead letters of a tenant anew, but for those under which workers died.
        RedriveSafe { /// Whose.
            tenant: &'a [u8], /// At most so many; 0 for as many as may be.
            count: u32 } = 24,
        /// A task may not publish its payload: it is a dead letter.
        Unpublished { /// Which.
            task: u64, /// Why.
            error: &'a [u8] } = 25,
    }
}

layout! {
    /// A tenant as it is to be.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Tenant<'a> {
        /// Its name.
        pub name: &'a [u8],
        /// Its share, against that of others; 1 at least.
        pub weight: u32,
        /// Tasks that wait, at most; 0 for no limit.
        pub queued_max: u64,
        /// Retries for each hundred first starts, beyond a few; 0 for no limit.
        pub retry_percent: u32,
        /// Of tasks running at once.
        pub concurrency: Quota,
        /// Of thousandths of a processor that they need.
        pub cpu_milli: Quota,
        /// Of bytes of memory that they need.
        pub memory_bytes: Quota,
        /// Limits by a key of its tasks, several at once.
        pub limits: Vec<KeyLimit<'a>>,
    }
}

impl<'a> Tenant<'a> {
    /// One of weight 1 without limits.
    pub fn new(name: &'a [u8]) -> Tenant<'a> {
        Tenant {
            name,
            weight: 1,
            queued_max: 0,
            retry_percent: 0,
            concurrency: Quota::default(),
            cpu_milli: Quota::default(),
            memory_bytes: Quota::default(),
            limits: Vec::new(),
        }
    }
}

layout! {
    /// Of a tenant's tasks that have the same value under this key, so many run at once, and so many start in a time.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct KeyLimit<'a> {
        /// A label's key, or `tenant`, `queue` or `kind`.
        pub key: &'a [u8],
        /// How many run at once; 0 for none, `u32::MAX` for any number.
        pub running_max: u32,
        /// How often they start; every start counts, another attempt's too.
        pub rate: Option<Rate>,
    }
}

impl<'a> KeyLimit<'a> {
    /// So many at once.
    pub fn running(key: &'a [u8], running_max: u32) -> KeyLimit<'a> {
        KeyLimit { key, running_max, rate: None }
    }

    /// So often.
    pub fn starting(key: &'a [u8], rate: Rate) -> KeyLimit<'a> {
        KeyLimit { key, running_max: u32::MAX, rate: Some(rate) }
    }
}

layout! {
    /// A task as it is submitted.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct NewTask<'a> {
        /// In which queue it waits.
        pub queue: &'a [u8],
        /// What is to be done; `publish` publishes the payload, without a worker.
        pub kind: &'a [u8],
        /// With what.
        pub payload: &'a [u8],
        /// 0 to 9, the highest.
        pub priority: u8,
        /// It does not start before.
        pub not_before_ms: u64,
        /// It is a dead letter if it is not done by then.
        pub deadline_ms: u64,
        /// How long one attempt may take; 0 for `timeout_ms_default`.
        pub timeout_ms: u32,
        /// What is done when it fails; three retries if nothing is said.
        pub retry: Option<Retry>,
        /// A second task with the same key is the first; with another queue, kind, payload or subject it is refused. Empty for none.
        pub idempotency_key: &'a [u8],
        /// What has to be done before.
        pub after: Vec<After>,
        /// What people know it by, and what limits count it by.
        pub labels: Vec<Label<'a>>,
        /// Thousandths of a processor that it needs.
        pub cpu_milli: u32,
        /// Bytes of memory that it needs.
        pub memory_bytes: u64,
        /// Where a task that publishes does so: a [`Destination`](crate::Destination).
        pub subject: &'a [u8],
    } later {
        /// Labels that a worker has to have to be given it, all of them.
        pub needs: Vec<Label<'a>>,
    }
}

impl<'a> NewTask<'a> {
    /// One of the usual priority, 5, in the queue `default`.
    pub fn new(kind: &'a [u8], payload: &'a [u8]) -> NewTask<'a> {
        NewTask { queue: b"default", kind, payload, priority: 5, ..NewTask::default() }
    }
}

choice! {
    /// A task that has to be done before another.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum After {
        /// One that is known already.
        Task { /// Which.
            task: u64 } = 1,
        /// One of the same command.
        Batch { /// The how manieth, from 0.
            index: u32 } = 2,
    }
}

layout! {
    /// What a task is known by.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub struct Label<'a> {
        /// As what.
        pub key: &'a [u8],
        /// As which.
        pub value: &'a [u8],
    }
}

layout! {
    /// A worker as it comes.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct NewWorker<'a> {
        /// For people.
        pub name: &'a [u8],
        /// What it can do.
        pub kinds: Vec<&'a [u8]>,
        /// The queues it serves; none for all.
        pub queues: Vec<&'a [u8]>,
        /// Thousandths of a processor that it has; 0 where it does not say.
        pub cpu_milli: u32,
        /// Bytes of memory that it has; 0 where it does not say.
        pub memory_bytes: u64,
        /// It is dead when it gave no sign of life for so long.
        pub ttl_ms: u64,
        /// Tasks that it takes at once.
        pub credit: u32,
    } later {
        /// What it has that tasks may need.
        pub labels: Vec<Label<'a>>,
        /// The tenants whose tasks it takes; none for all.
        pub tenants: Vec<&'a [u8]>,
    }
}

choice! {
    /// Commands that say what was added later have numbers of their own: those of the others, and 128.
    #[derive(Debug)]
    pub enum Longer<'a> {
        Submit { tenant: &'a [u8], tasks: Vec<Whole<NewTask<'a>>> } = 130,
        Join { worker: Whole<NewWorker<'a>> } = 135,
        Schedule { tenant: &'a [u8], name: &'a [u8], cron: &'a [u8], task: Whole<NewTask<'a>> } = 144,
        Enlist { id: u64, worker: Whole<NewWorker<'a>> } = 151,
    }
}

impl<'a> Longer<'a> {
    /// Of a command that says any of it.
    fn of(command: &Command<'a>) -> Option<Longer<'a>> {
        match command {
            Command::Submit { tenant, tasks } if tasks.iter().any(Later::says_more) => {
                Some(Longer::Submit { tenant, tasks: tasks.iter().cloned().map(Whole).collect() })
            }
            Command::Join { worker } if worker.says_more() => {
                Some(Longer::Join { worker: Whole(worker.clone()) })
            }
            Command::Enlist { id, worker } if worker.says_more() => {
                Some(Longer::Enlist { id: *id, worker: Whole(worker.clone()) })
            }
            Command::Schedule { tenant, name, cron, task } if task.says_more() => {
                Some(Longer::Schedule { tenant, name, cron, task: Whole(task.clone()) })
            }
            _ => None,
        }
    }

    fn command(self) -> Command<'a> {
        match self {
            Longer::Submit { tenant, tasks } => {
                Command::Submit { tenant, tasks: tasks.into_iter().map(|Whole(task)| task).collect() }
            }
            Longer::Join { worker: Whole(worker) } => Command::Join { worker },
            Longer::Enlist { id, worker: Whole(worker) } => Command::Enlist { id, worker },
            Longer::Schedule { tenant, name, cron, task: Whole(task) } => {
                Command::Schedule { tenant, name, cron, task }
            }
        }
    }
}

layout! {
    /// By whom a task was done, and what it took.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Answer {
        /// The worker.
        pub worker: u64,
        /// The task.
        pub task: u64,
        /// The token it was given with.
        pub token: u64,
        /// How long it ran, in µs.
        pub run_us: u64,
        /// Of a processor, in µs.
        pub cpu_us: u64,
        /// The most it took.
        pub memory_bytes: u64,
        /// The worker takes so many more tasks.
        pub credit: u32,
    }
}

impl<'a> Command<'a> {
    /// The tenant that has to be there for it.
    pub fn tenant(&self) -> Option<&'a [u8]> {
        match *self {
            Command::Submit { tenant, .. }
            | Command::Redrive { tenant, .. }
            | Command::RedriveSafe { tenant, .. }
            | Command::Discard { tenant, .. }
            | Command::Schedule { tenant, .. }
            | Command::Unschedule { tenant, .. } => Some(tenant),
            _ => None,
        }
    }

    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match Longer::of(self) {
            Some(longer) => encode(&longer, out),
            None => encode(self, out),
        }
    }

    /// Reads one; what it names lies in `bytes`.
    pub fn decode(bytes: &'a [u8]) -> Result<Command<'a>, DecodeError> {
        match bytes.get(1) {
            Some(130 | 135 | 144 | 151) => decode(bytes).map(Longer::command),
            _ => decode(bytes),
        }
    }

    /// The workers that it is said by, or that it is about.
    pub fn workers(&self) -> &[u64] {
        match self {
            Command::Beat { workers } => workers,
            Command::Complete { answer: Answer { worker, .. }, .. }
            | Command::Fail { answer: Answer { worker, .. }, .. }
            | Command::Pull { worker, .. }
            | Command::Progress { worker, .. }
            | Command::Extend { worker, .. }
            | Command::Drain { worker }
            | Command::Leave { worker }
            | Command::Slots { worker, .. } => std::slice::from_ref(worker),
            _ => &[],
        }
    }

    /// Whether it makes the state larger.
    pub fn grows(&self) -> bool {
        matches!(
            self,
            Command::Tenant { .. }
                | Command::Found { .. }
                | Command::Submit { .. }
                | Command::Schedule { .. }
                | Command::Join { .. }
                | Command::Enlist { .. }
        )
    }
}
