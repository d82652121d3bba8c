//! The command `demo --together`: runs all parts of the demo on one cluster of three nodes. The command repeatedly
//! kills a node and restarts it.

mod narrator;
mod work;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use dunlin_cli::commands::demo::Speed;
use dunlin_cli::console::Console;
use dunlin_cli::outcome::CommandRefusal;
use dunlin_cli::signals::StopFlag;

use crate::demo::flock::{self, DemoNodeServices, DemoNodes, KillPlan};
use crate::demo::{ReplaySource, world};
use narrator::{ClosingReport, DemoEventPrinter};
pub use work::TaskDemoProgram;

const NODES: usize = 3;
/// The limits for the number of workers of one node: from 1 to 2.
const WORKERS: &str = "1..2";
/// The limits for the number of workers of the whole cluster: from 3 to 6.
const WORKERS_ALL: &str = "3..6";
/// With `--once`: how long a round takes, and the time from one kill of a node to the next.
const ONCE: (Duration, Duration) = (Duration::from_secs(100), Duration::from_secs(30));
/// Without `--once`: how long a round takes, and the time from one kill of a node to the next.
const CONTINUOUS: (Duration, Duration) = (Duration::from_secs(300), Duration::from_secs(60));
/// How often the thread that runs the world checks whether to stop the world.
const STEP: Duration = Duration::from_millis(500);
/// How long the world runs before the demo counts the world's entities and kills one of the world's processes.
const CALM: Duration = Duration::from_secs(10);

/// The options of `demo --together`, which runs markets, tasks and a world on one cluster.
pub struct CombinedDemoOptions<'a> {
    pub source: &'a ReplaySource,
    /// The directory that contains the recordings. Both the demo and the Python program `recordings.py` read them.
    pub data: &'a Path,
    pub speed: Option<Speed>,
    pub kill_every: Option<Duration>,
    pub flock: u64,
    /// Whether to run the world without aircraft if the aircraft's recording is missing.
    pub without_aircraft: bool,
    /// The program that submits and runs tasks; `None` if it is not available.
    pub work: Option<&'a TaskDemoProgram>,
    /// Whether the demo runs one round, prints the final tables and ends. If not, the demo repeats rounds until it is
    /// stopped.
    pub once: bool,
}

