//! Decides the actions of a process from the world's keys and its own state. The decision depends only on its input.
//! Instead of a clock, it receives the time for which each region has had no owner.

use std::collections::BTreeMap;

use dunlin::space::RegionId;

use super::keys::{RegionMemory, StandbyKey, WorldSnapshot};

/// The state of a process that is not in the keys, as input of the decision.
#[derive(Debug, Clone, Default)]
pub(super) struct LocalState {
    pub(super) process: u64,
    /// All regions of the world.
    pub(super) regions: Vec<RegionId>,
    /// Number of processes that must be present before the regions are distributed.
    pub(super) expected: usize,
    /// Whether each region needs a standby.
    pub(super) standby: bool,
    /// The regions of other processes of which this process has a copy, with the owner's epoch at the time of the copy.
    pub(super) copies: BTreeMap<RegionId, u64>,
    /// The regions whose state is in this process's memory although it does not own them.
    pub(super) memory: BTreeMap<RegionId, RegionMemory>,
    /// The regions of this process whose named standby has received a copy.
    pub(super) begun_copies: Vec<RegionId>,
    /// Actions whose response was lost, so that they may or may not have taken effect.
    pub(super) in_doubt: BTreeMap<RegionId, RegionAction>,
    /// For each region without an owner, the time since it lost its owner, ms.
    pub(super) free_ms: BTreeMap<RegionId, u64>,
    /// How long a region waits for a process that has a copy before the region begins without entities, ms.
    pub(super) patience_ms: u64,
}

/// An action of this process on a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RegionAction {
    /// Continue a region from a copy of another owner's region, or from this process's own earlier state.
    TakeOver(RegionId),
    /// Begin a region without a copy. `lost` says whether the region had an earlier owner; the state of that owner is
    /// then lost.
    Begin { region: RegionId, lost: bool },
    /// Name this standby for the region.
    Name(RegionId, StandbyKey),
    /// Become a standby of another process's region.
    Follow(RegionId),
    /// Stop being a standby.
    Forget(RegionId),
    /// Give the region to its named standby.
    Release(RegionId),
}

pub(super) fn plan(seen: &WorldSnapshot, own: &LocalState) -> Vec<RegionAction> {
    let mut deeds = Vec::new();
    for region in &own.regions {
        match seen.owners.get(region) {
            Some((process, epoch)) if *process == own.process => {
                let unfinished = own.in_doubt.get(region).copied();
                deeds.extend(unfinished.or_else(|| as_owner(seen, own, *region, *epoch)));
            }
            Some(_) => deeds.extend(as_standby(seen, own, *region)),
            None => deeds.extend(as_heir(seen, own, *region)),
        }
    }
    // Only one region begins or is released at a time, so that the keys show the effect before the next one.
    let (mut released, mut begun, mut given) = (false, false, false);
    deeds.retain(|deed| match deed {
        RegionAction::Release(_) => !std::mem::replace(&mut released, true),
        RegionAction::Begin { lost: false, .. } => !std::mem::replace(&mut begun, true),
        RegionAction::Name(..) if !own.standby => !std::mem::replace(&mut given, true),
        _ => true,
    });
    deeds
}

fn as_owner(seen: &WorldSnapshot, own: &LocalState, region: RegionId, epoch: u64) -> Option<RegionAction> {
    let named = seen.standbys.get(&region).copied();
    let is_there = |process: u64| process != own.process && seen.processes.contains_key(&process);
    if let Some(StandbyKey { process, before: Some(_), .. }) = named
        && is_there(process)
    {
        let has_copy = own.begun_copies.contains(&region);
        return has_copy.then_some(RegionAction::Name(region, StandbyKey { process, before: None, epoch }));
    }
    let best = seen.processes.keys().copied().filter(|process| *process != own.process);
    // Selects the process with the fewest regions. Of processes with equally many, selects the one with the next higher
    // number.
    let best = best.min_by_key(|process| (seen.count(*process), process.wrapping_sub(own.process)));
    let Some(best) = best else {
        let nobody = StandbyKey::nobody(epoch);
        return (own.standby && named != Some(nobody)).then_some(RegionAction::Name(region, nobody));
    };
    let gains = seen.count(best) + 2 <= seen.count(own.process);
    // In a world without standbys, a standby is named only to give it the region, one region at a time.
    let ours = |region: &RegionId| seen.owners.get(region).is_some_and(|(owner, _)| *owner == own.process);
    let given = || seen.standbys.keys().any(|other| *other != region && ours(other));
    if !own.standby && (!gains || named.is_none() && given()) {
        return None;
    }
    // The process whose copy counts until the new standby has begun; 0 if there is none.
    let counts = named.map_or(0, |named| named.before.unwrap_or(named.process));
    let current = named.filter(|named| named.before.is_none() && is_there(named.process));
    match current.map(|named| named.process) {
        Some(process) if process == best && gains => Some(RegionAction::Release(region)),
        Some(process) if process == best || !gains => None,
        _ => Some(RegionAction::Name(region, StandbyKey { process: best, before: Some(counts), epoch })),
    }
}

