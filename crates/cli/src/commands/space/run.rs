//! `space run`: a node, what the world is made of, and the first process.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use dunlin_client::KvError;
use dunlin_server::space::Description;

use super::process::{self, Process};
use super::spec::{Spec, describe};
use crate::arguments::{Global, either_listen_or_url};
use crate::commands::parse::{distance, tick, times, world};
use crate::console::Console;
use crate::outcome::Refusal;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin space run --processes 2 --flock 20000
  dunlin space run --processes 3 --aircraft data/aircraft-switzerland.json --speed 60
  dunlin space run --processes 1 --no-standby --flock 5000
  dunlin space run birds --url dunlin://10.0.0.1:4220    what the processes agree on is kept by that cluster

With a standby for each region nothing moves before there are two processes. Without --url the node of the first
process holds what they agree on, and the world ends with it.")]
pub struct Arguments {
    /// The world's name
    #[arg(default_value = "world", value_parser = world)]
    name: String,
    /// Regions [default: as many as processes]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=4096), allow_negative_numbers = true)]
    regions: Option<u32>,
    /// Processes that the world waits for before its regions are shared out
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1024), allow_negative_numbers = true)]
    processes: u32,
    /// Entities that flock
    #[arg(long, value_name = "COUNT", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(0..=4_000_000), allow_negative_numbers = true)]
    flock: u64,
    /// Recorded aircraft, which fly again; every process opens this file
    #[arg(long, value_name = "FILE")]
    aircraft: Option<PathBuf>,
    /// Seconds of the recording that go by in one
    #[arg(long, value_name = "TIMES", default_value_t = 60.0, value_parser = times, allow_negative_numbers = true)]
    speed: f64,
    /// The edge of the world, where no recording says how large it is
    #[arg(long, value_name = "LENGTH", default_value_t = 1_000.0, value_parser = distance, allow_negative_numbers = true)]
    edge: f32,
    /// How long a tick is
    #[arg(long, value_name = "DURATION", default_value = "20ms", value_parser = tick)]
    tick: Duration,
    /// What chance follows from
    #[arg(long, default_value_t = 1, allow_negative_numbers = true)]
    seed: u64,
    /// Nobody stands by: what a killed process held is lost
    #[arg(long)]
    no_standby: bool,
    /// Where the node listens that holds what the processes agree on, instead of the one at --url [default: 127.0.0.1:4220]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    process: process::Options,
}

impl Arguments {
    fn spec(&self) -> Result<Spec> {
        if let Some(exposed) = self.listen.filter(|address| !address.ip().is_loopback()) {
            bail!(Refusal(format!(
                "{exposed} can be reached from other machines: run `dunlin serve` there, with TLS and users, and give its --url"
            )));
        }
        let aircraft = self
            .aircraft
            .as_ref()
            .map(|file| std::path::absolute(file).with_context(|| format!("cannot find {}", file.display())));
        Ok(Spec {
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

pub fn run(arguments: &Arguments, global: &Global, console: &Console) -> Result<()> {
    either_listen_or_url(arguments.listen, global)?;
    let spec = arguments.spec()?;
    let made = spec.make()?;
    let port = if global.url.is_some() { 0 } else { 4220 };
    let listen = arguments.listen.unwrap_or(SocketAddr::from(([127, 0, 0, 1], port)));
    if let Some(warning) = made.slowest() {
        eprintln!("{} {warning}", console.errors.warning("warning:"));
    }
    let process = Process::start(global, listen, &arguments.process, global.url.is_none())?;
    let kv = process.kv();
    let description = made.description();
    match kv.cas(Description::key(&spec.name), 0, description.bytes()) {
        Ok(_) => {}
        // This process's node has just begun: another process of this world lives, and has written it again.
        Err(KvError::Moved { .. }) if global.url.is_none() && describe(&kv, &spec.name)? == description => {}
        Err(KvError::Moved { .. }) => {
            let name = &spec.name;
            return Err(Refusal(format!(
                "there is a world {name:?} already: `dunlin space join {name}` takes part in it, `dunlin kv del space/{name}/ --prefix` \
                 forgets it"
            ))
            .into());
        }
        Err(error) => return Err(error.into()),
    }
    process.take_part(made, console)
}
