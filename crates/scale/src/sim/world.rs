//! Runs a simulation in steps of virtual time. In each step, the node first processes the results and tasks that have
//! arrived. Then the scheduler and the scaler act.
//!
//! ```text
//!  tenants ──arrivals──►┐                                   ┌──starts──► workers ──┐
//!                       ├─► inbox ─► node's time ─► State ──┤                      │ busy until done
//!  workers ──results───►┘                                   └── orders             │
//!     ▲────────────────────────────────────────────────────────────────────────────┘
//! ```

use std::collections::{BTreeMap, VecDeque};

use dunlin_tasks::{
    AttemptReport, CommandReply, NewTask, NewWorker, SchedulerLimits, SchedulerState, TaskCommand,
    TaskEffects, TaskStart, TenantSettings, WorkerOrder, jain,
};

use crate::random::Random;
use crate::sample::{LoadMeasurement, SchedulerSample};

use super::meter::{Minutes, StartsDigest, TimeHistogram};
use super::node::Utilization;
use super::outcome::{SimulationOutcome, TenantOutcome};
use super::scenario::{SimulationScenario, SubmissionLoad, WorkerSupply};
use super::workers::{ScaledFleet, SchedulerRequest, SimulatedWorker, thrash};
use super::workload::Workload;

const TTL_MS: u64 = 600_000;
const RENEW_INTERVAL_MS: u64 = 200_000;
/// The node processes results and newly submitted tasks in turns. This is the maximum number in one turn.
const CHUNK: usize = 64;
/// The interval at which the tenants' use of resources is recorded, in ms.
const USAGE_INTERVAL_MS: u64 = 1_000;

/// A task that a worker has completed, and whose result is on its way to the node.
struct TaskResult {
    start: TaskStart,
    run_us: u64,
    at_us: u64,
}

/// The state of a running simulation.
pub(super) struct SimulatedWorld<'s> {
    scenario: &'s SimulationScenario,
    state: SchedulerState,
    effects: TaskEffects,
    random: Random,
    workers: Vec<SimulatedWorker>,
    scaled: Option<ScaledFleet>,
    requests: Vec<SchedulerRequest>,
    /// The results that are on their way to the node, by the step in which they will arrive.
    in_transit: BTreeMap<u64, Vec<TaskResult>>,
    /// The results that have arrived at the node and wait to be processed.
    results: VecDeque<TaskResult>,
    /// The tasks that tenants have submitted and that wait to be accepted by the node. Each has its tenant and the time
    /// of its submission.
    arrivals: VecDeque<(u32, u64)>,
    /// For each tenant: the integral of its arrival rate from now until its next task arrives.
    until_arrival: Vec<f64>,
    waiting: Vec<u64>,
    /// The time of submission and the tenant of the task in each slot of the scheduler's table of tasks.
    submitted: Vec<(u64, u32)>,
    /// The part of the node's capacity that is still free in this step: processor time in µs, log bytes, and network
    /// bytes.
    budget: [f64; 3],
    /// The processor time that the node has used so far, in µs.
    spent_us: f64,
    waits: TimeHistogram,
    done: TimeHistogram,
    /// The times from submission to start of the tasks that have started since the last sample.
    recent_waits: TimeHistogram,
    /// The times from submission to start of the tasks that have started in the present minute.
    minute: TimeHistogram,
    minutes: Minutes,
    counted: SimulationOutcome,
    since_sample: (u64, u64, u64),
    /// The sum of the times for which each worker has been ready since the last sample, in ms.
    ready_ms: u64,
    digest: StartsDigest,
    paid_ms: u64,
    usage_samples: u64,
    bytes_most: u64,
    workers_ms: u64,
}

