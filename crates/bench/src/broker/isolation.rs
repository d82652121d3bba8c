//! Measures how one client that overloads the node (the offender) affects other clients. These other clients are a
//! publisher and a subscriber that exchange 1,000 records a second through the same listener.
//!
//! There are several kinds of offender. For example, one kind publishes as fast as possible, but the node limits it to
//! 10,000 records a second. Another kind publishes as fast as possible without a limit.
//!
//! Each figure is the median of five pairs of runs (`--quick`: one pair). A pair is a run without the offender, and
//! then a run with it. Noise that lasts longer than a pair affects both runs of the pair alike. The offender is a
//! process on the same cores, so the kernel's work for the offender also slows the other clients down.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use dunlin_server::Protocol;

use super::use_cases::{UseCase, run};
use crate::child::{Child, TIMEOUT};
use crate::options::BenchOptions;
use crate::params::Params;
use crate::point::{BenchContext, Measurement, MeasurementGroup, RunSample, target};
use crate::protocols::node::{ListenerNode, NodeSetup, TopicSetup};
use crate::protocols::route::{TOPIC, nats_ends};
use crate::pubsub::{Broker, BrokerEndpoint, RawClient};
use crate::role::{RoleArgs, print_line};
use crate::stats::Summary;

const KINDS: [&str; 4] = ["flood", "flood_unlimited", "never_reads", "slow_loris"];
/// The token with which the measured publisher and subscriber log in. The users file contains the token's SHA-256.
const OTHERS_TOKEN: &str = "dunlin_bench_others";
/// The token with which the offender logs in. The users file contains the token's SHA-256.
const OFFENDER_TOKEN: &str = "dunlin_bench_offender";
const USERS: &str = "[users.others]
tokens = [\"sha256:511a65ec0ff4206933eb4e5fc2d46513ac63eb1b8ca105732e839286fb1be2ad\"]
publish = [\">\"]
subscribe = [\">\"]
[users.offender]
tokens = [\"sha256:eec43214b33beb8f28dd5513cbcd023da552749efcb3d2db63a1be9f268fc469\"]
publish = [\">\"]
subscribe = [\">\"]
";
const LIMITS: &str = "[users.offender.limits]\npublish_records_per_s = 10000\n";
const OTHERS: UseCase =
    UseCase { name: "others", per_s: 1_000, limit: Duration::from_millis(5), durable: false };
const PAIRS: u64 = 5;
const RECORDS: u64 = 500;
/// The subject to which the offender publishes.
const OFFENDED: &str = "offended";
const HISTORY_BYTES: u64 = 64 << 20;
/// How long the offender runs before the measurement starts.
const SETTLE: Duration = Duration::from_millis(100);

/// Returns one group of measurements for each kind of offender.
pub fn groups(options: &BenchOptions) -> Vec<MeasurementGroup> {
    let (pairs, records) = (options.count(PAIRS, 1), options.count(RECORDS, 50));
    let point = |kind: &'static str| {
        let params = Params::new()
            .with("transport", "nats")
            .with("driver", "raw")
            .with("rate", OTHERS.per_s)
            .with("offender", kind);
        Measurement::new("isolation", target::DUNLIN, params, move |bench: &BenchContext| {
            measure(bench, kind, pairs, records)
        })
    };
    KINDS.map(|kind| vec![point(kind)]).into()
}

fn measure(bench: &BenchContext, kind: &str, pairs: u64, records: u64) -> Result<RunSample> {
    let topics =
        vec![TopicSetup::volatile(TOPIC, HISTORY_BYTES), TopicSetup::volatile(OFFENDED, HISTORY_BYTES)];
    let protocols = vec![Protocol::Nats.name().to_owned()];
    let limits = if kind == "flood_unlimited" { "" } else { LIMITS };
    let users = Some(format!("{USERS}{limits}"));
    let node = ListenerNode::start(bench, &NodeSetup { protocols, topics, users, ..NodeSetup::default() })?;
    let endpoint = Broker::nats_listener(&node)?.with_token(OTHERS_TOKEN);
    let mut sampled: Vec<(RunSample, RunSample)> = Vec::new();
    for _ in 0..pairs {
        let alone = measure_others(endpoint, records)?;
        let offender = start_offender(bench, kind, endpoint)?;
        let beside = measure_others(endpoint, records)?;
        drop(offender);
        sampled.push((alone, beside));
    }
    let median = |of: &dyn Fn(&(RunSample, RunSample)) -> Option<f64>| {
        let values: Vec<f64> = sampled.iter().filter_map(of).collect();
        Summary::of(&values).map(|summary| summary.median)
    };
    let times = |metric: &'static str| {
        move |(alone, beside): &(RunSample, RunSample)| {
            Some(beside.get(metric)? / alone.get(metric)?.max(1.0))
        }
    };
    Ok(RunSample::new()
        .with("pairs", sampled.len() as f64)
        .with_optional("alone_p50_ns", median(&|(alone, _)| alone.get("p50_ns")))
        .with_optional("p50_ns", median(&|(_, beside)| beside.get("p50_ns")))
        .with_optional("p50_times_alone", median(&times("p50_ns")))
        .with_optional("alone_p99_ns", median(&|(alone, _)| alone.get("p99_ns")))
        .with_optional("p99_ns", median(&|(_, beside)| beside.get("p99_ns")))
        .with_optional("p99_times_alone", median(&times("p99_ns"))))
}

/// Measures the publisher and the subscriber once. Opens new connections for them.
fn measure_others(endpoint: BrokerEndpoint, records: u64) -> Result<RunSample> {
    let (source, sink) = nats_ends(endpoint)?;
    run(source, sink, &OTHERS, records, || ())
}

fn start_offender(bench: &BenchContext, kind: &str, endpoint: BrokerEndpoint) -> Result<Child> {
    let args = [("kind", kind.to_owned()), ("address", endpoint.address.to_string())];
    let mut child = bench.child.start("broker-offender", &args)?;
    child.read_line::<()>(TIMEOUT).context("the offending client did not start")?;
    thread::sleep(SETTLE);
    Ok(child)
}

/// The main function of the offender's process, which runs until it is killed.
pub fn run_offender(args: &RoleArgs) -> Result<()> {
    let endpoint = BrokerEndpoint::nats(args.get("address")?).with_token(OFFENDER_TOKEN);
    match args.text("kind")? {
        "flood" | "flood_unlimited" => flood(endpoint),
        "never_reads" => subscribe_without_reading(endpoint),
        "slow_loris" => send_slowly(endpoint),
        unknown => bail!("unknown offender `{unknown}`"),
    }
}

const FLOOD_BYTES: usize = 64;
const FLOOD_WRITE: usize = 64 * 1024;

/// Publishes without a pause, as fast as the node reads.
fn flood(endpoint: BrokerEndpoint) -> Result<()> {
    let mut client = RawClient::connect(endpoint)?;
    let mut message = endpoint.dialect.publish_head(OFFENDED, FLOOD_BYTES);
    message.extend_from_slice(&[b'x'; FLOOD_BYTES]);
    message.extend_from_slice(b"\r\n");
    let write = message.repeat(FLOOD_WRITE / message.len());
    print_line(&())?;
    loop {
        client.send(&write)?;
    }
}

const LARGE_BYTES: usize = 64 * 1024;
const LARGE_PAUSE: Duration = Duration::from_millis(2);

/// Publishes large records, and opens a subscription that matches these records but never reads. When the node has
/// closed the subscriber's connection, opens a new one.
fn subscribe_without_reading(endpoint: BrokerEndpoint) -> Result<()> {
    let mut publisher = RawClient::connect(endpoint)?;
    let mut message = endpoint.dialect.publish_head(OFFENDED, LARGE_BYTES);
    message.extend_from_slice(&[b'x'; LARGE_BYTES]);
    message.extend_from_slice(b"\r\n");
    let subscribe = || -> Result<RawClient> {
        let mut client = RawClient::connect(endpoint)?;
        client.subscribe(OFFENDED)?;
        Ok(client)
    };
    let mut reader = subscribe()?;
    print_line(&())?;
    for nth in 1_u64.. {
        publisher.send(&message)?;
        thread::sleep(LARGE_PAUSE);
        // The node closes the connection of a subscriber that does not read. A write to the closed connection fails.
        if nth.is_multiple_of(64) && reader.send(b"PING\r\n").is_err() {
            reader = subscribe()?;
        }
    }
    Ok(())
}

const TRICKLES: usize = 200;
const TRICKLE_BYTES: usize = 100_000;
const TRICKLE_PAUSE: Duration = Duration::from_millis(100);

/// Opens 200 connections. Each of them sends records endlessly, one byte at a time.
fn send_slowly(endpoint: BrokerEndpoint) -> Result<()> {
    let mut clients = (0..TRICKLES)
        .map(|_| {
            let mut client = RawClient::connect_small(endpoint, 16 * 1024)?;
            client.send(&endpoint.dialect.publish_head(OFFENDED, TRICKLE_BYTES))?;
            Ok(client)
        })
        .collect::<Result<Vec<_>>>()?;
    print_line(&())?;
    loop {
        clients.iter_mut().try_for_each(|client| client.send(b"x"))?;
        thread::sleep(TRICKLE_PAUSE);
    }
}
