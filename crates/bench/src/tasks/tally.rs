//! Counts the submitted and completed tasks over all threads of Dunlin's clients, and detects tasks that were completed
//! twice.
//!
//! The payload of a task begins with the task's number and the time at which the task is due, in ns; both are `u64`.
//! The upper sixteen bits of the number are the index of the tenant.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context, Result};

use super::work::{TaskReport, TaskWorkload};
use crate::clock::{monotonic_ns, processor_ns};
use crate::stats::Latencies;

/// The smallest size of a payload in bytes: the task's number and its due time.
pub const HEAD_BYTES: usize = 16;
const TENANT_SHIFT: u32 = 48;
const TASKS_MAX: u64 = 1 << 27;

/// Counts the tasks of all client threads of a benchmark: the submitted ones, and the completed ones.
#[derive(Debug)]
pub struct ClientTally {
    count_from_ns: u64,
    end_ns: u64,
    /// One bit for each task. The bit is set when the task is completed.
    completed_bits: Vec<AtomicU64>,
    submitted: AtomicU64,
    completed: AtomicU64,
    twice: AtomicU64,
    /// The number of unfinished tasks, for each tenant.
    unfinished: Vec<AtomicU64>,
    is_stopped: AtomicBool,
    before_cpu_ns: u64,
}

/// The counted tasks of one worker, by tenant, and their latencies.
#[derive(Debug, Default)]
pub struct WorkerTotals {
    tenants: Vec<u64>,
    starts: Latencies,
    ends: Latencies,
}

impl ClientTally {
    /// Creates the counts. Tasks that end in the warm-up do not count.
    pub fn new(work: &TaskWorkload) -> Self {
        let count_from_ns = monotonic_ns() + work.warmup_ns;
        let zeros = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect();
        Self {
            count_from_ns,
            end_ns: count_from_ns + work.time_ns,
            completed_bits: zeros((TASKS_MAX / 64) as usize),
            submitted: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            twice: AtomicU64::new(0),
            unfinished: zeros(work.ours.tenants.len().max(1)),
            is_stopped: AtomicBool::new(false),
            before_cpu_ns: processor_ns(),
        }
    }

    /// Whether the time for submitting tasks is over.
    pub fn is_time_up(&self) -> bool {
        monotonic_ns() >= self.end_ns
    }

