//! Makes many requests at the same time. A lane is a task that has one request in flight. Without a rate, a lane sends
//! its next request as soon as it has received a response (closed loop). With a rate, a lane takes the next request
//! that is due (open loop).

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use tokio::sync::{Mutex, mpsc};

use super::acknowledged::ExpectedValues;
use super::work::{ControlReport, ControlWorkload};
use crate::child::TIMEOUT;
use crate::clock::monotonic_ns;
use crate::names::RandomNumbers;
use crate::payload::NumberedPayload;
use crate::stats::Latencies;

/// The interval at which the requests that are due are passed to the lanes. This interval delays requests; the delay is
/// part of the latency.
const DISPATCH_INTERVAL: Duration = Duration::from_micros(50);

struct Tally {
    start_ns: u64,
    end_ns: u64,
    latencies: RefCell<Latencies>,
    ops: Cell<u64>,
    errors: Cell<u64>,
    last_ns: Cell<u64>,
    first_error: RefCell<Option<String>>,
}

impl Tally {
    fn new(work: &ControlWorkload) -> Self {
        let start_ns = monotonic_ns() + work.warmup_ns;
        Self {
            start_ns,
            end_ns: start_ns + work.time_ns,
            latencies: RefCell::default(),
            ops: Cell::new(0),
            errors: Cell::new(0),
            last_ns: Cell::new(0),
            first_error: RefCell::default(),
        }
    }

    /// Whether the lanes go on. They stop at the end of the measuring time if at least one response has been counted.
    /// Otherwise they go on until a response is counted, for at most another [`TIMEOUT`].
    fn is_running(&self, now_ns: u64) -> bool {
        now_ns < self.end_ns || self.ops.get() == 0 && now_ns < self.end_ns + TIMEOUT.as_nanos() as u64
    }

    fn record(&self, due_ns: u64, outcome: Result<()>) {
        let now_ns = monotonic_ns();
        match outcome {
            Err(error) => {
                self.errors.set(self.errors.get() + 1);
                self.first_error.borrow_mut().get_or_insert_with(|| format!("{error:#}"));
            }
            Ok(()) if now_ns >= self.start_ns && due_ns >= self.start_ns && self.is_running(now_ns) => {
                self.latencies.borrow_mut().record(now_ns - due_ns);
                self.ops.set(self.ops.get() + 1);
                self.last_ns.set(now_ns);
            }
            Ok(()) => {}
        }
    }

    fn report(&self, work: &ControlWorkload) -> Result<ControlReport> {
        if let Some(first_error) = &*self.first_error.borrow() {
            eprintln!("{} requests failed; the first: {first_error}", self.errors.get());
        }
        let (ops, latencies) = (self.ops.get(), self.latencies.borrow());
        ensure!(ops > 0, "no request was answered");
        let elapsed_ns = work.time_ns.max(self.last_ns.get().saturating_sub(self.start_ns));
        Ok(ControlReport { ops, errors: self.errors.get(), elapsed_ns, ..ControlReport::default() }
            .with(&latencies))
    }
}

/// Makes requests with all lanes until the measuring time is over. `rate` is the number of requests per second; 0 means
/// as many as possible.
pub async fn run(values: &ExpectedValues, rate: f64) -> Result<ControlReport> {
    let work = values.work();
    let tally = Rc::new(Tally::new(work));
    let due = (rate > 0.0).then(|| Rc::new(Mutex::new(pace(rate, tally.end_ns))));
    let lane = |lane: usize| {
        let (values, tally, due) = (values.clone(), Rc::clone(&tally), due.clone());
        tokio::task::spawn_local(async move {
            let mut rng = RandomNumbers::of(lane as u64);
            let mut payload = NumberedPayload::new(values.work().bytes);
            let mut now_ns = monotonic_ns();
            while tally.is_running(now_ns) {
                if let Some(due) = &due {
                    let Some(due_ns) = due.lock().await.recv().await else { return };
                    now_ns = due_ns;
                }
                tally.record(now_ns, make_request(&values, lane, &mut rng, &mut payload).await);
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

async fn make_request(
    values: &ExpectedValues,
    lane: usize,
    rng: &mut RandomNumbers,
    payload: &mut NumberedPayload,
) -> Result<()> {
    let work = values.work();
    let own_key = |rng: &mut RandomNumbers| {
        let count = (work.keys - lane).div_ceil(work.in_flight);
        lane + work.in_flight * rng.below(count)
    };
    match work.case.as_str() {
        "put" | "snapshot" | "watch" | "soak" => values.put(lane, own_key(rng), payload).await,
        "cas" => values.put_if(lane, own_key(rng), payload).await,
        "batch" => values.put_all(lane, (0..work.batch).map(|at| lane + work.in_flight * at)).await,
        "get" => values.get(lane, rng.below(work.keys)).await,
        "range" => values.range(lane, rng.below(work.keys - work.batch), work.batch).await,
        other => bail!("case `{other}` does not exist"),
    }
}

/// Starts a thread that announces the requests that are due: shortly after a request is due, the thread sends the
/// request's due time to the returned channel. A separate thread is needed, because the timers of the async runtime
/// have a resolution of only one millisecond.
fn pace(rate: f64, end_ns: u64) -> mpsc::UnboundedReceiver<u64> {
    let (sender, receiver) = mpsc::unbounded_channel();
    thread::spawn(move || {
        let (start_ns, mut sent) = (monotonic_ns(), 0_u64);
        loop {
            let now_ns = monotonic_ns();
            while let due_ns = start_ns + (sent as f64 * 1e9 / rate) as u64
                && due_ns <= now_ns
            {
                if due_ns >= end_ns || sender.send(due_ns).is_err() {
                    return;
                }
                sent += 1;
            }
            thread::sleep(DISPATCH_INTERVAL);
        }
    });
    receiver
}
