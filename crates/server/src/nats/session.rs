//! One connection of a NATS client: an async task that reads operations, performs them, and writes what is due.
//!
//! The session works like a session of Dunlin's own protocol. Whenever it is woken, it alternately reads and writes
//! until neither makes progress. Records are encoded as text, from their segments into the write buffer that the
//! thread's sessions share.
//!
//! Invariants:
//! - No messages are queued: a subscription is a set of cursors, which move by the bytes that the socket took. A
//!   session buffers the unsent rest of at most one message.
//! - Between two polls, a session holds no segment of a log.
//! - Operations take effect in order: records that were read are appended before any later operation.
//! - Unsent output other than records is at most [`CONTROL_BYTES_MAX`] and one response. When there is more, the
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

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use dunlin::Node;
use dunlin::topic::{MemoryCharge, NewLogArrivals, NewLogs, Waiter};
use dunlin::wire::nats::Connect;

use crate::protocol::Protocol;
use crate::session::outbound::OutboundBuffer;
use crate::session::pace::PausedChannels;
use crate::session::scratch::{self, READ_BYTES, Scratch};
use crate::session::spin::Spin;
use crate::session::timer::Timer;
use crate::session::{ConnectionLost, RoundProgress};
use crate::session_trace::SessionTrace;
use crate::shared::{LOGIN, NODES, STOP, SessionGuard, SharedServer, USERS};
use crate::stream::Stream;

use access::LoginState;
use closing::Closing;
pub(crate) use connect::{refusal, write_info};
use ending::PendingPongs;
use forwarded::{ForwardedBatches, OWNER_RESPONDED};
use inboxes::ConnectionInboxes;
use members::QueueMember;
use own::OwnRecords;
use publish::{BatchLimits, BlockedPublish, PublishedBatch, SubscriberPressure};
use refusals::PendingRefusals;
use replies::ReplySubjectSet;
use subscriber_queries::SubscriberQueries;
use subscription::{Channel, PendingChannel, Subscription};
use targets::{PublishTargets, TargetSearch};

/// Maximum number of sessions to which a woken session passes on the notification of new records.
const PASSED_WAKES_MAX: usize = 16;
/// Maximum number of bytes of unsent output other than records. Above it, the session stops reading from the client.
const CONTROL_BYTES_MAX: usize = 64 << 10;
/// Number of subscriptions that a closed connection ends at once, before other sessions run.
const SUBSCRIPTIONS_PER_POLL: usize = 64;

