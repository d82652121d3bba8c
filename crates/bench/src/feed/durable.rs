//! Measures publishing to a durable topic that syncs records to disk before it acknowledges them. The journal stores
//! the records of such a topic. For comparison, the journal is measured without a topic.
//!
//! Both measurements store records of 256 bytes on the same disk in the same run, with one fdatasync for every 64
//! records. The publisher sends 64 records and waits for all acknowledgements; the journal writes and syncs blocks of
//! 64 records. At the end all records are read back and checked. A directory in memory is refused.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use dunlin::journal::{CommitLoad, JournalConfig, MeasureError, RealDisk, measure_commits};
use dunlin::topic::{
    AckLevel, DurableOptions, Event, Publish, Retention, Start, Subscribe, SubscribeOptions, TopicConfig,
};
use dunlin::{Config, Node};
use dunlin_client::{Client, ClientOptions};
use dunlin_server::{Server, ServerConfig};

use crate::clock::monotonic_ns;
use crate::payload::{NumberedPayload, ReadExtent};
use crate::point::{MissingPrerequisite, RunSample};
use crate::scratch_disk::ScratchDisk;

/// The size of a record's payload in bytes.
pub const BYTES: usize = 256;
/// The number of records that the publisher sends before it waits for their acknowledgements.
pub const IN_FLIGHT: u64 = 64;
/// The retention in bytes, which is larger than all records of a run.
const HISTORY_BYTES: u64 = 4 << 30;

/// Measures the journal without a topic.
pub fn journal(commits: u64) -> Result<RunSample> {
    let dir = ScratchDisk::new()?;
    let load = CommitLoad { payload_bytes: BYTES, in_flight: IN_FLIGHT as u32, commits };
    let measured = measure_commits(&dir.path().join("log"), &load, JournalConfig::default(), monotonic_ns);
    let mut measured = measured.map_err(|error| match error {
        MeasureError::NotADisk(_) => anyhow::Error::from(MissingPrerequisite(error.to_string())),
        other => other.into(),
    })?;
    Ok(sample(measured.records, measured.elapsed_ns, &mut measured.commits_ns))
}

/// Measures publishing to a durable topic. The publisher is in the node's process or, for transport `tcp`, behind a
/// connection.
pub fn topic(transport: &str, commits: u64) -> Result<RunSample> {
    let dir = ScratchDisk::new()?;
    let (node, _) = Node::open(Config::default(), Arc::new(RealDisk), dir.path())?;
    let durable = DurableOptions { acknowledge: AckLevel::Synced, ..DurableOptions::default() };
    let retention = Retention { bytes: HISTORY_BYTES, ..Retention::default() };
    let config = TopicConfig { durable: Some(durable), retention, ..TopicConfig::default() };
    node.create_topic("durable", config, false)?;
    let (elapsed_ns, mut commits_ns) = if transport == "tcp" {
        let listen = ServerConfig { tcp: vec![([127, 0, 0, 1], 0).into()], ..ServerConfig::default() };
        let server = Server::start(node.clone(), listen)?;
        let client =
            Client::connect(&format!("dunlin://{}", server.tcp_addresses()[0]), ClientOptions::default())?;
        publish(&mut client.publisher("durable")?, commits)?
    } else {
        publish(&mut node.publisher("durable")?, commits)?
    };
    check(&node, commits * IN_FLIGHT)?;
    node.stop();
    Ok(sample(commits * IN_FLIGHT, elapsed_ns, &mut commits_ns))
}

fn publish(publisher: &mut impl Publish, commits: u64) -> Result<(u64, Vec<u64>)> {
    let mut payload = NumberedPayload::new(BYTES);
    let mut commits_ns = Vec::with_capacity(commits as usize);
    let start_ns = monotonic_ns();
    let mut before_ns = start_ns;
    for commit in 0..commits {
        for nth in 0..IN_FLIGHT {
            publisher.send(payload.with_seq(commit * IN_FLIGHT + nth)).context("cannot send a record")?;
        }
        let receipt = publisher
            .flush()
            .context("the record was not stored on disk")?
            .context("the publisher returned no receipt")?;
        ensure!(
            receipt.acknowledged == AckLevel::Synced,
            "unexpected acknowledgement level {:?}",
            receipt.acknowledged
        );
        let after_ns = monotonic_ns();
        commits_ns.push(after_ns - before_ns);
        before_ns = after_ns;
    }
    Ok((before_ns - start_ns, commits_ns))
}

/// Reads all records back, and checks them.
fn check(node: &Node, records: u64) -> Result<()> {
    let options = SubscribeOptions { start: Start::Earliest, ..SubscribeOptions::default() };
    let mut subscriber = node.subscribe("durable", &options)?;
    let (mut read, mut is_intact) = (0, true);
    while subscriber.drain(4_096, |event| match event {
        Event::Record(record) => {
            is_intact &= record.seq() == read + 1 && ReadExtent::All.check(record.payload(), read);
            read += 1;
        }
        Event::Notice(_) => {}
    })? > 0
    {}
    ensure!(is_intact, "a record that was read back differs from the published one");
    ensure!(read == records, "{read} of {records} records were read back");
    Ok(())
}

fn sample(records: u64, elapsed_ns: u64, commits_ns: &mut [u64]) -> RunSample {
    commits_ns.sort_unstable();
    let at = |share: f64| commits_ns.get(((commits_ns.len() as f64 - 1.0) * share) as usize);
    let quantile = |share| at(share).copied();
    RunSample::new()
        .with("msgs_per_s", records as f64 * 1e9 / elapsed_ns.max(1) as f64)
        .with_time("p50_ns", quantile(0.5))
        .with_time("p99_ns", quantile(0.99))
        .with("records", records as f64)
}
