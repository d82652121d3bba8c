//! The thread that renews a process's lease, decides which regions the process runs, and acts on the decisions.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dunlin::space::{Behaviour, Host, RegionAuthority, RegionId, StandbyProgress};
use dunlin_client::{Kv, KvError, Lease, LeaseLostError, interruptible};
use serde_json::Value;

use super::actions::{apply_standby, runner_deadline_ns};
use super::keys::{
    ProcessSettings, RegionMemory, RegionOwner, StandbyKey, WorldSnapshot, decode_secret, key, prefix,
    secret_key,
};
use super::life_check::LifeChecks;
use super::memory::{FreeRegions, UncertainClaim, UnconnectedProcesses, update_memory};
use super::plan::{HOLDER_WAIT_MS_MAX, LocalState, is_idle, plan};
use crate::space::description::WorldDescription;
use crate::space::endpoint::SpaceEndpoint;
use crate::space::error::SpaceError;
use crate::space::handle::{OwnerCalls, Space};
use crate::space::pace::TickPace;
use crate::space::secret::Secret;

/// The configuration with which a process becomes the owner of regions of a world.
#[derive(Debug, Clone)]
pub struct RegionOwnershipConfig {
    /// The world's name.
    pub world: String,
    /// This process's number, above 0 and unique in the world ([`process_number`](crate::space::process_number)
    /// returns one).
    pub process: u64,
    /// The address at which other processes of the world reach this process.
    pub address: SocketAddr,
    /// The address at which clients reach this process's node.
    pub url: String,
    /// The regions of the world.
    pub regions: Vec<RegionId>,
    /// Number of processes that must be present before the regions are distributed among them.
    pub expected: usize,
    /// Whether each region needs a standby.
    pub standby: bool,
    /// Time to live of the process's lease.
    pub ttl: Duration,
    /// Interval at which the world's keys are read.
    pub poll_interval: Duration,
    /// How long a region without an owner waits for a process that has a copy of it.
    pub patience: Duration,
    /// The rate at which ticks are made.
    pub pace: TickPace,
    /// Data from which this program can create the world again. The data become part of the world's
    /// [`WorldDescription`].
    pub recipe: Value,
}

/// A function that inserts a region's initial entities when the region begins for the first time.
pub type RegionPopulator<const D: usize, B> = Arc<dyn Fn(&mut Host<D, B>, RegionId) + Send + Sync>;

