//! The cluster's topics, as this node has them: what it hears of who owns which, and how it reaches the others for their records.
//!
//! A node reaches another at the address where it is for the cluster, and shows the cluster's certificate there: what it speaks is
//! door `tcp`'s protocol, chosen by ALPN. Clients' addresses, users and certificates have no part in it.
//!
//! Invariants:
//! - The node knows of every change of an owner in the order in which it was agreed on: it watches the topic of all changes, and
//!   where that has a hole it looks at the whole.
//! - What was agreed on before it began is taken in as a whole. A node that begins is given all of the past again that no snapshot has, and
//!   what lies on its disk is not of the past: a topic that is deleted there may be made again since, and have taken records.
//! - It takes its share only when it knows all that was agreed on before it began.
//!
//! Limits: [`OwnershipLimits`]; what is asked of the cluster takes `answer_ms_max` at most.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use dunlin::state::{Command, Events, State};
use dunlin::topic::{Event, Notice, OnGap, Start, Subscribe, SubscribeOptions, Subscriber, Wait};
use dunlin::{
    AskError, Consistency, Control, ControlError, KV, Node, Ownership, OwnershipLimits, TopicError, block_on,
};
use dunlin_client::tls::TlsOptions;
use dunlin_client::{Address, Limits, Options};

use super::authority::name_of;
use super::error::ClusterError;
use super::seat::Seat;
use crate::peers::NodeLinks;

/// Keys may change all the time, and few changes are about topics: those of so long are taken in together.
const REST: Duration = Duration::from_millis(1);
/// How long a thread waits for news before it looks whether it is to end.
const LOOK: Duration = Duration::from_millis(200);
/// How long a node that ends waits until others have its topics.
const LEAVE_WITHIN: Duration = Duration::from_secs(2);
/// How long a node that begins waits for the history of what was agreed on before.
const HISTORY_WITHIN: Duration = Duration::from_secs(10);
/// Between two tries of what the cluster did not answer.
const PAUSE: Duration = Duration::from_millis(100);

/// The node's part in the cluster's topics.
pub(super) struct Topics {
    ownership: Arc<Ownership>,
    shared: Arc<Known>,
}

/// How much of what was agreed on the node's topics are at.
struct Known {
    seat: Weak<Seat>,
    control: Arc<Control>,
    /// Taken in up to this revision.
    revision: AtomicU64,
    ended: AtomicBool,
}

impl Topics {
    /// The node's topics are the cluster's from now on.
    pub(super) fn start(
        node: &Node,
        seat: &Arc<Seat>,
        control: &Arc<Control>,
        limits: OwnershipLimits,
    ) -> Result<Topics, ClusterError> {
        let id = seat.identity.node;
        let asked = Arc::clone(control);
        let ask = move |commands: &[Command<'_>]| match block_on(asked.ask_all(commands)) {
            Ok(answers) => answers.into_iter().map(|answer| answer.map_err(AskError::Refused)).collect(),
            Err(error) => vec![Err(ask_error(error)); commands.len()],
        };
        let (ways, of) = (ways(seat)?, Arc::downgrade(seat));
        let reach = move |to: u64| reach(&*of.upgrade()?, &ways, to);
        let ownership = node.join_cluster(id, Arc::new(NodeLinks::new(id, ask, reach)), limits);
        seat.set_ownership(&ownership);
        let (revision, ended) = (AtomicU64::new(0), AtomicBool::new(false));
        let (seat, control) = (Arc::downgrade(seat), Arc::clone(control));
        let shared = Arc::new(Known { seat, control, revision, ended });
        let (known, of) = (Arc::clone(&shared), Arc::downgrade(&ownership));
        let news =
            watch(node).map_err(|error| ClusterError::io("cannot watch topics")(io::Error::other(error)))?;
        spawn("dunlin-topics", move || known.follow(news, &of))?;
        Ok(Topics { ownership, shared })
    }

    /// Takes its share as soon as the cluster answers: says which durable topics lie here, and takes part.
    pub(super) fn own(&self) {
        let (known, of) = (Arc::clone(&self.shared), Arc::downgrade(&self.ownership));
        if let Err(error) = spawn("dunlin-topics-begin", move || known.own(&of)) {
            tracing::error!("this node owns no topics: {error}");
        }
    }

    /// Has others own what this node does, before it ends.
    pub(super) fn leave(&self) {
        if !self.shared.control.status().is_ok_and(|status| status.leader.is_some()) {
            // Nobody would take it in.
            return;
        }
        let (left, done) = std::sync::mpsc::channel();
        let ownership = Arc::clone(&self.ownership);
        let leaving = move || {
            ownership.leave(LEAVE_WITHIN);
            let _ = left.send(());
        };
        if spawn("dunlin-leave", leaving).is_ok() {
            // The cluster may lose its leader just now.
            let _ = done.recv_timeout(2 * LEAVE_WITHIN);
        }
    }

    pub(super) fn end(&self) {
        self.shared.ended.store(true, Ordering::Release);
    }
}

