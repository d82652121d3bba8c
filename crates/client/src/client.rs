//! The client, which is one connection to a node. All handles made from a client share this connection.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dunlin_topic::{LogName, Position, PublishError, SubscribeError, SubscribeOptions, WaitStrategy};
use dunlin_wire::{FromClient, NO_PRODUCER, StartAt};

use crate::address::{Address, AddressError};
use crate::backoff::random_seed;
use crate::credentials::Credentials;
use crate::disconnect_reason::DisconnectReason;
use crate::drive::WaitOutcome;
use crate::flusher::Flusher;
use crate::follow::{Followers, HandleWaker, lock};
use crate::inbox::SubscriberInbox;
use crate::interrupt::Interrupt;
use crate::limits::{ClientLimits, TICK};
use crate::link::{Link, PumpOutcome, PumpWait};
use crate::outbox::Outbox;
use crate::publisher::{Publisher, PublisherOptions};
use crate::publishing::PublisherShared;
use crate::session::{ClientSession, Disconnection, FollowRequest, SubscriptionRequest};
use crate::subscriber::Subscriber;
use crate::tls::{Connector, TlsError, TlsOptions};

/// Options of a client: its name, credentials, TLS and limits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientOptions {
    /// The client's name, as operators see it.
    pub name: String,
    /// The tenant that owns the client's topics; empty for the default tenant.
    pub tenant: String,
    /// The credentials for nodes that require them.
    pub credentials: Credentials,
    /// For `tls://` addresses: the trusted certificate authorities, and the client's own certificate.
    pub tls: TlsOptions,
    /// How the client's publishers and requests wait for the node's responses.
    pub wait: WaitStrategy,
    /// The client's limits on memory and waiting times.
    pub limits: ClientLimits,
    /// Whether the client never connects again after it has lost its connection. Set for connections between nodes: if
    /// the client connected again and the node did not notice the loss, the node could send records out of order.
    pub connects_once: bool,
}

/// Why a client could not be created.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The address is malformed.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The TLS options are invalid.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The node cannot be reached, or refuses the client.
    #[error("{0}")]
    Disconnected(DisconnectReason),
}

/// A client's connection to a node, from which all other handles are created. Clones share the connection.
///
/// The client has no thread for its connection: a thread that waits in any handle drives the connection. After a loss,
/// the client reconnects with jitter. Subscriptions then continue at their positions, and publishers send unanswered
/// records again.
#[derive(Debug, Clone)]
pub struct Client {
    pub(crate) shared: Arc<SharedClient>,
}

/// The state that all handles of one client share.
#[derive(Debug)]
pub(crate) struct SharedClient {
    pub(crate) address: Address,
    /// The TLS connector for each node of the address; `None` for a node without TLS.
    pub(crate) tls: Vec<Option<Connector>>,
    pub(crate) options: ClientOptions,
    pub(crate) limits: ClientLimits,
    pub(crate) link: Mutex<Link>,
    pub(crate) session: Mutex<ClientSession>,
    pub(crate) outbox: Outbox,
    pub(crate) followers: Arc<Followers>,
    /// Publishers whose batch is partly filled. A thread that begins to wait on the client first sends these batches.
    pub(crate) filling: Mutex<Vec<Arc<PublisherShared>>>,
    /// The thread that sends partly filled batches while no other thread waits on the client.
    pub(crate) flusher: Arc<Flusher>,
    #[cfg(feature = "tokio")]
    pub(crate) reactor: Mutex<crate::reactor::Reactor>,
}

impl Client {
    /// Connects to the node at `url`, and waits for the connection.
    pub fn connect(url: &str, options: ClientOptions) -> Result<Client, ConnectError> {
        Client::connect_to(url.parse()?, options)
    }

    /// Makes a client without waiting for the node at `url`. The client's handles begin to work as soon as there is a
    /// connection. This is useful for a program that may start before its node, such as a worker.
    pub fn open(url: &str, options: ClientOptions) -> Result<Client, ConnectError> {
        Ok(Client::new(url.parse()?, options)?)
    }

