//! Runs the node's responders on the threads of the doors.

use std::sync::Arc;

use dunlin::{Runner, Running};
use tokio::runtime::Handle;

/// A request that came in over a socket is answered on that socket's thread; one that was published
/// by another thread, on the first of the door.
#[derive(Debug)]
pub(crate) struct OnDoorThreads {
    pub(crate) first: Handle,
}

impl Runner for OnDoorThreads {
    fn schedule(&self, woken: Arc<Running>) {
        let here = Handle::try_current();
        here.as_ref().unwrap_or(&self.first).spawn(async move { woken.run() });
    }
}
