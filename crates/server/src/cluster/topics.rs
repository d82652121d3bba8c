//! A node's part in the cluster's topics. The node applies the agreed owners to its topics, and connects to owners for
//! their records.
//!
//! A node connects to another node's cluster address with the cluster's certificate, and uses Dunlin's own protocol
//! there, chosen by ALPN. Client addresses, users and client certificates are not involved.
//!
//! Invariants:
//! - The node applies all changes of owners in the agreed order. For this purpose, the node subscribes to the topic of
//!   all changes, and reads the whole state after a gap.
//! - Changes from before the start are applied as a whole. A starting node replays all changes since the last snapshot,
//!   although its disk has later states. A topic that a replayed change deletes may have been created again, and then
//!   holds records.
//! - The node takes its share of topics only when it has applied everything that was agreed before its start.
//!
//! Limits: [`OwnershipLimits`]; a request to the cluster takes at most `answer_ms_max`.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use dunlin::state::{ControlCommand, ControlState, KeyEvents};
use dunlin::topic::{Event, Notice, OnGap, Start, Subscribe, SubscribeOptions, Subscriber, Wait};
use dunlin::{
    ClusterCommandError, Consistency, Control, ControlError, KV, Node, Ownership, OwnershipLimits,
    TopicError, block_on,
};
use dunlin_client::tls::TlsOptions;
use dunlin_client::{Address, ClientLimits, ClientOptions};

use super::authority::name_of;
use super::error::ClusterError;
use super::member::ClusterMember;
use crate::peers::NodeLinks;

/// Pause after a change, so that further changes are applied together with it. Keys change often, but owners of topics
/// seldom.
const REST: Duration = Duration::from_millis(1);
/// Time that a thread waits for changes before it checks whether it must end.
const LOOK: Duration = Duration::from_millis(200);
/// How long a stopping node waits until other nodes own its topics.
const LEAVE_WITHIN: Duration = Duration::from_secs(2);
/// How long a starting node waits for the history of earlier changes.
const HISTORY_WITHIN: Duration = Duration::from_secs(10);
/// Pause between two attempts of a request to the cluster.
const PAUSE: Duration = Duration::from_millis(100);

/// The node's part in the cluster's topics.
pub(super) struct ClusterTopics {
    ownership: Arc<Ownership>,
    shared: Arc<OwnershipFollower>,
}

/// Applies the agreed owners to the node's topics.
struct OwnershipFollower {
    seat: Weak<ClusterMember>,
    control: Arc<Control>,
    /// The last applied revision.
    revision: AtomicU64,
    ended: AtomicBool,
}

impl ClusterTopics {
    /// Starts to apply the cluster's owners and topics to this node.
    pub(super) fn start(
        node: &Node,
        seat: &Arc<ClusterMember>,
        control: &Arc<Control>,
        limits: OwnershipLimits,
    ) -> Result<ClusterTopics, ClusterError> {
        let id = seat.identity.node;
        let asked = Arc::clone(control);
        let ask = move |commands: &[ControlCommand<'_>]| match block_on(asked.ask_all(commands)) {
            Ok(answers) => {
                answers.into_iter().map(|answer| answer.map_err(ClusterCommandError::Refused)).collect()
            }
            Err(error) => vec![Err(ask_error(error)); commands.len()],
        };
        let (ways, of) = (ways(seat)?, Arc::downgrade(seat));
        let reach = move |to: u64| reach(&*of.upgrade()?, &ways, to);
        let ownership = node.join_cluster(id, Arc::new(NodeLinks::new(id, ask, reach)), limits);
        seat.set_ownership(&ownership);
        let (revision, ended) = (AtomicU64::new(0), AtomicBool::new(false));
        let (seat, control) = (Arc::downgrade(seat), Arc::clone(control));
        let shared = Arc::new(OwnershipFollower { seat, control, revision, ended });
        let (known, of) = (Arc::clone(&shared), Arc::downgrade(&ownership));
        let news =
            watch(node).map_err(|error| ClusterError::io("cannot watch topics")(io::Error::other(error)))?;
        spawn("dunlin-topics", move || known.follow(news, &of))?;
        Ok(ClusterTopics { ownership, shared })
    }

