//! Keeps requests in flight, one in each lane. Without a rate, a lane sends its next request after a response (closed
//! loop). With a rate, each request has a due time (open loop).

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use tokio::sync::{Mutex, mpsc};

use super::acknowledged::ExpectedValues;
use super::work::{ControlReport, ControlWork};
use crate::child::PATIENCE;
use crate::clock::monotonic_ns;
use crate::names::RandomNumbers;
use crate::payload::NumberedPayload;
use crate::stats::Latencies;

/// The interval at which due requests are handed to the lanes. The delay counts as latency.
const BEAT: Duration = Duration::from_micros(50);

/// Counters of all lanes.
struct Tally {
    start_ns: u64,
    end_ns: u64,
    latencies: RefCell<Latencies>,
    ops: Cell<u64>,
    errors: Cell<u64>,
    last_ns: Cell<u64>,
    complaint: RefCell<Option<String>>,
}

impl Tally {
    fn new(work: &ControlWork) -> Self {
        let start_ns = monotonic_ns() + work.warmup_ns;
        Self {
            start_ns,
            end_ns: start_ns + work.time_ns,
            latencies: RefCell::default(),
            ops: Cell::new(0),
            errors: Cell::new(0),
            last_ns: Cell::new(0),
            complaint: RefCell::default(),
        }
    }

    /// Whether the lanes continue. After the measuring time they stop; if no response has arrived by then, they
    /// continue until one arrives, at most for [`PATIENCE`].
    fn goes_on(&self, now_ns: u64) -> bool {
        now_ns < self.end_ns || self.ops.get() == 0 && now_ns < self.end_ns + PATIENCE.as_nanos() as u64
    }

    fn note(&self, due_ns: u64, outcome: Result<()>) {
        let now_ns = monotonic_ns();
        match outcome {
            Err(error) => {
                self.errors.set(self.errors.get() + 1);
                self.complaint.borrow_mut().get_or_insert_with(|| format!("{error:#}"));
            }
            Ok(()) if now_ns >= self.start_ns && due_ns >= self.start_ns && self.goes_on(now_ns) => {
                self.latencies.borrow_mut().record(now_ns - due_ns);
                self.ops.set(self.ops.get() + 1);
                self.last_ns.set(now_ns);
            }
            Ok(()) => {}
        }
    }

    fn report(&self, work: &ControlWork) -> Result<ControlReport> {
        if let Some(complaint) = &*self.complaint.borrow() {
            eprintln!("{} requests failed; the first: {complaint}", self.errors.get());
        }
        let (ops, latencies) = (self.ops.get(), self.latencies.borrow());
        ensure!(ops > 0, "no request was answered");
        let elapsed_ns = work.time_ns.max(self.last_ns.get().saturating_sub(self.start_ns));
        Ok(ControlReport { ops, errors: self.errors.get(), elapsed_ns, ..ControlReport::default() }
            .with(&latencies))
    }
}

/// Lets every lane make requests until the measuring time is over, at `rate` requests per second if `rate` is not 0.
pub async fn run(keeper: &ExpectedValues, rate: f64) -> Result<ControlReport> {
    let work = keeper.work();
    let tally = Rc::new(Tally::new(work));
    let due = (rate > 0.0).then(|| Rc::new(Mutex::new(pace(rate, tally.end_ns))));
    let lane = |lane: usize| {
        let (keeper, tally, due) = (keeper.clone(), Rc::clone(&tally), due.clone());
        tokio::task::spawn_local(async move {
            let mut draws = RandomNumbers::of(lane as u64);
            let mut payload = NumberedPayload::new(keeper.work().bytes);
            let mut now_ns = monotonic_ns();
            while tally.goes_on(now_ns) {
                if let Some(due) = &due {
                    let Some(due_ns) = due.lock().await.recv().await else { return };
                    now_ns = due_ns;
                }
                tally.note(now_ns, one(&keeper, lane, &mut draws, &mut payload).await);
                now_ns = monotonic_ns();
            }
        })
    };
    let lanes: Vec<_> = (0..work.in_flight).map(lane).collect();
    for lane in lanes {
        lane.await?;
    }
    tally.report(work)
}

/// Makes one request, as the measured case requires.
async fn one(
    keeper: &ExpectedValues,
    lane: usize,
    draws: &mut RandomNumbers,
    payload: &mut NumberedPayload,
) -> Result<()> {
    let work = keeper.work();
    let own = |draws: &mut RandomNumbers| {
        let count = (work.keys - lane).div_ceil(work.in_flight);
        lane + work.in_flight * draws.below(count)
    };
    match work.case.as_str() {
        "put" | "snapshot" | "watch" | "soak" => keeper.put(lane, own(draws), payload).await,
        "cas" => keeper.put_if(lane, own(draws), payload).await,
        "batch" => keeper.put_all(lane, (0..work.batch).map(|at| lane + work.in_flight * at)).await,
        "get" => keeper.get(lane, draws.below(work.keys)).await,
        "range" => keeper.range(lane, draws.below(work.keys - work.batch), work.batch).await,
        other => bail!("unknown case {other}"),
    }
}

/// Sends the due time of each request, shortly after that time. It uses its own thread, because the runtime's timers
/// have a resolution of one millisecond.
fn pace(rate: f64, end_ns: u64) -> mpsc::UnboundedReceiver<u64> {
    let (sender, receiver) = mpsc::unbounded_channel();
    thread::spawn(move || {
        let (begin_ns, mut sent) = (monotonic_ns(), 0_u64);
        loop {
            let now_ns = monotonic_ns();
            while let due_ns = begin_ns + (sent as f64 * 1e9 / rate) as u64
                && due_ns <= now_ns
            {
                if due_ns >= end_ns || sender.send(due_ns).is_err() {
                    return;
                }
                sent += 1;
            }
            thread::sleep(BEAT);
        }
    });
    receiver
}
