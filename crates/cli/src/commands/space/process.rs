//! Runs one process of a world: a node with the topics of the process's regions, and the thread that moves the entities
//! in these regions.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use dunlin::space::Host;
use dunlin::{Config, Node, NodeLimits};
use dunlin_client::{Client, ClientOptions, Kv};
use dunlin_server::space::{RunnerListener, WorldConfig, WorldEvent, WorldProcess, check_world_permissions};
use dunlin_server::{Protocol, Server, ServerConfig};
use serde_json::json;

use super::life::FlockAndAircraft;
use super::snapshots::SnapshotThread;
use super::spec::{LoadedWorld, WorldSpec};
use crate::arguments::GlobalOptions;
use crate::commands::dev::url_argument;
use crate::commands::parse::{duration, world, world_ttl};
use crate::config::ValueOrOff;
use crate::connect::{URL_DEFAULT, connect};
use crate::console::Console;
use crate::outcome::CommandRefusal;
use crate::signals::StopFlag;

const MEMORY_BYTES_MAX: u64 = 4 << 30;
/// Maximum number of unread bytes that the process keeps for each viewer of the world. The limit is high, because the
/// first message contains all visible entities.
const INBOX_BYTES_MAX: u64 = 16 << 20;

/// The advice to the user if two processes of a world have different settings.
const SETTINGS_REMEDY: &str = "End one of them: either run the world again with its former settings, or end the other \
                               processes and join again (`dunlin space join`)";

/// Options of every process that runs a part of a world.
#[derive(Debug, Clone, clap::Args)]
pub struct ProcessOptions {
    /// Time to live of the process's lease: after this time without contact, standbys take over its regions
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = world_ttl)]
    pub ttl: Duration,
    /// Maximum time to wait for a process that has a copy of a region; after this time, the region starts without the
    /// copied state, unless a process that may have it still runs
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub patience: Duration,
    /// Address at which the world's other processes connect; a loopback address
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub between: SocketAddr,
    /// Address of an HTTP listener for `/metrics`, with the regions' metrics; a loopback address [default: off]
    #[arg(long, value_name = "ADDRESS")]
    pub http_listen: Option<SocketAddr>,
    /// Users file (users and their permissions) of the node that this process starts; required if --url needs a login
    /// [default: off, so every client of this machine has all permissions]
    #[arg(long, env = "DUNLIN_AUTH_USERS_FILE", value_name = "FILE|off")]
    pub auth_users_file: Option<ValueOrOff<PathBuf>>,
    /// Log in at the node of --url, although every client of this machine has all permissions at this process's node
    #[arg(long)]
    pub insecure_listen_without_authentication: bool,
    /// End when standard input ends, which means that the parent process has ended
    #[arg(long, hide = true)]
    pub end_with_stdin: bool,
}

impl ProcessOptions {
    fn users_file(&self) -> Option<&PathBuf> {
        self.auth_users_file.as_ref().and_then(|file| file.0.as_ref())
    }
}

/// Arguments of `dunlin space join`, which starts another process for a world.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin space join                              join the world `world` of the node on this machine
  dunlin space join birds --url dunlin://127.0.0.1:4230

A process can join at any time. It receives regions of processes that own more than one.")]
pub struct Arguments {
    /// Name of the world
    #[arg(default_value = "world", value_parser = world)]
    name: String,
    #[command(flatten)]
    process: ProcessOptions,
}

/// A running process of a world, with the node that serves its clients.
pub struct SpaceProcess {
    node: Node,
    server: Server,
    client: Client,
    url: String,
    /// The URL of the node that holds the world's keys.
    keys_url: String,
    options: ProcessOptions,
}

pub fn join(arguments: &Arguments, global: &GlobalOptions, console: &Console) -> Result<()> {
    let process =
        SpaceProcess::start(global, SocketAddr::from(([127, 0, 0, 1], 0)), &arguments.process, false)?;
    let listener = process.listen(&arguments.name)?;
    let spec = WorldSpec::read(&process.kv(), &arguments.name)?;
    process.run(listener, spec.load()?, console)
}

