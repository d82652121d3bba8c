//! The command `dunlin space watch`. It reads the topics of a world's regions, and draws the entities as a map.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dunlin::space::{
    AnyRegion, Census, HandoverTiming, REGION, RegionEntityCounts, RegionId, RegionLimits, RegionReducer,
    RegionState, Schema, StandbyMode, WorldBox, topic_of,
};
use dunlin_client::{Client, Disconnection, Subscriber, interruptible};
use dunlin_feed::{Replica, ReplicaReport};
use dunlin_server::space::{WorldDescription, WorldDescriptionError};
use dunlin_topic::{LogName, OnGap, Position, Start, SubscribeOptions};
use serde_json::json;

use super::follow_fault::FollowFault;
use super::life::AIRCRAFT;
use super::map::WorldMap;
use super::owner::{RegionStatus, WorldStatus};
use super::spec::describe;
use crate::arguments::GlobalOptions;
use crate::commands::parse::{positive_duration, world};
use crate::connect::connect;
use crate::console::Console;
use crate::format::text::escaped;
use crate::outage::{OutageReport, unreachable};
use crate::outcome::CommandRefusal;
use crate::signals::StopFlag;

/// Arguments of `dunlin space watch`, which draws a map of a world.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin space watch                     draw the map until Ctrl-C
  dunlin space watch --json              print one line a second for each region
  dunlin space watch --once              draw the map once

The regions on the map can be at different ticks. An entity that changes its region is counted once: in a region, or as on
its way.

To watch a recording of a world, replay it:
  dunlin feed record --out rec/ 'space.world.region.*' --url ADDRESS    at the node of each process
  dunlin feed replay rec/                                              into a node without that world
  dunlin space watch")]
pub struct Arguments {
    /// Name of the world
    #[arg(default_value = "world", value_parser = world)]
    name: String,
    /// Time between two maps [default: 200ms; 1s if the output is not a terminal]
    #[arg(long, value_name = "DURATION", value_parser = positive_duration)]
    every: Option<Duration>,
    /// Draw the map once and end; waits up to 20s for the state of every region, and ends with exit code 1 if one is
    /// missing
    #[arg(long)]
    once: bool,
}

/// The interval at which the owners of the regions are read again.
const REFRESH_INTERVAL: Duration = Duration::from_millis(500);
/// How long `--once` waits until the state of every region has arrived.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long `--once` waits if the world's keys show that no entity moves.
const PATIENCE_WITH_PROBLEM: Duration = Duration::from_secs(3);
/// The longest delay of the next map while entities of the previous map are missing. A handover takes less time.
const DELAY_MAX: Duration = Duration::from_millis(500);
/// How many times at most `--once` updates all regions while entities are missing.
const UPDATES_MAX: u32 = 5;
/// The largest number of changes to one region that are applied at a time.
const DRAIN_MAX: usize = 4_096;

/// A region whose topic is read at the node of the region's owner.
struct WatchedRegion {
    url: String,
    client: Client,
    replica: Replica<RegionReducer<3>, Subscriber>,
    /// The position that the state must reach before it is shown: the position of the topic's last record when watching
    /// began, or at the last call of `require_newest`.
    newest: Option<Position>,
}

impl WatchedRegion {
    /// Returns the region's state if it is complete and has reached the position `newest`.
    fn state(&self) -> Option<&RegionState<3>> {
        let (_, position, reducer) = self.replica.states().next()?;
        self.newest.is_none_or(|newest| newest <= position).then(|| reducer.state())
    }
}

/// Returns the position of the last record in a region's topic.
fn newest(client: &Client, topic: &str) -> Result<Option<Position>> {
    let described = client.describe_topic(topic).context("cannot read a region's tick")?;
    Ok(described.logs.first().map(|log| Position { epoch: log.first.epoch, seq: log.last_seq }))
}

