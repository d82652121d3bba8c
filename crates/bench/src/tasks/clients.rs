//! The client process of a benchmark of tasks. The process runs submitters and workers that use Dunlin's client. For
//! peers, the program `peers/tasks` does the same work.

use std::thread::{ScopedJoinHandle, scope};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use dunlin_client::topic::WaitStrategy;
use dunlin_client::{Attachment, Client, ClientOptions, Tasks};
use dunlin_tasks::TenantSettings;

use super::submitters::{self, tenant_of};
use super::tally::{ClientTally, WorkerTotals};
use super::work::{TaskReport, TaskWorkload};
use super::workers;
use crate::child::TIMEOUT;
use crate::role::{RoleArgs, print_line};

const POLL_INTERVAL: Duration = Duration::from_millis(2);

pub(crate) fn run(args: &RoleArgs) -> Result<()> {
    let work: TaskWorkload = serde_json::from_str(args.text("work")?)
        .context("cannot parse the workload from the parent process")?;
    print_line(&if work.ours.bare { run_bare(&work)? } else { run_through_node(&work)? })
}

fn run_bare(work: &TaskWorkload) -> Result<TaskReport> {
    let tally = ClientTally::new(work);
    let totals = scope(|scope| {
        let run = || workers::run_bare(work, &tally);
        let running: Vec<_> = (0..work.workers).map(|_| scope.spawn(run)).collect();
        running.into_iter().map(|thread| join_result(thread.join())?).collect::<Result<Vec<_>>>()
    })?;
    Ok(tally.report(work, &totals))
}

fn run_through_node(work: &TaskWorkload) -> Result<TaskReport> {
    let tasks = connect(work)?;
    for (nth, tenant) in work.ours.tenants.iter().enumerate() {
        let name = tenant_of(nth);
        tasks.set_tenant(TenantSettings { weight: tenant.weight, ..TenantSettings::new(name.as_bytes()) })?;
    }
    let attachments = attach(work)?;
    let tally = ClientTally::new(work);
    let totals = scope(|scope| {
        let (tally, attachments) = (&tally, &attachments);
        let working: Vec<_> = attachments
            .iter()
            .map(|attachment| scope.spawn(move || workers::run(attachment, work, tally)))
            .collect();
        let is_paced = work.rate > 0.0 || work.ours.tenants.iter().any(|tenant| tenant.per_s > 0.0);
        let submitting = (0..work.ours.submitters).map(|nth| {
            scope.spawn(move || match is_paced {
                true => submitters::submit_at_rate(&connect(work)?, work, tally),
                false => submitters::keep_backlog(&connect(work)?, work, tally, nth),
            })
        });
        let outcome = wait_until_done(submitting.collect(), &working, tally);
        tally.stop();
        let totals = working
            .into_iter()
            .map(|thread| join_result(thread.join())?)
            .collect::<Result<Vec<WorkerTotals>>>();
        outcome.and(totals)
    })?;
    Ok(tally.report(work, &totals))
}

fn connect(work: &TaskWorkload) -> Result<Tasks> {
    // With hundreds of threads, spinning threads would take the processors from each other.
    let wait = if work.task_ns > 0 { WaitStrategy::Parked } else { WaitStrategy::Default };
    Ok(Client::connect(&work.ours.url, ClientOptions { wait, ..ClientOptions::default() })?.tasks())
}

fn attach(work: &TaskWorkload) -> Result<Vec<Attachment>> {
    let attach = |_| workers::attach(&connect(work)?, work);
    let attachments = (0..work.workers).map(attach).collect::<Result<Vec<_>>>()?;
    let deadline = Instant::now() + TIMEOUT;
    while !attachments.iter().all(Attachment::is_attached) {
        ensure!(Instant::now() < deadline, "not all workers were attached within {TIMEOUT:?}");
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(attachments)
}

fn wait_until_done(
    submitting: Vec<ScopedJoinHandle<'_, Result<()>>>,
    working: &[ScopedJoinHandle<'_, Result<WorkerTotals>>],
    tally: &ClientTally,
) -> Result<()> {
    submitting.into_iter().try_for_each(|thread| join_result(thread.join())?)?;
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let (submitted, done) = tally.counts();
        if done == submitted {
            return Ok(());
        }
        if working.iter().any(ScopedJoinHandle::is_finished) {
            // A thread that has ended here has failed. Its error is returned when the thread is joined.
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("only {done} of {submitted} tasks were done within {TIMEOUT:?}");
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn join_result<T>(result: std::thread::Result<T>) -> Result<T> {
    result.map_err(|_| anyhow!("a client thread panicked"))
}
