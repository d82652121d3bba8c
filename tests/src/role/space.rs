//! `space process=N processes=COUNT ports=P1,P2 …`: a process of a world, which runs region N.
//!
//! Prints `listens PORT`. Then carries out commands from standard input, and prints the result of each:
//!
//! | command | action |
//! |---|---|
//! | `spawn COUNT SEED` | spawns those of COUNT entities that are in the process's region |
//! | `pace NS` | starts a tick every NS ns; 0 for full speed |
//! | `run TICKS` | runs TICKS more ticks at full speed |
//! | `hold` | starts no more ticks, and waits for the end of all handovers |
//! | `ledger` | prints `entity ID GENERATION HASH` for each entity, then `end` |
//! | `follow REGION` | follows a region of another process |
//! | `known REGION` | prints the last known tick of a followed region |
//! | `take REGION EPOCH` | takes over a followed region in a new epoch |
//! | `counts` | prints three counts: entities sent to other processes, entities received from them, and ticks |
//! | `refusals` | waits until this process or another one refuses a connection between the two; prints the reason |
//! | `cut PART…` | divides the world anew: region N begins at the Nth PART, in twelfths of the space-filling curve |

use std::io::BufRead as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use dunlin::space::behaviour::RandomWalk;
use dunlin::space::{
    Entity, HandoverTiming, Host, MortonCurve, Partition, RegionAuthority, RegionId, RegionSetup,
    StandbyMode, Takeover, TickContext, WorldBox,
};
use dunlin_server::space::{Secret, Space, SpaceConfig, SpaceLimits, TickPace, WorldPeer};

use super::option;

/// The edge length of the world.
pub const EDGE: f32 = 100.0;
/// The random walk by which the entities move.
pub const WALK: RandomWalk = RandomWalk { speed_max: 60.0, turn: 9.0 };
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the settings that all regions of the tests' world have.
pub fn setup(standby: bool) -> RegionSetup<3> {
    let world = WorldBox::<3>::cube(EDGE).expect("the edge length is above 0");
    let mut setup = RegionSetup::new(RegionId(0), world, 2.0);
    setup.sort_every = 7;
    if standby {
        setup.standby = StandbyMode::Required;
    }
    setup.timing = HandoverTiming { prepare_ns: 30_000_000_000, ..HandoverTiming::default() };
    setup
}

/// Returns the entity `id`, with a position and a velocity that follow from `id` and `seed`.
pub fn entity(id: u64, seed: u64) -> Entity<'static, 3> {
    let world = WorldBox::<3>::cube(EDGE).expect("the edge length is above 0");
    let context = TickContext { tick: 0, seconds: 0.0, world, seed };
    let swing = |which| context.random_signed(dunlin::space::EntityId(id), which);
    let position = std::array::from_fn(|axis| (swing(axis as u64) + 1.0) * EDGE / 2.0);
    Entity { velocity: std::array::from_fn(|axis| swing(3 + axis as u64) * 40.0), ..Entity::at(id, position) }
}

/// Divides the world into `regions` regions, numbered from 1. Each region has an equally long stretch of the
/// space-filling curve.
pub fn partition(regions: u32) -> Partition {
    Partition::even(3, &(1..=regions).map(RegionId).collect::<Vec<_>>())
}

type Process = Space<3, RandomWalk>;

/// Runs the role `space` until standard input ends.
pub fn run(arguments: &[String]) -> Result<()> {
    let (number, count): (u32, u32) = (option(arguments, "process", 1)?, option(arguments, "processes", 1)?);
    let ports: String = option(arguments, "ports", String::new())?;
    let (lockstep, standby) = (option(arguments, "lockstep", false)?, option(arguments, "standby", false)?);
    let ports: Vec<u16> =
        ports.split(',').filter(|port| !port.is_empty()).map(str::parse).collect::<Result<_, _>>()?;
    let others = (1..=count).filter(|other| *other != number);
    let loopback = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    // This process connects to the processes with lower numbers. The processes with higher numbers connect to this one.
    let port = |other: u32| ports.get(other as usize - 1).copied().unwrap_or(0);
    let config = SpaceConfig {
        world: option(arguments, "world", "tests".to_owned())?,
        process: number.into(),
        listen: loopback(0),
        peers: others
            .map(|other| WorldPeer { process: other.into(), address: loopback(port(other)) })
            .collect(),
        pace: TickPace::Hold,
        lockstep,
        balance: None,
        insecure: false,
        secret: Secret::of([1; 32]),
        limits: SpaceLimits::default(),
    };
    let mut host = Host::new(setup(standby), WALK, partition(count), None);
    host.begin(RegionId(number), RegionAuthority { epoch: 1, until_ns: u64::MAX })?;
    let space = Space::start(config, host)?;
    println!("listens {}", space.address().port());
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split(' ').collect();
        run_command(&space, &words, number).with_context(|| format!("command `{line}` failed"))?;
    }
    Ok(())
}

