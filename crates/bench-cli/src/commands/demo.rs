//! The command `demo`: replays recorded markets line by line to many subscribers, and checks that each subscriber
//! received, for each record, either the record or a gap notice. Other forms of the demo run on a cluster (`--nodes`),
//! run a world of moving entities (`--space`), or do both at the same time (`--together`).

mod together;

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use dunlin_cli::arguments::GlobalOptions;
use dunlin_cli::commands::demo::{Arguments, Speed};
use dunlin_cli::commands::dev::url_argument;
use dunlin_cli::commands::{parse, serve};
use dunlin_cli::config::{NodeConfig, RawConfig};
use dunlin_cli::connect::{connect, connect_slow};
use dunlin_cli::console::{Console, grouped};
use dunlin_cli::running::RunningNode;
use dunlin_cli::signals::StopFlag;

use crate::demo::{DemoOptions, ReplaySource, child, flock, world};
use together::{CombinedDemoOptions, TaskDemoProgram};

const SPEED_DEFAULT: Speed = Speed::Within(Duration::from_secs(55));
const FLOCK: u64 = 50_000;
/// The number of birds in the world of `demo --together`.
const FLOCK_TOGETHER: u64 = 10_000;

/// The warning that the markets are generated. The demo prints the warning at the start and at the end.
const GENERATED: &str = "GENERATED DATA: these are generated markets, not the recordings";

pub fn run(arguments: &Arguments, console: &Console) -> Result<()> {
    let stop = StopFlag::on_signal()?;
    let mut narration = Narration { console };
    if arguments.space {
        let flock = arguments.flock.unwrap_or(FLOCK);
        return world::run(&arguments.data, flock, arguments.allow_generated, console, &stop);
    }
    let mut source = ReplaySource::load(&arguments.data, arguments.allow_generated)?;
    if let Some(lines) = arguments.lines {
        source.recordings.iter_mut().for_each(|recording| recording.cut(lines as usize));
    }
    if source.generated {
        narration.print(&console.paint.warning(GENERATED))?;
    }
    if arguments.together {
        return run_together(arguments, &source, console, &stop);
    }
    if arguments.nodes > 1 {
        return run_on_cluster(arguments, &source, console, &stop);
    }
    let running = start_node(&stop)?;
    let url = running.url();
    let lines: usize = source.recordings.iter().map(crate::demo::MarketRecording::len).sum();
    let markets = source.recordings.len();
    narration.print(&format!("node at {url}; {markets} markets, {} lines", grouped(lines as u64)))?;
    let speed = arguments.speed.unwrap_or(SPEED_DEFAULT);
    let demo = DemoOptions { source: &source, speed, node: &running.node, url: url.clone() };
    let outcome = demo.run(console, &stop)?;
    if !arguments.once && !outcome.interrupted {
        print_suggestions(&mut narration, &arguments.data, &source, &url)?;
        serve::wait(&stop);
    }
    running.stop();
    if source.generated {
        narration.print(&console.paint.warning(GENERATED))?;
    }
    outcome.check()
}

/// Runs the demo on a cluster, prints its tables, and stops the cluster.
fn run_on_cluster(
    arguments: &Arguments,
    source: &ReplaySource,
    console: &Console,
    stop: &StopFlag,
) -> Result<()> {
    let mut narration = Narration { console };
    let Arguments { nodes, kills, .. } = *arguments;
    let mut nodes = flock::DemoNodes::start(nodes as usize, flock::DemoNodeServices::default(), stop)?;
    narration.print(&format!("a cluster of {} nodes: {}", nodes.count(), nodes.urls().join(", ")))?;
    let speed = arguments.speed.unwrap_or(SPEED_DEFAULT);
    let kills = flock::KillPlan::Among(kills as usize);
    let demo = flock::ClusterDemoOptions { recordings: &source.recordings, speed, kills };
    let outcome = demo.run(&mut nodes, stop, &|text| Narration { console }.print(text))?;
    if let Some(outcome) = &outcome {
        let mut out = console.out();
        outcome.write(&mut out, console)?;
        out.flush()?;
    }
    if source.generated {
        narration.print(&console.paint.warning(GENERATED))?;
    }
    outcome.map_or(Ok(()), |outcome| outcome.check())
}