impl<'s> SimulatedWorld<'s> {
    pub(super) fn new(scenario: &'s SimulationScenario) -> SimulatedWorld<'s> {
        let limits = SchedulerLimits {
            finished_max: 1_000,
            credit_max: scenario.credit.max(1),
            workers_max: 2_000_000,
            ..SchedulerLimits::default()
        };
        let mut random = Random::new(scenario.seed);
        let tenants = scenario.tenants.iter();
        let counted = SimulationOutcome {
            tenants: tenants
                .clone()
                .map(|tenant| TenantOutcome { name: tenant.name.clone(), ..TenantOutcome::default() })
                .collect(),
            ..SimulationOutcome::default()
        };
        SimulatedWorld {
            scenario,
            state: SchedulerState::new(limits),
            effects: TaskEffects::default(),
            workers: Vec::new(),
            scaled: None,
            requests: Vec::new(),
            in_transit: BTreeMap::new(),
            results: VecDeque::new(),
            arrivals: VecDeque::new(),
            until_arrival: tenants.map(|_| random.exponential()).collect(),
            waiting: vec![0; scenario.tenants.len()],
            random,
            submitted: Vec::new(),
            budget: [0.0; 3],
            spent_us: 0.0,
            waits: TimeHistogram::new(),
            done: TimeHistogram::new(),
            recent_waits: TimeHistogram::new(),
            minute: TimeHistogram::new(),
            minutes: Minutes::default(),
            counted,
            since_sample: (0, 0, 0),
            ready_ms: 0,
            digest: StartsDigest::new(),
            paid_ms: 0,
            usage_samples: 0,
            bytes_most: 0,
            workers_ms: 0,
        }
    }

    pub(super) fn run(mut self) -> SimulationOutcome {
        self.begin();
        let step_ms = self.scenario.step_ms.max(1);
        let mut now_ms = 0;
        while now_ms < self.scenario.duration_ms && self.counted.completed < self.scenario.tasks_max {
            now_ms += step_ms;
            self.step(now_ms, step_ms);
        }
        self.finish(now_ms)
    }

    fn begin(&mut self) {
        for tenant in &self.scenario.tenants {
            let tenant = TenantSettings {
                weight: tenant.weight,
                cpu_milli: tenant.cpu_milli,
                memory_bytes: tenant.memory_bytes,
                ..TenantSettings::new(tenant.name.as_bytes())
            };
            apply(&mut self.state, &mut self.effects, &TaskCommand::Tenant { tenant });
        }
        match &self.scenario.supply {
            WorkerSupply::Fixed { workers } => {
                (1..=u64::from(*workers)).for_each(|instance| self.join(instance, 0))
            }
            WorkerSupply::ScaledFleet { policy, delays, sample_ms, workers, unix_ms, is_oracle } => {
                let mut scaled =
                    ScaledFleet::new(policy, *delays, *sample_ms, *unix_ms, *is_oracle, self.scenario.seed);
                scaled.scaler.assume_rate(1e6 / self.scenario.service.mean_us);
                if let Some(config) = &policy.predictive {
                    let season = config.seasons.iter().copied().max().unwrap_or(0);
                    let before = self.workloads();
                    let before =
                        before.iter().map(|workload| workload.past_rates(config.bucket_ms, season * 4));
                    let sums = before.reduce(|a, b| a.iter().zip(&b).map(|(a, b)| a + b).collect());
                    scaled.scaler.learn(0, sums.unwrap_or_default());
                }
                scaled.begin(*workers, &mut self.requests);
                self.scaled = Some(scaled);
                self.run_requests(0);
            }
        }
    }

    fn workloads(&self) -> Vec<Workload> {
        let loads = self.scenario.tenants.iter().filter_map(|tenant| match &tenant.load {
            SubmissionLoad::Paced(workload) => Some(workload.clone()),
            SubmissionLoad::Saturated { .. } => None,
        });
        loads.collect()
    }

    fn step(&mut self, now_ms: u64, step_ms: u64) {
        self.state.advance(now_ms, &mut self.effects);
        self.run_orders(now_ms);
        if let Some(scaled) = &mut self.scaled {
            scaled.poll(now_ms, &mut self.requests);
            self.run_requests(now_ms);
        }
        self.create_arrivals(now_ms, step_ms);
        while let Some(first) = self.in_transit.first_entry().filter(|entry| *entry.key() <= now_ms) {
            self.results.extend(first.remove());
        }
        self.process_inbox(now_ms, step_ms);
        if let Some(scaled) = &self.scaled {
            self.ready_ms += u64::from(scaled.fleet().count(crate::fleet::InstancePhase::Ready)) * step_ms;
        }
        self.sample(now_ms);
        self.end_minute(now_ms);
        self.renew_leases(now_ms, step_ms);
        self.record_usage(now_ms, step_ms);
        if now_ms == self.scenario.warm_up_ms / step_ms * step_ms {
            self.reset_after_warm_up();
        }
    }

    /// Creates the tasks that arrive in this step. Each tenant's tasks are in order of time.
    fn create_arrivals(&mut self, now_ms: u64, step_ms: u64) {
        let scenario = self.scenario;
        let from_ms = now_ms - step_ms;
        for (at, tenant) in scenario.tenants.iter().enumerate() {
            match &tenant.load {
                SubmissionLoad::Saturated { waiting } => {
                    // Submits as many tasks as are necessary to reach the constant number of waiting tasks again.
                    let more = waiting.saturating_sub(self.waiting[at]);
                    self.waiting[at] += more;
                    self.arrivals.extend((0..more).map(|_| (at as u32, now_ms * 1_000)));
                }
                SubmissionLoad::Paced(workload) => {
                    let hazard = workload.per_s(from_ms as i64) * step_ms as f64 / 1_000.0;
                    let mut passed = 0.0;
                    while self.until_arrival[at] <= hazard - passed {
                        passed += self.until_arrival[at];
                        self.until_arrival[at] = self.random.exponential();
                        let at_us = from_ms * 1_000 + (passed / hazard * (step_ms * 1_000) as f64) as u64;
                        self.arrivals.push_back((at as u32, at_us));
                        self.waiting[at] += 1;
                    }
                    self.until_arrival[at] -= hazard - passed;
                }
            }
        }
    }

    /// Processes results and submitted tasks until the node's capacity for this step is used up.
    fn process_inbox(&mut self, now_ms: u64, step_ms: u64) {
        let node = self.scenario.node;
        let step_s = step_ms as f64 / 1_000.0;
        let capacity = [f64::from(node.shards) * 1e6, node.log_bytes_per_s, node.network_bytes_per_s];
        for (left, capacity) in self.budget.iter_mut().zip(capacity) {
            *left = (*left + capacity * step_s).min(capacity * step_s);
        }
        let before_us = self.budget[0];
        while self.budget.iter().all(|left| *left > 0.0)
            && !(self.results.is_empty() && self.arrivals.is_empty())
        {
            for _ in 0..CHUNK.min(self.results.len()) {
                let Some(result) = self.results.pop_front() else { break };
                self.complete(result, now_ms);
            }
            self.submit(now_ms);
        }
        self.spent_us += before_us - self.budget[0];
    }

    /// Subtracts the costs of `tasks` tasks from the capacity that is left in this step. Half of a task's log and
    /// network bytes are spent when the task is submitted, and the other half when its result is processed.
    fn spend(&mut self, us: f64, tasks: usize) {
        let node = self.scenario.node;
        let halves = tasks as f64 / 2.0;
        let spent = [us * tasks as f64, node.log_bytes * halves, node.network_bytes * halves];
        self.budget.iter_mut().zip(spent).for_each(|(left, spent)| *left -= spent);
    }

    fn complete(&mut self, result: TaskResult, now_ms: u64) {
        self.spend(self.scenario.node.dispatch_us, 1);
        let TaskResult { start, run_us, at_us } = result;
        let is_joined = self
            .workers
            .get(start.worker as u32 as usize)
            .is_some_and(|w| w.is_joined && w.id == start.worker);
        if !is_joined {
            return;
        }
        let cpu_us = run_us;
        let answer = AttemptReport {
            worker: start.worker,
            task: start.task,
            token: start.token,
            run_us,
            cpu_us,
            memory_bytes: 0,
            credit: 1,
        };
        if self.state.apply(&TaskCommand::Complete { report: answer, result: b"" }, &mut self.effects).is_ok()
        {
            let (submitted_us, tenant) = self.submitted[start.task as u32 as usize];
            self.done.record(at_us.saturating_sub(submitted_us));
            self.counted.completed += 1;
            self.since_sample.1 += 1;
            self.since_sample.2 += run_us;
            let tenant = &mut self.counted.tenants[tenant as usize];
            tenant.completed += 1;
            tenant.busy_us += run_us;
        }
        self.run_orders(now_ms);
    }

    /// Submits to the scheduler some of the tasks that have arrived, all of the same tenant.
    fn submit(&mut self, now_ms: u64) {
        let Some(&(tenant, _)) = self.arrivals.front() else { return };
        let count = self.arrivals.iter().take(CHUNK).take_while(|arrival| arrival.0 == tenant).count();
        self.spend(self.scenario.node.submit_us, count);
        let TenantNeeds { name, cpu_milli, memory_bytes } = self.needs(tenant);
        let task = NewTask { cpu_milli, memory_bytes, ..NewTask::new(b"work", b"") };
        let command = TaskCommand::Submit { tenant: name, tasks: vec![task; count] };
        let reply = apply(&mut self.state, &mut self.effects, &command);
        let CommandReply::Submitted { tasks, .. } = reply else {
            unreachable!("unexpected response to a submission")
        };
        for accepted in tasks {
            let Some((_, at_us)) = self.arrivals.pop_front() else { break };
            let slot = accepted.task as u32 as usize;
            if slot >= self.submitted.len() {
                self.submitted.resize(slot + 1, (0, 0));
            }
            self.submitted[slot] = (at_us, tenant);
        }
        self.counted.submitted += count as u64;
        self.counted.tenants[tenant as usize].submitted += count as u64;
        self.since_sample.0 += count as u64;
        self.run_orders(now_ms);
    }

    fn needs(&self, tenant: u32) -> TenantNeeds<'s> {
        let scenario: &'s SimulationScenario = self.scenario;
        let tenant = &scenario.tenants[tenant as usize];
        TenantNeeds { name: tenant.name.as_bytes(), cpu_milli: tenant.needs.0, memory_bytes: tenant.needs.1 }
    }

