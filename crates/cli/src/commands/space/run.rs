//! The command `dunlin space run`, which starts a node, stores the description of a world, and starts the world's first
//! process.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use dunlin_client::KvError;
use dunlin_server::space::WorldDescription;

use super::process::{self, SpaceProcess};
use super::spec::{WorldSpec, describe};
use crate::arguments::{GlobalOptions, either_listen_or_url};
use crate::commands::parse::{distance, tick, times, world};
use crate::console::Console;
use crate::outcome::CommandRefusal;

/// Arguments of `dunlin space run`, which starts a world.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin space run --processes 2 --flock 20000
  dunlin space run --processes 3 --aircraft data/aircraft-switzerland.json --speed 60
  dunlin space run --processes 1 --no-standby --flock 5000
  dunlin space run birds --url dunlin://10.0.0.1:4220    leases in that cluster

A region with a standby needs two processes, so nothing moves before the second has joined. Without --url, the leases are
in the node of the first process, and the world ends with it.")]
pub struct Arguments {
    /// Name of the world
    #[arg(default_value = "world", value_parser = world)]
    name: String,
    /// Number of regions [default: the number of processes]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=4096), allow_negative_numbers = true)]
    regions: Option<u32>,
    /// Number of processes that must have joined before regions get owners
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1024), allow_negative_numbers = true)]
    processes: u32,
    /// Number of birds, which are entities that fly as a flock
    #[arg(long, value_name = "COUNT", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(0..=4_000_000), allow_negative_numbers = true)]
    flock: u64,
    /// File with recorded aircraft to replay; every process must be able to open it [default: no aircraft]
    #[arg(long, value_name = "FILE")]
    aircraft: Option<PathBuf>,
    /// Seconds of the recording that are replayed in one second
    #[arg(long, value_name = "FACTOR", default_value_t = 60.0, value_parser = times, allow_negative_numbers = true)]
    speed: f64,
    /// Edge length of the world, in units of the world; with --aircraft, the recording sets the world's size
    #[arg(long, value_name = "LENGTH", default_value_t = 1_000.0, value_parser = distance, allow_negative_numbers = true)]
    edge: f32,
    /// Duration of a tick
    #[arg(long, value_name = "DURATION", default_value = "20ms", value_parser = tick)]
    tick: Duration,
    /// Seed of the random numbers
    #[arg(long, default_value_t = 1, allow_negative_numbers = true)]
    seed: u64,
    /// Run without standbys: the entities in the regions of a killed process are lost
    #[arg(long)]
    no_standby: bool,
    /// Address of the node that this command starts, which manages the leases of all regions; not with --url
    /// [default: 127.0.0.1:4220]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    process: process::ProcessOptions,
}

impl Arguments {
    fn spec(&self) -> Result<WorldSpec> {
        if let Some(exposed) = self.listen.filter(|address| !address.ip().is_loopback()) {
            bail!(CommandRefusal(format!(
                "--listen {exposed} is not a loopback address: run `dunlin serve` with TLS and users there, and give its address with --url"
            )));
        }
        let aircraft = self
            .aircraft
            .as_ref()
            .map(|file| std::path::absolute(file).with_context(|| format!("cannot find {}", file.display())));
        Ok(WorldSpec {
            name: self.name.clone(),
            edge: self.edge,
            regions: self.regions.unwrap_or(self.processes),
            processes: self.processes,
            flock: self.flock,
            aircraft: aircraft.transpose()?,
            speed: self.speed,
            tick: self.tick,
            seed: self.seed,
            standby: !self.no_standby && self.processes > 1,
        })
    }
}

pub fn run(arguments: &Arguments, global: &GlobalOptions, console: &Console) -> Result<()> {
    either_listen_or_url(arguments.listen, global)?;
    let spec = arguments.spec()?;
    let loaded = spec.load()?;
    let port = if global.url.is_some() { 0 } else { 4220 };
    let listen = arguments.listen.unwrap_or(SocketAddr::from(([127, 0, 0, 1], port)));
    if let Some(warning) = loaded.precision_warning() {
        eprintln!("{} {warning}", console.errors.warning("warning:"));
    }
    let process = SpaceProcess::start(global, listen, &arguments.process, global.url.is_none())?;
    let (listener, kv) = (process.listen(&spec.name)?, process.kv());
    let description = loaded.description();
    match kv.cas(WorldDescription::key(&spec.name), 0, description.bytes()) {
        Ok(_) => {}
        // This process's node is new, but another process of the world has already written the same description to this
        // node.
        Err(KvError::Moved { .. }) if global.url.is_none() && describe(&kv, &spec.name)? == description => {}
        Err(KvError::Moved { .. }) => {
            let name = &spec.name;
            return Err(CommandRefusal(format!(
                "world {name:?} already exists: `dunlin space join {name}` joins it, `dunlin kv del space/{name}/ --prefix` \
                 deletes it, and `dunlin kv del space-secret/{name}` its secret"
            ))
            .into());
        }
        Err(error) => return Err(error.into()),
    }
    process.run(listener, loaded, console)
}
