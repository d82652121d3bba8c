//! The traits through which the tests of the guarantees use every listener in the same way.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;

use super::trial::NodeUnderTest;

/// A listener under test.
pub trait Listener: Sync {
    /// The listener's name in the table of `docs/listeners.md`.
    fn name(&self) -> &'static str;

    /// Returns the listener's TCP address; `None` if the listener has no TCP address. A test that cuts connections puts
    /// a proxy between the client and this address.
    fn address(&self, node: &NodeUnderTest) -> Option<SocketAddr>;

    /// Returns the reason why this listener does not offer the guarantee; the table shows this reason. Returns `None`
    /// if the listener offers the guarantee.
    fn not_offered(&self, _promise: &str) -> Option<&'static str> {
        None
    }

    /// Returns a remark on the guarantee, for the table; `None` for no remark.
    fn remark(&self, _promise: &str) -> Option<&'static str> {
        None
    }

    /// Creates a client that connects to `address`. If the listener has no TCP address, `address` is `None`.
    fn connect_client(
        &self,
        node: &NodeUnderTest,
        address: Option<SocketAddr>,
    ) -> Result<Box<dyn ListenerClient>>;
}

/// A client that uses a node through one listener. If a listener does not offer requests or groups, its client does not
/// implement the methods for them. The default implementations return errors.
pub trait ListenerClient {
    /// Publishes a message and waits for the response. Returns the record's sequence number; `None` if the listener
    /// does not report sequence numbers.
    fn publish(&mut self, message: &Message<'_>) -> Result<Option<u64>>;

    fn subscribe(&mut self, options: &SubscriptionOptions<'_>) -> Result<Box<dyn ListenerSubscriber>>;

    /// Sends a request, and returns the payload of the first reply.
    fn request(&mut self, _subject: &str, _payload: &[u8]) -> Result<Vec<u8>> {
        anyhow::bail!("this listener has no requests")
    }

    /// Responds to every request on this subject until the client is dropped. Each reply is the payload of the request
    /// in upper case.
    fn respond(&mut self, _subject: &str) -> Result<()> {
        anyhow::bail!("this listener has no requests")
    }

    /// Joins a share group of the topic.
    fn join(&mut self, _topic: &str, _group: &str) -> Result<Box<dyn ListenerSubscriber>> {
        anyhow::bail!("this listener has no groups")
    }
}

/// A message to publish.
#[derive(Debug, Clone, Copy, Default)]
pub struct Message<'a> {
    pub subject: &'a str,
    pub payload: &'a [u8],
    pub headers: &'a [(&'a str, &'a str)],
}

/// The options of a subscription.
#[derive(Debug, Clone, Copy, Default)]
pub struct SubscriptionOptions<'a> {
    pub subject: &'a str,
    /// Whether to start at the oldest retained record. Otherwise the subscription starts after the newest record.
    pub from_earliest: bool,
    /// Whether to receive the state of a state topic first, and then its changes.
    pub with_state: bool,
}

/// A subscriber, which reads from its connection only during a call.
pub trait ListenerSubscriber {
    /// Returns the next event, or [`SubscriberEvent::Nothing`] if no event arrives within `patience`. If the listener
    /// reports an error, fails with this error.
    fn next(&mut self, patience: Duration) -> Result<SubscriberEvent>;
}

/// An event that a subscriber receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubscriberEvent {
    Record(ReceivedRecord),
    /// A gap: the sequence numbers of the first and the last missing record.
    Gap(u64, u64),
    /// The node warned the subscriber that it may soon miss records.
    Lagging,
    /// The topic has begun a new epoch.
    NewEpoch,
    /// A state that replaces all records up to this sequence number.
    State(u64),
    /// The listener closed the connection, for this reason.
    Disconnected(String),
    /// No event arrived in time.
    Nothing,
}

/// A record as a subscriber receives it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReceivedRecord {
    pub subject: String,
    /// The sequence number, if the listener reports it.
    pub seq: Option<u64>,
    pub payload: Vec<u8>,
    pub headers: Vec<(String, String)>,
}
