//! Runs the thread and the tasks of a group, and ends them.

use std::io;
use std::sync::mpsc::Receiver;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle, ThreadId};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// A thread that runs one group. Dropping this value waits until the thread has ended.
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
            // Discards openraft's log messages: openraft logs every late heartbeat, thirty times a second. The group's
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
            // The last handle may be dropped by a task on this thread. In this case, the code does not wait, because it
            // would wait for the end of its own thread.
            && thread.thread().id() != thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

/// The tasks of a group. Dropping this value ends the tasks and waits until all of them have ended.
pub(super) struct GroupTasks {
    pub(super) end: Option<oneshot::Sender<()>>,
    /// A channel that is disconnected when the tasks have ended.
    pub(super) ended: Mutex<Receiver<()>>,
    /// The thread that runs the tasks.
    pub(super) thread_id: ThreadId,
    /// The group's own thread, if it has one. This thread is dropped after the tasks.
    pub(super) _thread: Option<GroupThread>,
}

impl Drop for GroupTasks {
    fn drop(&mut self) {
        drop(self.end.take());
        // The last handle may be dropped by one of the tasks. In this case, this code runs on the tasks' thread, and
        // must not wait for the end of the tasks.
        if self.thread_id != thread::current().id() {
            let _ = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner).recv();
        }
    }
}
