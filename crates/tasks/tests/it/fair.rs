//! Tests of fair shares among tenants.

use std::collections::BTreeMap;

use super::*;

/// Runs a pool of workers that always have waiting tasks. `cost_us` returns the cost of a task for the name of the
/// task's tenant. Returns the number and the total cost (µs) of completed tasks for each tenant.
fn run_saturated(
    scene: &mut Scene,
    workers: u32,
    rounds: usize,
    cost_us: impl Fn(&str) -> u64,
) -> BTreeMap<String, (u64, u64)> {
    let mut totals: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    scene.join_with(NewWorker {
        kinds: vec![b"work"],
        credit: workers,
        ttl_ms: 600_000,
        ..NewWorker::default()
    });
    // Running tasks by the end of their run (µs) and token.
    let mut running: BTreeMap<(u64, u64), TaskStart> = BTreeMap::new();
    for _ in 0..rounds {
        let now_ms = scene.state.now_ms();
        for start in scene.starts() {
            let view = scene.state.get(start.task).unwrap();
            let cost_us = cost_us(&text(&view.tenant));
            running.insert((now_ms * 1_000 + cost_us, start.token), start);
        }
        let Some(((end_us, _), start)) = running.pop_first() else { break };
        scene.advance(end_us / 1_000);
        let tenant = text(&scene.state.get(start.task).unwrap().tenant);
        let cost_us = cost_us(&tenant);
        scene.complete(&start, cost_us).unwrap();
        let entry = totals.entry(tenant).or_default();
        (entry.0, entry.1) = (entry.0 + 1, entry.1 + cost_us);
    }
    totals
}

fn add_tenants(scene: &mut Scene, weights: &[(&'static str, u32)], each: usize) {
    for (name, weight) in weights {
        scene.set_tenant(TenantSettings { weight: *weight, ..TenantSettings::new(name.as_bytes()) });
        scene.submit_all(name, vec![work(); each]);
    }
}

#[test]
fn tenant_shares_apply_to_task_cost_and_not_to_task_counts() {
    let mut scene = Scene::default();
    add_tenants(&mut scene, &[("a", 1), ("b", 1), ("c", 2)], 5_000);
    let cost = |tenant: &str| if tenant == "a" { 20_000 } else { 5_000 };
    let totals = run_saturated(&mut scene, 8, 6_000, cost);
    let costs: Vec<f64> = totals.values().map(|(_, cost)| *cost as f64).collect();
    let fairness = jain(&costs, &[1e12; 3], &[1.0, 1.0, 2.0]);
    assert!(fairness > 0.999, "{fairness} {totals:?}");
    assert!(totals["b"].0 > 3 * totals["a"].0);
}

#[test]
fn thousand_tenants_get_equal_shares() {
    let mut scene = Scene::default();
    let names: Vec<String> = (0..1_000).map(|at| format!("t{at}")).collect();
    for name in &names {
        scene.set_tenant(TenantSettings::new(name.as_bytes()));
        scene.submit_all(name, vec![work(); 40]);
    }
    let totals = run_saturated(&mut scene, 64, 20_000, |tenant| 1_000 + tenant.len() as u64 * 1_000);
    let costs: Vec<f64> = totals.values().map(|(_, cost)| *cost as f64).collect();
    let fairness = jain(&costs, &[1e12; 1_000], &[1.0; 1_000]);
    assert!(costs.len() == 1_000 && fairness > 0.99, "{fairness}");
}

#[test]
fn tenant_gets_no_larger_share_after_it_was_idle() {
    let mut scene = Scene::default();
    add_tenants(&mut scene, &[("a", 1)], 4_000);
    scene.set_tenant(TenantSettings::new(b"b"));
    run_saturated(&mut scene, 4, 2_000, |_| 10_000);
    scene.submit_all("b", vec![work(); 2_000]);
    scene.effects.clear();
    let worker = scene.state.workers().next().unwrap().worker;
    scene.must_apply(TaskCommand::Leave { worker });
    let totals = run_saturated(&mut scene, 4, 1_000, |_| 10_000);
    let (a, b) = (totals["a"].0 as i64, totals["b"].0 as i64);
    assert!((a - b).abs() <= 8, "{totals:?}");
}

#[test]
fn higher_priorities_run_first_and_ageing_prevents_starving() {
    let mut scene = Scene::with(SchedulerLimits { ageing_ms: 1_000, ..SchedulerLimits::default() });
    scene.set_tenant(TenantSettings::new(b"a"));
    let task = |priority| NewTask { priority, ..work() };
    let low = scene.submit(task(2));
    scene.advance(500);
    let high = scene.submit(task(9));
    let usual = scene.submit(task(5));
    scene.advance(6_000);
    let late = scene.submit(task(7));
    scene.join(1);
    let mut order = Vec::new();
    while let Some(start) = scene.starts().pop() {
        order.push(start.task);
        scene.complete(&start, 1_000).unwrap();
    }
    // The ranks are −8,500, −4,500, −2,000 and −1,000: the time since which the task is ready, minus 1 s for each level
    // of priority, in ms.
    assert_eq!(order, [high, usual, low, late]);
}

#[test]
fn changed_tenant_weight_applies_to_tasks_that_already_wait() {
    let mut scene = Scene::default();
    add_tenants(&mut scene, &[("a", 1), ("b", 1)], 9_000);
    run_saturated(&mut scene, 4, 1_000, |_| 10_000);
    scene.set_tenant(TenantSettings { weight: 3, ..TenantSettings::new(b"b") });
    scene.effects.clear();
    let worker = scene.state.workers().next().unwrap().worker;
    scene.must_apply(TaskCommand::Leave { worker });
    let totals = run_saturated(&mut scene, 4, 2_000, |_| 10_000);
    assert!((totals["b"].0 as i64 - 1_500).abs() < 10, "{totals:?}");
}

#[test]
fn unused_shares_go_to_other_tenants() {
    assert_eq!(fair_shares(&[10.0, 100.0, 100.0], &[1.0, 1.0, 2.0], 100.0), [10.0, 30.0, 60.0]);
    assert_eq!(jain_index(&[1.0, 1.0, 1.0, 1.0]), 1.0);
    assert_eq!(jain_index(&[4.0, 0.0, 0.0, 0.0]), 0.25);
    // Processor use and quota of four tenants.
    let (cpu, quota) = ([185.0, 148.0, 98.0, 49.0], [200.0, 150.0, 100.0, 50.0]);
    assert!(jain(&cpu, &quota, &quota) > 0.999);
    assert!((jain_index(&cpu) - 0.845).abs() < 0.001);
}
