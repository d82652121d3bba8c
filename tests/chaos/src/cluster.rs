//! A cluster of nodes under test. Each node is a process; proxies form the network between the nodes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use dunlin_replica::protocol::{ReplicaRequest, ReplicaResponse};
use serde_json::Value;

use crate::clocks::Clocks;
use crate::network::ProxyNetwork;
use crate::port;
use crate::process::{PATIENCE, Process};
use crate::replica_client::request_once;
use crate::run::RunSetup;
use crate::terms::HighestTerms;

const RESPONSE_TIMEOUT: Duration = Duration::from_millis(300);
/// After a test has set a node's clock, the clock may differ from the intended time by at most this many seconds.
const CLOCK_ERROR_S_MAX: i64 = 300;

/// A cluster of replicas under test: its processes, clocks and network.
#[derive(Debug)]
pub struct Cluster {
    program: String,
    dir: PathBuf,
    log_bytes: u64,
    addresses: BTreeMap<u64, (SocketAddr, SocketAddr)>,
    running: BTreeMap<u64, Process>,
    /// The ids of the nodes with a disk fault that can end their processes.
    may_end: Vec<u64>,
    /// The highest term that each node has reported.
    terms: HighestTerms,
    clocks: Clocks,
    /// The proxies between the nodes, and between nodes and clients.
    pub network: ProxyNetwork,
}

impl Cluster {
    /// Starts a new cluster of `nodes` nodes.
    pub fn start(setup: &RunSetup, dir: &Path, nodes: u64, log_bytes: u64) -> Result<Cluster> {
        let address = |id: u64| {
            let ip = [127, 0, 0, 10 + id as u8].into();
            (id, (port::free(ip), port::free(ip)))
        };
        let addresses: BTreeMap<_, _> = (1..=nodes).map(address).collect();
        let network = ProxyNetwork::start(&setup.toxiproxy, &addresses)?;
        let clocks = Clocks::start(&setup.clock, dir, network.ids())?;
        let (program, dir) = (setup.replica.clone(), dir.to_owned());
        let (running, may_end, terms) = Default::default();
        let mut cluster =
            Cluster { program, dir, log_bytes, addresses, running, may_end, terms, clocks, network };
        cluster.start_missing();
        cluster.create_group()?;
        Ok(cluster)
    }

    fn create_group(&self) -> Result<()> {
        let members = self.addresses.iter().map(|(id, (peers, _))| (*id, peers.to_string())).collect();
        match request_once(self.addresses[&1].1, &ReplicaRequest::Begin(members), PATIENCE)? {
            ReplicaResponse::Done(_) => {}
            other => bail!("the Raft group could not be created: {other:?}"),
        }
        // Waits for the first leader. If all nodes lost power before the first election, the cluster might not exist
        // afterwards.
        self.leader_within(PATIENCE, None).map(drop).context("the group has no leader")
    }

    /// Starts all nodes that are not running, and waits until they are ready.
    pub fn start_missing(&mut self) {
        for id in self.network.ids().to_vec() {
            if self.running.contains_key(&id) {
                continue;
            }
            let (peers, clients) = self.addresses[&id];
            let dir = self.dir.join(format!("node-{id}"));
            let mut line = self.clocks.command_line(id, &self.program);
            line.extend([id.to_string(), peers.to_string(), clients.to_string(), dir.display().to_string()]);
            line.push(format!("log={}", self.log_bytes));
            let links = self.network.links.iter().filter(|((from, _), _)| *from == id);
            line.extend(links.map(|((_, to), address)| format!("{to}@{address}")));
            let name = format!("replica {id}");
            self.running.insert(id, Process::start(&name, &line[0], &line[1..]));
        }
        for process in self.running.values_mut() {
            // A node that was already running printed its line `READY` earlier.
            if !process.is_ready {
                process.read_until("READY");
                process.is_ready = true;
            }
        }
    }

    /// Kills these nodes, as if their machines lost power.
    pub fn kill(&mut self, ids: &[u64]) -> Result<()> {
        for id in ids {
            if let Some(mut process) = self.running.remove(id) {
                process.kill();
                check_no_panic(*id, &process)?;
            }
        }
        Ok(())
    }

