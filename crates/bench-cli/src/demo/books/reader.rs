//! Runs a replica of all order books. The replica reads from the node according to a plan, which can contain pauses and
//! lost connections.

use std::num::NonZeroU32;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dunlin::{Node, now_ns};
use dunlin_cli::state::State;
use dunlin_client::{Client, ClientLimits, ClientOptions};
use dunlin_feed::{Replica, ReplicaCounts, Side};
use dunlin_topic::{OnGap, Reducer, Start, Subscribe, SubscribeOptions};

use super::oracle::SizeByPrice;
use super::{PATTERN, PlayProgress};

/// The plan for one replica of the demo: how it connects, how long it pauses, and which faults it suffers.
#[derive(Debug)]
pub struct ReplicaPlan {
    pub name: &'static str,
    pub about: &'static str,
    tcp: bool,
    /// How long the replica pauses after each change while lines are being played; `None` for no pauses.
    sleep: Option<Duration>,
    conflate: bool,
    /// Whether the replica starts late: when half of the lines have been played.
    late: bool,
    /// The mean time between two cuts; `None` for no cuts. At a cut, the replica loses its connection and drops all its
    /// books.
    cut: Option<Duration>,
    /// To test the detection of losses: withholds every Nth record from the replica; `None` withholds no record.
    test_loss_every: Option<NonZeroU32>,
}

const PLAIN: ReplicaPlan = ReplicaPlan {
    name: "",
    about: "",
    tcp: true,
    sleep: None,
    conflate: false,
    late: false,
    cut: None,
    test_loss_every: None,
};
const SLEEP: Duration = Duration::from_millis(1);
const CUT_AFTER: Duration = Duration::from_millis(400);

pub static PLANS: [ReplicaPlan; 7] = [
    ReplicaPlan { name: "in process", about: "in the node's own process", tcp: false, ..PLAIN },
    ReplicaPlan { name: "over TCP", about: "over a connection", ..PLAIN },
    ReplicaPlan {
        name: "slow",
        about: "sleeps 1 ms after each change, and falls behind the retained history",
        sleep: Some(SLEEP),
        ..PLAIN
    },
    ReplicaPlan {
        name: "conflated",
        about: "just as slow, but reads all pending changes as one",
        sleep: Some(SLEEP),
        conflate: true,
        ..PLAIN
    },
    ReplicaPlan { name: "late", about: "joins halfway", late: true, ..PLAIN },
    ReplicaPlan {
        name: "cut",
        about: "loses its connection and its books at random times",
        cut: Some(CUT_AFTER),
        ..PLAIN
    },
    ReplicaPlan {
        name: "lossy",
        about: "does not receive every 50th record",
        test_loss_every: NonZeroU32::new(50),
        ..PLAIN
    },
];

/// The final order books of a replica, and its counts.
#[derive(Debug, Default)]
pub struct ReplicaResult {
    /// The topic, the price levels and the checksum of each book.
    pub books: Vec<(String, SizeByPrice, u64)>,
    pub counts: ReplicaCounts,
    /// How many times the replica started again after a cut.
    pub restarts: u64,
}

const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The most bytes that the node may send to a slow reader ahead of the reader: bytes that the reader has not read yet.
const SLOW_CREDIT_BYTES: usize = 16 << 10;

/// Follows the books until the replica has read everything or the demo ends.
pub fn run(
    plan: &'static ReplicaPlan,
    node: &Node,
    url: &str,
    progress: &PlayProgress,
) -> Result<ReplicaResult> {
    while plan.late && !progress.half.load(Ordering::Acquire) {
        thread::sleep(POLL_INTERVAL);
    }
    let mut result = ReplicaResult::default();
    // The time between cuts varies by a pseudo-random factor.
    let mut random = 0x9e37_79b9_u64;
    loop {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let span = plan.cut.map(|cut| cut / 2 + cut * ((random >> 33) % 1000) as u32 / 1000);
        let is_complete = if plan.tcp {
            let client = connect(plan, url)?;
            let subscriber =
                client.subscribe(PATTERN, options(plan)).context("cannot subscribe to the books")?;
            follow(plan, node, subscriber, progress, span, &mut result)?
        } else {
            let subscriber =
                node.subscribe(PATTERN, &options(plan)).context("cannot subscribe to the books")?;
            follow(plan, node, subscriber, progress, span, &mut result)?
        };
        if is_complete {
            return Ok(result);
        }
        result.restarts += 1;
    }
}