/// Whether this process has no region and cannot receive one. It is idle if it owns no region, is no standby, and no
/// other process has a region to give away.
pub(super) fn is_idle(seen: &WorldSnapshot, own: &LocalState) -> bool {
    let busiest = seen.processes.keys().map(|process| seen.count(*process)).max().unwrap_or(0);
    let stands_by = seen.standbys.values().any(|standby| standby.process == own.process);
    seen.owners.len() == own.regions.len() && seen.count(own.process) == 0 && busiest < 2 && !stands_by
}

fn as_standby(seen: &WorldSnapshot, own: &LocalState, region: RegionId) -> Option<RegionAction> {
    let named = seen.standbys.get(&region)?;
    if named.process == own.process {
        return Some(RegionAction::Follow(region));
    }
    let counts = named.before == Some(own.process);
    (!counts && own.copies.contains_key(&region)).then_some(RegionAction::Forget(region))
}

/// Decides this process's action on a region that has no owner; `None` if it does nothing.
fn as_heir(seen: &WorldSnapshot, own: &LocalState, region: RegionId) -> Option<RegionAction> {
    let newest = seen.epochs.get(&region).map(|(epoch, _)| *epoch);
    let memory = own.memory.get(&region);
    if memory.is_some_and(|memory| memory.owner && Some(memory.epoch) == newest) {
        // The lease of this process has expired, but no other process has claimed the region since.
        return Some(RegionAction::TakeOver(region));
    }
    let free_ms = own.free_ms.get(&region).copied().unwrap_or(0);
    let enough = seen.processes.len() >= own.expected || free_ms > own.patience_ms;
    if newest.is_none()
        && let Some(best) = seen.best_memory(region)
        && free_ms <= 2 * own.patience_ms
    {
        // The cluster has lost its keys. The process with the best state continues after all processes had time to
        // return.
        let goes_on = best == own.process && memory.is_some() && enough;
        return goes_on.then_some(RegionAction::TakeOver(region));
    }
    if !seen.began.contains(&region) {
        let share = own.regions.len().div_ceil(own.expected.max(1));
        let is_ours = seen.count(own.process) < share || free_ms > 2 * own.patience_ms;
        return (enough && is_ours).then_some(RegionAction::Begin { region, lost: false });
    }
    let standby = seen.standbys.get(&region);
    let goes_on = standby.is_some_and(|standby| {
        standby.counts(own.process) && own.copies.get(&region) == Some(&standby.epoch)
    });
    if goes_on {
        return Some(RegionAction::TakeOver(region));
    }
    (free_ms > own.patience_ms).then_some(RegionAction::Begin { region, lost: true })
}

#[cfg(test)]
mod tests {
    use super::super::keys::ProcessRecord;
    use super::*;

    const R: RegionId = RegionId(1);
    const EPOCH: u64 = 7;

    fn seen(processes: &[u64], owner: Option<u64>, standby: Option<(u64, Option<u64>)>) -> WorldSnapshot {
        let place = || ProcessRecord {
            address: "127.0.0.1:1".parse().unwrap(),
            url: String::new(),
            memory: [].into(),
        };
        let key = |(process, before)| (R, StandbyKey { process, before, epoch: EPOCH });
        WorldSnapshot {
            processes: processes.iter().map(|process| (*process, place())).collect(),
            owners: owner.into_iter().map(|owner| (R, (owner, EPOCH))).collect(),
            standbys: standby.into_iter().map(key).collect(),
            began: [R].into(),
            epochs: [(R, (EPOCH, 1))].into(),
            ..WorldSnapshot::default()
        }
    }

    fn own(process: u64) -> LocalState {
        LocalState {
            process,
            regions: vec![R],
            expected: 2,
            standby: true,
            patience_ms: 100,
            ..LocalState::default()
        }
    }

    fn with_copy(process: u64) -> LocalState {
        LocalState { copies: [(R, EPOCH)].into(), ..own(process) }
    }

    #[test]
    fn previous_standby_remains_until_the_new_copy_has_begun() {
        let key = |process, before| RegionAction::Name(R, StandbyKey { process, before, epoch: EPOCH });
        assert_eq!(plan(&seen(&[1, 2, 3], Some(1), None), &own(1)), [key(2, Some(0))]);
        let named = seen(&[1, 2, 3], Some(1), Some((2, Some(0))));
        assert_eq!(plan(&named, &own(1)), []);
        assert_eq!(plan(&named, &own(2)), [RegionAction::Follow(R)]);
        assert_eq!(plan(&named, &LocalState { begun_copies: vec![R], ..own(1) }), [key(2, None)]);
        // The standby has ended. The owner names another one, but the previous one counts until the new one has begun.
        assert_eq!(plan(&seen(&[1, 3], Some(1), Some((2, None))), &own(1)), [key(3, Some(2))]);
    }