fn run_together(
    arguments: &Arguments,
    source: &ReplaySource,
    console: &Console,
    stop: &StopFlag,
) -> Result<()> {
    let program = |directory: &PathBuf| -> Result<TaskDemoProgram> {
        let directory = std::path::absolute(directory)?;
        Ok(TaskDemoProgram { python: arguments.python.clone(), directory })
    };
    let work = arguments.work.as_ref().map(program).transpose()?;
    let options = CombinedDemoOptions {
        source,
        data: &arguments.data,
        speed: arguments.speed,
        kill_every: arguments.kill_every,
        flock: arguments.flock.unwrap_or(FLOCK_TOGETHER),
        without_aircraft: arguments.allow_generated,
        work: work.as_ref(),
        once: arguments.once,
    };
    let outcome = options.run(console, stop);
    if source.generated {
        Narration { console }.print(&console.paint.warning(GENERATED))?;
    }
    outcome
}

/// Starts a node at the default port, or at a random port if another program uses the default port.
fn start_node(stop: &StopFlag) -> Result<RunningNode> {
    let mut config = NodeConfig::try_from(&RawConfig::defaults())?;
    let reserved = flock::reserve_or_any_port(flock::DEFAULT_TCP_PORT)?;
    config.listen = Some(reserved.address());
    RunningNode::start(&config, stop)
}

fn print_suggestions(
    narration: &mut Narration<'_>,
    data: &std::path::Path,
    source: &ReplaySource,
    url: &str,
) -> Result<()> {
    let url_argument = url_argument(url);
    narration.print(&format!("\nThe node at {url} keeps running, with all markets. Try:"))?;
    let mut commands =
        vec!["dunlin topics list".to_owned(), "dunlin sub 'market.>' --from earliest --count 5".to_owned()];
    if let Some(orders) = source.recordings.last().filter(|_| !source.generated) {
        let file = data.join("orders.csv");
        commands.push(format!(
            "dunlin sub {} --from earliest --count {} --format raw | cmp - {}",
            orders.topic,
            orders.len(),
            file.display()
        ));
    }
    for command in commands {
        let (dunlin, rest) = command
            .split_once(" | ")
            .map_or((command.as_str(), String::new()), |(dunlin, rest)| (dunlin, format!(" | {rest}")));
        narration.print(&format!(
            "  {}",
            narration.console.paint.command(&format!("{dunlin}{url_argument}{rest}"))
        ))?;
    }
    narration.print("Ctrl-C stops the node.")
}

/// Prints the demo's messages to standard output; with `--json`, to standard error, because standard output is for
/// JSON.
struct Narration<'a> {
    console: &'a Console,
}

impl Narration<'_> {
    fn print(&mut self, text: &str) -> Result<()> {
        if self.console.json {
            writeln!(std::io::stderr(), "{text}")?;
        } else {
            writeln!(std::io::stdout(), "{text}")?;
        }
        Ok(())
    }
}

/// Arguments of the hidden command that `demo` runs in its subscriber processes.
#[derive(Debug, clap::Args)]
pub struct DemoChildArguments {
    /// Name of the subscriber
    #[arg(long)]
    name: String,
    /// Pause after each received record [default: none]
    #[arg(long, value_name = "DURATION", value_parser = parse::duration)]
    sleep: Option<Duration>,
}

pub fn run_child(arguments: &DemoChildArguments, global: &GlobalOptions) -> Result<()> {
    let connect = if arguments.sleep.is_some() { connect_slow } else { connect };
    let client = connect(global, &format!("demo: {}", arguments.name))?;
    child::run(&arguments.name, arguments.sleep, |pattern, options| client.subscribe(pattern, options))
}