/// Reads the state of each region of a world at the region's owner, to draw a map.
pub struct Watcher {
    /// The client of the node that holds the world's keys. If `is_replayed` is set, this node has the topics of a
    /// replayed recording of the world instead.
    client: Client,
    is_replayed: bool,
    name: String,
    regions: Vec<u32>,
    world: WorldBox<3>,
    schema: Schema,
    watched: BTreeMap<u64, WatchedRegion>,
    /// For each region that is not in `watched`: why the region could not be followed at its owner's node.
    faults: BTreeMap<u64, FollowFault>,
    /// The URLs of nodes that refused the login, with the reason. The login is not repeated: after many failed logins
    /// from one address, a node delays all logins from this address.
    refused_logins: BTreeMap<String, FollowFault>,
    pub owned: Vec<RegionStatus>,
    began: Instant,
    /// The reason why the world cannot be shown, according to the world's keys.
    problem: Option<String>,
}

pub fn run(arguments: &Arguments, global: &GlobalOptions, console: &Console) -> Result<()> {
    let stop = StopFlag::on_signal()?;
    stop.set_when_stdout_closes();
    let client = connect(global, "dunlin space watch")?;
    let watcher = stop.run_interruptible(|| Watcher::find(&client, &arguments.name))?;
    let Some(mut watcher) = watcher else { return Ok(()) };
    let mut outage = OutageReport::default();
    let draws = console.is_terminal && !console.json && !arguments.once;
    let every =
        arguments.every.unwrap_or(if draws { Duration::from_millis(200) } else { Duration::from_secs(1) });
    let (mut refreshed, mut drawn) = (None::<Instant>, Instant::now());
    let (mut before, mut updates) = (Census::default(), 0);
    let mut printed_problem = None;
    if draws {
        print!("\x1b[2J");
    }
    while !stop.is_set() {
        if refreshed.is_none_or(|refreshed| refreshed.elapsed() > REFRESH_INTERVAL) {
            refresh(&mut watcher, &client, &stop, arguments.once)?;
            refreshed = Some(Instant::now());
            if !draws && watcher.problem != printed_problem {
                printed_problem.clone_from(&watcher.problem);
                printed_problem
                    .iter()
                    .try_for_each(|why| writeln!(std::io::stderr(), "{}", escaped(why.as_bytes())))?;
            }
        }
        watcher.drain();
        let patience = if watcher.problem.is_some() { PATIENCE_WITH_PROBLEM } else { PATIENCE };
        let late = arguments.once && watcher.began.elapsed() > patience;
        if late || if arguments.once { watcher.is_complete() } else { drawn.elapsed() >= every } {
            let census = Census::of(watcher.states().map(|(_, state)| state));
            let missing_count = census.missing_count(&before);
            if arguments.once && !late && updates < UPDATES_MAX && (updates == 0 || missing_count > 0) {
                // Entities that were between two regions may now have arrived, so all regions are updated once more.
                (before, updates) = (census, updates + 1);
                watcher.require_newest();
                continue;
            }
            if missing_count == 0 || late || arguments.once || drawn.elapsed() > every + DELAY_MAX {
                watcher.print(&census, draws, unreachable(&client), console)?;
                (drawn, before) = (Instant::now(), census);
                if arguments.once {
                    return watcher.check_complete();
                }
            }
        }
        if !draws {
            outage.check_connection(&client, console.errors)?;
        }
        stop.sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Reads the owners of the regions. If the node is unreachable, waits for the node if `waits_for_node` is set, and
/// otherwise keeps the last known owners.
fn refresh(watcher: &mut Watcher, client: &Client, stop: &StopFlag, waits_for_node: bool) -> Result<()> {
    let (probe, stop_flag) = (client.clone(), stop.clone());
    let should_interrupt = move || stop_flag.is_set() || !waits_for_node && unreachable(&probe).is_some();
    match interruptible(should_interrupt, || watcher.refresh()) {
        Err(_) if stop.is_set() || !waits_for_node && client.disconnection().is_some() => Ok(()),
        refreshed => refreshed,
    }
}

impl Watcher {
    /// Watches a world. If no world has this name, looks at the client's node for topics with the names that the
    /// regions of such a world would have: `dunlin feed replay` may have created these topics from a recording.
    fn find(client: &Client, name: &str) -> Result<Watcher> {
        match WorldDescription::read(&client.kv(), name) {
            Err(WorldDescriptionError::Unknown { .. }) => {}
            _ => return Watcher::of(client, name),
        }
        let (mut owned, mut found) = (Vec::new(), None);
        for topic in client.topics(&format!("space.{name}.region.*"))? {
            let Some(reducer) = client.describe_topic(&topic.name)?.config.reducer else { continue };
            let region = topic.name.rsplit('.').next().and_then(|number| number.parse().ok());
            if let (REGION, Some(region)) = (reducer.kind.as_str(), region)
                && let Ok(AnyRegion::Space(empty)) = AnyRegion::of(&reducer.options)
            {
                owned.push(RegionStatus { region, url: Some(String::new()), ..RegionStatus::default() });
                let corner = |name: &str| -> Option<[f32; 3]> {
                    let coordinates = reducer
                        .options
                        .get(name)?
                        .split(',')
                        .map(|coordinate| coordinate.trim().parse().ok());
                    coordinates.collect::<Option<Vec<f32>>>()?.try_into().ok()
                };
                let world = corner("min").zip(corner("max"));
                let world = world.and_then(|(min, max)| WorldBox::new(min, max).ok());
                found = world.map(|world| (world, empty.state().store().schema().clone()));
            }
        }
        let Some((world, schema)) = found else { return Watcher::of(client, name) };
        Ok(Watcher {
            client: client.clone(),
            is_replayed: true,
            name: name.to_owned(),
            regions: Vec::new(),
            world,
            schema,
            watched: BTreeMap::new(),
            faults: BTreeMap::new(),
            refused_logins: BTreeMap::new(),
            owned,
            began: Instant::now(),
            problem: None,
        })
    }

    /// Watches the world `name`, whose keys are at the client's node. Connections to the regions' owners use the same
    /// options as `client`.
    pub fn of(client: &Client, name: &str) -> Result<Watcher> {
        let description = describe(&client.kv(), name)?;
        let Some(world) = description.world() else {
            let dimensions = description.dimensions;
            return Err(CommandRefusal(format!(
                "world {name:?} has {dimensions} dimensions, and `dunlin space watch` shows only worlds with 3"
            ))
            .into());
        };
        Ok(Watcher {
            client: client.clone(),
            is_replayed: false,
            name: name.to_owned(),
            world,
            schema: description.schema(),
            regions: description.regions,
            watched: BTreeMap::new(),
            faults: BTreeMap::new(),
            refused_logins: BTreeMap::new(),
            owned: Vec::new(),
            began: Instant::now(),
            problem: None,
        })
    }

    /// Reads the owner of each region, and follows each region at its present owner's node.
    pub fn refresh(&mut self) -> Result<()> {
        if !self.is_replayed {
            let found = WorldStatus::find(&self.client.kv(), &self.name, &self.regions)?;
            (self.problem, self.owned) = (found.problem(), found.regions);
        }
        for owned in &self.owned {
            let Some(url) = &owned.url else { continue };
            if self.watched.get(&owned.region).is_some_and(|watched| watched.url == *url) {
                continue;
            }
            let fault = match self.refused_logins.get(url) {
                Some(refused) => refused.clone(),
                None => match self.follow(url, owned.region) {
                    Ok(watched) => {
                        self.watched.insert(owned.region, watched);
                        continue;
                    }
                    // The owner's node may have ended. The next call of `refresh` tries again.
                    Err(error) => FollowFault::of(&error),
                },
            };
            if matches!(fault, FollowFault::Login(_)) {
                self.refused_logins.insert(url.clone(), fault.clone());
            }
            self.faults.insert(owned.region, fault);
        }
        Ok(())
    }

    /// Applies the changes that have arrived from the regions' topics.
    pub fn drain(&mut self) {
        let (now_ns, faults) = (self.began.elapsed().as_nanos() as u64, &mut self.faults);
        self.watched.retain(|region, watched| {
            // A region whose topic was deleted is no longer watched. If the region has a new topic, the next `refresh`
            // follows it.
            let mut exists = true;
            let on_report =
                |report: ReplicaReport<'_, _>| exists &= !matches!(report, ReplicaReport::Deleted { .. });
            let fault = match watched.replica.drain(now_ns, DRAIN_MAX, on_report) {
                _ if !exists => FollowFault::NoTopic,
                Err(error) => FollowFault::from_subscribe_error(&error),
                Ok(_) => return true,
            };
            faults.insert(*region, fault);
            false
        });
    }

    /// The regions that can be shown: the state of each is complete, and has reached the required position.
    pub fn states(&self) -> impl Iterator<Item = (u64, &RegionState<3>)> {
        self.watched.iter().filter_map(|(region, watched)| Some((*region, watched.state()?)))
    }

    fn follow(&self, url: &str, region: u64) -> Result<WatchedRegion> {
        let client = if self.is_replayed { self.client.clone() } else { self.client.connect_to_node(url)? };
        let options = SubscribeOptions {
            start: Start::Snapshot,
            on_gap: OnGap::Snapshot,
            ..SubscribeOptions::default()
        };
        let id = RegionId(region as u32);
        let topic = topic_of(&self.name, id);
        let subscriber = client.subscribe(&topic, options).context("cannot subscribe to a region's topic")?;
        // A new subscriber may receive a snapshot that the node made earlier, so its first state may be older than the
        // last record.
        let newest = newest(&client, &topic)?;
        let (world, schema) = (self.world, self.schema.clone());
        let make = move |_: &LogName| {
            RegionReducer::new(
                id,
                world,
                schema.clone(),
                RegionLimits::default(),
                StandbyMode::None,
                HandoverTiming::default(),
            )
        };
        Ok(WatchedRegion { url: url.to_owned(), client, replica: Replica::new(subscriber, make), newest })
    }

    /// Whether the world has regions, and [`states`](Watcher::states) contains all of them.
    fn is_complete(&self) -> bool {
        !self.owned.is_empty() && self.states().count() == self.owned.len()
    }

    /// Requires that each region's state becomes at least as new as the last record that its topic has now.
    fn require_newest(&mut self) {
        self.watched.retain(|region, watched| {
            match newest(&watched.client, &topic_of(&self.name, RegionId(*region as u32))) {
                Ok(newest) => {
                    watched.newest = newest;
                    true
                }
                // The region is no longer watched. The next `refresh` follows the region again.
                Err(error) => {
                    self.faults.insert(*region, FollowFault::of(&error));
                    false
                }
            }
        });
    }

    /// Returns an error if the state of any region is missing. The error names each such region and the reason.
    fn check_complete(&self) -> Result<()> {
        if let Some(problem) = &self.problem {
            return Err(CommandRefusal(problem.clone()).into());
        }
        let known: BTreeSet<u64> = self.states().map(|(region, _)| region).collect();
        let unknown = self.owned.iter().filter(|owned| !known.contains(&owned.region));
        let unknown: Vec<String> = unknown
            .map(|owned| format!("region {} ({})", owned.region, self.missing_reason(owned)))
            .collect();
        if unknown.is_empty() {
            return Ok(());
        }
        Err(CommandRefusal(format!(
            "the map of world {:?} is incomplete: {} cannot be read",
            self.name,
            unknown.join(", ")
        ))
        .into())
    }

    /// The reason why a region's state is missing.
    fn missing_reason(&self, owned: &RegionStatus) -> String {
        match (owned.owner, &owned.url) {
            (None, _) if !owned.had_owner => "has not begun".to_owned(),
            (None, _) => "no process owns it".to_owned(),
            (Some((process, _)), Some(url)) if !self.watched.contains_key(&owned.region) => {
                let node = format!("the node of process {process}, {url},");
                match self.faults.get(&owned.region) {
                    Some(FollowFault::NoTopic) => {
                        let topic = topic_of(&self.name, RegionId(owned.region as u32));
                        format!(
                            "{node} has no topic {topic:?}: the process creates it again if it was deleted"
                        )
                    }
                    Some(FollowFault::Login(why)) => format!("{node} refused the login: {why}"),
                    Some(FollowFault::Refused(why)) => format!("{node} refused the request: {why}"),
                    _ => format!("{node} cannot be reached"),
                }
            }
            (Some((process, _)), _) => format!("process {process} has not sent its state yet"),
        }
    }

    fn print(
        &self,
        census: &Census,
        draws: bool,
        disconnection: Option<Disconnection>,
        console: &Console,
    ) -> Result<()> {
        let mut out = std::io::stdout().lock();
        if console.json {
            for owned in &self.owned {
                let (region, process) = (owned.region, owned.owner.map(|(process, _)| process));
                let line = match self.states().find(|(known, _)| *known == region) {
                    Some((_, state)) => {
                        let counts = state.handover().counts();
                        let RegionEntityCounts { active: here, in_handover: on_the_way } =
                            census.headcount(RegionId(region as u32));
                        json!({
                            "region": region, "process": process, "tick": state.tick(), "entities": here,
                            "on_the_way": on_the_way, "handed_over": counts.departed, "taken": counts.admitted,
                        })
                    }
                    None => json!({
                        "region": region, "process": process, "tick": null, "entities": null,
                        "why": self.missing_reason(owned),
                    }),
                };
                writeln!(out, "{line}")?;
            }
            return Ok(out.flush()?);
        }
        let (width, height) = size();
        let world = self.world;
        let (low, high) = ([world.min()[0], world.min()[1]], [world.max()[0], world.max()[1]]);
        let mut map = WorldMap::new(width, height.saturating_sub(self.owned.len() + 4), low, high);
        for (region, state) in self.states() {
            let (store, region) = (state.store(), region as u32);
            for row in 0..store.len() {
                if census.find(store.ids()[row]) != Some((RegionId(region), false)) {
                    continue;
                }
                let at = store.position(row);
                if store.kinds()[row] == AIRCRAFT {
                    map.mark([at[0], at[1]], region, '✈')
                } else {
                    map.draw_dot([at[0], at[1]], region)
                }
            }
        }
        if draws {
            write!(out, "\x1b[H")?;
        }
        let end = if draws { "\x1b[K" } else { "" };
        for line in map.lines(console.paint.has_colors()) {
            writeln!(out, "{line}{end}")?;
        }
        for owned in &self.owned {
            writeln!(out, "{}{end}", self.line(owned, census))?;
        }
        let on_the_way: usize = self.owned.iter().map(|owned| count(census, owned).in_handover).sum();
        writeln!(out, "{} entities, {on_the_way} of them on their way between regions{end}", census.len())?;
        if draws {
            let lost = disconnection.map_or_else(String::new, |Disconnection { since, why }| {
                let mark = console.paint.warning("connection lost");
                format!("{mark} for {} s: {why}; reconnecting", since.elapsed().as_secs())
            });
            writeln!(out, "{lost}{end}")?;
        }
        Ok(out.flush()?)
    }

    fn line(&self, owned: &RegionStatus, census: &Census) -> String {
        let region = owned.region;
        let Some((_, state)) = self.states().find(|(known, _)| *known == region) else {
            return format!("region {region}: {}", self.missing_reason(owned));
        };
        let held = format!("tick {}, {} entities", state.tick(), count(census, owned).active);
        match owned.owner {
            Some((process, epoch)) => format!("region {region}: process {process}, epoch {epoch}, {held}"),
            None if self.is_replayed => {
                format!("region {region}: {held}; no process runs this world; its topics were replayed")
            }
            None => format!("region {region}: no owner, so its entities do not move: {held}"),
        }
    }
}

fn count(census: &Census, owned: &RegionStatus) -> RegionEntityCounts {
    census.headcount(RegionId(owned.region as u32))
}

/// The width and height of the terminal in characters; 80 × 24 if the output is not a terminal.
pub fn size() -> (usize, usize) {
    terminal_size::terminal_size().map_or((80, 24), |(width, height)| (width.0.into(), height.0.into()))
}
