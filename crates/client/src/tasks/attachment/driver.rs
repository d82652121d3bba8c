//! Drives a worker: attaches it, renews its lease, sends its commands and receives the node's orders. One of the
//! threads that wait for a task does this; if there is none, the worker's own thread does.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dunlin_tasks::{AttachRequest, Label, NewWorker, TaskCommand};
use dunlin_wire::{
    ErrorCode, FromClient, MessageKind, RetryAdvice, Tasks as Message, TasksKind, U32PrefixedBytes,
};

use super::super::error::TasksError;
use super::super::pending_commands::decode_responses;
use super::super::worker_inbox::WorkerMessages;
use super::worker_state::QueuedCommand;
use super::{AttachmentShared, Phase};
use crate::disconnect_reason::DisconnectReason;
use crate::drive::WaitOutcome;
use crate::follow::lock;

/// How many times a lease is renewed within its time to live.
const RENEWALS_PER_TTL: u32 = 3;
/// The pause before a request that was refused is sent again.
const PAUSE: Duration = Duration::from_millis(50);
/// The longest wait for messages. During the wait, the thread checks at each [`TICK`](crate::limits::TICK) whether the
/// worker has ended. A socket wait that is shorter than a tick would need a second system call.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// The longest wait for messages while the worker is not attached.
const DETACHED_WAIT_MAX: Duration = Duration::from_millis(100);

/// When another thread stops reading the connection, the worker's own thread waits for this time before it reads the
/// connection itself. Within this time, the other thread may read again.
const TAKEOVER_DELAY: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Driver {
    next_heartbeat: Instant,
    /// The time by which the response to the attach request has to arrive; `None` if there is no such request.
    attaching: Option<Instant>,
}

impl Driver {
    pub(super) fn new() -> Driver {
        Driver { next_heartbeat: Instant::now(), attaching: None }
    }
}

impl AttachmentShared {
    /// Drives the worker while no other thread does. The worker's own thread calls this method, which returns when the
    /// worker has ended.
    pub(super) fn drive_when_idle(&self) {
        while !self.is_over() {
            let phase = lock(&self.phase);
            let is_ending = self.ended.load(Ordering::Acquire);
            let idle_for = phase.left_at.map_or(TAKEOVER_DELAY, |left_at| left_at.elapsed());
            let pause = match (phase.is_driven, phase.idle) {
                _ if is_ending => Duration::ZERO,
                (true, _) if idle_for >= WAIT_MAX => WAIT_MAX,
                // Another thread reads the connection, or was woken to do so. This thread only waits.
                (true, _) | (false, 1..) => TAKEOVER_DELAY,
                (false, 0) => TAKEOVER_DELAY.saturating_sub(idle_for),
            };
            if !pause.is_zero() {
                self.sleep(phase, pause);
                continue;
            }
            drop(phase);
            let mut driver = lock(&self.driver);
            let _ = self.step(&mut driver, Instant::now() + WAIT_MAX, || false);
            drop(driver);
            self.stop_driving(&mut lock(&self.phase));
        }
        self.changed.notify_all();
    }

    fn sleep(&self, mut phase: MutexGuard<'_, Phase>, longest: Duration) {
        phase.own_thread_sleeps = longest > TAKEOVER_DELAY;
        let result = self.driver_work.wait_timeout(phase, longest);
        result.unwrap_or_else(PoisonError::into_inner).0.own_thread_sleeps = false;
    }

    /// Drives the worker until there is a task, or until `deadline`. Returns `Break` if the calling thread was
    /// interrupted.
    pub(super) fn drive_until_task(&self, driver: &mut Driver, deadline: Instant) -> ControlFlow<()> {
        let has_task =
            || self.with_phase(|phase| !phase.worker_state.ready.is_empty() || phase.error.is_some());
        while !has_task() && !self.ended.load(Ordering::Acquire) && Instant::now() < deadline {
            self.step(driver, deadline, has_task)?;
        }
        ControlFlow::Continue(())
    }

