//! Applies random commands, and checks invariants after each command.

use std::collections::{BTreeMap, BTreeSet};

use super::snapshots::{blocks, restored};
use super::*;

/// Random bytes that select a command and its arguments.
#[derive(Debug, Clone, Copy)]
pub struct CommandBytes(pub [u8; 6]);

const TENANTS: [&str; 3] = ["a", "b", "c"];
const KINDS: [&[u8]; 3] = [b"work", b"rare", PUBLISH];
const USERS: [&[u8]; 2] = [b"ann", b"bob"];
const GPU: Label<'static> = Label { key: b"gpu", value: b"a100" };
const ZONE: Label<'static> = Label { key: b"zone", value: b"eu" };
/// Labels that tasks need and workers have.
const LABEL_SETS: [&[Label<'static>]; 4] = [&[GPU], &[ZONE], &[ZONE, GPU], &[]];

/// The expected state of the scheduler, computed only from the scheduler's orders and replies.
#[derive(Default)]
struct Ledger {
    /// Submitted tasks.
    submitted: BTreeSet<u64>,
    /// Tasks that workers hold, with their starts.
    held: BTreeMap<u64, TaskStart>,
    workers: BTreeSet<u64>,
    /// For each tenant, the quota of running tasks, and the limit for tasks of one user.
    quotas: BTreeMap<&'static str, (u64, Option<KeyLimit<'static>>)>,
    /// Tasks that have ended.
    ended: BTreeSet<u64>,
    /// For each tenant and user, the times at which the user's tasks have started since the tenant's limits were set.
    starts: BTreeMap<(&'static str, Vec<u8>), Vec<u64>>,
}

impl CommandBytes {
    fn byte(&self, at: usize) -> usize {
        usize::from(self.0[at])
    }

    fn pick<T: Copy>(&self, at: usize, all: &[T]) -> Option<T> {
        (!all.is_empty()).then(|| all[self.byte(at) % all.len()])
    }

    fn tenant(&self) -> &'static str {
        TENANTS[self.byte(1) % TENANTS.len()]
    }

    fn task(&self, at: usize, submitted: &[u64], now_ms: u64) -> NewTask<'static> {
        let bits = self.0[at];
        let kind = KINDS[usize::from(bits) % KINDS.len()];
        let label = Label { key: b"user", value: USERS[usize::from(bits >> 2) % 2] };
        let retry = match bits % 4 {
            0 => Some(RetryPolicy { retries: 1, backoff: Backoff::Fixed { delay_ms: 20 } }),
            1 => Some(RetryPolicy { retries: 2, backoff: Backoff::Decorrelated { base_ms: 5, cap_ms: 60 } }),
            _ => None,
        };
        let after = match (bits / 8 % 4, self.pick(5, submitted)) {
            (0, Some(task)) => vec![TaskDependency::Task { task }],
            (1, _) => vec![TaskDependency::Batch { index: u32::from(self.0[5] % 3) }],
            _ => vec![],
        };
        NewTask {
            kind,
            queue: [&b"q"[..], b"r"][usize::from(bits >> 5) % 2],
            priority: bits % 10,
            not_before_ms: if bits.is_multiple_of(5) { now_ms + u64::from(bits) } else { 0 },
            deadline_ms: if bits.is_multiple_of(7) { now_ms + 2 * u64::from(bits) } else { 0 },
            timeout_ms: 50 + u32::from(bits),
            retry,
            idempotency_key: if bits.is_multiple_of(11) { b"key" } else { b"" },
            after,
            labels: if bits % 3 == 1 { vec![label] } else { vec![] },
            cpu_milli: u32::from(bits % 4) * 100,
            memory_bytes: u64::from(bits % 3) * 10,
            subject: if kind == PUBLISH { b"s" } else { b"" },
            payload: b"p",
            needs: LABEL_SETS[usize::from(bits / 16 % 8).min(3)].to_vec(),
        }
    }

    fn quota(&self) -> (TenantSettings<'static>, (u64, Option<KeyLimit<'static>>)) {
        let hard = u64::from(self.0[2] % 5);
        let reserved = hard.min(u64::from(self.0[3] % 3));
        let burst = if hard > 0 { u64::from(self.0[4] % 2) } else { 0 };
        let limited = (!self.0[5].is_multiple_of(3)).then(|| self.limit());
        let tenant = TenantSettings {
            weight: 1 + u32::from(self.0[3] % 4),
            queued_max: if self.0[4].is_multiple_of(3) { 12 } else { 0 },
            retry_percent: u32::from(self.0[4] % 2) * 10,
            concurrency: Quota { reserved, soft: 0, hard, burst },
            cpu_milli: Quota::at_most(u64::from(self.0[5] % 2) * 600),
            limits: limited.into_iter().collect(),
            ..TenantSettings::new(self.tenant().as_bytes())
        };
        let running_max = if hard == 0 { u64::MAX } else { hard + burst };
        (tenant, (running_max, limited))
    }

    fn limit(&self) -> KeyLimit<'static> {
        let bits = u32::from(self.0[5]);
        let rate = Rate { count: 1 + bits / 4 % 3, per_ms: 40 + bits, burst: 1 + bits / 16 % 3 };
        KeyLimit {
            key: b"user",
            running_max: if bits < 128 { bits % 4 } else { u32::MAX },
            rate: (bits % 8 > 3).then_some(rate),
        }
    }

    fn command(&self, ledger: &Ledger, now_ms: u64) -> Option<TaskCommand<'static>> {
        let submitted: Vec<u64> = ledger.submitted.iter().copied().collect();
        let workers: Vec<u64> = ledger.workers.iter().copied().collect();
        let held: Vec<&TaskStart> = ledger.held.values().collect();
        let stale = self.0[4].is_multiple_of(7);
        let report = |start: &TaskStart| {
            let mut report = report(start, u64::from(self.0[5]) * 100);
            report.token -= u64::from(stale);
            report
        };
        Some(match self.0[0] % 20 {
            0..=3 => {
                let tasks = (2..3 + self.byte(3) % 3).map(|at| self.task(at, &submitted, now_ms)).collect();
                TaskCommand::Submit { tenant: self.tenant().as_bytes(), tasks }
            }
            4 => TaskCommand::Tenant { tenant: self.quota().0 },
            5 | 6 => TaskCommand::Join {
                worker: NewWorker {
                    kinds: KINDS[..1 + self.byte(2) % 2].to_vec(),
                    queues: if self.0[3].is_multiple_of(3) { vec![b"q"] } else { vec![] },
                    cpu_milli: u32::from(self.0[4] % 3) * 300,
                    ttl_ms: 100 + u64::from(self.0[3]),
                    credit: u32::from(self.0[5] % 4),
                    labels: LABEL_SETS[self.byte(1) / 4 % 4].to_vec(),
                    tenants: if self.byte(1).is_multiple_of(4) { vec![b"a", b"c"] } else { vec![] },
                    ..NewWorker::default()
                },
            },
            7 if self.0[4].is_multiple_of(3) => TaskCommand::Slots {
                worker: self.pick(2, &workers)?,
                slots: u32::from(self.0[3] % 4),
                ahead: u32::from(self.0[5] % 3),
            },
            7 => TaskCommand::Pull { worker: self.pick(2, &workers)?, credit: u32::from(self.0[3] % 3) },
            8..=10 => TaskCommand::Complete { report: report(self.pick(2, &held)?), result: b"r" },
            11 => {
                TaskCommand::Fail { report: report(self.pick(2, &held)?), error: b"e", retry: self.0[3] > 40 }
            }
            12 => TaskCommand::Renew { workers },
            13 => TaskCommand::Cancel { task: self.pick(2, &submitted)? },
            14 => TaskCommand::Leave { worker: self.pick(2, &workers)? },
            15 => TaskCommand::Drain { worker: self.pick(2, &workers)? },
            16 => TaskCommand::Redrive { tenant: self.tenant().as_bytes(), count: u32::from(self.0[2] % 3) },
            17 => TaskCommand::Published { tasks: submitted },
            18 => TaskCommand::Discard { tenant: self.tenant().as_bytes(), count: 1 },
            _ => {
                let TaskStart { worker, task, token, .. } = *self.pick(2, &held)?;
                TaskCommand::Extend { worker, task, token, timeout_ms: 90 }
            }
        })
    }
}

