//! The command `dunlin task`, which submits, runs, lists and retries tasks.

mod pipes;
mod running;
mod show;
mod submit;
mod tenant;
mod usage;
mod warden;
mod watch;
mod worker;

use std::io::Write;

use anyhow::Result;
use dunlin_client::Tasks;
use dunlin_client::scheduler::{ListFilter, TaskStage};
use serde_json::json;

use crate::arguments::GlobalOptions;
use crate::connect::connect;
use crate::console::Console;
use crate::format::text::escaped;

/// Arguments of `dunlin task`, which submits, runs and lists tasks.
#[derive(Debug, clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
#[command(after_help = "\
Try it, in three terminals:
  dunlin dev
  dunlin task worker --kind count -- wc -c        run `wc -c` with each task's payload as standard input
  dunlin task submit count 'hello' --wait         submit it, print its result")]
pub struct Arguments {
    #[command(subcommand)]
    subcommand: Subcommand,
}

#[derive(Debug, clap::Subcommand)]
enum Subcommand {
    /// Submit a task, or one for each line of a file
    Submit(submit::Arguments),
    /// Run a worker, which executes a command for each task of the given kinds
    Worker(worker::Arguments),
    /// Wait until the parent `dunlin task worker` ends; if it was killed, kill the commands that it started (internal)
    #[command(hide = true)]
    Warden,
    /// List tasks
    #[command(after_help = "\
Examples:
  dunlin task list                              all tasks
  dunlin task list --tenant acme --stage dead   dead letters of one tenant
  dunlin task list --label user=ann -n 20 --json")]
    List {
        /// Tenant of the tasks [default: all; for a user without permission `manage`, the user's own]
        #[arg(long)]
        tenant: Option<String>,
        /// Queue of the tasks [default: all]
        #[arg(long)]
        queue: Option<String>,
        /// Kind of the tasks [default: all]
        #[arg(long)]
        kind: Option<String>,
        /// Stage of the tasks: blocked, delayed, limited, ready, running, stopping, completed, cancelled or dead
        /// [default: all]
        #[arg(long, visible_alias = "state", value_parser = show::stage)]
        stage: Option<TaskStage>,
        /// Label of the tasks [default: all]
        #[arg(long, value_name = "KEY=VALUE", value_parser = crate::commands::parse::header)]
        label: Option<(String, String)>,
        /// Maximum number of tasks
        #[arg(long, short = 'n', default_value_t = 100)]
        limit: usize,
    },
    /// Print a task's stage, settings, payload and result
    Get {
        /// Id of the task, as `dunlin task submit` and `dunlin task list` print it
        #[arg(value_parser = show::id)]
        task: u64,
        /// Print only the result, byte for byte
        #[arg(long)]
        result: bool,
    },
    /// Explain in one sentence why a task is not running, or what it is doing
    Why {
        /// Id of the task
        #[arg(value_parser = show::id)]
        task: u64,
    },
    /// List the queues, with the number of ready tasks for each tenant, queue and kind
    Queues {
        /// Tenant of the tasks [default: all; for a user without permission `manage`, the user's own]
        #[arg(long)]
        tenant: Option<String>,
    },
    /// List tenants with their weights, quotas, limits and usage
    Tenants {
        /// Name of one tenant [default: all; for a user without permission `manage`, the user's own]
        tenant: Option<String>,
    },
    /// Create a tenant, or change its weight, quotas and limits; they apply to tasks that start later
    Tenant(tenant::Arguments),
    /// List workers, with the tasks that they have and the resources that they offer
    Workers,
    /// Cancel tasks, and the tasks that wait for them
    Cancel {
        /// Ids of the tasks
        #[arg(required = true, value_parser = show::id)]
        tasks: Vec<u64>,
    },
    /// Run dead letters again, with all their retries
    Retry {
        /// Ids of the tasks
        #[arg(required = true, value_parser = show::id)]
        tasks: Vec<u64>,
    },
    /// Run a tenant's oldest dead letters again, except those that crashed their workers
    Redrive {
        /// Tenant of the dead letters [default: the user's own tenant]
        #[arg(long, default_value = "", hide_default_value = true)]
        tenant: String,
        /// Maximum number of dead letters [default: all]
        #[arg(long, short = 'n')]
        limit: Option<u32>,
        /// Include dead letters that crashed their workers (`poisoned`); they may crash more workers
        #[arg(long)]
        poisoned: bool,
    },
    /// Print events of tasks as they happen
    Watch(watch::Arguments),
}

