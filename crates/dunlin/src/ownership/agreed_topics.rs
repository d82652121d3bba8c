//! Lets subscriptions with wildcards wait until a starting node knows the topics on which the cluster has agreed.
//! Without this wait, the node would take these topics for new ones, and would deliver their retained records to
//! subscriptions that want only new records.
//!
//! This module has no limit of its own. Each waiting subscription is an unfinished request, and the limits on the
//! requests of a connection or stream apply to it.

use std::sync::Mutex;

use tokio::sync::oneshot;

use super::{Ownership, lock};
use crate::error::TopicError;
use crate::waiting::TopicFuture;

/// Lets one waiting subscription begin, or refuses it.
type Admission = oneshot::Sender<Result<(), TopicError>>;

/// The subscriptions that wait for the cluster's topics; `None` once this node knows these topics.
#[derive(Debug)]
pub(super) struct EarlySubscriptions(Mutex<Option<Vec<Admission>>>);

impl Default for EarlySubscriptions {
    fn default() -> EarlySubscriptions {
        EarlySubscriptions(Mutex::new(Some(Vec::new())))
    }
}

impl EarlySubscriptions {
    /// Lets all subscriptions begin, because this node now knows the cluster's topics.
    pub(super) fn admit(&self) {
        let waiting = lock(&self.0).take().unwrap_or_default();
        waiting.into_iter().for_each(|waiting| drop(waiting.send(Ok(()))));
    }
}

impl Ownership {
    /// Returns a future that is ready once this node knows the topics that existed in the cluster when the node
    /// started.
    pub(crate) fn await_agreed_topics(&self) -> TopicFuture<()> {
        match &mut *lock(&self.early_subscriptions.0) {
            None => TopicFuture::ready(Ok(())),
            Some(waiting) => {
                let (send, receive) = oneshot::channel();
                waiting.push(send);
                TopicFuture::pending(receive)
            }
        }
    }

    /// Refuses the subscriptions that wait for the cluster's topics, because this node could not learn of these topics.
    pub fn refuse_early_subscriptions(&self, why: &str) {
        let waiting = lock(&self.early_subscriptions.0).as_mut().map(std::mem::take).unwrap_or_default();
        let refused = || Err(TopicError::Cluster(why.to_owned()));
        waiting.into_iter().for_each(|waiting| drop(waiting.send(refused())));
    }
}
