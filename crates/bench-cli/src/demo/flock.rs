//! The demo on a cluster: the recordings are replayed through real nodes, some of which are killed and
//! restarted during the replay.
//!
//! Each market has a durable topic for its lines, and one for each of its order books. One node accepts a market's
//! records, and every node has a reader of all lines and a replica of all books. Nodes are killed (SIGKILL) one at a
//! time, each after a given share of the lines has been played. Clients of a dead node wait until it has restarted.
//! While a topic's owner is down, the cluster refuses records for the topic; publishers repeat the refused records.
//!
//! At the end, each node's reader must have received every line of the recordings once and in order. Its books must
//! equal those of the [oracle](super::books::Oracle).

mod copy;
mod market;
mod nodes;
mod reader;
mod strike;
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
use market::{MarketPublisher, patiently};
pub use nodes::{DemoNodes, NodeExtras, USUAL_TCP, usual_or_any};
use reader::NodeReaders;
pub use strike::KillPlan;
use strike::{NodeKill, seconds};
use verdict::NodeVerdicts;

/// The longest time without progress before the demo fails. It is long, because the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_millis(20);
/// The number that stands for all lines: shares of the lines are counted in thousandths.
const WHOLE: u64 = 1_000;

/// The options of the demo on a cluster: its recordings, their speed, and when nodes are killed.
pub struct ClusterDemoOptions<'a> {
    pub recordings: &'a [MarketRecording],
    pub speed: Speed,
    pub kills: KillPlan,
}

/// The progress and measurements of the cluster demo, which all of its threads share.
#[derive(Debug, Default)]
pub struct ClusterDemoState {
    /// The share of its lines, in thousandths, up to which each market may play. The next kill happens when all markets
    /// have reached it.
    gate: AtomicU64,
    /// The number of acknowledged lines.
    lines: AtomicU64,
    /// The longest wait of a publisher for an acknowledgement since the last kill, in ns.
    waited_ns: AtomicU64,
    /// The number of readers that reconnected since the last kill.
    readers: AtomicU64,
    /// The longest time in which a reader received nothing since the last kill, in ns.
    silent_ns: AtomicU64,
    /// The reducer configuration of each book. The key is the topic.
    reducers: Mutex<HashMap<String, ReducerConfig>>,
    /// For each topic, the position of its last record. Set when all lines have been played.
    ends: OnceLock<BTreeMap<String, u64>>,
    /// Whether the demo has ended. Threads then stop even if they have not finished.
    over: AtomicBool,
}

impl ClusterDemoState {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    fn end(&self) {
        self.over.store(true, Ordering::Release);
    }

    /// Returns the share of its lines, in thousandths, up to which each market may play.
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

    fn forget_waits(&self) {
        [&self.waited_ns, &self.readers, &self.silent_ns]
            .iter()
            .for_each(|count| count.store(0, Ordering::Relaxed));
    }

    fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited_ns.load(Ordering::Relaxed))
    }

    fn hears_again(&self, silent: Duration) {
        self.silent_ns.fetch_max(silent.as_nanos() as u64, Ordering::Relaxed);
        self.readers.fetch_add(1, Ordering::Relaxed);
    }

    fn cut_off(&self) -> (u64, Duration) {
        let longest = Duration::from_nanos(self.silent_ns.load(Ordering::Relaxed));
        (self.readers.load(Ordering::Relaxed), longest)
    }
}

/// The result of publishing one market.
struct MarketResult {
    /// The number of records of each topic.
    ends: BTreeMap<String, u64>,
    books: Vec<(String, SizeByPrice)>,
}

/// The result of the cluster demo: its kills, and the comparison of lines and books with the recordings.
pub struct ClusterDemoResult {
    strikes: Vec<NodeKill>,
    lines: NodeVerdicts,
    books: BookVerdicts,
    /// The topics that the demo creates.
    topics: Vec<String>,
}

