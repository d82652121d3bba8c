//! Builds the report `work`: task queues, tenants, workers, fairness between tenants, and decisions of the autoscaler.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use dunlin::scheduler::{
    self, QueueView, Quota, Signals, StoredLabel, TaskQuery, TaskQueryResult, TenantTotals, TenantView,
    WorkerView,
};
use dunlin::{Tasks, TasksError};
use serde_json::{Value, json};

use super::past::{TenantTaskTotals, per_s};
use super::{ROWS_SHOWN, lock};
use crate::shared::SharedServer;
use crate::workers::WorkersView;

/// The tenants, queues and workers of all task shards at one moment.
struct TaskSurvey {
    tenants: Vec<TenantView>,
    queues: Vec<QueueView>,
    workers: Vec<WorkerView>,
    report: Value,
}

pub(super) fn build(shared: &SharedServer) -> Value {
    let scaling = lock(&shared.node_report.workers).as_ref().map(WorkersView::to_json);
    let survey = shared.node.tasks_if_any().and_then(|tasks| read_shards(tasks).ok());
    let Some(TaskSurvey { mut tenants, queues, workers, mut report }) = survey else {
        return json!({"known": 0, "tenants": [], "queues": [], "workers": [], "jain": null, "scaling": scaling});
    };
    let now = Instant::now();
    let done: HashMap<Vec<u8>, TenantTaskTotals> =
        tenants.iter().map(|tenant| (tenant.name.to_vec(), done(&tenant.account))).collect();
    let mut past = lock(&shared.node_report.past);
    let rates = past.tasks.recent(now).map(|(seconds, before)| rates(&done, before, seconds));
    let lately = past.tasks.oldest(now).map(|(seconds, before)| (seconds, before.clone()));
    past.tasks.add(now, done.clone());
    drop(past);
    let before = |tenant: &TenantView| {
        let (seconds, before) = lately.as_ref()?;
        Some((*seconds, before.get(&tenant.name[..]).copied().unwrap_or_default()))
    };
    report["jain"] = jain(&tenants, &queues, |tenant| Some(before(tenant)?.1)).into();
    tenants.sort_by_key(|tenant| (Reverse(tenant.queued + tenant.used[0]), Arc::clone(&tenant.name)));
    let weights: u64 = tenants.iter().map(|tenant| u64::from(tenant.weight)).sum();
    let of_tenant = |tenant: &TenantView| tenant_json(tenant, weights, before(tenant));
    report["rates"] = rates.unwrap_or(Value::Null);
    report["tenants"] = tenants.iter().take(ROWS_SHOWN).map(of_tenant).collect();
    report["queues"] = queues.iter().take(ROWS_SHOWN).map(queue_json).collect();
    report["workers"] = workers.iter().take(ROWS_SHOWN).map(worker_json).collect();
    report["scaling"] = scaling.into();
    report
}

/// Reads the tenants, queues and workers from all task shards.
fn read_shards(tasks: &Tasks) -> Result<TaskSurvey, TasksError> {
    let shards = tasks.read_each(|state| {
        let counts = [state.len(), state.bytes(), state.limits().state_bytes_max];
        (state.signals(), counts, state.queues().collect::<Vec<_>>(), state.tenants().collect::<Vec<_>>())
    })?;
    let (mut signals, mut counts, mut queues, mut tenants) = (Vec::new(), [0; 3], Vec::new(), Vec::new());
    for (of_shard, counted, more_queues, more_tenants) in shards {
        signals.push(of_shard);
        counts = std::array::from_fn(|at| counts[at] + counted[at]);
        queues.extend(more_queues);
        tenants.extend(more_tenants);
    }
    let (signals, [known, bytes, bytes_limit]) = (Signals::join(signals), counts);
    let report = json!({
        "known": known, "bytes": bytes, "bytes_limit": bytes_limit, "shards": tasks.shards().len(),
        "startable": signals.startable, "held": signals.held, "credit": signals.credit, "workers_up": signals.workers,
        "oldest_ms": signals.oldest_ms,
    });
    queues.sort_by_key(|queue: &QueueView| Reverse(queue.ready));
    let workers = match tasks.answer(&TaskQuery::Workers)? {
        TaskQueryResult::Workers { workers } => workers,
        _ => Vec::new(),
    };
    Ok(TaskSurvey { tenants, queues, workers, report })
}

fn done(account: &TenantTotals) -> TenantTaskTotals {
    let TenantTotals { submitted, started, completed, failed, dead, cpu_us, cost_us, .. } = *account;
    TenantTaskTotals { submitted, started, completed, failed, dead, cpu_us, cost_us }
}

/// The rates per second of the task counters, summed over all tenants. `seconds` is the time between `before` and
/// `now`.
fn rates(
    now: &HashMap<Vec<u8>, TenantTaskTotals>,
    before: &HashMap<Vec<u8>, TenantTaskTotals>,
    seconds: f64,
) -> Value {
    let of = |pick: fn(&TenantTaskTotals) -> u64| {
        let sum = |of: &HashMap<Vec<u8>, TenantTaskTotals>| of.values().map(pick).sum();
        per_s(sum(now), sum(before), seconds)
    };
    json!({
        "submitted_per_s": of(|done| done.submitted), "started_per_s": of(|done| done.started),
        "completed_per_s": of(|done| done.completed), "failed_per_s": of(|done| done.failed),
        "dead_per_s": of(|done| done.dead),
    })
}

