//! Makes one run of the fault tests of topics: starts a cluster, publishers and subscribers, injects the faults that
//! follow from a seed, and checks what the subscribers received.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use dunlin_client::topic::Position;

use super::audit::{self, ReadCounts};
use super::nodes::Nodes;
use super::plan::plan;
use super::publisher::{PublishedBatches, Writer};
use super::reader::{SubscriberTrace, TopicEnds, read};
use super::{NODES, TOPICS};
use crate::history::RunClock;
use crate::nemesis::PATIENCE;

/// The number of batches that must be acknowledged before the first fault. After the last fault, equally many further
/// batches must be acknowledged.
const PROGRESS: u64 = 40;
/// The interval at which a run checks the number of acknowledged batches, and whether the subscribers have ended.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The settings of a run: the program, the directory, and the length of the plan.
#[derive(Debug, Clone)]
pub struct TopicsSetup {
    /// The path of the program `dunlin`.
    pub program: String,
    /// The directory for the run's files.
    pub dir: PathBuf,
    /// The number of steps of a plan.
    pub steps: u64,
}

/// The numbers of steps, batches and events of a successful run.
#[derive(Debug, Clone, Copy, Default)]
pub struct TopicsReport {
    steps: usize,
    batches: u64,
    unknown: u64,
    refused: u64,
    struck: u64,
    counts: ReadCounts,
}

impl fmt::Display for TopicsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TopicsReport { steps, batches, unknown, refused, struck, counts } = self;
        let ReadCounts { read, gaps, epochs } = counts;
        write!(
            f,
            "{steps} steps of faults; {batches} batches, {struck} struck, {unknown} unknown, {refused} refusals; \
             {read} records read, {gaps} gaps, {epochs} epochs' ends told"
        )
    }
}

/// The threads of a run's publishers and subscribers.
struct Clients {
    stop: Arc<AtomicBool>,
    abort: Arc<AtomicBool>,
    ends: Arc<TopicEnds>,
    acknowledged: Arc<AtomicU64>,
    writers: Vec<JoinHandle<Result<PublishedBatches>>>,
    readers: Vec<JoinHandle<Result<SubscriberTrace>>>,
}

/// Runs one seed: starts the nodes and clients, injects the faults, and checks the histories.
pub fn run(setup: &TopicsSetup, seed: u64) -> Result<TopicsReport> {
    let dir = setup.dir.join(format!("topics-{seed}"));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir)?;
    let mut nodes = Nodes::start(&setup.program, &dir)?;
    let clock = RunClock::start();
    let clients = Clients::start(&nodes.urls(), clock, seed)?;
    let (plan, mut faults) = (plan(seed, setup.steps), vec![]);
    let outcome = clients.wait_for_progress("the beginning").and_then(|()| {
        for step in &plan {
            faults.push((clock.now(), format!("{step:?}")));
            let what = nodes.inject(step.fault)?;
            faults.push((clock.now(), what));
            std::thread::sleep(Duration::from_millis(step.hold_ms));
            nodes.heal()?;
            faults.push((clock.now(), "well".to_owned()));
            std::thread::sleep(Duration::from_millis(step.rest_ms));
        }
        nodes.wait_until_complete()?;
        clients.wait_for_progress("peace")
    });
    let lines = faults.iter().map(|(at, what)| format!("{:>9.3} s  {what}\n", *at as f64 / 1e9));
    std::fs::write(dir.join("faults.txt"), lines.collect::<String>())?;
    let histories = clients.finish(outcome);
    if histories.is_err() {
        std::fs::write(dir.join("nodes.txt"), nodes.errors().join("\n----\n"))?;
    }
    drop(nodes);
    let (ledgers, traces) = histories?;
    let report = check(&ledgers, &traces, &faults, plan.len());
    if report.is_err() {
        std::fs::write(dir.join("ledgers.txt"), format!("{ledgers:#?}"))?;
        std::fs::write(dir.join("traces.txt"), format!("{traces:#?}"))?;
    }
    let report = report?;
    std::fs::remove_dir_all(&dir)?;
    Ok(report)
}

