//! Runs the node of a scenario, in this process or, together with the source of updates, in a process of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use dunlin::topic::{ReducerConfig, Retention, TopicConfig};
use dunlin_feed::{BOOK, Instruments};
use dunlin_server::{Server, ServerConfig};
use serde::{Deserialize, Serialize};

use crate::child::{Child, TIMEOUT};
use crate::feed::scenario::{FeedScenario, MeasuringWindow, WaitMode};
use crate::feed::source::{FeedSource, SourceTotals};
use crate::local::node::LocalNode;
use crate::point::BenchContext;
use crate::role::{RoleArgs, print_line, read_line};

#[derive(Serialize, Deserialize)]
struct Ready {
    url: String,
}

/// A process with a node and with the source that publishes order books to it. Dropping the handle kills the process.
#[derive(Debug)]
pub struct FeedNode {
    child: Child,
    url: String,
}

impl FeedNode {
    /// Starts the process, and waits until the node's listener is open.
    pub fn start(bench: &BenchContext, scenario: &FeedScenario) -> Result<Self> {
        let mut child = bench.child.start("feed-node", &[("scenario", serde_json::to_string(scenario)?)])?;
        let Ready { url } = child.read_line(TIMEOUT)?;
        Ok(Self { child, url })
    }

    /// Returns the URL of the node.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Starts the source, which publishes until the window ends.
    pub fn start_source(&mut self, window: &MeasuringWindow) -> Result<()> {
        self.child.write_line(window)
    }

    /// Returns a field of the file `/proc/PID/status` of the process, such as `VmRSS`, in bytes.
    pub fn memory(&self, field: &str) -> Result<u64> {
        self.child.memory(field)
    }

    /// Waits at most `timeout` until the source has ended, and returns the source's totals.
    pub fn wait_for_totals(&mut self, timeout: Duration) -> Result<SourceTotals> {
        self.child.read_line(timeout)
    }
}

pub(crate) fn serve(args: &RoleArgs) -> Result<()> {
    let scenario: FeedScenario = serde_json::from_str(args.text("scenario")?)
        .context("cannot read the scenario from the parent process")?;
    let instruments = scenario.instruments()?;
    let _pinned = scenario.pin().side(1)?;
    let local_node = create_local_node(&scenario, &instruments)?;
    let spin = scenario.wait == WaitMode::Spin;
    let config = ServerConfig {
        spin,
        // A spinning listener gets only one thread. Two spinning threads would take both cores of a small machine, and
        // leave none to the subscribers.
        threads: usize::from(spin),
        tcp: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))],
        ..ServerConfig::default()
    };
    let server = Server::start(local_node.node().clone(), config).context("cannot open the listeners")?;
    let address = server.tcp_addresses().first().context("the node has no open listener")?;
    print_line(&Ready { url: format!("dunlin://{address}") })?;
    let window: MeasuringWindow = read_line()?;
    let source = FeedSource::new(local_node.node(), &scenario, instruments);
    let publishing = thread::spawn(move || source.run(&window));
    print_line(&publishing.join().map_err(|_| anyhow!("the publishing thread panicked"))??)?;
    loop {
        thread::park();
        // The loop is needed because `park` may return without a reason. `black_box` keeps the server alive.
        std::hint::black_box(&server);
    }
}

/// Creates a node in this process, with one topic for each instrument.
pub fn create_local_node(scenario: &FeedScenario, instruments: &Instruments) -> Result<LocalNode> {
    let local_node = LocalNode::start()?;
    for instrument in instruments.list() {
        let scale = instrument.scale();
        let reducer = ReducerConfig { kind: BOOK.to_owned(), options: scale.options() };
        let (bytes, records) = (scenario.history_bytes, scenario.history_records);
        let retention = Retention { bytes, records, ..Retention::default() };
        let config = TopicConfig { retention, reducer: Some(reducer), ..TopicConfig::default() };
        let topic = instrument.topic();
        local_node
            .node()
            .create_topic(&topic, config, false)
            .with_context(|| format!("cannot create topic {topic}"))?;
    }
    Ok(local_node)
}
