//! Measures subscribers of a node that is already running (`--url`), such as a node of `dunlin feed serve`. The
//! benchmark cannot know which updates such a node has to publish, so it cannot compute drops. Instead, it counts
//! missing sequence numbers and their repairs.

use std::cell::RefCell;
use std::rc::Rc;

use anyhow::{Context, Result, ensure};
use dunlin::now_ns;
use dunlin::topic::{OnGap, Start, Subscribe, SubscribeOptions};
use dunlin_client::{Client, ClientOptions};
use dunlin_feed::{Book, ChangeCause, Replica, ReplicaReport, Scale};
use tokio::task::LocalSet;

use crate::options::BenchOptions;
use crate::point::RunSample;
use crate::stats::Latencies;

#[derive(Debug, Default)]
struct SubscriberTotals {
    delivered: u64,
    sent: Latencies,
    intended: Latencies,
}

/// Runs `clients` subscribers for the requested time.
pub fn measure(options: &BenchOptions, clients: usize) -> Result<RunSample> {
    let url = options.url.as_deref().context("--url is missing: give the URL of a node")?;
    let feed = &options.feed;
    let pattern = match feed.instruments.as_slice() {
        [] => "md.>".to_owned(),
        [one] => format!("md.{one}"),
        _ => anyhow::bail!("with --url, give --instrument once, or leave it out to read all instruments"),
    };
    let subscribe = |_| {
        let (name, tls) = ("bench".to_owned(), options.tls.clone());
        let client_options = ClientOptions { name, tls, ..ClientOptions::default() };
        let client =
            Client::connect(url, client_options).with_context(|| format!("cannot connect to {url}"))?;
        let subscribe_options = SubscribeOptions {
            start: Start::Snapshot,
            on_gap: OnGap::Snapshot,
            test_loss_every: feed.test_loss_every,
            ..SubscribeOptions::default()
        };
        let subscriber = client
            .subscribe(&pattern, subscribe_options)
            .with_context(|| format!("cannot subscribe to {pattern}"))?;
        Ok(Replica::new(subscriber, |_| Book::new(Scale::default())))
    };
    let replicas = (0..clients).map(subscribe).collect::<Result<Vec<_>>>()?;
    let totals = Rc::new(RefCell::new(SubscriberTotals::default()));
    let from_ns = now_ns() + feed.warmup.as_nanos() as u64;
    let replicas = read(replicas, from_ns, feed.warmup + feed.time, &totals)?;
    let seconds = now_ns().saturating_sub(from_ns) as f64 / 1e9;
    let sum = |of: fn(dunlin_feed::ReplicaCounts) -> u64| {
        replicas.iter().map(|replica| of(replica.borrow().counts())).sum::<u64>() as f64
    };
    let totals = totals.borrow();
    ensure!(totals.delivered > 0, "no record was published to {pattern}");
    let books = replicas.first().map_or(0, |replica| replica.borrow().states().count());
    Ok(RunSample::new()
        .with("instruments", books as f64)
        .with("depth", feed.depth as f64)
        .with("duration_ns", seconds * 1e9)
        .with("deliveries_per_s", totals.delivered as f64 / seconds)
        .with_time("sent_p50_ns", totals.sent.quantile_ns(0.50))
        .with_time("sent_p99_ns", totals.sent.quantile_ns(0.99))
        .with_time("sent_p999_ns", totals.sent.quantile_ns(0.999))
        .with_time("intended_p50_ns", totals.intended.quantile_ns(0.50))
        .with_time("intended_p99_ns", totals.intended.quantile_ns(0.99))
        .with_time("intended_p999_ns", totals.intended.quantile_ns(0.999))
        .with("resyncs", sum(|counts| counts.resyncs))
        .with("errors", sum(|counts| counts.refused))
        .with("holes", sum(|counts| counts.holes))
        .with("healed", sum(|counts| counts.gaps_healed))
        .with("divergent", sum(|counts| counts.divergent)))
}

type Shared<S> = Rc<RefCell<Replica<Book, S>>>;

fn read<S: Subscribe + 'static>(
    replicas: Vec<Replica<Book, S>>,
    from_ns: u64,
    time: std::time::Duration,
    totals: &Rc<RefCell<SubscriberTotals>>,
) -> Result<Vec<Shared<S>>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start a Tokio runtime")?;
    let replicas: Vec<Shared<S>> =
        replicas.into_iter().map(|replica| Rc::new(RefCell::new(replica))).collect();
    let tasks = LocalSet::new();
    let reading: Vec<_> = replicas
        .iter()
        .map(|replica| tasks.spawn_local(read_loop(Rc::clone(replica), from_ns, Rc::clone(totals))))
        .collect();
    tasks.block_on(&runtime, async { tokio::time::sleep(time).await });
    ensure!(!reading.iter().any(tokio::task::JoinHandle::is_finished), "a subscriber failed");
    Ok(replicas)
}

async fn read_loop<S: Subscribe>(
    replica: Shared<S>,
    from_ns: u64,
    totals: Rc<RefCell<SubscriberTotals>>,
) -> Result<()> {
    loop {
        let read = replica.borrow_mut().drain(now_ns(), 256, |report| {
            let ReplicaReport::Changed(change) = report else { return };
            // Merged records do not count as deliveries. (The benchmark's scenarios count in the same way.)
            let ChangeCause::Record(frame) = change.cause else { return };
            if frame.append_time_ns() < from_ns {
                return;
            }
            let (now, mut totals) = (now_ns(), totals.borrow_mut());
            totals.delivered += 1;
            totals.sent.record(now.saturating_sub(frame.append_time_ns()));
            if let Some(due_ns) = frame.event_time_ns() {
                totals.intended.record(now.saturating_sub(due_ns));
            }
        })?;
        if read > 0 {
            tokio::task::yield_now().await;
        } else {
            std::future::poll_fn(|cx| replica.borrow_mut().subscriber().poll_ready(cx)).await?;
        }
    }
}
