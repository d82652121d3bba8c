//! `node ADDRESS [retention=BYTES] [memory=BYTES] [heartbeat=MS] [handshake=MS] [data=DIR] [nats=ADDRESS]`: a single
//! node with a listener `tcp` at ADDRESS. The argument `nats` adds a listener `nats`. With the argument `data`, the
//! node stores a durable topic `t` in the directory DIR.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use dunlin::journal::RealDisk;
use dunlin::topic::{DurableOptions, Retention, TopicConfig};
use dunlin::{Config, Node};
use dunlin_server::{Server, ServerConfig};

use super::option;

/// Runs the node until its process is killed, or until the parent process has ended.
pub fn run(arguments: &[String]) -> Result<()> {
    crate::limits::raise_open_files();
    let mut config = Config::default();
    config.topic.retention.bytes = option(arguments, "retention", 64 << 10)?;
    config.limits.memory_bytes_max = option(arguments, "memory", config.limits.memory_bytes_max)?;
    let mut listeners = ServerConfig { tcp: vec![arguments[0].parse()?], ..ServerConfig::default() };
    listeners.limits.heartbeat_ms = option(arguments, "heartbeat", 10_000)?;
    listeners.limits.handshake_ms_max = option(arguments, "handshake", listeners.limits.handshake_ms_max)?;
    let nats: String = option(arguments, "nats", String::new())?;
    if !nats.is_empty() {
        listeners.nats.push(nats.parse()?);
    }
    let data: String = option(arguments, "data", String::new())?;
    let node = if data.is_empty() { Node::start(config)? } else { durable(config, Path::new(&data))? };
    let server = Server::start(node.clone(), listeners)?;
    println!("READY pid={} tcp={}", std::process::id(), server.tcp_addresses()[0]);
    // Waits for the end of standard input, which means that the parent process has ended.
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    server.stop();
    node.stop();
    Ok(())
}

/// Opens a node with a durable topic. The topic keeps few records in memory, so that subscribers read many records from
/// disk.
fn durable(config: Config, dir: &Path) -> Result<Node> {
    let (node, _) = Node::open(config, Arc::new(RealDisk), dir)?;
    let durable = DurableOptions { memory_bytes: 64 << 10, ..DurableOptions::default() };
    let retention = Retention { bytes: 1 << 30, ..Retention::default() };
    let config = TopicConfig { durable: Some(durable), retention, ..TopicConfig::default() };
    node.create_topic("t", config, true)?;
    Ok(node)
}
