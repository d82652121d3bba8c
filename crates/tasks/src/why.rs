//! Explains in one sentence with numbers why a task does not run.

use std::time::Duration;

use dunlin_frame::format_duration;

use crate::effects::AttemptFailure;
use crate::error::TaskRefusal;
use crate::group::TaskSort;
use crate::lane::Class;
use crate::quota::Amounts;
use crate::slab::NONE;
use crate::state::SchedulerState;
use crate::task::{StoredLabel, Task, TaskStage};

/// The highest number of tasks that are counted before a task in its lane. At this number, counting stops.
const AHEAD_MAX: u64 = 100_000;
/// Maximum number of dependencies that are named.
const NAMED_MAX: usize = 3;

impl SchedulerState {
    /// Explains in one sentence why a task does not run, or what a running task does.
    pub fn why(&self, task: u64) -> Result<String, TaskRefusal> {
        let at = self.find_task(task)?;
        let found = &self.tasks[at];
        Ok(match found.stage {
            TaskStage::Blocked => self.why_blocked(found),
            TaskStage::Delayed => self.why_delayed(found),
            TaskStage::Limited => self.why_limited(at, found),
            TaskStage::Ready => self.why_ready(at, found),
            TaskStage::Running if found.worker == NONE => "running: it is being published".into(),
            TaskStage::Running => {
                let worker = self.worker_id(found.worker);
                let since = format_ms(self.now_ms - found.started_ms);
                format!("running: at worker {worker:x} for {since}, attempt {}", found.attempts)
            }
            TaskStage::Stopping => {
                let worker = self.worker_id(found.worker);
                let left = format_ms(found.due_ms.saturating_sub(self.now_ms));
                format!("stopping: it was cancelled, and worker {worker:x} must confirm within {left}")
            }
            TaskStage::Completed | TaskStage::Cancelled | TaskStage::Dead => self.why_ended(found),
        })
    }

    fn why_blocked(&self, task: &Task) -> String {
        let after = task.extra.iter().flat_map(|extra| &extra.after);
        let left: Vec<_> =
            after.filter_map(|&id| Some((id, self.tasks[self.tasks.find(id)?].stage))).collect();
        let left: Vec<_> = left.into_iter().filter(|(_, stage)| *stage != TaskStage::Completed).collect();
        let named = left.iter().take(NAMED_MAX).map(|(id, stage)| match stage {
            TaskStage::Dead => format!("{id:x} (a dead letter: retry or cancel it)"),
            stage => format!("{id:x} ({})", stage_name(*stage)),
        });
        let named = named.collect::<Vec<_>>().join(", ");
        let more = if left.len() > NAMED_MAX { ", …" } else { "" };
        format!("waiting: other tasks must be completed first ({}): {named}{more}", task.waits_for)
    }

    fn why_delayed(&self, task: &Task) -> String {
        let left = format_ms(task.since_ms.saturating_sub(self.now_ms));
        if task.attempts == 0 {
            return format!("waiting: it may start in {left}");
        }
        let retries = self.policies.get(task.policy).retries;
        format!(
            "waiting: attempt {} failed; retry {} of {retries} starts in {left}",
            task.attempts, task.attempts
        )
    }

    fn why_limited(&self, at: u32, task: &Task) -> String {
        let groups = self.groups_of(at);
        let Some(key) = groups.iter().find(|key| key.1 == task.limited_by) else { return "waiting".into() };
        let limit = self.limit_of(key);
        let group = self.groups.get(key).cloned().unwrap_or_default();
        let (sort, rank, _) = self.member(at);
        let is_served = self.is_served(&sort);
        // A task that a worker could run comes before every task that no worker could run.
        let is_ahead = |(other, other_rank, other_at): &(TaskSort, i64, u32)| {
            (!self.is_served(other), *other_rank, *other_at) < (!is_served, rank, at)
        };
        let ahead = group.waiting.iter().filter(|other| is_ahead(other)).count();
        let waiting = if is_served {
            "waiting".to_owned()
        } else {
            let class = &self.classes[self.lanes[task.lane as usize].class as usize];
            let tenant = &self.tenants[task.tenant as usize].name;
            format!("waiting: {}; in addition", self.why_unserved(class, tenant, &task.need()))
        };
        if let Some(rate) = limit.rate.filter(|_| group.places < limit.running_max) {
            let due_ms = group.bucket.due_ms(&rate, u64::from(group.ready) + ahead as u64 + 1);
            return format!(
                "{waiting}: at most {} tasks with {} {} may start in {}; tasks ahead of it: {ahead}; it \
                 starts in about {}",
                rate.count,
                text(&limit.key),
                text(&key.2),
                format_ms(u64::from(rate.per_ms)),
                format_ms(due_ms.saturating_sub(self.now_ms)),
            );
        }
        let ready = group.ready_members.len();
        let and_ready = if ready > 0 { format!(", {ready} more wait for a worker") } else { String::new() };
        format!(
            "{waiting}: {} of {} allowed tasks with {} {} are running{and_ready}; tasks ahead of it: {ahead}",
            group.places as usize - ready,
            limit.running_max,
            text(&limit.key),
            text(&key.2),
        )
    }

