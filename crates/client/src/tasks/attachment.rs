//! A worker: attached to the cluster through whatever connection there is, under one lease, for as long as it likes.
//!
//! Tasks are taken with [`Attachment::next`], by any number of threads, and answered with [`Attachment::complete`] or
//! [`Attachment::fail`], which do not wait: what came of answers is counted ([`Attachment::load`]). One of the threads that wait for a task
//! reads what comes for all, so that a task wakes nobody but who does it; while none waits, a thread of the worker's own does, and keeps the lease alive.
//!
//! Invariants:
//! - A task whose answer was not heard of is answered again on the next connection, under the same token: it counts once.
//! - A result that is refused for what it is, and not for whose the task is by now, is a failure that says so: no task is left without an answer.
//! - What is not this worker's any more says so ([`Given::is_stopped`]), as soon as it is known.

mod driving;
mod standing;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dunlin_tasks::{Answer, Command};

use super::Tasks;
use super::error::TasksError;
use super::given::{Given, Used};
use super::line::Line;
use crate::asked::deadline;
use crate::client::Shared;
use crate::follow::lock;
use crate::interrupt::interruptible;
use crate::started::NAME_VARIABLE;
use driving::Driver;
use standing::{Saying, Standing};

/// How a worker comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerOptions {
    /// For people. In a process that a node started as a worker the node's name for it is taken instead.
    pub name: String,
    /// What it can do.
    pub kinds: Vec<String>,
    /// The queues it serves; none for all.
    pub queues: Vec<String>,
    /// How many tasks it takes at once.
    pub slots: u32,
    /// Thousandths of a processor that it has; 0 where it does not say.
    pub cpu_milli: u32,
    /// Bytes of memory that it has; 0 where it does not say.
    pub memory_bytes: u64,
    /// It is dead, and what it has goes to others, when it gave no sign of life for so long.
    pub ttl: Duration,
    /// What it has that tasks may need, by key and value.
    pub labels: Vec<(String, String)>,
    /// The tenants whose tasks it takes; none for all.
    pub tenants: Vec<String>,
}

impl Default for WorkerOptions {
    fn default() -> WorkerOptions {
        WorkerOptions {
            name: String::new(),
            kinds: Vec::new(),
            queues: Vec::new(),
            slots: 1,
            cpu_milli: 0,
            memory_bytes: 0,
            ttl: Duration::from_secs(10),
            labels: Vec::new(),
            tenants: Vec::new(),
        }
    }
}

/// What a worker has, and has had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AttachmentLoad {
    /// Who it is now; 0 while it is nobody.
    pub worker: u64,
    /// Tasks that wait for somebody to take them.
    pub ready: u64,
    /// Tasks that are not answered.
    pub unanswered: u64,
    /// Tasks that it was given since it came.
    pub given: u64,
    /// Answers that were taken in.
    pub answered: u64,
    /// Answers that came too late.
    pub stale: u64,
    /// Tasks that went to others before they were answered.
    pub lost: u64,
}

/// See the module. Dropped, the worker leaves, and what it has goes to others.
#[derive(Debug)]
pub struct Attachment {
    core: Arc<Core>,
    thread: Option<JoinHandle<()>>,
}

/// What the worker's thread and those who use it have in common.
#[derive(Debug)]
pub(super) struct Core {
    shared: Arc<Shared>,
    line: Arc<Line>,
    options: WorkerOptions,
    /// Tasks that it may have at hand.
    ahead: u32,
    phase: Mutex<Phase>,
    /// Held by who reads what comes, and keeps the lease alive.
    driver: Mutex<Driver>,
    /// There is a task for somebody, or somebody has to drive.
    ready: Condvar,
    /// The worker's own thread has something to look at.
    own: Condvar,
    /// Something else has happened.
    changed: Condvar,
    /// Taken by who says what is to be said.
    saying: Mutex<()>,
    ended: AtomicBool,
}

#[derive(Debug, Default)]
struct Phase {
    standing: Standing,
    error: Option<TasksError>,
    /// Who waits for a task, but for the one who drives.
    idle: usize,
    /// One who waits for a task drives.
    is_driven: bool,
    /// When the last of them stopped to, with a task to do.
    left_at: Option<Instant>,
    /// The worker's own thread does not look for a while.
    own_rests: bool,
    /// Who waits for something else.
    watching: usize,
    /// When what is left to be said is given up.
    until: Option<Instant>,
    /// Since when it is attached nowhere; `None` while it is.
    away: Option<Instant>,
}