/// Something that happened to the regions, the lease or the connections of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorldEvent {
    /// A region runs at this process from now on.
    Owns {
        /// The region.
        region: RegionId,
        /// The epoch in which this process owns the region.
        epoch: u64,
        /// The tick after which the region continues; `None` if the region begins.
        from_tick: Option<u64>,
    },
    /// The region continues at this process with all its state. The process's lease had expired or the cluster had lost
    /// its keys, but no other process has claimed the region.
    Reclaimed {
        /// The region.
        region: RegionId,
        /// The epoch in which this process owns the region now.
        epoch: u64,
        /// The tick after which the region continues.
        tick: u64,
    },
    /// Another process runs a region that this process owned. The state that this process had of the region is lost,
    /// unless the other process was the region's standby. A standby continues from a state that is at most one tick
    /// older than the end of this process's lease.
    GivenUp {
        /// The region.
        region: RegionId,
        /// Tick and number of entities of the state that this process had, if known.
        held: Option<(u64, u64)>,
        /// The other process if it was the region's standby; otherwise `None`.
        heir: Option<u64>,
    },
    /// A region begins although fewer processes are present than expected, because the time
    /// [`RegionOwnershipConfig::patience`] has passed. If a process with a copy of the region registers later, its copy
    /// is not used.
    WaitedOut {
        /// The region.
        region: RegionId,
        /// Number of processes that are present.
        processes: usize,
        /// Number of processes that the world expects.
        expected: usize,
    },
    /// The cluster has lost the world's keys. The processes write them again, and continue from the states in their
    /// memory.
    KeysLost,
    /// A region without an owner does not begin yet: this process may have the region's state, and still runs. It is
    /// stopped, or cannot reach the cluster. The region waits for at most ten minutes in addition to
    /// [`RegionOwnershipConfig::patience`]. If the process ends, the region begins without entities.
    WaitsFor {
        /// The region.
        region: RegionId,
        /// The number of the process for which the region waits.
        process: u64,
    },
    /// The state of a region is lost: its owner has ended, and no process has a valid copy. The region begins without
    /// entities.
    Lost(RegionId),
    /// A region continues without a standby, because no other process stays in the world. If this process fails, the
    /// region's state is lost.
    Alone(RegionId),
    /// A region of this process stands still: no standby has confirmed its changes for longer than
    /// [`RegionOwnershipConfig::patience`]. Reported only once, and again only after a standby has confirmed a change.
    StandsStill {
        /// The region.
        region: RegionId,
        /// The process that is named as the region's standby, if any.
        standby: Option<u64>,
    },
    /// This process and another one cannot connect, because they have different setups of the world or different
    /// versions. Reported once for each process.
    Conflict {
        /// The number of the other process; `None` if the other process opened the connection.
        process: Option<u64>,
        /// Why the connection is refused.
        why: String,
    },
    /// Another process of the world has other settings: it expects another number of processes, has another setting for
    /// standbys, or has another recipe. Both processes continue, and exchange entities. Reported once for each process.
    OtherSettings {
        /// The number of the other process.
        process: u64,
        /// In which settings the other process differs.
        why: String,
    },
    /// A key of the world has an invalid value, and counts as missing. If the key belongs to a region, the region's
    /// owner overwrites it. Reported once for each write of the key.
    InvalidKey(String),
    /// This process runs no region, and will receive none until another process ends.
    Idle,
    /// This process gave a region to another process.
    Released(RegionId),
    /// This process leaves the world without having handed over these regions. Their state is lost unless another
    /// process has a complete copy.
    NotHandedOver {
        /// The regions.
        regions: Vec<RegionId>,
        /// Why the regions could not be handed over.
        why: String,
    },
    /// This process changed the partition of the world into regions, because the regions' loads had diverged. The value
    /// is the version of the new partition.
    Cut(u64),
    /// The lease was lost for the given reason. The process registers again.
    LeaseLost(String),
    /// A request to the cluster failed for the given reason. The request is repeated.
    Away(String),
}

/// Minimum time to live of a process's lease. A shorter lease could end before the process renews it.
pub const TTL_MIN: Duration = Duration::from_millis(100);
/// Time without a connection to a registered process after which another process becomes the standby, if there is one.
const STANDBY_CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
/// Maximum time for opening a connection to a process that may still run. Meanwhile, this process does nothing else for
/// its regions.
const CONNECT_TIMEOUT_MAX: Duration = Duration::from_millis(200);
/// Maximum time to live that a cluster allows for a lease.
const TTL_MAX: Duration = Duration::from_secs(366 * 24 * 3_600);