    /// Connects to the node at `address`. Tries each endpoint of the address once, for at most `connect_ms_max`. If a
    /// node is still starting, repeats this until the time for all endpoints together has passed.
    pub fn connect_to(address: Address, options: ClientOptions) -> Result<Client, ConnectError> {
        let endpoints = address.resolve().map_or(1, |all| all.len().max(1)) as u32;
        let client = Client::new(address, options)?;
        let shared = &client.shared;
        let each = Duration::from_millis(shared.limits.connect_ms_max);
        let until = Instant::now() + each * endpoints + TICK;
        let mut interrupt = Interrupt::current();
        let mut link = lock(&shared.link);
        let mut opening = None;
        let why = loop {
            let why = match link.pump(shared, PumpWait::Block(each.min(TICK))) {
                PumpOutcome::Received | PumpOutcome::Quiet => break None,
                PumpOutcome::Closed => break Some(DisconnectReason::New),
                PumpOutcome::Disconnected(why @ DisconnectReason::Refused(_), _) => break Some(why),
                PumpOutcome::Disconnected(..) if interrupt.is_due() => {
                    break Some(DisconnectReason::Interrupted);
                }
                PumpOutcome::Disconnected(why, _) => why,
            };
            if matches!(why, DisconnectReason::Opening(_)) {
                opening = Some(why.clone());
            }
            if Instant::now() > until || opening.is_none() && link.failures() >= endpoints {
                break opening.or(Some(why));
            }
        };
        drop(link);
        why.map_or(Ok(client), |why| Err(ConnectError::Disconnected(why)))
    }

    fn new(address: Address, options: ClientOptions) -> Result<Client, TlsError> {
        let limits = options.limits;
        let connector = |host: Option<&str>| host.map(|host| Connector::new(&options.tls, host)).transpose();
        let tls = address.tls_hosts().into_iter().map(connector).collect::<Result<_, _>>()?;
        Ok(Client {
            shared: Arc::new(SharedClient {
                address,
                tls,
                limits,
                link: Mutex::new(Link::new(&limits)),
                session: Mutex::new(ClientSession::new(&limits)),
                outbox: Outbox::default(),
                followers: Arc::default(),
                filling: Mutex::default(),
                flusher: Arc::default(),
                #[cfg(feature = "tokio")]
                reactor: Mutex::default(),
                options,
            }),
        })
    }

    /// The name of the node to which the client was last connected.
    pub fn node_name(&self) -> String {
        lock(&self.shared.session).node_name.clone()
    }

    /// Whether the client was connected when a thread last read or wrote its connection.
    pub fn is_up(&self) -> bool {
        lock(&self.shared.session).is_up
    }

    /// When and why the connection was lost; `None` if the client was connected when a thread last read or wrote its
    /// connection.
    pub fn disconnection(&self) -> Option<Disconnection> {
        lock(&self.shared.session).disconnection.clone()
    }

    /// How often the client has connected so far. A number above 1 means that the connection was lost in between.
    pub fn connections(&self) -> u64 {
        lock(&self.shared.session).generation
    }

    /// Makes a publisher to `subject` with a new identity. After a lost connection, the publisher sends unanswered
    /// records again, and the node appends each record only once.
    pub fn publisher(&self, subject: &str) -> Result<Publisher, PublishError> {
        self.publisher_with(subject, PublisherOptions::default())
    }

    /// Makes a publisher with `options`. `subject` may also be the exact pattern of a topic. Each draft must then
    /// contain the tail of its subject: the part after the pattern's literal prefix.
    pub fn publisher_with(
        &self,
        subject: &str,
        options: PublisherOptions,
    ) -> Result<Publisher, PublishError> {
        let publisher = self.publisher_nowait(subject, options);
        publisher.wait_opened()?;
        Ok(publisher)
    }