pub(crate) struct Session {
    shared: Arc<SharedServer>,
    stream: Stream,
    waiter: Arc<Waiter>,
    id: u64,
    phase: Phase,
    connect: Connect,
    timer: Timer,
    spin: Spin,
    /// Number of `PING`s to the client that have no response yet.
    pings: u32,
    /// The start of an incomplete operation, or operations that wait for room in a topic.
    unread: Vec<u8>,
    /// Memory that is charged for `unread`.
    unread_charge: MemoryCharge,
    /// Number of bytes that must be in `unread` before the next operation can be parsed.
    unread_needs: usize,
    /// Number of operations that the last read completed.
    operations: usize,
    /// Number of consecutive small reads that completed no operation.
    trickles: u32,
    /// Whether reading pauses until the timer fires.
    reading_is_paused: bool,
    /// Whether the last read was large, so that other sessions of the thread run first.
    is_large_read: bool,
    /// Work that was done in this round, in units of one operation. Records are not counted, because the number of
    /// bytes in a read limits them.
    work: usize,
    /// Whether complete operations wait in `unread` for the session's next round.
    has_unhandled: bool,
    /// Number of bytes to read at once. It follows the size of recent operations.
    read_bytes: usize,
    /// Time since which an operation is incomplete; `None` if none is.
    unread_since: Option<Instant>,
    /// Whether the timer is set to end the wait for the rest of an incomplete operation.
    unread_timer_is_set: bool,
    pressure: SubscriberPressure,
    /// A publish that waits for room in its topic, or until the user's publish rate allows it.
    blocked: Option<BlockedPublish>,
    /// The pending search for the topic of a publish. The session reads nothing more until the search ends.
    target_search: Option<TargetSearch>,
    subscriber_queries: SubscriberQueries,
    replies: ReplySubjectSet,
    refusals: PendingRefusals,
    batch_limits: BatchLimits,
    outbound: OutboundBuffer,
    targets: PublishTargets,
    forwarded: ForwardedBatches,
    inboxes: ConnectionInboxes,
    own: OwnRecords,
    pongs: PendingPongs,
    subscriptions: HashMap<u32, Subscription>,
    /// Subscriptions that end as soon as their channels and members have ended.
    ending: HashSet<u32>,
    /// Arrivals of logs of new topics, with the subscriptions that must read them.
    new_logs: Arc<NewLogArrivals>,
    /// Subscriptions by the names (`sid`) that the client chose for them.
    by_sid: HashMap<Box<[u8]>, u32>,
    channels: HashMap<u32, Box<Channel>>,
    /// Channels whose start position another node still has to return, by channel number.
    opening: BTreeMap<u32, PendingChannel>,
    /// Whether the client's permissions have changed since the channels in `opening` were requested.
    opening_is_stale: bool,
    /// Number of channels that have been opened or refused since the session began.
    opened: u64,
    /// The value of `opened` when the next publish began to wait for one of the client's own channels; `None` if it
    /// does not wait for a channel.
    waits_for_opening: Option<u64>,
    members: HashMap<u32, Box<QueueMember>>,
    /// Queue of the queue group members that may have something to send.
    member_queue: VecDeque<u32>,
    /// Whether the output was full after the members' last deliveries, so that the channels write first.
    members_filled_output: bool,
    /// The last number that was assigned to a subscription, channel or member.
    number_last: u32,
    /// Queue of the channels that may have something to send.
    channel_queue: VecDeque<u32>,
    /// Whether the channels or members have skipped as many records as they may before the other sessions of the thread
    /// run.
    is_skip_budget_spent: bool,
    /// Channels that are paused until the thread's next write interval.
    paused_channels: PausedChannels,
    session_trace: SessionTrace,
    /// The node with the permissions of the client's user.
    node: Node,
    login_state: LoginState,
    /// Whether the connection has ended, and the session only has to end its subscriptions.
    is_over: bool,
    _guard: Option<SessionGuard>,
}

/// The write and append buffers that all sessions of a thread share.
#[derive(Debug, Default)]
pub(crate) struct NatsScratch {
    /// The bytes of the next write, except for large payloads.
    copied: Vec<u8>,
    /// The channels whose records are in the next write.
    selected: Vec<u32>,
    /// For each message of the next write, how it moves its channel's cursor.
    moves: Vec<encode::CursorMove>,
    /// The records that will be appended together.
    batch: PublishedBatch<'static>,
}

#[derive(Debug)]
enum Phase {
    /// The client has sent nothing yet.
    Greeting,
    Open,
    Closing(Closing),
}

