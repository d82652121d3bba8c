//! A replica holds a subscriber's copies of the states of one or several logs. It detects and repairs faults of these
//! copies.
//!
//! A replica consists of a subscriber ([`Subscribe`]), which reads in this process or over a connection, and a
//! [`Reducer`] for each log. It detects three faults: missing records, a state whose checksum differs from the owner's,
//! and a record that the reducer refuses. The replica then requests the missing records, or the whole state if records
//! are not enough.
//!
//! Invariants:
//! - Every reported state is whole, which means that it is the result of all records up to its position.
//! - After a fault in a log, the replica reports no changes of this log until the state is whole again. A request that
//!   receives no response is repeated.
//!
//! A replica has no clock: the caller passes the time.

mod log_replica;
mod report;

use std::sync::Arc;
use std::time::Duration;

use dunlin_topic::{Event, LogName, Notice, Position, PublisherStatus, Reducer, Subscribe, SubscribeError};
use hashbrown::HashMap;

use log_replica::{LogReplica, ReportSink};
pub use report::{ChangeCause, ReplicaCounts, ReplicaFault, ReplicaReport, StateChange};

/// Default time, in ns, after which a replica repeats a request that received no response.
pub const RETRY_NS: u64 = 2_000_000_000;

/// A subscriber's copies of the states of one or several logs. A replica detects and repairs faults of these copies.
pub struct Replica<F, S> {
    subscriber: S,
    make_state: Box<dyn FnMut(&LogName) -> F + Send>,
    states: States<F>,
    counts: ReplicaCounts,
    retry_ns: u64,
}

impl<F: Reducer, S: Subscribe> Replica<F, S> {
    /// Creates a replica of all logs that a subscriber reads. The subscriber must start with a snapshot, and must
    /// continue with a snapshot after a gap. The subscriber may use conflation. `make_state` creates the empty state of
    /// a log.
    pub fn new(subscriber: S, make_state: impl FnMut(&LogName) -> F + Send + 'static) -> Replica<F, S> {
        let (make_state, states) = (Box::new(make_state), States::default());
        Replica { subscriber, make_state, states, counts: ReplicaCounts::default(), retry_ns: RETRY_NS }
    }

    /// Sets the time, in ns, after which a request that received no response is repeated.
    pub fn with_retry_ns(mut self, retry_ns: u64) -> Replica<F, S> {
        self.retry_ns = retry_ns;
        self
    }

    /// Handles available events, at most about `max`, and sends the requests that are due. `now_ns` is the current time
    /// and must not decrease between calls. Returns the number of handled events.
    pub fn drain(
        &mut self,
        now_ns: u64,
        max: usize,
        mut report: impl FnMut(ReplicaReport<'_, F>),
    ) -> Result<usize, SubscribeError> {
        let Replica { subscriber, make_state, states, counts, .. } = self;
        let mut sink = ReportSink { counts, report: &mut report };
        let drained = subscriber.drain(max, |event| handle_event(event, make_state, states, &mut sink));
        self.tick(now_ns)?;
        drained
    }

    /// Waits for an event. Returns `false` if no event arrives within `timeout`, or earlier if the caller has to call
    /// [`drain`](Replica::drain), which may have to repeat a request.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<bool, SubscribeError> {
        // While a state is not whole, the caller must call `drain` at least this often, so that requests are repeated.
        let patience = Duration::from_nanos(self.retry_ns);
        let timeout = if self.states.pending.is_empty() {
            timeout
        } else {
            Some(timeout.map_or(patience, |t| t.min(patience)))
        };
        self.subscriber.wait(timeout)
    }

    /// Sends the requests that are due at the time `now_ns`. [`drain`](Replica::drain) does the same after it has
    /// handled events.
    pub fn tick(&mut self, now_ns: u64) -> Result<(), SubscribeError> {
        let Replica { subscriber, states, counts, retry_ns, .. } = self;
        let States { all, pending, .. } = states;
        let mut outcome = Ok(());
        pending.retain(|&at| {
            let Some(log_replica) = all.get_mut(at).and_then(Option::as_mut) else { return false };
            if let Some(resync) = log_replica.due_resync(now_ns, *retry_ns, counts)
                && let Err(refused) = subscriber.resync(&log_replica.log, resync)
            {
                outcome = Err(refused);
            }
            log_replica.is_pending()
        });
        outcome
    }

    /// Returns the position and the state of a log, if the state is whole.
    pub fn state(&self, log: &LogName) -> Option<(Position, &F)> {
        self.states().find(|(name, ..)| ***name == *log).map(|(_, at, state)| (at, state))
    }

    /// All states that are whole, with their logs and positions.
    pub fn states(&self) -> impl Iterator<Item = (&Arc<LogName>, Position, &F)> {
        let whole = self.states.all.iter().flatten().filter(|log_replica| log_replica.is_whole());
        whole.filter_map(|log_replica| Some((&log_replica.log, log_replica.at?, &log_replica.state)))
    }

    /// For each log, the owner's last report on whether a publisher is connected. A log has no report until a publisher
    /// connects or disconnects after the replica has started.
    pub fn publishers(&self) -> impl Iterator<Item = &PublisherStatus> {
        self.states.all.iter().flatten().filter_map(|log_replica| log_replica.publishers.as_ref())
    }

