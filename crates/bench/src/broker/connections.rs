//! Measures how much memory a broker uses for many NATS connections, each with one subscription.
//!
//! After the measurement, each connection receives a few messages. The client checks these messages. If one is missing,
//! the benchmark fails.

use anyhow::{Context, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::clock::monotonic_ns;
use crate::cores::CorePinning;
use crate::options::BenchOptions;
use crate::params::Params;
use crate::point::{BenchContext, Measurement, MeasurementGroup, MissingPrerequisite, RunSample, target};
use crate::pubsub::{Broker, CROWD, SubscribedConnection, fanout, throughput};

const MESSAGES: u64 = 5;
/// The number of open files that a process needs in addition to its connections.
const OTHER_FILES: u64 = 200;

/// Returns the measurements of Dunlin and, if `with_peers` is set, those of nats-server.
pub fn groups(options: &BenchOptions, with_peers: bool) -> Vec<MeasurementGroup> {
    let connections = options.count(10_000, 100);
    let point = |target: &'static str| {
        let params =
            Params::new().with("transport", "nats").with("driver", "raw").with("clients", connections);
        Measurement::new("connections", target, params, move |bench: &BenchContext| {
            measure(bench, target, connections)
        })
    };
    let targets: &[&'static str] =
        if with_peers { &[target::DUNLIN, target::NATS] } else { &[target::DUNLIN] };
    vec![targets.iter().map(|target| point(target)).collect()]
}

fn measure(bench: &BenchContext, target: &str, connections: u64) -> Result<RunSample> {
    raise_file_limit(connections + OTHER_FILES)?;
    let broker = Broker::start(bench, target, CorePinning::Free)?;
    let endpoint = broker.endpoint();
    let idle = broker.memory("VmRSS")?;
    let start_ns = monotonic_ns();
    let mut lanes = (0..connections)
        .map(|_| SubscribedConnection::subscribe(endpoint, CROWD))
        .collect::<Result<Vec<_>>>()?;
    let setup_ns = monotonic_ns() - start_ns;
    let resident = broker.memory("VmRSS")?;
    let start_ns = throughput::publish(endpoint, CROWD, 64, MESSAGES)?;
    let end_ns = fanout::receive(&mut lanes, MESSAGES)?;
    Ok(RunSample::new()
        .with("rss_bytes", resident as f64)
        .with("connection_bytes", resident.saturating_sub(idle) as f64 / connections as f64)
        .with("peak_bytes", broker.memory("VmHWM")? as f64)
        .with("setup_ns", setup_ns as f64)
        .with("deliveries_per_s", (connections * MESSAGES) as f64 * 1e9 / (end_ns - start_ns).max(1) as f64))
}

/// Raises this process's limit of open files to `needed`. Child processes inherit the limit.
fn raise_file_limit(needed: u64) -> Result<()> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let allowed = maximum.unwrap_or(u64::MAX);
    if allowed < needed {
        let reason = format!(
            "the benchmark needs {needed} open files, but the hard limit is {allowed}: see `ulimit -Hn`"
        );
        return Err(MissingPrerequisite(reason).into());
    }
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
        .context("cannot raise the limit of open files")
}
