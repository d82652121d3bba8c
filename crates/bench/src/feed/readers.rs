//! Runs all subscribers of a scenario.
//!
//! A single subscriber runs in a thread of its own. Several subscribers are tasks of one thread. A subscriber that is
//! slow on purpose has a thread of its own, because its sleep would delay other tasks of the same thread.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use dunlin::topic::Subscribe;
use tokio::task::{JoinHandle, LocalSet};

use crate::child::TIMEOUT;
use crate::feed::reader::{FeedSubscriber, PublishedTotals};
use crate::feed::tally::DeliveryTally;

const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Lets all subscribers read. Returns when each subscriber has read all its topics to the end.
pub fn read_all<S: Subscribe + Send + 'static>(
    readers: Vec<FeedSubscriber<S>>,
    slow: bool,
    totals: &PublishedTotals,
) -> Result<Vec<DeliveryTally>> {
    if readers.len() == 1 || slow { read_in_threads(readers, totals) } else { read_in_tasks(readers, totals) }
}

fn read_in_threads<S: Subscribe + Send + 'static>(
    readers: Vec<FeedSubscriber<S>>,
    totals: &PublishedTotals,
) -> Result<Vec<DeliveryTally>> {
    let start = |mut reader: FeedSubscriber<S>| {
        let totals = Arc::clone(totals);
        thread::spawn(move || {
            read_to_end(&mut reader, &totals)?;
            reader.finish(&totals)
        })
    };
    let threads: Vec<_> = readers.into_iter().map(start).collect();
    threads
        .into_iter()
        .map(|thread| thread.join().map_err(|_| anyhow!("a subscriber thread panicked"))?)
        .collect()
}

fn read_to_end<S: Subscribe>(reader: &mut FeedSubscriber<S>, totals: &PublishedTotals) -> Result<()> {
    let mut last_progress = Instant::now();
    loop {
        if reader.read()? > 0 {
            last_progress = Instant::now();
        } else if reader.has_read_all(totals) {
            return Ok(());
        } else if !reader.wait(POLL_INTERVAL)? {
            ensure!(last_progress.elapsed() < TIMEOUT, "no record arrived for {TIMEOUT:?}");
        }
    }
}

fn read_in_tasks<S: Subscribe + 'static>(
    readers: Vec<FeedSubscriber<S>>,
    totals: &PublishedTotals,
) -> Result<Vec<DeliveryTally>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start a Tokio runtime")?;
    let readers: Vec<_> = readers.into_iter().map(|reader| Rc::new(RefCell::new(reader))).collect();
    let tasks = LocalSet::new();
    let reading: Vec<_> =
        readers.iter().map(|reader| tasks.spawn_local(read_loop(Rc::clone(reader)))).collect();
    tasks.block_on(&runtime, wait_until_read(&readers, totals, &reading))?;
    drop((tasks, reading));
    let finish = |reader: Rc<RefCell<FeedSubscriber<S>>>| {
        let reader = Rc::into_inner(reader).context("a subscriber task has not ended")?;
        reader.into_inner().finish(totals)
    };
    readers.into_iter().map(finish).collect()
}

/// Reads until the subscriber fails or the task is dropped. The check for the end is made in `wait_until_read` at
/// intervals, because a check after every read would cost more.
async fn read_loop<S: Subscribe>(reader: Rc<RefCell<FeedSubscriber<S>>>) -> Result<()> {
    loop {
        if reader.borrow_mut().read()? > 0 {
            // Lets the other tasks run before this task continues.
            tokio::task::yield_now().await;
            continue;
        }
        let ready = std::future::poll_fn(|cx| reader.borrow_mut().subscriber().poll_ready(cx));
        if reader.borrow().is_pending() {
            // If no event arrives in time, the loop goes on, so that the subscriber can repeat its request for missing
            // records.
            if let Ok(ready) = tokio::time::timeout(POLL_INTERVAL, ready).await {
                ready?;
            }
        } else {
            ready.await?;
        }
    }
}

async fn wait_until_read<S: Subscribe>(
    readers: &[Rc<RefCell<FeedSubscriber<S>>>],
    totals: &PublishedTotals,
    reading: &[JoinHandle<Result<()>>],
) -> Result<()> {
    let (mut last, mut last_progress) = (0, Instant::now());
    while !readers.iter().all(|reader| reader.borrow().has_read_all(totals)) {
        tokio::time::sleep(POLL_INTERVAL).await;
        ensure!(!reading.iter().any(JoinHandle::is_finished), "a subscriber failed");
        let applied = readers.iter().map(|reader| reader.borrow().applied()).sum();
        if applied != last {
            (last, last_progress) = (applied, Instant::now());
        }
        ensure!(last_progress.elapsed() < TIMEOUT, "no record arrived for {TIMEOUT:?}");
    }
    Ok(())
}
