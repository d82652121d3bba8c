//! The command `dunlin space near`, which lists the entities near an entity.

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::Result;
use dunlin_client::interruptible;
use dunlin_client::space::{
    EntityId, SceneChange, Schema, SurroundingsWatch, ViewError, Viewer, VisibilityRule, VisibleEntity, World,
};
use serde_json::{Value, json};

use crate::arguments::GlobalOptions;
use crate::commands::parse::{self, world};
use crate::connect::connect;
use crate::console::Console;
use crate::outage::{OutageReport, unreachable};
use crate::outcome::CommandRefusal;
use crate::signals::StopFlag;
use crate::table::TextTable;

/// Arguments of `dunlin space near`, which lists the entities around an entity.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin space near 1000000 --within 40             print entities that come and go, until Ctrl-C
  dunlin space near 1000000 --within 40 --once      print a table of the entities that are near now
  dunlin space near 17 sky --within 5 --kind 1 --json

The node sends only entities of the requested kinds. Beyond a region's border, only entities within the width of the
world's ghost strip are visible; docs/space.md explains it.")]
pub struct Arguments {
    /// Id of the entity at the centre
    entity: u64,
    /// Name of the world
    #[arg(default_value = "world", value_parser = world)]
    name: String,
    /// Maximum distance of the entities to show, in units of the world
    #[arg(long, value_name = "DISTANCE", value_parser = parse::distance, allow_negative_numbers = true)]
    within: f32,
    /// Kind of the entities to show [default: all]
    #[arg(long, value_name = "NUMBER", conflicts_with = "not_kind")]
    kind: Option<u32>,
    /// Kind of the entities not to show [default: none]
    #[arg(long, value_name = "NUMBER")]
    not_kind: Option<u32>,
    /// Maximum number of bytes that each process sends per tick to report movements; the limit does not apply to
    /// entities that appear or disappear
    #[arg(long, value_name = "BYTES", default_value_t = 16_384)]
    bytes: u32,
    /// Print the entities that are near now, and end
    #[arg(long)]
    once: bool,
}

/// Two durations without a change. After the first one, `--once` considers the list of entities complete. After the
/// second one, a command without `--once` prints why it may have shown nothing.
const QUIET: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(3));
/// How long `--once` waits for the first entity. A busy process responds only after its tick.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest wait for a change before the command checks whether it has to end.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

pub fn run(arguments: &Arguments, global: &GlobalOptions, console: &Console) -> Result<()> {
    let stop = StopFlag::on_signal()?;
    stop.set_when_stdout_closes();
    let client = connect(global, "dunlin space near")?;
    let world = client.world(&arguments.name);
    let center = EntityId(arguments.entity);
    let rule = match (arguments.kind, arguments.not_kind) {
        (Some(kind), _) => VisibilityRule::OfKind(kind),
        (_, Some(kind)) => VisibilityRule::NotOfKind(kind),
        _ => VisibilityRule::All,
    };
    let watch = SurroundingsWatch {
        rule,
        bytes_per_tick: arguments.bytes,
        ..SurroundingsWatch::around(center, arguments.within)
    };
    let watched =
        stop.run_interruptible(|| Ok(world.watch::<3>(watch, Schema::default()).map_err(refused)?))?;
    let Some(mut viewer) = watched else { return Ok(()) };
    if arguments.once {
        gather(&mut viewer, &stop)?;
        if viewer.visible().is_empty() && !stop.is_set() {
            let why = stop.run_interruptible(|| Ok(no_entity_error(&world, &viewer, (center, rule))))?;
            if let Some(why) = why
                && !stop.is_set()
            {
                return Err(why.into());
            }
        }
        return print_all(&viewer, center, console);
    }
    let (mut hint_at, mut outage) = (Some(Instant::now() + QUIET.1), OutageReport::default());
    // Interrupts a wait if the node cannot be reached or the command has to end.
    let should_interrupt = || {
        let (probe, stop_flag) = (client.clone(), stop.clone());
        move || stop_flag.is_set() || unreachable(&probe).is_some()
    };
    while !stop.is_set() {
        let change =
            interruptible(should_interrupt(), || viewer.next_timeout(POLL_INTERVAL)).map_err(refused)?;
        outage.check_connection_nowait(&client, console.errors)?;
        let Some(change) = change else {
            let is_reachable = client.disconnection().is_none();
            if is_reachable && hint_at.take_if(|at| *at < Instant::now()).is_some() {
                let why =
                    interruptible(should_interrupt(), || no_entity_error(&world, &viewer, (center, rule)));
                if client.disconnection().is_none() && !stop.is_set() {
                    eprintln!("{why}");
                } else {
                    // During an outage, the command cannot find out why the list is empty. It tries again later.
                    hint_at = Some(Instant::now() + QUIET.1);
                }
            }
            continue;
        };
        hint_at = None;
        if let Some(line) = line(&viewer, center, change, console.json) {
            let mut out = console.out();
            writeln!(out, "{line}")?;
            out.flush()?;
        }
    }
    Ok(())
}

