//! `worker URL kind=KIND [slots=COUNT] [ttl=MS] [work=MS] [die=TEXT]`: a worker that takes `work` ms for each task, and
//! then prints `did TASK TOKEN`. If the payload of a task is TEXT, the worker kills its own process. After a line
//! `drain` on standard input, the worker accepts no new tasks, finishes its tasks, and prints its counts.

use std::io::BufRead;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use dunlin_client::{Client, ClientOptions, TaskUsage, WorkerOptions};

use super::option;

/// Runs until the worker is drained, or until the parent process has ended.
pub fn run(arguments: &[String]) -> Result<()> {
    let slots: u32 = option(arguments, "slots", 4)?;
    let work_duration = Duration::from_millis(option(arguments, "work", 0)?);
    let fatal_payload: String = option(arguments, "die", String::new())?;
    let client = Client::connect(
        &arguments[0],
        ClientOptions { name: "worker".to_owned(), ..ClientOptions::default() },
    )?;
    let options = WorkerOptions {
        name: format!("process {}", std::process::id()),
        kinds: vec![option(arguments, "kind", "work".to_owned())?],
        slots,
        ttl: Duration::from_millis(option(arguments, "ttl", 2_000)?),
        ..WorkerOptions::default()
    };
    let attachment = client.tasks().attach(options)?;
    println!("READY pid={}", std::process::id());
    let drain = Arc::new(AtomicBool::new(false));
    let drain_requested = Arc::clone(&drain);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            drain_requested.fetch_or(line == "drain", Ordering::Relaxed);
        }
        std::process::exit(3);
    });
    std::thread::scope(|scope| {
        for _ in 0..slots {
            scope.spawn(|| {
                while !attachment.is_drained() {
                    if drain.load(Ordering::Relaxed) {
                        attachment.drain();
                    }
                    match attachment.next(Duration::from_millis(20)) {
                        Ok(Some(assigned)) => {
                            if !fatal_payload.is_empty() && assigned.payload() == fatal_payload.as_bytes() {
                                std::process::abort();
                            }
                            std::thread::sleep(work_duration);
                            println!("did {:x} {}", assigned.task(), assigned.token());
                            attachment.complete(
                                &assigned,
                                assigned.payload(),
                                &TaskUsage { run: work_duration, ..TaskUsage::default() },
                            );
                        }
                        Ok(None) => {}
                        Err(error) => {
                            println!("ended {error}");
                            std::process::exit(1);
                        }
                    }
                }
            });
        }
    });
    attachment.flush(Duration::from_secs(30));
    let load = attachment.load();
    println!("drained {} {} {} {}", load.assigned, load.answered, load.stale, load.lost);
    Ok(())
}
