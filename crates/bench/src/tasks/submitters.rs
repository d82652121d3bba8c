//! The submitters of Dunlin's clients, which keep tasks waiting, or submit tasks at a rate.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use dunlin_client::{PendingTaskCommands, Tasks};
use dunlin_tasks::{NewTask, TaskCommand};

use super::tally::ClientTally;
use super::work::TaskWorkload;
use super::workers::KIND;
use crate::clock::monotonic_ns;
use crate::names::RandomNumbers;

/// The number of requests in flight on one connection while tasks are kept waiting.
const IN_FLIGHT: usize = 4;
/// The most requests in flight on one connection while tasks are submitted at a rate.
const IN_FLIGHT_PACED_MAX: usize = 4_096;
/// How long a submitter pauses when each of its tenants has enough waiting tasks.
const PAUSE: Duration = Duration::from_micros(200);

/// Returns the name of the tenant with index `nth`.
pub fn tenant_of(nth: usize) -> String {
    format!("tenant-{nth}")
}

/// Keeps tasks waiting until the time for submitting is over. The tenants are divided among the submitters; `nth` is
/// the index of this submitter.
pub fn keep_backlog(tasks: &Tasks, work: &TaskWorkload, tally: &ClientTally, nth: usize) -> Result<()> {
    let names: Vec<String> = (0..work.ours.tenants.len().max(1)).map(tenant_of).collect();
    // If there is a single tenant, all submitters submit its tasks.
    let own_tenants: Vec<usize> = match names.len() {
        1 => vec![0],
        count => (nth..count).step_by(work.ours.submitters).collect(),
    };
    let mut in_flight = VecDeque::new();
    while !tally.is_time_up() {
        let mut is_enough = true;
        for &tenant in &own_tenants {
            if tally.unfinished(tenant) + work.ours.batch as u64 > work.backlog as u64 {
                continue;
            }
            is_enough = false;
            let payloads = payloads(tally, work, tenant, work.ours.batch, monotonic_ns());
            in_flight.push_back(begin_submit(tasks, &names[tenant], &payloads)?);
            if in_flight.len() >= IN_FLIGHT {
                in_flight.pop_front().map_or(Ok(()), check_response)?;
            }
        }
        if is_enough {
            in_flight.drain(..).try_for_each(check_response)?;
            std::thread::sleep(PAUSE);
        }
    }
    in_flight.into_iter().try_for_each(check_response)
}

/// Submits each task when it is due, however many tasks are waiting. Tasks of one tenant that are due together are
/// submitted in one request, or in several if they are too many for one.
pub fn submit_at_rate(tasks: &Tasks, work: &TaskWorkload, tally: &ClientTally) -> Result<()> {
    let names: Vec<String> = (0..work.ours.tenants.len().max(1)).map(tenant_of).collect();
    let mut arrivals: Vec<Arrivals> = match work.ours.tenants.as_slice() {
        [] => vec![Arrivals::poisson(work.rate, RandomNumbers::default())],
        tenants if work.rate > 0.0 => {
            let per_s = work.rate / tenants.len() as f64;
            (0..tenants.len() as u64).map(|nth| Arrivals::poisson(per_s, RandomNumbers::of(nth))).collect()
        }
        tenants => tenants.iter().map(|tenant| Arrivals::steady(tenant.per_s)).collect(),
    };
    let (sender, in_flight) = sync_channel(IN_FLIGHT_PACED_MAX);
    std::thread::scope(|scope| {
        let receiving = scope.spawn(move || receive_responses(&in_flight));
        let submitted =
            submit_arrivals(tasks, work, tally, (names.as_slice(), arrivals.as_mut_slice()), &sender);
        drop(sender);
        let received =
            receiving.join().map_err(|_| anyhow!("the thread that receives responses panicked"))?;
        // If the receiving thread fails, the submission fails too, but the submission's error does not contain the
        // cause. Therefore, an error of the receiving thread takes precedence.
        received.and(submitted)
    })
}

