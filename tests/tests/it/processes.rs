//! The processes of a test: a node, writers (which publish) and readers (which subscribe). The test reads the output of
//! these processes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use dunlin_system_tests::audit::{AuditCounts, ReaderStart, audit};
use dunlin_system_tests::ledger::Ledger;
use dunlin_system_tests::process::{PATIENCE, Process};
use dunlin_system_tests::trace::TraceLine;

/// A short heartbeat interval, for the nodes of tests in which clients must notice that a node has stopped. Other tests
/// use a long interval, because heartbeats may be late on a busy machine.
pub const HEARTBEAT: Duration = Duration::from_millis(250);
/// [`HEARTBEAT`] as an argument of the role `node` (`tests/src/role/node.rs`).
pub const SHORT_HEARTBEAT: &str = "heartbeat=250";

pub fn role(name: &str, arguments: &[&str]) -> Process {
    let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
    Process::start(name, env!("CARGO_BIN_EXE_system-role"), &arguments)
}

/// A node's process, and the address at which the node listens.
pub struct Node {
    pub process: Process,
    pub address: SocketAddr,
}

impl Node {
    pub fn start(address: SocketAddr) -> Node {
        Node::start_with(address, &[])
    }

    /// Starts a node with arguments of the role `node`.
    pub fn start_with(address: SocketAddr, arguments: &[&str]) -> Node {
        let listen = address.to_string();
        let mut process = role("node", &[&["node", &listen], arguments].concat());
        let ready = process.read_until("READY");
        let tcp = ready.split(' ').find_map(|word| word.strip_prefix("tcp="));
        let address = tcp.expect("READY names the address").parse().expect("an address");
        Node { process, address }
    }

    /// Starts a node at any free port, for tests that do not restart the node.
    pub fn start_anywhere(arguments: &[&str]) -> Node {
        Node::start_with(([127, 0, 0, 1], 0).into(), arguments)
    }

    pub fn url(&self) -> String {
        url(self.address)
    }

    /// Kills the node with SIGKILL. Checks that the node was still running, and that it has written no errors.
    pub fn kill(mut self) {
        let status = self.process.exit_status();
        assert_eq!(status, None, "the node ended by itself:\n{}", self.process.errors());
        self.process.kill();
        self.assert_no_errors();
    }

    /// Checks that the node's standard error is empty. A node writes to standard error when a thread panics, when a
    /// listener's thread is blocked for long, or when the node ends with an error.
    pub fn assert_no_errors(&self) {
        let errors = self.process.errors();
        assert!(errors.is_empty(), "the node wrote errors:\n{errors}");
    }
}

pub fn url(address: SocketAddr) -> String {
    format!("dunlin://{address}")
}

/// A process that publishes records, and the ledger of these records.
pub struct Writer {
    pub process: Process,
    pub ledger: Ledger,
    hangs: Vec<String>,
}

impl Writer {
    pub fn start(url: &str, subject: &str, arguments: &[&str]) -> Writer {
        let process = role("writer", &[&["write", url, subject], arguments].concat());
        Writer { process, ledger: Ledger::default(), hangs: Vec::new() }
    }

    /// Kills the writer with SIGKILL. Returns its ledger so far.
    pub fn kill(mut self) -> Ledger {
        self.process.kill();
        for line in self.process.finish(PATIENCE) {
            self.add_line(&line);
        }
        self.ledger
    }

    /// Reads the output that the writer has printed so far, and adds it to the ledger.
    pub fn catch_up(&mut self) {
        for line in self.process.lines_so_far() {
            self.add_line(&line);
        }
    }

    /// Waits until `condition` returns `true` for the ledger.
    pub fn wait_until(&mut self, condition: impl Fn(&Ledger) -> bool) {
        while !condition(&self.ledger) {
            let line = self.process.line_within(PATIENCE).expect("the writer goes on");
            self.add_line(&line);
        }
    }

    /// Waits until `records` more records are acknowledged.
    pub fn wait_for_acks(&mut self, records: usize) {
        let expected = self.ledger.acked.len() + records;
        self.wait_until(|ledger| ledger.acked.len() >= expected);
    }

    /// Tells the writer to publish its last record, and waits until this record is acknowledged. Returns the writer's
    /// ledger.
    pub fn finish(mut self) -> Ledger {
        self.process.write_line("stop");
        self.wait_for_end()
    }

    /// Waits until the writer's last record is acknowledged and its process has ended. Checks that the process ended
    /// without an error, and that none of the writer's calls took too long. Returns the writer's ledger.
    pub fn wait_for_end(mut self) -> Ledger {
        self.wait_until(|ledger| ledger.last.is_some());
        for line in self.process.finish(PATIENCE) {
            self.add_line(&line);
        }
        let status = self.process.wait();
        assert!(status.success(), "the writer ended with {status}:\n{}", self.process.errors());
        assert!(self.hangs.is_empty(), "calls of the writer hung: {:?}", self.hangs);
        self.ledger
    }

    fn add_line(&mut self, line: &str) {
        if line.starts_with("hang") {
            self.hangs.push(line.to_owned());
        }
        self.ledger.add_line(line);
    }
}

/// A process that runs subscribers. The process prints a trace for each subscriber, which the test reads.
pub struct SubscriberProcess {
    pub process: Process,
    traces: BTreeMap<String, Vec<TraceLine>>,
}

impl SubscriberProcess {
    /// Starts the subscribers. Waits until all of them have subscribed.
    pub fn start(url: &str, clients: &[&str]) -> SubscriberProcess {
        let process = role("readers", &[&["read", url], clients].concat());
        let names = clients.iter().flat_map(|client| client.split(','));
        let name = |client: &str| client.split('=').next().unwrap_or_default().to_owned();
        let traces = names.map(|client| (name(client), Vec::new())).collect();
        let mut readers = SubscriberProcess { process, traces };
        while readers.traces.values().any(|trace| !trace.contains(&TraceLine::Up)) {
            let line = readers.process.line_within(PATIENCE).expect("the readers subscribe");
            readers.add_line(&line);
        }
        readers
    }

    fn add_line(&mut self, line: &str) {
        let (name, rest) = line.split_once(' ').expect("a name and what was told");
        self.traces.get_mut(name).expect("a name that was given").push(TraceLine::parse(rest));
    }

    /// Waits until all subscribers have received the last record. Returns the traces.
    pub fn finish(mut self) -> BTreeMap<String, Vec<TraceLine>> {
        while self.traces.values().any(|trace| !trace.contains(&TraceLine::Done)) {
            let Some(line) = self.process.line_within(PATIENCE) else { break };
            self.add_line(&line);
        }
        self.traces
    }
}

/// Audits all traces against the ledger. A subscriber whose name begins with `late` started after the first record.
pub fn audit_all(
    traces: &BTreeMap<String, Vec<TraceLine>>,
    ledger: &Ledger,
) -> BTreeMap<String, AuditCounts> {
    let audited = traces.iter().map(|(name, trace)| {
        let start = if name.starts_with("late") { ReaderStart::Late } else { ReaderStart::First };
        let counts = audit(trace, start, ledger, 1).unwrap_or_else(|error| {
            let lines: Vec<String> = trace.iter().map(TraceLine::to_string).collect();
            panic!("reader {name}: {error}\n{}\nfailed publishes: {:#?}", lines.join("\n"), ledger.failures)
        });
        (name.clone(), counts)
    });
    audited.collect()
}