    fn why_ready(&self, at: u32, task: &Task) -> String {
        let lane = &self.lanes[task.lane as usize];
        let class = &self.classes[lane.class as usize];
        let tenant = &self.tenants[task.tenant as usize];
        let (ahead, is_all) = self.count_tasks_before(at);
        let start_rate = tenant.start_rate.per_1000_s(self.now_ms);
        let more = if is_all { "" } else { " and more" };
        let behind = format!("tasks ahead of it: {ahead}{more}");
        let pools = class.pools.iter().map(|&pool| &self.pools[pool as usize]);
        let pools = pools.filter(|pool| pool.serves.accepts_tenant(&tenant.name));
        let (workers, credit) = pools.fold((0, 0), |sum, pool| (sum.0 + pool.workers, sum.1 + pool.credit));
        let need = task.need();
        if !self.is_served(&self.member(at).0) {
            return format!("waiting: {}; {behind}", self.why_unserved(class, &tenant.name, &need));
        }
        let behind = match (ahead * 1_000_000).checked_div(start_rate) {
            Some(ms) if ahead > 0 => format!("{behind}; it starts in about {}", format_ms(ms)),
            _ => behind,
        };
        for (what, part) in [("tasks", 0), ("mCPU", 1), ("bytes", 2)] {
            let (quota, used) = (&tenant.quotas[part], &tenant.used[part]);
            if !used.allows(quota, need[part]) {
                let (now, hard, name) = (used.now, quota.hard, text(&tenant.name));
                return format!("waiting: tenant {name} uses {now} of {hard} allowed {what}; {behind}");
            }
        }
        if credit == 0 {
            let name = text(&tenant.name);
            let running = tenant.used[0].now;
            return format!(
                "waiting: all {workers} workers are busy, and tenant {name} has {running} running tasks; {behind}"
            );
        }
        if !self.is_spare(task.tenant, &need) {
            return format!("waiting: the {credit} free slots are reserved for other tenants; {behind}");
        }
        let [_, cpu, memory] = need;
        let id = self.tasks.id(at);
        if self.reserved.values().any(|task| *task == id) {
            return format!(
                "waiting: a worker is reserved for it, and takes no other task until {cpu} mCPU and {memory} bytes \
                 are free"
            );
        }
        format!(
            "waiting: none of {workers} workers has {cpu} mCPU and {memory} bytes free for the first task; {behind}"
        )
    }

    /// The reason why no worker could run a task of this tenant with this class and these needs.
    fn why_unserved(&self, class: &Class, tenant: &[u8], need: &Amounts) -> String {
        let pools = class.pools.iter().map(|&pool| &self.pools[pool as usize]);
        let workers: u64 =
            pools.filter(|pool| pool.serves.accepts_tenant(tenant)).map(|pool| pool.workers).sum();
        let [_, cpu, memory] = need;
        match workers {
            0 => self.why_no_worker(class),
            _ => format!(
                "no worker is large enough for {cpu} mCPU and {memory} bytes ({workers} workers, 0 fit)"
            ),
        }
    }

