//! The demo on a cluster. The recordings are published through the nodes of a real cluster. During the publication,
//! nodes are killed and restarted.
//!
//! Each market has one durable topic for its lines, and one durable topic for each of its order books. All records of a
//! market are published through one node. At every node, one reader receives all lines, and a replica keeps all books.
//! Nodes are killed (SIGKILL) one at a time. Clients of a dead node wait until it has restarted. While a topic's owner
//! is down, the cluster refuses records for the topic; publishers repeat the refused records.
//!
//! At the end, each node's reader must have received every line of the recordings once and in order. Each node's
//! replica must have the books that the [oracle](super::books::ExpectedBooks) computes.

mod market;
mod node_kill;
mod nodes;
mod progress;
mod reader;
mod verdict;

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use dunlin_cli::commands::demo::Speed;
use dunlin_cli::console::Console;
use dunlin_cli::signals::StopFlag;
use dunlin_client::{CallError, Client, ClientOptions};
use dunlin_topic::ReducerConfig;
use dunlin_wire::ErrorCode;

use super::books::{ReplicaVerdicts as BookVerdicts, SizeByPrice};
use super::recording::MarketRecording;
use market::{MarketPublisher, retry};
pub use node_kill::KillPlan;
use node_kill::{NodeKill, seconds};
pub use nodes::{DEFAULT_TCP_PORT, DemoNodeServices, DemoNodes, reserve_or_any_port};
use reader::NodeReaders;
use verdict::NodeVerdicts;

/// The longest time without progress before the demo fails. The time is long, because the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(90);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The value of `ClusterDemoState::gate` with which all lines may be published: a thousand thousandths.
const ALL_LINES: u64 = 1_000;

/// The options of the demo on a cluster: its recordings, their speed, and when nodes are killed.
pub struct ClusterDemoOptions<'a> {
    pub recordings: &'a [MarketRecording],
    pub speed: Speed,
    pub kills: KillPlan,
}

/// The progress and the measurements of the demo on a cluster. All threads of the demo share them.
#[derive(Debug, Default)]
pub struct ClusterDemoState {
    /// The share of its lines, in thousandths, that each market may publish before the next kill. A market that reaches
    /// this share waits until the kill is over and the share has been raised.
    gate: AtomicU64,
    /// The number of lines that the nodes have acknowledged.
    lines: AtomicU64,
    /// The longest time in ns that a publisher has waited for an acknowledgement since the last kill.
    waited_ns: AtomicU64,
    /// The number of readers that have reconnected since the last kill.
    readers: AtomicU64,
    /// The longest time in ns during which a reader received nothing since the last kill.
    silent_ns: AtomicU64,
    /// The configuration of each book's reducer, by topic.
    reducers: Mutex<HashMap<String, ReducerConfig>>,
    /// The sequence number of each topic's last record. Set when all lines have been played.
    ends: OnceLock<BTreeMap<String, u64>>,
    /// Whether the demo has ended. The threads stop when this flag is set, even if lines or records remain.
    has_ended: AtomicBool,
}

impl ClusterDemoState {
    fn is_over(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
    }

    /// Returns the share of lines, in thousandths, that each market may publish now.
    fn gate(&self) -> u64 {
        self.gate.load(Ordering::Acquire)
    }

    fn set_gate(&self, share: u64) {
        self.gate.store(share, Ordering::Release);
    }

    fn reducer(&self, topic: &str) -> ReducerConfig {
        self.reducers.lock().unwrap_or_else(PoisonError::into_inner).get(topic).cloned().unwrap_or_default()
    }

    fn set_reducer(&self, topic: &str, reducer: ReducerConfig) {
        self.reducers.lock().unwrap_or_else(PoisonError::into_inner).insert(topic.to_owned(), reducer);
    }

    fn reset_waits(&self) {
        [&self.waited_ns, &self.readers, &self.silent_ns]
            .iter()
            .for_each(|count| count.store(0, Ordering::Relaxed));
    }

    fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited_ns.load(Ordering::Relaxed))
    }

    fn record_reconnect(&self, silent: Duration) {
        self.silent_ns.fetch_max(silent.as_nanos() as u64, Ordering::Relaxed);
        self.readers.fetch_add(1, Ordering::Relaxed);
    }

    fn reconnects(&self) -> (u64, Duration) {
        let longest = Duration::from_nanos(self.silent_ns.load(Ordering::Relaxed));
        (self.readers.load(Ordering::Relaxed), longest)
    }
}

/// The result of publishing one market: the number of records in each topic, and the expected books.
struct MarketResult {
    /// The number of records in each topic.
    ends: BTreeMap<String, u64>,
    books: Vec<(String, SizeByPrice)>,
}