    /// Takes the node's share of topics as soon as the cluster responds: first announces the durable topics on this
    /// disk, then takes part in ownership.
    pub(super) fn own(&self) {
        let (known, of) = (Arc::clone(&self.shared), Arc::downgrade(&self.ownership));
        if let Err(error) = spawn("dunlin-topics-begin", move || known.own(&of)) {
            tracing::error!("this node cannot own topics until it is restarted: {error}");
        }
    }

    /// Gives this node's topics to other nodes, before it ends.
    pub(super) fn leave(&self) {
        if !self.shared.control.status().is_ok_and(|status| status.leader.is_some()) {
            // Without a leader, no owner can change.
            return;
        }
        let (left, done) = std::sync::mpsc::channel();
        let ownership = Arc::clone(&self.ownership);
        let leaving = move || {
            ownership.leave(LEAVE_WITHIN);
            let _ = left.send(());
        };
        if spawn("dunlin-leave", leaving).is_ok() {
            // Waits with a time limit, because the cluster may lose its leader in the meantime.
            let _ = done.recv_timeout(2 * LEAVE_WITHIN);
        }
    }

    pub(super) fn end(&self) {
        self.shared.ended.store(true, Ordering::Release);
    }
}

impl OwnershipFollower {
    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Applies the agreed changes as they arrive.
    fn follow(&self, mut news: Subscriber, ownership: &Weak<Ownership>) {
        let mut is_whole = self.begin(&mut news, ownership);
        while let Some(ownership) = ownership.upgrade().filter(|_| !self.has_ended()) {
            if !is_whole {
                let Ok(state) = self.control.with(ControlState::clone) else { return };
                ownership.settle_all(&state);
                self.revision.store(state.revision(), Ordering::Release);
                is_whole = true;
            }
            for (topic, why) in ownership.set_aside() {
                tracing::error!(topic, "a durable topic on this node's disk is not served: {why}");
            }
            match news.try_next() {
                Ok(Some(Event::Record(record))) => {
                    let revision = record.position.seq;
                    let Ok(events) = KeyEvents::new(record.payload()) else { continue };
                    if revision > self.revision.load(Ordering::Acquire) {
                        ownership.changed(events);
                        self.revision.store(revision, Ordering::Release);
                    } else {
                        // The state that was read as a whole includes this change already.
                        self.deleted_before(&ownership, Ownership::deleted_by(events));
                    }
                }
                Ok(Some(Event::Notice(Notice::Gap(_) | Notice::EpochChanged(_)))) => is_whole = false,
                Ok(Some(_)) => {}
                Ok(None) => match news.wait(Some(LOOK)) {
                    Ok(true) => thread::sleep(REST),
                    Ok(false) => {}
                    // The node has stopped, so the subscription ended.
                    Err(_) => return,
                },
                Err(_) => return,
            }
        }
    }

    /// Waits for the complete agreed state and applies it as a whole. Returns false if the node ends during the wait.
    fn begin(&self, news: &mut Subscriber, ownership: &Weak<Ownership>) -> bool {
        let mut deleted = BTreeSet::new();
        while !self.has_ended() {
            let state = block_on(self.control.read(Consistency::Linearizable, ControlState::clone));
            self.hear_of_deletions(news, state.as_ref().map_or(0, |state| state.revision()), &mut deleted);
            let Some(ownership) = ownership.upgrade() else { return false };
            if let Ok(state) = state {
                ownership.settle_all(&state);
                ownership.deleted_before(&state, deleted);
                self.revision.store(state.revision(), Ordering::Release);
                return true;
            }
            drop(ownership);
            thread::sleep(PAUSE);
        }
        false
    }

    /// Waits until the subscription has delivered all deletions up to a revision, which may be later than the revision
    /// of the state. Otherwise the node would announce topics on its disk that were deleted, and create them again.
    fn hear_of_deletions(&self, news: &mut Subscriber, revision: u64, deleted: &mut BTreeSet<String>) {
        let latest = Instant::now() + HISTORY_WITHIN;
        loop {
            while let Ok(Some(event)) = news.try_next() {
                if let Event::Record(record) = event
                    && let Ok(events) = KeyEvents::new(record.payload())
                {
                    deleted.extend(Ownership::deleted_by(events));
                }
            }
            let mut heard = 0;
            news.for_each_position(|_, at| heard = heard.max(at.seq));
            if heard >= revision || self.has_ended() {
                return;
            }
            if Instant::now() >= latest {
                tracing::error!(
                    heard,
                    revision,
                    "deleted topics may reappear: the history of deletions is missing"
                );
                return;
            }
            if news.wait(Some(LOOK)).is_err() {
                return;
            }
        }
    }