impl SpaceProcess {
    /// Starts the node of the process. With `alone`, this node also holds the leases of the world; otherwise, the node
    /// at `--url` does.
    pub fn start(
        global: &GlobalOptions,
        listen: SocketAddr,
        options: &ProcessOptions,
        alone: bool,
    ) -> Result<SpaceProcess> {
        if !alone {
            check_authentication(global, options)?;
        }
        let limits = NodeLimits {
            memory_bytes_max: MEMORY_BYTES_MAX,
            inbox_bytes_max: INBOX_BYTES_MAX,
            ..NodeLimits::default()
        };
        let node = Node::start(Config { name: "space".to_owned(), limits, ..Config::default() })?;
        if let Some(exposed) = options.http_listen.filter(|address| !address.ip().is_loopback()) {
            let why = "not a loopback address, and this node has no TLS: give a loopback address";
            bail!(CommandRefusal(format!("--http-listen {exposed}: {why}")));
        }
        let between = options.between;
        if !between.ip().is_loopback() {
            let why = "not a loopback address, and connections between the processes of a world are not encrypted: \
                       give a loopback address";
            bail!(CommandRefusal(format!("--between {between}: {why}")));
        }
        let http = options.http_listen.into_iter().collect();
        let users_file = options.users_file().cloned();
        let config = ServerConfig { tcp: vec![listen], http, users_file, ..ServerConfig::default() };
        let server = Server::start(node.clone(), config);
        let server = server.map_err(anyhow::Error::from).map_err(crate::running::add_port_advice)?;
        let address = server.tcp_addresses().first().context("the node has no listener")?;
        let url = format!("dunlin://{address}");
        let (client, keys_url) = if alone && options.users_file().is_some() {
            let own = GlobalOptions { url: Some(url.clone()), ..global.clone() };
            (connect(&own, "dunlin space")?, url.clone())
        } else if alone {
            let client_options =
                ClientOptions { name: "dunlin space".to_owned(), ..ClientOptions::default() };
            (Client::connect(&url, client_options)?, url.clone())
        } else {
            let keys_url = global.url.as_deref().unwrap_or(URL_DEFAULT);
            (connect(global, "dunlin space")?, keys_url.to_owned())
        };
        Ok(SpaceProcess { node, server, client, url, keys_url, options: options.clone() })
    }

    /// Returns a handle to the keys of the world. They are on the node or cluster that holds the world's leases.
    pub fn kv(&self) -> Kv {
        self.client.kv()
    }

    /// Checks the user's permissions for the keys of the world, and binds the address of `--between`. `dunlin space
    /// run` calls this before it writes the keys. If the process cannot run, the command therefore writes no keys.
    pub fn listen(&self, world: &str) -> Result<RunnerListener> {
        check_world_permissions(&self.kv(), world)?;
        Ok(RunnerListener::bind(self.options.between, false)?)
    }

    /// Runs the regions that this process owns, until the command has to end.
    pub fn run(self, listener: RunnerListener, loaded: LoadedWorld, console: &Console) -> Result<()> {
        let stop = StopFlag::on_signal()?;
        if self.options.end_with_stdin {
            stop.set_when_stdin_ends();
        }
        let (sender, events) = channel();
        let (spec, setup, entities) = (loaded.spec.clone(), loaded.setup.clone(), loaded.entities());
        let config = WorldConfig {
            processes: spec.processes as usize,
            ttl: self.options.ttl,
            patience: self.options.patience,
            recipe: loaded.description().recipe,
            ..WorldConfig::new(&spec.name, &self.url, setup.clone(), &spec.region_ids())
        };
        let life = loaded.life.clone();
        let populate = move |host: &mut Host<3, FlockAndAircraft>, region| loaded.populate(host, region);
        let on_event = move |what| {
            // The send fails only if the receiver has ended.
            let _ = sender.send(what);
        };
        let process =
            WorldProcess::start_with(listener, &self.node, self.kv(), config, life, populate, on_event)?;
        self.print_start(process.number(), &spec, entities, console)?;
        let snapshots =
            SnapshotThread::start(self.node.clone(), self.client.clone(), spec, setup, self.url.clone())?;
        while !stop.is_set() {
            if let Ok(what) = events.recv_timeout(Duration::from_millis(100)) {
                print_event(&what, console)?;
            }
        }
        drop(snapshots);
        let stopped = process.stop();
        self.server.stop();
        self.node.stop();
        for what in events.try_iter() {
            print_event(&what, console)?;
        }
        stopped?;
        Ok(())
    }

