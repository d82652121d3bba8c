//! `node ADDRESS [retention=BYTES] [memory=BYTES] [heartbeat=MS] [handshake=MS]`: a node with door tcp.

use anyhow::Result;
use dunlin::{Config, Node};
use dunlin_server::{Server, ServerConfig};

use super::option;

/// Serves until it is killed, or whoever started it is gone.
pub fn run(arguments: &[String]) -> Result<()> {
    crate::limits::raise_open_files();
    let mut config = Config::default();
    config.topic.retention.bytes = option(arguments, "retention", 64 << 10)?;
    config.limits.memory_bytes_max = option(arguments, "memory", config.limits.memory_bytes_max)?;
    let mut doors = ServerConfig { tcp: vec![arguments[0].parse()?], ..ServerConfig::default() };
    doors.limits.heartbeat_ms = option(arguments, "heartbeat", 250)?;
    doors.limits.handshake_ms_max = option(arguments, "handshake", doors.limits.handshake_ms_max)?;
    let server = Server::start(Node::start(config)?, doors)?;
    println!("READY pid={} tcp={}", std::process::id(), server.tcp_addresses()[0]);
    // Until standard input ends.
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    server.stop();
    Ok(())
}
