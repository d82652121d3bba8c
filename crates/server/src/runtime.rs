//! A thread with a single-threaded async runtime, on which sessions run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dunlin::topic::format_duration;
use tokio::runtime::{Builder, Handle};
use tokio::sync::Notify;

use crate::error::StartError;
use crate::session::pace::wake_paused;
use crate::watchdog::Pulse;

/// Number of tasks that a spinning thread runs between two polls of all its sockets. A poll costs a system call, and
/// busy sessions poll their own sockets anyway.
const SPIN_EVENT_INTERVAL: u32 = 16;

/// Number of tasks that a thread runs between two polls of all its sockets, unless the thread spins. With the runtime's
/// default of 61, a single client that flooded the node delayed the other sockets by 20 ms.
const EVENT_INTERVAL: u32 = 2;

/// After this many tasks, a thread runs a task that was woken from another thread. With the runtime's default of 31,
/// such tasks would starve while sessions of the same thread wake each other.
const GLOBAL_QUEUE_INTERVAL: u32 = 2;

/// How long dropping a [`Runtime`] waits until its thread has ended.
const END_TIMEOUT: Duration = Duration::from_secs(3);
/// Pause between two checks whether the thread has ended.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// A running thread with its async runtime. Dropping the value ends the thread.
#[derive(Debug)]
pub(crate) struct Runtime {
    core: Core,
    stop: Arc<Notify>,
    pulse: Arc<Pulse>,
    thread: Option<JoinHandle<()>>,
}

/// A handle with which sessions are started on a thread. The thread can end while handles exist.
#[derive(Debug, Clone)]
pub(crate) struct Core {
    pub(crate) handle: Handle,
    /// Number of sessions that run on the thread.
    load: Arc<AtomicUsize>,
}

/// Counts one session on a thread until the value is dropped.
#[derive(Debug)]
pub(crate) struct SessionSlot(Arc<AtomicUsize>);

impl Runtime {
    pub(crate) fn start(name: String, spin: bool) -> Result<Runtime, StartError> {
        let failed = |error| StartError::Thread { name: name.clone(), error };
        let mut builder = Builder::new_current_thread();
        builder.enable_io().enable_time().global_queue_interval(GLOBAL_QUEUE_INTERVAL);
        let pulse = Pulse::new(&name);
        let (parks, unparks) = (Arc::clone(&pulse), Arc::clone(&pulse));
        builder.on_thread_park(move || parks.record_park()).on_thread_unpark(move || unparks.record_unpark());
        builder.event_interval(if spin { SPIN_EVENT_INTERVAL } else { EVENT_INTERVAL });
        let runtime = builder.build().map_err(failed)?;
        let handle = runtime.handle().clone();
        let stop = Arc::new(Notify::new());
        let stopped = Arc::clone(&stop);
        let thread_pulse = Arc::clone(&pulse);
        let run = move || {
            dunlin::forbid_waiting();
            thread_pulse.record_start();
            runtime.block_on(async move {
                if spin {
                    tokio::spawn(spin_forever());
                }
                tokio::spawn(wake_paused());
                stopped.notified().await;
            });
            // Blocking tasks may still run, and are not waited for.
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name(name.clone()).spawn(run).map_err(failed)?;
        let core = Core { handle, load: Arc::default() };
        Ok(Runtime { core, stop, pulse, thread: Some(thread) })
    }

    pub(crate) fn pulse(&self) -> &Arc<Pulse> {
        &self.pulse
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }
}

impl Core {
    pub(crate) fn load(&self) -> usize {
        self.load.load(Ordering::Relaxed)
    }

    pub(crate) fn reserve_slot(&self) -> SessionSlot {
        self.load.fetch_add(1, Ordering::Relaxed);
        SessionSlot(Arc::clone(&self.load))
    }
}

/// Is always ready, so that the runtime never sleeps.
async fn spin_forever() {
    loop {
        tokio::task::yield_now().await;
    }
}

impl Drop for Runtime {
    /// Waits up to [`END_TIMEOUT`] until the thread has ended; its remaining sessions are dropped. A thread that does
    /// not end in time is left running.
    fn drop(&mut self) {
        self.stop.notify_one();
        let Some(thread) = self.thread.take() else { return };
        let deadline = Instant::now() + END_TIMEOUT;
        while !thread.is_finished() && Instant::now() < deadline {
            thread::sleep(CHECK_INTERVAL);
        }
        if thread.is_finished() {
            // If the thread has panicked, the panic was reported when it happened.
            let _ = thread.join();
        } else {
            let timeout = format_duration(END_TIMEOUT);
            tracing::error!("thread {:?} has not ended within {timeout}", thread.thread().name());
        }
    }
}

impl Drop for SessionSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn dropped_runtime_does_not_wait_for_a_stuck_thread() {
        let runtime = Runtime::start("dunlin-stuck".to_owned(), false).unwrap();
        let (release, released) = mpsc::channel();
        let (started, started_signal) = mpsc::channel();
        runtime.core().handle.spawn(async move {
            let _ = started.send(());
            let _ = released.recv();
        });
        started_signal.recv().unwrap();
        drop(runtime);
        assert_eq!(release.send(()), Ok(()), "it was stuck all the while");
    }
}
