//! Handles signals. The first Ctrl-C or SIGTERM requests the end of the command, and a second one ends the process at
//! once. SIGHUP requests that a node reads its configuration files again.

use std::cell::OnceCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dunlin_client::interruptible;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;

/// The interval at which a sleeping thread checks whether it has to wake up.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How long a command that has to end still waits for a response of its node.
pub const GRACE: Duration = Duration::from_secs(1);
/// The exit code of a process that Ctrl-C has ended, as shells report it.
const INTERRUPTED: i32 = 130;

/// Makes a write that exceeds the process's limit for the size of files fail, as on a full disk. By default, such a
/// write sends SIGXFSZ, which ends the process.
pub fn ignore_file_size_signal() {
    // If the handler cannot be installed, the default behaviour stays.
    let _ = flag::register(SIGXFSZ, Arc::default());
}

/// A flag that the signal SIGHUP sets, so that the node reads its configuration files again.
#[derive(Debug, Clone)]
pub struct ReloadFlag(Arc<AtomicBool>);

impl ReloadFlag {
    /// Installs the signal handler.
    pub fn on_signal() -> Result<ReloadFlag> {
        let requested = Arc::new(AtomicBool::new(false));
        flag::register(SIGHUP, Arc::clone(&requested)).context("cannot listen for signals")?;
        Ok(ReloadFlag(requested))
    }

    /// Returns whether a reload was requested since the last call of this method.
    pub fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

/// A flag that requests the end of the command. The flag of `StopFlag::default()` is not set by signals.
#[derive(Debug, Clone, Default)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// Returns a flag that SIGINT and SIGTERM set.
    pub fn on_signal() -> Result<StopFlag> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // The order matters: this handler ends the process if the flag is set, and the next one sets the flag.
            // Therefore, only a second signal ends the process.
            flag::register_conditional_shutdown(signal, INTERRUPTED, Arc::clone(&stop))
                .and_then(|_| flag::register(signal, Arc::clone(&stop)))
                .context("cannot listen for signals")?;
        }
        Ok(StopFlag(stop))
    }

    /// Also sets the flag when the program that reads standard output, such as `head -1`, has ended. Otherwise, a
    /// command would notice the program's end only at the command's next write, which may never come.
    pub fn set_when_stdout_closes(&self) {
        let stop = self.clone();
        thread::spawn(move || {
            let out = std::io::stdout();
            // `poll` reports a closed pipe even if the caller requests no event. If standard output is a file, this
            // wait never ends.
            let mut poll_fds = [PollFd::new(&out, PollFlags::empty())];
            while poll(&mut poll_fds, None) == Err(Errno::INTR) {}
            if poll_fds[0].revents().intersects(PollFlags::ERR | PollFlags::HUP) {
                stop.set();
            }
        });
    }

    /// Makes the flag also be set when standard input ends.
    pub fn set_when_stdin_ends(&self) {
        let stop = self.clone();
        thread::spawn(move || {
            let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
            stop.set();
        });
    }

    /// Ends the process if it has not ended by itself within `grace` after the flag was set.
    pub fn enforce_exit_within(&self, grace: Duration) {
        let stop = self.clone();
        thread::spawn(move || {
            while !stop.is_set() {
                thread::sleep(POLL_INTERVAL);
            }
            thread::sleep(grace);
            eprintln!("error: the node did not end within {grace:?} after the signal, and exits now");
            std::process::exit(1);
        });
    }

    /// Returns a stop flag that shares `flag` with another component. The other component can set the flag.
    pub fn of(flag: Arc<AtomicBool>) -> StopFlag {
        StopFlag(flag)
    }

    #[cfg(test)]
    pub fn never() -> StopFlag {
        StopFlag::default()
    }

    /// Runs `call` and returns its result. When the flag is set, every wait for a node inside `call` is interrupted,
    /// and the result is `None`.
    pub fn run_interruptible<T>(&self, call: impl FnOnce() -> Result<T>) -> Result<Option<T>> {
        self.run_interruptible_after(Duration::ZERO, call)
    }

    /// Like [`run_interruptible`](StopFlag::run_interruptible), but the waits inside `call` may last another `grace`
    /// after the flag is set.
    pub fn run_interruptible_after<T>(
        &self,
        grace: Duration,
        call: impl FnOnce() -> Result<T>,
    ) -> Result<Option<T>> {
        let (stop, set_at) = (self.clone(), OnceCell::new());
        let is_over = move || stop.is_set() && set_at.get_or_init(Instant::now).elapsed() >= grace;
        match interruptible(is_over, call) {
            Err(_) if self.is_set() => Ok(None),
            done => done.map(Some),
        }
    }

    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Sleeps for `span`, or until the flag is set.
    pub fn sleep(&self, span: Duration) {
        let until = Instant::now() + span;
        while !self.is_set()
            && let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
        {
            thread::sleep(left.min(POLL_INTERVAL));
        }
    }

    /// Returns the flag itself, so that other components can read it.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }

    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
