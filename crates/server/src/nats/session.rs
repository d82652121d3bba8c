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
mod alive;
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

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use dunlin::Node;
use dunlin::topic::{Charge, NewLogArrivals, NewLogs, Waiter};
use dunlin::wire::nats::Connect;

use crate::protocol::Protocol;
use crate::session::outbound::OutboundBuffer;
use crate::session::pace::PausedChannels;
use crate::session::scratch::{self, READ_BYTES, Scratch};
use crate::session::spin::Spin;
use crate::session::timer::Timer;
use crate::session::{ConnectionLost, TurnProgress};
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
const WAKES: usize = 16;
/// Maximum number of bytes of unsent output other than records. Above it, the session stops reading from the client.
const CONTROL_BYTES_MAX: usize = 64 << 10;
/// Number of subscriptions that a closed connection ends in one turn, before other sessions run.
const TURN_ENDS: usize = 64;

/// A session: one connection of a NATS client.
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
    /// Memory that is charged for operations larger than the read buffer.
    unread_charge: Charge,
    /// Number of bytes that must be in `unread` before the next operation can be parsed.
    unread_needs: usize,
    /// Number of operations that the last read completed. The next field counts consecutive small reads that completed
    /// none.
    operations: usize,
    trickles: u32,
    /// Whether reading pauses until the timer fires.
    is_held: bool,
    /// Whether the last read was large, so that other sessions of the thread run first.
    read_much: bool,
    /// Work that was done in this turn, in units of one operation. Records are not counted, because the number of bytes
    /// in a read limits them.
    work: usize,
    /// Whether complete operations wait in `unread` for the session's next turn.
    is_cut: bool,
    /// Number of bytes to read at once. It follows the size of recent operations.
    read_bytes: usize,
    /// Time since which an operation is incomplete, ns; 0 if none is. The next field says whether the timer checks this
    /// time.
    unread_since_ns: u64,
    unread_is_watched: bool,
    pressure: SubscriberPressure,
    /// A publish that waits for room, or for the user's rate.
    blocked: Option<BlockedPublish>,
    /// The pending search for the topic of a publish. The session reads nothing more until the search ends.
    finding: Option<TargetSearch>,
    subscriber_queries: SubscriberQueries,
    replies: ReplySubjectSet,
    refusals: PendingRefusals,
    step: BatchLimits,
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
    /// Channels whose start position another node has still to return, by channel number.
    opening: BTreeMap<u32, PendingChannel>,
    /// Whether the client's permissions have changed since the channels in `opening` were requested.
    opening_is_stale: bool,
    /// Number of channels that have been opened or refused since the session began.
    opened: u64,
    /// If the next publish waits for one of the client's own channels: the value of `opened` when the wait began.
    waits_for_opening: Option<u64>,
    /// Memberships in queue groups.
    members: HashMap<u32, Box<QueueMember>>,
    /// Queue of the queue group members that may have something to send.
    member_line: VecDeque<u32>,
    /// The last number that was assigned to a subscription, channel or member.
    number_last: u32,
    /// Queue of the channels that may have something to send.
    line: VecDeque<u32>,
    /// Channels that are paused until the thread's next write interval.
    resting: PausedChannels,
    session_trace: SessionTrace,
    /// The node with the permissions of the client's user.
    node: Node,
    entrance: LoginState,
    /// Whether the connection is over, so that only ending its subscriptions remains.
    is_over: bool,
    _place: Option<SessionGuard>,
}

/// The write and append buffers that all sessions of a thread share.
#[derive(Debug, Default)]
pub(crate) struct NatsScratch {
    /// The bytes of the next write, except for large payloads.
    gathered: Vec<u8>,
    /// The channels whose records are in the next write.
    turn: Vec<u32>,
    /// For each message of the next write, how it moves its channel's cursor.
    moves: Vec<encode::CursorMove>,
    /// The records that will be appended together.
    run: PublishedBatch<'static>,
}

/// The state of the connection.
#[derive(Debug)]
enum Phase {
    /// The client has sent nothing yet.
    Greeting,
    Open,
    Closing(Closing),
}

