//! Where a group runs, and how it ends there.

use std::io;
use std::sync::mpsc::Receiver;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle, ThreadId};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// A thread with nothing on it but a group. Dropped, it has ended.
pub(super) struct Home {
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Home {
    pub(super) fn open() -> io::Result<(Handle, Home)> {
        let runtime = Builder::new_current_thread().enable_time().build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        let run = move || {
            // openraft warns of every sign of life that is late, thirty a second; what matters of it is in the status.
            tracing::dispatcher::with_default(&tracing::Dispatch::none(), || drop(runtime.block_on(ended)));
        };
        let thread = thread::Builder::new().name("raft".to_owned()).spawn(run)?;
        Ok((handle, Home { end: Some(end), thread: Some(thread) }))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take()
            // Whoever held it last may be a task of that very thread.
            && thread.thread().id() != thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

/// A group's tasks. Dropped, they are asked to end, and waited for.
pub(super) struct Running {
    pub(super) end: Option<oneshot::Sender<()>>,
    /// Told when they have ended.
    pub(super) over: Mutex<Receiver<()>>,
    /// The thread they run on.
    pub(super) on: ThreadId,
    /// Ends behind them.
    pub(super) _home: Option<Home>,
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.end.take());
        // Whoever held it last may be one of them.
        if self.on != thread::current().id() {
            let _ = self.over.get_mut().unwrap_or_else(PoisonError::into_inner).recv();
        }
    }
}
