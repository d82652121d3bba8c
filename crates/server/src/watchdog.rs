//! Detects listeners' threads that are stalled. A thread is stalled if its present task does not return to the async
//! runtime, so that all connections of the thread wait.
//!
//! A thread records each time that it parks, that is, has nothing to do. If a thread has not parked since the last
//! check, the watchdog spawns a probe on it, which is a small task. The thread counts as stalled if the probe has not
//! run after [`STALL`]. Time in which the thread waits for a processor, or in which the whole process is stopped, does
//! not count.
//!
//! Each stall is logged once, with what the kernel reports about the thread, and is counted in
//! `dunlin_listener_stalls_total`. In debug builds, and with `DUNLIN_STALL=abort`, a stall aborts the process, so that
//! tests fail.

use std::fmt::{self, Write};
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

/// A thread counts as stalled if a probe has waited longer than this.
const STALL: Duration = Duration::from_secs(1);
/// Pause between two checks of the threads. If more time has passed, the watchdog itself was delayed, so only this much
/// is counted.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The activity of a listener's thread, which the thread records for the watchdog.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    name: String,
    /// The kernel's id of the thread; 0 before the thread runs.
    thread: AtomicU32,
    is_parked: AtomicBool,
    /// How often the thread has parked.
    parks: AtomicU64,
    /// The number of the last probe that ran on the thread.
    probe: AtomicU64,
}

impl Pulse {
    pub(crate) fn new(name: &str) -> Arc<Pulse> {
        // Until the thread runs, it counts as parked, and therefore not as stalled.
        Arc::new(Pulse { name: name.to_owned(), is_parked: AtomicBool::new(true), ..Pulse::default() })
    }

    /// Records the id of the current thread. The listener's thread calls this when it starts.
    pub(crate) fn record_start(&self) {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        self.thread.store(thread.unsigned_abs(), Ordering::Relaxed);
        self.is_parked.store(false, Ordering::Relaxed);
    }

    pub(crate) fn record_park(&self) {
        self.parks.fetch_add(1, Ordering::Relaxed);
        self.is_parked.store(true, Ordering::Relaxed);
    }

    pub(crate) fn record_unpark(&self) {
        self.is_parked.store(false, Ordering::Relaxed);
    }
}

/// Describes a stalled thread.
#[derive(Debug, Clone)]
pub(crate) struct Stall {
    pub(crate) thread: String,
    /// The thread's state, as the kernel reports it.
    kernel_state: String,
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stall { thread, kernel_state } = self;
        write!(
            f,
            "listener thread {thread} has been stalled for {STALL:?}; its connections wait. {kernel_state}"
        )
    }
}

/// Watches the listeners' threads for stalls. Dropping the value ends the watch.
#[derive(Debug)]
pub(crate) struct Watchdog {
    watched: Arc<Mutex<Vec<WatchedThread>>>,
    _stop: mpsc::Sender<()>,
}

impl Watchdog {
    /// Starts a thread that checks the watched threads, and calls `on_stall` once for each stall.
    pub(crate) fn start(on_stall: impl Fn(Stall) + Send + 'static) -> std::io::Result<Watchdog> {
        let watched = Arc::<Mutex<Vec<WatchedThread>>>::default();
        let (stop, stopped) = mpsc::channel::<()>();
        let thread_watched = Arc::clone(&watched);
        let run = move || {
            let mut last_check = Instant::now();
            while stopped.recv_timeout(CHECK_INTERVAL) == Err(mpsc::RecvTimeoutError::Timeout) {
                let step = last_check.elapsed().min(CHECK_INTERVAL);
                last_check = Instant::now();
                let mut watched = thread_watched.lock().unwrap_or_else(PoisonError::into_inner);
                watched.iter_mut().filter_map(|watched| watched.check(step)).for_each(&on_stall);
            }
        };
        thread::Builder::new().name("dunlin-watchdog".to_owned()).spawn(run)?;
        Ok(Watchdog { watched, _stop: stop })
    }

    pub(crate) fn watch(&self, pulse: &Arc<Pulse>, handle: &Handle) {
        let (pulse, handle) = (Arc::clone(pulse), handle.clone());
        let watched = WatchedThread {
            pulse,
            handle,
            parks: 0,
            last_probe: 0,
            stalled: Duration::ZERO,
            times: ThreadTimes::default(),
            is_reported: false,
        };
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).push(watched);
    }
}

/// A thread that the watchdog checks.
#[derive(Debug)]
struct WatchedThread {
    pulse: Arc<Pulse>,
    handle: Handle,
    /// How often the thread had parked at the last check.
    parks: u64,
    /// The number of the last probe that the watchdog spawned on the thread.
    last_probe: u64,
    /// How long the present probe has waited, not counting time in which the thread could not run.
    stalled: Duration,
    /// The running and waiting times of the thread at the last check.
    times: ThreadTimes,
    is_reported: bool,
}

/// The time for which a thread has run, and the time for which it has waited for a processor, both since its start.
/// Both are 0 if the system does not report them.
#[derive(Debug, Clone, Copy, Default)]
struct ThreadTimes {
    running_ns: u64,
    /// How long the thread has waited for a processor in total, ns. A wait that is still going on is not included.
    waiting_ns: u64,
}

