//! A worker: a process that runs one region, carries out commands of the parent, and prints its results in the format
//! of the benchmark document of Luciferase, another system.
//!
//! ```text
//!  READY                     the worker listens; the next line is {"port":…}
//!  MIGRATION_COUNT: N        number of handovers that the worker sent and received in the measurement
//!  P99_LATENCY_MS: X         99th percentile of the duration of the worker's ticks
//!  HEAP_MB: N                resident memory of the worker; the next line is the whole report
//! ```

use std::io::{BufWriter, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dunlin::space::curve::{Curve, MortonCurve};
use dunlin::space::{Host, Partition, RegionAuthority, RegionId, RegionLoad, RegionReport, WorldTopics};
use dunlin::{Config, Node, NodeLimits};
use dunlin_server::space::{Secret, Space, SpaceConfig, SpaceLimits, TickPace, WorldPeer, WorldRunner};
use serde::{Deserialize, Serialize};

use super::movement::MovementPattern;
use super::setting::WorldSetting;
use crate::child::TIMEOUT;
use crate::clock::{monotonic_ns, processor_ns};
use crate::role::{RoleArgs, print_line, read_line};

/// The line with the port at which a worker or a relay listens.
#[derive(Debug, Serialize, Deserialize)]
pub struct WorkerPort {
    /// The port at which the process accepts connections.
    pub port: u16,
}

/// A command from the parent process to a worker of the measured world.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum WorldCommand {
    /// Create the entities that start in the worker's region, and then wait until the worker has connections with all
    /// other workers. The response is the number of created entities.
    Spawn,
    /// Become the standby of the next worker's region. Then wait until this worker's own region has a standby too.
    StandBy,
    /// Run ticks, and then report. The response is a [`WorldReport`].
    Run {
        /// The time from the start of one tick to the start of the next, in ns; 0 for no pauses.
        every_ns: u64,
        /// The number of ticks.
        ticks: u64,
    },
    /// Stop the ticks, and wait until all handovers have ended. The response is the number of entities.
    Hold,
    /// Write the id, the generation and the state hash of each entity into this file. The response is the number of
    /// entities.
    Ledger(PathBuf),
    /// Determine the load of the region. The response is a [`RegionWeight`].
    RegionLoad,
    /// Divide the space-filling curve among the regions in a new way. Each element contains the first key of a region,
    /// and the region's number. The elements are sorted by key.
    Cut(Vec<(u64, u32)>),
}

/// The counts and durations that a process of the measured world reports after a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct WorldReport {
    /// The start of the run on the machine's monotonic clock, in ns.
    pub start_ns: u64,
    /// The end of the run on the machine's monotonic clock, in ns.
    pub end_ns: u64,
    /// The number of entities that the worker handed over to others.
    pub departed: u64,
    /// The number of entities that the worker took over from others.
    pub admitted: u64,
    /// The number of ticks in which entities moved.
    pub ticks: u64,
    /// The number of due ticks that were not run, because the region's standby was behind.
    pub behind: u64,
    /// How long the worker's ticks took, in ns: median, 95th percentile, 99th percentile and maximum.
    pub tick_ns: [Option<u64>; 4],
    /// The longest delay of a tick: the time from when it was due until it started, in ns.
    pub late_ns: u64,
    /// The number of ticks that were skipped because too many ticks were late.
    pub left_out: u64,
    /// The number of completed handovers.
    pub handovers: u64,
    /// The time from the message `Prepare` of a handover to its message `Taken`, in ns: median, 99th percentile and
    /// maximum.
    pub handover_ns: [Option<u64>; 3],
    /// The number of received ghosts.
    pub ghosts: u64,
    /// The 99th percentile of the time from a tick until its ghosts arrived, in ns.
    pub ghosts_late_ns: Option<u64>,
    /// The number of bytes sent to other workers.
    pub sent_bytes: u64,
    /// The number of dropped messages.
    pub dropped: u64,
    /// The processor time that the process used in the run, in ns.
    pub cpu_ns: u64,
    /// The resident memory of the process, in bytes.
    pub resident_bytes: u64,
    /// The memory of the entities in bytes, as the regions count it.
    pub store_bytes: u64,
    /// The number of entities.
    pub entities: u64,
    /// The number of the tick after which the worker last took over an entity. The first tick of this run has number 1.
    /// The value is 0 if the worker took over no entity.
    pub last_admitted: u64,
}

type Worker = Space<3, MovementPattern>;

