//! The nodes of the demo's cluster. Each node is a process that runs `dunlin serve`. The demo kills nodes, and restarts
//! each killed node with its previous addresses and directory. The ports of a dead node stay reserved, so that no other
//! program takes them. When this process ends or is killed, the nodes' standard input closes, and the nodes end.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use dunlin_server::ReservedAddress;
use dunlin_server::cluster::{ClusterClient, NodeStatus, init};

use dunlin_cli::signals::StopFlag;

const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How long to wait until all nodes of a new cluster are voters.
const VOTERS_TIMEOUT: Duration = Duration::from_secs(60);

/// The default port of listener `tcp`.
pub const DEFAULT_TCP_PORT: u16 = 4220;
const DEFAULT_HTTP_PORT: u16 = 8222;

/// The period after which the demo's load repeats. The autoscaler forecasts the load with this period.
const SEASON: &str = "1m";

/// Optional services of the demo's nodes: the dashboard, and task workers.
#[derive(Debug, Clone, Default)]
pub struct DemoNodeServices {
    /// Whether the nodes serve the dashboard. The first node then uses the default ports, if they are free.
    pub dashboard: bool,
    /// First, the command that starts a worker. Second, the lowest and the highest number of workers of each node, such
    /// as `1..2`.
    pub workers: Option<(String, String)>,
}

/// The node processes of the demo's cluster. They can be killed and restarted.
pub struct DemoNodes {
    base: PathBuf,
    extras: DemoNodeServices,
    nodes: Vec<Node>,
}

struct Node {
    dir: PathBuf,
    tcp: ReservedAddress,
    http: Option<ReservedAddress>,
    cluster: ReservedAddress,
    child: Option<Child>,
}

impl DemoNodes {
    /// Starts a cluster of `count` nodes. The nodes store their data in a temporary directory.
    pub fn start(count: usize, extras: DemoNodeServices, stop: &StopFlag) -> Result<DemoNodes> {
        let base = std::env::temp_dir().join(format!("dunlin-demo-{}", std::process::id()));
        std::fs::create_dir_all(&base).with_context(|| format!("cannot create {}", base.display()))?;
        let mut nodes = DemoNodes { base, extras, nodes: Vec::new() };
        for number in 1..=count {
            let dir = nodes.base.join(format!("node-{number}"));
            std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
            let uses_default_ports = nodes.extras.dashboard && number == 1;
            let listener = |preferred: u16| {
                if uses_default_ports { reserve_or_any_port(preferred) } else { reserve_any_port() }
            };
            let tcp = listener(DEFAULT_TCP_PORT)?;
            let http = nodes.extras.dashboard.then(|| listener(DEFAULT_HTTP_PORT)).transpose()?;
            let node = Node { dir, tcp, http, cluster: reserve_any_port()?, child: None };
            nodes.nodes.push(node);
            nodes.restart(number - 1).with_context(|| format!("node {number} did not start"))?;
        }
        nodes.wait_complete(VOTERS_TIMEOUT, stop)?;
        Ok(nodes)
    }

    /// Returns the number of nodes, including dead ones.
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the URL of the first node's dashboard.
    pub fn dashboard(&self) -> Option<String> {
        Some(format!("http://{}/", self.nodes.first()?.http.as_ref()?.address()))
    }

