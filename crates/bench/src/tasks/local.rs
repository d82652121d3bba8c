//! The case `phases` with `via=local`: measures scaling in a real node, which starts and ends worker processes as
//! `Policy::local` says.
//!
//! Each phase of the case measures a single trigger of scaling, such as processor use. The thresholds of the other
//! triggers are set so that they cannot be reached. When workers are added, `total_ns` is the time from the arrival of
//! the load until the last worker of the first decision is ready. When workers are removed, `total_ns` is the time from
//! the moment when fewer workers suffice until a process has ended. A worker sleeps for [`TASK`] in each task. More
//! workers therefore do more tasks, even on a single processor.
//!
//! In phase `predictive`, the load comes in waves, and no threshold can be reached. `ahead_s` is the time in seconds
//! from when the workers of the first decision are ready until the load of the next wave rises.
//!
//! The phases `cold` and `warm` are like phase `latency`, but workers need the time [`LOADING`] to start. In phase
//! `warm`, [`POOL`] workers are started in advance (a warm pool); in phase `cold`, none are.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use dunlin::{Config, Node};
use dunlin_client::scheduler::NewTask;
use dunlin_client::{Client, ClientOptions, Task, Tasks, Worker, WorkerLaunch};
use dunlin_scale::{ForecastPolicy, Policy, ScaleIn, ScaleOut, ScaleOutTrigger};
use dunlin_server::workers::{ScalingDecisions, WorkerCommand, Workers, WorkersLimits, node_load_reader};
use dunlin_server::{Server, ServerConfig};

use crate::point::{BenchContext, RunSample};

/// The values of the parameter `phase` of case `phases`. In phase `in`, workers are removed. In all other phases,
/// workers are added: in phase `cold` without a warm pool, in phase `warm` with one. The remaining phases have the name
/// of the trigger that adds workers.
pub const PHASES: [&str; 7] = ["cpu", "queue", "latency", "cold", "warm", "in", "predictive"];

/// How long a task takes. A worker does one task at a time.
const TASK: Duration = Duration::from_millis(20);
const WORKERS_MAX: u32 = 8;
/// How long a worker takes to start in the phases `cold` and `warm`.
const LOADING: Duration = Duration::from_secs(2);
/// The number of workers in the warm pool.
const POOL: u32 = 4;
/// The environment variable that tells a worker how long it must take to start, in ms.
const LOADING_VARIABLE: &str = "DUNLIN_BENCH_LOADING_MS";
/// The longest wait for any decision or worker.
const TIMEOUT: Duration = Duration::from_secs(90);
const POLL_INTERVAL: Duration = Duration::from_millis(2);
const TENANT: &str = "bench";
const KIND: &str = "nap";
const MS: f64 = 1e6;

/// The period of the load in phase `predictive`. The load is low in the first half of a period, and high in the second
/// half.
const WAVE: Duration = Duration::from_secs(10);
const BUCKET_MS: u64 = 500;
const LOW_PER_S: f64 = 10.0;
const HIGH_PER_S: f64 = 160.0;

/// Makes one run of a phase.
pub fn measure(bench: &BenchContext, phase: &str) -> Result<RunSample> {
    let mut setup = LocalSetup::start(bench, phase)?;
    let sample = match phase {
        "cpu" => {
            let load_at = Instant::now();
            // At this rate, the load is nine tenths of the capacity of the single worker.
            setup.submit_at_rate(0.9 / TASK.as_secs_f64(), |decided| is_ready(decided).is_some())?;
            setup.scale_out_sample(ScaleOutTrigger::Cpu, load_at)?
        }
        "queue" => setup.burst(1_000, ScaleOutTrigger::Queue)?,
        "latency" | "cold" | "warm" => setup.burst(500, ScaleOutTrigger::Latency)?,
        "in" => {
            setup.burst(500, ScaleOutTrigger::Latency)?;
            setup.scale_in_sample()?
        }
        _ => setup.measure_forecast()?,
    };
    setup.end()?;
    Ok(sample)
}