pub(crate) fn serve(args: &RoleArgs) -> Result<()> {
    let setting: WorldSetting = serde_json::from_str(args.text("setting")?)?;
    let ports: Vec<u16> = serde_json::from_str(args.text("ports")?)?;
    let number: u32 = args.get("process")?;
    let region = RegionId(number);
    let topics = if setting.publish { Some(topics()?) } else { None };
    let mut host = Host::new(setting.setup(region), setting.movement, setting.partition(), topics);
    host.begin(region, RegionAuthority { epoch: 1, until_ns: u64::MAX })?;
    let space = Space::start(config(&setting, number, &ports), host)?;
    print_marker(format_args!("READY"))?;
    print_line(&WorkerPort { port: space.address().port() })?;
    let mut before = (0, 0);
    loop {
        match read_line()? {
            WorldCommand::Spawn => {
                let spawned = spawn(&space, setting, region)?;
                // Wait until all other workers are connected. Without this wait, messages could be lost: in a world
                // without lock-step, ticks run before all workers are connected, and messages to a worker that is not
                // connected are dropped.
                let others = setting.processes as usize - 1;
                let is_waiting = move |runner: &mut WorldRunner<3, MovementPattern>| {
                    runner.remote_regions().len() < others
                };
                wait_while(&space, is_waiting, "the workers did not connect to each other")?;
                print_line(&spawned)?;
            }
            WorldCommand::StandBy => {
                let next = RegionId(number % setting.processes + 1);
                space.call(move |runner| runner.follow(next))?;
                let is_waiting = move |runner: &mut WorldRunner<3, MovementPattern>| {
                    runner.copy_of(next).is_none() || runner.follower_of(region).is_none()
                };
                wait_while(&space, is_waiting, "a standby did not begin")?;
                print_line(&true)?;
            }
            WorldCommand::Run { every_ns, ticks } => {
                let report = run(&space, every_ns, ticks, &mut before)?;
                print_marker(format_args!("MIGRATION_COUNT: {}", report.departed + report.admitted))?;
                let p99_ns = report.tick_ns[2].context("the node ran no tick")?;
                print_marker(format_args!("P99_LATENCY_MS: {:.3}", p99_ns as f64 / 1e6))?;
                print_marker(format_args!("HEAP_MB: {}", report.resident_bytes / 1_000_000))?;
                print_line(&report)?;
            }
            WorldCommand::Hold => print_line(&wait_for_handovers(&space)?)?,
            WorldCommand::Ledger(path) => {
                let ledger = space.call(|runner| runner.host().ledger())?;
                let mut file = BufWriter::new(std::fs::File::create(&path)?);
                for (id, generation, hash) in &ledger {
                    file.write_all(&id.0.to_le_bytes())?;
                    file.write_all(&u64::from(*generation).to_le_bytes())?;
                    file.write_all(&hash.to_le_bytes())?;
                }
                file.flush()?;
                print_line(&ledger.len())?;
            }
            WorldCommand::RegionLoad => print_line(&load(&space, region)?)?,
            WorldCommand::Cut(cuts) => {
                let now_ns = monotonic_ns();
                space.call(move |runner| {
                    let version = runner.host().partition().version();
                    let cuts = cuts.into_iter().map(|(first, region)| (first, RegionId(region))).collect();
                    Partition::of(3, version + 1, cuts)
                        .map(|partition| runner.host_mut().set_partition(&partition, now_ns))
                })??;
                print_line(&true)?;
            }
        }
    }
}

fn print_marker(text: std::fmt::Arguments<'_>) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush().context("cannot write to the parent process")
}

fn topics() -> Result<WorldTopics> {
    let limits = NodeLimits { memory_bytes_max: 4 << 30, ..NodeLimits::default() };
    let node = Node::start(Config { limits, ..Config::default() })?;
    Ok(WorldTopics { node, world: "bench".to_owned(), history_bytes: 64 << 20 })
}

fn config(setting: &WorldSetting, number: u32, ports: &[u16]) -> SpaceConfig {
    let loopback = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let port = |other: u32| ports.get(other as usize - 1).copied().unwrap_or(0);
    let others = (1..=setting.processes).filter(|other| *other != number);
    SpaceConfig {
        world: "bench".to_owned(),
        process: number.into(),
        listen: loopback(0),
        peers: others
            .map(|other| WorldPeer { process: other.into(), address: loopback(port(other)) })
            .collect(),
        pace: TickPace::Hold,
        lockstep: setting.lockstep,
        balance: None,
        insecure: false,
        secret: Secret::of([1; 32]),
        limits: SpaceLimits::default(),
    }
}

fn spawn(space: &Worker, setting: WorldSetting, region: RegionId) -> Result<usize> {
    let spawned = space.call(move |runner| {
        let host = runner.host_mut();
        let mut count = 0;
        for nth in 0..setting.entities {
            let entity = setting.entity(nth);
            if host.owner_of(&entity.position) == region {
                host.spawn(&entity)?;
                count += 1;
            }
        }
        Ok::<_, dunlin::space::StoreError>(count)
    })?;
    Ok(spawned?)
}

fn counts(runner: &WorldRunner<3, MovementPattern>) -> (u64, u64) {
    let each = runner.host().regions().map(|(_, region)| region.handover().counts());
    each.fold((0, 0), |sum, counts| (sum.0 + counts.departed, sum.1 + counts.admitted))
}

