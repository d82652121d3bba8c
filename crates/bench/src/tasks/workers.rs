//! The workers of our clients: workers that sleep for each task, workers of empty tasks, and workers that do the same
//! without a node. A worker sleeps with `std::thread::sleep` (`clock_nanosleep`) and without timer slack, for Dunlin
//! and for rivals. The default slack of 50 µs would lengthen a task by 0.4 %.

use std::num::NonZeroU64;
use std::time::Duration;

use anyhow::{Result, ensure};
use dunlin_client::{Attachment, TaskUsage, Tasks, WorkerOptions};
use rustix::thread::set_current_timer_slack;

use super::tally::{ClientTally, WorkerTotals};
use super::work::TaskWork;
use crate::clock::monotonic_ns;

/// The kind of all tasks.
pub const KIND: &str = "work";
/// The longest time until a worker notices that the run has ended.
const LOOK: Duration = Duration::from_millis(20);
/// The longest wait until the node has confirmed all results.
const FLUSH: Duration = Duration::from_secs(20);
/// The time to live of a worker's lease. It is long, because another virtual machine may delay the whole machine for a
/// while.
const TTL: Duration = Duration::from_secs(60);

/// Attaches a worker to the node.
pub fn attach(tasks: &Tasks, work: &TaskWork) -> Result<Attachment> {
    let options = WorkerOptions {
        kinds: vec![KIND.to_owned()],
        slots: work.ours.slots,
        ttl: TTL,
        ..WorkerOptions::default()
    };
    Ok(tasks.attach_ahead(options, work.ours.ahead)?)
}

/// Does tasks until the run ends, and checks that the node has the result of every assigned task.
pub fn run(attachment: &Attachment, work: &TaskWork, tally: &ClientTally) -> Result<WorkerTotals> {
    sleep_no_longer_than_asked()?;
    let mut done = WorkerTotals::default();
    while !tally.is_over() {
        if work.task_ns == 0 {
            do_batch(attachment, work, tally, &mut done)?;
        } else {
            do_one(attachment, work, tally, &mut done)?;
        }
    }
    let is_heard = attachment.flush(FLUSH);
    let load = attachment.load();
    ensure!(is_heard && load.given == load.answered, "some assigned tasks have no result: {load:?}");
    Ok(done)
}

/// Completes empty tasks as soon as they arrive.
fn do_batch(
    attachment: &Attachment,
    work: &TaskWork,
    tally: &ClientTally,
    done: &mut WorkerTotals,
) -> Result<()> {
    let given = attachment.next_batch(work.ours.slots as usize, LOOK)?;
    let now_ns = monotonic_ns();
    given.iter().try_for_each(|given| tally.note(given.payload(), now_ns, now_ns, done))?;
    attachment.complete_all(&given, &TaskUsage::default());
    Ok(())
}

fn do_one(
    attachment: &Attachment,
    work: &TaskWork,
    tally: &ClientTally,
    done: &mut WorkerTotals,
) -> Result<()> {
    let Some(given) = attachment.next(LOOK)? else { return Ok(()) };
    let started_ns = monotonic_ns();
    std::thread::sleep(Duration::from_nanos(work.task_ns));
    let ended_ns = monotonic_ns();
    attachment.complete(
        &given,
        b"",
        &TaskUsage { run: Duration::from_nanos(ended_ns - started_ns), ..TaskUsage::default() },
    );
    tally.note(given.payload(), started_ns, ended_ns, done)
}

/// Does the same work in a loop, without a node.
pub fn run_bare(work: &TaskWork, tally: &ClientTally) -> Result<WorkerTotals> {
    sleep_no_longer_than_asked()?;
    let mut done = WorkerTotals::default();
    while !tally.is_time_up() {
        let started_ns = monotonic_ns();
        std::thread::sleep(Duration::from_nanos(work.task_ns));
        tally.count(0, (started_ns, started_ns, monotonic_ns()), &mut done);
    }
    Ok(done)
}

fn sleep_no_longer_than_asked() -> Result<()> {
    Ok(set_current_timer_slack(NonZeroU64::new(1))?)
}
