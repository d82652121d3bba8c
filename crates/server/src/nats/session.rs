//! Serves one connection of a NATS client: an async task that reads operations, performs them, and writes responses and
//! records.
//!
//! The session works like a session of Dunlin's own protocol. Whenever it is woken, it alternately reads and writes
//! until neither makes progress. Records are encoded as NATS messages, from their segments into a write buffer that the
//! sessions of the thread share.
//!
//! Invariants:
//! - No messages are queued. A subscription is a set of cursors, which move past a message when the socket has taken
//!   it. A session buffers the unsent rest of at most one message.
//! - Between two polls, a session holds no segment of a log.
//! - Operations take effect in order: the records of earlier operations are appended before a later operation is
//!   performed.
//! - Unsent output other than records takes at most [`CONTROL_BYTES_MAX`] bytes and one response. At this limit, the
//!   session stops reading from the client.
//!
//! Limits: those of [`ServerLimits`](crate::ServerLimits).

mod access;
mod closing;
mod connect;
mod deliver;
mod encode;
mod ending;
mod forwarded;
mod inboxes;
mod members;
mod notices;
mod operations;
mod own;
mod publish;
mod reading;
mod refusals;
mod replies;
mod subscribe;
mod subscriber_queries;
mod subscription;
mod targets;
mod timeouts;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use dunlin::topic::{MemoryCharge, NewLogArrivals, NewLogs, Waiter};
use dunlin::wire::nats::Connect;
use dunlin::{Node, TopicFuture};

use crate::protocol::Protocol;
use crate::session::outbound::OutboundBuffer;
use crate::session::pace::PausedChannels;
use crate::session::scratch::{self, READ_BYTES, Scratch};
use crate::session::spin::Spin;
use crate::session::timer::Timer;
use crate::session::turn::TurnWork;
use crate::session::{ConnectionLost, RoundProgress};
use crate::session_trace::SessionTrace;
use crate::shared::{LOGIN, NODES, STOP, SessionGuard, SharedServer, USERS};
use crate::stream::Stream;

use access::LoginState;
use closing::Closing;
pub(crate) use connect::{AnnouncedInfo, refusal, write_info};
use ending::PendingPongs;
use forwarded::{ForwardedBatches, OWNER_RESPONDED, RepeatedOperations};
use inboxes::ConnectionInboxes;
use members::QueueMember;
use own::OwnRecords;
use publish::{BatchLimits, BlockedPublish, PublishedBatch, SubscriberPressure};
use refusals::PendingRefusals;
use replies::ReplySubjectSet;
use subscriber_queries::SubscriberQueries;
use subscription::{
    Channel, FilteredLog, LeavingSubscription, PendingChannel, StartingSubscription, Subscription,
};
use targets::{PublishTargets, TargetSearch};

/// When new records wake a session, it wakes at most this many other sessions.
const PASSED_WAKES_MAX: usize = 16;
/// Maximum number of bytes of unsent output other than records. If there is more, the session stops reading from the
/// client.
const CONTROL_BYTES_MAX: usize = 64 << 10;
/// When a connection has closed, this many of its subscriptions are ended before other sessions of the thread run.
const SUBSCRIPTIONS_PER_POLL: usize = 64;

