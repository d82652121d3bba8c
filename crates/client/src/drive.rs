//! Makes threads wait for messages from the node. One of the waiting threads "leads": it reads the connection for all.
//! The others "follow": each sleeps until the event that it waits for has happened.

use std::time::{Duration, Instant};

use dunlin_topic::WaitStrategy;

use crate::client::SharedClient;
use crate::disconnect_reason::DisconnectReason;
use crate::follow::{HandleWaker, thread_waker};
use crate::interrupt::Interrupt;
use crate::limits::TICK;
use crate::link::{Link, PumpOutcome, PumpWait};

/// How a wait for the node ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WaitOutcome {
    Done,
    TimedOut,
    /// For longer than [`Link::silence_max`], there was no connection.
    Disconnected(DisconnectReason),
}

impl SharedClient {
    /// Waits until `done` returns `true` or the time `until` is reached.
    #[inline]
    pub(crate) fn wait_until(
        &self,
        waker: &HandleWaker,
        wait: WaitStrategy,
        until: Option<Instant>,
        mut done: impl FnMut() -> bool,
    ) -> WaitOutcome {
        self.send_partial_batches();
        if done() {
            return WaitOutcome::Done;
        }
        if let Ok(mut link) = self.link.try_lock() {
            let waited = self.lead(&mut link, wait, until, None, &mut done);
            drop(link);
            self.followers.wake_next_reader();
            return waited;
        }
        self.follow(waker, wait, until, &mut done)
    }

    /// Reads the connection for all waiting threads, until `done` returns `true` or the time `until` is reached.
    /// `waits_since` is the time at which the wait began, if it began as a follower's.
    #[inline]
    fn lead(
        &self,
        link: &mut Link,
        wait: WaitStrategy,
        until: Option<Instant>,
        waits_since: Option<Instant>,
        done: &mut impl FnMut() -> bool,
    ) -> WaitOutcome {
        if wait != WaitStrategy::Default {
            return self.lead_spinning(link, wait, Duration::ZERO, until, waits_since, done);
        }
        let (began, budget) = (Instant::now(), Duration::from_nanos(link.spinning.budget_ns()));
        let waited = self.lead_spinning(link, wait, budget, until, waits_since, done);
        let elapsed = began.elapsed();
        if elapsed < budget {
            link.spinning.record_spun();
        } else {
            link.spinning.record_parked(elapsed.as_nanos() as u64);
        }
        waited
    }

    /// Does the work of [`lead`](Self::lead). With [`WaitStrategy::Default`], spins for `budget` before it blocks.
    #[inline]
    fn lead_spinning(
        &self,
        link: &mut Link,
        wait: WaitStrategy,
        budget: Duration,
        until: Option<Instant>,
        waits_since: Option<Instant>,
        done: &mut impl FnMut() -> bool,
    ) -> WaitOutcome {
        let mut began = None;
        let mut spins = wait == WaitStrategy::Spin || !budget.is_zero();
        let mut interrupt = Interrupt::current();
        loop {
            // Each call of `pump` blocks for at most one tick, so that the next call checks the timeouts of the
            // connection.
            let pump_wait = match (spins, until) {
                (true, _) if wait == WaitStrategy::Spin => PumpWait::Spin,
                (true, _) => PumpWait::Now,
                (false, None) => PumpWait::Block(TICK),
                (false, Some(until)) => {
                    PumpWait::Block(until.saturating_duration_since(Instant::now()).min(TICK))
                }
            };
            let pumped = link.pump(self, pump_wait);
            if done() {
                return WaitOutcome::Done;
            }
            if interrupt.is_due() {
                return WaitOutcome::Disconnected(DisconnectReason::Interrupted);
            }
            if matches!(pumped, PumpOutcome::Received) {
                // The deadline is also checked after a message has arrived: messages for other handles may arrive
                // without a pause.
                if until.is_some_and(|until| Instant::now() >= until) {
                    return WaitOutcome::TimedOut;
                }
                continue;
            }
            let now = Instant::now();
            let began = *began.get_or_insert(now);
            if until.is_some_and(|until| now >= until) {
                // If the node is dead, report this even though the time of this wait is over. Otherwise, a series of
                // short waits would never report it.
                return match pumped {
                    PumpOutcome::Disconnected(why, since)
                        if now >= since + link.silence_max(&self.limits) =>
                    {
                        WaitOutcome::Disconnected(why)
                    }
                    _ => WaitOutcome::TimedOut,
                };
            }
            match pumped {
                PumpOutcome::Disconnected(DisconnectReason::Refused(refused), _) => {
                    return WaitOutcome::Disconnected(DisconnectReason::Refused(refused));
                }
                PumpOutcome::Disconnected(why, since) => {
                    if now >= since.max(waits_since.unwrap_or(began)) + link.silence_max(&self.limits) {
                        return WaitOutcome::Disconnected(why);
                    }
                    spins = false;
                }
                PumpOutcome::Closed => {
                    return WaitOutcome::Disconnected(DisconnectReason::Io(
                        "the client is closed".to_owned(),
                    ));
                }
                PumpOutcome::Quiet if wait == WaitStrategy::Default && spins => {
                    spins = now - began < budget;
                    // Let other threads run: this thread may be waiting for a thread that needs the same processor
                    // core.
                    std::thread::yield_now();
                }
                PumpOutcome::Quiet | PumpOutcome::Received => {}
            }
        }
    }

    /// Sleeps while another thread reads the connection. Ends when `done` returns `true` or at the time `until`. If the
    /// other thread stops reading, this thread reads the connection.
    #[cold]
    fn follow(
        &self,
        waker: &HandleWaker,
        wait: WaitStrategy,
        until: Option<Instant>,
        done: &mut impl FnMut() -> bool,
    ) -> WaitOutcome {
        let own_waker = thread_waker();
        let number = self.followers.next_number();
        let mut interrupt = Interrupt::current();
        loop {
            let waits_since = waker.set(&own_waker);
            self.followers.add_thread(number, &own_waker);
            let outcome = if done() {
                Some(WaitOutcome::Done)
            } else if let Ok(mut link) = self.link.try_lock() {
                self.followers.remove_thread(number);
                let waited = self.lead(&mut link, wait, until, Some(waits_since), done);
                drop(link);
                self.followers.wake_next_reader();
                Some(waited)
            } else if until.is_some_and(|until| Instant::now() >= until) {
                Some(WaitOutcome::TimedOut)
            } else if interrupt.is_due() {
                Some(WaitOutcome::Disconnected(DisconnectReason::Interrupted))
            } else {
                None
            };
            if let Some(outcome) = outcome {
                waker.clear();
                self.followers.remove_thread(number);
                return outcome;
            }
            let longest =
                until.map_or(TICK, |until| until.saturating_duration_since(Instant::now()).min(TICK));
            if self.outbox.flush() {
                std::thread::park_timeout(longest);
            } else {
                // The reading thread may be blocked, and then does not notice that bytes wait to be sent. This thread
                // therefore sends them when the socket has room.
                self.outbox.wait_for_room(Duration::from_millis(1));
            }
        }
    }

    /// Reads what has already arrived at the socket, without waiting. Does nothing if another thread reads.
    #[inline]
    pub(crate) fn try_pump(&self) -> PumpOutcome {
        let Ok(mut link) = self.link.try_lock() else { return PumpOutcome::Quiet };
        let pumped = link.pump(self, PumpWait::Now);
        drop(link);
        self.followers.wake_next_reader();
        pumped
    }
}
