//! The roles that a process of the tests can have, such as node, publisher or subscriber. The first argument names the
//! role.

pub mod crowd;
pub mod failovers;
pub mod member;
pub mod node;
pub mod read;
pub mod space;
pub mod worker;
pub mod write;

use std::io::BufRead;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};

/// Runs the role that the first argument names.
pub fn run(mut arguments: Vec<String>) -> Result<()> {
    if arguments.is_empty() {
        bail!("the first argument, the role, is missing");
    }
    let role = arguments.remove(0);
    match role.as_str() {
        "node" => node::run(&arguments),
        "read" => read::run(&arguments),
        "write" => write::run(&arguments),
        "member" => member::run(&arguments),
        "failovers" => failovers::run(&arguments),
        "crowd" => crowd::run(&arguments),
        "space" => space::run(&arguments),
        "worker" => worker::run(&arguments),
        other => bail!("role `{other}` does not exist"),
    }
}

/// Returns the value of the argument `key=value`, or `default` if this argument is missing.
fn option<T: std::str::FromStr>(arguments: &[String], key: &str, default: T) -> Result<T>
where
    T::Err: std::error::Error + Send + Sync + 'static,
{
    let found = arguments.iter().find_map(|argument| argument.strip_prefix(key)?.strip_prefix('='));
    found.map_or(Ok(default), |text| {
        text.parse().with_context(|| format!("{key}={text} has an invalid value"))
    })
}

/// Returns a flag that becomes true when the test writes `stop` to this process's standard input. If standard input
/// closes, the process exits with code 3 one second later.
fn stop_flag() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if line == "stop" {
                stopped.store(true, Ordering::Relaxed);
            }
        }
        // Standard input has closed, because the test that started this process has ended.
        std::thread::sleep(std::time::Duration::from_secs(1));
        std::process::exit(3);
    });
    stop
}