impl Phase {
    /// Notes an answer that is to be said, where it is of use.
    fn answer<'a>(&mut self, given: &Given, used: &Used, command: impl FnOnce(Answer) -> Command<'a>) {
        let (task, token, standing) = (given.task(), given.token(), &mut self.standing);
        if standing.answer(task, token) {
            let answer = Answer {
                worker: standing.worker,
                task,
                token,
                run_us: Used::micros(used.run),
                cpu_us: Used::micros(used.cpu),
                memory_bytes: used.memory_bytes,
                credit: 1,
            };
            let saying = Saying::new(&command(answer), Some((task, token)), true);
            standing.say(saying.or_failing());
        }
    }

    /// It takes nothing more, and nobody is there to say that it may go: it goes when it holds nothing. Answers that nobody has heard are of use until its
    /// lease ends.
    fn may_go_unheard(&self, ttl: Duration, now: Instant) -> bool {
        let patience = if self.standing.holds_anything() { ttl.max(FAREWELL) } else { FAREWELL };
        self.standing.is_draining
            && self.standing.unanswered() == 0
            && self.away.is_some_and(|since| now.saturating_duration_since(since) >= patience)
    }

    /// It was asked to end, and has nothing left to say that is worth waiting for.
    fn is_given_up(&self) -> bool {
        self.standing.is_silent() || self.until.is_none_or(|until| Instant::now() >= until)
    }
}

/// How long a worker that leaves waits for a node: for one that is away to come back, or for one that is there to answer.
const FAREWELL: Duration = Duration::from_secs(1);

impl Tasks {
    /// Becomes a worker. Returns at once: it attaches as soon as there is a node to attach to.
    pub fn attach(&self, options: WorkerOptions) -> std::io::Result<Attachment> {
        self.attach_ahead(options, 0)
    }

    /// The same. Where more tasks wait than there are workers, so many more are given to it before it can begin them, so that it need not wait
    /// for the next; the time that such a task may take runs meanwhile.
    pub fn attach_ahead(&self, mut options: WorkerOptions, ahead: u32) -> std::io::Result<Attachment> {
        // A node that started this process knows its workers by the name that it gave it, and ends what it does not see.
        if let Some(name) = std::env::var(NAME_VARIABLE).ok().filter(|name| !name.is_empty()) {
            options.name = name;
        }
        let core = Arc::new(Core {
            shared: Arc::clone(&self.shared),
            line: Arc::default(),
            options,
            ahead,
            phase: Mutex::default(),
            driver: Mutex::new(Driver::new()),
            ready: Condvar::new(),
            own: Condvar::new(),
            changed: Condvar::new(),
            saying: Mutex::default(),
            ended: AtomicBool::new(false),
        });
        let driven = Arc::clone(&core);
        let run = move || {
            let asked = Arc::clone(&driven);
            // Whoever ends it does not wait for a node that is away.
            interruptible(move || asked.ended.load(Ordering::Acquire), || driven.drive_while_nobody_does());
        };
        let thread = thread::Builder::new().name("dunlin-worker".to_owned()).spawn(run)?;
        Ok(Attachment { core, thread: Some(thread) })
    }
}

impl Attachment {
    /// The next task, if one comes within so long. An error when the worker has ended, for good.
    pub fn next(&self, timeout: Duration) -> Result<Option<Given>, TasksError> {
        Ok(self.next_batch(1, timeout)?.pop())
    }

