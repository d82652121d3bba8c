//! Tracks which node of a cluster owns each topic, and connects this node's publishers and subscribers to the owner.
//!
//! Every node has every topic in its registry. The logs of a topic that another node owns are *mirrors*. A mirror
//! forwards published records to the owner. The owner sends each record to the mirror once, for all of the mirror's
//! subscribers. When a topic's owner changes, each node keeps using the same `Topic` object.
//!
//! The cluster agrees on owners ([`dunlin_control::OwnerRequest`]). A node learns the owners from responses to its own
//! requests, and from a watch of the keys of topics and nodes ([`Ownership::apply_placement`],
//! [`Ownership::apply_events`]).
//!
//! Invariants:
//! - A node appends to a volatile topic only while its lease lasts. The node measures the lease by its own clock, from
//!   the moment at which it requested the lease. It therefore stops before another node can become the owner. A node
//!   uses a new lease only when it knows everything on which the cluster agreed before that lease.
//! - A restarted node has no records of its volatile topics. Before the node appends to such a topic, it begins a new
//!   epoch of the topic.
//! - Records of one publisher arrive in the order in which they were sent, even if the topic's owner changes in
//!   between.
//! - A forwarded batch without a response is sent again only if its producer has numbered it. Otherwise the publisher
//!   receives an error: the outcome is unknown.
//!
//! Not here: connections between nodes ([`PeerNodes`]), and durable topics of this node, which do not depend on the
//! cluster.

mod agreed_topics;
mod feed;
mod feed_sources;
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

use agreed_topics::EarlySubscriptions;
pub use feed::{MirrorFeed, MirrorFeedOutcome, MirrorFeedStart, NODE_PROTOCOL, is_mirror};
use feed_sources::{DeletedTopics, DurablePlacement};
pub(crate) use forwarded::{ForwardTarget, Tickets};
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

/// The pause after a request for owners to which the cluster did not respond. The node sends no other such request
/// during this pause.
const REQUEST_PAUSE: Duration = Duration::from_millis(200);

/// If an owner's records did not arrive in time, other subscribers do not wait for records of this owner during the
/// following period.
const LATE_PERIOD: Duration = Duration::from_secs(5);

/// A node's limits for topics that other nodes own: waiting times, the number and size of mirrors, and forwarded bytes;
/// and for deleted topics that other nodes still read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnershipLimits {
    /// If a node does not renew its lease for this time, it counts as dead, and its volatile topics get other owners.
    pub lease_ttl: Duration,
    /// Maximum number of forwarded bytes without a response, for all owners together. Batches for one owner may take at
    /// most three quarters of the bytes that all other batches leave free. Batches for one reliable or durable topic
    /// may take a sixteenth of all bytes. At such a limit, publishers to that owner or topic wait.
    pub forwarded_bytes_max: u64,
    /// How long a publisher waits for an unreachable owner to return, or for a new owner.
    pub owner_wait_max: Duration,
    /// How long a new subscriber waits until this node's mirror has received all records that the owner has.
    pub mirror_wait_max: Duration,
    /// How long the owner still sends records to a mirror that has no subscribers.
    pub unread_max: Duration,
    /// Maximum size of the unread records in a mirror that serves a single subscriber, bytes.
    pub private_bytes_max: u64,
    /// Maximum number of this node's mirrors that serve a single subscriber each.
    pub private_mirrors_max: usize,
    /// How long a node keeps a deleted topic that it owned, for nodes that learned of the topic late.
    pub deleted_topic_age_max: Duration,
    /// Maximum size of the deleted topics that a node keeps for other nodes, bytes. The node keeps fewer if its memory
    /// budget has no room.
    pub deleted_topics_bytes_max: u64,
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
            deleted_topic_age_max: Duration::from_secs(10),
            deleted_topics_bytes_max: 16 << 20,
        }
    }
}

/// The reason why a command to the cluster has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClusterCommandError {
    /// The cluster refused the command; nothing changed.
    #[error("{0}")]
    Refused(#[from] ControlRefusal),
    /// The cluster did not respond, or the outcome is unknown.
    #[error("{0}")]
    Away(String),
}

