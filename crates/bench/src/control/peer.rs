//! Starts a cluster of a peer: etcd, or JetStream, which is a part of nats-server. Each node is a process with a data
//! directory on a real disk.
//!
//! All nodes listen on 127.0.0.1 only. Otherwise, they have only the settings that a durable cluster needs. JetStream
//! gets `sync_interval: always`, so that it syncs before each response. etcd does this by default.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use anyhow::{Context, Result};
use dunlin_server::ReservedAddress;

use super::cluster::MeasuredCluster;
use super::work::ControlWorkload;
use crate::child::Child;
use crate::point::{BenchContext, target};
use crate::scratch_disk::ScratchDisk;

/// A running cluster of a peer, such as etcd. Dropping the value kills the nodes.
#[derive(Debug)]
pub struct PeerCluster {
    target: &'static str,
    nodes: Vec<Node>,
    _disk: ScratchDisk,
    _reserved: Vec<ReservedAddress>,
}

#[derive(Debug)]
struct Node {
    program: PathBuf,
    args: Vec<String>,
    endpoint: String,
    child: Child,
}

impl PeerCluster {
    /// Starts the nodes of a peer. Returns before the nodes are ready; the clients wait until the nodes are ready.
    pub fn start(bench: &BenchContext, target: &'static str, count: usize) -> Result<Self> {
        let disk = ScratchDisk::new()?;
        let reserved = reserve_ports(2 * count)?;
        let ports = ports_of(&reserved);
        let (clients, peers) = ports.split_at(count);
        let (name, args_of): (_, &dyn Fn(usize) -> Result<Vec<String>>) = match target {
            target::JETSTREAM => ("nats-server", &|nth| {
                Ok(vec!["--config".to_owned(), nats_config(&disk, clients, peers, nth)?])
            }),
            _ => ("etcd", &|nth| Ok(etcd_args(&disk, clients, peers, nth))),
        };
        let program = bench.peers.program(name)?;
        let node = |nth: usize| {
            let args = args_of(nth)?;
            let child = bench.child.start_program(&program, &args)?;
            let scheme = if target == target::JETSTREAM { "nats" } else { "http" };
            let endpoint = format!("{scheme}://127.0.0.1:{}", clients[nth]);
            anyhow::Ok(Node { program: program.clone(), args, endpoint, child })
        };
        let nodes = (0..count).map(node).collect::<Result<_>>()?;
        Ok(Self { target, nodes, _disk: disk, _reserved: reserved })
    }
}

impl MeasuredCluster for PeerCluster {
    fn endpoints(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.endpoint.clone()).collect()
    }

    fn processes(&self) -> Vec<u32> {
        self.nodes.iter().map(|node| node.child.id()).collect()
    }

    fn clients(&self, bench: &BenchContext, work: &ControlWorkload) -> Result<Child> {
        let work =
            ControlWorkload { store: self.target.to_owned(), endpoints: self.endpoints(), ..work.clone() };
        bench.child.start_program(&bench.peers.program("kv_load")?, &[serde_json::to_string(&work)?])
    }

    fn kill(&mut self, nth: usize) -> Result<()> {
        self.nodes[nth].child.kill()
    }

    fn restart(&mut self, bench: &BenchContext, nth: usize) -> Result<()> {
        let node = &mut self.nodes[nth];
        node.child = bench.child.start_program(&node.program, &node.args)?;
        Ok(())
    }
}

/// Reserves `count` ports of 127.0.0.1. They stay reserved until the result is dropped. Peers get their ports as
/// arguments, because their programs cannot choose a free port and report it.
pub fn reserve_ports(count: usize) -> Result<Vec<ReservedAddress>> {
    let reserve = |_| ReservedAddress::new((Ipv4Addr::LOCALHOST, 0).into());
    (0..count).map(reserve).collect::<Result<_, _>>().context("cannot find free ports")
}

/// Returns the numbers of the reserved ports.
pub fn ports_of(reserved: &[ReservedAddress]) -> Vec<u16> {
    reserved.iter().map(|reserved| reserved.address().port()).collect()
}

fn etcd_args(disk: &ScratchDisk, clients: &[u16], peers: &[u16], nth: usize) -> Vec<String> {
    let url = |port: u16| format!("http://127.0.0.1:{port}");
    let all: Vec<String> =
        peers.iter().enumerate().map(|(nth, port)| format!("n{nth}={}", url(*port))).collect();
    let dir = disk.path().join(format!("n{nth}"));
    [
        ("name", format!("n{nth}")),
        ("data-dir", dir.display().to_string()),
        ("listen-client-urls", url(clients[nth])),
        ("advertise-client-urls", url(clients[nth])),
        ("listen-peer-urls", url(peers[nth])),
        ("initial-advertise-peer-urls", url(peers[nth])),
        ("initial-cluster", all.join(",")),
        ("initial-cluster-state", "new".to_owned()),
        ("log-level", "error".to_owned()),
    ]
    .map(|(name, value)| format!("--{name}={value}"))
    .into()
}

/// Writes the configuration file of the nats-server with index `nth`. Returns the path of the file.
fn nats_config(disk: &ScratchDisk, clients: &[u16], peers: &[u16], nth: usize) -> Result<String> {
    let (path, store) = (disk.path().join(format!("n{nth}.conf")), disk.path().join(format!("n{nth}")));
    let mut text = format!(
        "server_name: n{nth}\nlisten: 127.0.0.1:{}\njetstream {{ store_dir: \"{}\", sync_interval: always }}\n",
        clients[nth],
        store.display()
    );
    if peers.len() > 1 {
        let routes: Vec<String> = peers.iter().map(|port| format!("\"nats://127.0.0.1:{port}\"")).collect();
        text += &format!(
            "cluster {{ name: bench, listen: 127.0.0.1:{}, routes: [{}] }}\n",
            peers[nth],
            routes.join(", ")
        );
    }
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path.display().to_string())
}
