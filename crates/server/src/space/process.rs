//! A process of a world: it runs regions, serves clients, and owns its regions by a lease.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use dunlin::Node;
use dunlin::space::{
    BalancePolicy, Behaviour, Host, Partition, RegionId, RegionSetup, StandbyMode, VisibilityRule,
    WorldTopics,
};
use dunlin_client::Kv;
use serde_json::Value;

use super::config::{SpaceConfig, SpaceLimits};
use super::endpoint::SpaceEndpoint;
use super::error::SpaceError;
use super::handle::{RunnerListener, Space};
use super::owners::{RegionOwnership, RegionOwnershipConfig, RegionPopulator, WorldEvent, process_number};
use super::pace::TickPace;
use super::secret::Secret;

/// The configuration of a process that runs a part of a world.
#[derive(Debug, Clone)]
pub struct WorldConfig<const D: usize> {
    /// The world's name.
    pub name: String,
    /// The address at which clients reach this process's node.
    pub url: String,
    /// The setup of all regions. For each region, only the region's number is replaced. The setup also says whether
    /// regions have standbys.
    pub setup: RegionSetup<D>,
    /// The regions of the world.
    pub regions: Vec<RegionId>,
    /// Number of processes that must be present before the world's regions are distributed among them; default 1.
    pub processes: usize,
    /// Time to live of the process's lease; default 1 s.
    pub ttl: Duration,
    /// How long a region without an owner waits for a process that has a copy of it; default 10 s.
    pub patience: Duration,
    /// The address on which this process listens for other processes of the world; default: any free port of the
    /// loopback address.
    pub between: SocketAddr,
    /// Retention of a region's topic, bytes; default 64 MiB.
    pub history_bytes: u64,
    /// Data from which the program can create the world again. The data are part of the world's description, and must
    /// be the same in all processes; default null.
    pub recipe: Value,
}

impl<const D: usize> WorldConfig<D> {
    /// The default configuration of a world with these regions.
    pub fn new(name: &str, url: &str, setup: RegionSetup<D>, regions: &[RegionId]) -> WorldConfig<D> {
        WorldConfig {
            name: name.to_owned(),
            url: url.to_owned(),
            setup,
            regions: regions.to_vec(),
            processes: 1,
            ttl: Duration::from_secs(1),
            patience: Duration::from_secs(10),
            between: (Ipv4Addr::LOCALHOST, 0).into(),
            history_bytes: 64 << 20,
            recipe: Value::Null,
        }
    }
}

/// A running process of a world. [`WorldProcess::stop`] hands the process's regions over to other processes. If this is
/// dropped instead, only regions whose standby has a complete copy continue at other processes.
#[derive(Debug)]
pub struct WorldProcess<const D: usize, B> {
    number: u64,
    // Fields are dropped in this order, so the regions are given up before the runner ends.
    owners: RegionOwnership,
    space: Arc<Space<D, B>>,
}

/// Interval at which the world's keys are read.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

impl<const D: usize, B: Behaviour<D> + Clone + Send + 'static> WorldProcess<D, B> {
    /// Joins a world. The first process of a world creates it. All processes of the world need the same setup, regions
    /// and behaviour. `kv` contains the world's keys. `populate` inserts the entities of a region that begins for the
    /// first time. `on_event` is called with each event.
    pub fn start(
        node: &Node,
        kv: Kv,
        config: WorldConfig<D>,
        behaviour: B,
        populate: impl Fn(&mut Host<D, B>, RegionId) + Send + Sync + 'static,
        on_event: impl FnMut(WorldEvent) + Send + 'static,
    ) -> Result<WorldProcess<D, B>, SpaceError> {
        let listener = RunnerListener::bind(config.between, false)?;
        WorldProcess::start_with(listener, node, kv, config, behaviour, populate, on_event)
    }

    /// Like [`WorldProcess::start`], but listens for other processes at a bound socket instead of
    /// [`WorldConfig::between`].
    pub fn start_with(
        listener: RunnerListener,
        node: &Node,
        kv: Kv,
        config: WorldConfig<D>,
        behaviour: B,
        populate: impl Fn(&mut Host<D, B>, RegionId) + Send + Sync + 'static,
        on_event: impl FnMut(WorldEvent) + Send + 'static,
    ) -> Result<WorldProcess<D, B>, SpaceError> {
        let WorldConfig {
            name,
            url,
            setup,
            regions,
            processes,
            ttl,
            patience,
            between,
            history_bytes,
            recipe,
        } = config;
        let (number, pace) = (process_number()?, TickPace::Every(setup.tick_ns));
        let standby = setup.standby == StandbyMode::Required;
        let topics = WorldTopics { node: node.clone(), world: name.clone(), history_bytes };
        let host = Host::new(setup, behaviour, Partition::even(D, &regions), Some(topics));
        let space_config = SpaceConfig {
            world: name.clone(),
            process: number,
            listen: between,
            peers: Vec::new(),
            pace,
            lockstep: false,
            balance: Some(BalancePolicy::default()),
            insecure: false,
            // This secret is replaced once the key with the world's secret was read.
            secret: Secret::random()?,
            limits: SpaceLimits::default(),
        };
        let space = Arc::new(Space::start_with(listener, space_config, host)?);
        let endpoint = SpaceEndpoint::open(node, &space, (&name, number), VisibilityRule::All)?;
        let config = RegionOwnershipConfig {
            world: name,
            process: number,
            address: space.address(),
            url,
            regions,
            expected: processes,
            standby,
            ttl,
            poll_interval: POLL_INTERVAL,
            patience,
            pace,
            recipe,
        };
        let populate: RegionPopulator<D, B> = Arc::new(populate);
        let owners =
            RegionOwnership::start(kv, config, Arc::clone(&space), Some(endpoint), populate, on_event)?;
        Ok(WorldProcess { number, owners, space })
    }

    /// The process's number in the world.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The handle of the thread that runs the regions. Through it, a program can spawn and change entities between two
    /// ticks.
    pub fn space(&self) -> &Arc<Space<D, B>> {
        &self.space
    }

    /// Leaves the world: hands the process's regions over to other processes, which takes at most 10 s, and stops. The
    /// regions that could not be handed over are reported ([`WorldEvent::NotHandedOver`]). Returns the error of the
    /// thread that ran the regions if it failed.
    pub fn stop(self) -> Result<(), SpaceError> {
        let WorldProcess { owners, space, .. } = self;
        owners.leave();
        space.stop()
    }
}
