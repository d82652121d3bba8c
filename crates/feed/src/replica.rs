//! A reader's own copy of the states of one or many logs, which sees for itself whether it is right.
//!
//! The same in process and over a connection: it is made of a [`Subscribe`] and a [`Fold`]. It notices a record that
//! does not follow its last, a checksum that is not its own, and a record that its state does not take in, and asks
//! to be brought back: by what follows, where only that is missing, else by the state.
//!
//! Invariants:
//! - A state that is told of is whole: it is what the records up to its position make.
//! - Of a log in trouble nothing is told until it is whole again, and what was asked for in vain is asked for again.
//!
//! Not here: a clock. Whoever drives a replica says what time it is.

mod followed;
mod report;

use std::sync::Arc;
use std::time::Duration;

use dunlin_topic::{Event, Fold, LogName, Notice, Position, Publishers, Subscribe, SubscribeError};
use hashbrown::HashMap;

use followed::{Followed, Telling};
pub use report::{By, Change, Counts, Report, Trouble};

/// How long a replica waits for what it has asked for before it asks again, unless told otherwise.
pub const RETRY_NS: u64 = 2_000_000_000;

/// See the module.
pub struct Replica<F, S> {
    subscriber: S,
    make: Box<dyn FnMut(&LogName) -> F + Send>,
    states: States<F>,
    counts: Counts,
    retry_ns: u64,
}

impl<F: Fold, S: Subscribe> Replica<F, S> {
    /// A replica of everything that the subscriber reads, which should start and go on after a gap with a snapshot,
    /// be it conflated or not. `make` gives the empty state of a log.
    pub fn new(subscriber: S, make: impl FnMut(&LogName) -> F + Send + 'static) -> Replica<F, S> {
        let (make, states) = (Box::new(make), States::default());
        Replica { subscriber, make, states, counts: Counts::default(), retry_ns: RETRY_NS }
    }

    /// Asks again after this time without an answer.
    pub fn retrying_after(mut self, retry_ns: u64) -> Replica<F, S> {
        self.retry_ns = retry_ns;
        self
    }

    /// Takes in everything that is there now, at most about `max` events; how many it was. `now_ns` only grows.
    pub fn drain(
        &mut self,
        now_ns: u64,
        max: usize,
        mut report: impl FnMut(Report<'_, F>),
    ) -> Result<usize, SubscribeError> {
        let Replica { subscriber, make, states, counts, .. } = self;
        let mut telling = Telling { counts, report: &mut report };
        let drained = subscriber.drain(max, |event| take_in(event, make, states, &mut telling));
        self.tick(now_ns)?;
        drained
    }

    /// Waits until there is something to take in; `false` after `timeout` without it.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<bool, SubscribeError> {
        // Who has asked for something looks at the time before long.
        let patience = Duration::from_nanos(self.retry_ns);
        let timeout = if self.states.pending.is_empty() {
            timeout
        } else {
            Some(timeout.map_or(patience, |t| t.min(patience)))
        };
        self.subscriber.wait(timeout)
    }

    /// Asks for what is to be asked for; [`drain`](Replica::drain) does.
    pub fn tick(&mut self, now_ns: u64) -> Result<(), SubscribeError> {
        let Replica { subscriber, states, counts, retry_ns, .. } = self;
        let States { all, pending, .. } = states;
        let mut outcome = Ok(());
        pending.retain(|&at| {
            let Some(followed) = all.get_mut(at).and_then(Option::as_mut) else { return false };
            if let Some(resync) = followed.due_resync(now_ns, *retry_ns, counts)
                && let Err(refused) = subscriber.resync(&followed.log, resync)
            {
                outcome = Err(refused);
            }
            followed.is_pending()
        });
        outcome
    }

    /// Where a log's state stands, and the state, if it is whole.
    pub fn state(&self, log: &LogName) -> Option<(Position, &F)> {
        self.states().find(|(name, ..)| ***name == *log).map(|(_, at, state)| (at, state))
    }

    /// All states that are whole, and where they stand.
    pub fn states(&self) -> impl Iterator<Item = (&Arc<LogName>, Position, &F)> {
        let whole = self.states.all.iter().flatten().filter(|followed| followed.is_whole());
        whole.filter_map(|followed| Some((&followed.log, followed.at?, &followed.state)))
    }

    /// What each log's owner has said last of the state's publishers. It says nothing as long as one has been connected since
    /// the replica began.
    pub fn publishers(&self) -> impl Iterator<Item = &Publishers> {
        self.states.all.iter().flatten().filter_map(|followed| followed.publishers.as_ref())
    }

