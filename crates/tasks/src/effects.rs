//! What follows from commands for others than who asked.

use std::sync::Arc;

use crate::error::DecodeError;
use crate::layout::{choice, decode, encode, layout};

/// What happened, in order; whoever applies commands acts on it, and clears it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Effects {
    /// For workers.
    pub orders: Vec<Order>,
    /// For topics: to be published and then confirmed with [`Command::Published`](crate::Command::Published). A task may come
    /// more than once, under the same id.
    pub publishes: Vec<Publish>,
    /// For those who watch.
    pub events: Vec<Event>,
}

impl Effects {
    /// Forgets all of it.
    pub fn clear(&mut self) {
        self.orders.clear();
        self.publishes.clear();
        self.events.clear();
    }
}

/// What a worker is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// Do this.
    Start(Start),
    /// Stop this; the answer is a [`Command::Fail`](crate::Command::Fail) or what else came of it.
    Stop {
        /// Who.
        worker: u64,
        /// Which task.
        task: u64,
        /// The token it was given with.
        token: u64,
    },
    /// All it held is done, and it may go.
    Drained {
        /// Who.
        worker: u64,
    },
}

impl Order {
    /// For whom it is.
    pub fn worker(&self) -> u64 {
        match self {
            Order::Start(start) => start.worker,
            Order::Stop { worker, .. } | Order::Drained { worker } => *worker,
        }
    }
}

layout! {
    /// A task that a worker is given.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Start {
        /// Who.
        pub worker: u64,
        /// Which task.
        pub task: u64,
        /// Every answer shows it. Grows from start to start: whoever is shown an older one refuses it.
        pub token: u64,
        /// Whose it is.
        pub tenant: Arc<[u8]>,
        /// What is to be done.
        pub kind: Arc<[u8]>,
        /// With what.
        pub payload: Arc<[u8]>,
        /// The how manieth, from 1.
        pub attempt: u32,
        /// How long it may take.
        pub timeout_ms: u32,
    }
}

/// What is published now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publish {
    /// By which task; what comes twice has the same.
    pub task: u64,
    /// Where: a [`Destination`](crate::Destination).
    pub subject: Arc<[u8]>,
    /// What.
    pub payload: Arc<[u8]>,
}

layout! {
    /// Something happened to a task.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Event {
        /// Which.
        pub task: u64,
        /// Whose, by number: [`State::tenant_name`](crate::State::tenant_name).
        pub tenant: u32,
        /// When, by the cluster's count.
        pub at_ms: u64,
        /// What.
        pub what: Happened,
    }
}

choice! {
    /// What happened to a task.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Happened {
        /// It was taken in.
        Submitted = 1,
        /// A worker was given it.
        Started { /// Who.
            worker: u64, /// Under which token.
            token: u64 } = 2,
        /// It goes on.
        Progressed { /// How far, in thousandths.
            permille: u16 } = 3,
        /// It is done.
        Completed { /// Of a processor.
            cpu_us: u64, /// How long it ran.
            run_us: u64 } = 4,
        /// An attempt came to nothing, and there will be another.
        Retrying { /// Why.
            why: Failure, /// After how long.
            delay_ms: u32 } = 5,
        /// Its worker is gone, and it waits for another.
        Lost { /// How many workers it has lost.
            times: u32 } = 6,
        /// It is a dead letter.
        Dead { /// Why.
            why: Failure } = 7,
        /// It was cancelled.
        Cancelled = 8,
        /// It was a dead letter and begins anew.
        Redriven = 9,
        /// A dead letter was let go.
        Discarded = 10,
    }
}

choice! {
    /// Why an attempt came to nothing.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Failure {
        /// The worker said so.
        Failed = 1,
        /// It took longer than it may.
        TimedOut = 2,
        /// Its deadline passed.
        Deadline = 3,
        /// Too many workers died under it.
        Poisoned = 4,
    }
}

impl Event {
    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(self, out);
    }

    /// Reads one.
    pub fn decode(bytes: &[u8]) -> Result<Event, DecodeError> {
        decode(bytes)
    }
}