    /// Returns the URLs at which clients connect to the nodes.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(|node| format!("dunlin://{}", node.tcp.address())).collect()
    }

    /// Kills a node with SIGKILL. Returns the id of the killed process; 0 if the node is not running.
    pub fn kill(&mut self, at: usize) -> u32 {
        let Some(mut child) = self.nodes[at].child.take() else { return 0 };
        let pid = child.id();
        let _ = child.kill();
        let _ = child.wait();
        pid
    }

    /// Starts a node, for the first time or after a kill.
    pub fn restart(&mut self, at: usize) -> Result<()> {
        if at == 0 && self.nodes.iter().all(|node| !node.dir.join("cluster").exists()) {
            let first = &self.nodes[0];
            init(&first.dir, &first.cluster.address().to_string())?;
        }
        let join = match at > 0 && !self.nodes[at].dir.join("cluster").exists() {
            true => Some((self.nodes[0].cluster.address(), self.token()?)),
            false => None,
        };
        let join = join.as_ref().map(|(join_address, token)| (*join_address, token.as_path()));
        let child = self.nodes[at].start(join, self.extras.workers.as_ref())?;
        self.nodes[at].child = Some(child);
        Ok(())
    }

    fn token(&self) -> Result<PathBuf> {
        let (file, client) = (self.base.join("token"), ClusterClient::open(&self.nodes[0].dir)?);
        std::fs::write(&file, client.token(Some(Duration::from_secs(60)), false)?.to_string())?;
        Ok(file)
    }

    /// Returns the status of each node that responds.
    fn statuses(&self) -> Vec<NodeStatus> {
        let client = self.nodes.iter().find_map(|node| ClusterClient::open(&node.dir).ok());
        let survey = client.map(|client| client.survey()).unwrap_or_default();
        survey.into_iter().filter_map(|node| node.status.ok()).collect()
    }

    /// Returns the index of the node that leads the cluster; `None` if no node leads.
    pub fn leader(&self) -> Option<usize> {
        let statuses = self.statuses();
        let leads = statuses.iter().filter(|status| status.leader == Some(status.node));
        // Nodes get the ids 1, 2, 3 and so on in the order in which they join.
        leads.max_by_key(|status| status.term).map(|status| status.node as usize - 1)
    }

    /// Waits until every node responds, reports all nodes as voters, and is ready. Fails if this takes longer than
    /// `patience`. Returns early if the demo is interrupted.
    pub fn wait_complete(&self, patience: Duration, stop: &StopFlag) -> Result<()> {
        let deadline = Instant::now() + patience;
        loop {
            if stop.is_set() {
                return Ok(());
            }
            let statuses = self.statuses();
            let is_complete =
                |status: &NodeStatus| status.voters.len() == self.nodes.len() && status.missing.is_none();
            if statuses.len() == self.nodes.len() && statuses.iter().all(is_complete) {
                return Ok(());
            }
            if Instant::now() > deadline {
                let errors =
                    self.nodes.iter().map(|node| std::fs::read_to_string(node.errors()).unwrap_or_default());
                let errors: Vec<String> = errors.collect();
                bail!(
                    "the nodes did not form a complete cluster within {patience:?}: {statuses:#?}\n{}",
                    errors.join("\n")
                );
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

impl Node {
    fn start(&self, join: Option<(SocketAddr, &Path)>, workers: Option<&(String, String)>) -> Result<Child> {
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let mut command = Command::new(program);
        command.args(["serve", "--end-with-stdin", "--data-dir"]).arg(&self.dir);
        let (tcp, cluster) = (self.tcp.address(), self.cluster.address());
        command.args(["--listen", &tcp.to_string(), "--cluster-listen", &cluster.to_string()]);
        if let Some(http) = &self.http {
            command.args(["--http-listen", &http.address().to_string()]);
        }
        if let Some((command_line, scale)) = workers {
            command.args(["--workers", command_line, "--scale", scale, "--scale-season", SEASON]);
        }
        if let Some((join_address, token)) = join {
            command.args(["--join", &join_address.to_string(), "--cluster-token-file"]).arg(token);
        }
        // The node has its own process group, so Ctrl-C reaches only this process. This process then ends the nodes.
        command.process_group(0);
        let errors = std::fs::OpenOptions::new().create(true).append(true).open(self.errors())?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let mut child = command.spawn().context("cannot start the node's process")?;
        let mut ready = String::new();
        BufReader::new(child.stdout.take().context("the program's standard output is not piped")?)
            .read_line(&mut ready)?;
        if !ready.starts_with("READY ") {
            let _ = child.kill();
            let status = child.wait()?;
            let errors = std::fs::read_to_string(self.errors()).unwrap_or_default();
            bail!(
                "the node at {tcp} printed {:?} instead of READY, and ended: {status}\n{errors}",
                ready.trim()
            );
        }
        Ok(child)
    }

    /// Returns the path of the file to which the node's standard error is written.
    fn errors(&self) -> PathBuf {
        self.dir.with_extension("errors")
    }
}

impl Drop for DemoNodes {
    fn drop(&mut self) {
        for at in 0..self.nodes.len() {
            self.kill(at);
        }
        // If the removal fails, the directory stays where it is, among the system's temporary files.
        let _ = std::fs::remove_dir_all(&self.base);
    }
}

/// Reserves a random free port.
fn reserve_any_port() -> Result<ReservedAddress> {
    ReservedAddress::new((Ipv4Addr::LOCALHOST, 0).into()).context("no free port")
}

/// Reserves port `preferred`, or a random free port if another program uses `preferred`.
pub fn reserve_or_any_port(preferred: u16) -> Result<ReservedAddress> {
    ReservedAddress::new((Ipv4Addr::LOCALHOST, preferred).into()).or_else(|_| reserve_any_port())
}