impl Clients {
    fn start(urls: &[String], clock: RunClock, seed: u64) -> Result<Clients> {
        let (stop, abort, ends, acknowledged) = Default::default();
        let mut clients = Clients { stop, abort, ends, acknowledged, writers: vec![], readers: vec![] };
        for (at, (topic, is_durable)) in TOPICS.into_iter().enumerate() {
            let (url, count) = (&urls[(at + seed as usize) % NODES], Arc::clone(&clients.acknowledged));
            let seed = seed.wrapping_mul(1_000).wrapping_add(at as u64);
            let writer = Writer::open(topic, is_durable, url, clock, seed, count)?;
            let stop = Arc::clone(&clients.stop);
            clients.writers.push(spawn(move || writer.run(&stop)));
            for (node, url) in urls.iter().cloned().enumerate() {
                let (ends, abort) = (Arc::clone(&clients.ends), Arc::clone(&clients.abort));
                clients.readers.push(spawn(move || read(topic, node, &url, &ends, &abort)));
            }
        }
        Ok(clients)
    }

    /// Waits until [`PROGRESS`] more batches are acknowledged. `when` describes the present step, for the text of an
    /// error.
    fn wait_for_progress(&self, when: &str) -> Result<()> {
        let (before, deadline) = (self.acknowledged.load(Ordering::Relaxed), Instant::now() + PATIENCE);
        while self.acknowledged.load(Ordering::Relaxed) < before + PROGRESS {
            if Instant::now() > deadline {
                bail!("fewer than {PROGRESS} batches were acknowledged within {PATIENCE:?} during {when}");
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Stops all clients. Returns the publishers' ledgers and the subscribers' traces, or the error in `outcome`.
    fn finish(mut self, outcome: Result<()>) -> Result<(Vec<PublishedBatches>, Vec<SubscriberTrace>)> {
        let panicked = |_| anyhow!("a client thread panicked");
        self.stop.store(true, Ordering::Relaxed);
        self.abort.store(outcome.is_err(), Ordering::Relaxed);
        let ledgers: Result<Vec<PublishedBatches>> = self
            .writers
            .drain(..)
            .map(|writer| writer.join().map_err(panicked)?.context("a publisher thread failed"))
            .collect();
        if let Ok(ledgers) = &ledgers {
            // This cannot fail, because the value is set nowhere else.
            let _ = self.ends.set(topic_ends(ledgers));
        }
        let deadline = Instant::now() + PATIENCE;
        while !self.readers.iter().all(JoinHandle::is_finished)
            && Instant::now() < deadline
            && ledgers.is_ok()
        {
            std::thread::sleep(POLL_INTERVAL);
        }
        self.abort.store(true, Ordering::Relaxed);
        let traces: Result<Vec<SubscriberTrace>> =
            self.readers.drain(..).map(|reader| reader.join().map_err(panicked)?).collect();
        outcome?;
        Ok((ledgers?, traces?))
    }
}

/// Returns the position of each topic's last acknowledged record.
fn topic_ends(ledgers: &[PublishedBatches]) -> BTreeMap<&'static str, Position> {
    let last = |ledger: &PublishedBatches| {
        ledger.published.iter().filter_map(|batch| batch.response).map(|(_, at)| at).max()
    };
    TOPICS.iter().zip(ledgers).filter_map(|((topic, _), ledger)| Some((*topic, last(ledger)?))).collect()
}

fn check(
    ledgers: &[PublishedBatches],
    traces: &[SubscriberTrace],
    faults: &[(u64, String)],
    steps: usize,
) -> Result<TopicsReport> {
    let mut report = TopicsReport { steps, ..TopicsReport::default() };
    for ((topic, is_durable), ledger) in TOPICS.into_iter().zip(ledgers) {
        let topic_traces: Vec<&SubscriberTrace> =
            traces.iter().filter(|trace| trace.topic == topic).collect();
        let counts = audit::check_topic(is_durable, ledger, &topic_traces)?;
        report.counts.read += counts.read;
        report.counts.gaps += counts.gaps;
        report.counts.epochs += counts.epochs;
        report.batches += ledger.published.len() as u64;
        report.refused += ledger.refused;
        for batch in &ledger.published {
            let end = batch.response.map_or(u64::MAX, |(end, _)| end);
            report.unknown += u64::from(batch.response.is_none());
            report.struck += u64::from(faults.iter().any(|(at, _)| (batch.call..end).contains(at)));
        }
    }
    if report.struck == 0 || report.counts.epochs == 0 {
        bail!(
            "no fault happened between a publish and its acknowledgement, or no epoch ended; the run proves nothing: {report}"
        );
    }
    Ok(report)
}
