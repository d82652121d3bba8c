//! The connection to one other node, and its thread.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use dunlin::topic::{PublishError, SubscribeError};
use dunlin::{InFlightBatch, InterestQuery, MirrorFeed, PublisherPresence, RemoteMembership, last_flight};
use dunlin_client::{Address, Client, ClientOptions, Relay, RelayBatch, RelayOutcome};

use super::feeding::MirrorFeedLink;
use super::interest::InterestQueries;
use super::joining::RemoteJoin;
use super::presences::Presences;
use super::{PAUSE, lock};

/// How long the thread waits for the socket before it checks its feeds again.
const LOOK: Duration = Duration::from_millis(2);
/// How long this node still reads records from a node that has left the cluster.
const READ_ON_MAX: Duration = Duration::from_secs(10);
const LOST: &str = "the connection was lost";
/// Maximum number of relays of the connection; above it, idle relays are dropped.
const RELAYS_MAX: usize = 16_384;

/// The connection to one other node, with its queues of requests.
pub(super) struct NodeLink {
    /// The number of the other node.
    to: u64,
    up: Mutex<Option<LiveConnection>>,
    /// Feeds that the thread has still to start.
    feeds: Mutex<Vec<Arc<MirrorFeed>>>,
    /// Memberships that the thread has still to start. If there is a connection, they are already requested.
    joins: Mutex<PendingJoins>,
    pub(super) queries: Mutex<InterestQueries>,
    /// Presences of publishers that the thread has still to announce.
    presences: Mutex<Vec<Arc<PublisherPresence>>>,
    /// Whether the connection is given up. No response is accepted from then on, even if the kernel has received one.
    is_cut: AtomicBool,
    /// Whether the node is back in the cluster, so that the thread may connect again.
    is_back: AtomicBool,
    ended: AtomicBool,
}

#[derive(Default)]
struct PendingJoins {
    wanted: Vec<Arc<RemoteMembership>>,
    asked: Vec<RemoteJoin>,
}

/// The key of a relay: a topic, and the producer with its epoch if the batches have one.
type RelayKey = (Arc<str>, Option<(u64, u32)>);

/// A connection that is established.
struct LiveConnection {
    client: Client,
    relays: HashMap<RelayKey, TopicRelay>,
    /// The last flight ([`InFlightBatch::flight`]) that began before the connection. Earlier batches of that flight may
    /// have been sent over the previous connection.
    after_flight: u64,
}

/// The relay that forwards one topic's batches.
struct TopicRelay {
    relay: Relay,
    /// The last flight of which a batch was refused; 0 if there is none. The owner also refuses all later batches of
    /// that flight. Batches of a later flight need another relay. A deleted topic also needs another relay, because a
    /// new topic may have its name.
    refused_in: Arc<AtomicU64>,
}

impl TopicRelay {
    /// Whether a batch of this flight needs another relay.
    fn is_of_no_use(&self, flight: u64) -> bool {
        let refused_in = self.refused_in.load(Ordering::Acquire);
        refused_in != 0 && refused_in < flight && !self.relay.has_unanswered()
    }

    /// Whether no batch of a recent flight depends on the relay.
    fn is_idle(&self) -> bool {
        let refused_in = self.refused_in.load(Ordering::Acquire);
        let is_recent = refused_in != 0 && refused_in + RELAYS_MAX as u64 > last_flight();
        !is_recent && !self.relay.has_unanswered()
    }
}