    fn deleted_before(&self, ownership: &Arc<Ownership>, names: impl Iterator<Item = String>) {
        let mut names = names.peekable();
        if names.peek().is_some()
            && let Ok(state) = self.control.with(ControlState::clone)
        {
            ownership.deleted_before(&state, names);
        }
    }

    fn own(&self, ownership: &Weak<Ownership>) {
        let mut is_known = false;
        while let Some(ownership) = ownership.upgrade().filter(|_| !self.has_ended()) {
            is_known = is_known || self.is_known();
            match if is_known { ownership.announce() } else { Err(unanswered()) } {
                Ok(()) => {
                    // Other nodes report these addresses to their clients.
                    let listeners = self.seat.upgrade().map(|seat| seat.listeners()).unwrap_or_default();
                    let address = listeners.get("tcp").cloned().unwrap_or_default();
                    if let Err(error) = ownership.take_part(address.into_bytes()) {
                        tracing::error!("this node cannot own topics: {error}");
                    }
                    return;
                }
                Err(error) => tracing::debug!("this node does not own topics yet: {error}"),
            }
            drop(ownership);
            thread::sleep(PAUSE);
        }
    }

    /// Waits until this node has applied the revision that was current at the call; returns false if that fails.
    fn is_known(&self) -> bool {
        let revision = block_on(self.control.read(Consistency::Linearizable, |state| state.revision()));
        let Ok(revision) = revision else { return false };
        while self.revision.load(Ordering::Acquire) < revision {
            if self.has_ended() {
                return false;
            }
            thread::sleep(Duration::from_millis(1));
        }
        true
    }
}

fn unanswered() -> TopicError {
    TopicError::Cluster("the node does not have the cluster's complete state yet".to_owned())
}

fn watch(node: &Node) -> Result<Subscriber, dunlin::topic::SubscribeError> {
    let options = SubscribeOptions {
        name: "the node's own".to_owned(),
        // Raft may have applied many entries before this subscription began.
        start: Start::Earliest,
        // A starting node receives a new epoch first. It has read no change yet, and must not skip the history.
        on_gap: OnGap::Oldest,
        wait: Wait::Parked,
        ..SubscribeOptions::default()
    };
    node.subscribe(KV, &options)
}

/// Options for connections to other nodes; the expected name in the certificate is set for each connection.
fn ways(seat: &ClusterMember) -> Result<ClientOptions, ClusterError> {
    let read = |name| {
        let path = seat.files.path(name);
        std::fs::read(&path).map_err(ClusterError::io("cannot read the node's certificate"))
    };
    let mut tls = TlsOptions::default();
    (tls.ca, tls.cert, tls.key) =
        (Some(read("ca.pem")?), Some(read("node.pem")?), Some(read("node-key.pem")?));
    let limits = ClientLimits { connect_ms_max: seat.limits.connect_ms_max, ..ClientLimits::default() };
    Ok(ClientOptions { tls, limits, ..ClientOptions::default() })
}

/// The address of a live node, and the options to connect to it.
fn reach(seat: &ClusterMember, ways: &ClientOptions, to: u64) -> Option<(Address, ClientOptions)> {
    // Does not contact a node without a lease until it has a lease again.
    seat.ownership().filter(|ownership| ownership.is_alive(to))?;
    let record = seat.record(to).filter(|record| record.removed.is_none())?;
    let (host, port) = record.address.rsplit_once(':')?;
    let address = Address::Tls { host: host.to_owned(), port: port.parse().ok()? };
    let mut options = ways.clone();
    options.tls.name = Some(name_of(&seat.identity.cluster, to));
    Some((address, options))
}

fn ask_error(error: ControlError) -> ClusterCommandError {
    match error {
        ControlError::Refused(refusal) => ClusterCommandError::Refused(refusal),
        other => ClusterCommandError::Away(other.to_string()),
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), ClusterError> {
    let thread = thread::Builder::new().name(name.to_owned()).spawn(run);
    thread.map(drop).map_err(ClusterError::io("cannot start a thread"))
}
