//! Tracks which node of a cluster owns each topic, and connects this node's publishers and subscribers to the owner.
//!
//! Every node has every topic in its registry. The logs of another node's topic are *mirrors*. A mirror forwards
//! published records to the owner, and the owner feeds the mirror once for all of its subscribers. A topic that changes
//! its owner stays the same object.
//!
//! The cluster agrees on owners ([`dunlin_control::OwnerRequest`]). A node learns them from responses to its own
//! requests, and from a watch of the keys of topics and nodes ([`Ownership::apply_placement`],
//! [`Ownership::apply_events`]).
//!
//! Invariants:
//! - A node appends to a volatile topic only while its lease lasts by its own clock, counted from the time before it
//!   requested the lease. It therefore stops before another node can become the owner. A node uses a new lease only
//!   when it knows everything on which the cluster agreed before that lease.
//! - A restarted node has no records of its volatile topics. Before it takes part, the node begins a new epoch of each.
//! - Records of one publisher arrive in the order in which they were sent, even if the topic's owner changes in
//!   between.
//! - A forwarded batch without a response is sent again only with its producer's number. Otherwise the publisher
//!   receives an unknown outcome.
//!
//! Not here: connections between nodes ([`PeerNodes`]), and durable topics of this node, which do not depend on the
//! cluster.

mod feed;
mod forwarded;
mod housekeeper;
mod inboxes;
mod interest;
mod lease;
mod leaving;
mod membership;
mod placements;
mod presence;
mod route;

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use dunlin_control::{ControlCommand, ControlRefusal, ControlReply};
use dunlin_topic::{SubscribeError, Topic};

use crate::clock::steady_ns;
use crate::error::TopicError;
use crate::node::{Inner, Node};
use crate::waiting::Waiters;

pub use feed::{MirrorFeed, MirrorFeedOutcome, MirrorFeedStart, NODE_PROTOCOL, is_mirror};
pub(crate) use forwarded::Tickets;
pub use forwarded::{InFlightBatch, last_flight};
use housekeeper::OwnershipHousekeeper;
pub(crate) use inboxes::RemoteInbox;
use inboxes::RemoteInboxes;
use interest::InterestCache;
pub use interest::{Interest, InterestQuery};
pub(crate) use membership::{RemoteEnd, RemoteEvent};
pub use membership::{RemoteMemberOptions, RemoteMembership};
pub use presence::PublisherPresence;
use route::Route;

/// The pause before the node asks the cluster for owners again, if the cluster did not respond to the previous request.
const REQUEST_PAUSE: Duration = Duration::from_millis(200);

/// After an owner's records did not arrive in time, subscribers do not wait for this owner during this period.
const LATE_PERIOD: Duration = Duration::from_secs(5);

/// Limits of a node for topics that other nodes own: waiting times, mirrors and forwarded bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnershipLimits {
    /// Time without a renewal after which a node counts as dead, and its volatile topics get other owners.
    pub lease_ttl: Duration,
    /// Maximum number of forwarded bytes without a response, for all topics together. Batches for one owner take at
    /// most three quarters of the bytes that batches for other owners leave free. At this limit, publishers to the
    /// owner wait.
    pub forwarded_bytes_max: u64,
    /// How long a publisher waits for an unreachable owner to return, or for a new owner.
    pub owner_wait_max: Duration,
    /// How long a new subscriber waits until its mirror has the records that the owner has.
    pub mirror_wait_max: Duration,
    /// How long a mirror without subscribers still receives records from the owner.
    pub unread_max: Duration,
    /// Maximum number of unread bytes of a mirror that serves a single subscriber.
    pub private_bytes_max: u64,
    /// Maximum number of mirrors that serve a single subscriber each.
    pub private_mirrors_max: usize,
}

impl Default for OwnershipLimits {
    fn default() -> OwnershipLimits {
        OwnershipLimits {
            lease_ttl: Duration::from_secs(2),
            forwarded_bytes_max: 64 << 20,
            owner_wait_max: Duration::from_secs(5),
            mirror_wait_max: Duration::from_secs(2),
            unread_max: Duration::from_secs(5),
            private_bytes_max: 1 << 20,
            private_mirrors_max: 10_000,
        }
    }
}

/// The reason why a command to the cluster has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClusterCommandError {
    /// The cluster refused the command.
    #[error("{0}")]
    Refused(#[from] ControlRefusal),
    /// The cluster did not respond, or the outcome is unknown.
    #[error("{0}")]
    Away(String),
}

