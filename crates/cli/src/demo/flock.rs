//! The demo over a cluster: the same recordings, replayed through real nodes that are killed and started again meanwhile.
//!
//! Each market is a durable topic of its lines and one of each of its order books. A market is published through one node, and
//! every node has a reader of all lines and a replica of all books. Nodes are killed (SIGKILL) one at a time, whoever leads
//! and whoever owns what, at given shares of the lines, so that each kill falls among them. Whoever is connected to a node that is
//! gone waits for it; whoever publishes to a topic whose owner is gone is refused, and goes on when it is back.
//!
//! In the end each node's copies have to be the truth: the lines the recording's, in order and once each, the books the
//! [oracle](super::books::Oracle)'s.

mod copy;
mod market;
mod nodes;
mod reader;
mod verdict;

use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use dunlin_topic::FoldConfig;

use super::books::{Levels, Verdicts as BookVerdicts};
use super::recording::Recording;
use super::schedule::Speed;
use crate::console::{Console, grouped, lasting};
use crate::signals::Stop;
use market::Market;
use nodes::Nodes;
use reader::Reading;
use verdict::Verdicts;

/// How long a killed node stays away.
const AWAY: Duration = Duration::from_millis(1_500);
/// How long nothing may go on, on a machine that is busy with something else.
const PATIENCE: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_millis(20);
/// Shares of the lines are counted in these.
const WHOLE: u64 = 1_000;

/// What is played, on how many nodes.
pub struct Show<'a> {
    pub recordings: &'a [Recording],
    pub speed: Speed,
    pub nodes: usize,
    pub kills: usize,
}

/// What everybody of a show knows.
#[derive(Debug, Default)]
pub struct Stage {
    /// Up to this share of its lines each market may go: the next kill falls there.
    gate: AtomicU64,
    /// Lines that were acknowledged.
    lines: AtomicU64,
    /// The longest that a publisher waited for an acknowledgement, ns.
    waited_ns: AtomicU64,
    /// How each book's topic keeps its state.
    folds: Mutex<HashMap<String, FoldConfig>>,
    /// Where every topic ended, once all is played.
    ends: OnceLock<BTreeMap<String, u64>>,
    /// It is over, whoever is not done.
    over: AtomicBool,
}

impl Stage {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// How far each market may go.
    fn gate(&self) -> u64 {
        self.gate.load(Ordering::Acquire)
    }

    fn fold(&self, topic: &str) -> FoldConfig {
        self.folds.lock().unwrap_or_else(PoisonError::into_inner).get(topic).cloned().unwrap_or_default()
    }

    fn set_fold(&self, topic: &str, fold: FoldConfig) {
        self.folds.lock().unwrap_or_else(PoisonError::into_inner).insert(topic.to_owned(), fold);
    }
}

/// What a market's topics came to.
struct Played {
    /// Records of each topic.
    ends: BTreeMap<String, u64>,
    books: Vec<(String, Levels)>,
}