/// The thread that makes a process the owner of regions of a world. Dropping this stops the thread, as if the process
/// had failed: a region continues only if its standby has a complete copy. [`RegionOwnership::leave`] hands over all
/// regions.
#[derive(Debug)]
pub struct RegionOwnership {
    stop: Arc<AtomicBool>,
    leave: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The state of the thread that acquires regions of a world for a process and renews the process's lease.
pub(super) struct OwnershipThread<const D: usize, B> {
    pub(super) kv: Kv,
    pub(super) config: RegionOwnershipConfig,
    pub(super) space: OwnerCalls<D, B>,
    pub(super) populate: RegionPopulator<D, B>,
    pub(super) on_event: Box<dyn FnMut(WorldEvent) + Send>,
    pub(super) lease: Option<Lease>,
    /// The world's description, which the thread writes to its key if the key is missing.
    pub(super) description: WorldDescription,
    /// This process's settings, which other processes compare with theirs.
    pub(super) settings: ProcessSettings,
    /// Regions that have begun at some time according to the keys. They stay in this set if the cluster loses its keys.
    pub(super) began: BTreeSet<RegionId>,
    /// The regions whose state is in memory although this process does not own them.
    pub(super) memory: BTreeMap<RegionId, RegionMemory>,
    /// The kept states that the last keys did not name, each with its epoch.
    unneeded: BTreeMap<RegionId, u64>,
    /// For each region of which this process has a copy: the copy's tick and number of entities.
    held: BTreeMap<RegionId, (u64, u64)>,
    /// The regions that this process owns, each with the epoch of its claim.
    pub(super) claims: BTreeMap<RegionId, u64>,
    /// For each region that this process owns or owned, the last standby that was named.
    pub(super) standbys: BTreeMap<RegionId, StandbyKey>,
    /// The version of the newest partition that this process has seen.
    pub(super) cut_version: u64,
    /// The last claim of each region that the keys have stated, and the addresses of the claimants. They are kept if
    /// the cluster loses its keys.
    pub(super) last_claims: BTreeMap<RegionId, (u64, u64)>,
    pub(super) last_addresses: BTreeMap<u64, SocketAddr>,
    free_regions: FreeRegions,
    unconnected: UnconnectedProcesses,
    life_checks: LifeChecks,
    /// For each region that this process does not begin, a process that may have its state and still runs.
    awaited: BTreeMap<RegionId, u64>,
    /// The regions of this process that wait for a standby.
    waiting: BTreeMap<RegionId, StandbyWait>,
    pub(super) copy_requests: BTreeMap<RegionId, Instant>,
    /// Claims whose response was lost, so that it is not known whether they succeeded.
    pub(super) in_doubt: BTreeMap<RegionId, UncertainClaim>,
    pub(super) peers: BTreeMap<u64, SocketAddr>,
    pub(super) is_on_hold: bool,
    /// Whether this process's key says that the process leaves the world.
    pub(super) is_leaving: bool,
    /// The world's secret; `None` until it was read or written.
    pub(super) secret: Option<Secret>,
    idle: bool,
    /// The processes for which [`WorldEvent::Conflict`] was reported.
    conflicts: BTreeSet<Option<u64>>,
    /// The processes for which [`WorldEvent::OtherSettings`] was reported.
    with_other_settings: BTreeSet<u64>,
    /// The keys for which [`WorldEvent::InvalidKey`] was reported, as in [`WorldSnapshot::invalid`].
    invalid: BTreeMap<(String, u64), u64>,
    /// The last error of a request to the cluster. While the same error repeats, it is not reported again.
    last_error: Option<String>,
    /// The service for clients. It is the last field, so that it is dropped after the lease.
    endpoint: Option<SpaceEndpoint>,
}

/// A region's wait for its standby.
struct StandbyWait {
    /// How far the region's changes were confirmed when the wait began.
    progress: StandbyProgress,
    since: Instant,
    is_reported: bool,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum OwnershipError {
    #[error(transparent)]
    Kv(#[from] KvError),
    #[error(transparent)]
    Lease(#[from] LeaseLostError),
    #[error(transparent)]
    Space(#[from] SpaceError),
    #[error("cannot start the thread that renews the lease: {0}")]
    Thread(#[from] std::io::Error),
    #[error("the copy of region {0} was dropped before the takeover")]
    NoCopy(u32),
    #[error(
        "another process of this world has number {process}, at {address}: give each process its own \
             number"
    )]
    Number { process: u64, address: SocketAddr },
    #[error("the cluster has lost this process's key; the process registers again")]
    Registered,
    #[error("key {key:?} has {bytes} bytes, but the secret of a world has 32: delete the key")]
    Secret { key: String, bytes: usize },
}

impl RegionOwnership {
    /// Starts the thread, which calls `on_event` with each event. `endpoint` serves clients as long as the thread runs.
    /// If clients delete the endpoint's topics, the thread creates them again.
    pub fn start<const D: usize, B: Behaviour<D> + Clone + Send + 'static>(
        kv: Kv,
        config: RegionOwnershipConfig,
        space: Arc<Space<D, B>>,
        endpoint: Option<SpaceEndpoint>,
        populate: RegionPopulator<D, B>,
        on_event: impl FnMut(WorldEvent) + Send + 'static,
    ) -> Result<RegionOwnership, SpaceError> {
        if config.process == 0 {
            return Err(SpaceError::NumberZero);
        }
        if !(TTL_MIN..=TTL_MAX).contains(&config.ttl) {
            return Err(SpaceError::Ttl(config.ttl));
        }
        let space = OwnerCalls(space);
        let setup = space.call(|runner| {
            runner.require_named_standbys();
            runner.host().setup().clone()
        })?;
        let RegionOwnershipConfig { regions, expected, standby, recipe, .. } = &config;
        let description = WorldDescription::of(&setup, regions, *expected, *standby, recipe.clone());
        let settings = ProcessSettings::of(&description);
        let (poll_interval, stop) = (config.poll_interval, Arc::new(AtomicBool::new(false)));
        let leave = Arc::new(AtomicBool::new(false));
        let mut thread_state = OwnershipThread {
            kv,
            config,
            space,
            populate,
            on_event: Box::new(on_event),
            lease: None,
            description,
            settings,
            began: BTreeSet::new(),
            memory: BTreeMap::new(),
            unneeded: BTreeMap::new(),
            held: BTreeMap::new(),
            claims: BTreeMap::new(),
            standbys: BTreeMap::new(),
            cut_version: 0,
            last_claims: BTreeMap::new(),
            last_addresses: BTreeMap::new(),
            free_regions: FreeRegions::default(),
            unconnected: UnconnectedProcesses::default(),
            life_checks: LifeChecks::default(),
            awaited: BTreeMap::new(),
            waiting: BTreeMap::new(),
            copy_requests: BTreeMap::new(),
            in_doubt: BTreeMap::new(),
            peers: BTreeMap::new(),
            is_on_hold: false,
            is_leaving: false,
            secret: None,
            idle: false,
            conflicts: BTreeSet::new(),
            with_other_settings: BTreeSet::new(),
            invalid: BTreeMap::new(),
            last_error: None,
            endpoint,
        };
        let (stopped, leaves) = (Arc::clone(&stop), Arc::clone(&leave));
        let work = move || {
            while !stopped.load(Ordering::Acquire) {
                // If a node does not respond, the request is interrupted when the lease ends or the process stops.
                let (stop_requested, lease) =
                    (Arc::clone(&stopped), thread_state.lease.as_ref().map(Lease::handle));
                let lease_expired = move || lease.as_ref().is_some_and(|lease| lease.check().is_err());
                let run_once = || thread_state.run_once();
                match interruptible(
                    move || stop_requested.load(Ordering::Relaxed) || lease_expired(),
                    run_once,
                ) {
                    Ok(_) => thread_state.last_error = None,
                    Err(_) if stopped.load(Ordering::Relaxed) => {}
                    Err(error) => thread_state.handle_error(error),
                }
                std::thread::sleep(poll_interval);
            }
            if leaves.load(Ordering::Relaxed) {
                thread_state.leave();
            }
        };
        let thread = std::thread::Builder::new().name("space-owners".to_owned()).spawn(work);
        Ok(RegionOwnership { stop, leave, thread: Some(thread.map_err(SpaceError::Thread)?) })
    }

    /// Hands the process's regions over to other processes of the world, and then stops the thread. The regions that
    /// could not be handed over within 10 s are reported ([`WorldEvent::NotHandedOver`]).
    pub fn leave(self) {
        self.leave.store(true, Ordering::Relaxed);
    }
}

impl Drop for RegionOwnership {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // Waits until the thread has ended. The ending thread drops the lease, which deletes the process's keys.
        drop(self.thread.take().map(JoinHandle::join));
    }
}

impl<const D: usize, B: Behaviour<D> + Clone + Send + 'static> OwnershipThread<D, B> {
    /// Does the thread's work once: renews the lease, reads the world's keys, and performs this process's actions.
    /// Returns the keys as they were before these actions.
    pub(super) fn run_once(&mut self) -> Result<WorldSnapshot, OwnershipError> {
        let found = self.kv.get(secret_key(&self.config.world))?;
        let found = found.map(|entry| decode_secret(&self.config.world, &entry.value)).transpose();
        match found {
            Err(error) if self.secret.is_none() => return Err(error),
            // A process that already has a secret continues with it, even if the key's value is now invalid.
            found => self.adopt_secret(found.ok().flatten())?,
        }
        let until = self.ensure_lease()?;
        let snapshot = WorldSnapshot::of(&self.config.world, &self.kv.prefix(prefix(&self.config.world))?);
        self.report_invalid_keys(&snapshot);
        self.update_peers(&snapshot)?;
        self.report_conflicts()?;
        self.adopt_partition(&snapshot)?;
        self.renew(&snapshot, until)?;
        self.delete_topics(&snapshot)?;
        self.remember_claims(&snapshot);
        self.delete_addresses(&snapshot)?;
        self.report_other_settings(&snapshot);
        if !snapshot.processes.contains_key(&self.config.process) {
            // The cluster has lost its keys, and may have given the lease's number to another process. The lease is
            // therefore dropped without revoking it.
            if let Some(lease) = self.lease.take() {
                lease.leave();
            }
            return Err(OwnershipError::Registered);
        }
        if snapshot.hold != self.is_on_hold {
            let pace = if snapshot.hold { TickPace::Hold } else { self.config.pace };
            self.space.submit(move |runner| runner.set_pace(pace, None))?;
            self.is_on_hold = snapshot.hold;
        }
        self.describe(&snapshot)?;
        self.repeat_writes(&snapshot)?;
        let local = self.local_state(&snapshot)?;
        let idle = is_idle(&snapshot, &local);
        if idle && !std::mem::replace(&mut self.idle, idle) {
            (self.on_event)(WorldEvent::Idle);
        }
        self.idle = idle;
        for action in plan(&snapshot, &local) {
            self.perform(action, &snapshot)?;
        }
        self.balance(&snapshot)?;
        self.endpoint.as_mut().map_or(Ok(()), SpaceEndpoint::restore)?;
        Ok(snapshot)
    }