    /// Whether every state is whole.
    pub fn is_whole(&self) -> bool {
        self.states.pending.is_empty()
    }

    /// The counters so far.
    pub fn counts(&self) -> ReplicaCounts {
        self.counts
    }

    /// The subscriber from which the replica reads.
    pub fn subscriber(&mut self) -> &mut S {
        &mut self.subscriber
    }
}

impl<F, S: std::fmt::Debug> std::fmt::Debug for Replica<F, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("Replica");
        debug.field("subscriber", &self.subscriber).field("counts", &self.counts).finish_non_exhaustive()
    }
}

/// The states of all logs. A log is usually found by the memory address of its name, because consecutive records share
/// the same name.
#[derive(Debug)]
struct States<F> {
    all: Vec<Option<LogReplica<F>>>,
    free: Vec<usize>,
    by_address: HashMap<usize, usize>,
    by_name: HashMap<Arc<LogName>, usize>,
    /// The memory address of the log name in the last event, and the index of this log in `all`.
    last: (usize, usize),
    /// The indexes, in `all`, of the states that are not whole.
    pending: Vec<usize>,
}

impl<F> Default for States<F> {
    fn default() -> States<F> {
        let (by_address, by_name) = (HashMap::new(), HashMap::new());
        States { all: Vec::new(), free: Vec::new(), by_address, by_name, last: (0, 0), pending: Vec::new() }
    }
}

impl<F: Reducer> States<F> {
    #[inline]
    fn index_of(&mut self, log: &Arc<LogName>, make_state: &mut dyn FnMut(&LogName) -> F) -> usize {
        let address = Arc::as_ptr(log) as usize;
        if self.last.0 != address {
            let known = self.by_address.get(&address).copied();
            self.last = (address, known.unwrap_or_else(|| self.index_by_name(log, make_state)));
        }
        self.last.1
    }

    #[cold]
    fn index_by_name(&mut self, log: &Arc<LogName>, make_state: &mut dyn FnMut(&LogName) -> F) -> usize {
        let at = match self.by_name.get(log) {
            Some(&at) => at,
            None => {
                let at = self.free.pop().unwrap_or(self.all.len());
                let log_replica = LogReplica::new(Arc::clone(log), make_state(log));
                match self.all.get_mut(at) {
                    Some(free) => *free = Some(log_replica),
                    None => self.all.push(Some(log_replica)),
                }
                self.by_name.insert(Arc::clone(log), at);
                at
            }
        };
        if let Some(Some(log_replica)) = self.all.get_mut(at) {
            // The log's replica holds the name, so that no other name can have the same memory address.
            let before = std::mem::replace(&mut log_replica.log, Arc::clone(log));
            self.by_address.remove(&(Arc::as_ptr(&before) as usize));
        }
        self.by_address.insert(Arc::as_ptr(log) as usize, at);
        at
    }

    fn remove(&mut self, at: usize) {
        if let Some(log_replica) = self.all.get_mut(at).and_then(Option::take) {
            self.by_address.remove(&(Arc::as_ptr(&log_replica.log) as usize));
            self.by_name.remove(&log_replica.log);
            self.free.push(at);
        }
        self.last = (0, 0);
    }
}

fn handle_event<F: Reducer, R: FnMut(ReplicaReport<'_, F>)>(
    event: Event<'_>,
    make_state: &mut dyn FnMut(&LogName) -> F,
    states: &mut States<F>,
    sink: &mut ReportSink<'_, R>,
) {
    let log = match &event {
        Event::Record(record) => record.log,
        Event::Notice(Notice::Snapshot(snapshot)) => &snapshot.log,
        Event::Notice(Notice::Checksum(checksum)) => &checksum.log,
        Event::Notice(Notice::Gap(gap)) => &gap.log,
        Event::Notice(Notice::EpochChanged(changed)) => &changed.log,
        Event::Notice(Notice::Publishers(publishers)) => &publishers.log,
        Event::Notice(Notice::Deleted { log, .. }) => log,
        // Other notices concern no state.
        Event::Notice(_) => return,
    };
    let at = states.index_of(log, make_state);
    let Some(Some(log_replica)) = states.all.get_mut(at) else { return };
    let was_pending = log_replica.is_pending();
    match &event {
        Event::Record(record) => log_replica.handle_record(record, sink),
        Event::Notice(Notice::Snapshot(snapshot)) => log_replica.handle_snapshot(snapshot, sink),
        Event::Notice(Notice::Checksum(checksum)) => log_replica.handle_checksum(checksum, sink),
        Event::Notice(Notice::Gap(gap)) => log_replica.handle_gap(gap, sink.counts),
        Event::Notice(Notice::EpochChanged(changed)) => {
            log_replica.handle_epoch_change(changed, make_state(&log_replica.log), sink);
        }
        Event::Notice(Notice::Publishers(publishers)) => {
            if log_replica.handle_publishers(publishers) {
                (sink.report)(ReplicaReport::Publishers(publishers));
            }
        }
        Event::Notice(Notice::Deleted { .. }) => {
            let (log, state) = (&log_replica.log, &log_replica.state);
            (sink.report)(ReplicaReport::Deleted { log, state });
            return states.remove(at);
        }
        Event::Notice(_) => {}
    }
    if log_replica.is_pending() && !was_pending {
        states.pending.push(at);
    }
}