    /// The same, of as many as are there, at most so many; none when none comes.
    pub fn next_batch(&self, count_max: usize, timeout: Duration) -> Result<Vec<Given>, TasksError> {
        let deadline = deadline(timeout);
        let mut phase = lock(&self.core.phase);
        loop {
            let ready = phase.standing.ready.len().min(count_max);
            if ready > 0 {
                return Ok(phase.standing.ready.drain(..ready).collect());
            }
            if let Some(error) = &phase.error {
                return Err(TasksError::Ended(error.to_string()));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.core.ended.load(Ordering::Acquire) {
                return Ok(Vec::new());
            }
            if let Ok(mut driver) = self.core.driver.try_lock() {
                phase.is_driven = true;
                drop(phase);
                let is_interrupted = self.core.drive_for_a_task(&mut driver, deadline).is_break();
                drop(driver);
                phase = lock(&self.core.phase);
                self.core.leave(&mut phase);
                if is_interrupted {
                    return Ok(Vec::new());
                }
                continue;
            }
            phase.idle += 1;
            let waited = self.core.ready.wait_timeout(phase, left);
            phase = waited.unwrap_or_else(PoisonError::into_inner).0;
            phase.idle -= 1;
        }
    }

    /// A task is done. A result that is longer than `result_bytes_max` of the cluster fails it.
    pub fn complete(&self, given: &Given, result: &[u8], used: &Used) {
        self.answer(given, used, |answer| Command::Complete { answer, result });
    }

    /// Tasks are done that came to nothing but being done; what each took.
    pub fn complete_all(&self, given: &[Given], used: &Used) {
        self.core.with(|phase| {
            given.iter().for_each(|given| {
                phase.answer(given, used, |answer| Command::Complete { answer, result: b"" })
            });
        });
        self.core.say_what_is_to_be_said();
    }

    /// A task has failed; whether it may be tried again. Of what it says why, 1 MiB at most is kept.
    pub fn fail(&self, given: &Given, error: &[u8], retry: bool, used: &Used) {
        let error = cut(error);
        self.answer(given, used, |answer| Command::Fail { answer, error, retry });
    }

    /// How far a task has come, in thousandths, and in words.
    pub fn progress(&self, given: &Given, permille: u16, note: &str) {
        self.say_of(given, |worker| Command::Progress {
            worker,
            task: given.task(),
            token: given.token(),
            permille,
            note: cut(note.as_bytes()),
        });
    }

    /// A task takes longer: its timeout begins anew, as long as it was where none is given.
    pub fn extend(&self, given: &Given, timeout: Option<Duration>) {
        let timeout_ms = timeout.map_or(0, |timeout| u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX));
        let (task, token) = (given.task(), given.token());
        self.say_of(given, |worker| Command::Extend { worker, task, token, timeout_ms });
    }

    /// Takes nothing new from now on; what it has is to be answered still.
    pub fn drain(&self) {
        self.core.with(|phase| {
            let standing = &mut phase.standing;
            if !std::mem::replace(&mut standing.is_draining, true) {
                let worker = standing.worker;
                standing.is_drained = worker == 0;
                standing.say(Saying::new(&Command::Drain { worker }, None, true));
            }
        });
        self.core.say_what_is_to_be_said();
        self.core.poke();
    }

    /// Whether all that it had is done, and it may go; `false` unless it was drained. Where no node can be reached that would say so, it may go when it holds
    /// nothing.
    pub fn is_drained(&self) -> bool {
        self.core.with(|phase| {
            let standing = &phase.standing;
            let is_nobody = standing.is_draining && standing.worker == 0;
            standing.is_drained || is_nobody || phase.may_go_unheard(self.core.options.ttl, Instant::now())
        })
    }

    /// Waits until it is drained, at most so long; whether it is.
    pub fn wait_drained(&self, timeout: Duration) -> bool {
        let deadline = deadline(timeout);
        while !self.is_drained() {
            let left = deadline.saturating_duration_since(Instant::now());
            let phase = lock(&self.core.phase);
            if left.is_zero() || phase.error.is_some() {
                return false;
            }
            self.core.wait_for_change(phase, left.min(LOOK));
        }
        true
    }

    /// What it has, and has had.
    pub fn load(&self) -> AttachmentLoad {
        self.core.with(|phase| {
            let Standing { worker, ready, counts, .. } = &phase.standing;
            AttachmentLoad {
                worker: *worker,
                ready: ready.len() as u64,
                unanswered: phase.standing.unanswered() as u64,
                given: counts.given,
                answered: counts.answered,
                stale: counts.stale,
                lost: counts.lost,
            }
        })
    }

    /// Whether it is attached now, as far as it knows.
    pub fn is_attached(&self) -> bool {
        self.core.with(|phase| phase.standing.is_attached)
    }

    /// Why it has ended, if it has for good.
    pub fn error(&self) -> Option<TasksError> {
        self.core.with(|phase| phase.error.clone())
    }

    /// Waits until what was answered was heard of, at most so long; whether it was.
    pub fn flush(&self, timeout: Duration) -> bool {
        let deadline = deadline(timeout);
        loop {
            let phase = lock(&self.core.phase);
            let left = deadline.saturating_duration_since(Instant::now());
            let is_over = phase.may_go_unheard(self.core.options.ttl, Instant::now());
            if phase.standing.is_silent() || left.is_zero() || phase.error.is_some() || is_over {
                return phase.standing.is_silent();
            }
            self.core.wait_for_change(phase, left.min(LOOK));
        }
    }

