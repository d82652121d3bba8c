//! Driving a worker: a thread attaches the worker, renews its lease and receives orders. A thread that waits for a task
//! does this; if no thread waits, the worker's own thread does.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dunlin_tasks::{AttachRequest, Label, NewWorker, TaskCommand};
use dunlin_wire::{ErrorCode, FromClient, LongBytes, MessageKind, Retry, Tasks as Message, TasksKind};

use super::super::asking::read_answers;
use super::super::error::TasksError;
use super::super::line::WorkerMessages;
use super::worker_state::QueuedCommand;
use super::{AttachmentShared, Phase};
use crate::drive::WaitOutcome;
use crate::follow::lock;
use crate::why::DisconnectReason;

/// How many times a lease is renewed within its time to live.
const BEATS: u32 = 3;
/// The pause before a refused attempt is repeated.
const PAUSE: Duration = Duration::from_millis(50);
/// The longest wait for messages. The thread checks at each tick of this wait whether the worker has ended. A wait of
/// at least a tick needs one system call instead of two.
const LOOK: Duration = Duration::from_secs(1);
/// The longest wait while the worker is not attached.
const LOOK_AWAY: Duration = Duration::from_millis(100);

/// How long the worker's own thread does not read the connection after a thread took a task, because that thread may
/// soon wait again.
const LEFT_ALONE: Duration = Duration::from_millis(100);

/// The state of the driving thread.
#[derive(Debug)]
pub(super) struct Driver {
    beat_at: Instant,
    /// The time until which the response to the attach request has to arrive; `None` if no attach request is pending.
    attaching: Option<Instant>,
}

impl Driver {
    pub(super) fn new() -> Driver {
        Driver { beat_at: Instant::now(), attaching: None }
    }
}

impl AttachmentShared {
    /// Drives on the worker's own thread until the worker has ended.
    pub(super) fn drive_while_nobody_does(&self) {
        while !self.is_over() {
            let phase = lock(&self.phase);
            let is_ending = self.ended.load(Ordering::Acquire);
            let left_ago = phase.left_at.map_or(LEFT_ALONE, |left| left.elapsed());
            let rest = match (phase.is_driven, phase.idle) {
                _ if is_ending => Duration::ZERO,
                (true, _) if left_ago >= LOOK => LOOK,
                // A thread that waits for a task was woken to read the connection. This thread therefore does not read
                // it.
                (true, _) | (false, 1..) => LEFT_ALONE,
                (false, 0) => LEFT_ALONE.saturating_sub(left_ago),
            };
            if !rest.is_zero() {
                self.rest(phase, rest);
                continue;
            }
            drop(phase);
            let mut driver = lock(&self.driver);
            let _ = self.step(&mut driver, Instant::now() + LOOK, || false);
            drop(driver);
            self.leave(&mut lock(&self.phase));
        }
        self.changed.notify_all();
    }

    fn rest(&self, mut phase: MutexGuard<'_, Phase>, longest: Duration) {
        phase.own_rests = longest > LEFT_ALONE;
        let rested = self.own.wait_timeout(phase, longest);
        rested.unwrap_or_else(PoisonError::into_inner).0.own_rests = false;
    }

    /// Drives until there is a task or `deadline` has passed. Returns `Break` if the thread was interrupted.
    pub(super) fn drive_for_a_task(&self, driver: &mut Driver, deadline: Instant) -> ControlFlow<()> {
        let has_task = || self.with(|phase| !phase.worker_state.ready.is_empty() || phase.error.is_some());
        while !has_task() && !self.ended.load(Ordering::Acquire) && Instant::now() < deadline {
            self.step(driver, deadline, has_task)?;
        }
        ControlFlow::Continue(())
    }

    /// Stops driving. Another waiting thread continues or, after [`LEFT_ALONE`], the worker's own thread.
    pub(super) fn leave(&self, phase: &mut Phase) {
        if std::mem::take(&mut phase.is_driven) {
            phase.left_at = Some(Instant::now());
        }
        if phase.idle > 0 {
            self.ready.notify_one();
        } else if phase.own_rests {
            self.own.notify_one();
        }
    }

