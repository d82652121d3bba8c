//! Topics of a cluster: which node owns each, and how this node's publishers and readers come to it.
//!
//! Every node has every topic in its registry. Of one that another node owns the logs are *mirrors*: publishing to them hands
//! the records on, reading them has them fed from the owner, once for however many read. A topic that changes hands
//! stays the same object, so that nobody who holds it has to ask again where it is.
//!
//! Who owns what is agreed on ([`dunlin_control::Wanted`]). A node learns of it by what it asked itself, and by watching the keys of
//! topics and nodes ([`Ownership::settle`], [`Ownership::node`]).
//!
//! Invariants:
//! - A node takes records into a volatile topic only while its lease lasts by its own clock, counted from before it asked for
//!   it: so it stops before another can begin. A new lease counts once the node knows all that was agreed on before it.
//! - A node that was started again has nothing of its volatile topics: it begins another epoch of each before it takes part.
//! - What a publisher sends to one topic arrives in the order in which it was sent, whoever owns the topic meanwhile.
//! - What is handed on and has no answer when its owner is gone is sent again only under its producer's number; what has none
//!   is told to be unknown.
//!
//! Not here: connections between nodes ([`Peers`]); a durable topic of one's own, which is as it would be without a cluster.

mod feed;
mod handed;
mod inboxes;
mod interest;
mod keeper;
mod lease;
mod leaving;
mod membership;
mod presence;
mod settle;
mod way;

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use dunlin_control::{Command, Refusal, Reply};
use dunlin_topic::{SubscribeError, Topic};

use crate::clock::steady_ns;
use crate::error::TopicError;
use crate::node::{Inner, Node};
use crate::waiting::Waiters;

pub use feed::{Beginning, Feed, NODE_DOOR, Taken, is_mirror};
pub use handed::Handed;
pub(crate) use handed::Tickets;
pub(crate) use inboxes::InboxElsewhere;
use inboxes::Inboxes;
use interest::Remembered;
pub use interest::{Interest, InterestQuery};
use keeper::Keeper;
pub use membership::Membership;
pub(crate) use membership::{Outcome, Received};
pub use presence::Presence;
use way::Way;

/// How long a cluster that did not answer is not asked for owners again.
const ASK_PAUSE: Duration = Duration::from_millis(200);

/// How long nobody waits for the records of an owner that were waited for in vain.
const LATE_FOR: Duration = Duration::from_secs(5);

/// What a node keeps at most for topics that others own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnershipLimits {
    /// How long a node lives that gives no sign of life: then its volatile topics get other owners.
    pub lease_ttl: Duration,
    /// Bytes handed on to owners and not answered, of all topics; publishers wait then.
    pub handed_bytes_max: u64,
    /// How long an owner that is gone is waited for, or another looked for, before a publisher is told.
    pub owner_wait_max: Duration,
    /// How long a reader that begins waits for its mirror to stand where the owner does.
    pub mirror_wait_max: Duration,
    /// How long a mirror is kept fed that nobody reads.
    pub unread_max: Duration,
    /// Bytes that a mirror for one reader alone holds unread.
    pub private_bytes_max: u64,
    /// Mirrors for one reader each.
    pub private_mirrors_max: usize,
}

impl Default for OwnershipLimits {
    fn default() -> OwnershipLimits {
        OwnershipLimits {
            lease_ttl: Duration::from_secs(2),
            handed_bytes_max: 64 << 20,
            owner_wait_max: Duration::from_secs(5),
            mirror_wait_max: Duration::from_secs(2),
            unread_max: Duration::from_secs(5),
            private_bytes_max: 1 << 20,
            private_mirrors_max: 10_000,
        }
    }
}

/// Why nothing came of what the cluster was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// It was refused.
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// The cluster did not answer, or not so that it is known what it did.
    #[error("{0}")]
    Away(String),
}

