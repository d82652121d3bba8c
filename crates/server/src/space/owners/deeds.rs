//! The actions of a process on regions: claim a region, take it over, begin it, name its standby, follow it, and
//! release it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin::space::{Behaviour, RegionAuthority, RegionId, Takeover};
use dunlin::state::{ComparedProperty, Comparison, KeyOperation};
use dunlin_client::Transaction;

use super::keys::{RegionOwner, StandbyKey, WorldSnapshot, key};
use super::plan::RegionAction;
use super::thread::{OwnershipError, OwnershipThread, WorldEvent};
use crate::space::error::SpaceError;
use crate::space::pace::monotonic_ns;
use crate::space::runner::Runner;

/// Interval at which a missing copy is requested again.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// How long a released region's standby may take to catch up, and the pause between two checks.
const RELEASE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_millis(1));

impl<const D: usize, B: Behaviour<D> + Clone + Send + 'static> OwnershipThread<D, B> {
    pub(super) fn perform(&mut self, deed: RegionAction, seen: &WorldSnapshot) -> Result<(), OwnershipError> {
        match deed {
            RegionAction::TakeOver(region) | RegionAction::Begin { region, .. } => {
                let Some(authority) = self.claim(region, deed, seen)? else { return Ok(()) };
                let done = match deed {
                    RegionAction::Begin { lost, .. } => self.begin(region, authority, lost, seen),
                    _ => self.take_over(region, authority, seen),
                };
                // If the region could not be started here, its claim is given up, so that another process can claim it.
                if done.is_err() {
                    self.claims.remove(&region);
                    self.give_up(region, authority.epoch)?;
                }
                done
            }
            RegionAction::Name(region, standby) => self.name(region, standby),
            RegionAction::Follow(region) => self.follow(region, seen),
            RegionAction::Forget(region) => Ok(self.space.order(move |runner| runner.unfollow(region))?),
            RegionAction::Release(region) => self.release(region),
        }
    }

    /// Claims the region's key if it is free. Returns the new epoch, and the time until which the region may act.
    fn claim(
        &mut self,
        region: RegionId,
        deed: RegionAction,
        seen: &WorldSnapshot,
    ) -> Result<Option<RegionAuthority>, OwnershipError> {
        let Some(lease) = &self.lease else { return Ok(None) };
        let (until, lease) = (lease.check()?, lease.id());
        let known = seen.owners.get(&region).filter(|(process, _)| *process == self.config.process);
        let claimed = match known {
            Some((_, epoch)) => Some(*epoch),
            None => {
                // Prepares the region before other processes can see the claim.
                let (prepared, heard) = self
                    .space
                    .ask(move |runner| (runner.host().prepare(region), runner.epoch_known(region)))?;
                prepared.map_err(SpaceError::from)?;
                self.in_doubt.insert(region, deed);
                // If the cluster has lost its keys, its new epoch of revisions is higher than all earlier epochs of
                // regions. The epochs of regions then continue from the epoch of revisions.
                let (newest, read) = seen.epochs.get(&region).copied().unwrap_or_default();
                let epoch = u64::from(self.kv.revision()?.0).max(newest.max(heard) + 1);
                let value = RegionOwner { process: self.config.process, epoch }.bytes();
                let of_region = |what| key(&self.config.world, what, region.0.into());
                let (own, standby, epochs) = (of_region("region"), of_region("standby"), of_region("epoch"));
                let text = epoch.to_string();
                let claim = Transaction::new().if_modified_at(&own, 0).if_modified_at(&epochs, read);
                let claim = claim.then(KeyOperation::Put { key: &own, value: &value, lease });
                // Deletes the previous owner's standby, because it is not a standby of this owner.
                let claim = claim.put(&epochs, text.as_bytes()).delete(&standby);
                self.kv.transact(&claim)?.succeeded.then_some(epoch)
            }
        };
        // The claim may have failed because an earlier attempt succeeded. The next turn reads that from the keys.
        let Some(epoch) = claimed else { return Ok(None) };
        self.in_doubt.remove(&region);
        self.claims.insert(region, epoch);
        Ok(Some(RegionAuthority { epoch, until_ns: until_ns(until) }))
    }

    fn take_over(
        &mut self,
        region: RegionId,
        authority: RegionAuthority,
        seen: &WorldSnapshot,
    ) -> Result<(), OwnershipError> {
        let others = seen.owners.iter().filter(|(other, _)| **other != region);
        let peers: Vec<(RegionId, u64)> = others.map(|(other, (_, epoch))| (*other, *epoch)).collect();
        let taken = self.space.ask(move |runner| {
            let from = runner.copy_of(region).map(|state| state.tick());
            let succession = Takeover { authority, peers: &peers, now_ns: monotonic_ns() };
            runner.take_over(region, &succession).map(|taken| from.filter(|_| taken))
        })?;
        let from_tick = taken.map_err(SpaceError::from)?;
        if from_tick.is_none() {
            return Err(OwnershipError::NoCopy(region.0));
        }
        let reclaimed = self.memory.remove(&region).is_some_and(|memory| memory.owner);
        (self.tell)(match from_tick {
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
        seen: &WorldSnapshot,
    ) -> Result<(), OwnershipError> {
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
        self.memory.remove(&region);
        let (processes, expected) = (seen.processes.len(), self.config.expected);
        if lost {
            (self.tell)(WorldEvent::Lost(region));
        } else if processes < expected {
            (self.tell)(WorldEvent::WaitedOut { region, processes, expected });
        }
        (self.tell)(WorldEvent::Owns { region, epoch: authority.epoch, from_tick: None });
        // If this write fails, a later turn repeats it.
        let _ = self.kv.put(key(&self.config.world, "began", region.0.into()), b"1");
        Ok(())
    }

    /// Deletes the region's key if it still has this epoch. Returns whether it was deleted.
    fn give_up(&mut self, region: RegionId, epoch: u64) -> Result<bool, OwnershipError> {
        let (own, value) = self.owner_key(region, epoch);
        let ours =
            Transaction::new().compare(&own, Comparison::Equal, ComparedProperty::Value { value: &value });
        Ok(self.kv.transact(&ours.delete(&own))?.succeeded)
    }

    /// The key of a region, and the value that the key has if this process owns the region in this epoch.
    pub(super) fn owner_key(&self, region: RegionId, epoch: u64) -> (Vec<u8>, Vec<u8>) {
        let value = RegionOwner { process: self.config.process, epoch }.bytes();
        (key(&self.config.world, "region", region.0.into()), value)
    }

    /// Writes the key that names a region's standby, if this process still owns the region.
    fn name(&mut self, region: RegionId, standby: StandbyKey) -> Result<(), OwnershipError> {
        let Some(epoch) = self.claims.get(&region).copied() else { return Ok(()) };
        let (own, owner) = self.owner_key(region, epoch);
        let key = key(&self.config.world, "standby", region.0.into());
        let value = serde_json::to_vec(&standby).unwrap_or_default();
        if !standby.is_nobody() {
            // From here on, the region must make no change that the standby's copy could lack.
            self.space.ask(move |runner| runner.host_mut().set_alone(region, false, monotonic_ns()))?;
        }
        let ours =
            Transaction::new().compare(&own, Comparison::Equal, ComparedProperty::Value { value: &owner });
        if self.kv.transact(&ours.put(&key, &value))?.succeeded {
            self.space.order(move |runner| has_standby(runner, region, standby))?;
            self.standbys.insert(region, standby);
            if standby.is_nobody() {
                (self.tell)(WorldEvent::Alone(region));
            }
        }
        Ok(())
    }

    fn follow(&mut self, region: RegionId, seen: &WorldSnapshot) -> Result<(), OwnershipError> {
        let epoch = seen.owners.get(&region).map_or(0, |(_, epoch)| *epoch);
        let recent = self.asked.get(&region).is_some_and(|asked| asked.elapsed() < ASK_AGAIN);
        if !recent {
            self.asked.insert(region, Instant::now());
            self.space.order(move |runner| {
                // The region cannot continue from a copy of an earlier owner's state, so such copies are dropped.
                runner.forget_older(region, epoch);
                runner.follow(region);
            })?;
        }
        Ok(())
    }

    /// Stops a region, waits until its standby has its complete state, and gives the region up.
    fn release(&mut self, region: RegionId) -> Result<(), OwnershipError> {
        let Some(epoch) = self.claims.get(&region).copied() else { return Ok(()) };
        self.space.ask(move |runner| runner.host_mut().set_authority(region, None))?;
        let deadline = Instant::now() + RELEASE.0;
        while !self.space.ask(move |runner| runner.host().is_known(region))? {
            if Instant::now() > deadline {
                // The release failed; the next turn allows the region to act again.
                return Ok(());
            }
            std::thread::sleep(RELEASE.1);
        }
        if self.give_up(region, epoch)? {
            self.claims.remove(&region);
            self.space.ask(move |runner| runner.end_region(region))?;
            (self.tell)(WorldEvent::Released(region));
        }
        Ok(())
    }
}

/// Applies the key that names a region's standby to the runner.
pub(super) fn has_standby<const D: usize, B: Behaviour<D> + Clone>(
    runner: &mut Runner<D, B>,
    region: RegionId,
    standby: StandbyKey,
) {
    runner.host_mut().set_alone(region, standby.is_nobody(), monotonic_ns());
    if !standby.is_nobody() {
        runner.name_standby(region, standby.process, standby.before.is_none());
    }
}

/// Converts an instant to nanoseconds of the runner's clock.
pub(super) fn until_ns(until: Instant) -> u64 {
    monotonic_ns() + until.saturating_duration_since(Instant::now()).as_nanos() as u64
}