/// Applies the commands, and checks the invariants after each command.
pub fn run_commands(commands: &[CommandBytes]) {
    let limits = SchedulerLimits {
        reserve_ms: 50,
        dead_max: 4,
        finished_max: 6,
        finished_ms: 2_000,
        ..SchedulerLimits::default()
    };
    let mut scene = Scene::with(limits);
    let mut replay = SchedulerState::new(limits);
    let mut ledger = Ledger::default();
    for name in TENANTS {
        scene.set_tenant(TenantSettings::new(name.as_bytes()));
        replay
            .apply(
                &TaskCommand::Tenant { tenant: TenantSettings::new(name.as_bytes()) },
                &mut TaskEffects::default(),
            )
            .unwrap();
        ledger.quotas.insert(name, (u64::MAX, None));
    }
    for (step, bytes) in commands.iter().enumerate() {
        let now_ms = scene.state.now_ms();
        let before = blocks(&scene.state);
        let mut effects = TaskEffects::default();
        if bytes.0[0] >= 230 {
            let next_ms = now_ms + u64::from(bytes.0[1]);
            scene.advance(next_ms);
            replay.advance(next_ms, &mut effects);
        } else if let Some(command) = bytes.command(&ledger, now_ms) {
            let reply = scene.apply(command.clone());
            assert_eq!(reply, replay.apply(&command, &mut effects), "two states, one history");
            match &reply {
                Err(_) => assert_eq!(
                    (before, &scene.effects),
                    (blocks(&scene.state), &TaskEffects::default()),
                    "{command:?}"
                ),
                Ok(reply) => ledger.record_reply(&command, reply, bytes),
            }
        }
        assert_eq!(scene.effects, effects, "two states, one history");
        ledger.apply_effects(&scene);
        ledger.check_state(&scene.state);
        ledger.check_quotas(&scene);
        check_limited_tasks(&scene.state);
        scene.effects.clear();
        // `replay` is a copy of the state. It regularly continues from a snapshot.
        let kept = blocks(&replay);
        if step % 3 == 0 {
            replay = restored(&kept).unwrap();
        }
        assert_eq!((blocks(&scene.state), scene.state.bytes()), (kept, replay.bytes()));
        assert_eq!(scene.state.next_due_ms(), replay.next_due_ms());
    }
    complete_all(scene, ledger);
}

