//! Runs the node's responders on the listeners' threads.

use std::sync::Arc;

use dunlin::{Runner, Running};
use tokio::runtime::Handle;

/// A request that arrives on a listener's thread is answered there. A request of any other thread is answered on
/// `first`.
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
