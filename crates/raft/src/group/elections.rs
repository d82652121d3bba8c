//! Measures the durations of the elections that this node wins.
//!
//! Raft's own thread takes the times, in the order of events. Even in a very short election, the moment at which this
//! node becomes a candidate is therefore not missed.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use openraft::ServerState;
use openraft::async_runtime::watch::WatchReceiver;

use super::OurRaft;

const WON_MAX: usize = 1_024;

/// The durations of the recent elections that this node won.
#[derive(Debug, Clone, Default)]
pub(super) struct Elections(Arc<Mutex<VecDeque<Duration>>>);

impl Elections {
    pub(super) fn won(&self) -> Vec<Duration> {
        self.lock().iter().copied().collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Duration>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Measures elections until the node ends.
    pub(super) async fn watch(self, raft: OurRaft) {
        let mut changes = raft.server_metrics();
        let mut candidate_since = None;
        while changes.changed().await.is_ok() {
            match changes.borrow_watched().state {
                ServerState::Candidate => candidate_since = candidate_since.or(Some(Instant::now())),
                ServerState::Leader => {
                    let Some(since) = candidate_since.take() else { continue };
                    let mut won = self.lock();
                    if won.len() == WON_MAX {
                        won.pop_front();
                    }
                    won.push_back(since.elapsed());
                }
                _ => candidate_since = None,
            }
        }
    }
}