    #[test]
    fn region_without_a_standby_invalidates_old_standby_copies() {
        let alone = seen(&[1], Some(1), Some((2, None)));
        assert_eq!(plan(&alone, &own(1)), [RegionAction::Name(R, StandbyKey::nobody(EPOCH))]);
        assert_eq!(
            plan(&seen(&[1], Some(1), None), &own(1)),
            [RegionAction::Name(R, StandbyKey::nobody(EPOCH))]
        );
        let said = Some((0, None));
        assert_eq!(plan(&seen(&[1], Some(1), said), &own(1)), [], "it is said once");
        let back = RegionAction::Name(R, StandbyKey { process: 2, before: Some(0), epoch: EPOCH });
        assert_eq!(plan(&seen(&[1, 2], Some(1), said), &own(1)), [back]);
        assert_eq!(plan(&seen(&[2], None, said), &with_copy(2)), [], "its copy is from before");
    }

    #[test]
    fn only_a_process_with_a_valid_copy_takes_over() {
        let free = |standby| seen(&[1, 2, 3], None, Some(standby));
        assert_eq!(plan(&free((2, None)), &with_copy(2)), [RegionAction::TakeOver(R)]);
        assert_eq!(plan(&free((2, None)), &own(2)), [], "it has none");
        assert_eq!(plan(&free((2, None)), &with_copy(3)), [], "it is an older one");
        let older = LocalState { copies: [(R, EPOCH - 1)].into(), ..own(2) };
        assert_eq!(plan(&free((2, None)), &older), [], "it is of an owner before the last");
        assert_eq!(plan(&free((2, Some(0))), &older), [], "who is named and has not begun");
        assert_eq!(plan(&free((2, Some(3))), &with_copy(2)), [], "its copy may lack what 3 was told");
        assert_eq!(plan(&free((2, Some(3))), &with_copy(3)), [RegionAction::TakeOver(R)]);
        let late = LocalState { free_ms: [(R, 101)].into(), ..own(1) };
        assert_eq!(plan(&free((2, None)), &late), [RegionAction::Begin { region: R, lost: true }]);
    }

    #[test]
    fn owner_of_two_regions_releases_one_to_its_standby() {
        let other = RegionId(2);
        let mut all = seen(&[1, 3], Some(1), Some((3, None)));
        all.owners.insert(other, (1, 8));
        all.standbys.insert(other, StandbyKey { process: 3, before: None, epoch: 8 });
        let own = LocalState { regions: vec![R, other], ..own(1) };
        assert_eq!(plan(&all, &own), [RegionAction::Release(R)], "one at a time");
        all.owners.insert(R, (3, 9));
        let names = |deed: &RegionAction| matches!(deed, RegionAction::Release(_));
        assert!(!plan(&all, &own).iter().any(names), "now each has one");
    }

    #[test]
    fn region_action_with_a_lost_response_is_planned_again() {
        let ours = seen(&[1, 2], Some(2), None);
        let in_doubt = |deed| LocalState { in_doubt: [(R, deed)].into(), ..with_copy(2) };
        assert_eq!(plan(&ours, &in_doubt(RegionAction::TakeOver(R))), [RegionAction::TakeOver(R)]);
        let begin = RegionAction::Begin { region: R, lost: false };
        assert_eq!(plan(&ours, &in_doubt(begin)), [begin]);
        let theirs = seen(&[1, 2], Some(1), Some((2, None)));
        assert_eq!(plan(&theirs, &in_doubt(begin)), [RegionAction::Follow(R)], "it was not done");
    }

    #[test]
    fn regions_begin_when_all_processes_have_joined() {
        let fresh = |processes: &[u64]| WorldSnapshot {
            began: [].into(),
            epochs: [].into(),
            ..seen(processes, None, None)
        };
        assert_eq!(plan(&fresh(&[1]), &own(1)), []);
        assert_eq!(plan(&fresh(&[1, 2]), &own(1)), [RegionAction::Begin { region: R, lost: false }]);
        let late = LocalState { free_ms: [(R, 101)].into(), ..own(1) };
        assert_eq!(plan(&fresh(&[1]), &late), [RegionAction::Begin { region: R, lost: false }]);
    }

    fn remembers(process: u64, epoch: u64, owner: bool) -> LocalState {
        LocalState { memory: [(R, RegionMemory { epoch, owner })].into(), ..own(process) }
    }

