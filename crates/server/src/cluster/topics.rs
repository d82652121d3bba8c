//! Applies the cluster's agreement about topics and their owners to this node's topics, and connects this node to the
//! owners.
//!
//! A node connects to an owner at the port for other nodes, with its certificate from the cluster. By ALPN, it selects
//! Dunlin's own protocol on this connection. The addresses, users and certificates of clients are not involved.
//!
//! Invariants:
//! - The node applies all changes of owners in the agreed order. To receive the changes, the node subscribes to the
//!   topic `$kv`; after a gap, it reads the whole state.
//! - Changes from before the start are applied together, as one state. A starting node replays all changes since the
//!   last snapshot. If it applied them one by one, an old deletion could delete a topic that was created again later
//!   and has records.
//! - The node becomes the owner of topics only after it has applied all changes that were agreed before its start.
//!
//! Limits: [`OwnershipLimits`]; a request to the cluster takes at most `answer_ms_max`.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use dunlin::state::{ControlCommand, ControlState, KeyEvents};
use dunlin::topic::{Event, Notice, OnGap, Start, Subscribe, SubscribeOptions, Subscriber, WaitStrategy};
use dunlin::{
    ClusterCommandError, Consistency, ControlError, ControlGroup, KV, Node, Ownership, OwnershipLimits,
    TopicError, block_on,
};
use dunlin_client::tls::TlsOptions;
use dunlin_client::{Address, ClientLimits, ClientOptions};

use super::authority::certificate_name;
use super::error::ClusterError;
use super::member::ClusterMember;
use crate::peers::NodeLinks;

/// After a change arrives, the node pauses for this time, and then applies the change together with all that have
/// arrived meanwhile. Most changes of keys concern no owner, so the delay matters little.
const BATCH_PAUSE: Duration = Duration::from_millis(1);
/// Longest time for which the thread waits for changes before it checks whether it must end.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// How long a stopping node waits until other nodes have become the owners of its topics.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a starting node waits until it has received the changes that were made before its start.
const HISTORY_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between two attempts of a request to the cluster.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// The part of a cluster's member that manages topics: it applies the agreed owners to this node's topics, and connects
/// to these owners.
pub(super) struct ClusterTopics {
    ownership: Arc<Ownership>,
    shared: Arc<OwnershipFollower>,
}

/// Follows the agreed owners and applies them to this node's topics.
struct OwnershipFollower {
    member: Weak<ClusterMember>,
    control: Arc<ControlGroup>,
    /// The revision of the last change that was applied.
    revision: AtomicU64,
    ended: AtomicBool,
}

impl ClusterTopics {
    /// Starts a thread that applies the agreed topics and owners to this node.
    pub(super) fn start(
        node: &Node,
        member: &Arc<ClusterMember>,
        control: &Arc<ControlGroup>,
        limits: OwnershipLimits,
    ) -> Result<ClusterTopics, ClusterError> {
        let id = member.identity.node;
        let command_control = Arc::clone(control);
        let send_commands =
            move |commands: &[ControlCommand<'_>]| match block_on(command_control.execute_all(commands)) {
                Ok(replies) => {
                    replies.into_iter().map(|reply| reply.map_err(ClusterCommandError::Refused)).collect()
                }
                Err(error) => vec![Err(command_error(error)); commands.len()],
            };
        let (connect_options, weak_member) = (connect_options(member)?, Arc::downgrade(member));
        let resolve = move |to: u64| resolve(&*weak_member.upgrade()?, &connect_options, to);
        let ownership = node.join_cluster(id, Arc::new(NodeLinks::new(id, send_commands, resolve)), limits);
        member.set_ownership(&ownership);
        let (revision, ended) = (AtomicU64::new(0), AtomicBool::new(false));
        let (member, control) = (Arc::downgrade(member), Arc::clone(control));
        let shared = Arc::new(OwnershipFollower { member, control, revision, ended });
        let (follower, weak_ownership) = (Arc::clone(&shared), Arc::downgrade(&ownership));
        let changes =
            watch(node).map_err(|error| ClusterError::io("cannot watch topics")(io::Error::other(error)))?;
        spawn("dunlin-topics", move || follower.follow(changes, &weak_ownership))?;
        Ok(ClusterTopics { ownership, shared })
    }