    fn remember_claims(&mut self, snapshot: &WorldSnapshot) {
        self.last_claims.extend(&snapshot.claims);
        let address = |process: u64| {
            let current = snapshot.addresses.get(&process).map(|(address, _)| *address);
            current.or_else(|| self.last_addresses.get(&process).copied())
        };
        let addresses =
            self.last_claims.values().filter_map(|(process, _)| Some((*process, address(*process)?)));
        self.last_addresses = addresses.collect();
    }

    /// Reports each process with which this one cannot connect because of the setup or the version.
    fn report_conflicts(&mut self) -> Result<(), OwnershipError> {
        let conflicts = self.space.call(|runner| runner.take_conflicts())?;
        for (process, why) in conflicts {
            if self.conflicts.insert(process) {
                (self.on_event)(WorldEvent::Conflict { process, why });
            }
        }
        Ok(())
    }

    /// Reports the keys whose values are invalid.
    fn report_invalid_keys(&mut self, snapshot: &WorldSnapshot) {
        for (invalid, revision) in &snapshot.invalid {
            if self.invalid.get(invalid) != Some(revision) {
                let name = key(&self.config.world, &invalid.0, invalid.1);
                (self.on_event)(WorldEvent::InvalidKey(String::from_utf8_lossy(&name).into_owned()));
            }
        }
        self.invalid.clone_from(&snapshot.invalid);
    }

