//! One connection of a NATS client: a task that reads what the client says, does it, and sends what is due.
//!
//! It goes like a session of door `tcp`: each time it is woken it takes turns at reading and writing until neither goes
//! on. What differs is that records are written out as text, straight from the segments they lie in into the buffer
//! that the thread's sessions share.
//!
//! Invariants:
//! - There is no queue of messages: a subscription is cursors, and what the socket did not take of a write is told
//!   to the cursors. A session keeps the rest of one message at most.
//! - Between two polls a session holds no segment of a log.
//! - Operations take effect in the order they came: what was read to be published is appended before anything else is
//!   done.
//! - What is waiting to be sent besides records is at most [`CONTROL_BYTES_MAX`] and one answer: above it nothing
//!   more is read from the client.
//!
//! Limits: those of [`Limits`](crate::Limits).

mod access;
mod alive;
mod closing;
mod connect;
mod deliver;
mod encode;
mod ending;
mod handed;
mod hearing;
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
mod subscription;
mod targets;

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use dunlin::Node;
use dunlin::topic::{Charge, Newcomers, Waiter};
use dunlin::wire::nats::Connect;

use crate::door::Door;
use crate::session::outbound::Outbound;
use crate::session::pace::Resting;
use crate::session::scratch::{self, READ_BYTES, Scratch};
use crate::session::spin::Spin;
use crate::session::timer::Timer;
use crate::session::{Gone, Progress};
use crate::shared::{LOGIN, NODES, Place, STOP, Shared, USERS};
use crate::stream::Stream;
use crate::visit::Visit;

use access::Entrance;
use closing::Closing;
pub(crate) use connect::{refusal, say_info};
use ending::Pongs;
use handed::{ANSWERED, Handed};
use hearing::Hearing;
use inboxes::Inboxes;
use members::Member;
use own::Own;
use publish::{Blocked, Pressure, Run, Step};
use refusals::Refusals;
use replies::Replies;
use subscription::{Channel, Opening, Subscription};
use targets::{Finding, Targets};

/// Sessions that one passes a wake on to.
const WAKES: usize = 16;
/// See the module's invariants.
const CONTROL_BYTES_MAX: usize = 64 << 10;

/// One connection.
pub(crate) struct Session {
    shared: Arc<Shared>,
    stream: Stream,
    waiter: Arc<Waiter>,
    id: u64,
    phase: Phase,
    connect: Connect,
    timer: Timer,
    spin: Spin,
    /// `PING`s that the client has not answered.
    pings: u32,
    /// The start of an operation whose end has not come yet, or what waits for room in a topic.
    unread: Vec<u8>,
    /// What of it is charged to the node: operations larger than the read buffer.
    unread_charge: Charge,
    /// How many bytes that operation needs to be worth another look.
    unread_needs: usize,
    /// Operations that the last read completed, and reads in a row that brought little and completed none.
    operations: usize,
    trickles: u32,
    /// Nothing is read before the timer says so.
    is_held: bool,
    /// The last read brought so much that others of the thread get their turn first.
    read_much: bool,
    /// How many bytes of operations like those that came last are read at once.
    read_bytes: usize,
    /// Since when the rest of that operation is waited for; 0 while there is none. The timer looks after it if it is
    /// watched.
    unread_since_ns: u64,
    unread_is_watched: bool,
    pressure: Pressure,
    /// What is published waits for room, or for the user's rate.
    blocked: Option<Blocked>,
    /// The topic of what is published is being found by a thread that may wait; nothing more is read before.
    finding: Option<Finding>,
    hearing: Hearing,
    replies: Replies,
    refusals: Refusals,
    step: Step,
    outbound: Outbound,
    targets: Targets,
    handed: Handed,
    inboxes: Inboxes,
    own: Own,
    pongs: Pongs,
    subscriptions: HashMap<u32, Subscription>,
    /// Subscriptions by the names that the client gave them.
    by_sid: HashMap<Box<[u8]>, u32>,
    channels: HashMap<u32, Box<Channel>>,
    /// Logs whose channels come when another node has said where they begin.
    opening: Vec<Opening>,
    /// What the client may read has changed since they were begun.
    opening_is_stale: bool,
    /// How many logs have been opened, or were refused.
    opened: u64,
    /// What is published next is for a subscription of the client's own that is being opened; how many had been then.
    waits_for_opening: Option<u64>,
    /// Places in queue groups.
    members: HashMap<u32, Box<Member>>,
    /// Members that may have something to send.
    member_line: VecDeque<u32>,
    /// The last number that a subscription, channel or member got.
    number_last: u32,
    /// Channels that may have something to send.
    line: VecDeque<u32>,
    /// Channels that are looked at on the thread's next beat.
    resting: Resting,
    visit: Visit,
    /// The node as the client's user may use it.
    node: Node,
    entrance: Entrance,
    _place: Option<Place>,
}