/// Returns `Policy::local` with changed thresholds: only the trigger of this phase can reach its threshold.
fn policy(phase: &str) -> Policy {
    let mut policy = Policy::local(1, WORKERS_MAX);
    let triggers = &mut policy.triggers;
    if phase != "cpu" {
        triggers.cpu_target = 1.0;
    }
    if phase != "queue" {
        triggers.queue_max = u64::MAX;
    }
    if !matches!(phase, "latency" | "cold" | "warm" | "in") {
        triggers.latency_ms_max = u64::MAX;
    }
    if phase == "warm" {
        policy = policy.with_local_pool(POOL);
    }
    if phase == "predictive" {
        policy.predictive = Some(ForecastPolicy {
            lead_ms: 3_000,
            bucket_ms: BUCKET_MS,
            seasons: vec![(WAVE.as_millis() as u64 / BUCKET_MS) as usize],
            quantile: 0.95,
            rise_percent: 10,
            error_max: 0.5,
            error_good: 0.3,
        });
    }
    policy
}

fn is_ready(decided: &ScalingDecisions) -> Option<&ScaleOut> {
    // The first decision has the trigger `Bounds`: it starts the smallest allowed number of workers. It is skipped,
    // because it is no reaction to load.
    decided
        .out
        .iter()
        .find(|out| out.trigger != ScaleOutTrigger::Bounds && out.missing == 0 && out.ready_ms > 0)
}

/// A node with one worker, which waits for tasks.
struct LocalSetup {
    node: Node,
    server: Server,
    workers: Workers,
    /// The time at which the autoscaler's clock was 0, accurate to about a millisecond.
    clock_start: Instant,
    tasks: Tasks,
    submitted: u64,
}

impl LocalSetup {
    fn start(bench: &BenchContext, phase: &str) -> Result<LocalSetup> {
        let node = Node::start(Config::default()).context("cannot start a node")?;
        let any = vec!["127.0.0.1:0".parse().context("127.0.0.1:0 is not a valid address")?];
        let config = ServerConfig { tcp: any, ..ServerConfig::default() };
        let server = Server::start(node.clone(), config).context("cannot open the node's listener")?;
        let address = *server.tcp_addresses().first().context("the node has no open listener")?;
        let url = format!("dunlin://{address}");
        let client = Client::connect(&url, ClientOptions::default()).context("cannot connect to the node")?;
        let loading = if matches!(phase, "cold" | "warm") { LOADING } else { Duration::ZERO };
        let command = WorkerCommand {
            words: bench.child.command_line("tasks-local-worker"),
            environment: vec![
                ("DUNLIN_URL".to_owned(), url),
                (LOADING_VARIABLE.to_owned(), loading.as_millis().to_string()),
            ],
            prefix: format!("bench-{}", std::process::id()),
        };
        let clock_start = Instant::now();
        let look = node_load_reader(&node, &command.prefix);
        let workers = Workers::start(policy(phase), command, WorkersLimits::default(), look)?;
        let setup = LocalSetup { node, server, workers, clock_start, tasks: client.tasks(), submitted: 0 };
        setup.wait_for("the first worker", |_| setup.workers.ready() == 1)?;
        let pool = if phase == "warm" { u64::from(POOL) } else { 0 };
        setup.wait_for("the warm pool", |_| setup.workers.warm() == pool)?;
        Ok(setup)
    }

    fn wait_for(
        &self,
        goal: &str,
        condition: impl Fn(&ScalingDecisions) -> bool,
    ) -> Result<ScalingDecisions> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let decided = self.workers.decisions();
            if condition(&decided) {
                return Ok(decided);
            }
            ensure!(Instant::now() < deadline, "timed out waiting for {goal}: {decided:?}");
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn submit(&mut self, count: u64) -> Result<()> {
        let tasks = (0..count).map(|_| NewTask::new(KIND.as_bytes(), b"")).collect();
        self.tasks.submit_all(TENANT, tasks).context("cannot submit tasks")?;
        self.submitted += count;
        Ok(())
    }

