//! The node of a scenario: in this process, or in one of its own with its source.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use dunlin::topic::{FoldConfig, Retention, TopicConfig};
use dunlin_feed::{BOOK, Instruments};
use dunlin_server::{Server, ServerConfig};
use serde::{Deserialize, Serialize};

use crate::child::{Child, PATIENCE};
use crate::feed::scenario::{Scenario, Waiting, Window};
use crate::feed::source::{Published, Source};
use crate::local::stand::Stand;
use crate::point::Bench;
use crate::role::{RoleArgs, hear, say};

#[derive(Serialize, Deserialize)]
struct Ready {
    url: String,
}

/// A node in another process, gone when dropped.
#[derive(Debug)]
pub struct FeedNode {
    child: Child,
    url: String,
}

impl FeedNode {
    /// Starts it, and waits until its doors are open.
    pub fn start(bench: &Bench, scenario: &Scenario) -> Result<Self> {
        let mut child = bench.child.start("feed-node", &[("scenario", serde_json::to_string(scenario)?)])?;
        let Ready { url } = child.line(PATIENCE)?;
        Ok(Self { child, url })
    }

    /// Where it is reached.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Lets its source begin.
    pub fn begin(&mut self, window: &Window) -> Result<()> {
        self.child.tell(window)
    }

    /// What the kernel says of its memory, bytes.
    pub fn memory(&self, field: &str) -> Result<u64> {
        self.child.memory(field)
    }

    /// What its source has published, once it has ended.
    pub fn published(&mut self, patience: Duration) -> Result<Published> {
        self.child.line(patience)
    }
}

/// The node's process.
pub(crate) fn serve(args: &RoleArgs) -> Result<()> {
    let scenario: Scenario = serde_json::from_str(args.text("scenario")?).context("reading the scenario")?;
    let instruments = scenario.instruments()?;
    let _pinned = scenario.pin().side(1)?;
    let stand = stand(&scenario, &instruments)?;
    let spin = scenario.wait == Waiting::Spin;
    let config = ServerConfig {
        spin,
        // Two threads that spin would take both cores of a small machine from the readers.
        threads: usize::from(spin),
        tcp: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))],
        ..ServerConfig::default()
    };
    let server = Server::start(stand.node().clone(), config).context("opening the doors")?;
    let address = server.tcp_addresses().first().context("no door is open")?;
    say(&Ready { url: format!("dunlin://{address}") })?;
    let window: Window = hear()?;
    let source = Source::new(stand.node(), &scenario, instruments);
    let publishing = thread::spawn(move || source.run(&window));
    say(&publishing.join().map_err(|_| anyhow!("the publishing thread panicked"))??)?;
    loop {
        thread::park();
        // Parking may end for no reason; the node stays open all the same.
        std::hint::black_box(&server);
    }
}

/// A node with a topic for each instrument.
pub fn stand(scenario: &Scenario, instruments: &Instruments) -> Result<Stand> {
    let stand = Stand::start()?;
    for instrument in instruments.list() {
        let scale = instrument.scale();
        let fold = FoldConfig { kind: BOOK.to_owned(), options: scale.options() };
        let (bytes, records) = (scenario.history_bytes, scenario.history_records);
        let retention = Retention { bytes, records, ..Retention::default() };
        let config = TopicConfig { retention, fold: Some(fold), ..TopicConfig::default() };
        let topic = instrument.topic();
        stand.node().create_topic(&topic, config, false).with_context(|| format!("making topic {topic}"))?;
    }
    Ok(stand)
}
