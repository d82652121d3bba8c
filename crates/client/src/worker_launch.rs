//! The exchange between a worker process and the node that started it (`dunlin dev --workers …`), through environment
//! variables and standard input.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// The environment variable that contains the name under which the worker attaches.
pub const NAME_VARIABLE: &str = "DUNLIN_WORKER_NAME";
/// The environment variable that tells a worker to end when its standard input ends.
const END_WITH_STDIN_VARIABLE: &str = "DUNLIN_END_WITH_STDIN";
/// The environment variable that tells a worker to wait for the node's order before it attaches.
const WARM_VARIABLE: &str = "DUNLIN_WORKER_WARM";
/// The message with which a worker reports that it is ready to attach.
const PREPARED: &[u8] = b"prepared\n";

/// The interval at which a waiting worker checks for orders.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// The settings that a node gives to a worker process when it starts the process. The settings are empty if no node
/// started the process.
#[derive(Debug, Clone, Default)]
pub struct WorkerLaunch {
    name: Option<String>,
    is_warm: bool,
    may_attach: Arc<AtomicBool>,
    is_orphaned: Arc<AtomicBool>,
}

impl WorkerLaunch {
    /// Reads the environment variables. If they say that standard input is connected to the node, starts a thread that
    /// reads from standard input.
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
                // The node sends a line only to order the worker to attach.
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

    /// The name under which the worker attaches, so that the node recognizes it.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// A flag that is set when the node has ended. The worker then has to end too.
    pub fn orphaned(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_orphaned)
    }

    /// Waits until the worker may attach. A worker that the node started in advance waits for the node's order; other
    /// workers do not wait. Returns `false` if the worker has to end, because `stop` is set or the node is gone.
    pub fn wait_for_work(&self, stop: &AtomicBool) -> io::Result<bool> {
        let is_over = || stop.load(Ordering::Acquire) || self.is_orphaned.load(Ordering::Acquire);
        if self.is_warm {
            // The message is so short that one call writes it completely.
            rustix::io::write(io::stdin(), PREPARED)?;
            while !self.may_attach.load(Ordering::Acquire) && !is_over() {
                thread::sleep(CHECK_INTERVAL);
            }
        }
        Ok(!is_over())
    }
}
