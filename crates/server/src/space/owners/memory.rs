//! Tracks the regions whose state a process has in its memory although it does not own them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use dunlin::space::RegionId;

use super::keys::{RegionMemory, StandbyKey, WorldSnapshot};
use super::plan::RegionAction;

/// A claim whose response was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UncertainClaim {
    /// The lease under which the region was claimed.
    pub(super) lease: u64,
    pub(super) action: RegionAction,
}

/// Since when each region has had no owner, as far as this process has seen.
#[derive(Debug, Default)]
pub(super) struct FreeRegions {
    lease: Option<u64>,
    since: BTreeMap<RegionId, Instant>,
}

impl FreeRegions {
    /// Updates the times from the world's keys, which this process has read at the time `now` with this lease. With a
    /// new lease, all times begin anew: while this process had no lease, other processes may not have reached the
    /// cluster either, and need time to return.
    pub(super) fn update(
        &mut self,
        regions: &[RegionId],
        snapshot: &WorldSnapshot,
        lease: Option<u64>,
        now: Instant,
    ) {
        if self.lease != lease {
            (self.lease, self.since) = (lease, BTreeMap::new());
        }
        self.since.retain(|region, _| !snapshot.owners.contains_key(region));
        for region in regions.iter().filter(|region| !snapshot.owners.contains_key(region)) {
            self.since.entry(*region).or_insert(now);
        }
    }

    /// For each region without an owner, how long it has had none at the time `now`, ms.
    pub(super) fn times_ms(&self, now: Instant) -> BTreeMap<RegionId, u64> {
        let ms = |since: &Instant| now.saturating_duration_since(*since).as_millis() as u64;
        self.since.iter().map(|(region, since)| (*region, ms(since))).collect()
    }
}

/// Since when this process has had no connection with each of the other registered processes.
#[derive(Debug, Default)]
pub(super) struct UnconnectedProcesses(BTreeMap<u64, Instant>);

impl UnconnectedProcesses {
    /// Updates the times: at the time `now`, this process is connected with none of the processes in `unconnected`.
    /// Returns those with which it has had no connection for longer than `time_max`.
    pub(super) fn update(
        &mut self,
        unconnected: &BTreeSet<u64>,
        now: Instant,
        time_max: Duration,
    ) -> BTreeSet<u64> {
        self.0.retain(|process, _| unconnected.contains(process));
        for process in unconnected {
            self.0.entry(*process).or_insert(now);
        }
        let is_late = |since: &Instant| now.saturating_duration_since(*since) > time_max;
        self.0.iter().filter(|(_, since)| is_late(since)).map(|(process, _)| *process).collect()
    }
}

