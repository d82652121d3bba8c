//! A process of a world, all of it: its regions' topics on its node, the runner, the subjects at which clients ask, and its part in
//! the cluster's leases.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use dunlin::Node;
use dunlin::space::{Balance, Behaviour, Host, Partition, RegionId, Rule, Setup, Stage, Standby};
use dunlin_client::Kv;
use serde_json::Value;

use super::config::{SpaceConfig, SpaceLimits};
use super::door::SpaceDoor;
use super::error::SpaceError;
use super::handle::Space;
use super::owners::{Owners, OwnersConfig, Populate, Told, process_number};
use super::pace::Pace;
use super::secret::Secret;

/// What a process of a world is started with.
#[derive(Debug, Clone)]
pub struct WorldConfig<const D: usize> {
    /// The world's name.
    pub name: String,
    /// Where clients reach this process's node.
    pub url: String,
    /// The setup of every region, but for its number. Regions have a standby where it asks for one.
    pub setup: Setup<D>,
    /// All regions of the world.
    pub regions: Vec<RegionId>,
    /// Processes for which the world waits before its regions are distributed; 1 by default.
    pub processes: usize,
    /// How long the regions of a process that is not heard of wait for it; 1 s at first.
    pub ttl: Duration,
    /// How long a region waits for a process that has a copy of it; 10 s at first.
    pub patience: Duration,
    /// Where other processes of the world connect to; any port of the loopback address at first.
    pub between: SocketAddr,
    /// History of a region's topic, bytes; 64 MiB at first.
    pub history_bytes: u64,
    /// What the program needs to make the world again, for all who read its description; null at first.
    pub recipe: Value,
}

impl<const D: usize> WorldConfig<D> {
    /// A world of these regions for one process or more.
    pub fn new(name: &str, url: &str, setup: Setup<D>, regions: &[RegionId]) -> WorldConfig<D> {
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

/// See the module. Dropped, it leaves the world: its regions go to those who stand by for them.
#[derive(Debug)]
pub struct WorldProcess<const D: usize, B> {
    number: u64,
    // In this order: what it owns is given up first.
    owners: Owners,
    door: SpaceDoor,
    space: Arc<Space<D, B>>,
}

/// How often the cluster is looked at.
const LOOK: Duration = Duration::from_millis(50);

impl<const D: usize, B: Behaviour<D> + Clone + Send + 'static> WorldProcess<D, B> {
    /// Takes part in a world, or begins it. All its processes are given the same setup, regions and behaviour. `node` is this process's,
    /// `kv` the cluster's through which the world's processes agree; `populate` fills a region that is begun for the first time, `tell` is
    /// told what happens.
    pub fn start(
        node: &Node,
        kv: Kv,
        config: WorldConfig<D>,
        behaviour: B,
        populate: impl Fn(&mut Host<D, B>, RegionId) + Send + Sync + 'static,
        tell: impl FnMut(Told) + Send + 'static,
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
        let (number, pace) = (process_number()?, Pace::Every(setup.tick_ns));
        let standby = setup.standby == Standby::Required;
        let stage = Stage { node: node.clone(), world: name.clone(), history_bytes };
        let host = Host::new(setup, behaviour, Partition::even(D, &regions), Some(stage));
        let between = SpaceConfig {
            world: name.clone(),
            process: number,
            listen: between,
            peers: Vec::new(),
            pace,
            lockstep: false,
            balance: Some(Balance::default()),
            insecure: false,
            // Until the world's own is read from its key.
            secret: Secret::random()?,
            limits: SpaceLimits::default(),
        };
        let space = Arc::new(Space::start(between, host)?);
        let door = SpaceDoor::open(node, &space, (&name, number), Rule::All)?;
        let config = OwnersConfig {
            world: name,
            process: number,
            address: space.address(),
            url,
            regions,
            expected: processes,
            standby,
            ttl,
            look: LOOK,
            patience,
            pace,
            recipe,
        };
        let populate: Populate<D, B> = Arc::new(populate);
        let owners = Owners::start(kv, config, Arc::clone(&space), populate, tell)?;
        Ok(WorldProcess { number, owners, door, space })
    }

    /// Its number in the world.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Its regions, to spawn and change entities between two ticks.
    pub fn space(&self) -> &Arc<Space<D, B>> {
        &self.space
    }

    /// Leaves the world; what went wrong, if something did.
    pub fn stop(self) -> Result<(), SpaceError> {
        let WorldProcess { owners, door, space, .. } = self;
        drop(owners);
        drop(door);
        space.stop()
    }
}
