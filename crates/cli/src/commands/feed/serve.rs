//! The command `dunlin feed serve`, which publishes simulated order books.

use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dunlin::{Simulation, SimulationReport, now_ns};
use dunlin_feed::{BOOK, Instrument, Instruments, InstrumentsError};
use dunlin_server::StartError;
use dunlin_topic::{Publish, ReducerConfig, Retention, TopicConfig, format_duration};

use crate::arguments::{GlobalOptions, either_listen_or_url};
use crate::commands::feed::read_instruments;
use crate::commands::parse;
use crate::commands::serve::ready_line;
use crate::config::{ByteSize, NodeConfig, RawConfig};
use crate::connect::connect;
use crate::console::{Console, grouped};
use crate::outcome::CommandRefusal;
use crate::running::RunningNode;
use crate::signals::{GRACE, StopFlag};

/// Arguments of `dunlin feed serve`, which publishes simulated order books.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin feed serve --config instruments.json
  dunlin feed serve --config fanout_1x100_1k --seed 7 --listen 127.0.0.1:0
  dunlin feed serve --config loss_1x10_1k --test-loss-every 50      withhold every 50th update; replicas repair it
  dunlin feed serve --config instruments.toml --rate 100 --url dunlin://127.0.0.1:4220

When the node is ready, the command prints one READY line. Each instrument has its own topic `md.<id>`, which keeps the
order book. The same file and seed give the same records on any machine. The command publishes each record at its planned
time. If it falls behind, it prints by how much, and still publishes all records.

docs/feeds.md describes the file. Built-in files: baseline_1x1_10k, fanout_1x100_1k, multi_100x10_500, loss_1x10_1k.")]
pub struct Arguments {
    /// File with the instruments (JSON or TOML), or the name of a built-in file
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Seed of the generated updates
    #[arg(long, default_value_t = 123)]
    seed: u64,
    /// Updates per second of each instrument [default: as in the file]
    #[arg(long, value_name = "UPDATES_PER_SECOND")]
    rate: Option<u32>,
    /// Address of the node that this command starts; with --url, it starts none and publishes to the node at that URL
    /// [default: 127.0.0.1:4220]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Bytes of history that each topic keeps
    #[arg(long, value_name = "BYTES", default_value = "4MiB")]
    retention_bytes: ByteSize,
    /// Number of records that each topic keeps [default: the node's setting]
    #[arg(long, value_name = "COUNT")]
    retention_records: Option<u64>,
    /// For tests: withhold every Nth update from subscribers, without reporting a gap [default: none]
    #[arg(long, value_name = "N")]
    test_loss_every: Option<NonZeroU32>,
    /// End after this time [default: no end]
    #[arg(long, value_name = "DURATION", value_parser = parse::positive_duration)]
    time: Option<Duration>,
}

pub fn run(arguments: &Arguments, global: &GlobalOptions, console: &Console) -> Result<()> {
    let stop = StopFlag::on_signal()?;
    either_listen_or_url(arguments.listen, global)?;
    let instruments = arguments.instruments()?;
    match (&global.url, arguments.listen) {
        (Some(_), None) => publish_to_running_node(arguments, &instruments, global, console, &stop),
        (_, listen) => publish_to_own_node(arguments, &instruments, listen, console, &stop),
    }
}

impl Arguments {
    fn instruments(&self) -> Result<Instruments> {
        let refused = |error: InstrumentsError| CommandRefusal(format!("{}: {error}", self.config.display()));
        let instruments = read_instruments(&self.config)?.parse().map_err(refused)?;
        match self.rate {
            Some(rate) => Ok(instruments.at_rate(rate).map_err(|error| CommandRefusal(error.to_string()))?),
            None => Ok(instruments),
        }
    }

    fn topic_config(&self, instrument: &Instrument) -> TopicConfig {
        let scale = instrument.scale();
        let retention = Retention {
            bytes: self.retention_bytes.0,
            records: self.retention_records,
            ..Retention::default()
        };
        let reducer = ReducerConfig { kind: BOOK.to_owned(), options: scale.options() };
        TopicConfig {
            retention,
            reducer: Some(reducer),
            test_loss_every: self.test_loss_every,
            ..TopicConfig::default()
        }
    }
}