impl ThreadTimes {
    fn of(thread: u32) -> ThreadTimes {
        let line = fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).unwrap_or_default();
        let mut numbers = line.split_whitespace().map_while(|ns| ns.parse().ok());
        ThreadTimes { running_ns: numbers.next().unwrap_or(0), waiting_ns: numbers.next().unwrap_or(0) }
    }

    /// Returns for how much of `step` the thread could have run. `since` has the thread's times at the beginning of the
    /// step.
    fn runnable_time(self, since: ThreadTimes, step: Duration, state: char) -> Duration {
        let between = |since: u64, now: u64| Duration::from_nanos(now.saturating_sub(since));
        match state {
            // The thread runs, or waits for a processor. Its present waiting time is not known, so its running time is
            // counted.
            'R' => between(since.running_ns, self.running_ns).min(step),
            _ => step.saturating_sub(between(since.waiting_ns, self.waiting_ns)),
        }
    }
}

impl WatchedThread {
    /// Checks the thread. `step` is the time since the last check. Returns a stall only once.
    fn check(&mut self, step: Duration) -> Option<Stall> {
        let WatchedThread { pulse, .. } = self;
        let thread = pulse.thread.load(Ordering::Relaxed);
        let times = ThreadTimes::of(thread);
        let since = std::mem::replace(&mut self.times, times);
        let parks = pulse.parks.load(Ordering::Relaxed);
        let has_parked = pulse.is_parked.load(Ordering::Relaxed) || parks != self.parks;
        self.parks = parks;
        if has_parked || pulse.probe.load(Ordering::Relaxed) == self.last_probe {
            (self.stalled, self.is_reported) = (Duration::ZERO, false);
            if !has_parked {
                self.last_probe += 1;
                let (pulse, probe) = (Arc::clone(&self.pulse), self.last_probe);
                self.handle.spawn(async move { pulse.probe.store(probe, Ordering::Relaxed) });
            }
            return None;
        }
        self.stalled += times.runnable_time(since, step, state(thread));
        if self.stalled < STALL || std::mem::replace(&mut self.is_reported, true) {
            return None;
        }
        Some(Stall { thread: self.pulse.name.clone(), kernel_state: describe_thread(thread) })
    }
}

/// The kernel's letter for the thread's state. `R` means that the thread runs or waits for a processor; with other
/// letters, it waits for something else.
fn state(thread: u32) -> char {
    let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap_or_default();
    stat.rsplit_once(')').and_then(|(_, rest)| rest.trim().chars().next()).unwrap_or('?')
}

/// Describes for operators what the thread waits for: the kernel function, the system call and the kernel stack.
fn describe_thread(thread: u32) -> String {
    let mut description = format!("Thread {thread}: state {}", state(thread));
    for name in ["wchan", "syscall", "stack"] {
        let text = fs::read_to_string(format!("/proc/self/task/{thread}/{name}")).unwrap_or_default();
        let text = text.trim().replace('\n', " ← ");
        if !text.is_empty() {
            let _ = write!(description, ", {name} {text}");
        }
    }
    description
}

/// Logs the stall. Aborts the process in debug builds, and if the environment variable `DUNLIN_STALL` is `abort`.
pub(crate) fn report(stall: &Stall) {
    tracing::error!("{stall}");
    let aborts = match std::env::var_os("DUNLIN_STALL") {
        Some(action) => action == "abort",
        None => cfg!(debug_assertions),
    };
    if aborts {
        eprintln!("{stall}");
        std::process::abort();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::runtime::Runtime;

    fn watched_runtime() -> (Runtime, Watchdog, mpsc::Receiver<Stall>) {
        let runtime = Runtime::start("dunlin-watched".to_owned(), false).unwrap();
        let (sender, stalls) = mpsc::channel();
        let watchdog = Watchdog::start(move |stall| drop(sender.send(stall))).unwrap();
        watchdog.watch(runtime.pulse(), &runtime.core().handle);
        (runtime, watchdog, stalls)
    }

    #[test]
    fn watchdog_does_not_count_time_spent_waiting_for_a_cpu() {
        let times = |running_ms: u64, waiting_ms: u64| ThreadTimes {
            running_ns: running_ms * 1_000_000,
            waiting_ns: waiting_ms * 1_000_000,
        };
        let runnable_time = |now: ThreadTimes, state| now.runnable_time(times(10, 20), CHECK_INTERVAL, state);
        assert_eq!(runnable_time(times(10, 20), 'R'), Duration::ZERO, "it still waits for a processor");
        assert_eq!(runnable_time(times(40, 20), 'R'), Duration::from_millis(30), "it ran a part of the time");
        assert_eq!(runnable_time(times(10, 20), 'S'), CHECK_INTERVAL, "it waits for something else");
        assert_eq!(runnable_time(times(10, 90), 'D'), Duration::from_millis(30), "it waited before");
    }

    #[test]
    fn blocked_thread_is_reported_once() {
        let (runtime, _watchdog, stalls) = watched_runtime();
        let (release, released) = mpsc::channel::<()>();
        runtime.core().handle.spawn(async move { _ = released.recv() });
        let stall = stalls.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!(stall.thread, "dunlin-watched");
        assert!(stall.to_string().contains("state S"), "{stall}");
        assert!(stalls.recv_timeout(3 * CHECK_INTERVAL).is_err());
        drop(release);
    }

    #[test]
    fn thread_that_never_yields_is_reported() {
        let (runtime, _watchdog, stalls) = watched_runtime();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        runtime.core().handle.spawn(async move { while !stopped.load(Ordering::Relaxed) {} });
        let stall = stalls.recv_timeout(Duration::from_secs(60));
        stop.store(true, Ordering::Relaxed);
        assert!(stall.is_ok());
    }

    #[test]
    fn busy_thread_that_yields_is_not_reported() {
        let (runtime, _watchdog, stalls) = watched_runtime();
        let busy = runtime.core().handle.spawn(async {
            while std::hint::black_box(true) {
                tokio::task::yield_now().await;
            }
        });
        assert!(stalls.recv_timeout(2 * STALL).is_err());
        busy.abort();
    }
}