impl Show<'_> {
    /// Everything from the first node to the table; an error if a copy is not true.
    pub fn run(&self, console: &Console, stop: &Stop) -> Result<()> {
        let mut nodes = Nodes::start(self.nodes)?;
        let say = |text: &str| -> Result<()> {
            match console.json {
                true => Ok(writeln!(std::io::stderr(), "{text}")?),
                false => Ok(writeln!(std::io::stdout(), "{text}")?),
            }
        };
        say(&format!("a cluster of {}: {}", self.nodes, nodes.urls().join(", ")))?;
        let stage = Arc::new(Stage::default());
        let readings: Vec<Reading> = nodes.urls().iter().map(|url| Reading::start(url, &stage)).collect();
        let urls = nodes.urls();
        let played = std::thread::scope(|scope| {
            let players = self.recordings.iter().enumerate().map(|(at, recording)| {
                let (stage, url, speed) = (&stage, urls[at % urls.len()].as_str(), self.speed);
                scope.spawn(move || Market::new(recording, url, stage)?.play(speed, stop))
            });
            let players: Vec<_> = players.collect();
            let struck = self.strike(&mut nodes, &stage, stop, &say);
            if struck.is_err() {
                stage.over.store(true, Ordering::Release);
            }
            stage.gate.store(WHOLE, Ordering::Release);
            let join = |player: std::thread::ScopedJoinHandle<'_, Result<Played>>| {
                player.join().map_err(|_| anyhow!("a publisher panicked"))?
            };
            let played: Result<Vec<Played>> = players.into_iter().map(join).collect();
            struck.and(played)
        });
        let ended = played.and_then(|played| self.judge(&stage, readings, played, console));
        stage.over.store(true, Ordering::Release);
        drop(nodes);
        ended
    }

    /// Kills nodes, each when its share of the lines is played, and starts them again.
    fn strike(
        &self,
        nodes: &mut Nodes,
        stage: &Stage,
        stop: &Stop,
        say: &impl Fn(&str) -> Result<()>,
    ) -> Result<()> {
        let all: u64 = self.recordings.iter().map(|recording| recording.len() as u64).sum();
        for kill in 0..self.kills {
            let share = WHOLE * (kill as u64 + 1) / (self.kills as u64 + 2);
            stage.gate.store(share + WHOLE / (self.kills as u64 + 2), Ordering::Release);
            wait_for(
                "lines",
                stop,
                || stage.lines.load(Ordering::Relaxed) * WHOLE >= all * share,
                || stage.lines.load(Ordering::Relaxed),
            )?;
            if stop.is_set() {
                return Ok(());
            }
            // Every other one is whoever leads.
            let leader = if kill % 2 == 0 { nodes.leader() } else { None };
            let victim = leader.unwrap_or((kill / 2) % self.nodes);
            let lines = grouped(stage.lines.load(Ordering::Relaxed));
            let what = if leader.is_some() { ", which leads" } else { "" };
            let pid = nodes.kill(victim);
            say(&format!("{lines:>9} lines  SIGKILL to node {}{what} (process {pid})", victim + 1))?;
            stop.sleep(AWAY);
            nodes.restart(victim)?;
            nodes.wait_whole(PATIENCE)?;
            let lines = grouped(stage.lines.load(Ordering::Relaxed));
            say(&format!("{lines:>9} lines  node {} is back", victim + 1))?;
        }
        Ok(())
    }

    fn judge(
        &self,
        stage: &Stage,
        readings: Vec<Reading>,
        played: Vec<Played>,
        console: &Console,
    ) -> Result<()> {
        let truth: HashMap<String, Levels> = played.iter().flat_map(|market| market.books.clone()).collect();
        let ends: BTreeMap<String, u64> = played.into_iter().flat_map(|market| market.ends).collect();
        // Nobody else sets it.
        let _ = stage.ends.set(ends.clone());
        let deadline = Instant::now() + PATIENCE;
        while !readings.iter().all(Reading::is_finished) && Instant::now() < deadline {
            std::thread::sleep(LOOK);
        }
        stage.over.store(true, Ordering::Release);
        let (mut lines, mut books) = (Verdicts::default(), BookVerdicts::default());
        for (at, reading) in readings.into_iter().enumerate() {
            let name = format!("node {}", at + 1);
            let (copies, told) = reading.join()?;
            lines.judge(&name, self.recordings, &ends, &copies);
            books.judge(&name, &told, &truth);
        }
        let mut out = console.out();
        lines.write(&mut out, console)?;
        books.write(&mut out, console)?;
        if !console.json {
            let waited = lasting(Duration::from_nanos(stage.waited_ns.load(Ordering::Relaxed)));
            writeln!(out, "{} kills; the longest that a publisher waited: {waited}", self.kills)?;
        }
        out.flush()?;
        match (lines.different(), books.different()) {
            (0, 0) => Ok(()),
            (lines, books) => {
                bail!(
                    "{lines} copies of lines are not the recording, the books of {books} nodes are not the oracle's"
                )
            }
        }
    }
}

/// Waits until something is so, or it is to stop; an error when nothing of `moves` has moved for too long.
fn wait_for(what: &str, stop: &Stop, is_so: impl Fn() -> bool, moves: impl Fn() -> u64) -> Result<()> {
    let (mut last, mut since) = (moves(), Instant::now());
    while !is_so() && !stop.is_set() {
        if moves() != last {
            (last, since) = (moves(), Instant::now());
        }
        if since.elapsed() > PATIENCE {
            bail!("no {what} for {PATIENCE:?}");
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}