/// Computes Jain's fairness index over all busy tenants; 1 is fair. `None` if fewer than two tenants are busy.
///
/// For each tenant, the index uses the ratio of what the tenant received to what it should have received. A tenant
/// should receive its weighted share, but not more than its demand. The demand of a tenant is what the tenant received
/// plus the tasks that could start now.
fn jain(
    tenants: &[TenantView],
    queues: &[QueueView],
    before: impl Fn(&TenantView) -> Option<TenantTaskTotals>,
) -> Option<f64> {
    let mut waiting_us: HashMap<&[u8], u64> = HashMap::new();
    for queue in queues {
        // A queue whose cost has not been measured yet must still count as demand, so its cost is at least 1.
        *waiting_us.entry(&queue.tenant).or_default() += queue.ready * queue.cost_us.max(1);
    }
    let busy_tenant = |tenant: &TenantView| {
        let received = tenant.account.cost_us.saturating_sub(before(tenant)?.cost_us);
        let demand = received + waiting_us.get(&tenant.name[..]).copied().unwrap_or(0);
        (demand > 0).then(|| (received as f64, demand as f64, f64::from(tenant.weight.max(1))))
    };
    fairness(&tenants.iter().filter_map(busy_tenant).collect::<Vec<_>>())
}

/// Computes the fairness index. `busy` has each tenant's received amount, demand and weight. `None` if fewer than two
/// tenants are busy, or if none received anything.
fn fairness(busy: &[(f64, f64, f64)]) -> Option<f64> {
    let of = |pick: fn(&(f64, f64, f64)) -> f64| busy.iter().map(pick).collect::<Vec<_>>();
    let (received, demand, weights) = (of(|one| one.0), of(|one| one.1), of(|one| one.2));
    (busy.len() > 1 && received.iter().any(|received| *received > 0.0))
        .then(|| scheduler::jain(&received, &demand, &weights))
}

fn tenant_json(tenant: &TenantView, weights: u64, before: Option<(f64, TenantTaskTotals)>) -> Value {
    let account = &tenant.account;
    let [running, cpu_milli, memory_bytes] = tenant.used;
    let lately = |now: u64, pick: fn(&TenantTaskTotals) -> u64| {
        before.map(|(seconds, done)| now.saturating_sub(pick(&done)) as f64 / seconds)
    };
    json!({
        "name": text(&tenant.name), "weight": tenant.weight,
        "share": (weights > 0).then(|| f64::from(tenant.weight) / weights as f64),
        "queued": tenant.queued, "ready": tenant.ready, "running": running, "cpu_milli": cpu_milli,
        "memory_bytes": memory_bytes, "running_max": hard(&tenant.quotas[0]), "cpu_milli_max": hard(&tenant.quotas[1]),
        "memory_bytes_max": hard(&tenant.quotas[2]),
        "queued_max": (tenant.queued_max > 0).then_some(tenant.queued_max), "dead": tenant.dead,
        "submitted": account.submitted, "completed": account.completed, "failed": account.failed,
        "lost": account.lost, "cancelled": account.cancelled,
        "cpu_ms": account.cpu_us / 1_000, "run_ms": account.run_us / 1_000,
        // Processor seconds used per second, that is, how many processors the tenant keeps busy.
        "cpu_per_s": lately(account.cpu_us, |done| done.cpu_us).map(|us| us / 1e6),
        "completed_per_s": lately(account.completed, |done| done.completed),
        "submitted_per_s": lately(account.submitted, |done| done.submitted),
    })
}

/// The quota's hard limit; `None` if the quota has none.
fn hard(quota: &Quota) -> Option<u64> {
    (quota.hard > 0).then_some(quota.hard)
}

fn queue_json(queue: &QueueView) -> Value {
    json!({
        "tenant": text(&queue.tenant), "queue": text(&queue.queue), "kind": text(&queue.kind),
        "ready": queue.ready, "oldest_ms": queue.oldest_ms, "cost_us": queue.cost_us, "needs": pairs(&queue.needs),
    })
}

fn worker_json(worker: &WorkerView) -> Value {
    let texts = |names: &[Arc<[u8]>]| names.iter().map(|name| text(name)).collect::<Vec<_>>();
    json!({
        "worker": format!("{:x}", worker.worker), "name": text(&worker.name), "kinds": texts(&worker.kinds),
        "queues": texts(&worker.queues), "held": worker.held, "credit": worker.credit, "done": worker.done,
        "labels": pairs(&worker.labels), "tenants": texts(&worker.tenants), "cpu_milli": worker.capacity[0],
        "memory_bytes": worker.capacity[1],
        "draining": worker.is_draining, "left_ms": worker.left_ms,
    })
}

/// Formats labels as `key=value`. A key may occur more than once.
fn pairs(labels: &[StoredLabel]) -> Vec<String> {
    labels.iter().map(|label| format!("{}={}", text(&label.key), text(&label.value))).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::fairness;

    #[test]
    fn fairness_index_is_1_if_every_waiting_tenant_has_its_share() {
        assert_eq!(fairness(&[]), None);
        assert_eq!(fairness(&[(3.0, 3.0, 1.0)]), None);
        assert_eq!(fairness(&[(0.0, 1.0, 1.0), (0.0, 1.0, 1.0)]), None);
        assert_eq!(fairness(&[(3.0, 9.0, 1.0), (3.0, 9.0, 1.0)]), Some(1.0));
        // One tenant received three times as much as the other, which is fair, because the other tenant has no more
        // tasks waiting.
        assert_eq!(fairness(&[(9.0, 9.0, 1.0), (3.0, 3.0, 1.0)]), Some(1.0));
        assert_eq!(fairness(&[(9.0, 90.0, 3.0), (3.0, 90.0, 1.0)]), Some(1.0));
        let starved = fairness(&[(9.0, 90.0, 1.0), (0.0, 90.0, 1.0)]).unwrap();
        assert!((starved - 0.5).abs() < 1e-9, "{starved}");
    }
}