/// Updates `memory`: the regions that may continue from a state which this process holds without owning the region. A
/// copy counts if the cluster's keys name this process as the region's standby in the copy's epoch. The states
/// `released`, which this process must keep, count too. If the cluster has lost these keys, `memory` stays as it is.
/// Returns the regions that this process owned and cannot continue, each with the epoch in which this process was the
/// owner.
pub(super) fn update_memory(
    memory: &mut BTreeMap<RegionId, RegionMemory>,
    snapshot: &WorldSnapshot,
    process: u64,
    (copies, released): (&BTreeMap<RegionId, u64>, &BTreeMap<RegionId, u64>),
    in_doubt: &BTreeMap<RegionId, UncertainClaim>,
) -> Vec<(RegionId, u64)> {
    // Released states are added again below, unless a copy of a later owner's state replaces them.
    memory.retain(|region, memory| memory.owner || released.get(region) != Some(&memory.epoch));
    for (region, epoch) in copies.iter().map(|(region, epoch)| (*region, *epoch)) {
        let counts = |standby: &StandbyKey| standby.epoch == epoch && standby.counts(process);
        if snapshot.standbys.get(&region).is_some_and(counts) {
            memory.entry(region).or_insert(RegionMemory { epoch, owner: false });
        }
        let newest = snapshot.epochs.get(&region).map(|(newest, _)| *newest);
        let continues = |claim: &UncertainClaim| claim.action == RegionAction::TakeOver(region);
        if let Some((claimant, epoch)) = snapshot.claims.get(&region).copied()
            && claimant == process
            && newest == Some(epoch)
            && in_doubt.get(&region).is_some_and(continues)
            && !snapshot.owners.contains_key(&region)
        {
            // The claim succeeded, but the lease ended before the region ran here. The copy is still the region's
            // newest state.
            memory.insert(region, RegionMemory { epoch, owner: true });
        }
    }
    let mut lost_regions = Vec::new();
    memory.retain(|region, memory| {
        let is_newest = snapshot.epochs.get(region).is_none_or(|(newest, _)| *newest <= memory.epoch);
        let is_counted = |standby: &StandbyKey| standby.epoch == memory.epoch && standby.counts(process);
        let counts = memory.owner || snapshot.standbys.get(region).is_none_or(is_counted);
        let has_copy = copies.get(region).is_some_and(|epoch| *epoch <= memory.epoch);
        let is_kept = is_newest && counts && has_copy;
        if memory.owner && !is_kept {
            lost_regions.push((*region, memory.epoch));
        }
        is_kept
    });
    for (region, epoch) in released {
        memory.entry(*region).or_insert(RegionMemory { epoch: *epoch, owner: false });
    }
    lost_regions
}

#[cfg(test)]
mod tests {
    use super::super::plan::{LocalState, plan};
    use super::*;

    const R: RegionId = RegionId(1);
    const EPOCH: u64 = 7;
    const PROCESS: u64 = 2;

    /// The keys after `claimant` has claimed the region in the epoch after `EPOCH`, and the claimant's lease has ended.
    fn claimed_by(claimant: u64) -> WorldSnapshot {
        WorldSnapshot {
            began: [R].into(),
            epochs: [(R, (EPOCH + 1, 1))].into(),
            claims: [(R, (claimant, EPOCH + 1))].into(),
            ..WorldSnapshot::default()
        }
    }

    /// Returns process 2's memory of the region after an update, and the regions that process 2 has lost. `so_far` is
    /// the memory before the update, `copy` is the epoch of process 2's copy, and `action` is the last action of
    /// process 2.
    fn remembered(
        so_far: Option<RegionMemory>,
        snapshot: &WorldSnapshot,
        copy: Option<u64>,
        action: RegionAction,
    ) -> (Option<RegionMemory>, Vec<(RegionId, u64)>) {
        let mut memory: BTreeMap<_, _> = so_far.into_iter().map(|memory| (R, memory)).collect();
        let copies = copy.into_iter().map(|epoch| (R, epoch)).collect();
        let in_doubt = [(R, UncertainClaim { lease: 3, action })].into();
        let states = (&copies, &BTreeMap::new());
        let lost = update_memory(&mut memory, snapshot, PROCESS, states, &in_doubt);
        (memory.get(&R).copied(), lost)
    }

    #[test]
    fn released_region_is_remembered_until_a_newer_copy_is_valid() {
        let (mut memory, released) = (BTreeMap::new(), BTreeMap::from([(R, EPOCH)]));
        let mut update = |snapshot: &WorldSnapshot, copies: BTreeMap<RegionId, u64>| {
            update_memory(&mut memory, snapshot, PROCESS, (&copies, &released), &BTreeMap::new());
            memory.get(&R).copied()
        };
        let of_epoch = |epoch| Some(RegionMemory { epoch, owner: false });
        assert_eq!(update(&claimed_by(3), BTreeMap::new()), of_epoch(EPOCH));
        assert_eq!(update(&WorldSnapshot::default(), BTreeMap::new()), of_epoch(EPOCH), "the keys are lost");
        let mut named = claimed_by(3);
        named.standbys.insert(R, StandbyKey::complete(PROCESS, EPOCH + 1));
        assert_eq!(update(&named, BTreeMap::from([(R, EPOCH + 1)])), of_epoch(EPOCH + 1));
        assert_eq!(update(&claimed_by(3), BTreeMap::new()), of_epoch(EPOCH), "another process is named");
    }