/// The connections from a node to the other nodes of its cluster.
/// Only [`PeerNodes::propose`] and [`PeerNodes::propose_all`] may block.
pub trait PeerNodes: Send + Sync + Debug {
    /// Proposes a command to the cluster, within bounded time.
    fn propose(&self, command: &ControlCommand<'_>) -> Result<ControlReply, ClusterCommandError>;

    /// Proposes several commands, one after another; returns the result of each.
    fn propose_all(&self, commands: &[ControlCommand<'_>]) -> Vec<Result<ControlReply, ClusterCommandError>> {
        commands.iter().map(|command| self.propose(command)).collect()
    }

    /// Sends a batch to a node, after all earlier batches of the same topic. [`InFlightBatch::complete`] is called once
    /// for each batch.
    fn forward_batch(&self, to: u64, batch: InFlightBatch);

    /// Feeds mirrors from a node until [`MirrorFeed::is_needed`] returns `false`. If this is impossible, reports the
    /// reason with `MirrorFeed::ended`.
    fn feed_mirrors(&self, from: u64, feed: Arc<MirrorFeed>);

    /// Requests a membership of a `share` group from a node and delivers its records, until the membership is no longer
    /// [needed](RemoteMembership::is_needed) or has [ended](RemoteMembership::ended).
    fn join(&self, to: u64, membership: Arc<RemoteMembership>) {
        membership
            .ended(&SubscribeError::OwnerAway(format!("node {to} cannot keep memberships for other nodes")));
    }

    /// Reports to the owner of a state topic that publishers are connected here, until the report is no longer
    /// [needed](PublisherPresence::is_needed). Afterwards, or if the node cannot be reached, the presence has
    /// [ended](PublisherPresence::ended).
    fn announce(&self, _to: u64, _presence: Arc<PublisherPresence>) {}

    /// Sends `query` to a node, which asks whether the node has a subscriber for a subject. [`InterestQuery::respond`]
    /// is called once, within bounded time.
    fn query_interest(&self, _to: u64, query: InterestQuery) {
        drop(query);
    }

    /// Called when a node has left the cluster. The node will not respond to pending requests. Records that it has sent
    /// before are still used.
    fn node_left(&self, _node: u64) {}

    /// Called when a node takes part in the cluster, for the first time or again.
    fn node_joined(&self, _node: u64) {}
}

/// A node's table of topics' owners, with the routes to the topics that other nodes own.
#[derive(Debug)]
pub struct Ownership {
    /// The node's number in its cluster.
    id: u64,
    limits: OwnershipLimits,
    peers: Arc<dyn PeerNodes>,
    node: Weak<Inner>,
    /// The time at which this node's lease ends, by its own clock.
    lease_until_ns: AtomicU64,
    /// Whether this node has begun new epochs of the topics it owned before a restart.
    has_begun_epochs: AtomicBool,
    /// Whether the node is leaving the cluster and therefore begins no new lease.
    is_leaving: AtomicBool,
    /// The members of the cluster, each with its address for clients.
    members: Mutex<BTreeMap<u64, Arc<str>>>,
    /// The number of the lease under which the agreed state lists this node as a member. The node knows everything on
    /// which the cluster agreed before this lease.
    enlisted: AtomicU64,
    tickets: Arc<Tickets>,
    routes: Mutex<HashMap<Arc<str>, Arc<Route>>>,
    /// Topics that were set aside since the last report, with the reasons.
    set_aside_topics: Mutex<Vec<(String, String)>>,
    inboxes: RemoteInboxes,
    interest_cache: InterestCache,
    /// A lock that is held while the registry is updated to the agreed state.
    registry_update: Mutex<()>,
    private_mirrors: Arc<AtomicUsize>,
    /// The time, by the node's clock, of the last request for an owner to which the cluster did not respond.
    unanswered_request_ns: AtomicU64,
    /// The threads that wait for mirrors, by the owner whose records they need.
    mirror_waiters: Mutex<BTreeMap<u64, Waiters>>,
    /// Owners whose records did not arrive in time, each with the time of the latest such delay.
    late: Mutex<BTreeMap<u64, u64>>,
    housekeeper: OwnershipHousekeeper,
}

impl Node {
    /// Lets the cluster decide who owns the node's topics. Call this before listeners accept connections and before
    /// volatile topics exist.
    pub fn join_cluster(
        &self,
        id: u64,
        peers: Arc<dyn PeerNodes>,
        limits: OwnershipLimits,
    ) -> Arc<Ownership> {
        let ownership = self.0.ownership.get_or_init(|| {
            Arc::new_cyclic(|this| Ownership {
                id,
                limits,
                peers,
                node: Arc::downgrade(&self.0),
                lease_until_ns: AtomicU64::new(0),
                has_begun_epochs: AtomicBool::new(false),
                is_leaving: AtomicBool::new(false),
                members: Mutex::default(),
                enlisted: AtomicU64::new(0),
                tickets: Arc::new(Tickets::new(limits.forwarded_bytes_max)),
                routes: Mutex::default(),
                set_aside_topics: Mutex::default(),
                inboxes: RemoteInboxes::default(),
                interest_cache: InterestCache::default(),
                registry_update: Mutex::default(),
                private_mirrors: Arc::default(),
                unanswered_request_ns: AtomicU64::new(0),
                mirror_waiters: Mutex::default(),
                late: Mutex::default(),
                housekeeper: OwnershipHousekeeper::start(this.clone()),
            })
        });
        Arc::clone(ownership)
    }

    /// The node's table of topics' owners, if the node belongs to a cluster.
    pub fn ownership(&self) -> Option<&Arc<Ownership>> {
        self.0.ownership.get()
    }
}

impl Ownership {
    /// The node's number in its cluster.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Extends the node's lease: it lasts `ttl` from `requested_ns`, by the monotonic clock.
    fn extend_lease(&self, requested_ns: u64, ttl: Duration) {
        let until_ns = requested_ns.saturating_add(ttl.as_nanos().try_into().unwrap_or(u64::MAX));
        self.lease_until_ns.store(until_ns, Ordering::Release);
    }

    /// Whether the node's lease has certainly not ended, so that the node may append to its volatile topics.
    pub fn has_lease(&self) -> bool {
        steady_ns() < self.lease_until_ns.load(Ordering::Acquire)
    }

    /// Adds a member of the cluster with its address for clients.
    fn add_node(&self, node: u64, address: &[u8]) {
        let address: Arc<str> = String::from_utf8_lossy(address).into();
        if lock(&self.members).insert(node, address).is_none() {
            if node != self.id {
                self.peers.node_joined(node);
            }
            self.housekeeper.check_all();
        }
    }

    /// Removes a member of the cluster.
    fn remove_node(&self, node: u64) {
        if lock(&self.members).remove(&node).is_none() {
            return;
        }
        if node != self.id {
            self.peers.node_left(node);
        }
        self.housekeeper.check_all();
    }

    /// The ids of all members.
    pub fn nodes(&self) -> Vec<u64> {
        lock(&self.members).keys().copied().collect()
    }

    /// Whether a node is a member.
    pub fn is_alive(&self, node: u64) -> bool {
        lock(&self.members).contains_key(&node)
    }

    /// A member's address for clients.
    pub fn address_of(&self, node: u64) -> Option<Arc<str>> {
        lock(&self.members).get(&node).filter(|address| !address.is_empty()).cloned()
    }

    /// Returns an error if another node owns the topic, for operations that only the owner can do.
    pub(crate) fn check_owner(&self, topic: &Topic, what: &str) -> Result<(), TopicError> {
        let (node, _) = self.owner_of(topic);
        if node == self.id {
            return match self.is_draining(topic) {
                true => Err(TopicError::HandingOver(topic.name().to_owned())),
                false => Ok(()),
            };
        }
        let at = self.address_of(node).map_or_else(String::new, |address| format!(" at {address}"));
        let why = format!("topic {:?} is owned by node {node}{at}: {what} there only", topic.name());
        Err(TopicError::Elsewhere { node, why })
    }

    /// Whether `owner` is this node and the node has begun new epochs since its start. Before that, the cluster may
    /// still name the node as the owner because of the time before the start.
    fn owns_since_start(&self, owner: u64) -> bool {
        owner == self.id && self.has_begun_epochs.load(Ordering::Acquire)
    }

    pub(crate) fn mirror_waiters(&self) -> MutexGuard<'_, BTreeMap<u64, Waiters>> {
        lock(&self.mirror_waiters)
    }

    /// Whether records of this owner recently failed to arrive in time.
    fn is_late(&self, owner: u64) -> bool {
        let since_ns = lock(&self.late).get(&owner).map(|late_ns| steady_ns().saturating_sub(*late_ns));
        since_ns.is_some_and(|since_ns| since_ns < LATE_PERIOD.as_nanos() as u64)
    }

    fn record_late(&self, owner: u64) {
        lock(&self.late).insert(owner, steady_ns());
    }

    fn clear_late(&self, owner: u64) {
        lock(&self.late).remove(&owner);
    }

    fn record_unanswered_request(&self) {
        self.unanswered_request_ns.store(steady_ns(), Ordering::Relaxed);
    }

    /// Whether the cluster did not respond to a recent request. Another request would wait just as long and delay the
    /// caller's other work.
    fn has_recent_unanswered_request(&self) -> bool {
        let since_ns = steady_ns().saturating_sub(self.unanswered_request_ns.load(Ordering::Relaxed));
        since_ns < REQUEST_PAUSE.as_nanos() as u64
    }

    fn node_handle(&self) -> Option<Node> {
        self.node.upgrade().map(|inner| Node(inner, None))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