    /// Whether the workers must end: all tasks are done, or the benchmark no longer waits for the remaining ones.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    /// Tells the workers to end.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
    }

    /// Returns the number of a tenant's unfinished tasks.
    pub fn unfinished(&self, tenant: usize) -> u64 {
        self.unfinished[tenant].load(Ordering::Relaxed)
    }

    /// Creates the next task of a tenant, and counts it as submitted. Returns the task's payload.
    pub fn next(&self, tenant: usize, due_ns: u64, bytes: usize) -> Vec<u8> {
        let number = self.submitted.fetch_add(1, Ordering::Relaxed) | (tenant as u64) << TENANT_SHIFT;
        self.unfinished[tenant].fetch_add(1, Ordering::Relaxed);
        let mut payload = vec![0; bytes.max(HEAD_BYTES)];
        payload[..8].copy_from_slice(&number.to_le_bytes());
        payload[8..HEAD_BYTES].copy_from_slice(&due_ns.to_le_bytes());
        payload
    }

    /// Returns the number of submitted tasks and the number of completed tasks.
    pub fn counts(&self) -> (u64, u64) {
        // The number of completed tasks is read first. It can therefore never exceed the number of submitted tasks.
        let completed = self.completed.load(Ordering::Acquire);
        (self.submitted.load(Ordering::Acquire), completed)
    }

    /// Counts a task that a worker has completed. Detects whether the task had already been completed.
    pub fn record(
        &self,
        payload: &[u8],
        started_ns: u64,
        ended_ns: u64,
        totals: &mut WorkerTotals,
    ) -> Result<()> {
        let (number, due_ns) = read(payload).context("a task's payload differs from the submitted one")?;
        let (tenant, number) = ((number >> TENANT_SHIFT) as usize, number & ((1 << TENANT_SHIFT) - 1));
        let bits = self
            .completed_bits
            .get((number / 64) as usize)
            .context("too many tasks for the table of done tasks")?;
        let bit = 1 << (number % 64);
        if bits.fetch_or(bit, Ordering::Relaxed) & bit != 0 {
            self.twice.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        self.unfinished
            .get(tenant)
            .context("received a task of an unknown tenant")?
            .fetch_sub(1, Ordering::Relaxed);
        self.count(tenant, (due_ns, started_ns, ended_ns), totals);
        self.completed.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Counts a task if it ended in the counted time. [`Self::record`] calls this function for tasks that a node
    /// assigned. For tasks without a node, the caller calls it directly.
    pub fn count(
        &self,
        tenant: usize,
        (due_ns, started_ns, ended_ns): (u64, u64, u64),
        totals: &mut WorkerTotals,
    ) {
        if (self.count_from_ns..self.end_ns).contains(&ended_ns) {
            if totals.tenants.len() <= tenant {
                totals.tenants.resize(tenant + 1, 0);
            }
            totals.tenants[tenant] += 1;
            totals.starts.record(started_ns.saturating_sub(due_ns));
            totals.ends.record(ended_ns.saturating_sub(due_ns));
        }
    }

    /// Returns the report for all workers together.
    pub fn report(&self, work: &TaskWorkload, all: &[WorkerTotals]) -> TaskReport {
        let mut tenants = vec![0; self.unfinished.len()];
        let (mut starts, mut ends) = (Latencies::default(), Latencies::default());
        for totals in all {
            tenants.iter_mut().zip(&totals.tenants).for_each(|(sum, ops)| *sum += ops);
            starts.add(&totals.starts);
            ends.add(&totals.ends);
        }
        let (submitted, completed) = self.counts();
        let elapsed_ns = monotonic_ns().saturating_sub(self.count_from_ns).saturating_add(work.warmup_ns);
        let cpu_ns = processor_ns() - self.before_cpu_ns;
        TaskReport {
            ops: tenants.iter().sum(),
            submitted,
            completed,
            twice: self.twice.load(Ordering::Relaxed),
            elapsed_ns: work.time_ns,
            start_p50_ns: starts.quantile_ns(0.5),
            start_p99_ns: starts.quantile_ns(0.99),
            end_p50_ns: ends.quantile_ns(0.5),
            end_p99_ns: ends.quantile_ns(0.99),
            workers_in_a_process: work.workers as u64,
            tenants,
            // The processor time is scaled to the length of the counted time.
            cpu_ns: (cpu_ns as f64 * work.time_ns as f64 / elapsed_ns.max(1) as f64) as u64,
        }
    }
}

fn read(payload: &[u8]) -> Option<(u64, u64)> {
    let (number, rest) = payload.split_first_chunk()?;
    Some((u64::from_le_bytes(*number), u64::from_le_bytes(*rest.first_chunk()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_task_is_counted_once_for_its_tenant() {
        let load = super::super::work::TenantWorkload { weight: 1, per_s: 0.0 };
        let ours = super::super::work::NodeOptions { tenants: vec![load; 3], ..Default::default() };
        let work = TaskWorkload { time_ns: 1_000_000_000_000, ours, ..TaskWorkload::default() };
        let (tally, mut totals) = (ClientTally::new(&work), WorkerTotals::default());
        let payload = tally.next(2, 5, 0);
        tally.next(0, 5, 100);
        let now_ns = monotonic_ns();
        tally.record(&payload, now_ns, now_ns, &mut totals).unwrap();
        assert_eq!((tally.counts(), tally.unfinished(2), tally.unfinished(0)), ((2, 1), 0, 1));
        tally.record(&payload, now_ns, now_ns, &mut totals).unwrap();
        let report = tally.report(&work, &[totals]);
        assert_eq!((report.ops, report.completed, report.twice), (1, 1, 1));
        assert_eq!(report.tenants, [0, 0, 1]);
        assert!(tally.record(b"short", 0, 0, &mut WorkerTotals::default()).is_err());
    }
}
