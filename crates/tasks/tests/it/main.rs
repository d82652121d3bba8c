//! Tests of the scheduler through its public interface.

mod classes;
mod fair;
mod golden;
mod key_limits;
mod lifecycle;
mod limits;
mod malformed;
mod messages;
mod model;
mod needs;
mod policies;
mod prefetch;
mod random_commands;
mod rates;
mod refused;
mod reserved;
mod routes;
mod schedules;
mod shards;
mod slots;
mod snapshots;
mod why;
mod workers;

use dunlin_tasks::*;

/// A scheduler state, and the effects of the commands that were applied to it.
#[derive(Default)]
struct Scene {
    state: SchedulerState,
    effects: TaskEffects,
}

impl Scene {
    fn with(limits: SchedulerLimits) -> Scene {
        Scene { state: SchedulerState::new(limits), effects: TaskEffects::default() }
    }

    /// Creates a state with one tenant, `a`.
    fn new() -> Scene {
        let mut scene = Scene::default();
        scene.set_tenant(TenantSettings::new(b"a"));
        scene
    }

    fn apply(&mut self, command: TaskCommand<'_>) -> Result<CommandReply, TaskRefusal> {
        self.state.apply(&command, &mut self.effects)
    }

    fn must_apply(&mut self, command: TaskCommand<'_>) {
        let command_text = format!("{command:?}");
        assert!(self.apply(command).is_ok(), "{command_text}");
    }

    fn set_tenant(&mut self, tenant: TenantSettings<'_>) {
        self.must_apply(TaskCommand::Tenant { tenant });
    }

    fn submit_all(&mut self, tenant: &str, tasks: Vec<NewTask<'_>>) -> Vec<u64> {
        match self.apply(TaskCommand::Submit { tenant: tenant.as_bytes(), tasks }) {
            Ok(CommandReply::Submitted { tasks, .. }) => tasks.into_iter().map(|taken| taken.task).collect(),
            other => panic!("{other:?}"),
        }
    }

    fn submit(&mut self, task: NewTask<'_>) -> u64 {
        self.submit_all("a", vec![task])[0]
    }

    /// Submits a task of kind `work` of tenant `a`.
    fn submit_plain(&mut self) -> u64 {
        self.submit(work())
    }

    fn join_with(&mut self, worker: NewWorker<'_>) -> u64 {
        match self.apply(TaskCommand::Join { worker }) {
            Ok(CommandReply::Joined { worker }) => worker,
            other => panic!("{other:?}"),
        }
    }

    /// Adds a worker for kind `work` with a time to live of 10 s.
    fn join(&mut self, credit: u32) -> u64 {
        self.join_with(NewWorker { kinds: vec![b"work"], credit, ttl_ms: 10_000, ..NewWorker::default() })
    }

    fn advance(&mut self, now_ms: u64) {
        self.state.advance(now_ms, &mut self.effects);
    }

    /// Takes the orders that were given since the last call. Returns those orders that start a task.
    fn starts(&mut self) -> Vec<TaskStart> {
        let orders = std::mem::take(&mut self.effects.orders);
        orders
            .into_iter()
            .filter_map(|order| match order {
                WorkerOrder::Start(start) => Some(start),
                _ => None,
            })
            .collect()
    }

    fn only_start(&mut self) -> TaskStart {
        let starts = self.starts();
        assert_eq!(starts.len(), 1, "{starts:?}");
        starts.into_iter().next().unwrap()
    }

    fn complete(&mut self, start: &TaskStart, run_us: u64) -> Result<CommandReply, TaskRefusal> {
        self.apply(TaskCommand::Complete { report: report(start, run_us), result: b"done" })
    }

    fn fail(&mut self, start: &TaskStart, retry: bool) -> Result<CommandReply, TaskRefusal> {
        self.apply(TaskCommand::Fail { report: report(start, 1_000), error: b"no luck", retry })
    }

    fn stage(&self, task: u64) -> TaskStage {
        self.state.get(task).unwrap().stage
    }

    fn why(&self, task: u64) -> String {
        self.state.why(task).unwrap()
    }

    fn events_of(&mut self, task: u64) -> Vec<TaskEventKind> {
        let of_task = self.effects.events.iter().filter(|event| event.task == task);
        of_task.map(|event| event.kind).collect()
    }
}

fn work() -> NewTask<'static> {
    NewTask::new(b"work", b"payload")
}

/// The report of a worker that has completed a task and can take one further task.
fn report(start: &TaskStart, run_us: u64) -> AttemptReport {
    let TaskStart { worker, task, token, .. } = *start;
    AttemptReport { worker, task, token, run_us, cpu_us: run_us / 2, memory_bytes: 1_000_000, credit: 1 }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}