/// The other nodes, as whoever has connections to them offers them. Nothing of it waits but [`Peers::ask`].
pub trait Peers: Send + Sync + Debug {
    /// Has the cluster take in a command; ends by itself in bounded time.
    fn ask(&self, command: &Command<'_>) -> Result<Reply, AskError>;

    /// Has it take in several, one after another; what came of each.
    fn ask_all(&self, commands: &[Command<'_>]) -> Vec<Result<Reply, AskError>> {
        commands.iter().map(|command| self.ask(command)).collect()
    }

    /// Sends a run to a node, behind those before it to the same topic; every one is [answered](Handed::answer) once.
    fn hand_on(&self, to: u64, run: Handed);

    /// Feeds mirrors from a node until [`Feed::is_wanted`] says that it is enough, or tells what stands in the way.
    fn feed(&self, from: u64, feed: Arc<Feed>);

    /// Asks a node for a membership of a `share` group, and brings what it is given until it [is not
    /// wanted](Membership::is_wanted) or has [ended](Membership::ended).
    fn join(&self, to: u64, membership: Arc<Membership>) {
        membership.ended(&SubscribeError::OwnerAway(format!("node {to} cannot be asked for memberships")));
    }

    /// Tells a node, the owner of a topic that keeps a state, that publishers of it are connected to this one, until that [is
    /// not wanted](Presence::is_wanted) any more; then, or where the node cannot be told, it has [ended](Presence::ended).
    fn announce(&self, _to: u64, _presence: Arc<Presence>) {}

    /// Queries a node for the interest there; [answered](InterestQuery::answer) once, within bounded time.
    fn query_interest(&self, _to: u64, query: InterestQuery) {
        drop(query);
    }

    /// A node takes part no more, however its connections stand: nothing that it was sent will be answered. What it has sent still
    /// counts: the last records of its durable topics may be on their way.
    fn gone(&self, _node: u64) {}

    /// A node takes part, for the first time or again.
    fn came(&self, _node: u64) {}
}

/// A node's part in who owns what.
#[derive(Debug)]
pub struct Ownership {
    /// The node's number in its cluster.
    id: u64,
    limits: OwnershipLimits,
    peers: Arc<dyn Peers>,
    node: Weak<Inner>,
    /// Until then, by the node's clock, its own lease is sure to last.
    lease_until_ns: AtomicU64,
    /// What was this node's in another life has been begun anew.
    is_anew: AtomicBool,
    /// It ends, and begins no other lease.
    is_leaving: AtomicBool,
    /// Those that take part, and where clients find them.
    alive: Mutex<BTreeMap<u64, Arc<str>>>,
    /// The lease under which the node takes part, as what it watches has told: all before it is known here.
    enlisted: AtomicU64,
    tickets: Arc<Tickets>,
    ways: Mutex<HashMap<Arc<str>, Arc<Way>>>,
    /// Topics that are not served, and nobody has been told.
    aside: Mutex<Vec<(String, String)>>,
    inboxes: Inboxes,
    heard_elsewhere: Remembered,
    /// Held while the registry is brought to what is agreed on.
    settling: Mutex<()>,
    private_mirrors: Arc<AtomicUsize>,
    /// When the cluster did not answer who is to own a topic, by the node's clock.
    asked_in_vain_ns: AtomicU64,
    /// Threads that wait for mirrors, by their owners.
    placing: Mutex<BTreeMap<u64, Waiters>>,
    /// Owners whose records were waited for in vain, and when that was last.
    late: Mutex<BTreeMap<u64, u64>>,
    keeper: Keeper,
}

impl Node {
    /// The node's topics are its cluster's from now on. Before its doors open, and before it has topics but durable ones.
    pub fn join_cluster(&self, id: u64, peers: Arc<dyn Peers>, limits: OwnershipLimits) -> Arc<Ownership> {
        let ownership = self.0.ownership.get_or_init(|| {
            Arc::new_cyclic(|this| Ownership {
                id,
                limits,
                peers,
                node: Arc::downgrade(&self.0),
                lease_until_ns: AtomicU64::new(0),
                is_anew: AtomicBool::new(false),
                is_leaving: AtomicBool::new(false),
                alive: Mutex::default(),
                enlisted: AtomicU64::new(0),
                tickets: Arc::new(Tickets::new(limits.handed_bytes_max)),
                ways: Mutex::default(),
                aside: Mutex::default(),
                inboxes: Inboxes::default(),
                heard_elsewhere: Remembered::default(),
                settling: Mutex::default(),
                private_mirrors: Arc::default(),
                asked_in_vain_ns: AtomicU64::new(0),
                placing: Mutex::default(),
                late: Mutex::default(),
                keeper: Keeper::start(this.clone()),
            })
        });
        Arc::clone(ownership)
    }

    /// Its part in who owns what, where it has one.
    pub fn ownership(&self) -> Option<&Arc<Ownership>> {
        self.0.ownership.get()
    }
}

impl Ownership {
    /// The node's number in its cluster.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The node's lease was kept alive by a question asked at `asked_ns`, by the clock that is never set, and lasts for so long
    /// from then.
    fn lease(&self, asked_ns: u64, ttl: Duration) {
        let until_ns = asked_ns.saturating_add(ttl.as_nanos().try_into().unwrap_or(u64::MAX));
        self.lease_until_ns.store(until_ns, Ordering::Release);
    }

    /// Whether the node's own lease is sure to last: it takes records of volatile topics that it owns.
    pub fn has_lease(&self) -> bool {
        steady_ns() < self.lease_until_ns.load(Ordering::Acquire)
    }

    /// A node takes part; clients find it at this address.
    fn came(&self, node: u64, address: &[u8]) {
        let address: Arc<str> = String::from_utf8_lossy(address).into();
        if lock(&self.alive).insert(node, address).is_none() {
            if node != self.id {
                self.peers.came(node);
            }
            self.keeper.look_at_all();
        }
    }

    /// A node takes part no more.
    fn left(&self, node: u64) {
        if lock(&self.alive).remove(&node).is_none() {
            return;
        }
        if node != self.id {
            self.peers.gone(node);
        }
        self.keeper.look_at_all();
    }

    /// Those that take part.
    pub fn nodes(&self) -> Vec<u64> {
        lock(&self.alive).keys().copied().collect()
    }

    /// Whether a node takes part.
    pub fn is_alive(&self, node: u64) -> bool {
        lock(&self.alive).contains_key(&node)
    }

    /// Where clients find a node that takes part.
    pub fn address_of(&self, node: u64) -> Option<Arc<str>> {
        lock(&self.alive).get(&node).filter(|address| !address.is_empty()).cloned()
    }

    /// Refuses what only a topic's owner can do, where that is another.
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

    /// Whether what is said to be this node's is so in this life of it: what it learns of before it begins anew may have been
    /// another's, in the same epoch.
    fn is_own_now(&self, owner: u64) -> bool {
        owner == self.id && self.is_anew.load(Ordering::Acquire)
    }

    pub(crate) fn placing(&self) -> MutexGuard<'_, BTreeMap<u64, Waiters>> {
        lock(&self.placing)
    }

    /// Whether a node's records were waited for in vain just now.
    fn is_late(&self, owner: u64) -> bool {
        let since_ns = lock(&self.late).get(&owner).map(|late_ns| steady_ns().saturating_sub(*late_ns));
        since_ns.is_some_and(|since_ns| since_ns < LATE_FOR.as_nanos() as u64)
    }

    fn was_late(&self, owner: u64) {
        lock(&self.late).insert(owner, steady_ns());
    }

    fn was_in_time(&self, owner: u64) {
        lock(&self.late).remove(&owner);
    }

    fn asked_in_vain(&self) {
        self.asked_in_vain_ns.store(steady_ns(), Ordering::Relaxed);
    }

    /// A cluster that did not answer just now is not asked for the next topic at once: that takes as long as its patience, and
    /// there is other work for who asks.
    fn was_asked_in_vain(&self) -> bool {
        let since_ns = steady_ns().saturating_sub(self.asked_in_vain_ns.load(Ordering::Relaxed));
        since_ns < ASK_PAUSE.as_nanos() as u64
    }

    fn embedded(&self) -> Option<Node> {
        self.node.upgrade().map(|inner| Node(inner, None))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