    /// The reason why no worker serves a tenant's tasks of this class.
    fn why_no_worker(&self, class: &Class) -> String {
        let (queue, kind) = (text(self.names.get(class.queue)), text(self.names.get(class.kind)));
        let matching = self.pools.iter().filter(|pool| pool.workers > 0 && pool.serves.accepts_class(class));
        let workers: u64 = matching.clone().map(|pool| pool.workers).sum();
        if workers == 0 {
            return format!("no worker serves kind {kind} in queue {queue}");
        }
        let fitting = matching.clone().filter(|pool| pool.serves.has_labels(&class.needs));
        let fitting_workers: u64 = fitting.map(|pool| pool.workers).sum();
        if fitting_workers > 0 {
            return format!("all workers that could run it ({fitting_workers}) serve only other tenants");
        }
        let is_offered =
            |need: &&StoredLabel| matching.clone().any(|pool| pool.serves.labels.contains(*need));
        let missing: Vec<&StoredLabel> = class.needs.iter().filter(|need| !is_offered(need)).collect();
        match missing[..] {
            [] => format!("no worker has all of {} ({workers} workers, 0 fit)", labels(class.needs.iter())),
            [one] => format!("no worker has label {} ({workers} workers, 0 fit)", labels([one].into_iter())),
            _ => format!("no worker has labels {} ({workers} workers, 0 fit)", labels(missing.into_iter())),
        }
    }

    /// Number of tasks that come before this task in its lane. The flag is `false` if counting stopped at
    /// [`AHEAD_MAX`].
    fn count_tasks_before(&self, at: u32) -> (u64, bool) {
        let ageing_ms = self.limits.ageing_ms;
        let task = &self.tasks[at];
        let rank = task.rank(ageing_ms);
        let mut ahead = 0;
        let mut before = task.prev;
        while before != NONE && ahead < AHEAD_MAX {
            ahead += 1;
            before = self.tasks[before].prev;
        }
        let lane = &self.lanes[task.lane as usize];
        for (priority, level) in lane.levels.iter().enumerate() {
            if priority != usize::from(task.priority) {
                let sooner = level.iter(&self.tasks).take_while(|(_, other)| other.rank(ageing_ms) < rank);
                ahead += sooner.take((AHEAD_MAX.saturating_sub(ahead)) as usize).count() as u64;
            }
        }
        (ahead, ahead < AHEAD_MAX)
    }

    fn why_ended(&self, task: &Task) -> String {
        let Some(outcome) = &task.outcome else { return stage_name(task.stage).into() };
        let ago = format_ms(self.now_ms - outcome.at_ms);
        let error = match outcome.bytes.is_empty() {
            false if outcome.failure.is_some() => format!(": {}", text(&outcome.bytes)),
            _ => String::new(),
        };
        match (task.stage, outcome.failure) {
            (TaskStage::Dead, Some(AttemptFailure::Failed)) => {
                format!("dead: attempt {} failed {ago} ago{error}", task.attempts)
            }
            (TaskStage::Dead, Some(AttemptFailure::TimedOut)) => {
                let limit = format_ms(u64::from(task.timeout_ms));
                format!("dead: attempt {} exceeded the time limit of {limit} ({ago} ago)", task.attempts)
            }
            (TaskStage::Dead, Some(AttemptFailure::Deadline)) => {
                format!("dead: its deadline passed {ago} ago")
            }
            (TaskStage::Dead, _) => {
                format!("dead: {} workers ended while they ran it, the last {ago} ago", task.lost)
            }
            (TaskStage::Cancelled, _) => format!("cancelled {ago} ago"),
            _ => format!("completed {ago} ago, after {} of work", format_ms(outcome.run_us / 1_000)),
        }
    }
}

fn stage_name(stage: TaskStage) -> &'static str {
    match stage {
        TaskStage::Blocked | TaskStage::Delayed | TaskStage::Limited | TaskStage::Ready => "waiting",
        TaskStage::Running => "running",
        TaskStage::Stopping => "stopping",
        TaskStage::Completed => "completed",
        TaskStage::Cancelled => "cancelled",
        TaskStage::Dead => "dead",
    }
}

fn labels<'l>(labels: impl Iterator<Item = &'l StoredLabel>) -> String {
    let all: Vec<_> = labels.map(|label| format!("{}={}", text(&label.key), text(&label.value))).collect();
    all.join(", ")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn format_ms(ms: u64) -> String {
    format_duration(Duration::from_millis(ms))
}
