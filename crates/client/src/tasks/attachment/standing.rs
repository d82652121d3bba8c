//! How a worker stands: what it has, what it has yet to say, and what it waits to hear of.
//!
//! Invariants:
//! - What was given is held until what was answered for it was heard of, or it is known to be another's.
//! - Answers that were lost with a connection are said again before anything else.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dunlin_tasks::{Answer, Attached, Command, Order, Reply, Start};
use dunlin_wire::ErrorCode;
use hashbrown::HashMap;

use super::super::asking::{LENGTH_BYTES, push, too_long};
use super::super::given::Given;
use crate::refusal::Refused;

/// Requests on their way at once; what is to be said meanwhile goes together, so that a busy worker says more with each.
const REQUESTS_MAX: usize = 4;
/// What an answer without a result takes, or a little more.
const ANSWER_BYTES: usize = 80;
/// Bytes of one request, one command apart.
const REQUEST_BYTES_MAX: usize = 1 << 20;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Standing {
    /// Who it is; 0 for nobody yet.
    pub(super) worker: u64,
    /// In which life of the cluster's tasks it is that.
    pub(super) life: u32,
    /// It is attached, by this connection.
    pub(super) is_attached: bool,
    /// Given, and nobody has taken it yet.
    pub(super) ready: VecDeque<Given>,
    /// All that was given and not heard of, by task.
    held: HashMap<u64, Held>,
    /// Tasks and tokens that are not its own any more, and that somebody works on still: each takes a slot until it ends.
    stray: HashSet<(u64, u64)>,
    unsaid: VecDeque<Saying>,
    /// By their requests.
    said: VecDeque<(u32, Vec<Saying>)>,
    pub(super) is_draining: bool,
    pub(super) is_drained: bool,
    pub(super) counts: Counts,
}

/// What became of what was given.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) given: u64,
    pub(super) answered: u64,
    pub(super) stale: u64,
    pub(super) lost: u64,
}

#[derive(Debug)]
struct Held {
    token: u64,
    stopped: Arc<AtomicBool>,
    is_answered: bool,
}

/// A command that is to be said, or was.
#[derive(Debug)]
pub(super) struct Saying {
    bytes: Vec<u8>,
    /// Of which task, under which token, it is the answer.
    answers: Option<(u64, u64)>,
    /// It is said again where the connection took it along.
    is_kept: bool,
    /// It may have been taken in before.
    is_again: bool,
}

impl Saying {
    pub(super) fn new(command: &Command<'_>, answers: Option<(u64, u64)>, is_kept: bool) -> Saying {
        let mut bytes = Vec::with_capacity(ANSWER_BYTES);
        push(&mut bytes, command);
        Saying { bytes, answers, is_kept, is_again: false }
    }
}

impl Saying {
    /// What is to be said in its place where no request can carry it.
    pub(super) fn or_failing(self) -> Saying {
        too_long(&self.bytes).and_then(|refused| self.failing(&refused)).unwrap_or(self)
    }

    /// What is to be said where it was a result that is refused for what it is: that the task has failed. The task is this worker's still, and nobody else will
    /// say anything of it.
    fn failing(&self, refused: &Refused) -> Option<Saying> {
        if is_of_another(refused.code) {
            return None;
        }
        let Ok(Command::Complete { answer, .. }) = Command::decode(self.bytes.get(LENGTH_BYTES..)?) else {
            return None;
        };
        let error = format!("its result is refused: {refused}");
        Some(Saying::new(&Command::Fail { answer, error: error.as_bytes(), retry: true }, self.answers, true))
    }

    fn again(self) -> Saying {
        Saying { is_again: true, ..self }
    }
}

impl Standing {
    /// What it has: tasks and tokens.
    pub(super) fn has(&self) -> Vec<(u64, u64)> {
        self.held.iter().map(|(&task, held)| (task, held.token)).collect()
    }

    /// Tasks that somebody works on, or could.
    pub(super) fn unanswered(&self) -> usize {
        self.held.values().filter(|held| !held.is_answered).count()
    }

    /// Whether something that it was given is not known to be over.
    pub(super) fn holds_anything(&self) -> bool {
        !self.held.is_empty()
    }