    #[test]
    fn region_continues_from_its_copy_if_takeover_response_is_lost() {
        let (takes_over, copy) = (RegionAction::TakeOver(R), Some(EPOCH));
        let claimed = Some(RegionMemory { epoch: EPOCH + 1, owner: true });
        for so_far in [None, Some(false), Some(true)] {
            let so_far = so_far.map(|owner| RegionMemory { epoch: EPOCH, owner });
            let found = remembered(so_far, &claimed_by(PROCESS), copy, takes_over);
            assert_eq!(found, (claimed, vec![]), "{so_far:?}");
        }
        let memory = claimed.into_iter().map(|memory| (R, memory)).collect();
        let copies = [(R, EPOCH)].into();
        let local =
            LocalState { process: PROCESS, regions: vec![R], copies, memory, ..LocalState::default() };
        assert_eq!(plan(&claimed_by(PROCESS), &local), [takes_over]);
    }

    #[test]
    fn new_lease_restarts_the_ownerless_time_of_a_region() {
        let (mut free, start) = (FreeRegions::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut update = |owner: Option<u64>, lease, seconds| {
            let owners = owner.into_iter().map(|process| (R, (process, EPOCH))).collect();
            let snapshot = WorldSnapshot { owners, ..WorldSnapshot::default() };
            free.update(&[R], &snapshot, Some(lease), at(seconds));
            free.times_ms(at(seconds)).get(&R).copied()
        };
        assert_eq!((update(None, 1, 0), update(None, 1, 2)), (Some(0), Some(2_000)));
        assert_eq!((update(None, 2, 20), update(None, 2, 21)), (Some(0), Some(1_000)), "a new lease");
        assert_eq!((update(Some(3), 2, 22), update(None, 2, 23)), (None, Some(0)), "it had an owner");
    }

    #[test]
    fn process_is_unreachable_after_a_time_without_connection() {
        let (mut processes, start) = (UnconnectedProcesses::default(), Instant::now());
        let mut update = |unconnected: &[u64], seconds| {
            let unconnected = unconnected.iter().copied().collect();
            let now = start + Duration::from_secs(seconds);
            processes.update(&unconnected, now, Duration::from_secs(5)).into_iter().collect::<Vec<_>>()
        };
        assert_eq!((update(&[2], 0), update(&[2, 3], 5)), (vec![], vec![]));
        assert_eq!(update(&[2, 3], 6), [2]);
        assert_eq!((update(&[3], 7), update(&[2, 3], 12)), (vec![], vec![3]), "process 2 was connected");
    }

    #[test]
    fn copy_of_a_region_is_valid_only_at_its_last_owner() {
        let (takes_over, copy) = (RegionAction::TakeOver(R), Some(EPOCH));
        assert_eq!(remembered(None, &claimed_by(3), copy, takes_over), (None, vec![]), "of another process");
        assert_eq!(
            remembered(None, &claimed_by(PROCESS), None, takes_over),
            (None, vec![]),
            "without a copy"
        );
        let begins = RegionAction::Begin { region: R, lost: true };
        assert_eq!(remembered(None, &claimed_by(PROCESS), copy, begins), (None, vec![]), "it began empty");
        let mut later = claimed_by(PROCESS);
        later.epochs.insert(R, (EPOCH + 2, 2));
        assert_eq!(
            remembered(None, &later, copy, takes_over),
            (None, vec![]),
            "an earlier version claimed it"
        );
        let owner = Some(RegionMemory { epoch: EPOCH, owner: true });
        assert_eq!(remembered(owner, &claimed_by(3), copy, takes_over), (None, vec![(R, EPOCH)]));
    }
}
