//! The thread and tasks of a group, and how they end.

use std::io;
use std::sync::mpsc::Receiver;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle, ThreadId};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// A thread for one group. Dropping it waits for the thread's end.
pub(super) struct GroupThread {
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl GroupThread {
    pub(super) fn open() -> io::Result<(Handle, GroupThread)> {
        let runtime = Builder::new_current_thread().enable_time().build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        let run = move || {
            // Discards openraft's log messages: there is one for every late heartbeat, thirty a second. The group's
            // status reports the relevant events.
            tracing::dispatcher::with_default(&tracing::Dispatch::none(), || drop(runtime.block_on(ended)));
        };
        let thread = thread::Builder::new().name("raft".to_owned()).spawn(run)?;
        Ok((handle, GroupThread { end: Some(end), thread: Some(thread) }))
    }
}

impl Drop for GroupThread {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take()
            // A task on this thread may drop the last handle; the thread cannot wait for itself.
            && thread.thread().id() != thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

/// A group's tasks. Dropping this ends them and waits for their end.
pub(super) struct GroupTasks {
    pub(super) end: Option<oneshot::Sender<()>>,
    /// A channel that is disconnected when the tasks have ended.
    pub(super) ended: Mutex<Receiver<()>>,
    /// The thread that runs the tasks.
    pub(super) thread_id: ThreadId,
    /// The group's own thread, if it has one; dropped after the tasks.
    pub(super) _thread: Option<GroupThread>,
}

impl Drop for GroupTasks {
    fn drop(&mut self) {
        drop(self.end.take());
        // One of the tasks may drop the last handle; it cannot wait for itself.
        if self.thread_id != thread::current().id() {
            let _ = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner).recv();
        }
    }
}