pub(crate) struct Session {
    shared: Arc<SharedServer>,
    stream: Stream,
    waiter: Arc<Waiter>,
    id: u64,
    phase: Phase,
    connect: Connect,
    /// The addresses of the cluster's members in the last INFO that the client received.
    announced_addresses: Vec<String>,
    timer: Timer,
    spin: Spin,
    /// Number of `PING`s that the session has sent since the client last responded or sent an operation.
    pings: u32,
    /// Bytes that were read but not handled: an incomplete operation, or operations that wait, for example for room in
    /// a topic.
    unread: Vec<u8>,
    /// The memory charge for `unread`.
    unread_charge: MemoryCharge,
    /// Number of bytes that must be in `unread` before the next operation can be parsed.
    unread_needs: usize,
    /// Number of operations that the last read completed.
    operations: usize,
    /// Number of consecutive reads that were small and completed no operation.
    trickles: u32,
    /// Whether reading pauses until the timer fires.
    reading_is_paused: bool,
    /// Whether the last read was large, so that other sessions of the thread run first.
    is_large_read: bool,
    /// The work of the client's operations in this turn. Published records do not count, because the number of bytes in
    /// a read limits them.
    commands: TurnWork,
    /// The work of deliveries in this turn, and of ending subscriptions.
    delivery: TurnWork,
    /// Whether `unread` contains complete operations, which the next turn handles.
    has_unhandled: bool,
    /// Maximum number of bytes of the next read. It depends on the size of recent operations.
    read_bytes: usize,
    /// Time since which the operation in `unread` is incomplete; `None` if there is no incomplete operation.
    unread_since: Option<Instant>,
    /// Whether the timer currently limits the wait for the rest of an incomplete operation.
    unread_timer_is_set: bool,
    pressure: SubscriberPressure,
    /// The publish that waits for room in its topic, or until the user's publish rate allows it.
    blocked: Option<BlockedPublish>,
    /// The pending search for a publish's topic. Nothing more is read until the search ends.
    target_search: Option<TargetSearch>,
    subscriber_queries: SubscriberQueries,
    /// Ready when this node knows the topics for which the next `SUB` waits.
    awaited_topics: Option<TopicFuture<()>>,
    replies: ReplySubjectSet,
    refusals: PendingRefusals,
    batch_limits: BatchLimits,
    outbound: OutboundBuffer,
    targets: PublishTargets,
    forwarded: ForwardedBatches,
    repeats: RepeatedOperations,
    inboxes: ConnectionInboxes,
    own: OwnRecords,
    pongs: PendingPongs,
    subscriptions: HashMap<u32, Subscription>,
    /// Subscriptions that end when all their channels and group memberships have ended.
    ending: HashSet<u32>,
    /// Notifies the session of new topics' logs, and names the subscriptions that must read them.
    new_logs: Arc<NewLogArrivals>,
    /// The newest subscription, if it does not read all its logs yet. No further operation is handled until it does.
    starting: Option<StartingSubscription>,
    /// The logs of new topics that subscriptions must begin to read, with the numbers of the subscriptions.
    arrived_logs: VecDeque<(u32, FilteredLog)>,
    /// The subscriptions that the client has ended, but whose last records are not determined yet, each with the lowest
    /// number of the channels and memberships that are left. No further operation is handled until this list is empty.
    draining: VecDeque<(u32, u32)>,
    /// The channels and memberships of subscriptions that have ended.
    leaving: Vec<LeavingSubscription>,
    /// The number of each subscription, by the name (`sid`) that the client chose for it.
    by_sid: HashMap<Box<[u8]>, u32>,
    channels: HashMap<u32, Box<Channel>>,
    /// Channels, by number, whose start position another node must still send.
    opening: BTreeMap<u32, PendingChannel>,
    /// Channels that are read only after the end of a deleted topic with the same name.
    held: BTreeSet<u32>,
    /// Whether the client's permissions have changed since the channels in `opening` were requested.
    opening_is_stale: bool,
    /// Number of channels that have been opened or refused since the session began.
    opened: u64,
    /// If a publish waits until the client's own new subscription can receive the record: the value that `opened` had
    /// when the wait began. `None` if no publish waits for this.
    waits_for_opening: Option<u64>,
    members: HashMap<u32, Box<QueueMember>>,
    /// Queue group members that may have records to deliver, in the order in which they are served.
    member_queue: VecDeque<u32>,
    /// Whether the members' last deliveries filled the output. The channels then write before the members deliver more.
    is_channels_turn: bool,
    /// The last number that was assigned to a subscription, channel or member.
    number_last: u32,
    /// Tokens with which logs and groups have notified the session.
    woken: VecDeque<u32>,
    /// Channels that may have records to send, in the order in which they are served.
    channel_queue: VecDeque<u32>,
    /// Whether so many records were skipped that other sessions of the thread must run before this session continues.
    is_skip_budget_spent: bool,
    /// Channels that send no records before the thread's next write interval.
    paused_channels: PausedChannels,
    session_trace: SessionTrace,
    /// The node with the permissions of the client's user.
    node: Node,
    login_state: LoginState,
    /// Whether the connection has ended. The session then only ends its subscriptions.
    is_over: bool,
    _guard: Option<SessionGuard>,
}

/// The buffers for writing and appending that all sessions of a thread share.
#[derive(Debug, Default)]
pub(crate) struct NatsScratch {
    /// The bytes of the next write, without large payloads, which are not copied.
    copied: Vec<u8>,
    /// The channels whose records are in the next write.
    selected: Vec<u32>,
    /// For each message of the next write, how far it moves its channel's cursor.
    moves: Vec<encode::CursorMove>,
    /// The records that will be appended together.
    batch: PublishedBatch<'static>,
}

#[derive(Debug)]
enum Phase {
    /// The client has not sent a complete operation yet, or is not logged in.
    Greeting,
    Open,
    Closing(Closing),
}