    /// The address at which the process serves `/metrics`.
    fn http(&self) -> Option<String> {
        let http = self.server.addresses().iter().find(|(protocol, _)| *protocol == Protocol::Http);
        http.map(|(_, address)| format!("http://{address}"))
    }

    fn print_start(&self, process: u64, spec: &WorldSpec, entities: u64, console: &Console) -> Result<()> {
        let mut out = std::io::stdout();
        let WorldSpec { name: world, processes: expected, regions, .. } = spec;
        if console.json {
            let line = json!({"event": "started", "world": world, "process": process, "url": self.url, "entities": entities, "http": self.http()});
            writeln!(out, "{line}")?;
        } else {
            writeln!(
                out,
                "process {process} of world {world:?} is up at {}",
                console.paint.strong(&self.url)
            )?;
            writeln!(out, "  {regions} regions, {entities} entities, for {expected} processes")?;
            for (command, effect) in suggested_commands(world, &self.keys_url) {
                writeln!(out, "  {}  {effect}", console.paint.command(&command))?;
            }
            if let Some(http) = self.http() {
                writeln!(
                    out,
                    "  {}  show its metrics",
                    console.paint.command(&format!("curl {http}/metrics"))
                )?;
            }
        }
        Ok(out.flush()?)
    }
}

/// Returns an error if the command logs in at the node that holds the world's keys, but clients need no login at this
/// process's own node. Through this process, any client could then change the world, even without a login at the other
/// node.
fn check_authentication(global: &GlobalOptions, options: &ProcessOptions) -> Result<(), CommandRefusal> {
    let logs_in = global.user.is_some() || global.token_file.is_some() || global.client_cert.is_some();
    if !logs_in || options.users_file().is_some() || options.insecure_listen_without_authentication {
        return Ok(());
    }
    Err(CommandRefusal(
        "the node of this process needs users, like the node at --url: without users, every client of this \
         machine could change the world. Give --auth-users-file with the same users, or accept the risk with \
         --insecure-listen-without-authentication"
            .to_owned(),
    ))
}

