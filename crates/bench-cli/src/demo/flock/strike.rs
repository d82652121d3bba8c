//! Stops a node with SIGKILL, restarts it, and measures how long subscribers receive nothing and publishers wait.

use std::io::{self, Write};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Result;
use dunlin_cli::console::{Console, grouped};
use dunlin_cli::signals::StopFlag;
use dunlin_cli::table::TextTable;
use serde_json::json;

use super::nodes::DemoNodes;
use super::{ClusterDemoState, LOOK, PATIENCE};

/// How long a killed node stays down.
const AWAY: Duration = Duration::from_millis(1_500);
/// The number of the demo's subscribers at each node.
const SUBSCRIBERS: u64 = 2;
/// How long to wait until disconnected subscribers have reconnected. Readers that have read everything receive nothing
/// more.
const SUBSCRIBERS_WITHIN: Duration = Duration::from_secs(10);

/// The plan by which the demo kills nodes: a number of kills, or an interval between kills.
#[derive(Debug, Clone, Copy)]
pub enum KillPlan {
    /// This number of kills, spread evenly over the lines.
    Among(usize),
    /// One kill in each interval of this duration, while lines are being played.
    Every(Duration),
}

/// Measurements of one kill of a node: how long the cluster and its clients took to recover.
#[derive(Debug)]
pub struct NodeKill {
    node: usize,
    led: bool,
    /// The time from the kill until all nodes responded again with all members.
    healed: Duration,
    /// The number of subscribers that were disconnected, and the longest time in which one of them received nothing.
    subscribers: (u64, Duration),
    /// The longest time that a publisher waited for an acknowledgement after the kill.
    writers: Duration,
}

impl NodeKill {
    /// Stops a node with SIGKILL and waits until the cluster is restored, or the demo is interrupted.
    pub fn at(
        nodes: &mut DemoNodes,
        victim: usize,
        stage: &ClusterDemoState,
        stop: &StopFlag,
        say: &dyn Fn(&str) -> Result<()>,
    ) -> Result<NodeKill> {
        let led = nodes.leader() == Some(victim);
        stage.forget_waits();
        let killed = Instant::now();
        let pid = nodes.kill(victim);
        let leads = if led { ", the leader" } else { "" };
        say(&format!("{}  SIGKILL to node {}{leads} (process {pid})", lines(stage), victim + 1))?;
        stop.sleep(AWAY);
        nodes.restart(victim)?;
        nodes.wait_whole(PATIENCE, stop)?;
        let healed = killed.elapsed();
        while !stop.is_set()
            && stage.cut_off().0 < SUBSCRIBERS
            && killed.elapsed() < healed + SUBSCRIBERS_WITHIN
        {
            std::thread::sleep(LOOK);
        }
        let (subscribers, writers) = (stage.cut_off(), stage.waited());
        let strike = NodeKill { node: victim + 1, led, healed, subscribers, writers };
        say(&format!("{}  node {} is back: {strike}", lines(stage), victim + 1))?;
        Ok(strike)
    }

    /// The time from the kill until the cluster was restored.
    pub fn healed(&self) -> Duration {
        self.healed
    }
}

impl std::fmt::Display for NodeKill {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the cluster recovered after {}", seconds(self.healed))?;
        match self.subscribers {
            (0, _) => f.write_str(", its subscribers noticed nothing")?,
            (_, longest) => write!(f, ", its subscribers were cut off for {}", seconds(longest))?,
        }
        write!(f, ", publishers waited {} at most", seconds(self.writers))
    }
}

/// Prints the measurements of all kills as a table.
pub fn write(strikes: &[NodeKill], out: &mut impl Write, console: &Console) -> io::Result<()> {
    if console.json {
        let object = |strike: &NodeKill| {
            json!({
                "killed": strike.node, "led": strike.led, "healed_s": strike.healed.as_secs_f64(),
                "subscribers_cut_off": strike.subscribers.0, "subscribers_s": strike.subscribers.1.as_secs_f64(),
                "publishers_s": strike.writers.as_secs_f64(),
            })
        };
        return strikes.iter().try_for_each(|strike| writeln!(out, "{}", object(strike)));
    }
    writeln!(out, "\nNodes that were killed and restarted")?;
    let mut table = TextTable::new(&["KILLED", "RECOVERED", "SUBSCRIBERS CUT OFF", "PUBLISHERS WAITED"]);
    for strike in strikes {
        let led = if strike.led { ", the leader" } else { "" };
        table.row([
            format!("node {}{led}", strike.node),
            seconds(strike.healed),
            if strike.subscribers.0 == 0 { "–".to_owned() } else { seconds(strike.subscribers.1) },
            seconds(strike.writers),
        ]);
    }
    table.write(out, console.paint)
}

pub fn seconds(span: Duration) -> String {
    format!("{:.1} s", span.as_secs_f64())
}

fn lines(stage: &ClusterDemoState) -> String {
    format!("{:>9} lines", grouped(stage.lines.load(Ordering::Relaxed)))
}