impl Session {
    /// Starts a session. If the node has reached its limit of connections, the session refuses the client. If the
    /// client received INFO before TLS began, `announced` is this INFO.
    pub(crate) fn begin(
        shared: Arc<SharedServer>,
        stream: Stream,
        announced: Option<AnnouncedInfo>,
    ) -> Session {
        let must_send_info = announced.is_none();
        let AnnouncedInfo { session: id, addresses } = announced
            .unwrap_or_else(|| AnnouncedInfo { session: shared.node.next_session(), addresses: Vec::new() });
        let waiter = Waiter::new();
        let guard = shared.admit(id, &waiter);
        let is_full = guard.is_none();
        let mut session = Session {
            phase: Phase::Greeting,
            connect: Connect::default(),
            announced_addresses: addresses,
            timer: Timer::new(shared.limits.handshake_ms_max),
            spin: Spin::new(shared.spin),
            pings: 0,
            unread: Vec::new(),
            unread_charge: MemoryCharge::none(match &shared.access {
                Some(_) => &shared.login_budget,
                None => shared.node.budget(),
            }),
            unread_needs: 0,
            operations: 0,
            trickles: 0,
            reading_is_paused: false,
            is_large_read: false,
            commands: TurnWork::default(),
            delivery: TurnWork::default(),
            has_unhandled: false,
            read_bytes: READ_BYTES,
            unread_since: None,
            unread_timer_is_set: false,
            pressure: SubscriberPressure::default(),
            blocked: None,
            target_search: None,
            subscriber_queries: SubscriberQueries::default(),
            awaited_topics: None,
            replies: ReplySubjectSet::default(),
            refusals: PendingRefusals::default(),
            batch_limits: BatchLimits::default(),
            outbound: OutboundBuffer::default(),
            targets: PublishTargets::default(),
            forwarded: ForwardedBatches::default(),
            repeats: RepeatedOperations::default(),
            inboxes: ConnectionInboxes::default(),
            own: OwnRecords::default(),
            pongs: PendingPongs::default(),
            subscriptions: HashMap::new(),
            ending: HashSet::new(),
            new_logs: Arc::default(),
            starting: None,
            arrived_logs: VecDeque::new(),
            draining: VecDeque::new(),
            leaving: Vec::new(),
            by_sid: HashMap::new(),
            channels: HashMap::new(),
            opening: BTreeMap::new(),
            held: BTreeSet::new(),
            opening_is_stale: false,
            opened: 0,
            waits_for_opening: None,
            members: HashMap::new(),
            member_queue: VecDeque::new(),
            is_channels_turn: false,
            number_last: 0,
            woken: VecDeque::new(),
            channel_queue: VecDeque::new(),
            is_skip_budget_spent: false,
            paused_channels: PausedChannels::default(),
            session_trace: SessionTrace::begin(&shared, Protocol::Nats, &stream, id),
            node: shared.node.clone(),
            login_state: LoginState::default(),
            is_over: false,
            _guard: guard,
            shared,
            stream,
            waiter,
            id,
        };
        if must_send_info {
            session.write_info();
        }
        if is_full {
            let why = connect::error_text(&session.shared.admission_refusal());
            session.fail(&why);
        } else if session.shared.is_stopping() {
            session.begin_closing();
        }
        session
    }

    /// Reads and writes in turn. Returns `Pending` when the session has nothing to do, or when other sessions must run
    /// first.
    fn poll_rounds(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
    ) -> Result<Poll<()>, ConnectionLost> {
        self.commands.begin();
        self.delivery.begin();
        for _ in 0..self.spin.rounds_per_poll() {
            // First, because channels that have not ended yet count towards the limits of a starting subscription.
            self.end_leaving();
            self.handle_notifications();
            self.poll_opening(cx);
            self.channel_queue.extend(self.paused_channels.take_ended(&scratch.pace));
            // If channels or members may have something to send, writes before the next read.
            let is_idle = self.channel_queue.is_empty() && self.member_queue.is_empty();
            let wrote_first = if is_idle { RoundProgress::None } else { self.poll_write(cx, scratch)? };
            let read = self.poll_read(cx, scratch)?;
            let wrote = self.poll_write(cx, scratch)?;
            if self.may_close()? {
                return Ok(Poll::Ready(()));
            }
            // Work that is left over continues in the next turn, after the thread's other sessions.
            let is_turn_over = self.commands.is_spent() || self.delivery.is_spent();
            if is_turn_over || [wrote_first, read, wrote].contains(&RoundProgress::Some) {
                self.spin.record_success();
                let is_long_skip = std::mem::take(&mut self.is_skip_budget_spent);
                if std::mem::take(&mut self.is_large_read) || is_long_skip || is_turn_over {
                    break;
                }
            } else if self.sleep(cx) {
                self.paused_channels.request_wakeup(&mut scratch.pace, cx.waker());
                return Ok(Poll::Pending);
            }
        }
        // Checks the timer and the paused channels here too, because a busy client can keep the session from ever
        // sleeping.
        if self.timer.poll_due(cx) {
            self.on_timer();
        }
        self.paused_channels.request_wakeup(&mut scratch.pace, cx.waker());
        cx.waker().wake_by_ref();
        Ok(Poll::Pending)
    }

