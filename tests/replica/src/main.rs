//! `replica ID PEERS CLIENTS DIR [ID@ADDRESS…] [log=BYTES]`: a node of the control state. Listens for other
//! nodes at PEERS and for clients at CLIENTS, and connects to the other nodes at the given addresses.
//!
//! Standard input sets the faults of its disk (`disk slow 100`, see `replica::DiskFaults`). Ends with code 7 when
//! raft has stopped.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use dunlin_raft::{GroupHandle, RaftLimits};
use dunlin_replica::{DiskFaults, Links, PowerDisk, Replica, answer_peers, serve};
use tokio::net::TcpListener;

/// The interval at which the process checks whether raft has stopped.
const LOOK: Duration = Duration::from_millis(20);

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let id: u64 = arguments[0].parse().context("a number")?;
    let (peers, clients): (SocketAddr, SocketAddr) = (arguments[1].parse()?, arguments[2].parse()?);
    let way = |argument: &String| {
        let (id, address) = argument.split_once('@')?;
        Some((id.parse().ok()?, address.parse().ok()?))
    };
    let ways: BTreeMap<u64, SocketAddr> = arguments[4..].iter().filter_map(way).collect();
    let log = arguments[4..].iter().find_map(|argument| argument.strip_prefix("log="));
    let defaults = RaftLimits::default();
    let limits =
        RaftLimits { log_bytes_max: log.map_or(Ok(defaults.log_bytes_max), str::parse)?, ..defaults };
    let orders = Arc::new(DiskFaults::default());
    let disk = Arc::new(PowerDisk::new(Arc::clone(&orders)));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let links = runtime.block_on(async { Links::start(ways) });
    let group = GroupHandle::start(id, disk, Path::new(&arguments[3]), Replica::default(), links, limits)?;
    let group = Arc::new(group);
    runtime.block_on(async {
        let (peers, clients) = (TcpListener::bind(peers).await?, TcpListener::bind(clients).await?);
        let asked = Arc::clone(&group);
        tokio::spawn(answer_peers(peers, move |request| {
            let group = Arc::clone(&asked);
            async move { group.receive(request).await }
        }));
        tokio::spawn(serve(clients, Arc::clone(&group)));
        println!("READY");
        std::thread::spawn(move || obey(&orders));
        while group.status().stopped.is_none() {
            tokio::time::sleep(LOOK).await;
        }
        eprintln!("stopped: {:?}", group.status().stopped);
        std::process::exit(7)
    })
}

fn obey(orders: &DiskFaults) {
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        if let Some(order) = line.strip_prefix("disk ") {
            orders.take(order);
        }
    }
    std::process::exit(3);
}
