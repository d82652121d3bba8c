//! Manages the connection to one other node on a thread of its own.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
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

/// How long the thread waits for data from the socket before it handles its feeds and requests again.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// After another node has left the cluster, this node reads the other node's last records for at most this time.
const DRAIN_MAX: Duration = Duration::from_secs(10);
const LOST: &str = "the connection was lost";
/// Maximum number of relays on one connection. A relay forwards the batches of one topic. When a connection reaches the
/// maximum, its idle relays are dropped.
const RELAYS_MAX: usize = 16_384;

/// The connection to one other node, and the requests that wait for the connection.
pub(super) struct NodeLink {
    /// The number of the other node.
    to: u64,
    connection: Mutex<Option<LiveConnection>>,
    /// Feeds that the thread has not started yet.
    feeds: Mutex<Vec<Arc<MirrorFeed>>>,
    /// Group memberships that the thread does not handle yet. Without a connection, a new membership goes to
    /// [`PendingJoins::waiting`]. With a connection, a new membership is requested immediately, and goes to
    /// [`PendingJoins::requested`].
    joins: Mutex<PendingJoins>,
    pub(super) queries: Mutex<InterestQueries>,
    /// Presences that the thread has not announced yet. A presence states that a topic has publishers at this node.
    presences: Mutex<Vec<Arc<PublisherPresence>>>,
    /// Whether the connection was given up. After that, responses are ignored, even those that the kernel has already
    /// received.
    is_cut: AtomicBool,
    /// Whether the other node is back in the cluster, so that the thread may connect again.
    may_reconnect: AtomicBool,
    ended: AtomicBool,
    pause: Mutex<LinkPause>,
    pause_ended: Condvar,
}

/// The state of the thread's pause while the other node is not a member of the cluster.
#[derive(Default)]
struct LinkPause {
    /// Whether, since the last attempt to connect began, a request has arrived or the other node has come back.
    is_requested: bool,
    is_waiting: bool,
}

#[derive(Default)]
struct PendingJoins {
    waiting: Vec<Arc<RemoteMembership>>,
    requested: Vec<RemoteJoin>,
}

/// The key of a relay: the topic's pattern and, if the batches have a producer, the producer's id and epoch.
type RelayKey = (Arc<str>, Option<(u64, u32)>);

/// An established connection, and the relays on it.
struct LiveConnection {
    client: Client,
    relays: HashMap<RelayKey, TopicRelay>,
    /// The last flight that began before this connection. A flight is a series of batches that are in transit at the
    /// same time. Some batches of this flight, or of an earlier one, may have been sent over the previous connection.
    after_flight: u64,
}

/// Forwards the batches of one topic, or of one producer of the topic.
struct TopicRelay {
    relay: Relay,
    /// The topic's placement when the relay was opened ([`InFlightBatch::placement`]). Batches of a later placement
    /// need a new relay, because the topic may have been deleted and created again.
    placement: u64,
    /// The last flight in which a batch was refused; 0 if none was. The owner also refuses all later batches of the
    /// same flight. Batches of a later flight need a new relay.
    refused_flight: Arc<AtomicU64>,
}

impl TopicRelay {
    /// Whether the batch needs a new relay, and this relay can be closed now.
    fn is_unusable(&self, run: &InFlightBatch) -> bool {
        let refused_flight = self.refused_flight.load(Ordering::Acquire);
        let is_refused = refused_flight != 0 && refused_flight < run.flight;
        (is_refused || self.placement < run.placement) && !self.relay.has_unanswered()
    }

    /// Whether the relay can be dropped, because no batch of a recent flight needs it.
    fn is_idle(&self) -> bool {
        let refused_flight = self.refused_flight.load(Ordering::Acquire);
        let is_recent = refused_flight != 0 && refused_flight + RELAYS_MAX as u64 > last_flight();
        !is_recent && !self.relay.has_unanswered()
    }
}