impl Session {
    /// Starts a session. At the node's limit of connections, the session refuses the client. `announced_id` is the
    /// session's number if the client has already received INFO, before TLS began.
    pub(crate) fn begin(shared: Arc<SharedServer>, stream: Stream, announced_id: Option<u64>) -> Session {
        let (id, waiter) = (announced_id.unwrap_or_else(|| shared.node.next_session()), Waiter::new());
        let guard = shared.admit(id, &waiter);
        let is_full = guard.is_none();
        let mut session = Session {
            phase: Phase::Greeting,
            connect: Connect::default(),
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
            work: 0,
            has_unhandled: false,
            read_bytes: READ_BYTES,
            unread_since: None,
            unread_timer_is_set: false,
            pressure: SubscriberPressure::default(),
            blocked: None,
            target_search: None,
            subscriber_queries: SubscriberQueries::default(),
            replies: ReplySubjectSet::default(),
            refusals: PendingRefusals::default(),
            batch_limits: BatchLimits::default(),
            outbound: OutboundBuffer::default(),
            targets: PublishTargets::default(),
            forwarded: ForwardedBatches::default(),
            inboxes: ConnectionInboxes::default(),
            own: OwnRecords::default(),
            pongs: PendingPongs::default(),
            subscriptions: HashMap::new(),
            ending: HashSet::new(),
            new_logs: Arc::default(),
            by_sid: HashMap::new(),
            channels: HashMap::new(),
            opening: BTreeMap::new(),
            opening_is_stale: false,
            opened: 0,
            waits_for_opening: None,
            members: HashMap::new(),
            member_queue: VecDeque::new(),
            members_filled_output: false,
            number_last: 0,
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
        if announced_id.is_none() {
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

    /// Reads and writes alternately. Returns `Pending` while the session sleeps or lets other sessions run.
    fn poll_rounds(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
    ) -> Result<Poll<()>, ConnectionLost> {
        for _ in 0..self.spin.rounds_per_poll() {
            self.handle_notifications();
            self.poll_opening(cx);
            self.channel_queue.extend(self.paused_channels.take_ended(&scratch.pace));
            // A response that is ready is sent before the next read.
            let is_idle = self.channel_queue.is_empty() && self.member_queue.is_empty();
            let wrote_first = if is_idle { RoundProgress::None } else { self.poll_write(cx, scratch)? };
            let read = self.poll_read(cx, scratch)?;
            let wrote = self.poll_write(cx, scratch)?;
            if self.may_close()? {
                return Ok(Poll::Ready(()));
            }
            if [wrote_first, read, wrote].contains(&RoundProgress::Some) {
                self.spin.record_success();
                let is_long_skip = std::mem::take(&mut self.is_skip_budget_spent);
                if std::mem::take(&mut self.is_large_read) || is_long_skip {
                    break;
                }
            } else if self.sleep(cx) {
                self.paused_channels.request_wakeup(&mut scratch.pace, cx.waker());
                return Ok(Poll::Pending);
            }
        }
        // Also runs while a client keeps the session busy, so that the client stops neither the timer nor the paused
        // channels.
        if self.timer.poll_due(cx) {
            self.on_timer();
        }
        self.paused_channels.request_wakeup(&mut scratch.pace, cx.waker());
        cx.waker().wake_by_ref();
        Ok(Poll::Pending)
    }

    /// Handles notifications of the session's waiter: channels that may have records, and other events.
    fn handle_notifications(&mut self) {
        let (mut has_new_logs, mut stop, mut users, mut owner_responded, mut nodes) =
            (false, false, false, false, false);
        let Session { waiter, channels, channel_queue, members, member_queue, blocked, .. } = self;
        waiter.take_ready(|token| match token {
            Waiter::ROOM => blocked.iter_mut().for_each(BlockedPublish::on_room),
            NewLogs::TOKEN => has_new_logs = true,
            STOP => stop = true,
            USERS => users = true,
            OWNER_RESPONDED => owner_responded = true,
            NODES => nodes = true,
            // Nothing to do here: the handling of CONNECT polls for the login's result.
            LOGIN => {}
            number => {
                if let Some(channel) = channels.get_mut(&number) {
                    channel.cursor.handle_wake_many(PASSED_WAKES_MAX);
                    channel_queue.push_back(number);
                } else if let Some(member) = members.get_mut(&number) {
                    member.is_waiting = false;
                    member_queue.push_back(number);
                }
            }
        });
        if users {
            self.on_users_changed();
        }
        if has_new_logs {
            self.read_new_logs();
        }
        if owner_responded {
            self.report_owner_refusals();
        }
        if nodes {
            self.write_info_again();
        }
        if stop {
            self.begin_closing();
        }
    }

    /// Registers the task to be woken. Returns whether the session has no work until then.
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

    /// Whether a publish waits for something other than room in its topic.
    fn is_waiting(&self) -> bool {
        self.target_search.is_some()
            || self.subscriber_queries.is_waiting()
            || self.waits_for_opening.is_some()
    }

    fn is_closing(&self) -> bool {
        matches!(self.phase, Phase::Closing(_))
    }

    /// Ends some of the subscriptions of a connection that is over. Returns whether all have ended.
    fn end_next_subscriptions(&mut self) -> bool {
        let numbers: Vec<u32> = self.subscriptions.keys().take(SUBSCRIPTIONS_PER_POLL).copied().collect();
        numbers.into_iter().for_each(|number| self.end_subscription(number));
        self.subscriptions.is_empty()
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
        // Lets the other sessions of the thread run before the next part.
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
