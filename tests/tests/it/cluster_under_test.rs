//! A cluster for tests. Each node of the cluster is a process.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use dunlin_client::{Client, ClientOptions};
use dunlin_server::cluster::{ClusterClient, NodeStatus, init};
use dunlin_system_tests::port;
use dunlin_system_tests::process::{PATIENCE, Process};

use super::processes::role;

/// The interval between two status queries. A shorter interval would be costly, because each query opens a connection
/// to every node.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A node of a [`ClusterUnderTest`], and its process.
pub struct ClusterNode {
    pub process: Process,
    pub number: u64,
    pub dir: PathBuf,
    pub address: String,
    /// The rest of the line that begins with `READY`, with which the node reports that it is ready. The rest consists
    /// of fields `NAME=VALUE`, such as the addresses of the listeners.
    ready: String,
}

impl ClusterNode {
    /// The address of the listener `name`.
    pub fn listener(&self, name: &str) -> String {
        field(&self.ready, name).unwrap_or_else(|| panic!("no {name} in {:?}", self.ready))
    }

    pub fn connect(&self) -> Client {
        let options =
            ClientOptions { name: format!("test of node {}", self.number), ..ClientOptions::default() };
        Client::connect(&format!("dunlin://{}", self.listener("tcp")), options)
            .expect("the node accepts connections")
    }
}

fn field(ready: &str, name: &str) -> Option<String> {
    let value =
        |word: &str| word.split_once('=').filter(|(key, _)| *key == name).map(|(_, value)| value.to_owned());
    ready.split(' ').find_map(value)
}

/// A cluster of node processes, and the directory with their data.
pub struct ClusterUnderTest {
    pub dir: tempfile::TempDir,
    pub members: Vec<ClusterNode>,
}

/// Starts a node, and waits until it is ready. If the node ends before that, returns the node's error.
pub fn start(dir: &Path, address: &str, join: Option<(&str, &Path)>) -> Result<ClusterNode, String> {
    start_with(dir, address, join, &[])
}

/// Like [`start`], but passes the additional arguments `options` to the role `member`.
pub fn start_with(
    dir: &Path,
    address: &str,
    join: Option<(&str, &Path)>,
    options: &[String],
) -> Result<ClusterNode, String> {
    if join.is_none() && !dir.join("cluster").exists() {
        init(dir, address).expect("a cluster begins");
    }
    start_process(dir, address, join, options)
}

/// Starts a node with a directory that already contains a node's data.
pub fn start_existing(dir: &Path, address: &str) -> Result<ClusterNode, String> {
    start_process(dir, address, None, &[])
}

fn start_process(
    dir: &Path,
    address: &str,
    join: Option<(&str, &Path)>,
    options: &[String],
) -> Result<ClusterNode, String> {
    std::fs::create_dir_all(dir).expect("a directory");
    let text = dir.display().to_string();
    let mut arguments = vec!["member".to_owned(), text, address.to_owned()];
    if let Some((join_address, token)) = join {
        arguments.push(format!("join={join_address}"));
        arguments.push(format!("token={}", token.display()));
    }
    arguments.extend_from_slice(options);
    let arguments: Vec<&str> = arguments[1..].iter().map(String::as_str).collect();
    let mut process = role(&format!("member at {address}"), &[&["member"], &arguments[..]].concat());
    match process.line_within(PATIENCE) {
        Some(ready) if ready.starts_with("READY") => {
            let number = field(&ready, "node").expect("a number").parse().expect("a number");
            let address = field(&ready, "cluster").expect("an address");
            Ok(ClusterNode { process, number, dir: dir.to_owned(), address, ready })
        }
        _ => {
            process.wait();
            Err(process.errors())
        }
    }
}

impl ClusterUnderTest {
    /// Starts a cluster of `count` nodes, without additional arguments.
    pub fn of(count: usize) -> ClusterUnderTest {
        let dir = tempfile::tempdir().expect("a directory");
        let first = dir.path().join("1");
        let first_member = start(&first, &port::free().to_string(), None).expect("the first starts");
        let mut cluster = ClusterUnderTest { dir, members: vec![first_member] };
        for number in 2..=count {
            cluster.join(&number.to_string()).expect("the node joins");
        }
        cluster.wait_for_voters(count);
        cluster
    }