    #[test]
    fn owner_reclaims_its_expired_regions_if_no_process_took_them() {
        let free = seen(&[1, 2], None, None);
        assert_eq!(plan(&free, &remembers(1, EPOCH, true)), [RegionAction::TakeOver(R)]);
        assert_eq!(plan(&free, &remembers(1, EPOCH - 1, true)), [], "another has owned it since");
        assert_eq!(plan(&free, &remembers(1, EPOCH, false)), [], "no key says that its copy counts");
        let alone = seen(&[1], None, Some((0, None)));
        assert_eq!(plan(&alone, &remembers(1, EPOCH, true)), [RegionAction::TakeOver(R)]);
        let others = seen(&[1, 2], Some(2), None);
        assert_eq!(plan(&others, &remembers(1, EPOCH, true)), []);
    }

    /// A cluster that has lost its keys, and in which these processes, with these states in memory, have registered
    /// again.
    fn without_keys(back: &[(u64, Option<RegionMemory>)]) -> WorldSnapshot {
        let processes: Vec<u64> = back.iter().map(|(process, _)| *process).collect();
        let mut seen = WorldSnapshot { began: [].into(), epochs: [].into(), ..seen(&processes, None, None) };
        for (process, memory) in back {
            let place = seen.processes.get_mut(process).unwrap();
            place.memory = memory.iter().map(|memory| (R.0, *memory)).collect();
        }
        seen
    }

    #[test]
    fn process_with_the_newest_copy_takes_over_after_key_loss() {
        let memory = |epoch, owner| Some(RegionMemory { epoch, owner });
        let both = without_keys(&[(1, memory(EPOCH, false)), (2, memory(EPOCH, true))]);
        assert_eq!(plan(&both, &remembers(1, EPOCH, false)), [], "its owner is there");
        assert_eq!(plan(&both, &remembers(2, EPOCH, true)), [RegionAction::TakeOver(R)]);
        let newer = without_keys(&[(1, memory(EPOCH + 1, false)), (2, memory(EPOCH, true))]);
        assert_eq!(plan(&newer, &remembers(1, EPOCH + 1, false)), [RegionAction::TakeOver(R)]);
        assert_eq!(plan(&newer, &remembers(2, EPOCH, true)), []);
        let standby = without_keys(&[(1, memory(EPOCH, false)), (2, None)]);
        assert_eq!(plan(&standby, &own(2)), [], "a newcomer does not populate what another remembers");
        let alone = without_keys(&[(2, memory(EPOCH, true))]);
        assert_eq!(plan(&alone, &remembers(2, EPOCH, true)), [], "others may come back with a later state");
        let late = LocalState { free_ms: [(R, 101)].into(), ..remembers(2, EPOCH, true) };
        assert_eq!(plan(&alone, &late), [RegionAction::TakeOver(R)]);
    }

    #[test]
    fn joining_process_gets_a_region_in_a_world_without_standbys() {
        let other = RegionId(2);
        let mut all = seen(&[1, 2], Some(1), None);
        all.owners.insert(other, (1, EPOCH));
        let own = |begun: &[RegionId]| LocalState {
            regions: vec![R, other],
            standby: false,
            begun_copies: begun.to_vec(),
            ..own(1)
        };
        let name =
            |region, before| RegionAction::Name(region, StandbyKey { process: 2, before, epoch: EPOCH });
        assert_eq!(plan(&all, &own(&[])), [name(R, Some(0))]);
        all.standbys.insert(R, StandbyKey { process: 2, before: Some(0), epoch: EPOCH });
        assert_eq!(plan(&all, &own(&[])), [], "one at a time");
        assert_eq!(plan(&all, &own(&[R])), [name(R, None)]);
        all.standbys.insert(R, StandbyKey { process: 2, before: None, epoch: EPOCH });
        assert_eq!(plan(&all, &own(&[R])), [RegionAction::Release(R)]);
        all.owners.insert(R, (2, EPOCH + 1));
        all.standbys.remove(&R);
        assert_eq!(plan(&all, &own(&[])), [], "now each has one");
        assert_eq!(plan(&seen(&[1], Some(1), None), &own(&[])), [], "nobody is there to be given one");
    }

    #[test]
    fn process_without_region_or_standby_role_is_idle() {
        let idle =
            |process, seen: &WorldSnapshot| is_idle(seen, &LocalState { standby: false, ..own(process) });
        assert!(idle(2, &seen(&[1, 2], Some(1), None)));
        assert!(!idle(1, &seen(&[1, 2], Some(1), None)), "it owns the region");
        assert!(!idle(2, &seen(&[1, 2], Some(1), Some((2, None)))), "it stands by");
        assert!(!idle(2, &seen(&[1, 2], None, None)), "it may still be given the region");
    }
}