fn submit_arrivals(
    tasks: &Tasks,
    work: &TaskWorkload,
    tally: &ClientTally,
    (names, arrivals): (&[String], &mut [Arrivals]),
    sender: &SyncSender<PendingTaskCommands>,
) -> Result<()> {
    while !tally.is_time_up() {
        for (tenant, arrivals) in arrivals.iter_mut().enumerate() {
            let now_ns = monotonic_ns();
            let mut payloads = Vec::new();
            while let Some(due_ns) = arrivals.due(now_ns) {
                payloads.push(tally.next(tenant, due_ns, work.bytes));
            }
            for payloads in payloads.chunks(work.ours.batch.max(1)) {
                let pending = begin_submit(tasks, &names[tenant], payloads)?;
                sender.send(pending).map_err(|_| anyhow!("the thread that receives responses has ended"))?;
            }
        }
        let next_ns = arrivals.iter().map(|arrivals| arrivals.next_ns).min().unwrap_or(0);
        std::thread::sleep(Duration::from_nanos(next_ns.saturating_sub(monotonic_ns())));
    }
    Ok(())
}

fn receive_responses(in_flight: &Receiver<PendingTaskCommands>) -> Result<()> {
    in_flight.iter().try_for_each(check_response)
}

fn payloads(
    tally: &ClientTally,
    work: &TaskWorkload,
    tenant: usize,
    count: usize,
    due_ns: u64,
) -> Vec<Vec<u8>> {
    (0..count).map(|_| tally.next(tenant, due_ns, work.bytes)).collect()
}

fn begin_submit(tasks: &Tasks, tenant: &str, payloads: &[Vec<u8>]) -> Result<PendingTaskCommands> {
    let new = payloads.iter().map(|payload| NewTask::new(KIND.as_bytes(), payload)).collect();
    Ok(tasks.begin(&[TaskCommand::Submit { tenant: tenant.as_bytes(), tasks: new }])?)
}

fn check_response(pending: PendingTaskCommands) -> Result<()> {
    for result in pending.wait()? {
        result.context("the node refused a task")?;
    }
    Ok(())
}

/// The times at which the tasks of one tenant are due.
struct Arrivals {
    mean_ns: f64,
    rng: Option<RandomNumbers>,
    next_ns: u64,
}

impl Arrivals {
    /// Returns random times, as in a Poisson process, with `per_s` tasks per second on average.
    fn poisson(per_s: f64, rng: RandomNumbers) -> Self {
        Self { mean_ns: 1e9 / per_s, rng: Some(rng), next_ns: monotonic_ns() }
    }

    /// Returns times at equal intervals, with `per_s` tasks per second.
    fn steady(per_s: f64) -> Self {
        Self { mean_ns: 1e9 / per_s, rng: None, next_ns: monotonic_ns() }
    }

    /// If the next task is due by `now_ns`, returns its due time, and goes on to the following task.
    fn due(&mut self, now_ns: u64) -> Option<u64> {
        let due_ns = self.next_ns;
        (due_ns <= now_ns).then(|| {
            self.next_ns = due_ns + self.interval_ns();
            due_ns
        })
    }

    fn interval_ns(&mut self) -> u64 {
        const PARTS: usize = 1 << 40;
        let times = self.rng.as_mut().map_or(1.0, |rng| {
            // A random number above 0 and up to 1. The number must not be 0, because the logarithm of 0 is infinite.
            let uniform = (rng.below(PARTS) + 1) as f64 / PARTS as f64;
            -uniform.ln()
        });
        (self.mean_ns * times) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steady_and_poisson_arrivals_keep_their_mean_rate() {
        let gaps = |mut arrivals: Arrivals| -> Vec<u64> {
            let mut before_ns = arrivals.next_ns;
            let next = |_| {
                let due_ns = arrivals.due(u64::MAX).unwrap();
                due_ns - std::mem::replace(&mut before_ns, due_ns)
            };
            (0..100_001).map(next).skip(1).collect()
        };
        let mean = |gaps: &[u64]| gaps.iter().sum::<u64>() as f64 / gaps.len() as f64;
        let steady = gaps(Arrivals::steady(10_000.0));
        assert!(steady.iter().all(|gap| *gap == 100_000));
        let poisson = gaps(Arrivals::poisson(10_000.0, RandomNumbers::default()));
        assert!((98_000.0..102_000.0).contains(&mean(&poisson)), "{}", mean(&poisson));
        // In an exponential distribution, the share of values above the mean is e⁻¹.
        let above = poisson.iter().filter(|gap| **gap > 100_000).count();
        assert!((35_500..38_100).contains(&above), "{above}");
    }
}