    /// Makes a publisher without waiting for the node. The publisher accepts records at once.
    pub(crate) fn publisher_nowait(&self, subject: &str, options: PublisherOptions) -> Publisher {
        let (producer, epoch) = match options.identity {
            Some(identity) => (identity.producer, identity.epoch),
            None if options.quiet => (NO_PRODUCER, 0),
            None => (random_seed().max(1), 1),
        };
        let mut session = lock(&self.shared.session);
        let publishing = Arc::new(PublisherShared::new(session.next_number(), subject, producer, epoch));
        let mut out = Vec::new();
        publishing.encode_open(&publishing.lock(), session.version, &mut out);
        session.add_publisher(Arc::clone(&publishing));
        self.shared.outbox.write(&out);
        drop(session);
        Publisher::new(Arc::clone(&self.shared), publishing, options.quiet)
    }

    /// Subscribes to all subjects that match `pattern`.
    pub fn subscribe(&self, pattern: &str, options: SubscribeOptions) -> Result<Subscriber, SubscribeError> {
        let wait = options.wait;
        let registered = options.registered;
        let follow = follow_request(&options);
        let request = SubscriptionRequest {
            pattern: pattern.to_owned(),
            name: options.name,
            start: start_at(options.start),
            on_gap: on_gap(options.on_gap),
            registered,
            follow,
            credit_bytes: self.shared.limits.credit_bytes as u64,
            reports_start: false,
            placement: None,
            group: None,
        };
        self.open_subscription(request, wait)
    }

    /// Makes a subscription without waiting for the node. Each log in `after` continues after the position that `after`
    /// contains for it. All other logs start as `options` say. If the node refuses the subscription, the first read
    /// returns the error.
    pub fn subscribe_nowait(
        &self,
        pattern: &str,
        options: SubscribeOptions,
        after: Vec<(Arc<LogName>, Position)>,
    ) -> Subscriber {
        self.subscribe_to_placement(pattern, options, after, None)
    }

    /// Like [`subscribe_nowait`](Client::subscribe_nowait), for a node that feeds its mirror of a topic. `placement` is
    /// the topic's name, and an epoch of the topic's placement. If the topic was deleted, the owner does not accept the
    /// subscription for a later topic of the same name.
    pub fn subscribe_to_placement(
        &self,
        pattern: &str,
        options: SubscribeOptions,
        after: Vec<(Arc<LogName>, Position)>,
        placement: Option<(String, u32)>,
    ) -> Subscriber {
        let follow = follow_request(&options);
        let request = SubscriptionRequest {
            pattern: pattern.to_owned(),
            name: options.name,
            start: start_at(options.start),
            on_gap: on_gap(options.on_gap),
            registered: options.registered,
            follow,
            credit_bytes: self.shared.limits.credit_bytes as u64,
            reports_start: true,
            placement,
            group: None,
        };
        self.open_subscription_nowait(request, after, options.wait)
    }

    pub(crate) fn open_subscription_nowait(
        &self,
        request: SubscriptionRequest,
        after: Vec<(Arc<LogName>, Position)>,
        wait: WaitStrategy,
    ) -> Subscriber {
        let reports_consumed = request.registered || request.follow.is_some_and(|follow| follow.conflate);
        let limits = &self.shared.limits;
        let inbox = Arc::new(SubscriberInbox::new(limits.unread_bytes_max(), limits.refund_bytes_max()));
        let mut out = Vec::new();
        let number = {
            let mut session = lock(&self.shared.session);
            let number = session.subscribe_after(request, after, &inbox, &mut out);
            self.shared.outbox.write(&out);
            number
        };
        Subscriber::new(Arc::clone(&self.shared), inbox, number, wait, reports_consumed)
    }

