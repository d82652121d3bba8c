//! The process with our submitters and workers. For rivals, `peers/tasks` does the same work.

use std::thread::{ScopedJoinHandle, scope};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use dunlin_client::topic::Wait;
use dunlin_client::{Attachment, Client, ClientOptions, Tasks};
use dunlin_tasks::TenantSettings;

use super::submitters::{self, tenant_of};
use super::tally::{ClientTally, WorkerTotals};
use super::work::{TaskReport, TaskWork};
use super::workers;
use crate::child::PATIENCE;
use crate::role::{RoleArgs, say};

/// The time between two checks whether all workers are attached, or all tasks are done.
const LOOK: Duration = Duration::from_millis(2);

/// The main function of the clients' process.
pub(crate) fn work(args: &RoleArgs) -> Result<()> {
    let work: TaskWork = serde_json::from_str(args.text("work")?)
        .context("cannot parse the workload from the parent process")?;
    say(&if work.ours.bare { bare(&work)? } else { asked(&work)? })
}

fn bare(work: &TaskWork) -> Result<TaskReport> {
    let tally = ClientTally::begin(work);
    let done = scope(|scope| {
        let run = || workers::run_bare(work, &tally);
        let running: Vec<_> = (0..work.workers).map(|_| scope.spawn(run)).collect();
        running.into_iter().map(|thread| joined(thread.join())?).collect::<Result<Vec<_>>>()
    })?;
    Ok(tally.report(work, &done))
}

fn asked(work: &TaskWork) -> Result<TaskReport> {
    let own = connect(work)?;
    for (nth, tenant) in work.ours.tenants.iter().enumerate() {
        let name = tenant_of(nth);
        own.set_tenant(TenantSettings { weight: tenant.weight, ..TenantSettings::new(name.as_bytes()) })?;
    }
    let attachments = attach(work)?;
    let tally = ClientTally::begin(work);
    let done = scope(|scope| {
        let (tally, attachments) = (&tally, &attachments);
        let working: Vec<_> = attachments
            .iter()
            .map(|attachment| scope.spawn(move || workers::run(attachment, work, tally)))
            .collect();
        let is_paced = work.rate > 0.0 || work.ours.tenants.iter().any(|tenant| tenant.per_s > 0.0);
        let submitting = (0..work.ours.submitters).map(|nth| {
            scope.spawn(move || match is_paced {
                true => submitters::pace(&connect(work)?, work, tally),
                false => submitters::keep_waiting(&connect(work)?, work, tally, nth),
            })
        });
        let outcome = until_done(submitting.collect(), &working, tally);
        tally.end();
        let done =
            working.into_iter().map(|thread| joined(thread.join())?).collect::<Result<Vec<WorkerTotals>>>();
        outcome.and(done)
    })?;
    Ok(tally.report(work, &done))
}

/// Opens a connection.
fn connect(work: &TaskWork) -> Result<Tasks> {
    // Hundreds of spinning threads would take the processors from each other.
    let wait = if work.task_ns > 0 { Wait::Parked } else { Wait::Default };
    Ok(Client::connect(&work.ours.url, ClientOptions { wait, ..ClientOptions::default() })?.tasks())
}

fn attach(work: &TaskWork) -> Result<Vec<Attachment>> {
    let attach = |_| workers::attach(&connect(work)?, work);
    let attachments = (0..work.workers).map(attach).collect::<Result<Vec<_>>>()?;
    let deadline = Instant::now() + PATIENCE;
    while !attachments.iter().all(Attachment::is_attached) {
        ensure!(Instant::now() < deadline, "not all workers were attached within {PATIENCE:?}");
        std::thread::sleep(LOOK);
    }
    Ok(attachments)
}

/// Waits until all tasks are submitted and done.
fn until_done(
    submitting: Vec<ScopedJoinHandle<'_, Result<()>>>,
    working: &[ScopedJoinHandle<'_, Result<WorkerTotals>>],
    tally: &ClientTally,
) -> Result<()> {
    submitting.into_iter().try_for_each(|thread| joined(thread.join())?)?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (submitted, done) = tally.counts();
        if done == submitted {
            return Ok(());
        }
        if working.iter().any(ScopedJoinHandle::is_finished) {
            // A thread has failed. Its error is reported when the thread is joined.
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("only {done} of {submitted} tasks were done within {PATIENCE:?}");
        }
        std::thread::sleep(LOOK);
    }
}

fn joined<T>(joined: std::thread::Result<T>) -> Result<T> {
    joined.map_err(|_| anyhow!("a client thread panicked"))
}