    /// Carries out the orders that the scheduler gives to workers.
    fn run_orders(&mut self, now_ms: u64) {
        let mut orders = std::mem::take(&mut self.effects.orders);
        for order in orders.drain(..) {
            match order {
                WorkerOrder::Start(start) => self.start(start, now_ms),
                WorkerOrder::Drained { worker } => {
                    let instance = self.workers[worker as u32 as usize].instance;
                    if let Some(scaled) = &mut self.scaled {
                        scaled.provider.report_drained(instance);
                    }
                }
                WorkerOrder::Stop { .. } => {}
            }
        }
        self.effects.orders = orders;
        self.effects.events.clear();
    }

    fn start(&mut self, start: TaskStart, now_ms: u64) {
        let (node, service) = (self.scenario.node, self.scenario.service);
        let received_us = now_ms * 1_000 + node.commit_us + node.hop_us;
        let spread = service.spread * (2.0 * self.random.unit() - 1.0);
        let run_us = (service.mean_us * (1.0 + spread)).max(1.0) as u64;
        let worker = &mut self.workers[start.worker as u32 as usize];
        let from_us = received_us.max(worker.free_us);
        worker.free_us = from_us + run_us;
        let at_us = from_us + run_us + node.hop_us;
        let (submitted_us, tenant) = self.submitted[start.task as u32 as usize];
        let waited_us = from_us.saturating_sub(submitted_us);
        self.waiting[tenant as usize] -= 1;
        self.waits.record(waited_us);
        self.recent_waits.record(waited_us);
        self.minute.record(waited_us);
        self.counted.started += 1;
        self.digest.add(start.task ^ (start.worker << 20));
        self.digest.add(from_us);
        let step_ms = self.scenario.step_ms.max(1);
        let arrival_ms = at_us.div_ceil(1_000 * step_ms) * step_ms;
        self.in_transit.entry(arrival_ms).or_default().push(TaskResult { start, run_us, at_us });
    }