    /// Handles the notifications that the session's waiter has received: channels and members that may have records,
    /// and other events.
    fn handle_notifications(&mut self) {
        let (mut has_new_logs, mut stop, mut users, mut owner_responded, mut nodes) =
            (false, false, false, false, false);
        let Session { waiter, woken, blocked, .. } = self;
        waiter.take_ready(|token| match token {
            Waiter::ROOM => blocked.iter_mut().for_each(BlockedPublish::on_room),
            NewLogs::TOKEN => has_new_logs = true,
            STOP => stop = true,
            USERS => users = true,
            OWNER_RESPONDED => owner_responded = true,
            NODES => nodes = true,
            // The login's result is read when CONNECT is handled again, which this wakeup causes.
            LOGIN => {}
            number => woken.push_back(number),
        });
        self.queue_woken();
        if users {
            self.on_users_changed();
        }
        if has_new_logs {
            self.take_new_logs();
        }
        self.continue_unfinished();
        if owner_responded {
            self.handle_owner_responses();
        }
        if nodes {
            self.announce_members();
        }
        if stop {
            self.begin_closing();
        }
    }

    /// Queues the channels and members that were notified.
    fn queue_woken(&mut self) {
        while !self.delivery.is_spent()
            && let Some(number) = self.woken.pop_front()
        {
            self.delivery.add(1);
            if let Some(channel) = self.channels.get_mut(&number) {
                channel.cursor.handle_wake_many(PASSED_WAKES_MAX);
                self.channel_queue.push_back(number);
            } else if let Some(member) = self.members.get_mut(&number) {
                member.is_waiting = false;
                self.member_queue.push_back(number);
            }
        }
    }

    /// Whether operations that were handled have work left which must be done before the next operation.
    fn has_unfinished(&self) -> bool {
        self.starting.is_some() || !self.arrived_logs.is_empty() || !self.draining.is_empty()
    }

    /// Continues the work that must be done before the next operation, as far as this turn allows.
    fn continue_unfinished(&mut self) {
        self.continue_starting();
        self.read_arrived_logs();
        self.continue_draining();
    }

    /// Prepares the session for waiting: its task is woken when there is work. Returns false if there is work already.
    fn sleep(&mut self, cx: &mut Context<'_>) -> bool {
        if self.timer.poll_due(cx) {
            self.on_timer();
            return false;
        }
        if self.spin.record_failure() {
            cx.waker().wake_by_ref();
            return true;
        }
        self.waiter.set_waker(cx.waker())
    }

    /// Whether an operation waits for anything other than room in a topic or the user's publish rate.
    fn is_waiting(&self) -> bool {
        self.target_search.is_some()
            || self.subscriber_queries.is_waiting()
            || self.awaited_topics.is_some()
            || self.waits_for_opening.is_some()
            || self.repeats.waits_for_outcomes()
    }

    fn is_closing(&self) -> bool {
        matches!(self.phase, Phase::Closing(_))
    }

    /// Ends some of the subscriptions after the connection has ended. Returns whether no subscription is left.
    fn end_next_subscriptions(&mut self) -> bool {
        self.delivery.begin();
        self.end_leaving();
        if self.delivery.is_spent() {
            return false;
        }
        let numbers: Vec<u32> = self.subscriptions.keys().take(SUBSCRIPTIONS_PER_POLL).copied().collect();
        numbers.into_iter().for_each(|number| self.end_subscription(number));
        self.subscriptions.is_empty() && self.leaving.is_empty()
    }
}

impl Future for Session {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let session = self.get_mut();
        if !session.is_over {
            let polled = scratch::with(|scratch| session.poll_rounds(cx, scratch));
            if polled.unwrap_or(Poll::Ready(())).is_pending() {
                return Poll::Pending;
            }
            session.is_over = true;
        }
        if session.end_next_subscriptions() {
            return Poll::Ready(());
        }
        // Other sessions of the thread run before more subscriptions are ended.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.leave_groups();
        for (number, mut channel) in self.channels.drain() {
            channel.cursor.leave(&self.waiter, number);
        }
    }
}