/// A node's connections to the other nodes of its cluster. Only [`PeerNodes::propose`] and [`PeerNodes::propose_all`]
/// may block.
pub trait PeerNodes: Send + Sync + Debug {
    /// Proposes a command to the cluster. Returns within a limited time.
    fn propose(&self, command: &ControlCommand<'_>) -> Result<ControlReply, ClusterCommandError>;

    /// Proposes several commands, one after another. Returns the result of each.
    fn propose_all(&self, commands: &[ControlCommand<'_>]) -> Vec<Result<ControlReply, ClusterCommandError>> {
        commands.iter().map(|command| self.propose(command)).collect()
    }

    /// Sends a batch to the node `to`, after all earlier batches of the same topic. For each batch,
    /// [`InFlightBatch::complete`] is called once.
    fn forward_batch(&self, to: u64, batch: InFlightBatch);

    /// Receives records from the node `from` for this node's mirrors, until [`MirrorFeed::is_needed`] returns `false`.
    /// If the node cannot send its records, reports the reason with `MirrorFeed::ended`.
    fn feed_mirrors(&self, from: u64, feed: Arc<MirrorFeed>);

    /// Joins a `share` group at the node `to` and delivers the group's records to `membership`, until the membership is
    /// no longer [needed](RemoteMembership::is_needed) or has [ended](RemoteMembership::ended).
    fn join(&self, to: u64, membership: Arc<RemoteMembership>) {
        membership.ended(&SubscribeError::OwnerAway(format!(
            "node {to} does not accept group members from other nodes"
        )));
    }

    /// Tells the node `to` that publishers of its state topic are connected to this node. The report lasts as long as
    /// the presence is [needed](PublisherPresence::is_needed). Afterwards, or if `to` cannot be reached, calls
    /// [`PublisherPresence::ended`].
    fn announce(&self, _to: u64, _presence: Arc<PublisherPresence>) {}

    /// Asks the node `to` whether it has a subscriber for the subject of `query`. [`InterestQuery::respond`] is called
    /// once, within a limited time.
    fn query_interest(&self, _to: u64, query: InterestQuery) {
        drop(query);
    }

    /// Called when a node has left the cluster. The node will not respond to pending requests. This node still uses the
    /// records that the other node sent before it left.
    fn node_left(&self, _node: u64) {}

    /// Called when a node has become a member of the cluster, for the first time or again.
    fn node_joined(&self, _node: u64) {}
}

/// A node's knowledge of which node owns each topic, with the routes to the topics that other nodes own.
#[derive(Debug)]
pub struct Ownership {
    /// This node's number in the cluster.
    id: u64,
    limits: OwnershipLimits,
    peers: Arc<dyn PeerNodes>,
    node: Weak<Inner>,
    /// The time at which this node's lease ends, by this node's monotonic clock.
    lease_until_ns: AtomicU64,
    /// Whether this node, after a restart, has begun new epochs of the topics that it owned before.
    has_begun_epochs: AtomicBool,
    /// Whether this node is leaving the cluster, and therefore requests no new lease.
    is_leaving: AtomicBool,
    /// The members of the cluster. Each value is the member's address for clients.
    members: Mutex<BTreeMap<u64, Arc<str>>>,
    /// The number of the lease under which the agreed state lists this node as a member. This node knows everything on
    /// which the cluster agreed before that lease.
    enlisted: AtomicU64,
    early_subscriptions: EarlySubscriptions,
    tickets: Arc<Tickets>,
    routes: Mutex<HashMap<Arc<str>, Arc<Route>>>,
    /// The durable topics that this node owns, and that have no route.
    own_durable_topics: Mutex<HashMap<String, DurablePlacement>>,
    deleted_topics: Arc<DeletedTopics>,
    /// Durable topics whose files this node has [set aside](Node::set_aside) and not reported yet, each with the reason.
    set_aside_topics: Mutex<Vec<(String, String)>>,
    inboxes: RemoteInboxes,
    interest_cache: InterestCache,
    /// A lock that is held while the topics in the registry are adapted to the agreed state.
    registry_update: Mutex<()>,
    private_mirrors: Arc<AtomicUsize>,
    /// The time, by the monotonic clock, of the last request for owners to which the cluster did not respond.
    unanswered_request_ns: AtomicU64,
    /// The threads that wait for records in mirrors, by the owner that sends these records.
    mirror_waiters: Mutex<BTreeMap<u64, Waiters>>,
    /// Owners whose records did not arrive in time. The value is the time, by the monotonic clock, at which a waiting
    /// subscriber last noticed this.
    late: Mutex<BTreeMap<u64, u64>>,
    housekeeper: OwnershipHousekeeper,
}

impl Node {
    /// Makes this node a member of a cluster, which then decides which node owns a topic. Call this before listeners
    /// accept connections and before volatile topics exist.
    pub fn join_cluster(
        &self,
        id: u64,
        peers: Arc<dyn PeerNodes>,
        limits: OwnershipLimits,
    ) -> Arc<Ownership> {
        let ownership = self.0.ownership.get_or_init(|| {
            let deleted_topics = Arc::<DeletedTopics>::default();
            let reclaimable: Weak<DeletedTopics> = Arc::downgrade(&deleted_topics);
            self.budget().set_reclaimable(reclaimable);
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
                early_subscriptions: EarlySubscriptions::default(),
                tickets: Arc::new(Tickets::new(limits.forwarded_bytes_max)),
                routes: Mutex::default(),
                own_durable_topics: Mutex::default(),
                deleted_topics,
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

    /// This node's knowledge of which node owns each topic; `None` if the node belongs to no cluster.
    pub fn ownership(&self) -> Option<&Arc<Ownership>> {
        self.0.ownership.get()
    }
}

impl Ownership {
    /// This node's number in the cluster.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Extends this node's lease until `ttl` after `requested_ns`, by the monotonic clock.
    fn extend_lease(&self, requested_ns: u64, ttl: Duration) {
        let until_ns = requested_ns.saturating_add(ttl.as_nanos().try_into().unwrap_or(u64::MAX));
        self.lease_until_ns.store(until_ns, Ordering::Release);
    }

    /// Whether this node's lease is certainly still valid. A node may append to its volatile topics only while its
    /// lease is valid.
    pub fn has_lease(&self) -> bool {
        steady_ns() < self.lease_until_ns.load(Ordering::Acquire)
    }

    /// Adds a member of the cluster. `address` is the member's address for clients.
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

    /// The numbers of all members.
    pub fn nodes(&self) -> Vec<u64> {
        lock(&self.members).keys().copied().collect()
    }

    /// Whether the node `node` is a member of the cluster.
    pub fn is_alive(&self, node: u64) -> bool {
        lock(&self.members).contains_key(&node)
    }

    /// The address of a member for clients, if the member has one.
    pub fn address_of(&self, node: u64) -> Option<Arc<str>> {
        lock(&self.members).get(&node).filter(|address| !address.is_empty()).cloned()
    }

    /// Returns an error if another node owns the topic. Called for operations that only the owner can do; `what` names
    /// the operation for the error's text.
    pub(crate) fn check_owner(&self, topic: &Topic, what: &str) -> Result<(), TopicError> {
        let (node, _) = self.owner_of(topic);
        if node == self.id {
            return match self.is_draining(topic) {
                true => Err(TopicError::HandingOver(topic.name().to_owned())),
                false => Ok(()),
            };
        }
        let at = self.address_of(node).map_or_else(String::new, |address| format!(" at {address}"));
        let why = format!("topic {:?} is owned by node {node}{at}: {what} only at that node", topic.name());
        Err(TopicError::Elsewhere { node, why })
    }

    /// Whether `owner` is this node, and this node has begun new epochs since its start. Before it has begun them, the
    /// cluster may still name this node as the owner of topics that it owned before the start.
    fn owns_since_start(&self, owner: u64) -> bool {
        owner == self.id && self.has_begun_epochs.load(Ordering::Acquire)
    }

    pub(crate) fn mirror_waiters(&self) -> MutexGuard<'_, BTreeMap<u64, Waiters>> {
        lock(&self.mirror_waiters)
    }

    /// Whether this owner's records have recently failed to arrive in time.
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

    /// Whether the cluster has recently not responded to a request. Another request would then probably also receive no
    /// response, and would delay the caller.
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
