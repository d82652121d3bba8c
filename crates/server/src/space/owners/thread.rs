//! The thread that keeps a process's part in its world.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dunlin::space::{Authority, Behaviour, Host, RegionId, Succession};
use dunlin::state::{Is, Operation, Target};
use dunlin_client::{Kv, KvError, Lease, LeaseLost, Transaction};

use super::keys::{Owner, Place, Seen, StandbyKey, key, prefix, secret_key, secret_of};
use super::plan::{Deed, Own, plan};
use crate::space::config::Peer;
use crate::space::error::SpaceError;
use crate::space::handle::Space;
use crate::space::pace::{Pace, monotonic_ns};
use crate::space::runner::Runner;
use crate::space::secret::Secret;

/// A copy is asked for again after so long.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// A region that is let go has this long to be known to its standby, in steps of the second.
const RELEASE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_millis(1));

/// How a process takes part.
#[derive(Debug, Clone)]
pub struct OwnersConfig {
    /// The world's name.
    pub world: String,
    /// This process.
    pub process: u64,
    /// Where others of the world connect to.
    pub address: SocketAddr,
    /// Where clients connect to.
    pub url: String,
    /// All regions.
    pub regions: Vec<RegionId>,
    /// So many processes there are to be before regions are shared out.
    pub expected: usize,
    /// Whether regions need a standby.
    pub standby: bool,
    /// How long a process that is not heard of keeps its regions.
    pub ttl: Duration,
    /// How often the cluster is looked at.
    pub look: Duration,
    /// How long a region waits for who has a copy of it.
    pub patience: Duration,
    /// When ticks are made.
    pub pace: Pace,
}

/// Fills a region that is begun for the first time.
pub type Populate<const D: usize, B> = Arc<dyn Fn(&mut Host<D, B>, RegionId) + Send + Sync>;

/// What happened here.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Told {
    /// A region is run here from now on.
    Owns {
        /// Which.
        region: RegionId,
        /// The fencing epoch.
        epoch: u64,
        /// The tick from which it goes on, where it is another's; nothing where it begins.
        from_tick: Option<u64>,
    },
    /// What a region held is lost: its owner is gone, and nobody has a copy that counts.
    Lost(RegionId),
    /// A region goes on without a standby, for there is no other process: what it holds is lost if this one is.
    Alone(RegionId),
    /// A region is another's from now on.
    Released(RegionId),
    /// Loads had grown apart, and this process has cut the curve anew: the version of that.
    Cut(u64),
    /// The lease was lost; the process takes part anew.
    LeaseLost(String),
    /// The cluster did not do as asked; it is asked again.
    Away(String),
}