    /// Reports each process that has other settings than this process, but still exchanges entities with this process.
    fn report_other_settings(&mut self, snapshot: &WorldSnapshot) {
        for (process, record) in &snapshot.processes {
            let difference = record.settings.and_then(|settings| self.settings.difference(&settings));
            if let Some(why) = difference
                && self.with_other_settings.insert(*process)
            {
                (self.on_event)(WorldEvent::OtherSettings { process: *process, why });
            }
        }
    }

    fn handle_error(&mut self, error: OwnershipError) {
        // If the lease has expired, this was the reason for the request's error. The expiry is then reported instead of
        // the error.
        let lost = self.lease.as_ref().and_then(|lease| lease.check().err());
        let error = lost.map_or(error, OwnershipError::Lease);
        if let OwnershipError::Lease(lost) = error {
            (self.on_event)(WorldEvent::LeaseLost(lost.to_string()));
            self.lease = None;
            // Stops the regions of this process, because other processes may own them by now.
            for (region, epoch) in std::mem::take(&mut self.claims) {
                self.retire(region, epoch);
            }
            return;
        }
        let text = error.to_string();
        if self.last_error.as_ref() != Some(&text) {
            (self.on_event)(WorldEvent::Away(text.clone()));
            self.last_error = Some(text);
        }
    }