    /// Stops driving, so that a waiting thread continues. If no thread waits, the worker's own thread continues after
    /// [`TAKEOVER_DELAY`].
    pub(super) fn stop_driving(&self, phase: &mut Phase) {
        if std::mem::take(&mut phase.is_driven) {
            phase.left_at = Some(Instant::now());
        }
        if phase.idle > 0 {
            self.ready.notify_one();
        }
        if phase.own_thread_must_wake() {
            self.driver_work.notify_one();
        }
    }

    /// Attaches the worker, renews its lease and sends its commands, as far as these are due. Then waits for messages
    /// until the time `until`, or until `is_done` returns `true`.
    pub(super) fn step(
        &self,
        driver: &mut Driver,
        until: Instant,
        is_done: impl Fn() -> bool,
    ) -> ControlFlow<()> {
        let now = Instant::now();
        let is_attached = self.with_phase(|phase| {
            let is_attached = phase.worker_state.is_attached;
            phase.detached_since = if is_attached { None } else { phase.detached_since.or(Some(now)) };
            is_attached
        });
        if !is_attached && driver.attaching.is_none_or(|until| now >= until) {
            driver.attaching = self.is_up().then(|| now + self.response_timeout());
            if driver.attaching.is_some() {
                self.send_attach();
            }
        }
        if is_attached {
            driver.attaching = None;
            if now >= driver.next_heartbeat {
                driver.next_heartbeat = now + self.options.ttl / RENEWALS_PER_TTL;
                self.queue_heartbeat();
            }
        }
        self.send_queued();
        let until = until.min(if is_attached { driver.next_heartbeat } else { now + DETACHED_WAIT_MAX });
        let waited = self.wait(until, is_done);
        if let WaitOutcome::Disconnected(DisconnectReason::Refused(refused)) = &waited {
            self.end(TasksError::Refused(refused.clone()));
        }
        let messages = self.inbox.take();
        if let Some(pause) = self.apply_messages(messages, &mut driver.attaching) {
            std::thread::sleep(pause);
        }
        match waited {
            WaitOutcome::Disconnected(DisconnectReason::Interrupted) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }

    fn is_up(&self) -> bool {
        lock(&self.shared.session).is_up
    }

    fn wait(&self, until: Instant, is_done: impl Fn() -> bool) -> WaitOutcome {
        let was_up = self.is_up();
        let done = || {
            self.inbox.has_messages()
                || is_done()
                || self.is_over()
                || self.is_up() != was_up
                || self.can_send()
        };
        self.shared.wait_until(&self.inbox.waker, self.shared.options.wait, Some(until), done)
    }

    fn send_attach(&self) {
        if let Err(error) = self.shared.check_version(MessageKind::Tasks) {
            return self.end(error.into());
        }
        let options = &self.options;
        let (worker, life, held_tokens, slots) = self.with_phase(|phase| {
            let worker_state = &phase.worker_state;
            (
                worker_state.worker,
                worker_state.life,
                worker_state.held_tokens(),
                worker_state.slots(options.slots),
            )
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
        AttachRequest { worker, epoch: life, slots, ahead: self.ahead, held: held_tokens, new }
            .encode(&mut bytes);
        self.send_request(TasksKind::Attach, &bytes, true);
    }

    /// Sends a request of the worker, if there is a connection. Returns the number of the request in any case.
    fn send_request(&self, kind: TasksKind, bytes: &[u8], attaches: bool) -> u32 {
        let mut session = lock(&self.shared.session);
        let request = session.next_number();
        if session.is_up {
            session.add_worker_request(request, &self.inbox, attaches);
            self.shared.send_message(&FromClient::Tasks(Message {
                request,
                kind,
                bytes: U32PrefixedBytes(bytes),
            }));
        }
        request
    }

    fn queue_heartbeat(&self) {
        self.with_phase(|phase| {
            let workers = vec![phase.worker_state.worker];
            phase.worker_state.enqueue(QueuedCommand::new(&TaskCommand::Renew { workers }, None, false));
        });
    }

    fn can_send(&self) -> bool {
        self.with_phase(|phase| phase.worker_state.can_send())
    }

    /// Sends the queued commands, unless another thread does so at this time.
    pub(super) fn send_queued(&self) {
        while self.can_send() {
            let Ok(_sending) = self.queued.try_lock() else { return };
            let mut session = lock(&self.shared.session);
            if !session.is_up {
                return;
            }
            let request = session.next_number();
            let Some(bytes) = self.with_phase(|phase| phase.worker_state.next_request(request)) else {
                return;
            };
            session.add_worker_request(request, &self.inbox, false);
            let kind = TasksKind::Commands;
            self.shared.send_message(&FromClient::Tasks(Message {
                request,
                kind,
                bytes: U32PrefixedBytes(&bytes),
            }));
        }
    }

    /// Handles messages of the node. Returns a pause if the next request must wait because the node refused one.
    fn apply_messages(&self, messages: WorkerMessages, attaching: &mut Option<Instant>) -> Option<Duration> {
        let WorkerMessages { is_lost, attached, orders, responses, .. } = messages;
        let mut pause = None;
        match attached {
            // If the connection was lost since then, the worker has to attach again.
            Some(Ok(attached)) if !is_lost => {
                self.with_phase(|phase| phase.worker_state.handle_attached(&attached));
                *attaching = None;
            }
            Some(Err(refused)) if !is_lost && refused.code == ErrorCode::NoWorker => {
                self.with_phase(|phase| phase.worker_state.handle_lost_lease());
                *attaching = None;
            }
            Some(Err(refused))
                if !is_lost && refused.retry() == RetryAdvice::No && !outcome_is_unknown(&refused) =>
            {
                self.end(TasksError::Refused(refused));
                return None;
            }
            Some(Err(_)) => {
                *attaching = None;
                pause = Some(PAUSE);
            }
            _ => {}
        }
        let mut is_known = true;
        let (woken, is_watched) = self.with_phase(|phase| {
            let worker_state = &mut phase.worker_state;
            orders.into_iter().for_each(|order| worker_state.handle_order(order));
            for (request, response) in responses {
                match response.map_err(TasksError::from).and_then(|bytes| decode_responses(&bytes)) {
                    Ok(responses) => is_known &= worker_state.handle_responses(request, responses),
                    Err(TasksError::Refused(refused))
                        if refused.retry() == RetryAdvice::No && !outcome_is_unknown(&refused) =>
                    {
                        worker_state.discard_request(request, &refused);
                    }
                    Err(error) => {
                        let had_no_effect =
                            matches!(&error, TasksError::Refused(refused) if !outcome_is_unknown(refused));
                        worker_state.requeue_request(request, had_no_effect);
                        pause = Some(PAUSE);
                    }
                }
            }
            if is_lost {
                worker_state.handle_disconnect();
            }
            if !is_known {
                worker_state.handle_lost_lease();
            }
            (worker_state.ready.len().min(phase.idle), phase.watching > 0)
        });
        if is_lost || !is_known {
            *attaching = None;
        }
        // Notify only as many threads as have a task: each call is a system call, even if no thread waits.
        (0..woken).for_each(|_| self.ready.notify_one());
        if is_watched {
            self.changed.notify_all();
        }
        pause
    }

    fn is_over(&self) -> bool {
        self.ended.load(Ordering::Acquire)
            && self.with_phase(|phase| phase.error.is_some() || phase.can_stop())
    }

    fn response_timeout(&self) -> Duration {
        Duration::from_millis(self.shared.limits.answer_ms_max)
    }

    pub(super) fn end(&self, why: TasksError) {
        self.with_phase(|phase| phase.error.get_or_insert(why).clone());
        self.ended.store(true, Ordering::Release);
        self.driver_work.notify_all();
        self.ready.notify_all();
        self.changed.notify_all();
    }

    pub(super) fn with_phase<R>(&self, access: impl FnOnce(&mut Phase) -> R) -> R {
        access(&mut lock(&self.phase))
    }
}

/// Whether a command that was refused with this error may have been carried out. Such a command can be sent again
/// without a second effect.
fn outcome_is_unknown(refused: &crate::refusal::RefusedError) -> bool {
    refused.code == ErrorCode::CommandUnknown
}