/// Returns commands to try, with the URL of the node that holds the world's keys.
fn suggested_commands(world: &str, keys_url: &str) -> [(String, &'static str); 2] {
    let url_argument = url_argument(keys_url);
    [
        (format!("dunlin space join {world}{url_argument}"), "start another process"),
        (format!("dunlin space watch {world}{url_argument}"), "show the map"),
    ]
}

fn print_event(what: &WorldEvent, console: &Console) -> Result<()> {
    let mut out = std::io::stdout();
    let (line, text) = match what {
        WorldEvent::Owns { region, epoch, from_tick } => {
            let from =
                from_tick.map_or_else(|| "starts".to_owned(), |tick| format!("continues from tick {tick}"));
            let line = json!({"event": "owns", "region": region.0, "epoch": epoch, "from_tick": from_tick});
            (line, format!("region {} {from} in this process, in epoch {epoch}", region.0))
        }
        WorldEvent::Reclaimed { region, epoch, tick } => {
            let line = json!({"event": "owns", "region": region.0, "epoch": epoch, "from_tick": tick, "reclaimed": true});
            (line, format!("region {} continues from tick {tick} in this process, in epoch {epoch}: no entity is lost", region.0))
        }
        WorldEvent::GivenUp { region, held, heir } => {
            let held_text = held.map_or_else(String::new, |(tick, entities)| {
                format!(" ({entities} entities at tick {tick})")
            });
            let (tick, entities) = (held.map(|held| held.0), held.map(|held| held.1));
            let line = json!({"event": "given_up", "region": region.0, "tick": tick, "entities": entities, "heir": heir});
            let what = match heir {
                Some(heir) => format!("process {heir}, its standby, is the owner now; the copy in this process{held_text} is no longer used"),
                None => format!("another process is the owner in a later epoch; the copy in this process{held_text} is lost"),
            };
            (line, format!("region {}: {what}", region.0))
        }
        WorldEvent::WaitedOut { region, processes, expected } => (
            json!({"event": "waited_out", "region": region.0, "processes": processes, "expected": expected}),
            format!(
                "region {} starts with new entities: {processes} of {expected} processes joined within --patience. A process that joins \
                 later with a copy of the region loses that copy; use a longer --patience",
                region.0
            ),
        ),
        WorldEvent::KeysLost => (
            json!({"event": "keys_lost"}),
            "the cluster has lost the keys of this world: the processes write these keys again, and continue \
             with their entities".to_owned(),
        ),
        WorldEvent::WaitsFor { region, process } => (
            json!({"event": "waits_for", "region": region.0, "process": process}),
            format!(
                "region {} waits for process {process}, which still runs and may have the region's entities: the region \
                 begins without entities if this process ends, or does not return within 10 minutes",
                region.0
            ),
        ),
        WorldEvent::Lost(region) => (
            json!({"event": "lost", "region": region.0}),
            format!("region {}: its entities are lost, because no process has a valid copy", region.0),
        ),
        WorldEvent::Alone(region) => (
            json!({"event": "alone", "region": region.0}),
            format!(
                "region {} has no standby: its entities are lost if this process ends before another joins",
                region.0
            ),
        ),
        WorldEvent::StandsStill { region, standby } => {
            let standby_text =
                standby.map_or_else(String::new, |process| format!(" (its standby is process {process})"));
            (
                json!({"event": "stands_still", "region": region.0, "standby": standby}),
                format!(
                    "region {} stands still: no standby has confirmed its changes for longer than --patience{standby_text}",
                    region.0
                ),
            )
        }
        WorldEvent::Conflict { process, why } => {
            let other = process.map_or_else(|| "a process".to_owned(), |process| format!("process {process}"));
            (
                json!({"event": "conflict", "process": process, "why": why}),
                format!(
                    "{other} of this world cannot exchange entities with this process: {why}. {SETTINGS_REMEDY}"
                ),
            )
        }
        WorldEvent::OtherSettings { process, why } => (
            json!({"event": "conflict", "process": process, "why": why}),
            format!(
                "process {process} of this world has other settings, and both processes continue: {why}. {SETTINGS_REMEDY}"
            ),
        ),
        WorldEvent::InvalidKey(key) => (
            json!({"event": "invalid_key", "key": key}),
            format!(
                "key {key} cannot be decoded, and counts as missing: the owner of a region overwrites such a key; if it \
                 remains, run `dunlin kv del {key}`"
            ),
        ),
        WorldEvent::Idle => (
            json!({"event": "idle"}),
            "every region has an owner: this process is idle until another process ends (`dunlin space run \
             --regions` creates more regions)"
                .to_owned(),
        ),
        WorldEvent::Released(region) => (
            json!({"event": "released", "region": region.0}),
            format!("region {} is handed over to its standby", region.0),
        ),
        WorldEvent::NotHandedOver { regions, why } => {
            let numbers: Vec<u32> = regions.iter().map(|region| region.0).collect();
            let list: Vec<String> = numbers.iter().map(u32::to_string).collect();
            let text = format!(
                "regions not handed over: {} ({why}). Their entities are lost unless another process has a complete copy",
                list.join(", ")
            );
            (json!({"event": "not_handed_over", "regions": numbers, "why": why}), text)
        }
        WorldEvent::Cut(version) => (
            json!({"event": "cut", "version": version}),
            format!("the borders of the regions were moved, because their loads differed too much (partition {version})"),
        ),
        WorldEvent::LeaseLost(why) => {
            (json!({"event": "lease_lost", "why": why}), format!("{why}; the process requests another lease"))
        }
        WorldEvent::Away(why) => (json!({"event": "away", "why": why}), format!("retrying: {why}")),
        _ => return Ok(()),
    };
    if console.json {
        writeln!(out, "{line}")?
    } else {
        writeln!(out, "{text}")?
    }
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggested_commands_contain_the_url_if_it_is_not_the_default() {
        let commands = |url: &str| suggested_commands("birds", url).map(|(command, _)| command);
        assert_eq!(commands(URL_DEFAULT), ["dunlin space join birds", "dunlin space watch birds"]);
        let url = "dunlin://127.0.0.1:4230";
        assert_eq!(
            commands(url),
            [format!("dunlin space join birds --url {url}"), format!("dunlin space watch birds --url {url}")]
        );
    }
}
