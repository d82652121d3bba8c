//! A table of the open subscriptions of `MessageBroker`, by which they are counted and ended.
//!
//! Limit: `grpc.message_subscribers_max` subscriptions for each topic.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dunlin::topic::Waiter;

use crate::grpc::connection::GrpcConnection;
use crate::grpc::reader::UNSUBSCRIBED;
use crate::shared::SharedServer;

/// The open subscriptions of `MessageBroker` of a server.
#[derive(Debug, Default)]
pub(in crate::grpc) struct MessageSubscriptions(Mutex<SubscriptionTable>);

#[derive(Debug, Default)]
struct SubscriptionTable {
    by_topic: HashMap<String, HashMap<String, SubscriptionEntry>>,
    last: u64,
}

#[derive(Debug)]
struct SubscriptionEntry {
    /// The user who subscribed; `None` on a node without users.
    user: Option<String>,
    subscriber: String,
    waiter: Arc<Waiter>,
}

/// The entry of an open subscription; dropping this removes the entry.
#[derive(Debug)]
pub(super) struct SubscriptionHandle {
    shared: Arc<SharedServer>,
    topic: String,
    reference: String,
}

impl MessageSubscriptions {
    /// Adds a subscription to the topic. `None` if the topic already has `subscribers_max` subscriptions.
    pub(super) fn add(
        &self,
        connection: &GrpcConnection,
        topic: &str,
        subscriber: &str,
        waiter: &Arc<Waiter>,
        subscribers_max: usize,
    ) -> Option<SubscriptionHandle> {
        let shared = &connection.shared;
        let mut table = self.lock();
        table.last += 1;
        let reference = format!("{:x}-{:x}", shared.node.id(), table.last);
        let entries = table.by_topic.entry(topic.to_owned()).or_default();
        if entries.len() >= subscribers_max {
            return None;
        }
        let user = connection.user_name().map(str::to_owned);
        let (subscriber, waiter) = (subscriber.to_owned(), Arc::clone(waiter));
        entries.insert(reference.clone(), SubscriptionEntry { user, subscriber, waiter });
        Some(SubscriptionHandle { shared: Arc::clone(shared), topic: topic.to_owned(), reference })
    }

    pub(super) fn count(&self, topic: &str) -> usize {
        self.lock().by_topic.get(topic).map_or(0, HashMap::len)
    }

    /// Ends those of the user's subscriptions to the topic that have `reference` as their reference or subscriber id.
    /// Returns whether there was any. Subscriptions of other users are not ended.
    pub(super) fn end(&self, user: Option<&str>, topic: &str, reference: &str) -> bool {
        let table = self.lock();
        let Some(entries) = table.by_topic.get(topic) else { return false };
        let is_match = |(name, entry): &(&String, &SubscriptionEntry)| {
            entry.user.as_deref() == user && (*name == reference || entry.subscriber == reference)
        };
        let mut found = false;
        for (_, entry) in entries.iter().filter(is_match) {
            entry.waiter.notify(UNSUBSCRIBED);
            found = true;
        }
        found
    }

    fn remove(&self, topic: &str, reference: &str) {
        let mut table = self.lock();
        if let Some(entries) = table.by_topic.get_mut(topic) {
            entries.remove(reference);
            if entries.is_empty() {
                table.by_topic.remove(topic);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, SubscriptionTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SubscriptionHandle {
    pub(super) fn reference(&self) -> &str {
        &self.reference
    }
}

impl Drop for SubscriptionHandle {
    fn drop(&mut self) {
        self.shared.grpc.subscriptions.remove(&self.topic, &self.reference);
    }
}