    /// Attaches the worker, renews its lease and sends its commands, as far as these are due. Then waits for messages
    /// until `until` at the latest.
    pub(super) fn step(
        &self,
        driver: &mut Driver,
        until: Instant,
        is_done: impl Fn() -> bool,
    ) -> ControlFlow<()> {
        let now = Instant::now();
        let is_attached = self.with(|phase| {
            let is_attached = phase.worker_state.is_attached;
            phase.away = if is_attached { None } else { phase.away.or(Some(now)) };
            is_attached
        });
        if !is_attached && driver.attaching.is_none_or(|until| now >= until) {
            driver.attaching = self.is_up().then(|| now + self.patience());
            if driver.attaching.is_some() {
                self.begin_attaching();
            }
        }
        if is_attached {
            driver.attaching = None;
            if now >= driver.beat_at {
                driver.beat_at = now + self.options.ttl / BEATS;
                self.beat();
            }
        }
        self.say_what_is_to_be_said();
        let until = until.min(if is_attached { driver.beat_at } else { now + LOOK_AWAY });
        let waited = self.wait(until, is_done);
        if let WaitOutcome::Disconnected(DisconnectReason::Refused(refused)) = &waited {
            self.end(TasksError::Refused(refused.clone()));
        }
        let news = self.line.take();
        if let Some(pause) = self.heard(news, &mut driver.attaching) {
            std::thread::sleep(pause);
        }
        match waited {
            WaitOutcome::Disconnected(DisconnectReason::Interrupted) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }

    fn is_up(&self) -> bool {
        lock(&self.shared.session).up
    }

    fn wait(&self, until: Instant, is_done: impl Fn() -> bool) -> WaitOutcome {
        let was_up = self.is_up();
        let done = || {
            self.line.has_news()
                || is_done()
                || self.is_over()
                || self.is_up() != was_up
                || self.has_more_to_say()
        };
        self.shared.wait_until(&self.line.waiting, self.shared.options.wait, Some(until), done)
    }

    fn begin_attaching(&self) {
        if let Err(error) = self.shared.check_version(MessageKind::Tasks) {
            return self.end(error.into());
        }
        let options = &self.options;
        let (worker, life, has, slots) = self.with(|phase| {
            let worker_state = &phase.worker_state;
            (worker_state.worker, worker_state.life, worker_state.has(), worker_state.slots(options.slots))
        });
        let labels = options.labels.iter();
        let new = NewWorker {
            name: options.name.as_bytes(),
            kinds: options.kinds.iter().map(String::as_bytes).collect(),
            queues: options.queues.iter().map(String::as_bytes).collect(),
            cpu_milli: options.cpu_milli,
            memory_bytes: options.memory_bytes,
            ttl_ms: u64::try_from(options.ttl.as_millis()).unwrap_or(u64::MAX),
            credit: 0,
            labels: labels
                .map(|(key, value)| Label { key: key.as_bytes(), value: value.as_bytes() })
                .collect(),
            tenants: options.tenants.iter().map(String::as_bytes).collect(),
        };
        let mut bytes = Vec::new();
        AttachRequest { worker, life, slots, ahead: self.ahead, has, new }.encode(&mut bytes);
        self.ask(TasksKind::Attach, &bytes, true);
    }

    /// Sends a request of the worker, if there is a connection. Returns its number.
    fn ask(&self, kind: TasksKind, bytes: &[u8], attaches: bool) -> u32 {
        let mut session = lock(&self.shared.session);
        let request = session.number();
        if session.up {
            session.add_working(request, &self.line, attaches);
            self.shared.say(&FromClient::Tasks(Message { request, kind, bytes: LongBytes(bytes) }));
        }
        request
    }

    fn beat(&self) {
        self.with(|phase| {
            let workers = vec![phase.worker_state.worker];
            phase.worker_state.say(QueuedCommand::new(&TaskCommand::Beat { workers }, None, false));
        });
    }

    fn has_more_to_say(&self) -> bool {
        self.with(|phase| phase.worker_state.can_send())
    }

    /// Sends the queued commands, unless another thread is sending them.
    pub(super) fn say_what_is_to_be_said(&self) {
        while self.has_more_to_say() {
            let Ok(_saying) = self.queued.try_lock() else { return };
            let mut session = lock(&self.shared.session);
            if !session.up {
                return;
            }
            let request = session.number();
            let Some(bytes) = self.with(|phase| phase.worker_state.next_request(request)) else { return };
            session.add_working(request, &self.line, false);
            let kind = TasksKind::Commands;
            self.shared.say(&FromClient::Tasks(Message { request, kind, bytes: LongBytes(&bytes) }));
        }
    }

    /// Applies messages of the node. Returns the pause before a refused attempt to attach is repeated.
    fn heard(&self, news: WorkerMessages, attaching: &mut Option<Instant>) -> Option<Duration> {
        let WorkerMessages { is_lost, attached, orders, answers, .. } = news;
        let mut rest = None;
        match attached {
            // After a lost connection the worker has to attach again.
            Some(Ok(attached)) if !is_lost => {
                self.with(|phase| phase.worker_state.attached(&attached));
                *attaching = None;
            }
            Some(Err(refused)) if !is_lost && refused.code == ErrorCode::NoWorker => {
                self.with(|phase| phase.worker_state.lost_lease());
                *attaching = None;
            }
            Some(Err(refused)) if !is_lost && refused.retry() == Retry::No && !is_unknown(&refused) => {
                self.end(TasksError::Refused(refused));
                return None;
            }
            Some(Err(_)) => {
                *attaching = None;
                rest = Some(PAUSE);
            }
            _ => {}
        }
        let mut is_known = true;
        let (woken, is_watched) = self.with(|phase| {
            let worker_state = &mut phase.worker_state;
            orders.into_iter().for_each(|order| worker_state.ordered(order));
            for (request, answer) in answers {
                match answer.map_err(TasksError::from).and_then(|bytes| read_answers(&bytes)) {
                    Ok(answers) => is_known &= worker_state.answered(request, answers),
                    Err(TasksError::Refused(refused))
                        if refused.retry() == Retry::No && !is_unknown(&refused) =>
                    {
                        worker_state.given_up(request, &refused);
                    }
                    Err(_) => {
                        worker_state.refused(request);
                        rest = Some(PAUSE);
                    }
                }
            }
            if is_lost {
                worker_state.lost_connection();
            }
            if !is_known {
                worker_state.lost_lease();
            }
            (worker_state.ready.len().min(phase.idle), phase.watching > 0)
        });
        if is_lost || !is_known {
            *attaching = None;
        }
        // Notifies no more threads than needed: each notification is a system call, even if no thread waits.
        (0..woken).for_each(|_| self.ready.notify_one());
        if is_watched {
            self.changed.notify_all();
        }
        rest
    }

    fn is_over(&self) -> bool {
        self.ended.load(Ordering::Acquire) && self.with(|phase| phase.error.is_some() || phase.is_given_up())
    }

    fn patience(&self) -> Duration {
        Duration::from_millis(self.shared.limits.answer_ms_max)
    }

    pub(super) fn end(&self, why: TasksError) {
        self.with(|phase| phase.error.get_or_insert(why).clone());
        self.ended.store(true, Ordering::Release);
        self.own.notify_all();
        self.ready.notify_all();
        self.changed.notify_all();
    }

    pub(super) fn with<R>(&self, look: impl FnOnce(&mut Phase) -> R) -> R {
        look(&mut lock(&self.phase))
    }
}

/// Whether the refused command may have been carried out. Such a command can be repeated without further effect.
fn is_unknown(refused: &crate::refusal::RefusedError) -> bool {
    refused.code == ErrorCode::CommandUnknown
}