fn run(space: &Worker, every_ns: u64, ticks: u64, before: &mut (u64, u64)) -> Result<WorldReport> {
    let (sender, completions) = channel();
    let counts_before = space.call(|runner| runner.host().counts())?;
    let cpu_ns = processor_ns();
    let start_ns = monotonic_ns();
    let admitted_before = before.1;
    space.call(move |runner| {
        runner.take_stats();
        let first = runner.ticks();
        let (mut admitted, mut last_admitted) = (admitted_before, 0);
        runner.add_tick_watcher(move |host, tick| {
            let now = host.regions().map(|(_, region)| region.handover().counts().admitted).sum();
            if now != admitted {
                (admitted, last_admitted) = (now, tick - first);
            }
            if tick < first + ticks {
                return true;
            }
            // If the receiver is gone, sending fails, which is no error.
            let _ = sender.send((monotonic_ns(), last_admitted));
            false
        });
        let pace = if every_ns == 0 { TickPace::FlatOut } else { TickPace::Every(every_ns) };
        runner.set_pace(pace, Some(ticks));
    })?;
    let (end_ns, last_admitted) =
        completions.recv_timeout(TIMEOUT * 10).context("the node did not run the ticks in time")?;
    wait_while(space, WorldRunner::is_busy, "lock-step did not come to its end")?;
    let reports = space.call(WorldRunner::take_reports)?;
    let failure = reports.iter().find(|(_, report)| !matches!(report, RegionReport::Held { .. }));
    ensure!(failure.is_none(), "a region reported a failure: {failure:?}");
    let (stats, now, host_counts, (entities, store_bytes)) = space.call(|runner| {
        let bytes = runner.host().regions().map(|(_, region)| region.bytes()).sum::<usize>();
        (runner.stats(), counts(runner), runner.host().counts(), (runner.host().len(), bytes))
    })?;
    ensure!(
        host_counts.refused == 0 && host_counts.unpublished == 0,
        "regions refused messages, or topics refused regions' records: {host_counts:?}"
    );
    let report = WorldReport {
        start_ns,
        end_ns,
        departed: now.0 - before.0,
        admitted: now.1 - before.1,
        ticks: host_counts.ticks - counts_before.ticks,
        behind: host_counts.behind - counts_before.behind,
        tick_ns: [0.5, 0.95, 0.99, 1.0].map(|share| stats.ticks.quantile_ns(share)),
        late_ns: stats.late.max_ns(),
        left_out: stats.skipped,
        handovers: stats.handovers.count(),
        handover_ns: [0.5, 0.99, 1.0].map(|share| stats.handovers.quantile_ns(share)),
        ghosts: stats.ghosts,
        ghosts_late_ns: stats.ghosts_late.quantile_ns(0.99),
        sent_bytes: stats.sent_bytes,
        dropped: stats.dropped,
        cpu_ns: processor_ns() - cpu_ns,
        resident_bytes: resident_bytes()?,
        store_bytes: store_bytes as u64,
        entities: entities as u64,
        last_admitted,
    };
    *before = now;
    Ok(report)
}

fn wait_for_handovers(space: &Worker) -> Result<usize> {
    space.call(|runner| runner.set_pace(TickPace::Hold, None))?;
    wait_while(space, |runner| runner.host().pending_handovers() != (0, 0), "handovers did not end")?;
    Ok(space.call(|runner| runner.host().len())?)
}

fn wait_while(
    space: &Worker,
    is_busy: impl Fn(&mut WorldRunner<3, MovementPattern>) -> bool + Copy + Send + 'static,
    timeout_message: &str,
) -> Result<()> {
    let deadline = std::time::Instant::now() + TIMEOUT;
    while space.call(is_busy)? {
        ensure!(std::time::Instant::now() < deadline, "{timeout_message} within {TIMEOUT:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// The load of a region: the number of its entities, and keys of the space-filling curve that divide the entities into
/// parts of equal number.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RegionWeight {
    /// The number of the region.
    pub region: u32,
    /// The load of the region, which is the number of its entities.
    pub amount: f64,
    /// The keys of the space-filling curve that divide the region's entities into parts of equal number, as in
    /// `space::RegionLoad`.
    pub quantiles: Vec<u64>,
}

impl From<RegionWeight> for RegionLoad {
    fn from(weight: RegionWeight) -> RegionLoad {
        RegionLoad { region: RegionId(weight.region), amount: weight.amount, quantiles: weight.quantiles }
    }
}

/// The number of parts into which the quantiles divide a region's entities.
const PARTS: usize = 64;

fn load(space: &Worker, region: RegionId) -> Result<RegionWeight> {
    let keys = space.call(move |runner| {
        let host = runner.host();
        let world = host.setup().world;
        let store = host.region(region).map(|region| region.store());
        let key = |row: usize, store: &dunlin::space::EntityStore<3>| {
            MortonCurve::key(world.grid_point(&store.position(row)))
        };
        let mut keys: Vec<u64> =
            store.map(|store| (0..store.len()).map(|row| key(row, store)).collect()).unwrap_or_default();
        keys.sort_unstable();
        keys
    })?;
    let quantiles = (1..PARTS).filter_map(|part| keys.get(keys.len() * part / PARTS).copied()).collect();
    Ok(RegionWeight { region: region.0, amount: keys.len() as f64, quantiles })
}

fn resident_bytes() -> Result<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").context("cannot read /proc/self/statm")?;
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    Ok(pages.context("/proc/self/statm has an unknown format")? * rustix::param::page_size() as u64)
}