impl ClusterDemoOptions<'_> {
    /// Plays all lines and waits until every reader has received them. Returns `None` if interrupted.
    pub fn run(
        &self,
        nodes: &mut DemoNodes,
        stop: &StopFlag,
        say: &dyn Fn(&str) -> Result<()>,
    ) -> Result<Option<ClusterDemoResult>> {
        let stage = Arc::new(ClusterDemoState::default());
        let urls = nodes.urls();
        let readings: Vec<NodeReaders> = urls.iter().map(|url| NodeReaders::start(url, &stage)).collect();
        let played = std::thread::scope(|scope| {
            let players = self.recordings.iter().enumerate().map(|(at, recording)| {
                let (stage, url, speed) = (&stage, urls[at % urls.len()].as_str(), self.speed);
                // If a market cannot be published, the demo fails and kills no more nodes.
                let play = move || MarketPublisher::new(recording, url, stage)?.play(speed, stop);
                scope.spawn(move || play().inspect_err(|_| stage.end()))
            });
            let players: Vec<_> = players.collect();
            let struck = self.strike(nodes, &stage, stop, say);
            if struck.is_err() || stop.is_set() {
                stage.end();
            }
            stage.set_gate(WHOLE);
            let join = |player: std::thread::ScopedJoinHandle<'_, Result<MarketResult>>| {
                player.join().map_err(|_| anyhow!("a publisher panicked"))?
            };
            let played: Vec<Result<MarketResult>> = players.into_iter().map(join).collect();
            struck.and_then(|strikes| Ok((strikes, played.into_iter().collect::<Result<Vec<_>>>()?)))
        });
        if stop.is_set() {
            stage.end();
            return Ok(None);
        }
        let ended = played.and_then(|(strikes, played)| self.judge(&stage, readings, strikes, played));
        stage.end();
        ended.map(Some)
    }

    /// Kills nodes with SIGKILL at the planned shares of the lines or intervals, and restarts them.
    fn strike(
        &self,
        nodes: &mut DemoNodes,
        stage: &ClusterDemoState,
        stop: &StopFlag,
        say: &dyn Fn(&str) -> Result<()>,
    ) -> Result<Vec<NodeKill>> {
        let all: u64 = self.recordings.iter().map(|recording| recording.len() as u64).sum();
        let played = || stage.lines.load(Ordering::Relaxed);
        let mut strikes = Vec::new();
        if let KillPlan::Every(span) = self.kills {
            stage.set_gate(WHOLE);
            let begun = Instant::now();
            loop {
                let due = span * (strikes.len() as u32 + 1);
                while begun.elapsed() < due && played() < all && !stop.is_set() && !stage.is_over() {
                    std::thread::sleep(LOOK);
                }
                if begun.elapsed() < due || stop.is_set() {
                    return Ok(strikes);
                }
                let victim = self.victim(strikes.len(), nodes);
                strikes.push(NodeKill::at(nodes, victim, stage, stop, say)?);
            }
        }
        let KillPlan::Among(kills) = self.kills else { return Ok(strikes) };
        for kill in 0..kills {
            let share = WHOLE * (kill as u64 + 1) / (kills as u64 + 2);
            stage.set_gate(share + WHOLE / (kills as u64 + 2));
            wait_for("lines", stop, || played() * WHOLE >= all * share, played)?;
            if stop.is_set() {
                break;
            }
            let victim = self.victim(kill, nodes);
            strikes.push(NodeKill::at(nodes, victim, stage, stop, say)?);
        }
        Ok(strikes)
    }

    /// Chooses the node to kill: the leader in every second kill, otherwise another node.
    fn victim(&self, kill: usize, nodes: &DemoNodes) -> usize {
        let leader = if kill.is_multiple_of(2) { nodes.leader() } else { None };
        leader.unwrap_or((kill / 2) % nodes.count())
    }

    fn judge(
        &self,
        stage: &ClusterDemoState,
        readings: Vec<NodeReaders>,
        strikes: Vec<NodeKill>,
        played: Vec<MarketResult>,
    ) -> Result<ClusterDemoResult> {
        let truth: HashMap<String, SizeByPrice> =
            played.iter().flat_map(|market| market.books.clone()).collect();
        let ends: BTreeMap<String, u64> = played.into_iter().flat_map(|market| market.ends).collect();
        // Only this line sets the value.
        let _ = stage.ends.set(ends.clone());
        let deadline = Instant::now() + PATIENCE;
        while !readings.iter().all(NodeReaders::is_finished) && Instant::now() < deadline {
            std::thread::sleep(LOOK);
        }
        stage.end();
        let (mut lines, mut books) = (NodeVerdicts::default(), BookVerdicts::default());
        for (at, reading) in readings.into_iter().enumerate() {
            let name = format!("node {}", at + 1);
            let (copies, told) = reading.join()?;
            lines.judge(&name, self.recordings, &ends, &copies);
            books.judge(&name, &told, &truth);
        }
        Ok(ClusterDemoResult { strikes, lines, books, topics: ends.into_keys().collect() })
    }
}

impl ClusterDemoResult {
    /// Prints the tables of kills, lines and books.
    pub fn write(&self, out: &mut impl Write, console: &Console) -> io::Result<()> {
        self.lines.write(out, console)?;
        self.books.write(out, console)?;
        strike::write(&self.strikes, out, console)
    }

    /// Returns an error if a copy of the lines or a book differs.
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

    /// Returns three closing sentences, about lines, books and nodes, each with whether the result is as expected.
    pub fn sentences(&self) -> [(bool, String); 3] {
        let (lines, books) = (self.lines.different(), self.books.different());
        let healed = self.strikes.iter().map(NodeKill::healed).max().unwrap_or_default();
        [
            (lines == 0, self.lines.sentence()),
            (books == 0, self.books.sentence()),
            (
                // A node that does not recover in time makes the demo fail earlier, so here all killed nodes have
                // recovered.
                !self.strikes.is_empty(),
                format!(
                    "{} nodes killed; after each kill, the cluster recovered within {}",
                    self.strikes.len(),
                    seconds(healed)
                ),
            ),
        ]
    }

    /// Deletes the demo's topics, so that the demo can run again on the same cluster.
    pub fn forget(&self, url: &str) -> Result<()> {
        let options =
            ClientOptions { name: "demo: between two rounds".to_owned(), ..ClientOptions::default() };
        let client = patiently(|| Ok(Client::connect(url, options.clone())?))?;
        self.topics.iter().try_for_each(|topic| patiently(|| delete(&client, topic)))
    }
}

/// Deletes a topic. A missing topic is no error: an earlier call may have deleted it although its response was lost.
fn delete(client: &Client, topic: &str) -> Result<()> {
    match client.delete_topic(topic) {
        Err(CallError::Refused(refused)) if refused.code == ErrorCode::NoTopic => Ok(()),
        outcome => Ok(outcome?),
    }
}

/// Waits for a condition. Returns an error if the result of `moves` does not change for too long.
fn wait_for(what: &str, stop: &StopFlag, is_so: impl Fn() -> bool, moves: impl Fn() -> u64) -> Result<()> {
    let (mut last, mut since) = (moves(), Instant::now());
    while !is_so() && !stop.is_set() {
        if moves() != last {
            (last, since) = (moves(), Instant::now());
        }
        if since.elapsed() > PATIENCE {
            bail!("waited {PATIENCE:?} for {what} without any progress");
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}