pub fn run(arguments: &Arguments, global: &GlobalOptions, console: &Console) -> Result<()> {
    match &arguments.subcommand {
        Subcommand::Worker(worker) => return worker::run(worker, global, console),
        Subcommand::Warden => {
            warden::run();
            return Ok(());
        }
        _ => {}
    }
    let client = connect(global, "dunlin task")?;
    let tasks = client.tasks();
    match &arguments.subcommand {
        Subcommand::Submit(submit) => submit::run(submit, &tasks, console),
        Subcommand::Worker(_) | Subcommand::Warden => Ok(()),
        Subcommand::List { tenant, queue, kind, stage, label, limit } => {
            let text = |of: &'_ Option<String>| of.clone().unwrap_or_default();
            let (tenant, queue, kind) = (text(tenant), text(queue), text(kind));
            let label = label.as_ref().map_or((&b""[..], &b""[..]), |(k, v)| (k.as_bytes(), v.as_bytes()));
            let (tenant, queue, kind) = (tenant.as_bytes(), queue.as_bytes(), kind.as_bytes());
            let filter = ListFilter { tenant, queue, kind, stage: *stage, label };
            list(&tasks, &filter, *limit, console)
        }
        Subcommand::Get { task, result } => {
            let (task, now_ms) = tasks.get_at(*task)?;
            show::task(&task, now_ms, *result, console)
        }
        Subcommand::Why { task } => {
            let why = tasks.why(*task)?;
            let mut out = console.out();
            match console.json {
                true => writeln!(out, "{}", json!({"task": show::hex(*task), "why": why}))?,
                false => writeln!(out, "{}", escaped(why.as_bytes()))?,
            }
            Ok(out.flush()?)
        }
        Subcommand::Queues { tenant } => {
            show::queues(&tasks.queues(tenant.as_deref().unwrap_or(""))?, console)
        }
        Subcommand::Tenants { tenant } => {
            show::tenants(&tasks.tenants(tenant.as_deref().unwrap_or(""))?, console)
        }
        Subcommand::Tenant(tenant) => tenant::run(tenant, &tasks, console),
        Subcommand::Workers => show::workers(&tasks.workers()?, console),
        Subcommand::Cancel { tasks: ids } => {
            change_each(ids, "cancelled", |id| Ok(tasks.cancel(id)?), console)
        }
        Subcommand::Retry { tasks: ids } => change_each(ids, "restarted", |id| Ok(tasks.retry(id)?), console),
        Subcommand::Redrive { tenant, limit, poisoned } => {
            redrive(&tasks, tenant, *limit, *poisoned, console)
        }
        Subcommand::Watch(watch) => watch::run(watch, &client, console),
    }
}

fn list(tasks: &Tasks, filter: &ListFilter<'_>, limit: usize, console: &Console) -> Result<()> {
    let (mut found, mut from, mut now_ms) = (Vec::new(), Some(0), 0);
    while let Some(at) = from
        && found.len() < limit
    {
        let left = u32::try_from(limit - found.len()).unwrap_or(u32::MAX);
        let page = tasks.list(filter, at, left, false)?;
        found.extend(page.tasks);
        now_ms = page.now_ms;
        from = page.next;
    }
    show::tasks(&found, now_ms, console)?;
    if from.is_some() && !console.json {
        writeln!(std::io::stderr(), "more tasks may match: use a --limit above {limit}")?;
    }
    Ok(())
}

fn change_each(
    ids: &[u64],
    done: &str,
    change: impl Fn(u64) -> Result<u64>,
    console: &Console,
) -> Result<()> {
    let mut out = console.out();
    for &id in ids {
        let changed = change(id)?;
        match console.json {
            true => writeln!(out, "{}", json!({"task": show::hex(id), "changed": changed}))?,
            false if changed > 1 => {
                writeln!(
                    out,
                    "{} {done}, together with {} tasks that waited for it",
                    show::hex(id),
                    changed - 1
                )?;
            }
            false => writeln!(out, "{} {done}", show::hex(id))?,
        }
        out.flush()?;
    }
    Ok(())
}

/// Runs dead letters again, and prints their number.
fn redrive(tasks: &Tasks, tenant: &str, limit: Option<u32>, poisoned: bool, console: &Console) -> Result<()> {
    // If no tenant is given, a user with permission `manage` receives all tenants. Any other user receives the user's
    // own tenant, which only the node knows.
    let found = tasks.tenants(tenant)?;
    let dead: u64 = match found.as_slice() {
        // The tenant does not exist, so the node refuses the command. With a limit of 0, no command would be sent.
        [] if !tenant.is_empty() => 1,
        found => found.iter().map(|found| found.dead).sum(),
    };
    let limit = limit.map_or(dead, u64::from).min(dead);
    let all = tasks.redrive_many(tenant, limit, poisoned)?;
    let mut out = console.out();
    match console.json {
        true => writeln!(out, "{}", json!({ "redriven": all }))?,
        false => writeln!(out, "{all} dead letters restarted")?,
    }
    out.flush()?;
    if !poisoned && !console.json && all < limit {
        let found = tasks.tenants(tenant)?;
        let mut errors = std::io::stderr();
        match found.as_slice() {
            [own] if own.dead > 0 => writeln!(
                errors,
                "{} dead letters remain: they crashed their workers, or failed again; --poisoned includes the former",
                own.dead
            )?,
            [] | [_] => {}
            _ => writeln!(
                errors,
                "dead letters may remain, as `dunlin task tenants` shows; --poisoned includes those that crashed their \
                 workers"
            )?,
        }
    }
    Ok(())
}
