//! Kills a node with SIGKILL and restarts it. Measures how long subscribers receive nothing, and how long publishers
//! wait.

use std::io::{self, Write};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Result;
use dunlin_cli::console::{Console, grouped};
use dunlin_cli::signals::StopFlag;
use dunlin_cli::table::TextTable;
use serde_json::json;

use super::nodes::DemoNodes;
use super::{ClusterDemoState, PATIENCE, POLL_INTERVAL};

/// How long a killed node stays down.
const DOWNTIME: Duration = Duration::from_millis(1_500);
/// The number of the demo's subscribers that are connected to each node.
const SUBSCRIBERS: u64 = 2;
/// How long the demo waits at most for events at the killed node's subscribers, after the cluster has recovered. A
/// limit is needed, because a subscriber that has read everything receives no more events.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// When the demo kills nodes: a number of kills, or one kill in each interval.
#[derive(Debug, Clone, Copy)]
pub enum KillPlan {
    /// The number of kills, which are spread evenly over the published lines.
    Among(usize),
    /// The interval between two kills, while lines are being published.
    Every(Duration),
}

/// The measured effects of killing one node: how long the cluster and its clients took to recover.
#[derive(Debug)]
pub struct NodeKill {
    node: usize,
    was_leader: bool,
    /// The time from the kill until every node responded and reported all nodes as voters.
    recovery: Duration,
    /// First, the number of subscribers that lost their connection. Second, the longest time for which one of these
    /// subscribers received nothing.
    subscribers: (u64, Duration),
    /// The longest time that a publisher waited for an acknowledgement after the kill.
    publisher_wait: Duration,
}

impl NodeKill {
    /// Kills a node with SIGKILL and restarts it. Waits until the cluster has recovered or the demo is interrupted.
    pub fn at(
        nodes: &mut DemoNodes,
        victim: usize,
        state: &ClusterDemoState,
        stop: &StopFlag,
        print: &dyn Fn(&str) -> Result<()>,
    ) -> Result<NodeKill> {
        let was_leader = nodes.leader() == Some(victim);
        state.reset_waits();
        let killed = Instant::now();
        let pid = nodes.kill(victim);
        let leader_note = if was_leader { ", the leader" } else { "" };
        print(&format!(
            "{}  SIGKILL to node {}{leader_note} (process {pid})",
            lines_text(state),
            victim + 1
        ))?;
        stop.sleep(DOWNTIME);
        nodes.restart(victim)?;
        nodes.wait_complete(PATIENCE, stop)?;
        let recovery = killed.elapsed();
        while !stop.is_set()
            && state.reconnects().0 < SUBSCRIBERS
            && killed.elapsed() < recovery + RECONNECT_TIMEOUT
        {
            std::thread::sleep(POLL_INTERVAL);
        }
        let (subscribers, publisher_wait) = (state.reconnects(), state.waited());
        let kill = NodeKill { node: victim + 1, was_leader, recovery, subscribers, publisher_wait };
        print(&format!("{}  node {} is back: {kill}", lines_text(state), victim + 1))?;
        Ok(kill)
    }

    /// Returns the time from the kill until the cluster had recovered.
    pub fn recovery(&self) -> Duration {
        self.recovery
    }
}

impl std::fmt::Display for NodeKill {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the cluster recovered after {}", seconds(self.recovery))?;
        match self.subscribers {
            (0, _) => f.write_str(", its subscribers noticed nothing")?,
            (_, longest) => write!(f, ", its subscribers were cut off for {}", seconds(longest))?,
        }
        write!(f, ", publishers waited {} at most", seconds(self.publisher_wait))
    }
}

/// Prints the measurements of all kills as a table.
pub fn write(kills: &[NodeKill], out: &mut impl Write, console: &Console) -> io::Result<()> {
    if console.json {
        let object = |kill: &NodeKill| {
            json!({
                "killed": kill.node, "led": kill.was_leader, "healed_s": kill.recovery.as_secs_f64(),
                "subscribers_cut_off": kill.subscribers.0, "subscribers_s": kill.subscribers.1.as_secs_f64(),
                "publishers_s": kill.publisher_wait.as_secs_f64(),
            })
        };
        return kills.iter().try_for_each(|kill| writeln!(out, "{}", object(kill)));
    }
    writeln!(out, "\nNodes that were killed and restarted")?;
    let mut table = TextTable::new(&["KILLED", "RECOVERED", "SUBSCRIBERS CUT OFF", "PUBLISHERS WAITED"]);
    for kill in kills {
        let leader_note = if kill.was_leader { ", the leader" } else { "" };
        table.row([
            format!("node {}{leader_note}", kill.node),
            seconds(kill.recovery),
            if kill.subscribers.0 == 0 { "–".to_owned() } else { seconds(kill.subscribers.1) },
            seconds(kill.publisher_wait),
        ]);
    }
    table.write(out, console.paint)
}

pub fn seconds(span: Duration) -> String {
    format!("{:.1} s", span.as_secs_f64())
}

fn lines_text(state: &ClusterDemoState) -> String {
    format!("{:>9} lines", grouped(state.lines.load(Ordering::Relaxed)))
}