impl Ledger {
    fn record_reply(&mut self, command: &TaskCommand<'_>, reply: &CommandReply, bytes: &CommandBytes) {
        match (command, reply) {
            (_, CommandReply::Submitted { tasks, .. }) => {
                self.submitted.extend(tasks.iter().map(|taken| taken.task))
            }
            (_, CommandReply::Joined { worker }) => {
                self.workers.insert(*worker);
            }
            (TaskCommand::Tenant { .. }, _) => {
                self.quotas.insert(bytes.tenant(), bytes.quota().1);
                self.starts.retain(|(tenant, _), _| *tenant != bytes.tenant());
            }
            (TaskCommand::Complete { report, .. } | TaskCommand::Fail { report, .. }, _) => {
                let returned = self.held.remove(&report.task);
                assert!(returned.is_some_and(|start| start.token == report.token), "an old token counted");
            }
            _ => {}
        }
    }

    /// Forgets the tasks of lost workers, and the tasks that were stopped. Then checks that each newly started task has
    /// only one worker.
    fn apply_effects(&mut self, scene: &Scene) {
        let existing: BTreeSet<u64> = scene.state.workers().map(|view| view.worker).collect();
        self.workers.retain(|worker| existing.contains(worker));
        self.held.retain(|_, start| existing.contains(&start.worker));
        let is_running = |task: u64| scene.state.get(task).is_ok_and(|view| view.worker.is_some());
        let stopped = scene.effects.orders.iter().filter_map(|order| match order {
            WorkerOrder::Stop { task, token, .. } => Some((*task, *token)),
            _ => None,
        });
        for (task, token) in stopped {
            let is_cancelled =
                is_running(task) && scene.state.get(task).is_ok_and(|view| view.stage == TaskStage::Stopping);
            if !is_cancelled && self.held.get(&task).is_some_and(|start| start.token == token) {
                self.held.remove(&task);
            }
        }
        self.held.retain(|task, start| {
            // This also removes a task that was cancelled and whose timeout has passed since.
            is_running(*task) || scene.state.get(start.task).is_ok_and(|view| !view.stage.is_over())
        });
        for order in &scene.effects.orders {
            if let WorkerOrder::Start(start) = order {
                assert!(self.submitted.contains(&start.task), "{start:?} was never submitted");
                assert!(self.workers.contains(&start.worker), "{start:?} went to an unknown worker");
                check_worker(start, &scene.state);
                let before = self.held.insert(start.task, start.clone());
                assert_eq!(before, None, "held by two");
            }
        }
        for event in &scene.effects.events {
            match event.kind {
                TaskEventKind::Completed { .. } | TaskEventKind::Cancelled | TaskEventKind::Discarded => {
                    assert!(self.ended.insert(event.task), "over twice");
                }
                TaskEventKind::Submitted => {
                    self.submitted.insert(event.task);
                }
                _ => {}
            }
        }
    }