impl Known {
    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Takes in what is agreed on, as it comes.
    fn follow(&self, mut news: Subscriber, ownership: &Weak<Ownership>) {
        let mut is_whole = self.begin(&mut news, ownership);
        while let Some(ownership) = ownership.upgrade().filter(|_| !self.has_ended()) {
            if !is_whole {
                let Ok(state) = self.control.with(State::clone) else { return };
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
                    let Ok(events) = Events::new(record.payload()) else { continue };
                    if revision > self.revision.load(Ordering::Acquire) {
                        ownership.changed(events);
                        self.revision.store(revision, Ordering::Release);
                    } else {
                        // What the whole had is not to be taken for news.
                        self.deleted_before(&ownership, Ownership::deleted_by(events));
                    }
                }
                Ok(Some(Event::Notice(Notice::Gap(_) | Notice::EpochChanged(_)))) => is_whole = false,
                Ok(Some(_)) => {}
                Ok(None) => match news.wait(Some(LOOK)) {
                    Ok(true) => thread::sleep(REST),
                    Ok(false) => {}
                    // The node has stopped.
                    Err(_) => return,
                },
                Err(_) => return,
            }
        }
    }

    /// Waits until the node has all that was agreed on before this, and takes it in as a whole. False where it ended before.
    fn begin(&self, news: &mut Subscriber, ownership: &Weak<Ownership>) -> bool {
        let mut deleted = BTreeSet::new();
        while !self.has_ended() {
            let state = block_on(self.control.read(Consistency::Linearizable, State::clone));
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

    /// Waits for word of all that was deleted up to a revision, which may come later than the state does. Without it what lies on the disk
    /// would be announced, and so made again.
    fn hear_of_deletions(&self, news: &mut Subscriber, revision: u64, deleted: &mut BTreeSet<String>) {
        let latest = Instant::now() + HISTORY_WITHIN;
        loop {
            while let Ok(Some(event)) = news.try_next() {
                if let Event::Record(record) = event
                    && let Ok(events) = Events::new(record.payload())
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
                    "topics that were deleted may come back: their history is missing"
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
            && let Ok(state) = self.control.with(State::clone)
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
                    // Others tell their clients where to find this node.
                    let doors = self.seat.upgrade().map(|seat| seat.doors()).unwrap_or_default();
                    let address = doors.get("tcp").cloned().unwrap_or_default();
                    if let Err(error) = ownership.take_part(address.into_bytes()) {
                        tracing::error!("this node owns no topics: {error}");
                    }
                    return;
                }
                Err(error) => tracing::debug!("this node does not own topics yet: {error}"),
            }
            drop(ownership);
            thread::sleep(PAUSE);
        }
    }

    /// Whether all that was agreed on when this was asked has become so here.
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
    TopicError::Cluster("the cluster has not said yet what was agreed on".to_owned())
}

fn watch(node: &Node) -> Result<Subscriber, dunlin::topic::SubscribeError> {
    let options = SubscribeOptions {
        name: "the node's own".to_owned(),
        // Raft may have come far before somebody listens.
        start: Start::Earliest,
        // A node that begins finds its first epoch changed: it has read nothing then, and nothing of the past may be left out.
        on_gap: OnGap::Oldest,
        wait: Wait::Parked,
        ..SubscribeOptions::default()
    };
    node.subscribe(KV, &options)
}

/// What is shown to other nodes, the name they have to show apart.
fn ways(seat: &Seat) -> Result<Options, ClusterError> {
    let read = |name| {
        let path = seat.files.path(name);
        std::fs::read(&path).map_err(ClusterError::io("cannot read the node's certificate"))
    };
    let mut tls = TlsOptions::default();
    (tls.ca, tls.cert, tls.key) =
        (Some(read("ca.pem")?), Some(read("node.pem")?), Some(read("node-key.pem")?));
    let limits = Limits { connect_ms_max: seat.limits.connect_ms_max, ..Limits::default() };
    Ok(Options { tls, limits, ..Options::default() })
}

/// Where a node is for others, if it takes part.
fn reach(seat: &Seat, ways: &Options, to: u64) -> Option<(Address, Options)> {
    // Nobody is there, or is not to be asked: its lease says when that has changed.
    seat.ownership().filter(|ownership| ownership.is_alive(to))?;
    let record = seat.record(to).filter(|record| record.removed.is_none())?;
    let (host, port) = record.address.rsplit_once(':')?;
    let address = Address::Tls { host: host.to_owned(), port: port.parse().ok()? };
    let mut options = ways.clone();
    options.tls.name = Some(name_of(&seat.identity.cluster, to));
    Some((address, options))
}

fn ask_error(error: ControlError) -> AskError {
    match error {
        ControlError::Refused(refusal) => AskError::Refused(refusal),
        other => AskError::Away(other.to_string()),
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), ClusterError> {
    let thread = thread::Builder::new().name(name.to_owned()).spawn(run);
    thread.map(drop).map_err(ClusterError::io("cannot start a thread"))
}
