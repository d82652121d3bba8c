//! The workers of Dunlin's clients. There are workers that sleep for each task, workers that complete empty tasks, and
//! workers that sleep without a node.
//!
//! Workers of Dunlin and workers of peers sleep with `std::thread::sleep` (`clock_nanosleep`), without timer slack. The
//! default slack of 50 µs would make a task 0.4 % longer.

use std::num::NonZeroU64;
use std::time::Duration;

use anyhow::{Result, ensure};
use dunlin_client::{Attachment, TaskUsage, Tasks, WorkerOptions};
use rustix::thread::set_current_timer_slack;

use super::tally::{ClientTally, WorkerTotals};
use super::work::TaskWorkload;
use crate::clock::monotonic_ns;

/// The kind of all tasks in this benchmark.
pub const KIND: &str = "work";
/// The longest time until a worker notices that the run is over.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How long a worker waits until the node has confirmed all results.
const FLUSH: Duration = Duration::from_secs(20);
/// The time to live of a worker's lease. It is long, because the host of a virtual machine may suspend the machine for
/// a while.
const TTL: Duration = Duration::from_secs(60);

/// Registers a worker with the node.
pub fn attach(tasks: &Tasks, work: &TaskWorkload) -> Result<Attachment> {
    let options = WorkerOptions {
        kinds: vec![KIND.to_owned()],
        slots: work.ours.slots,
        ttl: TTL,
        ..WorkerOptions::default()
    };
    Ok(tasks.attach_ahead(options, work.ours.ahead)?)
}

/// Does tasks until the run is over. Then checks that the node has received one result for each task that it gave to
/// this worker.
pub fn run(attachment: &Attachment, work: &TaskWorkload, tally: &ClientTally) -> Result<WorkerTotals> {
    disable_timer_slack()?;
    let mut totals = WorkerTotals::default();
    while !tally.is_stopped() {
        if work.task_ns == 0 {
            run_batch(attachment, work, tally, &mut totals)?;
        } else {
            run_next_task(attachment, work, tally, &mut totals)?;
        }
    }
    let is_flushed = attachment.flush(FLUSH);
    let load = attachment.load();
    ensure!(is_flushed && load.assigned == load.answered, "some assigned tasks have no result: {load:?}");
    Ok(totals)
}

/// Takes the next empty tasks, and completes them without a pause.
fn run_batch(
    attachment: &Attachment,
    work: &TaskWorkload,
    tally: &ClientTally,
    totals: &mut WorkerTotals,
) -> Result<()> {
    let batch = attachment.next_batch(work.ours.slots as usize, POLL_INTERVAL)?;
    let now_ns = monotonic_ns();
    batch.iter().try_for_each(|task| tally.record(task.payload(), now_ns, now_ns, totals))?;
    attachment.complete_all(&batch, &TaskUsage::default());
    Ok(())
}

fn run_next_task(
    attachment: &Attachment,
    work: &TaskWorkload,
    tally: &ClientTally,
    totals: &mut WorkerTotals,
) -> Result<()> {
    let Some(task) = attachment.next(POLL_INTERVAL)? else { return Ok(()) };
    let started_ns = monotonic_ns();
    std::thread::sleep(Duration::from_nanos(work.task_ns));
    let ended_ns = monotonic_ns();
    attachment.complete(
        &task,
        b"",
        &TaskUsage { run: Duration::from_nanos(ended_ns - started_ns), ..TaskUsage::default() },
    );
    tally.record(task.payload(), started_ns, ended_ns, totals)
}

/// Sleeps for one task after another, as a worker does, but without a node.
pub fn run_bare(work: &TaskWorkload, tally: &ClientTally) -> Result<WorkerTotals> {
    disable_timer_slack()?;
    let mut totals = WorkerTotals::default();
    while !tally.is_time_up() {
        let started_ns = monotonic_ns();
        std::thread::sleep(Duration::from_nanos(work.task_ns));
        tally.count(0, (started_ns, started_ns, monotonic_ns()), &mut totals);
    }
    Ok(totals)
}

fn disable_timer_slack() -> Result<()> {
    Ok(set_current_timer_slack(NonZeroU64::new(1))?)
}
