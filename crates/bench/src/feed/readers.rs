//! Runs all subscribers of a scenario.
//!
//! A single subscriber has its own thread. Several subscribers are tasks of one thread, unless they are slow on
//! purpose: their sleep would delay the others.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use dunlin::topic::Subscribe;
use tokio::task::{JoinHandle, LocalSet};

use crate::child::PATIENCE;
use crate::feed::reader::{FeedSubscriber, PublishedTotals};
use crate::feed::tally::DeliveryTally;

/// The time between two checks whether all subscribers have finished.
const LOOK: Duration = Duration::from_millis(20);

/// Reads with all subscribers until each has read its topics to their ends.
pub fn read_all<S: Subscribe + Send + 'static>(
    readers: Vec<FeedSubscriber<S>>,
    slow: bool,
    ends: &PublishedTotals,
) -> Result<Vec<DeliveryTally>> {
    if readers.len() == 1 || slow { in_threads(readers, ends) } else { in_tasks(readers, ends) }
}

fn in_threads<S: Subscribe + Send + 'static>(
    readers: Vec<FeedSubscriber<S>>,
    ends: &PublishedTotals,
) -> Result<Vec<DeliveryTally>> {
    let start = |mut reader: FeedSubscriber<S>| {
        let ends = Arc::clone(ends);
        thread::spawn(move || {
            read_to_the_end(&mut reader, &ends)?;
            reader.finish(&ends)
        })
    };
    let threads: Vec<_> = readers.into_iter().map(start).collect();
    threads
        .into_iter()
        .map(|thread| thread.join().map_err(|_| anyhow!("a subscriber thread panicked"))?)
        .collect()
}

fn read_to_the_end<S: Subscribe>(reader: &mut FeedSubscriber<S>, ends: &PublishedTotals) -> Result<()> {
    let mut moved = Instant::now();
    loop {
        if reader.read()? > 0 {
            moved = Instant::now();
        } else if reader.is_through(ends) {
            return Ok(());
        } else if !reader.wait(LOOK)? {
            ensure!(moved.elapsed() < PATIENCE, "no record arrived for {PATIENCE:?}");
        }
    }
}

fn in_tasks<S: Subscribe + 'static>(
    readers: Vec<FeedSubscriber<S>>,
    ends: &PublishedTotals,
) -> Result<Vec<DeliveryTally>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start a Tokio runtime")?;
    let readers: Vec<_> = readers.into_iter().map(|reader| Rc::new(RefCell::new(reader))).collect();
    let tasks = LocalSet::new();
    let reading: Vec<_> =
        readers.iter().map(|reader| tasks.spawn_local(read_on(Rc::clone(reader)))).collect();
    tasks.block_on(&runtime, until_through(&readers, ends, &reading))?;
    drop((tasks, reading));
    let finish = |reader: Rc<RefCell<FeedSubscriber<S>>>| {
        let reader = Rc::into_inner(reader).context("a subscriber task has not ended")?;
        reader.into_inner().finish(ends)
    };
    readers.into_iter().map(finish).collect()
}

/// Reads until the subscriber fails. Another thread checks whether all is read, because that costs less.
async fn read_on<S: Subscribe>(reader: Rc<RefCell<FeedSubscriber<S>>>) -> Result<()> {
    loop {
        if reader.borrow_mut().read()? > 0 {
            // Lets the other tasks run before this one continues.
            tokio::task::yield_now().await;
            continue;
        }
        let ready = std::future::poll_fn(|cx| reader.borrow_mut().subscriber().poll_ready(cx));
        if reader.borrow().is_pending() {
            // If no event arrives in this time, the loop continues, so that the subscriber repeats a pending request.
            if let Ok(ready) = tokio::time::timeout(LOOK, ready).await {
                ready?;
            }
        } else {
            ready.await?;
        }
    }
}

async fn until_through<S: Subscribe>(
    readers: &[Rc<RefCell<FeedSubscriber<S>>>],
    ends: &PublishedTotals,
    reading: &[JoinHandle<Result<()>>],
) -> Result<()> {
    let (mut last, mut moved) = (0, Instant::now());
    while !readers.iter().all(|reader| reader.borrow().is_through(ends)) {
        tokio::time::sleep(LOOK).await;
        ensure!(!reading.iter().any(JoinHandle::is_finished), "a subscriber failed");
        let applied = readers.iter().map(|reader| reader.borrow().applied()).sum();
        if applied != last {
            (last, moved) = (applied, Instant::now());
        }
        ensure!(moved.elapsed() < PATIENCE, "no record arrived for {PATIENCE:?}");
    }
    Ok(())
}