    fn join(&mut self, instance: u64, now_ms: u64) {
        let worker = NewWorker {
            kinds: vec![b"work"],
            ttl_ms: TTL_MS,
            credit: self.scenario.credit.max(1),
            ..NewWorker::default()
        };
        let reply = apply(&mut self.state, &mut self.effects, &TaskCommand::Join { worker });
        let CommandReply::Joined { worker: id } = reply else {
            unreachable!("unexpected response to a join")
        };
        let slot = id as u32 as usize;
        let worker = SimulatedWorker { id, instance, free_us: now_ms * 1_000, is_joined: true };
        if slot >= self.workers.len() {
            self.workers.resize(slot + 1, SimulatedWorker { is_joined: false, ..worker });
        }
        self.workers[slot] = worker;
        if let Some(scaled) = &mut self.scaled {
            scaled.workers.insert(instance, slot as u32);
        }
        self.run_orders(now_ms);
    }

    /// Carries out the changes of the scheduler's workers that the scaler or the provider has caused.
    fn run_requests(&mut self, now_ms: u64) {
        while !self.requests.is_empty() {
            for request in std::mem::take(&mut self.requests) {
                match request {
                    SchedulerRequest::Join(instance) => self.join(instance, now_ms),
                    SchedulerRequest::Drain(instance) => self.drain_or_remove(instance, now_ms, false),
                    SchedulerRequest::Leave(instance) => self.drain_or_remove(instance, now_ms, true),
                }
            }
            if let Some(scaled) = &mut self.scaled {
                scaled.poll(now_ms, &mut self.requests);
            }
        }
    }