    /// Nothing is to be said, or to be heard of. A worker that is attached nowhere has nothing to say but answers: the rest is of use to the
    /// node alone that it was attached to.
    pub(super) fn is_silent(&self) -> bool {
        let mut all = self.unsaid.iter().chain(self.said.iter().flat_map(|(_, sayings)| sayings));
        !all.any(|saying| self.is_attached || saying.answers.is_some())
    }

    pub(super) fn say(&mut self, saying: Saying) {
        self.unsaid.push_back(saying);
    }

    /// Whether the answer is of use still: the task is this worker's, and was not answered yet. Where it is not, its slot is free.
    pub(super) fn answer(&mut self, task: u64, token: u64) -> bool {
        match self.held.get_mut(&task) {
            Some(held) if held.token == token => !std::mem::replace(&mut held.is_answered, true),
            _ => {
                if self.stray.remove(&(task, token)) {
                    self.take_one_more();
                }
                false
            }
        }
    }

    /// How many of so many slots are not taken by what is not its own any more.
    pub(super) fn slots(&self, slots: u32) -> u32 {
        slots.saturating_sub(u32::try_from(self.stray.len()).unwrap_or(u32::MAX))
    }

    /// What a task took that the cluster does not count as this worker's. Whoever attaches again says how many slots there are.
    fn take_one_more(&mut self) {
        if self.is_attached && !self.is_draining {
            let pull = Command::Pull { worker: self.worker, credit: 1 };
            self.say(Saying::new(&pull, None, false));
        }
    }

    /// Whether a task is this worker's still, as far as it knows.
    pub(super) fn holds(&self, task: u64, token: u64) -> bool {
        self.held.get(&task).is_some_and(|held| held.token == token)
    }

    /// The next request's bytes, if there is something to say and it may be said.
    pub(super) fn next_request(&mut self, number: u32) -> Option<Vec<u8>> {
        if !self.is_attached || self.unsaid.is_empty() || self.said.len() >= REQUESTS_MAX {
            return None;
        }
        let (mut bytes, mut sayings) = (Vec::new(), Vec::new());
        while let Some(next) = self.unsaid.front()
            && (bytes.is_empty() || bytes.len() + next.bytes.len() <= REQUEST_BYTES_MAX)
            && let Some(next) = self.unsaid.pop_front()
        {
            bytes.extend_from_slice(&next.bytes);
            sayings.push(next);
        }
        self.said.push_back((number, sayings));
        Some(bytes)
    }

    pub(super) fn may_say(&self) -> bool {
        self.is_attached && !self.unsaid.is_empty() && self.said.len() < REQUESTS_MAX
    }

    /// The connection is gone: what was said and not heard of is to be said again, first.
    pub(super) fn lost_connection(&mut self) {
        self.is_attached = false;
        let kept = |(_, sayings): (u32, Vec<Saying>)| sayings.into_iter().filter(|saying| saying.is_kept);
        let again: Vec<Saying> = self.said.drain(..).flat_map(kept).map(Saying::again).collect();
        again.into_iter().rev().for_each(|saying| self.unsaid.push_front(saying));
        self.unsaid.retain(|saying| saying.is_kept);
    }

    /// It is attached. What the cluster does not count as its own any more is to be stopped; what was answered is answered again, to
    /// hear what came of it.
    pub(super) fn attached(&mut self, attached: &Attached) {
        if self.worker != 0 && (self.worker, self.life) != (attached.worker, attached.life) {
            self.lost_lease();
        }
        (self.worker, self.life, self.is_attached) = (attached.worker, attached.life, true);
        for &(task, token) in &attached.lost {
            if self.held.get(&task).is_some_and(|held| held.token == token && !held.is_answered) {
                self.counts.lost += 1;
                self.forget(task);
            }
        }
    }

    /// It is nobody any more: its lease has ended, and all it had went to others.
    pub(super) fn lost_lease(&mut self) {
        (self.worker, self.is_attached) = (0, false);
        let all: Vec<u64> = self.held.keys().copied().collect();
        for task in all {
            self.counts.lost += 1;
            self.forget(task);
        }
        self.unsaid.clear();
        self.said.clear();
        self.is_drained |= self.is_draining;
    }

    fn forget(&mut self, task: u64) -> Option<Held> {
        let held = self.held.remove(&task)?;
        held.stopped.store(true, Ordering::Release);
        let ready = self.ready.len();
        self.ready.retain(|given| given.task() != task || given.token() != held.token);
        if self.ready.len() == ready && !held.is_answered {
            self.stray.insert((task, held.token));
        }
        Some(held)
    }

