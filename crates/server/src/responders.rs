//! Runs the node's responders on the listeners' threads.

use std::sync::Arc;

use dunlin::{ResponderExecutor, ResponderTask};
use tokio::runtime::Handle;

/// The listener's thread answers a request that arrives there. The thread `first` answers requests from other
/// threads.
#[derive(Debug)]
pub(crate) struct ListenerRunner {
    pub(crate) first: Handle,
}

impl ResponderExecutor for ListenerRunner {
    fn schedule(&self, woken: Arc<ResponderTask>) {
        let here = Handle::try_current();
        here.as_ref().unwrap_or(&self.first).spawn(async move { woken.run() });
    }
}