/// What sessions of a thread share beside the read buffer.
#[derive(Debug, Default)]
pub(crate) struct NatsScratch {
    /// What is written, but for large payloads.
    gathered: Vec<u8>,
    /// Channels whose turn it is.
    turn: Vec<u32>,
    /// What each message of the write means for its channel.
    moves: Vec<encode::Move>,
    /// Records that are published together.
    run: Run<'static>,
}

/// How far a connection has come.
#[derive(Debug)]
enum Phase {
    /// Nothing was heard of the client.
    Greeting,
    Open,
    Closing(Closing),
}

impl Session {
    /// A session for the connection, or one that turns it away where all places are taken.
    /// `told` is its number where the client was greeted before TLS began.
    pub(crate) fn begin(shared: Arc<Shared>, stream: Stream, told: Option<u64>) -> Session {
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
            read_bytes: READ_BYTES,
            unread_since_ns: 0,
            unread_is_watched: false,
            pressure: Pressure::default(),
            blocked: None,
            finding: None,
            hearing: Hearing::default(),
            replies: Replies::default(),
            refusals: Refusals::default(),
            step: Step::default(),
            outbound: Outbound::default(),
            targets: Targets::default(),
            handed: Handed::default(),
            inboxes: Inboxes::default(),
            own: Own::default(),
            pongs: Pongs::default(),
            subscriptions: HashMap::new(),
            by_sid: HashMap::new(),
            channels: HashMap::new(),
            opening: Vec::new(),
            opening_is_stale: false,
            opened: 0,
            waits_for_opening: None,
            members: HashMap::new(),
            member_line: VecDeque::new(),
            number_last: 0,
            line: VecDeque::new(),
            resting: Resting::default(),
            visit: Visit::begin(&shared, Door::Nats, &stream, id),
            node: shared.node.clone(),
            entrance: Entrance::default(),
            _place: place,
            shared,
            stream,
            waiter,
            id,
        };
        if told.is_none() {
            session.say_info();
        }
        if is_full {
            let why = connect::in_words(&session.shared.no_place());
            session.fail(&why);
        } else if session.shared.is_stopping() {
            session.part();
        }
        session
    }

    /// Takes turns; pending only when it sleeps or others are to have their turn.
    fn poll_turns(&mut self, cx: &mut Context<'_>, scratch: &mut Scratch) -> Result<Poll<()>, Gone> {
        for _ in 0..self.spin.turns() {
            self.take_woken();
            self.poll_opening(cx);
            self.line.extend(self.resting.over(&scratch.pace));
            // An answer that is ready goes out before anybody asks for the next question.
            let quiet = self.line.is_empty() && self.member_line.is_empty();
            let answered = if quiet { Progress::None } else { self.poll_write(cx, scratch)? };
            let read = self.poll_read(cx, scratch)?;
            let wrote = self.poll_write(cx, scratch)?;
            if self.may_close()? {
                return Ok(Poll::Ready(()));
            }
            if [answered, read, wrote].contains(&Progress::Some) {
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

    /// Sees which channels may have something, and what else happened.
    fn take_woken(&mut self) {
        let (mut newcomers, mut stop, mut users, mut answered, mut nodes) =
            (false, false, false, false, false);
        let Session { waiter, channels, line, members, member_line, blocked, .. } = self;
        waiter.take_ready(|token| match token {
            Waiter::ROOM => blocked.iter_mut().for_each(Blocked::room),
            Newcomers::TOKEN => newcomers = true,
            STOP => stop = true,
            USERS => users = true,
            ANSWERED => answered = true,
            NODES => nodes = true,
            // Who waits for it looks anyway.
            LOGIN => {}
            number => {
                if let Some(channel) = channels.get_mut(&number) {
                    channel.cursor.woken_at_a_door(WAKES);
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
            self.hear_owners();
        }
        if nodes {
            self.say_info_again();
        }
        if stop {
            self.part();
        }
    }

    /// Whether nothing is to be done before somebody wakes this task.
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

    /// Whether what is published waits for something else than room.
    fn is_waiting(&self) -> bool {
        self.finding.is_some() || self.hearing.is_waiting() || self.waits_for_opening.is_some()
    }

    fn is_closing(&self) -> bool {
        matches!(self.phase, Phase::Closing(_))
    }
}

impl Future for Session {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let session = self.get_mut();
        scratch::with(|scratch| session.poll_turns(cx, scratch)).unwrap_or(Poll::Ready(()))
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