    /// Stops a region of this process. The region's state stays in memory, so that the region can continue here if no
    /// other process claims it.
    fn retire(&mut self, region: RegionId, epoch: u64) {
        self.memory.insert(region, RegionMemory { epoch, owner: true });
        // An error is ignored, because the runner may already have ended.
        let _ = self.space.submit(move |runner| runner.retire_region(region));
    }

    /// Lets the regions that this process still owns act until `until`. Stops the regions that this process has lost.
    fn renew(&mut self, snapshot: &WorldSnapshot, until: Instant) -> Result<(), OwnershipError> {
        let process = self.config.process;
        let is_ours = |region: &RegionId, epoch: u64| snapshot.owners.get(region) == Some(&(process, epoch));
        let all = std::mem::take(&mut self.claims).into_iter();
        let (claims, lost): (BTreeMap<_, _>, _) = all.partition(|(region, epoch)| is_ours(region, *epoch));
        self.claims = claims.clone();
        let lost: BTreeMap<RegionId, u64> = lost;
        for (region, epoch) in lost {
            let is_unclaimed = snapshot.epochs.get(&region).is_some_and(|(newest, _)| *newest == epoch);
            if is_unclaimed && snapshot.must_keep(region, RegionOwner { process, epoch }) {
                // This process released the region, but did not receive the response.
                self.finish_release(region);
            } else {
                self.retire(region, epoch);
            }
        }
        let until_ns = runner_deadline_ns(until);
        self.space.submit(move |runner| {
            for (region, epoch) in claims {
                runner.host_mut().set_authority(region, Some(RegionAuthority { epoch, until_ns }));
            }
        })?;
        Ok(())
    }

    /// Deletes the topics at this node of those regions that are owned by processes at other nodes.
    fn delete_topics(&mut self, snapshot: &WorldSnapshot) -> Result<(), OwnershipError> {
        let is_remote = |process: &u64| {
            let record = snapshot.processes.get(process);
            *process != self.config.process && record.is_some_and(|record| record.url != self.config.url)
        };
        let others = snapshot.owners.iter().filter(|(_, (process, _))| is_remote(process));
        let remote_regions: Vec<RegionId> = others.map(|(region, _)| *region).collect();
        if !remote_regions.is_empty() {
            self.space.submit(move |runner| {
                remote_regions.into_iter().for_each(|region| runner.host().delete_topic(region));
            })?;
        }
        Ok(())
    }

    /// Tells the runner again which standbys the keys name, and writes missing keys `began` of begun regions, because
    /// earlier attempts may have failed. Overwrites invalid keys `epoch` of this process's regions.
    fn repeat_writes(&mut self, snapshot: &WorldSnapshot) -> Result<(), OwnershipError> {
        let ours = |(region, epoch): (&RegionId, &u64)| {
            let standby = snapshot.standbys.get(region).filter(|standby| standby.epoch == *epoch);
            standby.map(|standby| (*region, *standby))
        };
        let named: Vec<(RegionId, StandbyKey)> = self.claims.iter().filter_map(ours).collect();
        self.standbys.extend(named.iter().copied());
        if !named.is_empty() {
            self.space.submit(move |runner| {
                for (region, standby) in named {
                    apply_standby(runner, region, standby);
                }
            })?;
        }
        self.restore_epochs(snapshot)?;
        self.began.extend(&snapshot.began);
        let begun: BTreeSet<RegionId> = self.claims.keys().chain(&self.began).copied().collect();
        for region in begun.difference(&snapshot.began) {
            self.kv.put(key(&self.config.world, "began", region.0.into()), b"1")?;
        }
        Ok(())
    }