/// A process's part in its world. It ends when this is dropped: its regions go to those who stand by for them.
#[derive(Debug)]
pub struct Owners {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

pub(super) struct Keeper<const D: usize, B> {
    pub(super) kv: Kv,
    pub(super) config: OwnersConfig,
    pub(super) space: Arc<Space<D, B>>,
    populate: Populate<D, B>,
    pub(super) tell: Box<dyn FnMut(Told) + Send>,
    lease: Option<Lease>,
    /// Regions that are run here, and in which epoch.
    pub(super) claims: BTreeMap<RegionId, u64>,
    /// The newest cut that was heard of.
    pub(super) cut_version: u64,
    free_since: BTreeMap<RegionId, Instant>,
    asked: BTreeMap<RegionId, Instant>,
    /// Claims that were not answered: they may be ours.
    in_doubt: BTreeMap<RegionId, Deed>,
    peers: BTreeMap<u64, SocketAddr>,
    holds: bool,
    /// What lets processes into the world, once it is known.
    secret: Option<Secret>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum KeepError {
    #[error(transparent)]
    Kv(#[from] KvError),
    #[error(transparent)]
    Lease(#[from] LeaseLost),
    #[error(transparent)]
    Space(#[from] SpaceError),
    #[error("cannot keep the lease: {0}")]
    Thread(#[from] std::io::Error),
    #[error("the copy of region {0} was given up when it was to be gone on from")]
    NoCopy(u32),
}

impl Owners {
    /// Takes part, as the keys and leases of this cluster say. `tell` is told what happens.
    pub fn start<const D: usize, B: Behaviour<D> + Clone + Send + 'static>(
        kv: Kv,
        config: OwnersConfig,
        space: Arc<Space<D, B>>,
        populate: Populate<D, B>,
        tell: impl FnMut(Told) + Send + 'static,
    ) -> Result<Owners, SpaceError> {
        space.order(crate::space::Runner::name_standbys)?;
        let (look, stop) = (config.look, Arc::new(AtomicBool::new(false)));
        let mut keeper = Keeper {
            kv,
            config,
            space,
            populate,
            tell: Box::new(tell),
            lease: None,
            claims: BTreeMap::new(),
            cut_version: 0,
            free_since: BTreeMap::new(),
            asked: BTreeMap::new(),
            in_doubt: BTreeMap::new(),
            peers: BTreeMap::new(),
            holds: false,
            secret: None,
        };
        let stopped = Arc::clone(&stop);
        let work = move || {
            while !stopped.load(Ordering::Relaxed) {
                if let Err(error) = keeper.turn() {
                    keeper.went_wrong(&error);
                }
                std::thread::sleep(look);
            }
        };
        let thread = std::thread::Builder::new().name("space-owners".to_owned()).spawn(work);
        Ok(Owners { stop, thread: Some(thread.map_err(SpaceError::Thread)?) })
    }
}

impl Drop for Owners {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // With its lease its keys go.
        drop(self.thread.take().map(JoinHandle::join));
    }
}

impl<const D: usize, B: Behaviour<D> + Clone + Send + 'static> Keeper<D, B> {
    fn turn(&mut self) -> Result<(), KeepError> {
        if self.secret.is_none() {
            let found = self.kv.get(secret_key(&self.config.world))?;
            self.hold_secret(found.and_then(|entry| secret_of(&entry.value)))?;
        }
        let until = self.hold_lease()?;
        let seen = Seen::of(&self.config.world, &self.kv.prefix(prefix(&self.config.world))?);
        self.hold_secret(seen.secret)?;
        self.meet_others(&seen)?;
        self.adopt(&seen)?;
        if seen.hold != self.holds {
            self.holds = seen.hold;
            let pace = if seen.hold { Pace::Hold } else { self.config.pace };
            self.space.order(move |runner| runner.set_pace(pace, None))?;
        }
        self.renew(&seen, until)?;
        self.say_again(&seen)?;
        let own = self.own(&seen)?;
        for deed in plan(&seen, &own) {
            self.perform(deed, &seen)?;
        }
        self.balance(&seen)
    }

    fn went_wrong(&mut self, error: &KeepError) {
        if let KeepError::Lease(lost) = error {
            (self.tell)(Told::LeaseLost(lost.to_string()));
            self.lease = None;
            self.in_doubt.clear();
            // Others may own them by now.
            let claims = std::mem::take(&mut self.claims);
            for region in claims.into_keys() {
                // The runner may have ended.
                let _ = self.space.order(move |runner| runner.end_region(region));
            }
        } else {
            (self.tell)(Told::Away(error.to_string()));
        }
    }

    /// Until when the lease is sure to last.
    fn hold_lease(&mut self) -> Result<Instant, KeepError> {
        if let Some(lease) = &self.lease {
            return Ok(lease.check()?);
        }
        let mut lease = self.kv.lease(self.config.ttl)?;
        lease.keep()?;
        let place = Place { address: self.config.address, url: self.config.url.clone() };
        let value = serde_json::to_vec(&place).unwrap_or_default();
        self.kv.put_under(key(&self.config.world, "process", self.config.process), value, lease.id())?;
        let until = lease.check()?;
        self.lease = Some(lease);
        Ok(until)
    }

    /// The world's secret is the one in its key; where there is none, because nobody was here before or because the cluster has
    /// lost its keys, it becomes ours.
    fn hold_secret(&mut self, found: Option<Secret>) -> Result<(), KeepError> {
        let secret = match (found, self.secret) {
            (Some(found), _) => found,
            (None, own) => {
                let own = own.map_or_else(Secret::random, Ok)?;
                let (key, bytes) = (secret_key(&self.config.world), own.bytes());
                let create = Transaction::new().if_modified_at(&key, 0).put(&key, &bytes);
                if !self.kv.transact(&create)?.succeeded {
                    // Another process was faster: the next turn finds its secret.
                    return Ok(());
                }
                own
            }
        };
        if self.secret != Some(secret) {
            self.space.order(move |runner| runner.set_secret(secret))?;
            self.secret = Some(secret);
        }
        Ok(())
    }

    fn meet_others(&mut self, seen: &Seen) -> Result<(), KeepError> {
        let others = || seen.processes.iter().filter(|(process, _)| **process != self.config.process);
        let now: BTreeMap<u64, SocketAddr> =
            others().map(|(process, place)| (*process, place.address)).collect();
        let gone: Vec<u64> =
            self.peers.keys().filter(|process| !now.contains_key(process)).copied().collect();
        let new: Vec<Peer> = now
            .iter()
            .filter(|(process, address)| self.peers.get(process) != Some(address))
            .map(|(process, address)| Peer { process: *process, address: *address })
            .collect();
        if !gone.is_empty() || !new.is_empty() {
            self.space.order(move |runner| {
                gone.into_iter().for_each(|process| runner.remove_peer(process));
                new.into_iter().for_each(|peer| runner.add_peer(peer));
            })?;
            self.peers = now;
        }
        Ok(())
    }

    /// Regions act as long as the lease is sure to last; one that is another's by now ends.
    fn renew(&mut self, seen: &Seen, until: Instant) -> Result<(), KeepError> {
        let process = self.config.process;
        let is_ours = |region: &RegionId, epoch: u64| seen.owners.get(region) == Some(&(process, epoch));
        let lost: Vec<RegionId> = self
            .claims
            .iter()
            .filter(|(region, epoch)| !is_ours(region, **epoch))
            .map(|claim| *claim.0)
            .collect();
        self.claims.retain(|region, _| !lost.contains(region));
        let claims = self.claims.clone();
        let until_ns = until_ns(until);
        self.space.order(move |runner| {
            lost.into_iter().for_each(|region| runner.end_region(region));
            for (region, epoch) in claims {
                runner.host_mut().set_authority(region, Some(Authority { epoch, until_ns }));
            }
        })?;
        Ok(())
    }

    /// Has the runner, and the cluster, know what an order or an answer that was lost would have told.
    fn say_again(&mut self, seen: &Seen) -> Result<(), KeepError> {
        let ours = |(region, epoch): (&RegionId, &u64)| {
            let standby = seen.standbys.get(region).filter(|standby| standby.epoch == *epoch);
            standby.map(|standby| (*region, *standby))
        };
        let named: Vec<(RegionId, StandbyKey)> = self.claims.iter().filter_map(ours).collect();
        if !named.is_empty() {
            self.space.order(move |runner| {
                for (region, standby) in named {
                    has_standby(runner, region, standby);
                }
            })?;
        }
        for region in self.claims.keys().filter(|region| !seen.began.contains(region)) {
            self.kv.put(key(&self.config.world, "began", region.0.into()), b"1")?;
        }
        Ok(())
    }

    fn own(&mut self, seen: &Seen) -> Result<Own, KeepError> {
        let regions = self.config.regions.clone();
        // What is another's by now was not done.
        let process = self.config.process;
        self.in_doubt.retain(|region, _| seen.owners.get(region).is_none_or(|(owner, _)| *owner == process));
        self.free_since.retain(|region, _| !seen.owners.contains_key(region));
        for region in regions.iter().filter(|region| !seen.owners.contains_key(region)) {
            self.free_since.entry(*region).or_insert_with(Instant::now);
        }
        let all = regions.clone();
        let (copies, begun_copies) = self.space.ask(move |runner| {
            let epoch = |region: &RegionId| Some((*region, runner.copy_of(*region)?.handover().epoch()));
            let copies = all.iter().filter_map(epoch).collect();
            let begun = all.iter().filter(|region| runner.has_candidate(**region)).copied().collect();
            (copies, begun)
        })?;
        let since = |(region, since): (&RegionId, &Instant)| (*region, since.elapsed().as_millis() as u64);
        Ok(Own {
            process: self.config.process,
            regions,
            expected: self.config.expected,
            standby: self.config.standby,
            copies,
            begun_copies,
            in_doubt: self.in_doubt.clone(),
            free_ms: self.free_since.iter().map(since).collect(),
            patience_ms: self.config.patience.as_millis() as u64,
        })
    }

    fn perform(&mut self, deed: Deed, seen: &Seen) -> Result<(), KeepError> {
        match deed {
            Deed::TakeOver(region) | Deed::Begin { region, .. } => {
                let Some((epoch, authority)) = self.claim(region, deed, seen)? else { return Ok(()) };
                let done = match deed {
                    Deed::Begin { lost, .. } => self.begin(region, authority, lost),
                    _ => self.take_over(region, authority, seen),
                };
                // What is not run here is nobody's.
                if done.is_err() {
                    self.claims.remove(&region);
                    self.give_up(region, epoch)?;
                }
                done
            }
            Deed::Name(region, standby) => self.name(region, standby),
            Deed::Follow(region) => self.follow(region, seen),
            Deed::Forget(region) => Ok(self.space.order(move |runner| runner.unfollow(region))?),
            Deed::Release(region) => self.release(region),
        }
    }

    /// The region's key, if nobody has it: the epoch, and until when it may act.
    fn claim(
        &mut self,
        region: RegionId,
        deed: Deed,
        seen: &Seen,
    ) -> Result<Option<(u64, Authority)>, KeepError> {
        let Some(lease) = &self.lease else { return Ok(None) };
        let until = lease.check()?;
        let known = seen.owners.get(&region).filter(|(process, _)| *process == self.config.process);
        let claimed = match known {
            Some((_, epoch)) => Some(*epoch),
            None => {
                // Before anybody can see whose it is.
                self.space.ask(move |runner| runner.host().prepare(region))?.map_err(SpaceError::from)?;
                self.in_doubt.insert(region, deed);
                let key = key(&self.config.world, "region", region.0.into());
                let value = serde_json::to_vec(&Owner { process: self.config.process }).unwrap_or_default();
                let put = Operation::Put { key: &key, value: &value, lease: lease.id() };
                // Whoever stood by for the owner before does not for this one.
                let standby = super::keys::key(&self.config.world, "standby", region.0.into());
                let claim = Transaction::new().if_modified_at(&key, 0).then(put).delete(&standby);
                let done = self.kv.transact(&claim)?;
                done.succeeded.then_some(done.revision)
            }
        };
        // Where it was not, an earlier try may still have been: that is seen in the next turn.
        let Some(epoch) = claimed else { return Ok(None) };
        self.in_doubt.remove(&region);
        self.claims.insert(region, epoch);
        Ok(Some((epoch, Authority { epoch, until_ns: until_ns(until) })))
    }

    fn take_over(&mut self, region: RegionId, authority: Authority, seen: &Seen) -> Result<(), KeepError> {
        let others = seen.owners.iter().filter(|(other, _)| **other != region);
        let peers: Vec<(RegionId, u64)> = others.map(|(other, (_, epoch))| (*other, *epoch)).collect();
        let taken = self.space.ask(move |runner| {
            let from = runner.copy_of(region).map(|state| state.tick());
            let succession = Succession { authority, peers: &peers, now_ns: monotonic_ns() };
            runner.take_over(region, &succession).map(|taken| from.filter(|_| taken))
        })?;
        let from_tick = taken.map_err(SpaceError::from)?;
        if from_tick.is_none() {
            return Err(KeepError::NoCopy(region.0));
        }
        (self.tell)(Told::Owns { region, epoch: authority.epoch, from_tick });
        Ok(())
    }

    fn begin(&mut self, region: RegionId, authority: Authority, lost: bool) -> Result<(), KeepError> {
        let populate = Arc::clone(&self.populate);
        let begun = self.space.ask(move |runner| {
            runner.unfollow(region);
            runner.host_mut().begin(region, authority)?;
            if !lost {
                populate(runner.host_mut(), region);
            }
            runner.regions_changed();
            Ok::<_, SpaceError>(())
        })?;
        begun?;
        if lost {
            (self.tell)(Told::Lost(region));
        }
        (self.tell)(Told::Owns { region, epoch: authority.epoch, from_tick: None });
        // If this is not answered it is said again.
        let _ = self.kv.put(key(&self.config.world, "began", region.0.into()), b"1");
        Ok(())
    }

    /// Takes the region's key away, if it is still that of this epoch.
    fn give_up(&mut self, region: RegionId, epoch: u64) -> Result<bool, KeepError> {
        let own = key(&self.config.world, "region", region.0.into());
        let ours = Transaction::new().compare(&own, Is::Equal, Target::Created { revision: epoch });
        Ok(self.kv.transact(&ours.delete(&own))?.succeeded)
    }

    /// Says who stands by, if the region is still ours.
    fn name(&mut self, region: RegionId, standby: StandbyKey) -> Result<(), KeepError> {
        let Some(epoch) = self.claims.get(&region).copied() else { return Ok(()) };
        let (own, key) = (
            key(&self.config.world, "region", region.0.into()),
            key(&self.config.world, "standby", region.0.into()),
        );
        let value = serde_json::to_vec(&standby).unwrap_or_default();
        if !standby.is_nobody() {
            // Before anybody may go on from a copy nothing happens that is not in it.
            self.space.ask(move |runner| runner.host_mut().set_alone(region, false, monotonic_ns()))?;
        }
        let ours = Transaction::new().compare(&own, Is::Equal, Target::Created { revision: epoch });
        if self.kv.transact(&ours.put(&key, &value))?.succeeded {
            self.space.order(move |runner| has_standby(runner, region, standby))?;
            if standby.is_nobody() {
                (self.tell)(Told::Alone(region));
            }
        }
        Ok(())
    }

    fn follow(&mut self, region: RegionId, seen: &Seen) -> Result<(), KeepError> {
        let epoch = seen.owners.get(&region).map_or(0, |(_, epoch)| *epoch);
        let recent = self.asked.get(&region).is_some_and(|asked| asked.elapsed() < ASK_AGAIN);
        if !recent {
            self.asked.insert(region, Instant::now());
            self.space.order(move |runner| {
                // What is known of an owner before this one is nothing to go on from.
                runner.forget_older(region, epoch);
                runner.follow(region);
            })?;
        }
        Ok(())
    }

    /// Stands still, sees to it that its standby knows all, and gives the region up.
    fn release(&mut self, region: RegionId) -> Result<(), KeepError> {
        let Some(epoch) = self.claims.get(&region).copied() else { return Ok(()) };
        self.space.ask(move |runner| runner.host_mut().set_authority(region, None))?;
        let deadline = Instant::now() + RELEASE.0;
        while !self.space.ask(move |runner| runner.host().is_known(region))? {
            if Instant::now() > deadline {
                // The next turn lets it act again.
                return Ok(());
            }
            std::thread::sleep(RELEASE.1);
        }
        if self.give_up(region, epoch)? {
            self.claims.remove(&region);
            self.space.ask(move |runner| runner.end_region(region))?;
            (self.tell)(Told::Released(region));
        }
        Ok(())
    }
}

/// This is what the key of one of its regions says.
fn has_standby<const D: usize, B: Behaviour<D> + Clone>(
    runner: &mut Runner<D, B>,
    region: RegionId,
    standby: StandbyKey,
) {
    runner.host_mut().set_alone(region, standby.is_nobody(), monotonic_ns());
    if !standby.is_nobody() {
        runner.name_standby(region, standby.process, standby.before.is_none());
    }
}

/// A moment of this process, on the runner's clock.
fn until_ns(until: Instant) -> u64 {
    monotonic_ns() + until.saturating_duration_since(Instant::now()).as_nanos() as u64
}