    fn answer<'a>(&self, given: &Given, used: &Used, command: impl FnOnce(Answer) -> Command<'a>) {
        self.core.with(|phase| phase.answer(given, used, command));
        self.core.say_what_is_to_be_said();
    }

    fn say_of<'a>(&self, given: &Given, command: impl FnOnce(u64) -> Command<'a>) {
        self.core.with(|phase| {
            let standing = &mut phase.standing;
            if standing.holds(given.task(), given.token()) {
                let worker = standing.worker;
                standing.say(Saying::new(&command(worker), None, true));
            }
        });
        self.core.say_what_is_to_be_said();
    }
}

impl Core {
    /// Has whoever drives look.
    fn poke(&self) {
        self.line.poke();
        drop(lock(&self.phase));
        self.own.notify_one();
    }

    /// Waits until something has happened, at most so long.
    fn wait_for_change(&self, mut phase: MutexGuard<'_, Phase>, longest: Duration) {
        if let Ok(mut driver) = self.driver.try_lock() {
            drop(phase);
            let _ = self.step(&mut driver, Instant::now() + longest, || false);
            drop(driver);
            return self.leave(&mut lock(&self.phase));
        }
        phase.watching += 1;
        let waited = self.changed.wait_timeout(phase, longest);
        waited.unwrap_or_else(PoisonError::into_inner).0.watching -= 1;
    }
}

/// The cluster cuts it there; longer ones would but be carried.
const TEXT_BYTES_MAX: usize = 1 << 20;

fn cut(text: &[u8]) -> &[u8] {
    &text[..text.len().min(TEXT_BYTES_MAX)]
}

/// How soon a wait notices what nobody told it.
const LOOK: Duration = Duration::from_millis(50);

impl Drop for Attachment {
    fn drop(&mut self) {
        self.core.with(|phase| {
            phase.until = Some(Instant::now() + FAREWELL);
            let worker = phase.standing.worker;
            if phase.standing.is_attached {
                phase.standing.say(Saying::new(&Command::Leave { worker }, None, false));
            }
        });
        self.core.say_what_is_to_be_said();
        self.core.ended.store(true, Ordering::Release);
        self.core.poke();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        lock(&self.core.shared.session).remove_working(&self.core.line);
        self.core.ready.notify_all();
        self.core.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use dunlin_tasks::{Order, Start};

    use super::*;

    /// Away since a moment, and draining.
    fn away(since: Instant) -> Phase {
        let mut phase = Phase { away: Some(since), ..Phase::default() };
        (phase.standing.worker, phase.standing.is_draining) = (1, true);
        phase
    }

    #[test]
    fn disconnected_worker_waits_only_to_send_its_results() {
        let mut phase = away(Instant::now());
        phase.until = Some(Instant::now() + Duration::from_secs(1_000));
        phase.standing.say(Saying::new(&Command::Drain { worker: 1 }, None, true));
        assert!(phase.is_given_up(), "nobody is there to hear that it takes no more");
        let answer =
            Answer { worker: 1, task: 2, token: 3, run_us: 0, cpu_us: 0, memory_bytes: 0, credit: 1 };
        phase.standing.say(Saying::new(&Command::Complete { answer, result: b"" }, Some((2, 3)), true));
        assert!(!phase.is_given_up(), "a node that comes back is to have the answer");
        let mut attached = Phase { away: None, ..away(Instant::now()) };
        attached.until = phase.until;
        attached.standing.is_attached = true;
        attached.standing.say(Saying::new(&Command::Drain { worker: 1 }, None, true));
        assert!(!attached.is_given_up(), "its node is to hear it");
    }

    #[test]
    fn disconnected_draining_worker_ends_once_no_result_counts() {
        let (ttl, since) = (Duration::from_secs(1_000), Instant::now());
        let (soon, late) = (since + Duration::from_secs(10), since + 2 * ttl);
        assert!(away(since).may_go_unheard(ttl, soon));
        assert!(!away(since).may_go_unheard(ttl, since), "a node may come back");
        assert!(!Phase { away: None, ..away(since) }.may_go_unheard(ttl, late), "a node will say so");
        let mut takes_more = away(since);
        takes_more.standing.is_draining = false;
        assert!(!takes_more.may_go_unheard(ttl, late));
        let mut busy = away(since);
        busy.standing.ordered(Order::Start(Start {
            worker: 1,
            task: 2,
            token: 3,
            tenant: b"t"[..].into(),
            kind: b"k"[..].into(),
            payload: b""[..].into(),
            attempt: 1,
            timeout_ms: 1,
        }));
        assert!(!busy.may_go_unheard(ttl, late), "it works on something");
        busy.standing.answer(2, 3);
        assert!(!busy.may_go_unheard(ttl, soon), "its answer counts until its lease ends");
        assert!(busy.may_go_unheard(ttl, late));
    }
}