    fn local_state(&mut self, snapshot: &WorldSnapshot) -> Result<LocalState, OwnershipError> {
        let regions = self.config.regions.clone();
        // If another process owns the region, this process's uncertain action on the region has failed.
        let process = self.config.process;
        self.in_doubt
            .retain(|region, _| snapshot.owners.get(region).is_none_or(|(owner, _)| *owner == process));
        let lease = self.lease.as_ref().map(Lease::id);
        self.free_regions.update(&regions, snapshot, lease, Instant::now());
        let free_ms = self.free_regions.times_ms(Instant::now());
        let all = regions.clone();
        let (copies, held, begun_copies, waiting, mut released, connected) =
            self.space.call(move |runner| {
                let epoch = |region: &RegionId| Some((*region, runner.copy_of(*region)?.handover().epoch()));
                let held = |region: &RegionId| {
                    let copy = runner.copy_of(*region)?;
                    Some((*region, (copy.tick(), copy.store().len() as u64)))
                };
                let held: Vec<_> = all.iter().filter_map(held).collect();
                let copies: BTreeMap<RegionId, u64> = all.iter().filter_map(epoch).collect();
                let begun = all.iter().filter(|region| runner.has_candidate(**region)).copied().collect();
                let awaited = |region: &RegionId| Some((*region, runner.awaited_progress(*region)?));
                let waiting: Vec<_> = all.iter().filter_map(awaited).collect();
                (copies, held, begun, waiting, runner.released_regions(), runner.connected())
            })?;
        let others = snapshot.processes.keys().filter(|other| **other != process);
        let unconnected = others.filter(|other| !connected.contains(other)).copied().collect();
        let unreachable = self.unconnected.update(&unconnected, Instant::now(), STANDBY_CONNECT_TIME_MAX);
        self.report_standstills(waiting, snapshot);
        let is_named = |(region, epoch): &(RegionId, u64)| {
            snapshot.must_keep(*region, RegionOwner { process, epoch: *epoch })
        };
        // If the keys are lost, the new owner may be lost with them. A state that was valid before remains valid.
        let was_valid = |(region, epoch): &(RegionId, u64)| {
            self.memory.get(region).is_some_and(|memory| memory.epoch == *epoch)
        };
        let is_needed =
            |state: &(RegionId, u64)| is_named(state) || snapshot.has_lost_keys(state.0) && was_valid(state);
        let unneeded: BTreeMap<RegionId, u64> =
            released.extract_if(.., |region, epoch| !is_needed(&(*region, *epoch))).collect();
        // A state is dropped only if the keys do not name it the next time either: the runner may learn of a claim that
        // names the state after this thread has read the keys.
        let is_still_unneeded =
            |(region, epoch): &(&RegionId, &u64)| self.unneeded.get(*region) == Some(*epoch);
        let dropped: Vec<RegionId> =
            unneeded.iter().filter(is_still_unneeded).map(|(region, _)| *region).collect();
        self.unneeded = unneeded;
        // A copy that the keys name stays where it is until a newer copy replaces it.
        released.extend(copies.iter().map(|(region, epoch)| (*region, *epoch)).filter(is_named));
        if !dropped.is_empty() {
            self.space.submit(move |runner| {
                dropped.into_iter().for_each(|region| runner.drop_released(region));
            })?;
        }
        self.held.extend(held);
        let states = (&copies, &released);
        for (region, epoch) in update_memory(&mut self.memory, snapshot, process, states, &self.in_doubt) {
            self.report_given_up(region, epoch, snapshot);
        }
        self.update_awaited(&free_ms, snapshot);
        let unfinished = self.in_doubt.iter().filter(|(_, claim)| Some(claim.lease) == lease);
        Ok(LocalState {
            process: self.config.process,
            regions,
            expected: self.config.expected,
            standby: self.config.standby,
            copies,
            memory: self.memory.clone(),
            released: released.into_iter().filter(is_named).collect(),
            unreachable,
            began: self.began.clone(),
            begun_copies,
            in_doubt: unfinished.map(|(region, claim)| (*region, claim.action)).collect(),
            free_ms,
            awaited: self.awaited.clone(),
            patience_ms: self.config.patience.as_millis() as u64,
            leaving: self.is_leaving,
        })
    }