impl CombinedDemoOptions<'_> {
    /// Runs all parts of the demo at the same time. Returns an error if a part fails.
    pub fn run(&self, console: &Console, stop: &StopFlag) -> Result<()> {
        let narrator = DemoEventPrinter::new(console);
        let workers = self.work.map(|work| Ok::<_, anyhow::Error>((work.workers()?, WORKERS.to_owned())));
        let workers = workers.transpose()?;
        let mut nodes = DemoNodes::start(NODES, DemoNodeServices { dashboard: true, workers }, stop)?;
        if stop.is_set() {
            return Ok(());
        }
        let urls = nodes.urls();
        narrator.print_addresses(&urls, nodes.dashboard().as_deref())?;
        if self.work.is_none() {
            narrator.print_event(
                "tasks",
                "no tasks run without --work; `cargo xtask demo` builds the Python package and sets it",
            )?;
        }
        let (is_over, closing) = (AtomicBool::new(false), Mutex::new(ClosingReport::default()));
        // If one part fails, the other parts stop.
        let stop_all_on_error = |outcome: Result<()>| {
            let was_stopped = stop.is_set();
            outcome.inspect_err(|_| stop.set()).or_else(|error| if was_stopped { Ok(()) } else { Err(error) })
        };
        let parts = std::thread::scope(|scope| {
            let (narrator, closing, is_over, urls) = (&narrator, &closing, &is_over, urls.as_slice());
            let space =
                scope.spawn(move || stop_all_on_error(self.space(urls, narrator, is_over, closing, stop)));
            let tasks = self.work.map(|work| {
                scope.spawn(move || stop_all_on_error(self.tasks(work, urls, narrator, closing, stop)))
            });
            let markets = stop_all_on_error(self.markets(&mut nodes, narrator, closing, stop));
            // With `--once`, the tasks continue for a while after the last kill of a node, so `join` waits until the
            // tasks have ended.
            let tasks = tasks.map(|tasks| {
                tasks.join().unwrap_or_else(|_| Err(anyhow!("the thread that runs the tasks panicked")))
            });
            is_over.store(true, Ordering::Release);
            let space =
                space.join().unwrap_or_else(|_| Err(anyhow!("the thread that runs the world panicked")));
            markets.and(tasks.unwrap_or(Ok(()))).and(space)
        });
        drop(nodes);
        parts?;
        if stop.is_set() {
            ensure!(
                !self.once,
                CommandRefusal("the demo was stopped before it printed the closing tables".to_owned())
            );
            return narrator.print_line("stopped; the nodes' records are lost");
        }
        let closing = closing.into_inner().unwrap_or_else(PoisonError::into_inner);
        closing.write(console)?;
        if closing.holds() { Ok(()) } else { bail!("some checks failed: see the tables above") }
    }

    /// Replays the markets' lines and order books on the cluster. During the replay, kills one node after another, and
    /// restarts each killed node before the next kill.
    fn markets(
        &self,
        nodes: &mut DemoNodes,
        narrator: &DemoEventPrinter<'_>,
        closing: &Mutex<ClosingReport>,
        stop: &StopFlag,
    ) -> Result<()> {
        let (within, every) = if self.once { ONCE } else { CONTINUOUS };
        let kills = KillPlan::Every(self.kill_every.unwrap_or(every));
        let speed = self.speed.unwrap_or(Speed::Within(within));
        let demo = flock::ClusterDemoOptions { recordings: &self.source.recordings, speed, kills };
        let print = |text: &str| narrator.print_event("nodes", text);
        loop {
            narrator.print_event(
                "topics",
                "recorded markets are published through all nodes; every node has subscribers",
            )?;
            let Some(ended) = demo.run(nodes, stop, &print)? else { return Ok(()) };
            let sentences = ended.result_sentences();
            if self.once {
                let mut tables = Vec::new();
                ended.write(&mut tables, narrator.console)?;
                let parts = ["topics", "feeds", "nodes"].into_iter().zip(sentences).collect();
                narrator::add(closing, tables, parts);
                return Ok(());
            }
            for (part, (_, sentence)) in ["topics", "feeds", "nodes"].into_iter().zip(sentences) {
                narrator.print_event(part, &sentence)?;
            }
            ended.check()?;
            ended.delete_topics(&nodes.urls().join(","))?;
        }
    }

    /// Runs a world whose processes connect to the cluster.
    fn space(
        &self,
        urls: &[String],
        narrator: &DemoEventPrinter<'_>,
        is_over: &AtomicBool,
        closing: &Mutex<ClosingReport>,
        stop: &StopFlag,
    ) -> Result<()> {
        let print = |text: &str| narrator.print_event("space", text);
        let CombinedDemoOptions { data, flock, without_aircraft, .. } = *self;
        let world = world::WorldDemoOptions { data, flock, without_aircraft, nodes: urls };
        let mut demo = world.start(stop, &print)?;
        loop {
            demo.run_for(CALM)?;
            demo.count_entities("all regions at one moment")?;
            demo.kill_and_restart()?;
            let started = Instant::now();
            let should_continue = || !stop.is_set() && !is_over.load(Ordering::Acquire);
            while should_continue() && (self.once || started.elapsed() < CONTINUOUS.0) {
                demo.run_for(STEP)?;
            }
            if stop.is_set() {
                return Ok(());
            }
            let sentence = demo.close()?;
            if self.once {
                narrator::add(closing, Vec::new(), vec![("space", (true, sentence))]);
                return Ok(());
            }
            print(&sentence)?;
        }
    }

    /// Runs the Python program in which four tenants submit tasks.
    fn tasks(
        &self,
        program: &TaskDemoProgram,
        urls: &[String],
        narrator: &DemoEventPrinter<'_>,
        closing: &Mutex<ClosingReport>,
        stop: &StopFlag,
    ) -> Result<()> {
        let mut running = program.start(&urls.join(","), self.data, WORKERS_ALL, self.once)?;
        let Some(output) = running.follow(stop, |line| narrator.print_event("tasks", line))? else {
            return Ok(());
        };
        let sentence = output.lines().find(|line| line.contains(" done and correct"));
        let sentence =
            sentence.context("the program that runs the tasks ended without printing its table")?.to_owned();
        let table = if narrator.console.json { Vec::new() } else { output.into_bytes() };
        narrator::add(closing, table, vec![("tasks", (true, sentence))]);
        Ok(())
    }
}
