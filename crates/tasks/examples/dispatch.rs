//! Measures the cost of a dispatch and the memory of a queued task: `cargo run --release -p dunlin-tasks --example
//! dispatch TENANTS QUEUED [SETS] [label]`. SETS is the number of different labels; each task needs one of these
//! labels, in turn, and all workers have all of them. By default, tasks need no label. Run each case in a process of
//! its own. In one process, memory that a case has freed would distort the figures of the next case.
//!
//! A dispatch gives a waiting task to a worker, completes the task, and submits another task. The number of waiting
//! tasks therefore does not change. The measured time is the processor time of this thread.

use std::fs;

use dunlin_tasks::{
    AttemptReport, CommandReply, Label, NewTask, NewWorker, SchedulerLimits, SchedulerState, TaskCommand,
    TaskEffects, TenantSettings, WorkerOrder,
};

const WORKERS: usize = 200;
const DISPATCHES: usize = 300_000;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number =
        |at: usize, otherwise| arguments.get(at).and_then(|text| text.parse().ok()).unwrap_or(otherwise);
    let labelled = [Label { key: b"user", value: b"ann" }];
    let labels = if arguments.iter().any(|argument| argument == "label") { &labelled[..] } else { &[] };
    let values: Vec<String> = (0..number(2, 0)).map(|set| set.to_string()).collect();
    let sets: Vec<_> = values.iter().map(|value| Label { key: b"set", value: value.as_bytes() }).collect();
    measure(number(0, 1), number(1, 1_000), &Labels { labels, sets: &sets });
}

/// The label sets that tasks need in turn, and all labels in these sets.
#[derive(Clone, Copy)]
struct Labels<'l> {
    labels: &'l [Label<'l>],
    sets: &'l [Label<'l>],
}

fn measure(tenants: usize, queued: usize, labels: &Labels<'_>) {
    let before = resident_bytes();
    let names: Vec<String> = (0..tenants).map(|at| format!("tenant-{at}")).collect();
    let mut state =
        SchedulerState::new(SchedulerLimits { finished_max: 1_000, ..SchedulerLimits::default() });
    let mut effects = TaskEffects::default();
    for name in &names {
        apply(
            &mut state,
            &mut effects,
            &TaskCommand::Tenant { tenant: TenantSettings::new(name.as_bytes()) },
        );
    }
    let started = cpu_ns();
    for at in 0..queued {
        submit(&mut state, &mut effects, &names[at % tenants], labels, at);
    }
    let submit_ns = (cpu_ns() - started) / queued as u64;
    let task_bytes = resident_bytes().saturating_sub(before) / queued as u64;
    for _ in 0..WORKERS {
        let worker = NewWorker { kinds: vec![b"work"], credit: 1, ttl_ms: 600_000, ..NewWorker::default() };
        let worker = NewWorker { labels: labels.sets.to_vec(), ..worker };
        apply(&mut state, &mut effects, &TaskCommand::Join { worker });
    }
    let mut orders: std::collections::VecDeque<WorkerOrder> = effects.orders.drain(..).collect();
    cycle(&mut state, &mut effects, &mut orders, &names, labels, DISPATCHES / 3);
    let started = cpu_ns();
    cycle(&mut state, &mut effects, &mut orders, &names, labels, DISPATCHES);
    let dispatch_ns = (cpu_ns() - started) / DISPATCHES as u64;
    let labelled = if labels.labels.is_empty() { "" } else { "  with a label" };
    let sets = labels.sets.len();
    println!(
        "{tenants} tenants, {queued} queued, {sets} sets of needs{labelled}: {dispatch_ns} ns a dispatch, {submit_ns} ns a submit, {task_bytes} bytes a task"
    );
}

fn cycle(
    state: &mut SchedulerState,
    effects: &mut TaskEffects,
    orders: &mut std::collections::VecDeque<WorkerOrder>,
    names: &[String],
    labels: &Labels<'_>,
    count: usize,
) {
    for at in 0..count {
        let Some(WorkerOrder::Start(start)) = orders.pop_front() else { panic!("a worker is idle") };
        state.advance((at / 100) as u64, effects);
        let report = AttemptReport {
            worker: start.worker,
            task: start.task,
            token: start.token,
            run_us: 1_000,
            cpu_us: 900,
            memory_bytes: 1_000_000,
            credit: 1,
        };
        apply(state, effects, &TaskCommand::Complete { report, result: b"" });
        submit(state, effects, &names[at % names.len()], labels, at);
        orders.extend(effects.orders.drain(..));
        effects.clear();
    }
}

fn submit(
    state: &mut SchedulerState,
    effects: &mut TaskEffects,
    tenant: &str,
    labels: &Labels<'_>,
    at: usize,
) {
    let needs = labels.sets.get(at % labels.sets.len().max(1)).into_iter().copied().collect();
    let task = NewTask { labels: labels.labels.to_vec(), needs, ..NewTask::new(b"work", b"") };
    apply(state, effects, &TaskCommand::Submit { tenant: tenant.as_bytes(), tasks: vec![task] });
    effects.events.clear();
}

fn apply(state: &mut SchedulerState, effects: &mut TaskEffects, command: &TaskCommand<'_>) -> CommandReply {
    state.apply(command, effects).unwrap_or_else(|refusal| panic!("{refusal}"))
}

fn cpu_ns() -> u64 {
    // Reads the processor time that the kernel's scheduler reports for this thread.
    let text = fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

fn resident_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4_096
}
