//! `demo`: recorded markets, replayed line by line to many subscribers, with every record accounted for; and the other faces, each
//! by itself or all together.

mod together;

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use crate::arguments::Global;
use crate::commands::dev::url_argument;
use crate::commands::{parse, serve, space};
use crate::config::{Config, RawConfig};
use crate::connect::{connect, connect_slow};
use crate::console::{Console, grouped};
use crate::demo::{Show, Source, Speed, child, flock};
use crate::running::Running;
use crate::signals::Stop;
use together::{Program, Together};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
One topic for each market, and the lines as they are. At the end a table says for each subscriber and
topic what it saw, what it was told it missed, and whether its bytes are the recording's. Exit code 2
if a single record is unaccounted for.

The recordings are fetched by `cargo xtask data`; `cargo xtask demo` does that first.

Examples:
  dunlin demo --data data                     over in about a minute; the node stays up to be looked at
  dunlin demo --data data --speed max --once
  dunlin demo --allow-generated               without the recordings
  dunlin demo --nodes 3                       over a cluster, whose nodes are killed and started again meanwhile
  dunlin demo --space                         aircraft and a flock of 50,000 over three processes
  dunlin demo --together                      all of it at once on the nodes of one cluster, with a dashboard

`cargo xtask demo` is `--together` with the tasks' program built for it; `--only FACE` shows one face.")]
pub struct Arguments {
    /// Directory of the recordings
    #[arg(long, value_name = "DIRECTORY", default_value = "data")]
    data: PathBuf,
    /// How fast: 1x is as recorded, 10x ten times that; 30s is each market within that time; max does not wait [default: 55s]
    #[arg(long, value_name = "SPEED")]
    speed: Option<Speed>,
    /// Replay over so many nodes that are one cluster, each a process of its own, and kill them one after another
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=9))]
    nodes: u32,
    /// With --nodes: how often a node is killed
    #[arg(long, value_name = "COUNT", default_value_t = 6, requires = "nodes")]
    kills: u32,
    /// Only so many lines of each market
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(2..))]
    lines: Option<u32>,
    /// Not markets, but a world: recorded aircraft and a flock over three processes, one of which is killed and comes back
    #[arg(long, group = "world", conflicts_with_all = ["nodes", "kills", "lines"])]
    space: bool,
    /// All faces at once: markets, books, tasks and a world on three nodes, one of which is killed and healed every minute
    #[arg(long, group = "world", conflicts_with_all = ["nodes", "kills"])]
    together: bool,
    /// With --together: how often a node is killed [default: 1m; 30s with --once]
    #[arg(long, value_name = "DURATION", requires = "together", value_parser = parse::duration)]
    kill_every: Option<Duration>,
    /// With --together: where recordings.py and its worker are, clients/python/examples; without it nobody submits tasks
    #[arg(long, value_name = "DIRECTORY", requires = "together")]
    work: Option<PathBuf>,
    /// With --work: a Python that has the dunlin package
    #[arg(long, value_name = "FILE", default_value = "python3", requires = "work")]
    python: PathBuf,
    /// With --space or --together: how many flock [default: 50000; 10000 with --together]
    #[arg(long, value_name = "COUNT", requires = "world", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    flock: Option<u64>,
    /// End after the table instead of leaving the node up
    #[arg(long)]
    once: bool,
    /// Without recordings, replay made-up ones instead of failing
    #[arg(long)]
    allow_generated: bool,
}

const SPEED_DEFAULT: Speed = Speed::Within(Duration::from_secs(55));
const FLOCK: u64 = 50_000;
/// Beside everything else.
const FLOCK_TOGETHER: u64 = 10_000;

/// Said first and last, so that nobody takes one for the other.
const GENERATED: &str = "GENERATED DATA: these are made-up markets, not the recordings";