fn publish_to_own_node(
    arguments: &Arguments,
    instruments: &Instruments,
    listen: Option<SocketAddr>,
    console: &Console,
    stop: &StopFlag,
) -> Result<()> {
    let mut config = NodeConfig::try_from(&RawConfig::defaults())?;
    if let Some(open) = listen.filter(|address| !address.ip().is_loopback()) {
        let advice = "not a loopback address, and this node does not authenticate clients: run `dunlin serve` with TLS and users, and \
                      give its address with --url";
        return Err(CommandRefusal(format!("--listen {open}: {advice}")).into());
    }
    config.listen = listen.or(config.listen);
    // Without automatic creation of topics, a mistyped instrument causes an error and not an empty topic.
    config.auto_create = false;
    let running = RunningNode::start(&config, stop).map_err(|error| with_port_advice(error, &config))?;
    for instrument in instruments.list() {
        let topic = instrument.topic();
        let created = running.node.create_topic(&topic, arguments.topic_config(instrument), false);
        created.with_context(|| format!("cannot create topic {topic}"))?;
    }
    let publisher = |instrument: &Instrument| {
        let topic = instrument.topic();
        running.node.publisher(&topic).with_context(|| format!("cannot publish to {topic}"))
    };
    let publishers = instruments.list().iter().map(publisher).collect::<Result<Vec<_>>>()?;
    let mut out = std::io::stdout();
    writeln!(out, "{}", ready_line(&running))
        .and_then(|()| out.flush())
        .context("cannot write the READY line")?;
    let outcome = simulate(arguments, instruments, publishers, console, stop);
    running.stop();
    outcome
}

/// Adds advice to the error if another program uses the port: the other program is probably a node, to which the
/// command can publish with `--url`.
fn with_port_advice(error: anyhow::Error, config: &NodeConfig) -> anyhow::Error {
    let is_taken = error.chain().any(|cause| match cause.downcast_ref() {
        Some(StartError::Listen { error, .. }) => error.kind() == ErrorKind::AddrInUse,
        _ => false,
    });
    match config.listen.filter(|_| is_taken) {
        Some(address) => error.context(format!(
            "another program listens on {address}: use --url dunlin://{address} to publish to a node there, or --listen 127.0.0.1:0 to take a free port"
        )),
        None => error,
    }
}

fn publish_to_running_node(
    arguments: &Arguments,
    instruments: &Instruments,
    global: &GlobalOptions,
    console: &Console,
    stop: &StopFlag,
) -> Result<()> {
    let client = connect(global, "dunlin feed serve")?;
    for instrument in instruments.list() {
        let topic = instrument.topic();
        let created = client.create_topic(&topic, &arguments.topic_config(instrument), true);
        created.with_context(|| format!("cannot create topic {topic}"))?;
    }
    let publisher = |instrument: &Instrument| {
        let topic = instrument.topic();
        client.publisher(&topic).with_context(|| format!("cannot publish to {topic}"))
    };
    let publishers = instruments.list().iter().map(publisher).collect::<Result<Vec<_>>>()?;
    let simulated = || simulate(arguments, instruments, publishers, console, stop);
    stop.run_interruptible_after(GRACE, simulated)?
        .context("interrupted before the node acknowledged all updates")
}

/// The shortest time between two warnings that the simulated updates are late.
const WARNING_INTERVAL: Duration = Duration::from_secs(1);
/// The delay of an update above which a warning is printed.
const LATE: Duration = Duration::from_millis(10);

fn simulate<P: Publish>(
    arguments: &Arguments,
    instruments: &Instruments,
    publishers: Vec<P>,
    console: &Console,
    stop: &StopFlag,
) -> Result<()> {
    let (start, start_ns) = (Instant::now(), now_ns());
    let mut simulation = Simulation::open(instruments, arguments.seed, start_ns, publishers)?;
    let end_ns = arguments.time.map_or(u64::MAX, |time| start_ns + time.as_nanos() as u64);
    let mut total = SimulationReport::default();
    let mut until_ns = start_ns;
    while until_ns < end_ns && !stop.is_set() {
        until_ns = (until_ns + WARNING_INTERVAL.as_nanos() as u64).min(end_ns);
        let report = simulation.run_until(until_ns, || stop.is_set())?;
        total.records += report.records;
        total.late_ns_max = total.late_ns_max.max(report.late_ns_max);
        if report.late_ns_last > LATE.as_nanos() as u64 {
            let mark = console.errors.warning("the source is late:");
            writeln!(std::io::stderr(), "{mark} {} ms", grouped(report.late_ns_last / 1_000_000))?;
        }
    }
    let mark = console.errors.good("published");
    let records = grouped(total.records);
    let late = format!("{:.3} ms", total.late_ns_max as f64 / 1e6);
    let count = instruments.list().len();
    let books = if count == 1 { "book" } else { "books" };
    let spent = format_duration(start.elapsed());
    Ok(writeln!(
        std::io::stderr(),
        "{mark} {records} updates of {count} {books} in {spent}, {late} late at most"
    )?)
}