impl Session {
    /// Starts a session. At the node's limit of connections, the session refuses the client. `told` is the session's
    /// number if the client has already received INFO, before TLS began.
    pub(crate) fn begin(shared: Arc<SharedServer>, stream: Stream, told: Option<u64>) -> Session {
        let (id, waiter) = (told.unwrap_or_else(|| shared.node.next_session()), Waiter::new());
        let place = shared.admit(id, &waiter);
        let is_full = place.is_none();
        let mut session = Session {
            phase: Phase::Greeting,
            connect: Connect::default(),
            timer: Timer::new(shared.limits.handshake_ms_max),
            spin: Spin::new(shared.spin),
            pings: 0,
            unread: Vec::new(),
            unread_charge: Charge::none(shared.node.budget()),
            unread_needs: 0,
            operations: 0,
            trickles: 0,
            is_held: false,
            read_much: false,
            work: 0,
            is_cut: false,
            read_bytes: READ_BYTES,
            unread_since_ns: 0,
            unread_is_watched: false,
            pressure: SubscriberPressure::default(),
            blocked: None,
            finding: None,
            subscriber_queries: SubscriberQueries::default(),
            replies: ReplySubjectSet::default(),
            refusals: PendingRefusals::default(),
            step: BatchLimits::default(),
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
            member_line: VecDeque::new(),
            number_last: 0,
            line: VecDeque::new(),
            resting: PausedChannels::default(),
            session_trace: SessionTrace::begin(&shared, Protocol::Nats, &stream, id),
            node: shared.node.clone(),
            entrance: LoginState::default(),
            is_over: false,
            _place: place,
            shared,
            stream,
            waiter,
            id,
        };
        if told.is_none() {
            session.write_info();
        }
        if is_full {
            let why = connect::in_words(&session.shared.no_place());
            session.fail(&why);
        } else if session.shared.is_stopping() {
            session.begin_closing();
        }
        session
    }

    /// Reads and writes alternately. Returns `Pending` while the session sleeps or lets other sessions run.
    fn poll_turns(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
    ) -> Result<Poll<()>, ConnectionLost> {
        for _ in 0..self.spin.turns() {
            self.take_woken();
            self.poll_opening(cx);
            self.line.extend(self.resting.over(&scratch.pace));
            // A response that is ready is sent before the next read.
            let quiet = self.line.is_empty() && self.member_line.is_empty();
            let answered = if quiet { TurnProgress::None } else { self.poll_write(cx, scratch)? };
            let read = self.poll_read(cx, scratch)?;
            let wrote = self.poll_write(cx, scratch)?;
            if self.may_close()? {
                return Ok(Poll::Ready(()));
            }
            if [answered, read, wrote].contains(&TurnProgress::Some) {
                self.spin.not_in_vain();
                if std::mem::take(&mut self.read_much) {
                    break;
                }
            } else if self.sleep(cx) {
                self.resting.ask(&mut scratch.pace, cx.waker());
                return Ok(Poll::Pending);
            }
        }
        cx.waker().wake_by_ref();
        Ok(Poll::Pending)
    }

    /// Handles notifications of the session's waiter: channels that may have records, and other events.
    fn take_woken(&mut self) {
        let (mut newcomers, mut stop, mut users, mut answered, mut nodes) =
            (false, false, false, false, false);
        let Session { waiter, channels, line, members, member_line, blocked, .. } = self;
        waiter.take_ready(|token| match token {
            Waiter::ROOM => blocked.iter_mut().for_each(BlockedPublish::room),
            NewLogs::TOKEN => newcomers = true,
            STOP => stop = true,
            USERS => users = true,
            OWNER_RESPONDED => answered = true,
            NODES => nodes = true,
            // Nothing to do here: the handling of CONNECT polls for the login's result.
            LOGIN => {}
            number => {
                if let Some(channel) = channels.get_mut(&number) {
                    channel.cursor.woken_and_wake(WAKES);
                    line.push_back(number);
                } else if let Some(member) = members.get_mut(&number) {
                    member.waits = false;
                    member_line.push_back(number);
                }
            }
        });
        if users {
            self.users_changed();
        }
        if newcomers {
            self.take_newcomers();
        }
        if answered {
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
        if self.spin.again() {
            cx.waker().wake_by_ref();
            return true;
        }
        self.waiter.set_waker(cx.waker())
    }

    /// Whether a publish waits for something other than room in its topic.
    fn is_waiting(&self) -> bool {
        self.finding.is_some() || self.subscriber_queries.is_waiting() || self.waits_for_opening.is_some()
    }

    fn is_closing(&self) -> bool {
        matches!(self.phase, Phase::Closing(_))
    }

    /// Ends some of the subscriptions of a connection that is over. Returns whether all have ended.
    fn end_some(&mut self) -> bool {
        let some: Vec<u32> = self.subscriptions.keys().take(TURN_ENDS).copied().collect();
        some.into_iter().for_each(|number| self.end_subscription(number));
        self.subscriptions.is_empty()
    }
}

impl Future for Session {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let session = self.get_mut();
        if !session.is_over {
            let polled = scratch::with(|scratch| session.poll_turns(cx, scratch));
            if polled.unwrap_or(Poll::Ready(())).is_pending() {
                return Poll::Pending;
            }
            session.is_over = true;
        }
        if session.end_some() {
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
