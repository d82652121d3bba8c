//! Measures the state of the scheduler without nodes: the memory of a waiting task, and the processor time of a
//! submission and of a dispatch.
//!
//! A dispatch gives a task to a worker, completes the task, and submits another task. The number of waiting tasks
//! therefore stays the same. Each measurement runs in a process of its own. In a shared process, memory that an earlier
//! measurement has freed would distort the figures of the next one.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use dunlin_tasks::{
    AttemptReport, CommandReply, NewTask, NewWorker, SchedulerLimits, SchedulerState, TaskCommand,
    TaskEffects, TenantSettings, WorkerOrder,
};
use serde::{Deserialize, Serialize};

use crate::clock::processor_ns;
use crate::local::memory::resident_bytes;
use crate::point::{BenchContext, RunSample};
use crate::role::{RoleArgs, print_line};

const WORKERS: usize = 200;
/// How long to wait for the child process, which may submit ten million tasks.
const TIMEOUT: Duration = Duration::from_secs(300);
/// The number of tasks that one command submits.
const BATCH: usize = 100;
/// The number of dispatches in each millisecond of the scheduler's virtual time.
const PER_MS: usize = 100;

#[derive(Serialize, Deserialize)]
struct SchedulerCosts {
    dispatch_ns: f64,
    submit_ns: f64,
    task_bytes: f64,
}

/// Measures the scheduler in a child process: the memory of `queued` waiting tasks, which belong to `tenants` tenants,
/// and then `dispatches` dispatches.
pub fn measure(bench: &BenchContext, tenants: usize, queued: usize, dispatches: u64) -> Result<RunSample> {
    let args = [
        ("tenants", tenants.to_string()),
        ("queued", queued.to_string()),
        ("dispatches", dispatches.to_string()),
    ];
    let costs: SchedulerCosts = bench.child.start("tasks-scheduler", &args)?.read_line(TIMEOUT)?;
    Ok(RunSample::new()
        .with("dispatch_ns", costs.dispatch_ns)
        .with("submit_ns", costs.submit_ns)
        .with("task_bytes", costs.task_bytes))
}

struct Scheduler {
    state: SchedulerState,
    effects: TaskEffects,
    orders: VecDeque<WorkerOrder>,
    names: Vec<String>,
    submitted: usize,
}

pub(crate) fn run(args: &RoleArgs) -> Result<()> {
    let (tenants, queued): (usize, usize) = (args.get("tenants")?, args.get("queued")?);
    let dispatches: usize = args.get("dispatches")?;
    let mut scheduler = Scheduler::new(tenants)?;
    let (before_bytes, before_ns) = (resident_bytes()?, processor_ns());
    while scheduler.submitted < queued {
        scheduler.submit(BATCH.min(queued - scheduler.submitted))?;
    }
    let submit_ns = (processor_ns() - before_ns) as f64 / queued as f64;
    let task_bytes = resident_bytes()?.saturating_sub(before_bytes) as f64 / queued as f64;
    scheduler.add_workers()?;
    scheduler.cycle(dispatches / 3)?;
    let before_ns = processor_ns();
    scheduler.cycle(dispatches)?;
    let dispatch_ns = (processor_ns() - before_ns) as f64 / dispatches as f64;
    let waiting: u64 = scheduler.state.tenants().map(|tenant| tenant.queued).sum();
    let running: u64 = scheduler.state.tenants().map(|tenant| tenant.used[0]).sum();
    ensure!(
        waiting + running == queued as u64,
        "{waiting} tasks wait and {running} run: expected {queued} in total"
    );
    print_line(&SchedulerCosts { dispatch_ns, submit_ns, task_bytes })
}

impl Scheduler {
    fn new(tenants: usize) -> Result<Self> {
        let state =
            SchedulerState::new(SchedulerLimits { finished_max: 1_000, ..SchedulerLimits::default() });
        let names = (0..tenants).map(|at| format!("tenant-{at}")).collect();
        let mut scheduler =
            Self { state, effects: TaskEffects::default(), orders: VecDeque::new(), names, submitted: 0 };
        for at in 0..tenants {
            let tenant = TenantSettings::new(scheduler.names[at].as_bytes());
            apply(&mut scheduler.state, &mut scheduler.effects, &TaskCommand::Tenant { tenant })?;
        }
        Ok(scheduler)
    }

    /// Submits `count` tasks of one tenant with one command. Each call takes the next tenant.
    fn submit(&mut self, count: usize) -> Result<()> {
        let tenant = self.names[self.submitted / count.max(1) % self.names.len()].as_bytes();
        let tasks = vec![NewTask::new(b"work", b""); count];
        apply(&mut self.state, &mut self.effects, &TaskCommand::Submit { tenant, tasks })?;
        self.submitted += count;
        self.effects.events.clear();
        Ok(())
    }

    fn add_workers(&mut self) -> Result<()> {
        for _ in 0..WORKERS {
            let worker =
                NewWorker { kinds: vec![b"work"], credit: 1, ttl_ms: 600_000, ..NewWorker::default() };
            apply(&mut self.state, &mut self.effects, &TaskCommand::Join { worker })?;
        }
        self.orders.extend(self.effects.orders.drain(..));
        Ok(())
    }

    fn cycle(&mut self, count: usize) -> Result<()> {
        for at in 0..count {
            let Some(WorkerOrder::Start(start)) = self.orders.pop_front() else {
                return Err(anyhow!("a worker is idle although tasks are waiting"));
            };
            self.state.advance((at / PER_MS) as u64, &mut self.effects);
            let answer = AttemptReport {
                worker: start.worker,
                task: start.task,
                token: start.token,
                run_us: 1_000,
                cpu_us: 900,
                memory_bytes: 1_000_000,
                credit: 1,
            };
            apply(
                &mut self.state,
                &mut self.effects,
                &TaskCommand::Complete { report: answer, result: b"" },
            )?;
            self.submit(1)?;
            self.orders.extend(self.effects.orders.drain(..));
            self.effects.clear();
        }
        Ok(())
    }
}

fn apply(
    state: &mut SchedulerState,
    effects: &mut TaskEffects,
    command: &TaskCommand<'_>,
) -> Result<CommandReply> {
    state.apply(command, effects).context("the scheduler refused the command")
}