    /// Finds the regions that must not begin now, because a process that may have their state still runs. `free_ms` are
    /// the times for which regions have had no owner.
    fn update_awaited(&mut self, free_ms: &BTreeMap<RegionId, u64>, snapshot: &WorldSnapshot) {
        self.life_checks.begin_round();
        let earlier = std::mem::take(&mut self.awaited);
        let patience_ms = self.config.patience.as_millis() as u64;
        for (region, free_ms) in free_ms.iter().map(|(region, free_ms)| (*region, *free_ms)) {
            // Before this time, the region does not begin anyway.
            let may_begin = free_ms > patience_ms || !snapshot.began.contains(&region);
            if !may_begin || free_ms > patience_ms + HOLDER_WAIT_MS_MAX {
                continue;
            }
            let holders = snapshot.holders(region);
            let Some(process) =
                holders.into_iter().find(|process| self.may_return(region, *process, snapshot))
            else {
                continue;
            };
            self.awaited.insert(region, process);
            if earlier.get(&region) != Some(&process) {
                tracing::warn!(process, "region {} waits for a process that may have its state", region.0);
                (self.on_event)(WorldEvent::WaitsFor { region, process });
            }
        }
    }

    /// Whether another process may continue a region soon from its own state: the process has registered with this
    /// state, or it is not registered and still runs.
    fn may_return(&mut self, region: RegionId, process: u64, snapshot: &WorldSnapshot) -> bool {
        if process == self.config.process {
            return false;
        }
        if let Some(record) = snapshot.processes.get(&process) {
            let newest = snapshot.epochs.get(&region).map(|(epoch, _)| *epoch);
            let memory = record.memory.get(&region.0);
            return memory.is_some_and(|memory| memory.owner && Some(memory.epoch) == newest);
        }
        let Some((address, _)) = snapshot.addresses.get(&process).copied() else { return false };
        // Another process may have been started with the address of a process that has ended.
        let is_reused = snapshot.processes.values().any(|record| record.address == address);
        let timeout = CONNECT_TIMEOUT_MAX.min(self.config.ttl / 4);
        !is_reused && self.life_checks.is_running(process, address, &self.config.world, timeout)
    }

    /// Reports each region of this process that has waited too long for a standby. `waiting` are the regions that wait,
    /// each with its confirmed progress.
    fn report_standstills(&mut self, waiting: Vec<(RegionId, StandbyProgress)>, snapshot: &WorldSnapshot) {
        let mut earlier = std::mem::take(&mut self.waiting);
        for (region, progress) in waiting {
            let wait = earlier.remove(&region).filter(|wait| wait.progress == progress);
            let new = || StandbyWait { progress, since: Instant::now(), is_reported: false };
            let wait = self.waiting.entry(region).or_insert(wait.unwrap_or_else(new));
            if wait.since.elapsed() <= self.config.patience || std::mem::replace(&mut wait.is_reported, true)
            {
                continue;
            }
            let standby = snapshot.standbys.get(&region).map(|standby| standby.process);
            let standby = standby.filter(|process| *process != 0);
            tracing::error!(standby, "region {} stands still: no standby confirms its changes", region.0);
            (self.on_event)(WorldEvent::StandsStill { region, standby });
        }
    }

    /// Reports that another process has claimed a region that this process owned in `epoch`.
    fn report_given_up(&mut self, region: RegionId, epoch: u64, snapshot: &WorldSnapshot) {
        let held = self.held.remove(&region);
        let standby = self.standbys.get(&region).filter(|standby| standby.epoch == epoch);
        // If the other process has lost its lease, it is not the owner any more, but has still claimed the region.
        let claim = snapshot.owners.get(&region).or_else(|| snapshot.claims.get(&region));
        let owner = claim.map(|(owner, _)| *owner);
        let may_continue = |owner: &u64| {
            standby.is_some_and(|standby| standby.counts(*owner) || standby.is_released_by(*owner))
        };
        let heir = owner.filter(may_continue);
        match heir {
            Some(heir) => {
                tracing::warn!(?held, "region {} continues at process {heir}, its standby", region.0)
            }
            None => tracing::error!(
                ?held,
                "another process runs region {}; the state that this process had of the region is lost",
                region.0
            ),
        }
        (self.on_event)(WorldEvent::GivenUp { region, held, heir });
    }
}
