//! `crowd URL SUBJECT COUNT`: starts COUNT clients, each with its own connection and subscription.
//!
//! Prints `joined COUNT` when all clients have subscribed. A line `sync N` on standard input makes the process wait
//! until every client has received record N or a later record. The process then prints `synced N EPOCHS GAPS WRONG`.
//! EPOCHS, GAPS and WRONG are the numbers of epoch changes, gaps and errors since the previous line `synced`.

use std::io::BufRead as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use dunlin_client::topic::{Event, Notice, Start, Subscribe, SubscribeOptions};
use dunlin_client::{Client, ClientLimits, ClientOptions, Subscriber};

use crate::content::TestPayload;

/// The number of the last record that a client has received.
#[derive(Debug, Default)]
struct LastSeen {
    n: AtomicU64,
}

#[derive(Debug, Default)]
struct CrowdCounts {
    epochs: AtomicU64,
    gaps: AtomicU64,
    wrong: AtomicU64,
}

/// Subscribes with all clients, and reads until standard input closes.
pub fn run(arguments: &[String]) -> Result<()> {
    crate::limits::raise_open_files();
    let clients: usize = arguments[2].parse()?;
    let counts = Arc::new(CrowdCounts::default());
    let mut clients_seen = Vec::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for _ in 0..clients {
        let subscriber = join(&arguments[0], &arguments[1])?;
        let last_seen = Arc::new(LastSeen::default());
        clients_seen.push(Arc::clone(&last_seen));
        runtime.spawn(read(subscriber, last_seen, Arc::clone(&counts)));
    }
    println!("joined {clients}");
    std::thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        if let Some(n) = line.strip_prefix("sync ").and_then(|n| n.parse::<u64>().ok()) {
            while !clients_seen.iter().all(|last_seen| last_seen.n.load(Ordering::Relaxed) >= n) {
                std::thread::sleep(Duration::from_millis(5));
            }
            let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
            let (epochs, gaps, wrong) = (take(&counts.epochs), take(&counts.gaps), take(&counts.wrong));
            println!("synced {n} {epochs} {gaps} {wrong}");
        }
    }
    Ok(())
}

fn join(url: &str, subject: &str) -> Result<Subscriber> {
    let limits = ClientLimits { chunk_bytes: 4 << 10, credit_bytes: 16 << 10, ..ClientLimits::default() };
    let client = Client::connect(url, ClientOptions { limits, ..ClientOptions::default() })?;
    let options = SubscribeOptions { start: Start::Earliest, ..SubscribeOptions::default() };
    Ok(client.subscribe(subject, options)?)
}

async fn read(mut subscriber: Subscriber, last_seen: Arc<LastSeen>, counts: Arc<CrowdCounts>) {
    loop {
        match subscriber.next_async().await {
            Ok(Event::Record(record)) => match TestPayload::decode(record.payload()) {
                Some(content) => last_seen.n.store(content.n, Ordering::Relaxed),
                None => drop(counts.wrong.fetch_add(1, Ordering::Relaxed)),
            },
            Ok(Event::Notice(Notice::EpochChanged(_))) => drop(counts.epochs.fetch_add(1, Ordering::Relaxed)),
            Ok(Event::Notice(Notice::Gap(_))) => drop(counts.gaps.fetch_add(1, Ordering::Relaxed)),
            Ok(Event::Notice(_)) => {}
            // The node is unreachable, so the client tries again.
            Err(dunlin_client::topic::SubscribeError::Connection(_)) => {}
            Err(_) => {
                counts.wrong.fetch_add(1, Ordering::Relaxed);
                return;
            }
        }
    }
}