    /// Injects the disk fault that the command `fault` describes into a node. Some disk faults end the node's process.
    pub fn set_disk_fault(&mut self, id: u64, fault: &str) {
        if let Some(process) = self.running.get_mut(&id) {
            process.write_line(&format!("disk {fault}"));
        }
        // Only the faults `tear` and `broken` can end a node.
        if fault.starts_with("tear") || fault == "broken" {
            self.may_end.push(id);
        }
    }

    /// Sets a node's clock to `offset_s` seconds after the true time, and checks that the node sees the changed time.
    pub fn set_clock(&mut self, id: u64, offset_s: i64) -> Result<()> {
        self.clocks.set(id, offset_s).with_context(|| format!("cannot set the clock of node {id}"))?;
        let Ok(ReplicaResponse::Status(status)) =
            request_once(self.addresses[&id].1, &ReplicaRequest::Status, RESPONSE_TIMEOUT)
        else {
            return Ok(());
        };
        let true_s = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() as i64;
        let node_s = status["time_of_day_s"].as_i64().context("the status has no field `time_of_day_s`")?;
        if (node_s - true_s - offset_s).abs() > CLOCK_ERROR_S_MAX {
            bail!("the clock of node {id} was shifted by {offset_s} s, but is off by {} s", node_s - true_s);
        }
        Ok(())
    }

    /// Returns the process of a node; `None` if the node is not running.
    pub fn process(&self, id: u64) -> Option<&Process> {
        self.running.get(&id)
    }

    /// Ends all faults. Stopped processes of nodes continue, and nodes whose process has ended start again.
    pub fn heal(&mut self) -> Result<()> {
        self.network.heal()?;
        self.running.values().for_each(Process::resume);
        for id in self.network.ids().to_vec() {
            self.set_disk_fault(id, "well");
            self.clocks.set(id, 0)?;
        }
        // A fault `tear` takes effect only at the node's next sync. This sync could come after this function has
        // checked which nodes ended, so nodes with such a fault are killed now.
        let may_end = std::mem::take(&mut self.may_end);
        self.kill(&may_end)?;
        self.reap()?;
        self.start_missing();
        Ok(())
    }

    /// Checks that a node has ended only if it has a fault that can end a node.
    pub fn reap(&mut self) -> Result<()> {
        self.terms.check()?;
        for id in self.network.ids().to_vec() {
            let Some(process) = self.running.get_mut(&id) else { continue };
            if let Some(status) = process.exit_status() {
                check_no_panic(id, process)?;
                if !self.may_end.contains(&id) {
                    bail!("replica {id} ended unexpectedly ({status}): {}", process.errors());
                }
                self.running.remove(&id);
            }
        }
        Ok(())
    }

    /// Returns the leader. If several nodes claim to lead, returns the one with the highest term.
    pub fn leader(&self) -> Option<u64> {
        let leaders =
            self.statuses().into_iter().filter(|(id, status)| status["leader"].as_u64() == Some(*id));
        leaders.max_by_key(|(_, status)| status["term"].as_u64()).map(|(id, _)| id)
    }

    /// Waits until a node other than `except` leads, and returns this node. Returns `None` if no other node leads
    /// within `patience`.
    pub fn leader_within(&self, patience: Duration, except: Option<u64>) -> Option<u64> {
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            let leader = self.leader().filter(|leader| Some(*leader) != except);
            if leader.is_some() {
                return leader;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    }

    /// The status of each node that responds.
    pub fn statuses(&self) -> Vec<(u64, Value)> {
        let query =
            |id: &u64| match request_once(self.addresses[id].1, &ReplicaRequest::Status, RESPONSE_TIMEOUT)
                .ok()?
            {
                ReplicaResponse::Status(status) => Some((*id, status)),
                _ => None,
            };
        let statuses: Vec<_> = self.network.ids().iter().filter_map(query).collect();
        statuses.iter().for_each(|(id, status)| self.terms.record(*id, status["term"].as_u64()));
        statuses
    }

    /// Checks that the term of each node has never decreased.
    pub fn check_terms(&self) -> Result<()> {
        self.statuses();
        self.terms.check()
    }

    /// The addresses at which clients reach the nodes directly, without a proxy.
    pub fn addresses(&self) -> BTreeMap<u64, SocketAddr> {
        self.addresses.iter().map(|(id, (_, clients))| (*id, *clients)).collect()
    }
}

fn check_no_panic(id: u64, process: &Process) -> Result<()> {
    let errors = process.errors();
    if errors.contains("panicked") {
        bail!("replica {id} panicked:\n{errors}");
    }
    Ok(())
}
