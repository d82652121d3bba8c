//! Measures the latency of records that are published at a fixed rate to a topic with many subscribers, each with a
//! connection of its own.
//!
//! The latency is the time from when a record is due until a subscriber has read and checked it. All subscribers are
//! tasks of one thread.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use dunlin::topic::{Event, Start, Subscribe, SubscribeOptions, WaitStrategy};
use dunlin_client::Subscriber;
use tokio::task::LocalSet;

use crate::child::TIMEOUT;
use crate::clock::monotonic_ns;
use crate::cores::CorePinning;
use crate::payload::{NumberedPayload, ReadExtent};
use crate::point::{BenchContext, RunSample};
use crate::remote::node::{NodeProcess, NodeTask, RemoteNodeSetup, TOPIC};
use crate::sockets::SocketKind;
use crate::stats::Latencies;

/// First publishes records to warm up, a fifth as many as in the measurement. Then measures `subscribers` connections
/// for about `time`, with `per_s` records per second.
pub fn measure(bench: &BenchContext, subscribers: usize, per_s: u64, time: Duration) -> Result<RunSample> {
    let count = ((per_s as f64 * time.as_secs_f64()) as u64).max(10);
    let unmeasured = count / 5;
    let task = NodeTask::Tick { readers: subscribers, count: unmeasured + count, per_s };
    let setup = RemoteNodeSetup { transport: SocketKind::Tcp, spin: false, pin: CorePinning::Free, task };
    let mut node = NodeProcess::start(bench, setup)?;
    let before = node.resident_bytes()?;
    let readers = (0..subscribers).map(|_| subscribe(&node)).collect::<Result<Vec<_>>>()?;
    let latencies = read_all(readers, unmeasured, count)?;
    node.wait_until_sent()?;
    let grown = node.resident_bytes_max()?.saturating_sub(before);
    Ok(latencies.sample().with("rss_bytes", grown as f64).with("messages", count as f64))
}

fn subscribe(node: &NodeProcess) -> Result<Subscriber> {
    let client = node.client(WaitStrategy::Parked)?;
    let options = SubscribeOptions { start: Start::Earliest, ..SubscribeOptions::default() };
    client.subscribe(TOPIC, options).context("cannot subscribe")
}

fn read_all(readers: Vec<Subscriber>, unmeasured: u64, count: u64) -> Result<Latencies> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start a Tokio runtime")?;
    let latencies = Rc::new(RefCell::new(Latencies::default()));
    let tasks = LocalSet::new();
    let reading: Vec<_> = readers
        .into_iter()
        .map(|reader| tasks.spawn_local(read(reader, unmeasured, count, Rc::clone(&latencies))))
        .collect();
    let all = async {
        for task in reading {
            task.await.context("a subscriber task panicked")??;
        }
        Ok::<_, anyhow::Error>(())
    };
    let timeout = TIMEOUT + Duration::from_secs(count / 100);
    tasks
        .block_on(&runtime, async { tokio::time::timeout(timeout, all).await })
        .with_context(|| format!("not all records were delivered within {timeout:?}"))??;
    let latencies = latencies.borrow().clone();
    Ok(latencies)
}

async fn read(
    mut reader: Subscriber,
    unmeasured: u64,
    count: u64,
    latencies: Rc<RefCell<Latencies>>,
) -> Result<()> {
    for nth in 0..unmeasured + count {
        let payload = match reader.next_async().await? {
            Event::Record(record) if record.seq() == nth + 1 => record.payload(),
            other => bail!("expected record {}, received {other:?}", nth + 1),
        };
        ensure!(ReadExtent::Ends.check(payload, nth), "record {} was damaged", nth + 1);
        let late_ns = monotonic_ns().saturating_sub(NumberedPayload::time_of(payload));
        if nth >= unmeasured {
            latencies.borrow_mut().record(late_ns);
        }
    }
    Ok(())
}