impl NodeLink {
    /// Starts the link's thread. `lookup` returns how to connect to the other node; `None` if the node's address is
    /// unknown. Call [`NodeLink::end`] to end the thread.
    pub(super) fn start(
        to: u64,
        lookup: impl Fn() -> Option<(Address, ClientOptions)> + Send + 'static,
    ) -> Arc<NodeLink> {
        let link = Arc::new(NodeLink {
            to,
            connection: Mutex::default(),
            feeds: Mutex::default(),
            joins: Mutex::default(),
            queries: Mutex::default(),
            presences: Mutex::default(),
            is_cut: AtomicBool::new(false),
            may_reconnect: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            pause: Mutex::default(),
            pause_ended: Condvar::new(),
        });
        let thread_link = Arc::clone(&link);
        let run = move || thread_link.run(&lookup);
        if let Err(error) = thread::Builder::new().name(format!("dunlin-to-{to}")).spawn(run) {
            tracing::error!(%error, node = to, "cannot start the thread of a connection to another node");
        }
        link
    }

    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        *lock(&self.connection) = None;
        self.request_connection();
    }

    /// If the thread pauses, lets it try to connect.
    fn request_connection(&self) {
        *lock(&self.pause) = LinkPause { is_requested: true, is_waiting: false };
        self.pause_ended.notify_one();
    }

    /// Waits until there is a request, the other node is back in the cluster, or the link must end.
    fn await_request(&self) {
        let mut pause = lock(&self.pause);
        while !pause.is_requested && !self.ended.load(Ordering::Acquire) {
            pause.is_waiting = true;
            pause = self.pause_ended.wait(pause).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Gives up the connection. All requests without a response are reported as lost at once. Feeds continue to read
    /// from the connection until the thread may connect again.
    pub(super) fn disconnect(&self) {
        self.may_reconnect.store(false, Ordering::Release);
        self.is_cut.store(true, Ordering::Release);
        let connection = lock(&self.connection).take();
        drop(connection);
        lock(&self.queries).fail_waiting(true);
    }

    /// Lets the thread connect again, because the other node is back in the cluster.
    pub(super) fn allow_reconnect(&self) {
        self.may_reconnect.store(true, Ordering::Release);
        self.request_connection();
    }

    pub(super) fn add_feed(&self, feed: Arc<MirrorFeed>) {
        lock(&self.feeds).push(feed);
        self.request_connection();
    }

    pub(super) fn announce(&self, presence: Arc<PublisherPresence>) {
        lock(&self.presences).push(presence);
        self.request_connection();
    }

    /// Requests a membership now if there is a connection, and otherwise as soon as there is one. The owner adds the
    /// member before it appends any batch that this node forwards later.
    pub(super) fn join(&self, membership: Arc<RemoteMembership>) {
        let connection = lock(&self.connection);
        match connection.as_ref() {
            Some(LiveConnection { client, .. }) => {
                let join = RemoteJoin::start(client, membership);
                lock(&self.joins).requested.extend(join);
            }
            None => {
                lock(&self.joins).waiting.push(membership);
                self.request_connection();
            }
        }
    }

    /// Sends the query now if there is a connection, and otherwise as soon as there is one.
    pub(super) fn query_interest(&self, query: InterestQuery) {
        let connection = lock(&self.connection);
        match connection.as_ref() {
            Some(LiveConnection { client, .. }) => self.send_query(client, query),
            None => {
                lock(&self.queries).waiting.push(query);
                self.request_connection();
            }
        }
    }

    /// Sends a batch at once, after all earlier batches. If there is no connection, returns the batch to its publisher
    /// instead.
    pub(super) fn forward_batch(&self, run: InFlightBatch) {
        let after = match run.last_acknowledged() {
            Ok(after) => after,
            Err(lost) => return run.complete(Err(lost)),
        };
        let mut connection = lock(&self.connection);
        let live_connection = connection.as_mut().filter(|live| live.after_flight < run.flight);
        let Some(LiveConnection { client, relays, .. }) = live_connection else {
            drop(connection);
            self.request_connection();
            return run.not_appended("there is no connection to the owner");
        };
        let key = (Arc::clone(&run.pattern), run.mark.map(|mark| (mark.producer, mark.producer_epoch)));
        if relays.len() >= RELAYS_MAX && !relays.contains_key(&key) {
            relays.retain(|_, open| !open.is_idle());
        }
        if relays.get(&key).is_some_and(|open| open.is_unusable(&run)) {
            relays.remove(&key);
        }
        let opened = relays.get(&key).map_or(run.placement, |open| open.placement);
        if opened < run.placement {
            drop(connection);
            return run.not_appended("records of an earlier placement have no response yet");
        }
        if opened > run.placement {
            // The topic of this batch was deleted. The relay belongs to a newer topic with the same name.
            drop(connection);
            return run.complete(Err(PublishError::Closed));
        }
        let open = || TopicRelay {
            relay: client.relay(&run.pattern, run.mark),
            placement: run.placement,
            refused_flight: Arc::default(),
        };
        let TopicRelay { relay, refused_flight, .. } = relays.entry(key).or_insert_with(open);
        let (refused_flight, flight, to) = (Arc::clone(refused_flight), run.flight, self.to);
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
                        refused_flight.fetch_max(flight, Ordering::AcqRel);
                    }
                    run.complete(outcome);
                }
                RelayOutcome::NotAccepted(why) => {
                    refused_flight.fetch_max(flight, Ordering::AcqRel);
                    run.not_appended(&why);
                }
                RelayOutcome::Lost => {
                    run.response_lost(&format!(
                        "the connection to the topic's owner, node {to}, was lost before it \
                         responded"
                    ));
                }
            }),
        );
    }

    fn run(&self, lookup: &impl Fn() -> Option<(Address, ClientOptions)>) {
        let mut was_connected = false;
        while !self.ended.load(Ordering::Acquire) {
            // The flag is cleared before the connection opens. If the other node leaves the cluster after that, the
            // flag is set again, and the new connection is given up.
            self.is_cut.store(false, Ordering::Release);
            lock(&self.pause).is_requested = false;
            let found = lookup();
            let is_member = found.is_some();
            let connected = match found {
                Some((address, options)) => {
                    Client::connect_to(address, options).map_err(|error| error.to_string())
                }
                None => Err("the node's address is unknown".to_owned()),
            };
            match connected {
                Ok(client) => {
                    was_connected = true;
                    {
                        let mut connection = lock(&self.connection);
                        let waiting = std::mem::take(&mut lock(&self.joins).waiting);
                        let joins = waiting
                            .into_iter()
                            .filter_map(|membership| RemoteJoin::start(&client, membership));
                        let joins: Vec<RemoteJoin> = joins.collect();
                        lock(&self.joins).requested.extend(joins);
                        let queries = std::mem::take(&mut lock(&self.queries).waiting);
                        queries.into_iter().for_each(|query| self.send_query(&client, query));
                        let (client, relays, after_flight) = (client.clone(), HashMap::new(), last_flight());
                        *connection = Some(LiveConnection { client, relays, after_flight });
                    }
                    self.serve(&client);
                    tracing::info!(node = self.to, "the connection to another node ended");
                }
                Err(why) => {
                    let feeds = std::mem::take(&mut *lock(&self.feeds));
                    feeds.iter().for_each(|feed| feed.ended(&why));
                    let presences = std::mem::take(&mut *lock(&self.presences));
                    presences.iter().for_each(|presence| presence.ended());
                    let waiting = std::mem::take(&mut lock(&self.joins).waiting);
                    lock(&self.queries).fail_waiting(was_connected);
                    let error = SubscribeError::Connection(why);
                    waiting.iter().for_each(|membership| membership.ended(&error));
                    thread::sleep(PAUSE);
                    // While queries wait, the thread keeps trying to connect. Each query has a deadline, so these
                    // attempts come to an end.
                    let has_queries = !lock(&self.queries).waiting.is_empty();
                    if !is_member && !has_queries {
                        self.await_request();
                    }
                }
            }
        }
    }

    /// Handles requests until the connection ends or is given up. Then makes the connection unavailable to other
    /// threads, and ends the requests that are still pending.
    fn serve(&self, client: &Client) {
        let (mut feeds, mut joins): (Vec<MirrorFeedLink>, Vec<RemoteJoin>) = Default::default();
        let mut presences = Presences::default();
        while client.is_up() && !self.is_cut.load(Ordering::Acquire) && !self.ended.load(Ordering::Acquire) {
            client.pump(POLL_INTERVAL);
            let new = std::mem::take(&mut *lock(&self.feeds));
            feeds.extend(new.into_iter().map(|feed| MirrorFeedLink::start(client, feed)));
            feeds.retain_mut(MirrorFeedLink::advance);
            joins.append(&mut lock(&self.joins).requested);
            joins = joins.into_iter().filter_map(RemoteJoin::advance).collect();
            lock(&self.queries).remove_finished();
            presences.advance(client, std::mem::take(&mut *lock(&self.presences)));
        }
        // The connection is first made unavailable to other threads. Otherwise, another thread could still request a
        // membership over this client, which would not be ended here. The client itself never connects again.
        let connection = lock(&self.connection).take();
        // Dropping the relays reports the requests without a response as lost.
        drop(connection);
        presences.end();
        joins.append(&mut lock(&self.joins).requested);
        joins.into_iter().for_each(|join| join.end(LOST));
        self.drain_feeds(client, &mut feeds);
        feeds.into_iter().for_each(|feed| feed.end(LOST));
    }

    /// Reads the feeds' last records after the other node has left the cluster: a stopping node still sends the last
    /// records of its durable topics before it closes the connection.
    fn drain_feeds(&self, client: &Client, feeds: &mut Vec<MirrorFeedLink>) {
        let began = Instant::now();
        while client.is_up()
            && !feeds.is_empty()
            && began.elapsed() < DRAIN_MAX
            && !self.may_reconnect.load(Ordering::Acquire)
            && !self.ended.load(Ordering::Acquire)
        {
            client.pump(POLL_INTERVAL);
            feeds.retain_mut(MirrorFeedLink::advance);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{OnceLock, mpsc};

    use dunlin::{Config, Node};
    use dunlin_wait::{PATIENCE, until};

    use super::*;
    use crate::{Server, ServerConfig};

    fn server() -> (Server, String) {
        let node = Node::start(Config::default()).unwrap();
        let config =
            ServerConfig { tcp: vec![([127, 0, 0, 1], 0).into()], threads: 1, ..ServerConfig::default() };
        let server = Server::start(node, config).unwrap();
        let url = format!("dunlin://{}", server.tcp_addresses()[0]);
        (server, url)
    }

    #[test]
    fn link_between_nodes_reconnects_if_cut_while_connecting() {
        let (_server, url) = server();
        let (sender, lookups) = mpsc::channel();
        let started = Arc::new(OnceLock::<Arc<NodeLink>>::new());
        let (thread_started, is_first) = (Arc::clone(&started), AtomicBool::new(true));
        let link = NodeLink::start(2, move || {
            let link = thread_started.wait();
            if is_first.swap(false, Ordering::Relaxed) {
                link.disconnect();
            }
            // Sending fails if the test has already ended.
            let _ = sender.send(());
            Some((url.parse().unwrap(), ClientOptions::default()))
        });
        assert!(started.set(Arc::clone(&link)).is_ok());
        for _ in 0..2 {
            lookups.recv_timeout(PATIENCE).expect("the link connects again");
        }
        until("the link has a connection", || lock(&link.connection).is_some());
        link.end();
    }

    #[test]
    fn ended_connection_accepts_no_more_requests() {
        let (_server, url) = server();
        // The lookup returns no address, so the link's own thread cannot connect.
        let link = NodeLink::start(2, || None);
        until("the thread waits for a request", || lock(&link.pause).is_waiting);
        let client = Client::connect(&url, ClientOptions::default()).unwrap();
        let (relays, after_flight) = (HashMap::new(), last_flight());
        *lock(&link.connection) = Some(LiveConnection { client: client.clone(), relays, after_flight });
        link.is_cut.store(true, Ordering::Release);
        link.serve(&client);
        assert!(lock(&link.connection).is_none());
        link.end();
    }

    #[test]
    fn each_connection_request_looks_up_the_address_once() {
        let (_server, url) = server();
        let (sender, lookups) = mpsc::channel();
        let is_member = Arc::new(AtomicBool::new(false));
        let thread_is_member = Arc::clone(&is_member);
        let link = NodeLink::start(2, move || {
            // Sending fails if the test has already ended.
            let _ = sender.send(());
            let is_member = thread_is_member.load(Ordering::Acquire);
            is_member.then(|| (url.parse().unwrap(), ClientOptions::default()))
        });
        for _ in 0..3 {
            lookups.recv_timeout(PATIENCE).expect("the thread reads the address");
            until("the thread waits for a request", || lock(&link.pause).is_waiting);
            assert!(lookups.try_recv().is_err(), "a waiting thread reads no address");
            link.request_connection();
        }
        is_member.store(true, Ordering::Release);
        link.allow_reconnect();
        until("the link has a connection", || lock(&link.connection).is_some());
        link.end();
    }
}