/// The result of the cluster demo: the kills of nodes, and whether the received lines and order books equal those of
/// the recordings.
pub struct ClusterDemoResult {
    node_kills: Vec<NodeKill>,
    lines: NodeVerdicts,
    books: BookVerdicts,
    /// The topics that the demo has created.
    topics: Vec<String>,
}

impl ClusterDemoOptions<'_> {
    /// Publishes all lines and waits until every reader has received them. Returns `None` if interrupted.
    pub fn run(
        &self,
        nodes: &mut DemoNodes,
        stop: &StopFlag,
        print: &dyn Fn(&str) -> Result<()>,
    ) -> Result<Option<ClusterDemoResult>> {
        let state = Arc::new(ClusterDemoState::default());
        let urls = nodes.urls();
        let readers: Vec<NodeReaders> = urls.iter().map(|url| NodeReaders::start(url, &state)).collect();
        let played = std::thread::scope(|scope| {
            let players = self.recordings.iter().enumerate().map(|(at, recording)| {
                let (state, url, speed) = (&state, urls[at % urls.len()].as_str(), self.speed);
                // If a market cannot be published, the whole demo ends, and no more nodes are killed.
                let play = move || MarketPublisher::new(recording, url, state)?.play(speed, stop);
                scope.spawn(move || play().inspect_err(|_| state.end()))
            });
            let players: Vec<_> = players.collect();
            let kill_outcome = self.kill_nodes(nodes, &state, stop, print);
            if kill_outcome.is_err() || stop.is_set() {
                state.end();
            }
            state.set_gate(ALL_LINES);
            let join = |player: std::thread::ScopedJoinHandle<'_, Result<MarketResult>>| {
                player.join().map_err(|_| anyhow!("a publisher panicked"))?
            };
            let played: Vec<Result<MarketResult>> = players.into_iter().map(join).collect();
            kill_outcome
                .and_then(|node_kills| Ok((node_kills, played.into_iter().collect::<Result<Vec<_>>>()?)))
        });
        if stop.is_set() {
            state.end();
            return Ok(None);
        }
        let ended = played.and_then(|(node_kills, played)| self.judge(&state, readers, node_kills, played));
        state.end();
        ended.map(Some)
    }

    /// Kills nodes with SIGKILL and restarts them. The [`KillPlan`] determines when: after certain shares of the lines,
    /// or at a fixed interval.
    fn kill_nodes(
        &self,
        nodes: &mut DemoNodes,
        state: &ClusterDemoState,
        stop: &StopFlag,
        print: &dyn Fn(&str) -> Result<()>,
    ) -> Result<Vec<NodeKill>> {
        let all: u64 = self.recordings.iter().map(|recording| recording.len() as u64).sum();
        let played = || state.lines.load(Ordering::Relaxed);
        let mut node_kills = Vec::new();
        if let KillPlan::Every(span) = self.kills {
            state.set_gate(ALL_LINES);
            let started = Instant::now();
            loop {
                let due = span * (node_kills.len() as u32 + 1);
                while started.elapsed() < due && played() < all && !stop.is_set() && !state.is_over() {
                    std::thread::sleep(POLL_INTERVAL);
                }
                if started.elapsed() < due || stop.is_set() {
                    return Ok(node_kills);
                }
                let victim = victim(node_kills.len(), nodes.leader(), nodes.count());
                node_kills.push(NodeKill::at(nodes, victim, state, stop, print)?);
            }
        }
        let KillPlan::Among(kills) = self.kills else { return Ok(node_kills) };
        for kill in 0..kills {
            let share = ALL_LINES * (kill as u64 + 1) / (kills as u64 + 2);
            state.set_gate(share + ALL_LINES / (kills as u64 + 2));
            wait_for("lines", stop, || played() * ALL_LINES >= all * share, played)?;
            if stop.is_set() {
                break;
            }
            let victim = victim(kill, nodes.leader(), nodes.count());
            node_kills.push(NodeKill::at(nodes, victim, state, stop, print)?);
        }
        Ok(node_kills)
    }

    fn judge(
        &self,
        state: &ClusterDemoState,
        readers: Vec<NodeReaders>,
        node_kills: Vec<NodeKill>,
        played: Vec<MarketResult>,
    ) -> Result<ClusterDemoResult> {
        let expected_books: HashMap<String, SizeByPrice> =
            played.iter().flat_map(|market| market.books.clone()).collect();
        let ends: BTreeMap<String, u64> = played.into_iter().flat_map(|market| market.ends).collect();
        // `set` fails only if `ends` already has a value. No other code sets one.
        let _ = state.ends.set(ends.clone());
        let deadline = Instant::now() + PATIENCE;
        while !readers.iter().all(NodeReaders::is_finished) && Instant::now() < deadline {
            std::thread::sleep(POLL_INTERVAL);
        }
        state.end();
        let (mut lines, mut books) = (NodeVerdicts::default(), BookVerdicts::default());
        for (at, reader) in readers.into_iter().enumerate() {
            let name = format!("node {}", at + 1);
            let (by_topic, book_result) = reader.join()?;
            lines.judge(&name, self.recordings, &ends, &by_topic);
            books.judge(&name, &book_result, &expected_books);
        }
        Ok(ClusterDemoResult { node_kills, lines, books, topics: ends.into_keys().collect() })
    }
}