fn refused(why: ViewError) -> CommandRefusal {
    CommandRefusal(why.to_string())
}

/// Returns the error for a list without entities. Unless `rule` leaves entities out, the list contains at least
/// `center`.
fn no_entity_error(
    world: &World,
    viewer: &Viewer<3>,
    (center, rule): (EntityId, VisibilityRule),
) -> CommandRefusal {
    let checked = world.world_owners().and_then(|owners| owners.check().map(|()| owners));
    CommandRefusal(match checked {
        Err(why) => why.to_string(),
        Ok(_) if !matches!(rule, VisibilityRule::All) => {
            format!("no entity of this kind is near entity {center}, or the world has no entity {center}")
        }
        Ok(owners) => owners.entity_error(center, |process| viewer.is_connected_to(process)).to_string(),
    })
}

/// Receives changes until none has arrived for the first duration in [`QUIET`].
fn gather(viewer: &mut Viewer<3>, stop: &StopFlag) -> Result<()> {
    let (began, mut last) = (Instant::now(), None::<Instant>);
    while !stop.is_set() {
        match viewer.next_timeout(POLL_INTERVAL).map_err(refused)? {
            Some(SceneChange::Entered(_) | SceneChange::Left(_)) => last = Some(Instant::now()),
            _ if last.map_or(began.elapsed() > PATIENCE, |last| last.elapsed() > QUIET.0) => break,
            _ if began.elapsed() > PATIENCE => break,
            _ => {}
        }
    }
    Ok(())
}

/// Formats a change as a line of text. Returns `None` for a movement, unless `json` is set.
fn line(viewer: &Viewer<3>, center: EntityId, change: SceneChange, json: bool) -> Option<String> {
    let (event, id) = match change {
        SceneChange::Entered(id) => ("enter", id),
        SceneChange::Moved(id) => ("update", id),
        SceneChange::Left(id) => ("leave", id),
    };
    let entity = viewer.visible().get(&id);
    if json {
        let mut line = entity.map_or_else(|| json!({}), |entity| entity_object(viewer, center, entity));
        line["event"] = event.into();
        line["id"] = id.0.to_string().into();
        return Some(line.to_string());
    }
    let at = entity.map(|entity| position_text(&entity.position)).unwrap_or_default();
    match change {
        SceneChange::Entered(_) => Some(format!("+ {id}  {at}")),
        SceneChange::Left(_) => Some(format!("- {id}")),
        SceneChange::Moved(_) => None,
    }
}

fn print_all(viewer: &Viewer<3>, center: EntityId, console: &Console) -> Result<()> {
    let mut all: Vec<(EntityId, &VisibleEntity<3>)> =
        viewer.visible().iter().map(|(id, entity)| (*id, entity)).collect();
    all.sort_by(|a, b| {
        let distance_of = |entity: &VisibleEntity<3>| distance(viewer, center, entity).unwrap_or(f32::MAX);
        distance_of(a.1).total_cmp(&distance_of(b.1)).then(a.0.cmp(&b.0))
    });
    let mut out = console.out();
    if console.json {
        for (id, entity) in all {
            let mut line = entity_object(viewer, center, entity);
            line["id"] = id.0.to_string().into();
            writeln!(out, "{line}")?;
        }
        return Ok(out.flush()?);
    }
    let mut table = TextTable::new(&["ENTITY", "KIND", "REGION", "DISTANCE", "POSITION"]);
    for (id, entity) in all {
        let distance = distance(viewer, center, entity)
            .map_or_else(|| "-".to_owned(), |distance| format!("{distance:.1}"));
        let (kind, region) = (entity.kind.to_string(), entity.region.0.to_string());
        table.row([id.to_string(), kind, region, distance, position_text(&entity.position)]);
    }
    table.write(&mut out, console.paint)?;
    Ok(out.flush()?)
}

fn entity_object(viewer: &Viewer<3>, center: EntityId, entity: &VisibleEntity<3>) -> Value {
    json!({
        "kind": entity.kind, "region": entity.region.0, "tick": entity.tick, "position": entity.position, "velocity": entity.velocity,
        "distance": distance(viewer, center, entity),
    })
}

/// The distance from the centre, if the centre is visible.
fn distance(viewer: &Viewer<3>, center: EntityId, entity: &VisibleEntity<3>) -> Option<f32> {
    let center = viewer.visible().get(&center)?.position;
    let squares = (0..3).map(|axis| (center[axis] - entity.position[axis]).powi(2));
    Some(squares.sum::<f32>().sqrt())
}

fn position_text(at: &[f32; 3]) -> String {
    format!("{:.1} {:.1} {:.1}", at[0], at[1], at[2])
}