fn connect(plan: &ReplicaPlan, url: &str) -> Result<Client> {
    let mut limits = ClientLimits::default();
    if plan.sleep.is_some() {
        limits.credit_bytes = SLOW_CREDIT_BYTES;
    }
    let options =
        ClientOptions { name: format!("demo: books {}", plan.name), limits, ..ClientOptions::default() };
    Ok(Client::connect(url, options)?)
}

fn options(plan: &ReplicaPlan) -> SubscribeOptions {
    SubscribeOptions {
        name: format!("demo: books {}", plan.name),
        start: Start::Snapshot,
        on_gap: OnGap::Snapshot,
        conflate: plan.conflate,
        test_loss_every: plan.test_loss_every,
        ..SubscribeOptions::default()
    }
}

/// Follows the books. Returns `true` if the replica has read everything or the demo has ended, and `false` after a cut.
fn follow<S: Subscribe>(
    plan: &ReplicaPlan,
    node: &Node,
    subscriber: S,
    progress: &PlayProgress,
    span: Option<Duration>,
    result: &mut ReplicaResult,
) -> Result<bool> {
    let node = node.clone();
    let state = move |topic: &str| {
        let config = node.topic(topic).and_then(|topic| topic.config().reducer.clone()).unwrap_or_default();
        State::of(&config).unwrap_or_else(|_| State::Last(dunlin_feed::LastValue::default()))
    };
    let mut replica = Replica::new(subscriber, move |log| state(&log.topic));
    let started = Instant::now();
    let has_finished = loop {
        let is_fast = plan.sleep.is_none() || progress.ends.get().is_some();
        let applied = replica.drain(now_ns(), if is_fast { 1024 } else { 1 }, |_| {})?;
        if applied > 0 && progress.ends.get().is_none() {
            plan.sleep.into_iter().for_each(thread::sleep);
        }
        if has_read_all(&replica, progress) || progress.has_ended.load(Ordering::Acquire) {
            break true;
        }
        // After the last line, there are no more cuts.
        if span.is_some_and(|span| started.elapsed() >= span) && progress.ends.get().is_none() {
            break false;
        }
        if applied == 0 {
            replica.wait(Some(POLL_INTERVAL))?;
        }
    };
    add(&mut result.counts, &replica.counts());
    if has_finished {
        let book = |(log, _, state): (&std::sync::Arc<dunlin_topic::LogName>, _, &State)| {
            (log.topic.clone(), levels(state), state.checksum())
        };
        result.books = replica.states().map(|(log, at, state)| book((log, at, state))).collect();
    }
    Ok(has_finished)
}

fn has_read_all<S: Subscribe>(replica: &Replica<State, S>, progress: &PlayProgress) -> bool {
    let Some(ends) = progress.ends.get() else { return false };
    let through = |topic: &String, last: u64| {
        replica.states().any(|(log, at, _)| log.topic == *topic && at.seq >= last)
    };
    replica.is_whole() && ends.iter().all(|(topic, last)| *last == 0 || through(topic, *last))
}

/// Returns the price levels of a book.
pub fn levels(state: &State) -> SizeByPrice {
    let Some(book) = state.levels() else { return SizeByPrice::new() };
    let of = |side| book.levels(side).map(move |level| ((side == Side::Bid, level.price), level.size));
    of(Side::Bid).chain(of(Side::Ask)).collect()
}

/// Adds the counts in `more` to the counts in `sum`.
pub fn add(sum: &mut ReplicaCounts, more: &ReplicaCounts) {
    sum.records += more.records;
    sum.conflated += more.conflated;
    sum.snapshots += more.snapshots;
    sum.gaps += more.gaps;
    sum.holes += more.holes;
    sum.gaps_healed += more.gaps_healed;
    sum.divergent += more.divergent;
    sum.refused += more.refused;
    sum.resyncs += more.resyncs;
    sum.retries += more.retries;
    sum.checked += more.checked;
    sum.ignored += more.ignored;
}