    /// Lets the worker on an instance drain; if `is_leaving` is set, removes the worker. Ignores an unknown instance.
    fn drain_or_remove(&mut self, instance: u64, now_ms: u64, is_leaving: bool) {
        let Some(scaled) = &mut self.scaled else { return };
        let slot = match is_leaving {
            true => scaled.workers.remove(&instance),
            false => scaled.workers.get(&instance).copied(),
        };
        let Some(slot) = slot else {
            // No worker on this instance has joined the scheduler yet.
            scaled.provider.report_drained(instance);
            return;
        };
        let worker = self.workers[slot as usize].id;
        let command = if is_leaving { TaskCommand::Leave { worker } } else { TaskCommand::Drain { worker } };
        apply(&mut self.state, &mut self.effects, &command);
        self.workers[slot as usize].is_joined = !is_leaving;
        self.recount_waiting();
        self.run_orders(now_ms);
    }

    /// The tasks of lost workers wait again. This function adds these tasks to their tenants' numbers of waiting tasks.
    fn recount_waiting(&mut self) {
        let lost = self.effects.events.iter().filter_map(|event| match event.kind {
            dunlin_tasks::TaskEventKind::Lost { .. } => Some(event.tenant),
            _ => None,
        });
        for tenant in lost {
            self.waiting[tenant as usize] += 1;
        }
    }