impl NodeLink {
    /// Starts the thread, which ends with [`NodeLink::end`].
    pub(super) fn start(
        to: u64,
        reach: impl Fn() -> Option<(Address, ClientOptions)> + Send + 'static,
    ) -> Arc<NodeLink> {
        let link = Arc::new(NodeLink {
            to,
            up: Mutex::default(),
            feeds: Mutex::default(),
            joins: Mutex::default(),
            queries: Mutex::default(),
            presences: Mutex::default(),
            is_cut: AtomicBool::new(false),
            is_back: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        });
        let of_thread = Arc::clone(&link);
        let run = move || of_thread.run(&reach);
        if let Err(error) = thread::Builder::new().name(format!("dunlin-to-{to}")).spawn(run) {
            tracing::error!(%error, node = to, "cannot start the thread of a connection to another node");
        }
        link
    }

    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        *lock(&self.up) = None;
    }

    /// Gives up the connection: requests without a response are reported as lost at once. Feeds continue to read until
    /// the thread connects again.
    pub(super) fn cut(&self) {
        self.is_back.store(false, Ordering::Release);
        self.is_cut.store(true, Ordering::Release);
        let up = lock(&self.up).take();
        drop(up);
        lock(&self.queries).fail_wanted(true);
    }

    /// Allows the thread to connect again, because the node is back in the cluster.
    pub(super) fn renew(&self) {
        self.is_back.store(true, Ordering::Release);
    }

    pub(super) fn feed(&self, feed: Arc<MirrorFeed>) {
        lock(&self.feeds).push(feed);
    }

    pub(super) fn announce(&self, presence: Arc<PublisherPresence>) {
        lock(&self.presences).push(presence);
    }

    /// Requests a membership at once, so that the new member shares the batches that are forwarded later.
    pub(super) fn join(&self, membership: Arc<RemoteMembership>) {
        let up = lock(&self.up);
        match up.as_ref() {
            Some(LiveConnection { client, .. }) => {
                let joining = RemoteJoin::begin(client, membership);
                lock(&self.joins).asked.extend(joining);
            }
            None => lock(&self.joins).wanted.push(membership),
        }
    }

    /// Sends a query at once, or as soon as there is a connection.
    pub(super) fn query_interest(&self, query: InterestQuery) {
        let up = lock(&self.up);
        match up.as_ref() {
            Some(LiveConnection { client, .. }) => self.send_query(client, query),
            None => lock(&self.queries).wanted.push(query),
        }
    }

    /// Sends a batch at once, behind earlier batches.
    pub(super) fn forward_batch(&self, run: InFlightBatch) {
        let after = match run.last_acknowledged() {
            Ok(after) => after,
            Err(lost) => return run.answer(Err(lost)),
        };
        let mut up = lock(&self.up);
        let taking = up.as_mut().filter(|up| up.after_flight < run.flight);
        let Some(LiveConnection { client, relays, .. }) = taking else {
            drop(up);
            return run.not_taken("there is no connection to the owner");
        };
        let key = (Arc::clone(&run.pattern), run.mark.map(|mark| (mark.producer, mark.producer_epoch)));
        if relays.len() >= RELAYS_MAX && !relays.contains_key(&key) {
            relays.retain(|_, open| !open.is_idle());
        }
        if relays.get(&key).is_some_and(|open| open.is_of_no_use(run.flight)) {
            relays.remove(&key);
        }
        let open = || TopicRelay { relay: client.relay(&run.pattern, run.mark), refused_in: Arc::default() };
        let TopicRelay { relay, refused_in } = relays.entry(key).or_insert_with(open);
        let (refused_in, flight, to) = (Arc::clone(refused_in), run.flight, self.to);
        let (frames, partition) = (run.frames.clone(), run.partition as u32);
        let to_relay = RelayBatch {
            partition,
            frames: &frames,
            count: run.count,
            producer_seq: run.mark.map(|mark| mark.producer_seq),
            expect_last: run.expect_last,
            after,
        };
        relay.send(
            to_relay,
            Box::new(move |relayed| match relayed {
                RelayOutcome::Answered(outcome) => {
                    if matches!(outcome, Err(PublishError::NoTopic(_) | PublishError::Closed)) {
                        refused_in.fetch_max(flight, Ordering::AcqRel);
                    }
                    run.answer(outcome);
                }
                RelayOutcome::NotTaken(why) => {
                    refused_in.fetch_max(flight, Ordering::AcqRel);
                    run.not_taken(&why);
                }
                RelayOutcome::Lost => {
                    run.lost(&format!(
                        "the connection to the topic's owner, node {to}, was lost before it \
                         responded"
                    ));
                }
            }),
        );
    }

    fn run(&self, reach: &impl Fn() -> Option<(Address, ClientOptions)>) {
        let mut was_up = false;
        while !self.ended.load(Ordering::Acquire) {
            let connected = match reach() {
                Some((address, options)) => {
                    Client::connect_to(address, options).map_err(|error| error.to_string())
                }
                None => Err("the node's address is unknown".to_owned()),
            };
            match connected {
                Ok(client) => {
                    self.is_cut.store(false, Ordering::Release);
                    was_up = true;
                    {
                        let mut up = lock(&self.up);
                        let wanted = std::mem::take(&mut lock(&self.joins).wanted);
                        let begun = wanted.into_iter().filter_map(|one| RemoteJoin::begin(&client, one));
                        let begun: Vec<RemoteJoin> = begun.collect();
                        lock(&self.joins).asked.extend(begun);
                        let queries = std::mem::take(&mut lock(&self.queries).wanted);
                        queries.into_iter().for_each(|query| self.send_query(&client, query));
                        let (client, relays, after_flight) = (client.clone(), HashMap::new(), last_flight());
                        *up = Some(LiveConnection { client, relays, after_flight });
                    }
                    self.serve(&client);
                    let up = lock(&self.up).take();
                    // Dropping the relays reports requests without a response as lost.
                    drop(up);
                    tracing::info!(node = self.to, "the connection to another node ended");
                }
                Err(why) => {
                    let feeds = std::mem::take(&mut *lock(&self.feeds));
                    feeds.iter().for_each(|feed| feed.ended(&why));
                    let presences = std::mem::take(&mut *lock(&self.presences));
                    presences.iter().for_each(|presence| presence.ended());
                    let wanted = std::mem::take(&mut lock(&self.joins).wanted);
                    lock(&self.queries).fail_wanted(was_up);
                    let away = SubscribeError::Connection(why);
                    wanted.iter().for_each(|membership| membership.ended(&away));
                    thread::sleep(PAUSE);
                }
            }
        }
    }

    fn serve(&self, client: &Client) {
        let (mut feeding, mut joining): (Vec<MirrorFeedLink>, Vec<RemoteJoin>) = Default::default();
        let mut presences = Presences::default();
        while client.is_up() && !self.is_cut.load(Ordering::Acquire) && !self.ended.load(Ordering::Acquire) {
            client.pump(LOOK);
            let new = std::mem::take(&mut *lock(&self.feeds));
            feeding.extend(new.into_iter().map(|feed| MirrorFeedLink::begin(client, feed)));
            feeding.retain_mut(MirrorFeedLink::go_on);
            joining.append(&mut lock(&self.joins).asked);
            joining = joining.into_iter().filter_map(RemoteJoin::go_on).collect();
            lock(&self.queries).end_those_over();
            presences.go_on(client, std::mem::take(&mut *lock(&self.presences)));
        }
        presences.end();
        joining.append(&mut lock(&self.joins).asked);
        joining.into_iter().for_each(|joining| joining.end(LOST));
        self.read_on(client, &mut feeding);
        feeding.into_iter().for_each(|feeding| feeding.end(LOST));
    }

    /// Continues to read after the node has left the cluster: a stopping node sends the last records of its
    /// durable topics before it closes the connection.
    fn read_on(&self, client: &Client, feeding: &mut Vec<MirrorFeedLink>) {
        let began = Instant::now();
        while client.is_up()
            && !feeding.is_empty()
            && began.elapsed() < READ_ON_MAX
            && !self.is_back.load(Ordering::Acquire)
            && !self.ended.load(Ordering::Acquire)
        {
            client.pump(LOOK);
            feeding.retain_mut(MirrorFeedLink::go_on);
        }
    }
}
