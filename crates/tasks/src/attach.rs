//! Workers that attach to a node: anew, or again after they lost it.
//!
//! A worker's lease is the cluster's, and outlives a connection. Who comes again says what it still has; what the cluster knows
//! besides got lost on the way and is given again, under the same token.

use std::collections::BTreeSet;

use crate::command::NewWorker;
use crate::effects::{Order, Start};
use crate::error::{DecodeError, Refusal};
use crate::layout::{Fields, Later, Layout, decode, encode, layout};
use crate::state::State;
use crate::task::Stage;

layout! {
    /// A worker wants to be sent what is for it.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct Attach<'a> {
        /// Who it was before; 0 where it comes anew, or has to.
        pub worker: u64,
        /// In which life of the cluster's tasks it was that.
        pub life: u32,
        /// How many tasks it takes at once, those it has included.
        pub slots: u32,
        /// How many more it is given before it can begin them, where many wait.
        pub ahead: u32,
        /// What it has, or has answered without hearing what came of it: tasks and their tokens.
        pub has: Vec<(u64, u64)>,
        /// Who it is where it is not known any more. Its credit counts for nothing: `slots` does.
        pub new: NewWorker<'a>,
    }
}

layout! {
    /// It will be sent what is for it.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct Attached {
        /// Who it is: another where it was not known any more, and all that it had went to others.
        pub worker: u64,
        /// The life of the cluster's tasks. A node without a disk begins another each time that it starts, and its numbers anew.
        pub life: u32,
        /// Of what it has: tasks that are not its own any more, with the tokens it showed.
        pub lost: Vec<(u64, u64)>,
    }
}

/// What a worker holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Held {
    /// All of it, as it was given.
    pub starts: Vec<Start>,
    /// Those of it that are to be stopped.
    pub stops: Vec<Order>,
    /// Tasks that it takes besides.
    pub credit: u32,
    /// It takes nothing new.
    pub is_draining: bool,
}

impl State {
    /// What a worker holds.
    pub fn held(&self, worker: u64) -> Result<Held, Refusal> {
        let found = &self.workers[self.find_worker(worker)?];
        let mut held = Held { credit: found.credit, is_draining: found.is_draining, ..Held::default() };
        for (at, task) in found.held.iter(&self.tasks) {
            held.starts.push(self.start_of(at));
            if task.stage == Stage::Stopping {
                held.stops.push(Order::Stop { worker, task: self.tasks.id(at), token: task.token });
            }
        }
        Ok(held)
    }

    /// When a worker is taken for dead, as it stands: each sign of life moves it.
    pub fn lease_end_ms(&self, worker: u64) -> Result<u64, Refusal> {
        Ok(self.workers[self.find_worker(worker)?].end_ms)
    }

    /// Whether a worker is known, and is for these tenants and no others; none for all.
    pub fn is_worker_for(&self, worker: u64, tenants: &[Vec<u8>]) -> bool {
        let Ok(at) = self.find_worker(worker) else { return false };
        let serves = &self.pools[self.workers[at].pool as usize].serves.tenants;
        serves.len() == tenants.iter().collect::<BTreeSet<_>>().len()
            && tenants.iter().all(|tenant| serves.contains(tenant.as_slice()))
    }

    /// Whose a task is, by name, if it is known.
    pub fn tenant_of_task(&self, task: u64) -> Option<&[u8]> {
        let at = self.find_task(task).ok()?;
        Some(&self.tenants[self.tasks[at].tenant as usize].name)
    }
}

impl<'a> Attach<'a> {
    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(self, out);
        if self.new.says_more() {
            self.new.write_more(out);
        }
    }

    /// Reads one; what it names lies in `bytes`.
    pub fn decode(bytes: &'a [u8]) -> Result<Attach<'a>, DecodeError> {
        let [version, rest @ ..] = bytes else { return Err(DecodeError::Short) };
        if *version != crate::VERSION {
            return Err(DecodeError::Version(*version));
        }
        let mut fields = Fields { rest };
        let mut read = Attach::read(&mut fields)?;
        if !fields.rest.is_empty() {
            read.new.read_more(&mut fields)?;
        }
        if fields.rest.is_empty() { Ok(read) } else { Err(DecodeError::Trailing(fields.rest.len())) }
    }
}

impl Attached {
    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(self, out);
    }

    /// Reads one.
    pub fn decode(bytes: &[u8]) -> Result<Attached, DecodeError> {
        decode(bytes)
    }
}