    fn check_state(&self, state: &SchedulerState) {
        let (all, _) = state.list(&TaskFilter::default(), 0, usize::MAX);
        let existing: BTreeMap<u64, &TaskView> = all.iter().map(|view| (view.task, view)).collect();
        for task in &self.submitted {
            match existing.get(task) {
                None => assert!(self.ended.contains(task), "{task:x} is lost"),
                Some(view) => {
                    let holder = self.held.get(task).map(|start| start.worker);
                    assert_eq!(view.worker, holder, "{view:?}");
                    assert!(!view.stage.is_over() || view.worker.is_none());
                }
            }
        }
        assert_eq!(existing.len() as u64, state.len());
        for tenant in state.tenants() {
            let of_tenant = all.iter().filter(|view| view.tenant == tenant.name && view.worker.is_some());
            assert_eq!(tenant.used[0], of_tenant.count() as u64, "a lease is leaked");
        }
    }

    /// Checks each tenant with a start in this step: the tenant must be within its quotas and limits.
    fn check_quotas(&mut self, scene: &Scene) {
        let now_ms = scene.state.now_ms();
        let (all, _) = scene.state.list(&TaskFilter::default(), 0, usize::MAX);
        let running = || all.iter().filter(|view| view.worker.is_some());
        for order in &scene.effects.orders {
            let WorkerOrder::Start(start) = order else { continue };
            let Some(started) = all.iter().find(|view| view.task == start.task) else { continue };
            let name = TENANTS.iter().find(|name| name.as_bytes() == &*started.tenant).unwrap();
            let (running_max, user_limit) = self.quotas[name];
            let of_tenant = || running().filter(|view| view.tenant == started.tenant);
            assert!(of_tenant().count() as u64 <= running_max, "{name} is over its quota of {running_max}");
            if let Some(limit) = user_limit.filter(|_| !started.labels.is_empty()) {
                let running = of_tenant().filter(|view| view.labels == started.labels).count();
                let running_max = limit.running_max;
                assert!(
                    running <= running_max as usize,
                    "{running} of {:?} run, of {running_max}",
                    started.labels
                );
                let starts = self.starts.entry((name, started.labels[0].value.to_vec())).or_default();
                starts.push(now_ms);
                limit.rate.iter().for_each(|rate| check_rate(starts, rate));
            }
        }
    }
}

