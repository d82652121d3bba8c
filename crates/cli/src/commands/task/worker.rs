//! The command `dunlin task worker`, which runs a command for each task of the given kinds.

use std::io::Write;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use dunlin_client::{Attachment, AttachmentLoad, WorkerLaunch, WorkerOptions};
use serde_json::json;

use super::running::{CommandFailure, CommandRunner};
use super::show;
use super::warden::Warden;
use crate::arguments::GlobalOptions;
use crate::commands::lock::holder_value;
use crate::commands::parse::{header, memory, processors, ttl};
use crate::connect::connect_when_up;
use crate::console::Console;
use crate::program::ExternalProgram;
use crate::signals::StopFlag;

/// Arguments of `dunlin task worker`, which runs a command for each task.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin task worker --kind count -- wc -c             the command reads the payload from standard input
  dunlin task worker --kind thumb --slots 4 -- ./thumb.sh
  dunlin task worker --kind train --label gpu=a100 --cpu 8 --memory 64GiB -- ./train.sh
  dunlin task worker --kind report --tenant acme -- ./report.sh
  dunlin task worker --kind thumb --queue urgent -- sh -c 'fetch \"$(cat)\" --fence $DUNLIN_TASK_TOKEN'

The command's standard output is the task's result, at most 1 MiB. If the command fails, the task is retried as its
retry policy allows; exit code 100 fails it without a retry. The environment has DUNLIN_TASK, DUNLIN_TASK_TOKEN,
DUNLIN_TASK_ATTEMPT, DUNLIN_TASK_KIND and DUNLIN_TASK_TENANT. DUNLIN_TASK_ATTEMPT is the number of the attempt, from 1,
without attempts whose worker died.

If a task is cancelled or reaches its timeout, its command receives SIGTERM, and SIGKILL after 2 s. When the command has
ended, the worker kills the other processes of its group, after at most 1 s for open output.

After SIGTERM or Ctrl-C, the worker takes no new tasks, finishes the running ones and ends with exit code 0.

A node can start as many workers as its waiting tasks need:
  dunlin dev --workers 'dunlin task worker --kind count -- wc -c' --scale 1..8")]
pub struct Arguments {
    /// Kind of tasks to run; may be given several times
    #[arg(long = "kind", required = true, value_name = "KIND")]
    kinds: Vec<String>,
    /// Queue to take tasks from; may be given several times [default: all]
    #[arg(long = "queue", value_name = "QUEUE")]
    queues: Vec<String>,
    /// Number of tasks to run at the same time
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    slots: u32,
    /// Name of the worker, shown to operators; ignored if a node started the worker [default: host name and
    /// process id]
    #[arg(long)]
    name: Option<String>,
    /// Time to live of the worker's lease: after this time without a connection, its tasks go to other workers
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = ttl)]
    ttl: Duration,
    /// Label of the worker, such as gpu=a100, for tasks that need it; may be given several times
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = header)]
    labels: Vec<(String, String)>,
    /// Tenant to take tasks from; may be given several times [default: all]
    #[arg(long = "tenant", value_name = "TENANT")]
    tenants: Vec<String>,
    /// Number of processors that the running tasks may need together, such as 4, 0.5 or 500m [default: no
    /// limit]
    #[arg(long, value_name = "PROCESSORS", value_parser = processors)]
    cpu: Option<u32>,
    /// Bytes of memory that the running tasks may need together, such as 16GiB [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = memory)]
    memory: Option<u64>,
    /// End after this number of tasks [default: no end]
    #[arg(long, short = 'n', value_name = "COUNT")]
    count: Option<u64>,
    /// Command to run for each task, with its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// The interval at which a slot without a task checks whether it has to end.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How long an ending worker tries to send its last results.
const FLUSH: Duration = Duration::from_secs(2);

pub fn run(arguments: &Arguments, global: &GlobalOptions, console: &Console) -> Result<()> {
    let stop = StopFlag::on_signal()?;
    let started = WorkerLaunch::from_env();
    let orphaned = StopFlag::of(started.orphaned());
    let program =
        ExternalProgram::new(&arguments.command).ok_or_else(|| anyhow!("no command: give one after --"))?;
    program.check()?;
    let Some(client) = connect_when_up(global, "dunlin task worker", &stop, console.errors)? else {
        return Ok(());
    };
    let options = WorkerOptions {
        name: holder_value(started.name().or(arguments.name.as_deref())),
        kinds: arguments.kinds.clone(),
        queues: arguments.queues.clone(),
        slots: arguments.slots,
        cpu_milli: arguments.cpu.unwrap_or(0),
        memory_bytes: arguments.memory.unwrap_or(0),
        ttl: arguments.ttl,
        labels: arguments.labels.clone(),
        tenants: arguments.tenants.clone(),
    };
    let warden = Warden::start().context("cannot start the process that cleans up after a killed worker")?;
    if !started.wait_for_work(&stop.flag()).context("cannot read standard input")? {
        return Ok(());
    }
    let attachment = client
        .tasks()
        .attach(options)
        .context("cannot start the thread that connects the worker to the node")?;
    let running = CommandRunner { command: &arguments.command, warden: &warden, orphaned: &orphaned };
    thread::scope(|scope| {
        for _ in 0..arguments.slots {
            scope.spawn(|| slot(arguments, &running, &attachment, &stop, console));
        }
    });
    if orphaned.is_set() {
        // The node that started this worker has ended. The worker was most likely connected to this node, and can send
        // no results. It therefore ends at once.
        std::process::exit(1);
    }
    attachment.flush(FLUSH);
    let ended = attachment.error();
    print_load(&attachment.load(), console)?;
    match ended {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}

fn print_load(load: &AttachmentLoad, console: &Console) -> Result<()> {
    if console.json {
        let (given, answered) = (load.assigned, load.answered);
        let object = json!({"given": given, "answered": answered, "stale": load.stale, "lost": load.lost});
        return Ok(writeln!(std::io::stdout(), "{object}")?);
    }
    let AttachmentLoad { answered, stale, lost, .. } = load;
    let late = if *stale + *lost > 0 {
        format!("; {stale} results came too late, {lost} tasks went to other workers")
    } else {
        String::new()
    };
    Ok(writeln!(std::io::stderr(), "{answered} tasks done{late}")?)
}

fn slot(
    arguments: &Arguments,
    running: &CommandRunner<'_>,
    attachment: &Attachment,
    stop: &StopFlag,
    console: &Console,
) {
    while !running.orphaned.is_set() {
        if arguments.count.is_some_and(|count| attachment.load().assigned >= count) {
            stop.set();
        }
        if stop.is_set() {
            attachment.drain();
        }
        // The worker takes no more tasks: it has to end, or an operator drained it.
        if attachment.is_drained() {
            return;
        }
        match attachment.next(POLL_INTERVAL) {
            Ok(Some(task)) => {
                let (result, usage) = running.run(&task);
                if let Err(failed) = &result {
                    let id = show::hex(task.task());
                    let why = String::from_utf8_lossy(&failed.why);
                    let _ =
                        writeln!(std::io::stderr(), "{} task {id}: {why}", console.errors.warning("failed:"));
                }
                match result {
                    Ok(result) => attachment.complete(&task, &result, &usage),
                    Err(CommandFailure { why, retry }) => attachment.fail(&task, &why, retry, &usage),
                }
            }
            Ok(None) => {}
            Err(_ended) => return,
        }
    }
}
