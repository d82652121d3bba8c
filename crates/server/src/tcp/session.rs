//! Serves one connection with Dunlin's own protocol: an async task that reads messages, handles them, and writes
//! responses and records.
//!
//! When the task is woken, it reads and writes in turn until neither makes progress. Then it sleeps until the socket, a
//! log, the timer or the server wakes it.
//!
//! Invariants:
//! - While a session sleeps, it holds no segment of a log. If the socket takes only a part of a batch, the session
//!   copies the rest and moves the cursor past the batch.
//! - All sessions of a thread share a read buffer and a write buffer. A session's own buffers hold only an incomplete
//!   message, output other than records, and the rest of one batch.
//! - Unsent output other than records has at most [`CONTROL_BYTES_MAX`] bytes and one more message. Above
//!   [`CONTROL_BYTES_MAX`], the session stops reading from the client.
//!
//! Limits: those of [`ServerLimits`](crate::ServerLimits).

mod access;
pub(crate) use access::NODE_CLIENT;
mod closing;
mod control;
mod deliver;
mod groups;
mod handle;
mod hello;
mod outbound;
mod pending;
mod plan;
mod preparation;
mod publish;
mod reading;
mod stored;
mod subscribe;
mod subscription;
mod tasks;
mod timeouts;
mod topics;
mod translate;

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::BytesMut;
use dunlin::topic::{MemoryCharge, NewLogArrivals, NewLogs, Waiter};
use dunlin::wire::{Decoder, DecoderLimits, Follow};
use dunlin::{Inbox, Node};
use hashbrown::HashMap;

use crate::figures::ClusterFigures;
use crate::node_connections::NodeConnection;
use crate::session::{ConnectionLost, RoundProgress, pace, scratch, spin};
use crate::session_trace::SessionTrace;
use crate::shared::{LOGIN, NODES, STOP, SessionGuard, SharedServer, USERS};
use crate::stream::Stream;

use crate::session::timer::Timer;
use crate::session::turn::{LOGS_PER_TURN, TurnWork};
use access::LoginState;
use closing::Closing;
use control::{CONTROL_RESULT, ControlRequests};
use groups::GroupMembership;
use outbound::OutboundBuffer;
use pace::PausedChannels;
pub(crate) use plan::WriteScratch;
use preparation::{Preparation, PreparationResult};
use publish::SessionPublishers;
use scratch::Scratch;
use spin::Spin;
use stored::{PendingAcks, STORED};
use subscription::{Channel, EndingSubscription, HeldChannel, PendingChannel, ResumePositions, Subscription};
use tasks::{TASK_RESULT, TaskRequests};

/// When a session is woken by new records, it notifies at most this many other sessions. With 16, three steps suffice
/// to notify 1,000 subscribers. With 2, ten steps would be necessary, and each step may have to wait until its thread
/// is free.
const PASSED_WAKES_MAX: usize = 16;
/// When a connection has closed, this many of its channels and this many of its memberships are ended before other
/// sessions of the thread run.
const CHANNELS_PER_POLL: usize = LOGS_PER_TURN;
/// Above this many bytes of unsent output other than records, the session stops reading from the client.
const CONTROL_BYTES_MAX: usize = 64 << 10;

