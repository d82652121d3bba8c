//! Measures how many empty tasks per second a cluster can take, assign to workers and complete.
//!
//! `cargo run --release -p dunlin-client --example task_cycles -- URL SUBMITTERS WORKERS SECONDS`
//!
//! Each submitter and each worker has its own connection. A submitter sends several batches before it waits for the
//! first response. A worker takes up to a thousand tasks at once.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dunlin_client::scheduler::{NewTask, TaskCommand};
use dunlin_client::{Client, ClientOptions, TaskUsage, Tasks, WorkerOptions};

type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;

const BATCH: usize = 500;
const IN_FLIGHT: usize = 4;
/// If more tasks than this wait in the queue, submitters pause.
const QUEUED_MAX: u64 = 50_000;
/// The number of tasks that a worker takes at once.
const SLOTS: u32 = 1_000;

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |at: usize, or: u64| arguments.get(at).map_or(Ok(or), |text| text.parse::<u64>());
    let url = arguments.get(1).cloned().unwrap_or_else(|| "dunlin://localhost".to_owned());
    let (submitters, workers, seconds) = (number(2, 1)?, number(3, 1)?, number(4, 10)?);
    let stop = AtomicBool::new(false);
    let connect = || Client::connect(&url, ClientOptions::default()).map(|client| client.tasks());
    let tasks = connect()?;
    std::thread::scope(|scope| {
        let (stop, connect) = (&stop, &connect);
        let submitting = (0..submitters).map(|_| scope.spawn(move || submit(&connect()?, stop)));
        let working = (0..workers).map(|_| scope.spawn(move || work(&connect()?, stop)));
        let running: Vec<_> = submitting.chain(working).collect();
        std::thread::sleep(Duration::from_secs(1));
        let (before, began) = (completed(&tasks), Instant::now());
        std::thread::sleep(Duration::from_secs(seconds));
        let (after, duration) = (completed(&tasks), began.elapsed());
        stop.store(true, Ordering::Relaxed);
        println!("{:.0} tasks/s", (after - before) as f64 / duration.as_secs_f64());
        running.into_iter().filter_map(|thread| thread.join().ok()?.err()).for_each(|why| println!("{why}"));
    });
    Ok(())
}

fn completed(tasks: &Tasks) -> u64 {
    let found = tasks.tenants("bench").ok();
    found.and_then(|found| Some(found.first()?.account.completed)).unwrap_or(0)
}

fn submit(tasks: &Tasks, stop: &AtomicBool) -> Outcome {
    let new: Vec<NewTask<'_>> = (0..BATCH).map(|_| NewTask::new(b"noop", b"")).collect();
    let command = [TaskCommand::Submit { tenant: b"bench", tasks: new }];
    let (mut in_flight, mut sent) = (VecDeque::new(), 0_u64);
    while !stop.load(Ordering::Relaxed) {
        while in_flight.len() < IN_FLIGHT {
            in_flight.push_back(tasks.begin(&command)?);
            sent += 1;
        }
        if let Some(first) = in_flight.pop_front() {
            for answer in first.wait()? {
                answer?;
            }
        }
        if sent.is_multiple_of(64) {
            while tasks.stale().tenants("bench")?[0].queued > QUEUED_MAX && !stop.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
    Ok(())
}

fn work(tasks: &Tasks, stop: &AtomicBool) -> Outcome {
    let options = WorkerOptions { kinds: vec!["noop".to_owned()], slots: SLOTS, ..WorkerOptions::default() };
    let attachment = tasks.attach(options)?;
    while !stop.load(Ordering::Relaxed) {
        let assigned = attachment.next_batch(SLOTS as usize, Duration::from_millis(100))?;
        attachment.complete_all(&assigned, &TaskUsage::default());
    }
    Ok(())
}
