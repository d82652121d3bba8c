//! How a worker process and the node that has started it (`dunlin dev --workers …`) exchange messages: through
//! environment variables and the worker's standard input.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// The environment variable that contains the name under which the worker attaches.
pub const NAME_VARIABLE: &str = "DUNLIN_WORKER_NAME";
/// The environment variable that tells the worker to end when its standard input ends.
const END_WITH_STDIN_VARIABLE: &str = "DUNLIN_END_WITH_STDIN";
/// The environment variable that tells the worker to wait for an order of the node before it attaches.
const WARM_VARIABLE: &str = "DUNLIN_WORKER_WARM";
/// The message that tells the node that the worker is ready to attach.
const PREPARED: &[u8] = b"prepared\n";

/// The interval at which a waiting worker checks whether the order to attach has arrived.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// The settings that a node has given to this worker process when it started the process. Empty if no node has started
/// this process.
#[derive(Debug, Clone, Default)]
pub struct WorkerLaunch {
    name: Option<String>,
    is_warm: bool,
    may_attach: Arc<AtomicBool>,
    is_orphaned: Arc<AtomicBool>,
}

impl WorkerLaunch {
    /// Reads the environment variables. If a node has started this process, also starts a thread that reads the node's
    /// orders from standard input.
    pub fn from_env() -> WorkerLaunch {
        let is_set = |variable| std::env::var_os(variable).is_some_and(|value| !value.is_empty());
        let launch = WorkerLaunch {
            name: std::env::var(NAME_VARIABLE).ok().filter(|name| !name.is_empty()),
            is_warm: is_set(WARM_VARIABLE),
            ..WorkerLaunch::default()
        };
        if launch.is_warm || is_set(END_WITH_STDIN_VARIABLE) {
            let listener = launch.clone();
            thread::spawn(move || listener.listen());
        }
        launch
    }

    fn listen(&self) {
        let mut buffer = [0; 64];
        let mut stdin = io::stdin().lock();
        loop {
            match stdin.read(&mut buffer) {
                Ok(0) => break,
                // A line from the node is always the order to attach.
                Ok(count) if buffer[..count].contains(&b'\n') => {
                    self.may_attach.store(true, Ordering::Release)
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        self.is_orphaned.store(true, Ordering::Release);
    }

    /// The name under which the worker has to attach, so that the node recognizes it.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns a flag that is set when the node has ended. The worker must then end too.
    pub fn orphaned(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_orphaned)
    }

    /// Waits until the worker may attach. A worker that the node has started in advance waits for an order of the node;
    /// other workers do not wait. Returns `false` if the worker has to end, because `stop` is set or the node has
    /// ended.
    pub fn wait_for_work(&self, stop: &AtomicBool) -> io::Result<bool> {
        let is_over = || stop.load(Ordering::Acquire) || self.is_orphaned.load(Ordering::Acquire);
        if self.is_warm {
            // One call writes the whole message, because it is so short.
            rustix::io::write(io::stdin(), PREPARED)?;
            while !self.may_attach.load(Ordering::Acquire) && !is_over() {
                thread::sleep(CHECK_INTERVAL);
            }
        }
        Ok(!is_over())
    }
}
