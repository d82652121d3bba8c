//! `space watch`: the regions' topics, drawn.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dunlin::space::{
    AnyRegion, Limits, REGION, RegionFold, RegionId, RegionState, Schema, Standby, Timing, World, topic_of,
};
use dunlin_client::{Away, Client, Kv, Options, Subscriber, interruptible};
use dunlin_feed::{Replica, Report};
use dunlin_server::space::{Description, DescriptionError};
use dunlin_topic::{LogName, OnGap, Position, Start, SubscribeOptions};
use serde_json::json;

use super::life::AIRCRAFT;
use super::map::Map;
use super::owner::{Owned, regions};
use super::spec::describe;
use crate::arguments::Global;
use crate::commands::parse::duration;
use crate::connect::connect;
use crate::console::Console;
use crate::outage::{Outage, away};
use crate::outcome::Refusal;
use crate::signals::Stop;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin space watch                     the map, until Ctrl-C
  dunlin space watch --json              a line a second for each region
  dunlin space watch --once              one picture

A recording of a world is watched while it is replayed:
  dunlin feed record --out rec/ 'space.world.region.*' --url ADDRESS    at the node of each process
  dunlin feed replay rec/                                              into a node without that world
  dunlin space watch")]
pub struct Arguments {
    /// The world's name
    #[arg(default_value = "world")]
    name: String,
    /// How often the map is drawn [default: 200ms; 1s where nobody watches]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    every: Option<Duration>,
    /// Draw it once, when all regions have been heard of, and end
    #[arg(long)]
    once: bool,
}

/// How often it is asked who owns what.
const LOOK: Duration = Duration::from_millis(500);
/// How long `--once` waits for all regions.
const PATIENCE: Duration = Duration::from_secs(20);
const DRAIN_MAX: usize = 4_096;

/// A region as its owner's node tells of it.
struct Seen {
    url: String,
    replica: Replica<RegionFold<3>, Subscriber>,
    /// The topic's last record when it was begun to be followed: what is known up to there is no older than that.
    newest: Option<Position>,
}

impl Seen {
    /// The region's state, if it is whole and no older than when it was begun to be followed.
    fn state(&self) -> Option<&RegionState<3>> {
        let (_, position, fold) = self.replica.states().next()?;
        self.newest.is_none_or(|newest| newest <= position).then(|| fold.state())
    }
}

/// All regions of a world, followed wherever they are.
pub struct Watcher {
    /// The node with the topics of a world that no process runs: they were replayed.
    replayed: Option<Client>,
    kv: Kv,
    name: String,
    regions: Vec<u32>,
    world: World<3>,
    schema: Schema,
    seen: BTreeMap<u64, Seen>,
    pub owned: Vec<Owned>,
    began: Instant,
}

