//! Runs the node's responders, which answer requests, on the threads of the listeners.

use std::sync::Arc;

use dunlin::{ResponderExecutor, ResponderTask};
use tokio::runtime::Handle;

/// Runs responders. A request that was received on a listener's thread is answered on the same thread. Any other
/// request is answered on the thread `first`.
#[derive(Debug)]
pub(crate) struct ListenerRunner {
    pub(crate) first: Handle,
}

impl ResponderExecutor for ListenerRunner {
    fn schedule(&self, task: Arc<ResponderTask>) {
        let current = Handle::try_current();
        current.as_ref().unwrap_or(&self.first).spawn(async move { task.run() });
    }
}