pub fn run(arguments: &Arguments, console: &Console) -> Result<()> {
    let stop = Stop::on_signal()?;
    let mut narration = Narration { console };
    if arguments.space {
        let flock = arguments.flock.unwrap_or(FLOCK);
        return space::demo::run(&arguments.data, flock, arguments.allow_generated, console, &stop);
    }
    let mut source = Source::load(&arguments.data, arguments.allow_generated)?;
    if let Some(lines) = arguments.lines {
        source.recordings.iter_mut().for_each(|recording| recording.cut(lines as usize));
    }
    if source.generated {
        narration.say(&console.paint.warning(GENERATED))?;
    }
    if arguments.together {
        return together(arguments, &source, console, &stop);
    }
    if arguments.nodes > 1 {
        return over_nodes(arguments, &source, console, &stop);
    }
    let running = start_node(&stop)?;
    let url = running.url();
    let lines: usize = source.recordings.iter().map(crate::demo::Recording::len).sum();
    let markets = source.recordings.len();
    narration.say(&format!("node at {url}; {markets} markets, {} lines", grouped(lines as u64)))?;
    let speed = arguments.speed.unwrap_or(SPEED_DEFAULT);
    let show = Show { source: &source, speed, node: &running.node, url: url.clone() };
    let ended = show.run(console, &stop)?;
    if !arguments.once && !ended.interrupted {
        invite(&mut narration, &arguments.data, &source, &url)?;
        serve::wait(&stop);
    }
    running.stop();
    if source.generated {
        narration.say(&console.paint.warning(GENERATED))?;
    }
    ended.check()
}

/// The show over a cluster ends with its table: whoever wants to look around has `dunlin dev --nodes`.
fn over_nodes(arguments: &Arguments, source: &Source, console: &Console, stop: &Stop) -> Result<()> {
    let mut narration = Narration { console };
    let Arguments { nodes, kills, .. } = *arguments;
    let mut nodes = flock::Nodes::start(nodes as usize, flock::Extras::default(), stop)?;
    narration.say(&format!("a cluster of {}: {}", nodes.count(), nodes.urls().join(", ")))?;
    let speed = arguments.speed.unwrap_or(SPEED_DEFAULT);
    let kills = flock::Kills::Among(kills as usize);
    let show = flock::Show { recordings: &source.recordings, speed, kills };
    let ended = show.run(&mut nodes, stop, &|text| Narration { console }.say(text))?;
    if let Some(ended) = &ended {
        let mut out = console.out();
        ended.write(&mut out, console)?;
        out.flush()?;
    }
    if source.generated {
        narration.say(&console.paint.warning(GENERATED))?;
    }
    ended.map_or(Ok(()), |ended| ended.check())
}

fn together(arguments: &Arguments, source: &Source, console: &Console, stop: &Stop) -> Result<()> {
    let program = |directory: &PathBuf| -> Result<Program> {
        let directory = std::path::absolute(directory)?;
        Ok(Program { python: arguments.python.clone(), directory })
    };
    let work = arguments.work.as_ref().map(program).transpose()?;
    let together = Together {
        source,
        data: &arguments.data,
        speed: arguments.speed,
        kill_every: arguments.kill_every,
        flock: arguments.flock.unwrap_or(FLOCK_TOGETHER),
        without_aircraft: arguments.allow_generated,
        work: work.as_ref(),
        once: arguments.once,
    };
    let ended = together.run(console, stop);
    if source.generated {
        Narration { console }.say(&console.paint.warning(GENERATED))?;
    }
    ended
}

/// On the port everyone knows, or on any if that is taken.
fn start_node(stop: &Stop) -> Result<Running> {
    let mut config = Config::try_from(&RawConfig::defaults())?;
    let reserved = flock::usual_or_any(flock::USUAL_TCP)?;
    config.listen = Some(reserved.address());
    Running::start(&config, stop)
}

fn invite(narration: &mut Narration<'_>, data: &std::path::Path, source: &Source, url: &str) -> Result<()> {
    let url_argument = url_argument(url);
    narration.say(&format!("\nThe node at {url} stays up, and holds every market. Look around:"))?;
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
        narration.say(&format!(
            "  {}",
            narration.console.paint.command(&format!("{dunlin}{url_argument}{rest}"))
        ))?;
    }
    narration.say("Ctrl-C stops it.")
}

/// What is told beside the table: to standard error where standard output is for objects.
struct Narration<'a> {
    console: &'a Console,
}

impl Narration<'_> {
    fn say(&mut self, text: &str) -> Result<()> {
        if self.console.json {
            writeln!(std::io::stderr(), "{text}")?;
        } else {
            writeln!(std::io::stdout(), "{text}")?;
        }
        Ok(())
    }
}

#[derive(Debug, clap::Args)]
pub struct ChildArguments {
    /// The reader's name
    #[arg(long)]
    name: String,
    /// After each record
    #[arg(long, value_parser = parse::duration)]
    sleep: Option<Duration>,
}

pub fn run_child(arguments: &ChildArguments, global: &Global) -> Result<()> {
    let connect = if arguments.sleep.is_some() { connect_slow } else { connect };
    let client = connect(global, &format!("demo: {}", arguments.name))?;
    child::run(&arguments.name, arguments.sleep, |pattern, options| client.subscribe(pattern, options))
}