pub fn run(arguments: &Arguments, global: &Global, console: &Console) -> Result<()> {
    let stop = Stop::on_signal()?;
    stop.when_nobody_reads();
    let client = connect(global, "dunlin space watch")?;
    let watcher = stop.breaks_off(|| Watcher::find(&client, &arguments.name))?;
    let Some(mut watcher) = watcher else { return Ok(()) };
    let mut outage = Outage::default();
    let draws = console.is_terminal && !console.json && !arguments.once;
    let every =
        arguments.every.unwrap_or(if draws { Duration::from_millis(200) } else { Duration::from_secs(1) });
    let (mut looked, mut drawn) = (None::<Instant>, Instant::now());
    if draws {
        print!("\x1b[2J");
    }
    while !stop.is_set() {
        if looked.is_none_or(|looked| looked.elapsed() > LOOK) {
            look(&mut watcher, &client, &stop, arguments.once)?;
            looked = Some(Instant::now());
        }
        watcher.drain();
        let is_whole =
            watcher.seen.len() == watcher.owned.len() && watcher.states().count() == watcher.seen.len();
        let late = watcher.began.elapsed() > PATIENCE;
        let due = if arguments.once { is_whole || late } else { drawn.elapsed() >= every };
        if due {
            watcher.tell(draws, away(&client), console)?;
            drawn = Instant::now();
            if arguments.once {
                return Ok(());
            }
        }
        if !draws {
            outage.look(&client, console.errors)?;
        }
        stop.sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Asks who owns what. A node that is away is not waited for unless the picture is the only one: it goes on with what is known.
fn look(watcher: &mut Watcher, client: &Client, stop: &Stop, waits: bool) -> Result<()> {
    let (asked, ends) = (client.clone(), stop.clone());
    let breaks_off = move || ends.is_set() || !waits && away(&asked).is_some();
    match interruptible(breaks_off, || watcher.look()) {
        Err(_) if stop.is_set() || !waits && client.away().is_some() => Ok(()),
        looked => looked,
    }
}

impl Watcher {
    /// Of the world of this name; where no process runs one, of its regions' topics at this node.
    fn find(client: &Client, name: &str) -> Result<Watcher> {
        match Description::read(&client.kv(), name) {
            Err(DescriptionError::Unknown { .. }) => {}
            _ => return Watcher::of(client.kv(), name),
        }
        let (mut owned, mut found) = (Vec::new(), None);
        for topic in client.topics(&format!("space.{name}.region.*"))? {
            let Some(fold) = client.describe_topic(&topic.name)?.config.fold else { continue };
            let region = topic.name.rsplit('.').next().and_then(|number| number.parse().ok());
            if let (REGION, Some(region)) = (fold.kind.as_str(), region)
                && let Ok(AnyRegion::Space(empty)) = AnyRegion::of(&fold.options)
            {
                owned.push(Owned { region, url: Some(String::new()), ..Owned::default() });
                let corner = |name: &str| -> Option<[f32; 3]> {
                    let along = fold.options.get(name)?.split(',').map(|along| along.trim().parse().ok());
                    along.collect::<Option<Vec<f32>>>()?.try_into().ok()
                };
                let world = corner("min").zip(corner("max"));
                let world = world.and_then(|(min, max)| World::new(min, max).ok());
                found = world.map(|world| (world, empty.state().store().schema().clone()));
            }
        }
        let Some((world, schema)) = found else { return Watcher::of(client.kv(), name) };
        let (kv, seen, name) = (client.kv(), BTreeMap::new(), name.to_owned());
        let replayed = Some(client.clone());
        Ok(Watcher {
            replayed,
            kv,
            name,
            regions: Vec::new(),
            world,
            schema,
            seen,
            owned,
            began: Instant::now(),
        })
    }

    /// Of the world of this name.
    pub fn of(kv: Kv, name: &str) -> Result<Watcher> {
        let description = describe(&kv, name)?;
        let Some(world) = description.world() else {
            let dimensions = description.dimensions;
            return Err(Refusal(format!(
                "world {name:?} has {dimensions} dimensions, and only 3 can be watched"
            ))
            .into());
        };
        let (seen, owned, name) = (BTreeMap::new(), Vec::new(), name.to_owned());
        let (schema, regions) = (description.schema(), description.regions);
        Ok(Watcher { replayed: None, kv, name, regions, world, schema, seen, owned, began: Instant::now() })
    }

    /// Follows each region where it is now.
    pub fn look(&mut self) -> Result<()> {
        if self.replayed.is_none() {
            self.owned = regions(&self.kv, &self.name, &self.regions)?;
        }
        for owned in &self.owned {
            let Some(url) = &owned.url else { continue };
            if self.seen.get(&owned.region).is_some_and(|seen| seen.url == *url) {
                continue;
            }
            // Its node may be gone by now: it is looked for again.
            if let Ok(seen) = self.follow(url, owned.region) {
                self.seen.insert(owned.region, seen);
            }
        }
        Ok(())
    }

    /// Takes in what they told.
    pub fn drain(&mut self) {
        let now_ns = self.began.elapsed().as_nanos() as u64;
        self.seen.retain(|_, seen| {
            // A topic that is deleted is looked for again.
            let mut is_there = true;
            let told = |report: Report<'_, _>| is_there &= !matches!(report, Report::Deleted { .. });
            seen.replica.drain(now_ns, DRAIN_MAX, told).is_ok() && is_there
        });
    }

    /// The regions whose state is whole.
    pub fn states(&self) -> impl Iterator<Item = (u64, &RegionState<3>)> {
        self.seen.iter().filter_map(|(region, seen)| Some((*region, seen.state()?)))
    }

    fn follow(&self, url: &str, region: u64) -> Result<Seen> {
        let named = Options { name: "dunlin space watch".to_owned(), ..Options::default() };
        let client = match &self.replayed {
            Some(client) => client.clone(),
            None => Client::connect(url, named)?,
        };
        let options = SubscribeOptions {
            start: Start::Snapshot,
            on_gap: OnGap::Snapshot,
            ..SubscribeOptions::default()
        };
        let id = RegionId(region as u32);
        let topic = topic_of(&self.name, id);
        let subscriber = client.subscribe(&topic, options).context("following a region")?;
        // Readers share snapshots: one may have been taken a while ago.
        let described = client.describe_topic(&topic).context("asking how far a region is")?;
        let newest = described.logs.first().map(|log| Position { epoch: log.first.epoch, seq: log.last_seq });
        let (world, schema) = (self.world, self.schema.clone());
        let make = move |_: &LogName| {
            RegionFold::new(id, world, schema.clone(), Limits::default(), Standby::None, Timing::default())
        };
        Ok(Seen { url: url.to_owned(), replica: Replica::new(subscriber, make), newest })
    }

    fn tell(&self, draws: bool, away: Option<Away>, console: &Console) -> Result<()> {
        let mut out = std::io::stdout().lock();
        if console.json {
            for (region, state) in self.states() {
                let counts = state.handover().counts();
                let line = json!({
                    "region": region, "tick": state.tick(), "entities": state.store().len(),
                    "handed_over": counts.departed, "taken": counts.admitted,
                });
                writeln!(out, "{line}")?;
            }
            return Ok(out.flush()?);
        }
        let (width, height) = size();
        let world = self.world;
        let (low, high) = ([world.min()[0], world.min()[1]], [world.max()[0], world.max()[1]]);
        let mut map = Map::new(width, height.saturating_sub(self.owned.len() + 3), low, high);
        for (region, state) in self.states() {
            let (store, region) = (state.store(), region as u32);
            for row in 0..store.len() {
                let at = store.position(row);
                if store.kinds()[row] == AIRCRAFT {
                    map.mark([at[0], at[1]], region, '✈')
                } else {
                    map.put([at[0], at[1]], region)
                }
            }
        }
        if draws {
            write!(out, "\x1b[H")?;
        }
        let end = if draws { "\x1b[K" } else { "" };
        for line in map.lines(console.paint.is_on()) {
            writeln!(out, "{line}{end}")?;
        }
        for owned in &self.owned {
            writeln!(out, "{}{end}", self.line(owned))?;
        }
        if draws {
            let lost = away.map_or_else(String::new, |Away { since, why }| {
                let mark = console.paint.warning("connection lost");
                format!("{mark} for {} s: {why}; trying again", since.elapsed().as_secs())
            });
            writeln!(out, "{lost}{end}")?;
        }
        Ok(out.flush()?)
    }

    fn line(&self, owned: &Owned) -> String {
        let state = self.states().find(|(region, _)| *region == owned.region);
        let held = state.map_or_else(String::new, |(_, state)| {
            format!("tick {}, {} entities", state.tick(), state.store().len())
        });
        match (owned.owner, &owned.url) {
            (Some((process, epoch)), Some(url)) if !self.seen.contains_key(&owned.region) => {
                format!(
                    "region {}: process {process}, epoch {epoch}, its node {url} cannot be reached",
                    owned.region
                )
            }
            (Some((process, epoch)), _) => {
                format!("region {}: process {process}, epoch {epoch}, {held}", owned.region)
            }
            (None, _) if self.replayed.is_some() => {
                format!(
                    "region {}: {held}; no process runs this world, its topics were replayed",
                    owned.region
                )
            }
            (None, _) => format!("region {}: nobody owns it, its {held} stand still", owned.region),
        }
    }
}

/// The terminal's width and height; of a pipe, what a person can read.
pub fn size() -> (usize, usize) {
    terminal_size::terminal_size().map_or((80, 24), |(width, height)| (width.0.into(), height.0.into()))
}