pub(crate) struct Session {
    shared: Arc<SharedServer>,
    /// The session's reference to the server's `pending_responses`. A stopping server waits until no session holds such
    /// a reference.
    _answering: Arc<()>,
    stream: Stream,
    waiter: Arc<Waiter>,
    id: u64,
    phase: Phase,
    decoder: Decoder,
    inbox: Inbox,
    timer: Timer,
    spin: Spin,
    /// The beginning of an incomplete message, or messages that wait until a topic has room.
    unread: BytesMut,
    /// The memory charge for `unread`.
    unread_charge: MemoryCharge,
    /// Number of bytes that `unread` must have before the next message can be decoded.
    unread_needs: usize,
    /// Number of bytes of a refused message that must still be skipped.
    skip_bytes: usize,
    /// Whether `unread` begins with a complete message that the next turn handles.
    has_unhandled: bool,
    /// The work of the client's messages in this turn. A message with records counts as one unit, and is handled even if
    /// the turn's work is spent, because the number of bytes in a read limits such messages.
    commands: TurnWork,
    /// The work of deliveries in this turn, and of announcing logs and ending subscriptions.
    delivery: TurnWork,
    /// Number of bytes in `unread` that were already searched for credit messages. A credit message takes effect before
    /// the messages that wait in front of it.
    scanned_bytes: usize,
    outbound: OutboundBuffer,
    publishing: SessionPublishers,
    /// The preparation that the first message in `unread` needs before it can be handled; `prepared` has the result.
    preparation: Option<Preparation>,
    prepared: Option<PreparationResult>,
    /// Figures from the other nodes, for the next request to list or describe topics.
    figures: Arc<Mutex<ClusterFigures>>,
    pending_acks: PendingAcks,
    control_requests: ControlRequests,
    task_requests: TaskRequests,
    subscriptions: HashMap<u32, Subscription>,
    /// The subscriptions to which logs of new topics were added.
    new_logs: Arc<NewLogArrivals>,
    /// For each subscription that has not started yet, the positions from which it resumes.
    resuming: HashMap<u32, ResumePositions>,
    resuming_positions: usize,
    /// For each subscription that has not started yet, its options for following a state.
    following: HashMap<u32, Follow>,
    /// Numbers of the subscriptions whose lists of new logs must be read.
    with_new_logs: VecDeque<u32>,
    /// Subscriptions with logs that were not announced to the client yet.
    announcing: VecDeque<u32>,
    /// Subscriptions that have ended, but still have channels.
    ending: VecDeque<EndingSubscription>,
    /// Channels that wait for another node to return their start position.
    opening: Vec<PendingChannel>,
    /// Channels that wait until the subscription has delivered an earlier topic to its end.
    held: Vec<HeldChannel>,
    /// Whether the permissions of the client have changed since the channels in `opening` were requested.
    opening_is_stale: bool,
    channels: HashMap<u32, Box<Channel>>,
    channel_last: u32,
    /// Memberships in groups, by the number of the subscription.
    members: HashMap<u32, GroupMembership>,
    /// Memberships that have ended, but still have to leave their groups.
    leaving_members: Vec<GroupMembership>,
    /// For each token of the waiter that belongs to a membership, the number of this membership.
    member_tokens: HashMap<u32, u32>,
    /// Numbers of the memberships that may have something to send, in order.
    member_queue: VecDeque<u32>,
    /// Whether the members' last deliveries filled the output. The channels then write before the members deliver more.
    is_channels_turn: bool,
    /// Tokens with which logs and groups have notified the session.
    woken: VecDeque<u32>,
    /// Numbers of the channels that may have something to send, in order.
    channel_queue: VecDeque<u32>,
    /// Whether the session has skipped so many records that other sessions of the thread must run first.
    is_skip_budget_spent: bool,
    /// Channels that are paused until the thread's present write interval ends.
    paused_channels: PausedChannels,
    /// Channels over which something was sent since the last heartbeat.
    touched: Vec<u32>,
    session_trace: SessionTrace,
    /// A handle of the node that has the permissions of the client's user.
    node: Node,
    login_state: LoginState,
    /// Whether the client is another node of the cluster. Its messages are meant for this node, so they are not
    /// forwarded again.
    from_node: bool,
    /// If the client is another node, registers this connection as the newest of that node.
    node_connection: Option<NodeConnection>,
    /// Whether the connection has ended. The session then only ends its channels.
    is_over: bool,
    _guard: Option<SessionGuard>,
}

#[derive(Debug)]
enum Phase {
    Preamble,
    Hello,
    Open,
    Closing(Closing),
}

