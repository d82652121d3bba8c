//! Makes async tasks wait for messages from the node, with the reactor of tokio.
//!
//! A runtime wakes only one task when a socket is ready. This module wakes all tasks that wait on the connection. The
//! first of them that runs then reads the connection for all.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use tokio::io::unix::AsyncFd;
use tokio::runtime::{Handle, Id};
use tokio::time::Sleep;

use crate::client::SharedClient;
use crate::disconnect_reason::DisconnectReason;
use crate::drive::WaitOutcome;
use crate::follow::{HandleWaker, lock};
use crate::link::{Link, PumpOutcome, PumpWait, WakeConditions};
use crate::socket::Socket;

/// The maximum number of reads before a task lets other tasks of its thread run.
const READS_MAX: usize = 64;

/// The registrations of the socket and of a timer. They belong to the runtime of the task that last began to wait.
#[derive(Debug, Default)]
pub(crate) struct Reactor {
    runtime: Option<Id>,
    socket: Option<AsyncFd<Arc<Socket>>>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl SharedClient {
    /// Async form of [`wait_until`](SharedClient::wait_until). `number` identifies the waiting task.
    pub(crate) fn poll_until(
        &self,
        waker: &HandleWaker,
        number: u64,
        cx: &mut Context<'_>,
        mut done: impl FnMut() -> bool,
    ) -> Poll<WaitOutcome> {
        self.send_partial_batches();
        if done() {
            return Poll::Ready(WaitOutcome::Done);
        }
        let waits_since = waker.set(cx.waker());
        self.followers.add_task(number, cx.waker());
        let lead_result =
            self.link.try_lock().map(|mut link| self.poll_lead(&mut link, waits_since, cx, &mut done));
        let polled = match &lead_result {
            Ok(polled) => polled.clone(),
            Err(_) if done() => Poll::Ready(WaitOutcome::Done),
            // Another thread or task reads the connection. When it stops reading, it wakes other waiters.
            Err(_) => Poll::Pending,
        };
        if polled.is_ready() {
            waker.clear();
            self.followers.remove_task(number);
        }
        if lead_result.is_ok() {
            self.followers.wake_readers_unless_armed();
        }
        polled
    }

    fn poll_lead(
        &self,
        link: &mut Link,
        waits_since: Instant,
        cx: &Context<'_>,
        done: &mut impl FnMut() -> bool,
    ) -> Poll<WaitOutcome> {
        let mut reactor = lock(&self.reactor);
        for _ in 0..READS_MAX {
            let paused = if reactor.socket.is_some() { link.pause_reading(self) } else { None };
            let pumped = paused.unwrap_or_else(|| link.pump(self, PumpWait::Now));
            if done() {
                return Poll::Ready(WaitOutcome::Done);
            }
            match pumped {
                PumpOutcome::Received => continue,
                PumpOutcome::Quiet => {}
                PumpOutcome::Closed => {
                    return Poll::Ready(WaitOutcome::Disconnected(DisconnectReason::Io(
                        "the client is closed".to_owned(),
                    )));
                }
                PumpOutcome::Disconnected(why, since) => {
                    if matches!(why, DisconnectReason::Refused(_))
                        || since.max(waits_since).elapsed() >= link.silence_max(&self.limits)
                    {
                        return Poll::Ready(WaitOutcome::Disconnected(why));
                    }
                }
            }
            self.followers.arm();
            let waker = Waker::from(Arc::clone(&self.followers));
            if reactor.arm(&link.wake_conditions(self), &mut Context::from_waker(&waker)).is_pending() {
                return Poll::Pending;
            }
            link.resume_reading();
        }
        // Let other tasks run: messages for other handles may arrive without a pause.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Reactor {
    /// Registers for the events in `conditions`. Returns `Ready` if one of them has already occurred.
    fn arm(&mut self, conditions: &WakeConditions, cx: &mut Context<'_>) -> Poll<()> {
        let runtime = Handle::try_current().ok().map(|handle| handle.id());
        if self.runtime != runtime {
            // The registrations belong to another runtime, which may have ended: its timer would panic, and its socket
            // would always count as ready. When a runtime ends, it wakes the tasks that wait for its registrations, so
            // they register here again.
            (self.runtime, self.socket, self.sleep) = (runtime, None, None);
        }
        let at = tokio::time::Instant::from_std(conditions.at);
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at)));
        // Set the timer only to an earlier time. A timer that fires too early costs less than setting it at every wait.
        if sleep.is_elapsed() || sleep.deadline() > at {
            sleep.as_mut().reset(at);
        }
        if sleep.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let Some(socket) = &conditions.socket else {
            self.socket = None;
            return Poll::Pending;
        };
        if !self.socket.as_ref().is_some_and(|registered| Arc::ptr_eq(registered.get_ref(), socket)) {
            // The registration fails if the system cannot watch another socket. The timer then wakes the task, but
            // later than the socket would.
            #[expect(
                deprecated,
                reason = "`register` is unsafe; this file stays open while it is registered"
            )]
            let registered = AsyncFd::new(Arc::clone(socket));
            self.socket = registered.ok();
        }
        let Some(fd) = &self.socket else { return Poll::Pending };
        let mut is_ready = false;
        if let Poll::Ready(guard) = fd.poll_read_ready(cx) {
            guard.into_iter().for_each(|mut guard| guard.clear_ready());
            is_ready = true;
        }
        if conditions.write
            && let Poll::Ready(guard) = fd.poll_write_ready(cx)
        {
            guard.into_iter().for_each(|mut guard| guard.clear_ready());
            is_ready = true;
        }
        if is_ready { Poll::Ready(()) } else { Poll::Pending }
    }
}
