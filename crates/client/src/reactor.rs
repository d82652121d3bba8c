//! Async waits, by tokio's reactor.
//!
//! A runtime wakes one task for each socket. This module wakes all tasks that wait on the connection. The first task
//! that runs then reads the connection for all of them.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use tokio::io::unix::AsyncFd;
use tokio::time::Sleep;

use crate::client::SharedClient;
use crate::drive::WaitOutcome;
use crate::follow::{HandleWaker, lock};
use crate::link::{Link, PumpOutcome, PumpWait, WakeConditions};
use crate::socket::Socket;
use crate::why::DisconnectReason;

/// The registration of the socket with the runtime of the first task that polled.
#[derive(Debug, Default)]
pub(crate) struct Reactor {
    socket: Option<AsyncFd<Arc<Socket>>>,
    sleep: Option<Pin<Box<Sleep>>>,
    /// Time since which a task has waited for a connection.
    away_since: Option<Instant>,
}

impl SharedClient {
    /// Async form of [`wait_until`](SharedClient::wait_until). `number` identifies the task.
    pub(crate) fn poll_until(
        &self,
        waiting: &HandleWaker,
        number: u64,
        cx: &mut Context<'_>,
        mut done: impl FnMut() -> bool,
    ) -> Poll<WaitOutcome> {
        self.hand_over_batches();
        if done() {
            return Poll::Ready(WaitOutcome::Done);
        }
        waiting.set(cx.waker());
        self.followers.add_task(number, cx.waker());
        let led = self.link.try_lock().map(|mut link| self.poll_lead(&mut link, &mut done));
        let polled = match &led {
            Ok(polled) => polled.clone(),
            Err(_) if done() => Poll::Ready(WaitOutcome::Done),
            // Another thread reads the connection. When that thread stops reading, it wakes a waiting thread or all
            // waiting tasks.
            Err(_) => Poll::Pending,
        };
        if polled.is_ready() {
            waiting.clear();
            self.followers.remove_task(number);
        }
        if led.is_ok() {
            self.followers.task_left();
        }
        polled
    }

    fn poll_lead(&self, link: &mut Link, done: &mut impl FnMut() -> bool) -> Poll<WaitOutcome> {
        let mut reactor = lock(&self.reactor);
        loop {
            let rested = if reactor.socket.is_some() { link.rest(self) } else { None };
            let pumped = rested.unwrap_or_else(|| link.pump(self, PumpWait::Now));
            if done() {
                reactor.away_since = None;
                return Poll::Ready(WaitOutcome::Done);
            }
            match pumped {
                PumpOutcome::Heard => continue,
                PumpOutcome::Quiet => reactor.away_since = None,
                PumpOutcome::Closed => {
                    return Poll::Ready(WaitOutcome::Disconnected(DisconnectReason::Io(
                        "the client is closed".to_owned(),
                    )));
                }
                PumpOutcome::Disconnected(why, _) => {
                    let since = *reactor.away_since.get_or_insert_with(Instant::now);
                    if matches!(why, DisconnectReason::Refused(_))
                        || since.elapsed() >= link.patience(&self.limits)
                    {
                        reactor.away_since = None;
                        return Poll::Ready(WaitOutcome::Disconnected(why));
                    }
                }
            }
            self.followers.arm();
            let waker = Waker::from(Arc::clone(&self.followers));
            if reactor.arm(&link.wants(self), &mut Context::from_waker(&waker)).is_pending() {
                return Poll::Pending;
            }
            link.stir();
        }
    }
}

impl Reactor {
    /// Registers for the wanted events. Returns `Ready` if one of them has already occurred.
    fn arm(&mut self, wants: &WakeConditions, cx: &mut Context<'_>) -> Poll<()> {
        let at = tokio::time::Instant::from_std(wants.at);
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at)));
        // The timer is reset only to an earlier time: a timer that fires too early costs less than a reset at every
        // wait.
        if sleep.is_elapsed() || sleep.deadline() > at {
            sleep.as_mut().reset(at);
        }
        if sleep.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let Some(socket) = &wants.socket else {
            self.socket = None;
            return Poll::Pending;
        };
        if !self.socket.as_ref().is_some_and(|there| Arc::ptr_eq(there.get_ref(), socket)) {
            // If the system cannot watch another socket, the timer still wakes the task, only later.
            #[expect(
                deprecated,
                reason = "`register` is unsafe; this file stays open while it is registered"
            )]
            let registered = AsyncFd::new(Arc::clone(socket));
            self.socket = registered.ok();
        }
        let Some(fd) = &self.socket else { return Poll::Pending };
        let mut look = false;
        if let Poll::Ready(guard) = fd.poll_read_ready(cx) {
            guard.into_iter().for_each(|mut guard| guard.clear_ready());
            look = true;
        }
        if wants.write
            && let Poll::Ready(guard) = fd.poll_write_ready(cx)
        {
            guard.into_iter().for_each(|mut guard| guard.clear_ready());
            look = true;
        }
        if look { Poll::Ready(()) } else { Poll::Pending }
    }
}