    /// Lets this node own topics as soon as the cluster responds. The node first announces the durable topics on its
    /// disk. Then other topics may be assigned to the node too.
    pub(super) fn take_share(&self) {
        let (follower, weak_ownership) = (Arc::clone(&self.shared), Arc::downgrade(&self.ownership));
        if let Err(error) = spawn("dunlin-topics-begin", move || follower.take_share(&weak_ownership)) {
            tracing::error!("this node cannot own topics until it is restarted: {error}");
        }
    }

    /// Hands this node's topics over to other nodes. Call this before the node ends.
    pub(super) fn leave(&self) {
        if !self.shared.control.status().is_ok_and(|status| status.leader.is_some()) {
            // Without a leader, the cluster cannot agree on other owners.
            return;
        }
        let (finished, done) = std::sync::mpsc::channel();
        let ownership = Arc::clone(&self.ownership);
        let leaving = move || {
            ownership.leave(LEAVE_TIMEOUT);
            let _ = finished.send(());
        };
        if spawn("dunlin-leave", leaving).is_ok() {
            // The cluster may lose its leader during the handover, so the wait has a time limit.
            let _ = done.recv_timeout(2 * LEAVE_TIMEOUT);
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

    /// Applies agreed changes as they arrive, until the node ends.
    fn follow(&self, mut changes: Subscriber, ownership: &Weak<Ownership>) {
        let mut is_complete = self.begin(&mut changes, ownership);
        while let Some(ownership) = ownership.upgrade().filter(|_| !self.has_ended()) {
            if !is_complete {
                let Ok(state) = self.control.with(ControlState::clone) else { return };
                ownership.apply_state(&state);
                self.revision.store(state.revision(), Ordering::Release);
                is_complete = true;
            }
            for (topic, why) in ownership.take_set_aside() {
                tracing::error!(topic, "a durable topic on this node's disk is not served: {why}");
            }
            match changes.try_next() {
                Ok(Some(Event::Record(record))) => {
                    let revision = record.position.seq;
                    let Ok(events) = KeyEvents::new(record.payload()) else { continue };
                    if revision > self.revision.load(Ordering::Acquire) {
                        ownership.apply_events(events);
                        self.revision.store(revision, Ordering::Release);
                    } else {
                        // The state that this node applied as a whole already includes the change. Only topics that the
                        // change deleted may still have to be removed here.
                        self.remove_if_deleted(&ownership, Ownership::deleted_topics(events));
                    }
                }
                Ok(Some(Event::Notice(Notice::Gap(_) | Notice::EpochChanged(_)))) => is_complete = false,
                Ok(Some(_)) => {}
                Ok(None) => match changes.wait(Some(CHECK_INTERVAL)) {
                    Ok(true) => thread::sleep(BATCH_PAUSE),
                    Ok(false) => {}
                    // The subscription ended because the node has stopped.
                    Err(_) => return,
                },
                Err(_) => return,
            }
        }
    }

    /// Waits for the complete agreed state and applies it. Returns false if the node ends before that.
    fn begin(&self, changes: &mut Subscriber, ownership: &Weak<Ownership>) -> bool {
        let mut deleted = BTreeSet::new();
        while !self.has_ended() {
            let revision = block_on(self.control.read(Consistency::Linearizable, ControlState::revision));
            self.collect_deletions(changes, *revision.as_ref().unwrap_or(&0), &mut deleted);
            let Some(ownership) = ownership.upgrade() else { return false };
            // The subscription does not deliver a collected change again, even if the change is later than `revision`.
            // No change is lost, because each change is applied to this node's state before subscribers receive it, and
            // the state is read after the collection.
            match (revision, self.control.with(ControlState::clone)) {
                (Ok(_), Ok(state)) => {
                    ownership.apply_state(&state);
                    ownership.remove_deleted_topics(&state, deleted);
                    self.revision.store(state.revision(), Ordering::Release);
                    return true;
                }
                (Err(error), _) | (_, Err(error)) => ownership.refuse_early_subscriptions(&error.to_string()),
            }
            drop(ownership);
            thread::sleep(RETRY_PAUSE);
        }
        false
    }

    /// Adds to `deleted` the names of topics that `changes` delete. Returns when all changes up to `revision` were
    /// read, or after [`HISTORY_TIMEOUT`].
    ///
    /// Without these names, the node would announce topics on its disk that were deleted while the node was down, and
    /// the cluster would create them again.
    fn collect_deletions(&self, changes: &mut Subscriber, revision: u64, deleted: &mut BTreeSet<String>) {
        let deadline = Instant::now() + HISTORY_TIMEOUT;
        loop {
            while let Ok(Some(event)) = changes.try_next() {
                if let Event::Record(record) = event
                    && let Ok(events) = KeyEvents::new(record.payload())
                {
                    deleted.extend(Ownership::deleted_topics(events));
                }
            }
            let mut read_up_to = 0;
            changes.for_each_position(|_, at| read_up_to = read_up_to.max(at.seq));
            if read_up_to >= revision || self.has_ended() {
                return;
            }
            if Instant::now() >= deadline {
                tracing::error!(
                    read_up_to,
                    revision,
                    "deleted topics may reappear: the history of deletions is missing"
                );
                return;
            }
            if changes.wait(Some(CHECK_INTERVAL)).is_err() {
                return;
            }
        }
    }

    fn remove_if_deleted(&self, ownership: &Arc<Ownership>, names: impl Iterator<Item = String>) {
        let mut names = names.peekable();
        if names.peek().is_some()
            && let Ok(state) = self.control.with(ControlState::clone)
        {
            ownership.remove_deleted_topics(&state, names);
        }
    }

    fn take_share(&self, ownership: &Weak<Ownership>) {
        let mut is_caught_up = false;
        while let Some(ownership) = ownership.upgrade().filter(|_| !self.has_ended()) {
            is_caught_up = is_caught_up || self.wait_until_caught_up();
            match if is_caught_up { ownership.register_durable_topics() } else { Err(incomplete_state()) } {
                Ok(()) => {
                    // Other nodes give this address to their clients.
                    let listeners =
                        self.member.upgrade().map(|member| member.listeners()).unwrap_or_default();
                    let address = listeners.get("tcp").cloned().unwrap_or_default();
                    if let Err(error) = ownership.begin_membership(address.into_bytes()) {
                        tracing::error!("this node cannot own topics: {error}");
                    }
                    return;
                }
                Err(error) => tracing::debug!("this node does not own topics yet: {error}"),
            }
            drop(ownership);
            thread::sleep(RETRY_PAUSE);
        }
    }

    /// Waits until this node has applied the revision that is current at the call. Returns false if that revision
    /// cannot be read or the node ends.
    fn wait_until_caught_up(&self) -> bool {
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

fn incomplete_state() -> TopicError {
    TopicError::Cluster("the node does not have the cluster's complete state yet".to_owned())
}

fn watch(node: &Node) -> Result<Subscriber, dunlin::topic::SubscribeError> {
    let options = SubscribeOptions {
        name: "the node's own".to_owned(),
        // Raft may apply many entries before the subscription begins, and their changes must not be missed.
        start: Start::Earliest,
        // A starting node first receives a new epoch, which counts as a gap. The node has not read any change yet, so
        // it must read the history from the beginning.
        on_gap: OnGap::Oldest,
        wait: WaitStrategy::Parked,
        // With this option, the subscription does not wait until the node has applied its log. The node cannot wait for
        // that during its start.
        local_only: true,
        ..SubscribeOptions::default()
    };
    node.subscribe(KV, &options)
}

/// Options for connections to other nodes. For each connection, the caller also sets the name that the certificate must
/// have.
fn connect_options(member: &ClusterMember) -> Result<ClientOptions, ClusterError> {
    let read = |name| {
        let path = member.files.path(name);
        std::fs::read(&path).map_err(ClusterError::io("cannot read the node's certificate"))
    };
    let mut tls = TlsOptions::default();
    (tls.ca, tls.cert, tls.key) =
        (Some(read("ca.pem")?), Some(read("node.pem")?), Some(read("node-key.pem")?));
    let limits = ClientLimits { connect_ms_max: member.limits.connect_ms_max, ..ClientLimits::default() };
    Ok(ClientOptions { tls, limits, ..ClientOptions::default() })
}

/// The address of a node, and the options with which to connect to it; `None` if the node has no lease or is not a
/// member.
fn resolve(
    member: &ClusterMember,
    connect_options: &ClientOptions,
    to: u64,
) -> Option<(Address, ClientOptions)> {
    // A node without a lease is not contacted until it has a lease again.
    member.ownership().filter(|ownership| ownership.is_alive(to))?;
    let record = member.record(to).filter(|record| record.removed.is_none())?;
    let (host, port) = record.address.rsplit_once(':')?;
    let address = Address::Tls { host: host.to_owned(), port: port.parse().ok()? };
    let mut options = connect_options.clone();
    options.tls.name = Some(certificate_name(&member.identity.cluster, to));
    Some((address, options))
}

fn command_error(error: ControlError) -> ClusterCommandError {
    match error {
        ControlError::Refused(refusal) => ClusterCommandError::Refused(refusal),
        other => ClusterCommandError::Away(other.to_string()),
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), ClusterError> {
    let thread = thread::Builder::new().name(name.to_owned()).spawn(run);
    thread.map(drop).map_err(ClusterError::io("cannot start a thread"))
}

#[cfg(test)]
mod tests {
    use std::sync::Once;

    use dunlin::Config;
    use dunlin::state::ControlReply;
    use dunlin::topic::{ConsumeMode, Cursor, Filter, Publish as _};

    use super::*;

    /// Makes node 2 a member of the cluster, with a lease.
    fn enlist(control: &ControlGroup) {
        let granted = block_on(control.execute(&ControlCommand::Grant { ttl_ms: 24 * 3_600_000 })).unwrap();
        let ControlReply::Granted { lease, .. } = granted else { panic!("{granted:?}") };
        block_on(control.execute(&ControlCommand::Enlist { node: 2, lease, value: b"" })).unwrap();
    }

    #[test]
    fn node_applies_changes_made_during_its_start() {
        let cluster = Node::start(Config::default()).unwrap();
        let control = Arc::clone(cluster.control().unwrap());
        let revision = || control.with(ControlState::revision).unwrap();
        block_on(control.execute(&ControlCommand::Put { key: b"k", value: b"", lease: 0 })).unwrap();
        assert_eq!(revision(), 1);
        // In this test, the topic `changes` takes the place of `$kv`. When the first record is read, the filter below
        // calls `enlist`, so that a change happens after the revision was read.
        let mut publisher = cluster.publisher("changes").unwrap();
        for _ in 0..2 {
            publisher.publish("").unwrap();
        }
        let (second, filter_control) = (Once::new(), Arc::clone(&control));
        let filter = Filter::new(move |_: &str| {
            second.call_once(|| enlist(&filter_control));
            true
        });
        let log = Arc::clone(&cluster.topic("changes").unwrap().logs()[0]);
        let options = SubscribeOptions { start: Start::Earliest, ..SubscribeOptions::default() };
        let cursor = Cursor::new(log, &options, Some(filter), ConsumeMode::Reads).unwrap();
        let mut changes = Subscriber::one(cursor, WaitStrategy::Parked);
        assert_eq!(revision(), 1, "nothing is read yet");

        let node = Node::start(Config::default()).unwrap();
        let links = Arc::new(NodeLinks::new(1, |_| Vec::new(), |_| None));
        let ownership = node.join_cluster(1, links, OwnershipLimits::default());
        let follower = OwnershipFollower {
            member: Weak::new(),
            control: Arc::clone(&control),
            revision: AtomicU64::new(0),
            ended: AtomicBool::new(false),
        };
        assert!(follower.begin(&mut changes, &Arc::downgrade(&ownership)));
        assert!(changes.try_next().unwrap().is_none(), "the node has skipped both changes");
        assert_eq!((follower.revision.load(Ordering::Acquire), revision()), (2, 2));
        assert!(ownership.is_alive(2));
    }
}