    /// Submits tasks at the rate `per_s`, until `is_enough` returns `true` for the decisions made so far.
    fn submit_at_rate(&mut self, per_s: f64, is_enough: impl Fn(&ScalingDecisions) -> bool) -> Result<()> {
        let start = Instant::now();
        let mut submitted = 0;
        while !is_enough(&self.workers.decisions()) {
            ensure!(
                start.elapsed() < TIMEOUT,
                "the decision started no worker: {:?}",
                self.workers.decisions()
            );
            let due = (start.elapsed().as_secs_f64() * per_s) as u64;
            if due > submitted {
                self.submit(due - submitted)?;
                submitted = due;
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Submits `count` tasks at once, and measures the decision that follows. Returns an error if another trigger than
    /// `trigger` caused the decision.
    fn burst(&mut self, count: u64, trigger: ScaleOutTrigger) -> Result<RunSample> {
        let load_at = Instant::now();
        self.submit(count)?;
        self.wait_for("more workers", |decided| is_ready(decided).is_some())?;
        self.scale_out_sample(trigger, load_at)
    }

    /// Returns how long each step of the first addition of workers took, for load that arrived at `load_at`. Returns an
    /// error if the trigger of this addition is not `trigger`.
    fn scale_out_sample(&self, trigger: ScaleOutTrigger, load_at: Instant) -> Result<RunSample> {
        let decided = self.workers.decisions();
        let out = is_ready(&decided).context("the autoscaler made no decision")?;
        ensure!(out.trigger == trigger, "decision {out:?} has another trigger than {trigger:?}");
        ensure!(out.failed == 0, "some workers did not start: {out:?}");
        let load_ms = load_at.duration_since(self.clock_start).as_secs_f64() * 1e3;
        Ok(RunSample::new()
            .with("detection_ns", (out.detected_ms as f64 - load_ms) * MS)
            .with("decision_ns", (out.decided_ms - out.detected_ms) as f64 * MS)
            .with("ready_ns", (out.ready_ms - out.decided_ms) as f64 * MS)
            .with("total_ns", (out.ready_ms as f64 - load_ms) * MS)
            .with("workers_more", f64::from(out.workers)))
    }

    /// Returns how long each step took when a worker was first removed.
    fn scale_in_sample(&self) -> Result<RunSample> {
        let is_gone = |decided: &ScalingDecisions| decided.inward.iter().any(|inward| inward.gone_ms > 0);
        let decided = self.wait_for("fewer workers", is_gone)?;
        let first =
            decided.inward.iter().find(|inward| inward.gone_ms > 0).context("no worker process ended")?;
        let ScaleIn { low_ms, cooled_ms, decided_ms, drained_ms, gone_ms, .. } = *first;
        Ok(RunSample::new()
            .with("detection_ns", (cooled_ms - low_ms) as f64 * MS)
            .with("decision_ns", (decided_ms - cooled_ms) as f64 * MS)
            .with("drain_ns", drained_ms.saturating_sub(decided_ms) as f64 * MS)
            .with("termination_ns", gone_ms.saturating_sub(drained_ms) as f64 * MS)
            .with("total_ns", (gone_ms - low_ms) as f64 * MS))
    }

    /// Submits waves of load until workers are started before the load of a wave rises. In each wave, the load is low
    /// for half of the period and then high. A forecast needs the load of two whole periods. The low half of the first
    /// wave is shortened to half of its length, so that two whole periods end in the middle of a low half.
    fn measure_forecast(&mut self) -> Result<RunSample> {
        let (start, half) = (Instant::now(), WAVE / 2);
        let mut until = start + half / 2;
        while start.elapsed() < TIMEOUT {
            self.submit_at_rate(LOW_PER_S, |_| Instant::now() >= until)?;
            if let Some(out) = self.forecast_decision(until, half) {
                return self.forecast_sample(&out, until);
            }
            self.submit_at_rate(HIGH_PER_S, |_| Instant::now() >= until + half)?;
            until += WAVE;
        }
        bail!("the autoscaler made no forecast: {:?}", self.workers.decisions())
    }

    fn instant_of(&self, ms: u64) -> Instant {
        self.clock_start + Duration::from_millis(ms)
    }

    /// Returns the first decision that a forecast triggered at most `within` before the load rises; `None` if there is
    /// no such decision. `rise` is the time at which the load rises.
    fn forecast_decision(&self, rise: Instant, within: Duration) -> Option<ScaleOut> {
        let is_forecast = |out: &&ScaleOut| out.trigger == ScaleOutTrigger::Predictive;
        let decided = self.workers.decisions();
        decided
            .out
            .iter()
            .filter(is_forecast)
            .find(|out| self.instant_of(out.decided_ms) + within > rise)
            .copied()
    }

    /// Measures how long before the load rises the workers of this decision were ready. `rise` is the time at which the
    /// load rises.
    fn forecast_sample(&self, decision: &ScaleOut, rise: Instant) -> Result<RunSample> {
        let is_decision =
            |out: &&ScaleOut| out.decided_ms == decision.decided_ms && out.trigger == decision.trigger;
        let is_ready = |decided: &ScalingDecisions| {
            decided.out.iter().find(is_decision).is_some_and(|out| out.missing == 0)
        };
        let decided = self.wait_for("the forecast workers", is_ready)?;
        let out = decided.out.iter().find(is_decision).context("the decision is missing")?;
        let ready = self.instant_of(out.ready_ms);
        let ahead_s = match rise.checked_duration_since(ready) {
            Some(ahead) => ahead.as_secs_f64(),
            None => -ready.duration_since(rise).as_secs_f64(),
        };
        Ok(RunSample::new()
            .with("decision_ns", (out.decided_ms - out.passed_ms) as f64 * MS)
            .with("ready_ns", (out.ready_ms - out.decided_ms) as f64 * MS)
            .with("total_ns", (out.ready_ms - out.passed_ms) as f64 * MS)
            .with("ahead_s", ahead_s)
            .with("workers_more", f64::from(out.workers)))
    }

    /// Waits until all tasks are done, and then ends all processes.
    fn end(self) -> Result<()> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let tenant = self.tasks.tenants(TENANT)?;
            let account = tenant.first().context("the status has no tenant")?.account;
            if account.completed == self.submitted {
                break;
            }
            ensure!(
                Instant::now() < deadline,
                "unexpected counters {account:?} for {} tasks",
                self.submitted
            );
            thread::sleep(POLL_INTERVAL);
        }
        self.workers.stop(TIMEOUT);
        self.server.stop();
        self.node.stop();
        Ok(())
    }
}

pub(crate) fn run() -> Result<()> {
    let url = std::env::var("DUNLIN_URL").context("cannot read the environment variable DUNLIN_URL")?;
    let started = WorkerLaunch::from_env();
    let name = started.name().context("the worker has no name")?.to_owned();
    let loading = std::env::var(LOADING_VARIABLE)
        .with_context(|| format!("cannot read the environment variable {LOADING_VARIABLE}"))?;
    thread::sleep(Duration::from_millis(loading.parse().context(LOADING_VARIABLE)?));
    let stop = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGTERM, Arc::clone(&stop))
        .context("cannot listen for SIGTERM")?;
    let client = Client::connect(&url, ClientOptions::default()).context("cannot connect to the node")?;
    if !started.wait_for_work(&stop).context("the worker did not receive a task")? {
        return Ok(());
    }
    let nap = |_: &Task| {
        thread::sleep(TASK);
        Ok("")
    };
    let worker = Worker::new(&client).handle_blocking(KIND, nap).name(&name).stop_when(Arc::clone(&stop));
    worker.run().context("the worker failed")?;
    ensure!(stop.load(Ordering::Acquire), "the worker ended before it received SIGTERM");
    Ok(())
}