impl ClusterDemoResult {
    /// Prints the tables of kills, lines and books.
    pub fn write(&self, out: &mut impl Write, console: &Console) -> io::Result<()> {
        self.lines.write(out, console)?;
        self.books.write(out, console)?;
        node_kill::write(&self.node_kills, out, console)
    }

    /// Returns an error if the lines or the books that a node delivered are wrong.
    pub fn check(&self) -> Result<()> {
        match (self.lines.different(), self.books.different()) {
            (0, 0) => Ok(()),
            (lines, books) => {
                bail!(
                    "{lines} copies differ from their recordings, and the order books of {books} nodes are wrong"
                )
            }
        }
    }

    /// Returns three closing sentences: about the lines, the books and the nodes. The flag before each sentence is
    /// `true` if that result is good.
    pub fn result_sentences(&self) -> [(bool, String); 3] {
        let (lines, books) = (self.lines.different(), self.books.different());
        let recovery = self.node_kills.iter().map(NodeKill::recovery).max().unwrap_or_default();
        [
            (lines == 0, self.lines.sentence()),
            (books == 0, self.books.sentence()),
            (
                // A node that does not recover in time ends the demo with an error, so here all killed nodes have
                // recovered.
                !self.node_kills.is_empty(),
                format!(
                    "{} nodes killed; after each kill, the cluster recovered within {}",
                    self.node_kills.len(),
                    seconds(recovery)
                ),
            ),
        ]
    }

    /// Deletes the demo's topics, so that the demo can run again on the same cluster.
    pub fn delete_topics(&self, url: &str) -> Result<()> {
        let options =
            ClientOptions { name: "demo: between two rounds".to_owned(), ..ClientOptions::default() };
        let client = retry(|| Ok(Client::connect(url, options.clone())?))?;
        self.topics.iter().try_for_each(|topic| retry(|| delete(&client, topic)))
    }
}

/// Chooses the node to kill. Every second kill hits the leader; the kills in between go through the other nodes in
/// turn. If no node leads, the kill hits the next node in turn.
fn victim(kill: usize, leader: Option<usize>, nodes: usize) -> usize {
    let next = (kill / 2) % nodes;
    match leader {
        Some(leader) if kill.is_multiple_of(2) => leader,
        Some(leader) if leader == next => (next + 1) % nodes,
        _ => next,
    }
}

/// Deletes a topic. A missing topic is not an error: an earlier call may have deleted the topic although its response
/// was lost.
fn delete(client: &Client, topic: &str) -> Result<()> {
    match client.delete_topic(topic) {
        Err(CallError::Refused(refused)) if refused.code == ErrorCode::NoTopic => Ok(()),
        outcome => Ok(outcome?),
    }
}

/// Waits until `condition` returns `true`. Returns an error if the value of `progress` stays the same for [`PATIENCE`].
fn wait_for(
    what: &str,
    stop: &StopFlag,
    condition: impl Fn() -> bool,
    progress: impl Fn() -> u64,
) -> Result<()> {
    let (mut last, mut since) = (progress(), Instant::now());
    while !condition() && !stop.is_set() {
        if progress() != last {
            (last, since) = (progress(), Instant::now());
        }
        if since.elapsed() > PATIENCE {
            bail!("waited {PATIENCE:?} for {what} without any progress");
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leader_and_another_node_are_killed_alternately() {
        for (nodes, leader) in [(2, 0), (2, 1), (3, 0), (3, 1), (3, 2)] {
            for kill in 0..12 {
                let victim = victim(kill, Some(leader), nodes);
                let hits_leader = kill.is_multiple_of(2);
                assert_eq!(victim == leader, hits_leader, "kill {kill}, {nodes} nodes, leader {leader}");
                assert!(victim < nodes);
            }
        }
        assert_eq!([0, 1, 2, 3, 4, 5, 6].map(|kill| victim(kill, None, 3)), [0, 0, 1, 1, 2, 2, 0]);
        assert_eq!(victim(1, Some(0), 1), 0);
    }
}
