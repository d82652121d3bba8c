//! Performs a process's actions on regions: begin a region, take it over, name its standby, follow it as a standby, and
//! release it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin::space::{Behaviour, RegionAuthority, RegionId, Takeover};
use dunlin::state::KeyOperation;
use dunlin_client::Transaction;

use super::keys::{RegionMemory, RegionOwner, StandbyKey, WorldSnapshot, if_value, key};
use super::memory::UncertainClaim;
use super::plan::RegionAction;
use super::thread::{OwnershipError, OwnershipThread, WorldEvent};
use crate::space::error::SpaceError;
use crate::space::pace::monotonic_ns;
use crate::space::runner::WorldRunner;

/// Interval at which a standby tells the owner whether it has a copy that receives all changes.
const COPY_REQUEST_INTERVAL: Duration = Duration::from_secs(1);
/// How long a release waits until the region's standby has all changes and the ids of new entities are known to be
/// unique, and the pause between two checks.
const RELEASE_WAIT: (Duration, Duration) = (Duration::from_millis(500), Duration::from_millis(1));

impl<const D: usize, B: Behaviour<D> + Clone + Send + 'static> OwnershipThread<D, B> {
    pub(super) fn perform(
        &mut self,
        action: RegionAction,
        snapshot: &WorldSnapshot,
    ) -> Result<(), OwnershipError> {
        match action {
            RegionAction::TakeOver(region) | RegionAction::Begin { region, .. } => {
                let Some(authority) = self.claim(region, action, snapshot)? else { return Ok(()) };
                let result = match action {
                    RegionAction::Begin { lost, .. } => self.begin(region, authority, lost, snapshot),
                    _ => self.take_over(region, authority, snapshot),
                };
                // If the region could not be started here, gives up the claim, so that another process can claim the
                // region.
                if result.is_err() {
                    self.claims.remove(&region);
                    self.release_key(region, authority.epoch)?;
                }
                result
            }
            RegionAction::Name(region, standby) => self.name(region, standby),
            RegionAction::Follow(region) => self.follow(region, snapshot),
            RegionAction::Forget(region) => Ok(self.space.submit(move |runner| runner.unfollow(region))?),
            RegionAction::Release(region) => self.release(region, snapshot),
        }
    }

    /// Claims a region by writing its key, if no other process owns it. Returns the epoch of the claim, and the time
    /// until which the region may act. Returns `None` if the claim failed or this process has no lease.
    fn claim(
        &mut self,
        region: RegionId,
        action: RegionAction,
        snapshot: &WorldSnapshot,
    ) -> Result<Option<RegionAuthority>, OwnershipError> {
        let Some(lease) = &self.lease else { return Ok(None) };
        let (until, lease) = (lease.check()?, lease.id());
        let owned = snapshot.owners.get(&region).filter(|(process, _)| *process == self.config.process);
        let claimed = match owned {
            Some((_, epoch)) => Some(*epoch),
            None => {
                // Prepares to run the region before other processes can see the claim.
                let (prepared, known_epoch) = self
                    .space
                    .call(move |runner| (runner.host().prepare(region), runner.known_epoch(region)))?;
                let takes_over = action == RegionAction::TakeOver(region);
                // A region that continues runs even without its topic: no other process may have its state.
                if !takes_over {
                    prepared.map_err(SpaceError::from)?;
                }
                self.in_doubt.insert(region, UncertainClaim { lease, action });
                // A key with an invalid value counts as missing. The claim overwrites the key if it still has this
                // revision.
                let invalid = |kind| snapshot.invalid_revision(kind, region.0.into());
                // The epoch must be higher than all earlier epochs of the region. If the cluster has lost its keys, the
                // keys do not state the earlier epochs. The epoch of the cluster's revisions is then higher than all
                // earlier epochs.
                let (newest, read) = snapshot.epochs.get(&region).copied().unwrap_or((0, invalid("epoch")));
                let epoch = u64::from(self.kv.revision()?.0).max(newest.max(known_epoch) + 1);
                let value = RegionOwner { process: self.config.process, epoch }.bytes();
                let of_region = |kind| key(&self.config.world, kind, region.0.into());
                let (own, standby, epochs) = (of_region("region"), of_region("standby"), of_region("epoch"));
                let newest_claim = of_region("claim");
                let text = epoch.to_string();
                let keeper = snapshot.keeper(region, self.config.process);
                let keeper = keeper.filter(|_| self.config.standby && takes_over);
                let unconfirmed = keeper.map(|keeper| StandbyKey::claimed(epoch, keeper).bytes());
                let claim =
                    Transaction::new().if_modified_at(&own, invalid("region")).if_modified_at(&epochs, read);
                // A region begins without a copy only if no process that may have its state has registered meanwhile.
                let holders = if takes_over { BTreeSet::new() } else { snapshot.holders(region) };
                let holders = holders.into_iter().map(|process| {
                    (key(&self.config.world, "process", process), snapshot.registered_at(process))
                });
                let holders: Vec<(Vec<u8>, u64)> = holders.collect();
                let claim = holders
                    .iter()
                    .fold(claim, |claim, (process, revision)| claim.if_modified_at(process, *revision));
                let claim = claim.then(KeyOperation::Put { key: &own, value: &value, lease });
                let claim = claim.put(&epochs, text.as_bytes()).put(&newest_claim, &value);
                // The previous owner's standby has no copy of the new owner's state, so the key `standby` no longer
                // names it. The key names the other process that has a valid state, such as the previous owner: this
                // state stays valid until a standby has confirmed a change of the new owner.
                let claim = match &unconfirmed {
                    Some(value) => claim.put(&standby, value),
                    None => claim.delete(&standby),
                };
                self.kv.transact(&claim)?.succeeded.then_some(epoch)
            }
        };
        // If the claim failed, an earlier attempt may have succeeded. The keys show this when they are read the next
        // time.
        let Some(epoch) = claimed else { return Ok(None) };
        self.in_doubt.remove(&region);
        self.claims.insert(region, epoch);
        Ok(Some(RegionAuthority { epoch, until_ns: runner_deadline_ns(until) }))
    }

    fn take_over(
        &mut self,
        region: RegionId,
        authority: RegionAuthority,
        snapshot: &WorldSnapshot,
    ) -> Result<(), OwnershipError> {
        let others = snapshot.owners.iter().filter(|(other, _)| **other != region);
        let peers: Vec<(RegionId, u64)> = others.map(|(other, (_, epoch))| (*other, *epoch)).collect();
        let taken = self.space.call(move |runner| {
            let succession = Takeover { authority, peers: &peers, now_ns: monotonic_ns() };
            let taken = runner.take_over(region, &succession);
            taken.map(|taken| {
                let ours = runner.host().region(region).filter(|_| taken);
                ours.map(|ours| ours.tick_number())
            })
        })?;
        let from_tick = taken.map_err(SpaceError::from)?;
        if from_tick.is_none() {
            return Err(OwnershipError::NoCopy(region.0));
        }
        let reclaimed = self.memory.remove(&region).is_some_and(|memory| memory.owner);
        (self.on_event)(match from_tick {
            Some(tick) if reclaimed => WorldEvent::Reclaimed { region, epoch: authority.epoch, tick },
            _ => WorldEvent::Owns { region, epoch: authority.epoch, from_tick },
        });
        Ok(())
    }

    fn begin(
        &mut self,
        region: RegionId,
        authority: RegionAuthority,
        lost: bool,
        snapshot: &WorldSnapshot,
    ) -> Result<(), OwnershipError> {
        let populate = Arc::clone(&self.populate);
        let begun = self.space.call(move |runner| {
            runner.unfollow(region);
            runner.host_mut().begin(region, authority)?;
            if !lost {
                populate(runner.host_mut(), region);
            }
            runner.announce_regions();
            Ok::<_, SpaceError>(())
        })?;
        begun?;
        self.memory.remove(&region);
        let (processes, expected) = (snapshot.processes.len(), self.config.expected);
        if lost {
            (self.on_event)(WorldEvent::Lost(region));
        } else if processes < expected {
            (self.on_event)(WorldEvent::WaitedOut { region, processes, expected });
        }
        (self.on_event)(WorldEvent::Owns { region, epoch: authority.epoch, from_tick: None });
        // If this write fails, `repeat_writes` repeats it later.
        if self.kv.put(key(&self.config.world, "began", region.0.into()), b"1").is_ok() {
            self.began.insert(region);
        }
        Ok(())
    }

    /// Deletes a region's key if this process owns the region in this epoch.
    fn release_key(&mut self, region: RegionId, epoch: u64) -> Result<(), OwnershipError> {
        let (own, value) = self.owner_key(region, epoch);
        self.kv.transact(&if_value(&own, &value).delete(&own))?;
        Ok(())
    }

    /// Writes the key `epoch` of each region of this process again if the key's value is invalid.
    pub(super) fn restore_epochs(&self, snapshot: &WorldSnapshot) -> Result<(), OwnershipError> {
        for (region, epoch) in &self.claims {
            if snapshot.invalid_revision("epoch", region.0.into()) == 0 {
                continue;
            }
            let (own, owner) = self.owner_key(*region, *epoch);
            let (epochs, text) = (key(&self.config.world, "epoch", region.0.into()), epoch.to_string());
            self.kv.transact(&if_value(&own, &owner).put(&epochs, text.as_bytes()))?;
        }
        Ok(())
    }

    /// The key that states a region's owner, and the value of this key if this process owns the region in this epoch.
    pub(super) fn owner_key(&self, region: RegionId, epoch: u64) -> (Vec<u8>, Vec<u8>) {
        let value = RegionOwner { process: self.config.process, epoch }.bytes();
        (key(&self.config.world, "region", region.0.into()), value)
    }

    /// Writes the standby of a region to the region's key `standby`, if this process still owns the region.
    fn name(&mut self, region: RegionId, standby: StandbyKey) -> Result<(), OwnershipError> {
        let Some(epoch) = self.claims.get(&region).copied() else { return Ok(()) };
        let (own, owner) = self.owner_key(region, epoch);
        let key = key(&self.config.world, "standby", region.0.into());
        let value = standby.bytes();
        if !standby.is_empty() {
            // From now on, the region makes no change until the standby has a copy. Otherwise, the standby's copy could
            // lack a change.
            self.space.call(move |runner| runner.host_mut().set_alone(region, false, monotonic_ns()))?;
        }
        if self.kv.transact(&if_value(&own, &owner).put(&key, &value))?.succeeded {
            self.space.submit(move |runner| apply_standby(runner, region, standby))?;
            self.standbys.insert(region, standby);
            if standby.is_empty() {
                (self.on_event)(WorldEvent::Alone(region));
            }
        }
        Ok(())
    }

    fn follow(&mut self, region: RegionId, snapshot: &WorldSnapshot) -> Result<(), OwnershipError> {
        let epoch = snapshot.owners.get(&region).map_or(0, |(_, epoch)| *epoch);
        let recent = self
            .copy_requests
            .get(&region)
            .is_some_and(|requested_at| requested_at.elapsed() < COPY_REQUEST_INTERVAL);
        if !recent {
            self.copy_requests.insert(region, Instant::now());
            self.space.submit(move |runner| {
                // A copy of an earlier owner's state is useless, because the region cannot continue from it.
                runner.drop_older_copies(region, epoch);
                runner.follow(region);
            })?;
        }
        Ok(())
    }

    /// Stops a region, waits until its standby has all changes, and gives up the ownership. This process keeps the
    /// region's state, in case the new owner is lost early. If the standby takes too long, or has left or registered
    /// again, the release fails without an error.
    fn release(&mut self, region: RegionId, snapshot: &WorldSnapshot) -> Result<(), OwnershipError> {
        let Some(epoch) = self.claims.get(&region).copied() else { return Ok(()) };
        let Some(standby) = snapshot.standbys.get(&region).copied() else { return Ok(()) };
        let Some(registered) = snapshot.registered.get(&standby.process).copied() else { return Ok(()) };
        self.space.call(move |runner| runner.host_mut().set_authority(region, None))?;
        let deadline = Instant::now() + RELEASE_WAIT.0;
        loop {
            let (is_known, is_checked) = self.space.call(move |runner| {
                let (host, is_known) = (runner.host(), runner.host().is_known(region));
                // A search among the ids of a populated world can take longer than a tick.
                (is_known, is_known && !host.has_unconfirmed(region))
            })?;
            let is_late = Instant::now() > deadline;
            // Waits until the check of new ids has ended, because the new owner would not continue it. A check that
            // takes too long is given up, because it may wait for a region without an owner. Meanwhile, the region has
            // no lease, so no duplicate is removed here that would remain at the new owner.
            if is_known && (is_checked || is_late) {
                break;
            }
            if is_late {
                // The release has failed. `renew` allows the region to act again.
                return Ok(());
            }
            std::thread::sleep(RELEASE_WAIT.1);
        }
        let (own, value) = self.owner_key(region, epoch);
        let heir = key(&self.config.world, "process", standby.process);
        let standby_key = key(&self.config.world, "standby", region.0.into());
        let former = RegionOwner { process: self.config.process, epoch };
        let released = StandbyKey { released: Some(former), ..standby }.bytes();
        // A standby changes its key before it leaves the world. The release then fails, because the standby might not
        // hand the region over any more.
        let ours = if_value(&own, &value).if_modified_at(&heir, registered);
        let release = ours.delete(&own).put(&standby_key, &released);
        if self.kv.transact(&release)?.succeeded {
            self.claims.remove(&region);
            self.finish_release(region);
        }
        Ok(())
    }

    /// Stops a region that this process has released, and keeps its state.
    pub(super) fn finish_release(&mut self, region: RegionId) {
        let kept = self.space.call(move |runner| {
            runner.release_region(region);
            runner.released_regions().remove(&region)
        });
        // An error is ignored, because the runner may already have ended.
        if let Ok(Some(epoch)) = kept {
            self.memory.insert(region, RegionMemory { epoch, owner: false });
        }
        (self.on_event)(WorldEvent::Released(region));
    }
}

/// Tells the runner which standby the key `standby` of a region names.
pub(super) fn apply_standby<const D: usize, B: Behaviour<D> + Clone>(
    runner: &mut WorldRunner<D, B>,
    region: RegionId,
    standby: StandbyKey,
) {
    runner.host_mut().set_alone(region, standby.is_empty(), monotonic_ns());
    if standby.is_empty() {
        runner.remove_standby(region);
    } else {
        runner.name_standby(region, standby.process, standby.before.is_none());
    }
}

/// Converts a deadline to nanoseconds of the clock that the runner uses.
pub(super) fn runner_deadline_ns(until: Instant) -> u64 {
    monotonic_ns() + until.saturating_duration_since(Instant::now()).as_nanos() as u64
}
