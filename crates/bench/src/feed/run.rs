//! Makes one run of a scenario. The run has a node, a source that publishes updates, and subscribers in this process.
//!
//! In process, the node and its source are in this process too. Over TCP, the node and its source are in another
//! process, as with `dunlin feed serve`, and each subscriber has its own connection.

use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, anyhow};
use dunlin::now_ns;
use dunlin::topic::{OnGap, Start, Subscribe, SubscribeOptions};
use dunlin_client::{Client, ClientLimits, ClientOptions};
use dunlin_feed::Instruments;

use crate::child::TIMEOUT;
use crate::clock::processor_ns;
use crate::feed::node::{self, FeedNode};
use crate::feed::outcome::FeedFigures;
use crate::feed::reader::{FeedSubscriber, PublishedTotals};
use crate::feed::readers::read_all;
use crate::feed::scenario::{FeedScenario, MeasuringWindow, ReaderPlacement};
use crate::feed::source::{FeedSource, SourceTotals};
use crate::feed::tally::DeliveryTally;
use crate::point::BenchContext;

/// The time from when all subscribers have started until the source starts, in ns.
const LEAD_NS: u64 = 50_000_000;
/// The most bytes that may be on their way to a slow subscriber. A slow subscriber loses no bytes that are already on
/// their way. With a higher limit, it would therefore lose too few records for this benchmark.
const SLOW_CREDIT_BYTES: usize = 16 << 10;

/// Runs the scenario once, and returns its figures.
pub fn run(bench: &BenchContext, scenario: &FeedScenario) -> Result<FeedFigures> {
    let instruments = scenario.instruments()?;
    match scenario.placement {
        ReaderPlacement::Inproc => run_inproc(scenario, instruments),
        ReaderPlacement::Tcp => run_tcp(bench, scenario, &instruments),
    }
}

fn run_inproc(scenario: &FeedScenario, instruments: Instruments) -> Result<FeedFigures> {
    let local_node = node::create_local_node(scenario, &instruments)?;
    let patterns = scenario.patterns(&instruments)?;
    let patterns: Vec<&str> = patterns.iter().map(String::as_str).collect();
    let options = subscribe_options(scenario);
    let subscribers: Vec<_> = (0..scenario.clients)
        .map(|_| local_node.node().subscribe_all(&patterns, &options))
        .collect::<Result<_, _>>()?;
    let mut readers = readers(subscribers, scenario, &instruments);
    // A subscription in the node's process starts at the position of its first read. Therefore all subscribers read
    // once before the first record is published.
    readers.iter_mut().try_for_each(|reader| reader.read().map(drop))?;
    let window = MeasuringWindow::from(now_ns() + LEAD_NS, scenario);
    let source = FeedSource::new(local_node.node(), scenario, instruments.clone());
    let pin = scenario.pin();
    let (totals, publishing) = spawn_publisher(move || {
        let _pinned = pin.side(1)?;
        source.run(&window)
    });
    // Threads that are started later inherit this pinning.
    let _pinned = pin.side(0)?;
    let tallies = read(readers, window, scenario, &totals)?;
    let published = join(publishing)?;
    Ok(FeedFigures::new(scenario, &instruments, &published, &tallies, None))
}

fn run_tcp(bench: &BenchContext, scenario: &FeedScenario, instruments: &Instruments) -> Result<FeedFigures> {
    let mut node = FeedNode::start(bench, scenario)?;
    let patterns = scenario.patterns(instruments)?;
    let options = subscribe_options(scenario);
    let subscribers = (0..scenario.clients)
        .map(|_| subscribe(node.url(), &patterns, &options, scenario))
        .collect::<Result<Vec<_>>>()?;
    let window = MeasuringWindow::from(now_ns() + LEAD_NS, scenario);
    node.start_source(&window)?;
    let timeout = TIMEOUT + scenario.warmup + scenario.time;
    let (totals, publishing) =
        spawn_publisher(move || node.wait_for_totals(timeout).map(|published| (node, published)));
    let _pinned = scenario.pin().side(0)?;
    let before_ns = processor_ns();
    let tallies = read(readers(subscribers, scenario, instruments), window, scenario, &totals)?;
    let client_ns = processor_ns() - before_ns;
    let (_node, published) = join(publishing)?;
    Ok(FeedFigures::new(scenario, instruments, &published, &tallies, Some(client_ns)))
}

/// The result of a publishing thread, which contains the source's totals.
trait PublisherReport {
    fn totals(&self) -> &SourceTotals;
}

impl PublisherReport for SourceTotals {
    fn totals(&self) -> &SourceTotals {
        self
    }
}

impl PublisherReport for (FeedNode, SourceTotals) {
    fn totals(&self) -> &SourceTotals {
        &self.1
    }
}

/// Starts a thread that calls `publish`. This function publishes, or waits for another process that publishes. When it
/// returns, the thread passes the totals to the subscribers.
fn spawn_publisher<T: PublisherReport + Send + 'static>(
    publish: impl FnOnce() -> Result<T> + Send + 'static,
) -> (PublishedTotals, JoinHandle<Result<T>>) {
    let totals: PublishedTotals = Arc::new(OnceLock::new());
    let cell = Arc::clone(&totals);
    let publishing = thread::spawn(move || {
        let report = publish()?;
        // `set` fails only if the cell already has a value. No other thread sets one.
        let _ = cell.set(report.totals().lines.clone());
        Ok(report)
    });
    (totals, publishing)
}

fn join<T>(thread: JoinHandle<Result<T>>) -> Result<T> {
    thread.join().map_err(|_| anyhow!("the publishing thread panicked"))?
}

fn readers<S: Subscribe>(
    subscribers: Vec<S>,
    scenario: &FeedScenario,
    instruments: &Instruments,
) -> Vec<FeedSubscriber<S>> {
    subscribers.into_iter().map(|subscriber| FeedSubscriber::new(subscriber, scenario, instruments)).collect()
}

fn read<S: Subscribe + Send + 'static>(
    mut readers: Vec<FeedSubscriber<S>>,
    window: MeasuringWindow,
    scenario: &FeedScenario,
    totals: &PublishedTotals,
) -> Result<Vec<DeliveryTally>> {
    readers.iter_mut().for_each(|reader| reader.set_window(window));
    read_all(readers, scenario.delay.is_some(), totals)
}

fn subscribe(
    url: &str,
    patterns: &[String],
    options: &SubscribeOptions,
    scenario: &FeedScenario,
) -> Result<dunlin_client::Subscriber> {
    let mut limits = ClientLimits::default();
    if scenario.delay.is_some() {
        limits.credit_bytes = SLOW_CREDIT_BYTES;
    }
    let wait = scenario.wait.wait();
    let client_options = ClientOptions { name: "bench".to_owned(), wait, limits, ..ClientOptions::default() };
    let client = Client::connect(url, client_options).with_context(|| format!("cannot connect to {url}"))?;
    let [pattern] = patterns else {
        anyhow::bail!("over TCP, a subscriber must read either one instrument or all instruments")
    };
    client.subscribe(pattern, options.clone()).context("cannot subscribe")
}

fn subscribe_options(scenario: &FeedScenario) -> SubscribeOptions {
    let (start, on_gap) = match scenario.every_record {
        true => (Start::Earliest, OnGap::Fail),
        false => (Start::Snapshot, OnGap::Snapshot),
    };
    SubscribeOptions {
        start,
        on_gap,
        wait: scenario.wait.wait(),
        conflate: scenario.conflate,
        test_loss_every: scenario.test_loss_every,
        ..SubscribeOptions::default()
    }
}