impl Session {
    /// Starts a session. If the server admits no further session, this session only refuses the client.
    pub(crate) fn begin(shared: Arc<SharedServer>, stream: Stream) -> Session {
        let (id, waiter) = (shared.node.next_session(), Waiter::new());
        let guard = shared.admit(id, &waiter);
        let is_full = guard.is_none();
        let mut session = Session::new(shared, stream, id, waiter, guard);
        if is_full {
            session.refuse_connection();
        }
        session
    }

    /// Starts a session for another node of the cluster. The other node has all permissions.
    pub(crate) fn begin_for_node(shared: Arc<SharedServer>, stream: Stream) -> Session {
        let mut session = Session::begin(shared, stream);
        session.login_state = LoginState::Node;
        session._guard.iter_mut().for_each(SessionGuard::mark_as_node);
        // A stopping server waits only for responses to clients, not for responses to other nodes. This session, which
        // serves another node, therefore holds a reference to a value of its own instead.
        session._answering = Arc::default();
        session
    }

    fn new(
        shared: Arc<SharedServer>,
        stream: Stream,
        id: u64,
        waiter: Arc<Waiter>,
        guard: Option<SessionGuard>,
    ) -> Session {
        let limits = DecoderLimits {
            run_bytes_max: shared.limits.run_bytes_max as usize,
            control_bytes_max: shared.limits.control_bytes_max as usize,
        };
        let session_trace = SessionTrace::begin(&shared, stream.protocol(), &stream, id);
        Session {
            _answering: Arc::clone(&shared.pending_responses),
            inbox: Inbox::new(shared.node.clone(), id),
            node: shared.node.clone(),
            login_state: LoginState::default(),
            unread_charge: MemoryCharge::none(&shared.login_budget),
            timer: Timer::new(shared.limits.handshake_ms_max),
            spin: Spin::new(shared.spin),
            shared,
            stream,
            waiter,
            id,
            phase: Phase::Preamble,
            decoder: Decoder::new(limits),
            unread: BytesMut::new(),
            unread_needs: 0,
            skip_bytes: 0,
            has_unhandled: false,
            commands: TurnWork::default(),
            delivery: TurnWork::default(),
            scanned_bytes: 0,
            outbound: OutboundBuffer::default(),
            publishing: SessionPublishers::default(),
            preparation: None,
            prepared: None,
            pending_acks: PendingAcks::default(),
            figures: Arc::default(),
            control_requests: ControlRequests::default(),
            task_requests: TaskRequests::default(),
            subscriptions: HashMap::new(),
            new_logs: Arc::default(),
            resuming: HashMap::new(),
            resuming_positions: 0,
            following: HashMap::new(),
            with_new_logs: VecDeque::new(),
            announcing: VecDeque::new(),
            ending: VecDeque::new(),
            opening: Vec::new(),
            held: Vec::new(),
            opening_is_stale: false,
            channels: HashMap::new(),
            channel_last: 0,
            members: HashMap::new(),
            leaving_members: Vec::new(),
            member_tokens: HashMap::new(),
            member_queue: VecDeque::new(),
            is_channels_turn: false,
            woken: VecDeque::new(),
            channel_queue: VecDeque::new(),
            is_skip_budget_spent: false,
            paused_channels: PausedChannels::default(),
            touched: Vec::new(),
            session_trace,
            from_node: false,
            node_connection: None,
            is_over: false,
            _guard: guard,
        }
    }

