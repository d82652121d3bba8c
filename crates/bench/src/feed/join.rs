//! Measures many subscribers that start to follow a large, changing order book at the same time.
//!
//! The connections are opened before the measurement. Then all clients subscribe, and the measurement ends when every
//! client has the whole book. One more subscriber follows the book during the whole run. For comparison, there is a run
//! in which no clients join, so that this subscriber is the only one. In both runs, every publish therefore has to wake
//! a subscriber.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use dunlin::now_ns;
use dunlin::topic::{OnGap, Start, Subscribe, SubscribeOptions};
use dunlin_client::{Client, ClientOptions, Subscriber};
use dunlin_feed::{Book, InstrumentsText, Notation, Replica, Scale};

use crate::child::TIMEOUT;
use crate::feed::node::FeedNode;
use crate::feed::scenario::{FeedScenario, MeasuringWindow, ReaderPlacement, WaitMode};
use crate::point::{BenchContext, RunSample};

/// The number of price levels on each side of the book. The whole book has 10,000 levels.
const LEVELS_PER_SIDE: u32 = 5_000;
const RATE: u32 = 1_000;
const TIME: Duration = Duration::from_secs(2);
const TOPIC: &str = "md.DEEP";
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Measures `readers` subscribers that join at the same time. With 0 readers, makes the comparison run, in which no
/// subscriber joins. The metric `p99_ns` is the 99th percentile of the time that the book's source needs for a call of
/// `send`.
pub fn measure(bench: &BenchContext, readers: usize) -> Result<RunSample> {
    let scenario = scenario(readers);
    let mut node = FeedNode::start(bench, &scenario)?;
    let connect = |_| {
        let options = ClientOptions { name: "bench".to_owned(), ..ClientOptions::default() };
        Client::connect(node.url(), options).with_context(|| format!("cannot connect to {}", node.url()))
    };
    let clients = (0..readers).map(connect).collect::<Result<Vec<_>>>()?;
    let resident = ResidentReader::start(&connect(0)?)?;
    let before = node.memory("VmRSS")?;
    let window = MeasuringWindow::from(now_ns(), &scenario);
    node.start_source(&window)?;
    std::thread::sleep(scenario.warmup);
    let start_ns = now_ns();
    let joined = join_all(&clients)?;
    let sync_ns = now_ns() - start_ns;
    let grown = node.memory("VmHWM")?.saturating_sub(before);
    let published = node.wait_for_totals(TIMEOUT)?;
    resident.end()?;
    drop(joined);
    let sample = RunSample::new().with_time("p99_ns", published.publish_ns_p99);
    if readers == 0 {
        return Ok(sample);
    }
    Ok(sample.with("sync_ns", sync_ns as f64).with("rss_bytes", grown as f64))
}

fn scenario(readers: usize) -> FeedScenario {
    let text = format!(
        r#"{{"instruments": [{{"instrumentId": "DEEP", "publishDepth": 10, "tickSize": 1, "basePrice": 5000000,
        "levelsPerSide": {LEVELS_PER_SIDE}, "updatesPerSec": {RATE}}}]}}"#
    );
    FeedScenario {
        config: InstrumentsText { text, notation: Notation::Json },
        rate: None,
        placement: ReaderPlacement::Tcp,
        wait: WaitMode::Parked,
        clients: readers,
        instruments: Vec::new(),
        depth: 10,
        warmup: Duration::from_millis(300),
        time: TIME,
        delay: None,
        conflate: false,
        test_loss_every: None,
        every_record: false,
        history_records: None,
        history_bytes: 4 << 20,
        seed: 123,
    }
}

fn subscribe(client: &Client) -> Result<Replica<Book, Subscriber>> {
    let options =
        SubscribeOptions { start: Start::Snapshot, on_gap: OnGap::Snapshot, ..SubscribeOptions::default() };
    let subscriber = client.subscribe(TOPIC, options).context("cannot subscribe")?;
    Ok(Replica::new(subscriber, |_| Book::new(Scale::default())))
}

/// A subscriber that follows the book during the whole run, in a thread of its own.
struct ResidentReader {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<()>>,
}

impl ResidentReader {
    fn start(client: &Client) -> Result<Self> {
        let mut replica = subscribe(client)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                replica.drain(now_ns(), 64, |_| {})?;
                replica.wait(Some(POLL_INTERVAL))?;
            }
            ensure!(
                replica.is_whole() && replica.states().next().is_some(),
                "the first subscriber has no order book"
            );
            Ok(())
        });
        Ok(Self { stop, thread })
    }

    fn end(self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the first subscriber panicked"))?
    }
}

/// Subscribes with all clients. Returns when every client has the whole book.
fn join_all(clients: &[Client]) -> Result<Vec<Replica<Book, Subscriber>>> {
    let mut replicas = clients.iter().map(subscribe).collect::<Result<Vec<_>>>()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start a Tokio runtime")?.block_on(async {
        // This loop waits for one replica after another. Events for a replica may arrive while the loop waits for
        // another replica; the replica reads these events when its turn comes.
        let all = async {
            for replica in &mut replicas {
                wait_until_complete(replica).await?;
            }
            Ok::<_, anyhow::Error>(())
        };
        tokio::time::timeout(TIMEOUT, all)
            .await
            .context("not all subscribers received the order book in time")?
    })?;
    for replica in &replicas {
        let Some((_, _, book)) = replica.states().next() else { bail!("a subscriber has no order book") };
        let levels = [dunlin_feed::Side::Bid, dunlin_feed::Side::Ask]
            .map(|side| dunlin_feed::PriceLevels::level_count(book, side));
        ensure!(
            levels.iter().sum::<usize>() > LEVELS_PER_SIDE as usize,
            "a subscriber's book has {levels:?} levels"
        );
    }
    Ok(replicas)
}

async fn wait_until_complete(replica: &mut Replica<Book, Subscriber>) -> Result<()> {
    loop {
        replica.drain(now_ns(), 64, |_| {})?;
        if replica.is_whole() && replica.states().next().is_some() {
            return Ok(());
        }
        std::future::poll_fn(|cx| replica.subscriber().poll_ready(cx)).await?;
    }
}