    /// Begins a subscription or a group membership, and waits for the node's response.
    pub(crate) fn open_subscription(
        &self,
        request: SubscriptionRequest,
        wait: WaitStrategy,
    ) -> Result<Subscriber, SubscribeError> {
        let reports_consumed = request.registered || request.follow.is_some_and(|follow| follow.conflate);
        let limits = &self.shared.limits;
        let inbox = Arc::new(SubscriberInbox::new(limits.unread_bytes_max(), limits.refund_bytes_max()));
        let mut out = Vec::new();
        let number = {
            let mut session = lock(&self.shared.session);
            let number = session.subscribe(request, &inbox, &mut out);
            self.shared.outbox.write(&out);
            number
        };
        // From here on, an early return drops the subscriber, which ends the subscription.
        let subscriber =
            Subscriber::new(Arc::clone(&self.shared), Arc::clone(&inbox), number, wait, reports_consumed);
        let until = Instant::now() + Duration::from_millis(self.shared.limits.answer_ms_max);
        let done = || !matches!(inbox.is_subscribed(), Ok(false));
        match self.shared.wait_until(&inbox.waker, self.shared.options.wait, Some(until), done) {
            WaitOutcome::Done => inbox.is_subscribed().map(|_| subscriber),
            WaitOutcome::TimedOut => {
                Err(SubscribeError::Connection("the node did not answer in time".to_owned()))
            }
            WaitOutcome::Disconnected(why) => Err(SubscribeError::Connection(why.to_string())),
        }
    }
}

impl SharedClient {
    #[inline]
    pub(crate) fn send_partial_batches(&self) {
        let filling = {
            let mut filling = lock(&self.filling);
            if filling.is_empty() {
                return;
            }
            std::mem::take(&mut *filling)
        };
        for publishing in filling {
            publishing.send_listed_batches(self);
        }
    }

    pub(crate) fn take_partial(&self) -> Vec<Arc<PublisherShared>> {
        std::mem::take(&mut *lock(&self.filling))
    }

    pub(crate) fn send_message(&self, message: &FromClient<'_>) {
        let mut out = Vec::new();
        message.encode(&mut out);
        self.outbox.write(&out);
    }

    pub(crate) fn wait_until_written(&self, waker: &HandleWaker) {
        if !self.outbox.is_empty() {
            // The result is ignored: either all bytes were written, or the connection is lost.
            let _ = self.wait_until(waker, WaitStrategy::Parked, None, || self.outbox.is_empty());
        }
    }
}

impl Drop for SharedClient {
    fn drop(&mut self) {
        self.flusher.end();
        self.send_message(&FromClient::Leave);
        let link = std::mem::replace(&mut self.link, Mutex::new(Link::new(&self.limits)));
        if let Ok(mut link) = link.into_inner() {
            link.close(self);
        }
        lock(&self.session).close();
    }
}

fn follow_request(options: &SubscribeOptions) -> Option<FollowRequest> {
    (options.follows_state() || options.test_loss_every.is_some()).then(|| FollowRequest {
        start: options.start == dunlin_topic::Start::Snapshot,
        on_gap: options.on_gap == dunlin_topic::OnGap::Snapshot,
        conflate: options.conflate,
        test_loss_every: options.test_loss_every.map_or(0, NonZeroU32::get),
    })
}

fn start_at(start: dunlin_topic::Start) -> StartAt {
    match start {
        dunlin_topic::Start::Earliest | dunlin_topic::Start::Snapshot => StartAt::Earliest,
        dunlin_topic::Start::Latest => StartAt::Latest,
        dunlin_topic::Start::After(at) => {
            StartAt::After(dunlin_wire::Position { epoch: at.epoch, seq: at.seq })
        }
        dunlin_topic::Start::Time(ns) => StartAt::Time(ns),
    }
}

fn on_gap(on_gap: dunlin_topic::OnGap) -> dunlin_wire::OnGap {
    match on_gap {
        dunlin_topic::OnGap::Oldest | dunlin_topic::OnGap::Snapshot => dunlin_wire::OnGap::Oldest,
        dunlin_topic::OnGap::Newest => dunlin_wire::OnGap::Newest,
        dunlin_topic::OnGap::Fail => dunlin_wire::OnGap::Fail,
    }
}