    fn sample(&mut self, now_ms: u64) {
        let workloads = match &self.scaled {
            Some(scaled) if now_ms >= scaled.next_ms + scaled.sample_ms => self.workloads(),
            _ => return,
        };
        let Some(scaled) = &mut self.scaled else { return };
        let passed_s = (now_ms - scaled.next_ms) as f64 / 1_000.0;
        scaled.next_ms = now_ms;
        let (arrived, done, busy_us) = std::mem::take(&mut self.since_sample);
        let ready_ms = std::mem::take(&mut self.ready_ms);
        let measured = LoadMeasurement {
            cpu: (busy_us as f64 / 1_000.0 / ready_ms.max(1) as f64).min(1.0),
            workers: ready_ms as f64 / 1_000.0 / passed_s,
            latency_ms: self.recent_waits.p99_ms(),
            arrived_per_s: arrived as f64 / passed_s,
            done_per_s: done as f64 / passed_s,
        };
        self.recent_waits.clear();
        let signals = self.state.signals();
        let mut sample = SchedulerSample::new(&signals, measured, |worker| {
            let found = self.workers.get(worker as u32 as usize).filter(|found| found.id == worker);
            found.map(|found| found.instance)
        });
        if scaled.is_oracle {
            scaled.set_oracle_load(now_ms, &mut sample, &workloads, self.scenario.service.mean_us);
        }
        scaled.tick(now_ms, &sample, &mut self.requests);
        self.run_requests(now_ms);
    }

    fn end_minute(&mut self, now_ms: u64) {
        if !now_ms.is_multiple_of(60_000) {
            return;
        }
        // If no task has started in this minute, uses the time for which the oldest task has been waiting.
        let stuck_ms = if self.minute.p99_ms().is_none() { self.state.signals().oldest_ms } else { 0 };
        let worst_ms = self.minute.p99_ms().unwrap_or(0).max(stuck_ms);
        self.minutes.all += 1;
        self.minutes.violated += u64::from(worst_ms > self.scenario.latency_ms_max);
        self.minute.clear();
    }

    fn renew_leases(&mut self, now_ms: u64, step_ms: u64) {
        if now_ms % RENEW_INTERVAL_MS >= step_ms {
            return;
        }
        let present: Vec<u64> =
            self.workers.iter().filter(|worker| worker.is_joined).map(|worker| worker.id).collect();
        for workers in present.chunks(10_000) {
            apply(&mut self.state, &mut self.effects, &TaskCommand::Renew { workers: workers.to_vec() });
        }
    }

    /// Records for how long instances cost money, and how many resources the tenants use.
    fn record_usage(&mut self, now_ms: u64, step_ms: u64) {
        if now_ms % USAGE_INTERVAL_MS >= step_ms {
            return;
        }
        if let Some(scaled) = &mut self.scaled {
            scaled.charge(now_ms - self.paid_ms);
        }
        let present = match &self.scaled {
            Some(scaled) => u64::from(scaled.fleet().count(crate::fleet::InstancePhase::Ready)),
            None => self.workers.len() as u64,
        };
        self.workers_ms += present * (now_ms - self.paid_ms);
        self.paid_ms = now_ms;
        self.usage_samples += 1;
        self.bytes_most = self.bytes_most.max(self.state.bytes());
        for (tenant, view) in self.counted.tenants.iter_mut().zip(self.state.tenants()) {
            for part in 0..2 {
                let held = view.used[part + 1];
                tenant.held_most[part] = tenant.held_most[part].max(held);
                tenant.held_mean[part] += held as f64;
            }
        }
    }

    fn reset_after_warm_up(&mut self) {
        let tenants = self.scenario.tenants.iter();
        let tenants =
            tenants.map(|tenant| TenantOutcome { name: tenant.name.clone(), ..TenantOutcome::default() });
        self.counted = SimulationOutcome { tenants: tenants.collect(), ..SimulationOutcome::default() };
        self.minutes = Minutes::default();
        (self.spent_us, self.usage_samples, self.workers_ms, self.bytes_most) = (0.0, 0, 0, 0);
        if let Some(scaled) = &mut self.scaled {
            scaled.paid_ms = [0; 3];
        }
        [&mut self.waits, &mut self.done, &mut self.minute].into_iter().for_each(TimeHistogram::clear);
    }