    /// Whether every state is whole.
    pub fn is_whole(&self) -> bool {
        self.states.pending.is_empty()
    }

    /// What has happened so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// What it reads with.
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

/// The states by log. A log is found by the address of its name, which stays the same from one record to the next.
#[derive(Debug)]
struct States<F> {
    all: Vec<Option<Followed<F>>>,
    free: Vec<usize>,
    by_address: HashMap<usize, usize>,
    by_name: HashMap<Arc<LogName>, usize>,
    /// The log of the last event.
    last: (usize, usize),
    /// Those that are not whole.
    pending: Vec<usize>,
}

impl<F> Default for States<F> {
    fn default() -> States<F> {
        let (by_address, by_name) = (HashMap::new(), HashMap::new());
        States { all: Vec::new(), free: Vec::new(), by_address, by_name, last: (0, 0), pending: Vec::new() }
    }
}

impl<F: Fold> States<F> {
    #[inline]
    fn place(&mut self, log: &Arc<LogName>, make: &mut dyn FnMut(&LogName) -> F) -> usize {
        let address = Arc::as_ptr(log) as usize;
        if self.last.0 != address {
            let known = self.by_address.get(&address).copied();
            self.last = (address, known.unwrap_or_else(|| self.place_by_name(log, make)));
        }
        self.last.1
    }

    #[cold]
    fn place_by_name(&mut self, log: &Arc<LogName>, make: &mut dyn FnMut(&LogName) -> F) -> usize {
        let at = match self.by_name.get(log) {
            Some(&at) => at,
            None => {
                let at = self.free.pop().unwrap_or(self.all.len());
                let followed = Some(Followed::new(Arc::clone(log), make(log)));
                match self.all.get_mut(at) {
                    Some(place) => *place = followed,
                    None => self.all.push(followed),
                }
                self.by_name.insert(Arc::clone(log), at);
                at
            }
        };
        if let Some(Some(followed)) = self.all.get_mut(at) {
            // The name is held, so that its address is nobody else's.
            let before = std::mem::replace(&mut followed.log, Arc::clone(log));
            self.by_address.remove(&(Arc::as_ptr(&before) as usize));
        }
        self.by_address.insert(Arc::as_ptr(log) as usize, at);
        at
    }

    fn forget(&mut self, at: usize) {
        if let Some(followed) = self.all.get_mut(at).and_then(Option::take) {
            self.by_address.remove(&(Arc::as_ptr(&followed.log) as usize));
            self.by_name.remove(&followed.log);
            self.free.push(at);
        }
        self.last = (0, 0);
    }
}

fn take_in<F: Fold, R: FnMut(Report<'_, F>)>(
    event: Event<'_>,
    make: &mut dyn FnMut(&LogName) -> F,
    states: &mut States<F>,
    telling: &mut Telling<'_, R>,
) {
    let log = match &event {
        Event::Record(record) => record.log,
        Event::Notice(Notice::Snapshot(snapshot)) => &snapshot.log,
        Event::Notice(Notice::Checksum(checksum)) => &checksum.log,
        Event::Notice(Notice::Gap(gap)) => &gap.log,
        Event::Notice(Notice::EpochChanged(changed)) => &changed.log,
        Event::Notice(Notice::Publishers(publishers)) => &publishers.log,
        Event::Notice(Notice::Deleted { log, .. }) => log,
        // Of no matter to a state.
        Event::Notice(_) => return,
    };
    let at = states.place(log, make);
    let Some(Some(followed)) = states.all.get_mut(at) else { return };
    let was_pending = followed.is_pending();
    match &event {
        Event::Record(record) => followed.take_record(record, telling),
        Event::Notice(Notice::Snapshot(snapshot)) => followed.take_snapshot(snapshot, telling),
        Event::Notice(Notice::Checksum(checksum)) => followed.check(checksum, telling),
        Event::Notice(Notice::Gap(gap)) => followed.take_gap(gap, telling.counts),
        Event::Notice(Notice::EpochChanged(changed)) => {
            followed.begin_anew(changed, make(&followed.log), telling);
        }
        Event::Notice(Notice::Publishers(publishers)) => {
            if followed.take_publishers(publishers) {
                (telling.report)(Report::Publishers(publishers));
            }
        }
        Event::Notice(Notice::Deleted { .. }) => {
            let (log, state) = (&followed.log, &followed.state);
            (telling.report)(Report::Deleted { log, state });
            return states.forget(at);
        }
        Event::Notice(_) => {}
    }
    if followed.is_pending() && !was_pending {
        states.pending.push(at);
    }
}