/// Checks that no task holds a place that it cannot use, while another task that could run waits for this place.
fn check_limited_tasks(state: &SchedulerState) {
    let (all, _) = state.list(&TaskFilter::default(), 0, usize::MAX);
    let why = |view: &TaskView| state.why(view.task).unwrap();
    let is_served = |why: &str| !why.contains("no worker ") && !why.contains("serve only other tenants");
    for waiting in all.iter().filter(|view| view.stage == TaskStage::Limited && is_served(&why(view))) {
        let is_member = |view: &&TaskView| {
            view.stage == TaskStage::Ready && view.tenant == waiting.tenant && view.labels == waiting.labels
        };
        for ready in all.iter().filter(is_member) {
            assert!(is_served(&why(ready)), "{} before {}", why(ready), why(waiting));
        }
    }
}

/// Checks that the worker of a start has the needed labels and capacity, and serves the tenant.
fn check_worker(start: &TaskStart, state: &SchedulerState) {
    let worker = state.workers().find(|view| view.worker == start.worker).unwrap();
    let needs = state.get(start.task).map(|view| view.needs).unwrap_or_default();
    assert!(needs.iter().all(|need| worker.labels.contains(need)), "{needs:?} of {:?}", worker.labels);
    assert!(
        worker.tenants.is_empty() || worker.tenants.contains(&start.tenant),
        "{start:?}: {:?}",
        worker.tenants
    );
}

/// Checks that starts keep to a rate. Considers each period that begins with a start and ends with the last start: its
/// starts may use at most a full bucket, plus the tokens that are added in the period.
fn check_rate(starts: &[u64], rate: &Rate) {
    let last_ms = starts[starts.len() - 1];
    for (at, since_ms) in starts.iter().enumerate() {
        let count = (starts.len() - at) as u64;
        let added_tokens = (last_ms - since_ms) * u64::from(rate.count) / u64::from(rate.per_ms);
        assert!(
            count <= u64::from(rate.burst) + added_tokens,
            "{count} since {since_ms} of {starts:?}, {rate:?}"
        );
    }
}

/// Completes tasks until every task that can be done is done.
fn complete_all(mut scene: Scene, ledger: Ledger) {
    for name in TENANTS {
        scene.set_tenant(TenantSettings::new(name.as_bytes()));
    }
    for _ in 0..400 {
        let (all, _) = scene.state.list(&TaskFilter::default(), 0, usize::MAX);
        let left = all.iter().filter(|view| !view.stage.is_over()).count();
        if left == 0 {
            break;
        }
        scene.effects.clear();
        let tasks = all.iter().map(|view| view.task).collect();
        scene.must_apply(TaskCommand::Published { tasks });
        let kinds = KINDS.to_vec();
        let labels = vec![GPU, ZONE];
        let worker = NewWorker { kinds, credit: 50, ttl_ms: 10_000, labels, ..NewWorker::default() };
        let worker = scene.join_with(worker);
        for start in scene.starts() {
            scene.complete(&start, 10).unwrap();
        }
        for name in TENANTS {
            scene.must_apply(TaskCommand::Redrive { tenant: name.as_bytes(), count: 0 });
        }
        scene.must_apply(TaskCommand::Leave { worker });
        let now_ms = scene.state.now_ms();
        scene.advance(now_ms + 1_000);
    }
    let (all, _) = scene.state.list(&TaskFilter::default(), 0, usize::MAX);
    let left: Vec<_> =
        all.iter().filter(|view| !view.stage.is_over()).map(|view| scene.why(view.task)).collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(ledger.submitted.len() >= ledger.ended.len());
}