fn run_command(space: &Process, words: &[&str], number: u32) -> Result<()> {
    let argument = |at: usize| words.get(at).copied().context("the command has too few words");
    let region = |at: usize| -> Result<RegionId> { Ok(RegionId(argument(at)?.parse()?)) };
    match words[0] {
        "spawn" => spawn(space, argument(1)?.parse()?, argument(2)?.parse()?, RegionId(number))?,
        "pace" => {
            let pace = match argument(1)?.parse()? {
                0 => TickPace::FlatOut,
                length_ns => TickPace::Every(length_ns),
            };
            space.call(move |runner| runner.set_pace(pace, None))?;
            println!("paced");
        }
        "run" => {
            let ticks: u64 = argument(1)?.parse()?;
            space.call(move |runner| runner.set_pace(TickPace::FlatOut, Some(ticks)))?;
            wait_until("the end of the ticks", || Ok(!space.call(|runner| runner.is_busy())?))?;
            println!("ran {}", space.call(|runner| runner.ticks())?);
        }
        "hold" => {
            space.call(|runner| runner.set_pace(TickPace::Hold, None))?;
            wait_until("the end of all handovers", || {
                Ok(space.call(|runner| runner.host().pending_handovers() == (0, 0))?)
            })?;
            println!("held");
        }
        "ledger" => {
            for (id, generation, hash) in space.call(|runner| runner.host().ledger())? {
                println!("entity {id} {generation} {hash}");
            }
            println!("end");
        }
        "follow" => {
            let region = region(1)?;
            space.call(move |runner| runner.follow(region))?;
            wait_until("the arrival of the region's copy", || {
                Ok(space.call(move |runner| runner.copy_of(region).is_some())?)
            })?;
            println!("follows");
        }
        "known" => {
            let region = region(1)?;
            let tick = space.call(move |runner| runner.copy_of(region).map_or(0, |state| state.tick()))?;
            println!("knows {tick}");
        }
        "cut" => {
            let part = |word: &&str| Ok(MortonCurve::end(3) / 12 * word.parse::<u64>()?);
            let firsts: Vec<u64> = words[1..].iter().map(part).collect::<Result<_>>()?;
            let cuts = firsts.into_iter().zip((1..).map(RegionId)).collect();
            space.call(move |runner| {
                let version = runner.host().partition().version() + 1;
                Partition::of(3, version, cuts).map(|partition| runner.set_partition(&partition))
            })??;
            println!("cut");
        }
        "take" => take_over(space, region(1)?, argument(2)?.parse()?)?,
        "counts" => {
            let handover_counts = |runner: &mut dunlin_server::space::WorldRunner<3, RandomWalk>| {
                let each = runner.host().regions().map(|(_, region)| region.handover().counts());
                each.fold((0, 0), |sum, counts| (sum.0 + counts.departed, sum.1 + counts.admitted))
            };
            let (departed, admitted) = space.call(handover_counts)?;
            println!("counts {departed} {admitted} {}", space.call(|runner| runner.ticks())?);
        }
        "refusals" => {
            let mut refusals = Vec::new();
            wait_until("a refusal", || {
                refusals.extend(space.call(|runner| runner.take_refusals())?);
                Ok(!refusals.is_empty())
            })?;
            println!("refused {}", refusals[0].1);
        }
        other => bail!("unknown command {other}"),
    }
    Ok(())
}

fn spawn(space: &Process, count: u64, seed: u64, region: RegionId) -> Result<()> {
    let spawned = space.call(move |runner| {
        let host = runner.host_mut();
        let own_entities = (0..count)
            .map(|id| entity(id, seed))
            .filter(|candidate| host.owner_of(&candidate.position) == region);
        let own_entities: Vec<_> = own_entities.collect();
        own_entities.iter().try_for_each(|entity| host.spawn(entity)).map(|()| own_entities.len())
    })??;
    println!("spawned {spawned}");
    Ok(())
}

/// Makes this process the owner of a region that another process owned.
fn take_over(space: &Process, region: RegionId, epoch: u64) -> Result<()> {
    let was_taken = space.call(move |runner| {
        let peers: Vec<_> =
            runner.remote_regions().iter().map(|(region, _, epoch)| (*region, *epoch)).collect();
        let peers: Vec<_> = peers.into_iter().filter(|(peer, _)| *peer != region).collect();
        let authority = RegionAuthority { epoch, until_ns: u64::MAX };
        let now_ns = dunlin_server::space::monotonic_ns();
        runner.take_over(region, &Takeover { authority, peers: &peers, now_ns })
    })??;
    ensure!(was_taken, "region {} is unknown", region.0);
    println!("took {}", region.0);
    Ok(())
}

fn wait_until(what: &str, mut condition: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !condition()? {
        ensure!(Instant::now() < deadline, "{what} did not happen within {PATIENCE:?}");
        sleep(Duration::from_millis(1));
    }
    Ok(())
}