    /// Reads and writes in turn. Returns `Pending` when the session has nothing to do, or when other sessions must run.
    fn poll_rounds(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
    ) -> Result<Poll<()>, ConnectionLost> {
        self.commands.begin();
        self.delivery.begin();
        for _ in 0..self.spin.rounds_per_poll() {
            self.handle_notifications();
            self.leave_next_groups();
            self.end_next_channels();
            self.retry_parked();
            self.channel_queue.extend(self.paused_channels.take_ended(&scratch.pace));
            // Responses that are ready are sent before the next read.
            let wrote_first = if self.channel_queue.is_empty() {
                RoundProgress::None
            } else {
                self.poll_write(cx, scratch)?
            };
            let read = self.poll_read(cx, scratch)?;
            let wrote = self.poll_write(cx, scratch)?;
            if self.may_close()? {
                return Ok(Poll::Ready(()));
            }
            // Work that is left over continues in the next turn, after the thread's other sessions.
            let is_turn_over = self.commands.is_spent() || self.delivery.is_spent();
            if is_turn_over || [wrote_first, read, wrote].contains(&RoundProgress::Some) {
                self.spin.record_success();
                if std::mem::take(&mut self.is_skip_budget_spent) || is_turn_over {
                    break;
                }
            } else if self.sleep(cx) {
                self.paused_channels.request_wakeup(&mut scratch.pace, cx.waker());
                return Ok(Poll::Pending);
            }
        }
        // The timer is also checked while the client keeps the session busy. Otherwise, a busy client could delay the
        // timer and the paused channels.
        if self.timer.poll_due(cx) {
            self.on_timer();
        }
        self.paused_channels.request_wakeup(&mut scratch.pace, cx.waker());
        cx.waker().wake_by_ref();
        Ok(Poll::Pending)
    }

    /// Handles the notifications that the session's waiter has received, from channels, memberships and the server.
    fn handle_notifications(&mut self) {
        let (mut has_new_logs, mut room, mut stop, mut stored, mut users) =
            (false, false, false, false, false);
        let Session { waiter, woken, .. } = self;
        waiter.take_ready(|token| match token {
            Waiter::ROOM => room = true,
            NewLogs::TOKEN => has_new_logs = true,
            STOP => stop = true,
            STORED => stored = true,
            // Nothing is done here: the results are sent when the output has room.
            CONTROL_RESULT | TASK_RESULT => {}
            USERS => users = true,
            // Nothing is done here: the handling of HELLO fetches the result of the login.
            LOGIN => {}
            NODES => {}
            number => woken.push_back(number),
        });
        self.queue_woken();
        if users {
            self.on_users_changed();
        }
        if has_new_logs {
            self.with_new_logs.extend(self.new_logs.take());
        }
        self.queue_new_logs();
        if room {
            self.publishing.on_room();
        }
        if stored {
            self.acknowledge_stored();
        }
        if stop && self.must_close() {
            self.start_goodbye();
        }
    }

    /// Queues the channels and memberships that were notified.
    fn queue_woken(&mut self) {
        while !self.delivery.is_spent()
            && let Some(number) = self.woken.pop_front()
        {
            self.delivery.add(1);
            if let Some(channel) = self.channels.get_mut(&number) {
                channel.cursor.handle_wake_many(PASSED_WAKES_MAX);
                self.channel_queue.push_back(number);
            } else if let Some(&member) = self.member_tokens.get(&number) {
                self.queue_member(member);
            }
        }
    }

    /// Prepares to sleep until the task is woken. Returns false if there is more to do first.
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

    fn is_closing(&self) -> bool {
        matches!(self.phase, Phase::Closing(_))
    }

    fn is_blocked(&self) -> bool {
        self.publishing.blocked.is_some()
    }

    /// Ends some of the channels and memberships after the connection has ended. Returns whether none is left.
    fn end_next_after_close(&mut self) -> bool {
        let numbers: Vec<u32> = self.channels.keys().take(CHANNELS_PER_POLL).copied().collect();
        for number in numbers {
            if let Some(mut channel) = self.channels.remove(&number) {
                channel.cursor.leave(&self.waiter, number);
            }
        }
        self.drop_next_members();
        self.delivery.begin();
        self.leave_next_groups();
        self.channels.is_empty() && self.members.is_empty() && self.leaving_members.is_empty()
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
        if session.end_next_after_close() {
            return Poll::Ready(());
        }
        // Other sessions of the thread run before more channels are ended.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.pending_acks.leave(&self.waiter);
        while !self.leaving_members.is_empty() {
            self.delivery.begin();
            self.leave_next_groups();
        }
        self.drop_members();
        for (number, mut channel) in self.channels.drain() {
            channel.cursor.leave(&self.waiter, number);
        }
    }
}