    /// Does what an order says. A task that is to be stopped and that nobody has begun is given back.
    pub(super) fn ordered(&mut self, order: Order) {
        match order {
            Order::Start(start) => self.start(start),
            Order::Stop { task, token, .. } if self.holds(task, token) => {
                let Some(held) = self.held.get(&task) else { return };
                held.stopped.store(true, Ordering::Release);
                if self.ready.iter().any(|given| given.task() == task) {
                    self.ready.retain(|given| given.task() != task);
                    self.give_back(task, token);
                }
            }
            Order::Stop { .. } => {}
            Order::Drained { .. } => (self.is_draining, self.is_drained) = (true, true),
        }
    }

    fn give_back(&mut self, task: u64, token: u64) {
        if self.answer(task, token) {
            let answer =
                Answer { worker: self.worker, task, token, run_us: 0, cpu_us: 0, memory_bytes: 0, credit: 1 };
            let command = Command::Fail { answer, error: b"stopped before it began", retry: true };
            self.say(Saying::new(&command, Some((task, token)), true));
        }
    }

    fn start(&mut self, start: Start) {
        if self.holds(start.task, start.token) {
            return;
        }
        // Another's, and now this one's again: what was begun under the older token is of no use.
        self.forget(start.task);
        let stopped = Arc::new(AtomicBool::new(false));
        let held = Held { token: start.token, stopped: Arc::clone(&stopped), is_answered: false };
        self.held.insert(start.task, held);
        self.counts.given += 1;
        self.ready.push_back(Given { start, stopped });
    }

    /// A request was answered, command by command; `false` where the cluster does not know this worker any more.
    pub(super) fn answered(&mut self, request: u32, answers: Vec<Result<Reply, Refused>>) -> bool {
        let Some(at) = self.said.iter().position(|(number, _)| *number == request) else { return true };
        let Some((_, sayings)) = self.said.remove(at) else { return true };
        let mut is_known = true;
        for (saying, answer) in sayings.into_iter().zip(answers) {
            match &answer {
                Ok(Reply::Beaten { gone }) => is_known &= !gone.contains(&self.worker),
                Err(refused) => is_known &= refused.code != ErrorCode::NoWorker,
                Ok(_) => {}
            }
            let Some((task, token)) = saying.answers else { continue };
            if self.holds(task, token) {
                if let Some(failing) = answer.as_ref().err().and_then(|refused| saying.failing(refused)) {
                    self.say(failing);
                    continue;
                }
                self.held.remove(&task);
                match answer {
                    Ok(_) => self.counts.answered += 1,
                    // It was taken in before, and the word of that was lost.
                    Err(refused) if saying.is_again && refused.code == ErrorCode::TaskOver => {
                        self.counts.answered += 1;
                    }
                    Err(_) => {
                        self.counts.stale += 1;
                        if !saying.is_again {
                            self.take_one_more();
                        }
                    }
                }
            }
        }
        is_known
    }

    /// A request was refused as a whole; it is said again.
    pub(super) fn refused(&mut self, request: u32) {
        let Some(at) = self.said.iter().position(|(number, _)| *number == request) else { return };
        let Some((_, sayings)) = self.said.remove(at) else { return };
        let again: Vec<Saying> =
            sayings.into_iter().filter(|saying| saying.is_kept).map(Saying::again).collect();
        again.into_iter().rev().for_each(|saying| self.unsaid.push_front(saying));
    }

    /// A request was refused, and will be for good: what it was to say is given up. The tasks whose results it carried have failed.
    pub(super) fn given_up(&mut self, request: u32, refused: &Refused) {
        let Some(at) = self.said.iter().position(|(number, _)| *number == request) else { return };
        let Some((_, sayings)) = self.said.remove(at) else { return };
        for saying in sayings {
            let Some((task, token)) = saying.answers else { continue };
            if !self.holds(task, token) {
                continue;
            }
            match saying.failing(refused) {
                Some(failing) => self.say(failing),
                None => {
                    self.held.remove(&task);
                    self.counts.stale += 1;
                }
            }
        }
    }
}

/// It says that the task is not this worker's any more, or is over.
fn is_of_another(code: ErrorCode) -> bool {
    use ErrorCode::{NoTask, NoWorker, StaleToken, TaskOver};
    matches!(code, NoTask | NoWorker | StaleToken | TaskOver)
}