    /// Starts a cluster with one node for each entry of `options`. The entry contains the node's additional arguments.
    pub fn with(options: &[Vec<String>]) -> ClusterUnderTest {
        let dir = tempfile::tempdir().expect("a directory");
        let address = || port::free().to_string();
        let first = start_with(&dir.path().join("1"), &address(), None, &options[0]);
        let mut cluster = ClusterUnderTest { dir, members: vec![first.expect("the first starts")] };
        for (number, node_options) in options.iter().enumerate().skip(1) {
            let (token, join_address) = (cluster.token(false), cluster.members[0].address.clone());
            let dir = cluster.dir.path().join((number + 1).to_string());
            let member = start_with(&dir, &address(), Some((&join_address, &token)), node_options);
            cluster.members.push(member.expect("the node joins"));
        }
        cluster.wait_for_voters(options.len());
        cluster
    }

    /// Adds a node, whose directory is named `name`. Returns the node's index in `members`.
    pub fn join(&mut self, name: &str) -> Result<usize, String> {
        self.join_at(name, &port::free().to_string())
    }

    pub fn join_at(&mut self, name: &str, address: &str) -> Result<usize, String> {
        let token = self.token(false);
        let join_address = self.members[0].address.clone();
        let member = start(&self.dir.path().join(name), address, Some((&join_address, &token)))?;
        self.members.push(member);
        Ok(self.members.len() - 1)
    }

    /// Writes a new join token to a file, and returns the file's path. Several nodes can use the token if it is
    /// `reusable`.
    pub fn token(&self, reusable: bool) -> PathBuf {
        let file = self.dir.path().join("token");
        let deadline = Instant::now() + PATIENCE;
        let token = loop {
            match self.client().token(Some(Duration::from_secs(600)), reusable) {
                Ok(token) => break token,
                // The cluster may have no leader at this moment. The loop then repeats the request.
                Err(error) => assert!(Instant::now() < deadline, "no token: {error}"),
            }
        };
        std::fs::write(&file, token.to_string()).expect("a file");
        file
    }

    pub fn client(&self) -> ClusterClient {
        ClusterClient::open(&self.members[0].dir).expect("a node's directory")
    }

    /// Returns the status of each node that responds.
    pub fn statuses(&self) -> Vec<NodeStatus> {
        self.client().survey().into_iter().filter_map(|node| node.status.ok()).collect()
    }

    pub fn wait_until(&self, what: &str, condition: impl Fn(&[NodeStatus]) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let statuses = self.statuses();
            if condition(&statuses) {
                return;
            }
            assert!(Instant::now() < deadline, "timed out waiting until {what}: {statuses:#?}");
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Waits until all nodes are ready and exactly `count` nodes are voters.
    pub fn wait_for_voters(&self, count: usize) {
        self.wait_until(&format!("{count} vote"), |statuses| {
            statuses.len() >= count
                && statuses.iter().all(|status| status.voters.len() == count && status.missing.is_none())
        });
    }

    /// Waits until a node reports that it leads, and returns the index of this node in `members`.
    pub fn leader(&self) -> usize {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let statuses = self.statuses();
            let leader = statuses.iter().find(|status| status.leader == Some(status.node));
            if let Some(leader) = leader
                && let Some(at) = self.members.iter().position(|member| member.number == leader.node)
            {
                return at;
            }
            assert!(Instant::now() < deadline, "no leader: {statuses:#?}");
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Kills a node with SIGKILL and removes it from `members`. Returns the node, so that it can be restarted.
    pub fn kill(&mut self, at: usize) -> ClusterNode {
        let mut member = self.members.remove(at);
        member.process.kill();
        let errors = member.process.errors();
        assert!(!errors.contains("panicked"), "a node panicked:\n{errors}");
        member
    }

    /// Restarts a killed node with its old directory.
    pub fn restart(&mut self, member: &ClusterNode) {
        let member = start(&member.dir, &member.address, None).expect("the node starts again");
        self.members.push(member);
    }

    /// Writes a key through the node with index `at`. Repeats the write until it is acknowledged.
    pub fn put(&mut self, at: usize, key: &str, value: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let response = self.request(at, &format!("put {key} {value}"), &format!("put {key} {value} "));
            if response == "done" {
                return;
            }
            assert!(Instant::now() < deadline, "put {key} {value}: {response}");
        }
    }

    pub fn get(&mut self, at: usize, key: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let response = self.request(at, &format!("get {key}"), &format!("get {key} "));
            if !response.starts_with("refused") {
                return response;
            }
            assert!(Instant::now() < deadline, "get {key}: {response}");
        }
    }

    pub fn request(&mut self, at: usize, line: &str, start: &str) -> String {
        self.members[at].process.write_line(line);
        self.members[at].process.read_until(start)
    }
}
