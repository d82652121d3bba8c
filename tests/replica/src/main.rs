//! `replica ID PEERS CLIENTS DIR [ID@ADDRESS…] [log=BYTES]`: a node that replicates the control state. Listens for
//! other nodes at PEERS and for clients at CLIENTS. Each argument ID@ADDRESS stands for another node; this node
//! connects to it at ADDRESS.
//!
//! Lines on standard input set the faults of the node's disk (`disk slow 100`, see `replica::DiskFaults`). Ends with
//! code 7 when raft has stopped.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use dunlin_raft::{GroupHandle, RaftLimits};
use dunlin_replica::{DiskFaults, Links, PowerLossDisk, ReplicaMachine, serve, serve_peers};
use tokio::net::TcpListener;

/// The interval at which the process checks whether raft has stopped.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let id: u64 = arguments[0]
        .parse()
        .with_context(|| format!("the replica's id `{}` is not a number", arguments[0]))?;
    let (peers, clients): (SocketAddr, SocketAddr) = (arguments[1].parse()?, arguments[2].parse()?);
    let peer_address = |argument: &String| {
        let (id, address) = argument.split_once('@')?;
        Some((id.parse().ok()?, address.parse().ok()?))
    };
    let peer_addresses: BTreeMap<u64, SocketAddr> = arguments[4..].iter().filter_map(peer_address).collect();
    let log = arguments[4..].iter().find_map(|argument| argument.strip_prefix("log="));
    let defaults = RaftLimits::default();
    let limits =
        RaftLimits { log_bytes_max: log.map_or(Ok(defaults.log_bytes_max), str::parse)?, ..defaults };
    let faults = Arc::new(DiskFaults::default());
    let disk = Arc::new(PowerLossDisk::new(Arc::clone(&faults)));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let links = runtime.block_on(async { Links::start(peer_addresses) });
    let group =
        GroupHandle::start(id, disk, Path::new(&arguments[3]), ReplicaMachine::default(), links, limits)?;
    let group = Arc::new(group);
    runtime.block_on(async {
        let (peers, clients) = (TcpListener::bind(peers).await?, TcpListener::bind(clients).await?);
        let peer_group = Arc::clone(&group);
        tokio::spawn(serve_peers(peers, move |request| {
            let group = Arc::clone(&peer_group);
            async move { group.receive(request).await }
        }));
        tokio::spawn(serve(clients, Arc::clone(&group)));
        println!("READY");
        std::thread::spawn(move || read_disk_commands(&faults));
        while group.status().stopped.is_none() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        eprintln!("stopped: {:?}", group.status().stopped);
        std::process::exit(7)
    })
}

fn read_disk_commands(faults: &DiskFaults) {
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        if let Some(command) = line.strip_prefix("disk ") {
            faults.apply(command);
        }
    }
    std::process::exit(3);
}