    fn finish(self, now_ms: u64) -> SimulationOutcome {
        let SimulatedWorld { scenario, counted, scaled, .. } = self;
        let ran_ms = now_ms - scenario.warm_up_ms.min(now_ms.saturating_sub(1));
        let ran_s = ran_ms as f64 / 1_000.0;
        let per_s = counted.completed as f64 / ran_s;
        let workers_s = match &scaled {
            Some(_) => self.workers_ms as f64 / 1_000.0,
            None => self.workers.len() as f64 * ran_s,
        };
        let busy_us: u64 = counted.tenants.iter().map(|tenant| tenant.busy_us).sum();
        let node = scenario.node;
        let used = Utilization {
            processor: self.spent_us / (ran_s * 1e6 * f64::from(node.shards)),
            log: per_s * node.log_bytes / node.log_bytes_per_s,
            network: per_s * node.network_bytes / node.network_bytes_per_s,
            memory: self.bytes_most as f64 / node.memory_bytes,
            workers: (busy_us as f64 / 1e6 / workers_s).min(1.0),
        };
        let usage_samples = self.usage_samples.max(1) as f64;
        let mut tenants = counted.tenants;
        tenants
            .iter_mut()
            .for_each(|tenant| tenant.held_mean.iter_mut().for_each(|sum| *sum /= usage_samples));
        let received: Vec<f64> = tenants.iter().map(|tenant| tenant.busy_us as f64).collect();
        let mean_us = scenario.service.mean_us;
        let demanded: Vec<f64> = tenants.iter().map(|tenant| tenant.submitted as f64 * mean_us).collect();
        let weights: Vec<f64> = scenario.tenants.iter().map(|tenant| f64::from(tenant.weight)).collect();
        let hours = |at: usize| scaled.as_ref().map_or(0.0, |scaled| scaled.paid_ms[at] as f64 / 3.6e6);
        let decisions = scaled.as_ref().map(|scaled| scaled.scaler.decisions().clone()).unwrap_or_default();
        let fixed_hours = if scaled.is_none() { workers_s / 3_600.0 } else { 0.0 };
        SimulationOutcome {
            ran_ms,
            waits: self.waits.waits(),
            done: self.done.waits(),
            per_s,
            efficiency: per_s / (workers_s / ran_s * 1e6 / mean_us),
            efficiency_nominal: per_s / (workers_s / ran_s * 85.0),
            used,
            minutes: self.minutes.all,
            violated_minutes: self.minutes.violated,
            on_demand_hours: hours(0) + fixed_hours,
            spot_hours: hours(1),
            warm_hours: hours(2),
            workers_most: scaled.as_ref().map_or(self.workers.len() as u32, |scaled| scaled.workers_most),
            jain: jain(&received, &demanded, &weights),
            thrash: thrash(&decisions),
            decisions,
            forecast_error: scaled.as_ref().and_then(|scaled| scaled.scaler.forecaster()?.error()),
            launches: scaled.as_ref().map_or((0, 0), |scaled| scaled.provider.launches()),
            failures: scaled.as_ref().map_or((0, 0), |scaled| scaled.provider.failures()),
            interruptions: scaled.as_ref().map_or(0, |scaled| scaled.provider.interruptions()),
            digest: self.digest.0,
            tenants,
            ..counted
        }
    }
}

struct TenantNeeds<'s> {
    name: &'s [u8],
    cpu_milli: u32,
    memory_bytes: u64,
}

/// Applies a command to the scheduler. Panics if the scheduler refuses the command, because this would be a fault of
/// the simulator.
fn apply(state: &mut SchedulerState, effects: &mut TaskEffects, command: &TaskCommand<'_>) -> CommandReply {
    state.apply(command, effects).unwrap_or_else(|refusal| panic!("{command:?}: {refusal}"))
}
