//! Decides, from the world's keys and a process's own state, what the process does with the regions of its world. The
//! decision depends on nothing else. Times are part of the process's state, so no clock is read.

use std::collections::{BTreeMap, BTreeSet};

use dunlin::space::RegionId;

use super::keys::{RegionMemory, StandbyKey, WorldSnapshot};

/// How long a region without an owner waits, in addition to the time `patience`, for a process that still runs and may
/// have the region's state, ms. After this time, the region begins without entities, although the process may return.
pub(super) const HOLDER_WAIT_MS_MAX: u64 = 600_000;

/// The part of the decision's input that is not in the world's keys.
#[derive(Debug, Clone, Default)]
pub(super) struct LocalState {
    pub(super) process: u64,
    /// All regions of the world.
    pub(super) regions: Vec<RegionId>,
    /// Number of processes that must be present before the regions are distributed among them.
    pub(super) expected: usize,
    /// Whether each region needs a standby.
    pub(super) standby: bool,
    /// The regions of which this process has a copy as a standby, each with the epoch of the owner that sent the copy.
    pub(super) copies: BTreeMap<RegionId, u64>,
    /// The regions whose state is in this process's memory although the process does not own them.
    pub(super) memory: BTreeMap<RegionId, RegionMemory>,
    /// The regions that this process released and whose state it must keep, each with the epoch in which this process
    /// was the owner.
    pub(super) released: BTreeMap<RegionId, u64>,
    /// The other processes with which this process has had no connection for a while, although they are registered.
    pub(super) unreachable: BTreeSet<u64>,
    /// The regions that have begun at some time, as far as this process knows. The process remembers these regions even
    /// if the cluster loses its keys.
    pub(super) began: BTreeSet<RegionId>,
    /// The regions that this process owns and whose named standby has a copy.
    pub(super) begun_copies: Vec<RegionId>,
    /// For each region, an action whose response was lost, so that it is not known whether the action succeeded.
    pub(super) in_doubt: BTreeMap<RegionId, RegionAction>,
    /// For each region without an owner, how long it has had none, ms.
    pub(super) free_ms: BTreeMap<RegionId, u64>,
    /// How long a region waits for a process that has a copy before it begins without entities, ms.
    pub(super) patience_ms: u64,
    /// For each region that must not begin now, a process that may have its state and still runs.
    pub(super) awaited: BTreeMap<RegionId, u64>,
    /// Whether this process leaves the world. A leaving process hands over its regions. It takes over only regions that
    /// no other process can continue, and hands these over, too.
    pub(super) leaving: bool,
}

/// An action of this process on a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RegionAction {
    /// Become the owner of a region, and continue it from the copy that this process has as a standby, or from the
    /// state that this process has kept since it was the owner.
    TakeOver(RegionId),
    /// Become the owner of a region, and begin it without a copy. If `lost` is set, the region had an owner before,
    /// whose state is lost.
    Begin { region: RegionId, lost: bool },
    /// Name the standby of a region that this process owns.
    Name(RegionId, StandbyKey),
    /// Become a standby of another process's region.
    Follow(RegionId),
    /// Stop being the standby of a region.
    Forget(RegionId),
    /// Give a region to its named standby, which becomes the owner.
    Release(RegionId),
}

pub(super) fn plan(snapshot: &WorldSnapshot, local: &LocalState) -> Vec<RegionAction> {
    let mut actions = Vec::new();
    for region in &local.regions {
        match snapshot.owners.get(region) {
            Some((process, epoch)) if *process == local.process => {
                let unfinished = local.in_doubt.get(region).copied();
                actions.extend(unfinished.or_else(|| plan_as_owner(snapshot, local, *region, *epoch)));
            }
            Some(_) => actions.extend(plan_as_standby(snapshot, local, *region)),
            None => {
                let action = plan_without_owner(snapshot, local, *region);
                let takes_over = RegionAction::TakeOver(*region);
                let may_begin = !local.leaving && !local.awaited.contains_key(region);
                actions.extend(action.filter(|action| may_begin || *action == takes_over));
            }
        }
    }
    if local.leaving {
        return actions;
    }
    // In one plan, at most one region begins for the first time, and at most one is released. The keys show the effect
    // of these actions before the next plan is made.
    let (mut released, mut begun, mut handover) = (false, false, false);
    actions.retain(|action| match action {
        RegionAction::Release(_) => !std::mem::replace(&mut released, true),
        RegionAction::Begin { lost: false, .. } => !std::mem::replace(&mut begun, true),
        RegionAction::Name(..) if !local.standby => !std::mem::replace(&mut handover, true),
        _ => true,
    });
    actions
}

fn plan_as_owner(
    snapshot: &WorldSnapshot,
    local: &LocalState,
    region: RegionId,
    epoch: u64,
) -> Option<RegionAction> {
    let standby_key = snapshot.standbys.get(&region).copied();
    // A process that cannot connect to this one gets no copy. Such a process counts as absent if there is another one.
    let is_reachable = |process: u64| !local.unreachable.contains(&process);
    let has_choice = snapshot.heirs(local.process).any(is_reachable);
    let is_present = |process: u64| {
        process != local.process
            && snapshot.processes.contains_key(&process)
            && (is_reachable(process) || !has_choice)
    };
    if let Some(StandbyKey { process, before: Some(_), .. }) = standby_key
        && is_present(process)
        && !snapshot.is_leaving(process)
    {
        let has_copy = local.begun_copies.contains(&region);
        return has_copy.then_some(RegionAction::Name(region, StandbyKey::complete(process, epoch)));
    }
    let current =
        standby_key.filter(|standby_key| standby_key.before.is_none() && is_present(standby_key.process));
    let current = current.map(|standby_key| standby_key.process);
    let heirs = || snapshot.heirs(local.process);
    // The candidate is the process with the fewest regions. If several processes have equally few, the candidate is the
    // one whose number comes next after this process's number; the lowest number comes after the highest. A process
    // that leaves the world prefers the standby that already has a copy.
    let candidate = heirs().min_by_key(|process| {
        (!is_reachable(*process), snapshot.count(*process), process.wrapping_sub(local.process))
    });
    let heir = heirs().find(|process| local.leaving && Some(*process) == current);
    let Some(candidate) = heir.or(candidate) else {
        // No other process stays in the world. A standby that is leaving counts as a standby until it has ended.
        let no_standby = StandbyKey::empty(epoch);
        return (local.standby && current.is_none() && standby_key != Some(no_standby))
            .then_some(RegionAction::Name(region, no_standby));
    };
    let improves_balance = local.leaving || snapshot.count(candidate) + 2 <= snapshot.count(local.process);
    // In a world without standbys, a process is named as a standby only so that it can receive the region. Only one
    // region of a process at a time gets such a standby. If the process leaves, all of its regions get one.
    let ours =
        |region: &RegionId| snapshot.owners.get(region).is_some_and(|(owner, _)| *owner == local.process);
    let is_handing_over =
        || !local.leaving && snapshot.standbys.keys().any(|other| *other != region && ours(other));
    if !local.standby && (!improves_balance || standby_key.is_none() && is_handing_over()) {
        return None;
    }
    // The process that would take over until the new standby has a copy; 0 if there is none.
    let counts = standby_key.map_or(0, |standby_key| standby_key.before.unwrap_or(standby_key.process));
    let released = standby_key.and_then(|standby_key| standby_key.released);
    let key = StandbyKey { process: candidate, before: Some(counts), epoch, released };
    match current {
        Some(process) if process == candidate && improves_balance => Some(RegionAction::Release(region)),
        Some(process) if process == candidate || !improves_balance && !snapshot.is_leaving(process) => None,
        _ => Some(RegionAction::Name(region, key)),
    }
}

/// Whether this process is idle: all regions have owners, this process owns none and is no standby, and no other
/// process has more than one region.
pub(super) fn is_idle(snapshot: &WorldSnapshot, local: &LocalState) -> bool {
    let busiest = snapshot.processes.keys().map(|process| snapshot.count(*process)).max().unwrap_or(0);
    let is_standby = snapshot.standbys.values().any(|standby| standby.process == local.process);
    snapshot.owners.len() == local.regions.len()
        && snapshot.count(local.process) == 0
        && busiest < 2
        && !is_standby
}

fn plan_as_standby(snapshot: &WorldSnapshot, local: &LocalState, region: RegionId) -> Option<RegionAction> {
    let standby_key = snapshot.standbys.get(&region)?;
    if standby_key.process == local.process {
        return Some(RegionAction::Follow(region));
    }
    let counts = standby_key.before == Some(local.process);
    (!counts && local.copies.contains_key(&region)).then_some(RegionAction::Forget(region))
}

/// Decides what this process does with a region that has no owner; `None` if it does nothing.
fn plan_without_owner(
    snapshot: &WorldSnapshot,
    local: &LocalState,
    region: RegionId,
) -> Option<RegionAction> {
    let newest = snapshot.epochs.get(&region).map(|(epoch, _)| *epoch);
    let memory = local.memory.get(&region);
    if memory.is_some_and(|memory| memory.owner && Some(memory.epoch) == newest) {
        // This process owned the region until its lease expired, and no other process has claimed the region since.
        return Some(RegionAction::TakeOver(region));
    }
    let free_ms = local.free_ms.get(&region).copied().unwrap_or(0);
    if snapshot.invalid_revision("region", region.0.into()) != 0 && free_ms <= local.patience_ms {
        // The owner may still run the region. It notices soon that the region's key is invalid, and claims the region
        // again.
        return None;
    }
    let enough_processes = snapshot.processes.len() >= local.expected || free_ms > local.patience_ms;
    // The cluster has lost its keys. The process with the best state continues the region once enough processes are
    // back. If this process has lost the state since it registered, the region counts as lost.
    match snapshot.best_memory(region).filter(|_| newest.is_none()) {
        // The candidate may wait longer for other processes than this one.
        Some(candidate)
            if candidate != local.process && free_ms <= local.patience_ms + HOLDER_WAIT_MS_MAX =>
        {
            return None;
        }
        Some(_) if memory.is_some() => return enough_processes.then_some(RegionAction::TakeOver(region)),
        _ => {}
    }
    if !snapshot.began.contains(&region) && !local.began.contains(&region) {
        let share = local.regions.len().div_ceil(local.expected.max(1));
        let is_ours = snapshot.count(local.process) < share || free_ms > 2 * local.patience_ms;
        return (enough_processes && is_ours).then_some(RegionAction::Begin { region, lost: false });
    }
    let standby = snapshot.standbys.get(&region);
    let continues = standby.is_some_and(|standby| {
        standby.counts(local.process) && local.copies.get(&region) == Some(&standby.epoch)
    });
    if continues {
        return Some(RegionAction::TakeOver(region));
    }
    if let Some(epoch) = local.released.get(&region) {
        // If no process has claimed the region since its release, the process that should receive the region gets some
        // time to claim it.
        let heir_may_claim = newest == Some(*epoch)
            && standby.is_some_and(|standby| snapshot.processes.contains_key(&standby.process))
            && free_ms <= local.patience_ms / 2;
        return (!heir_may_claim).then_some(RegionAction::TakeOver(region));
    }
    (free_ms > local.patience_ms).then_some(RegionAction::Begin { region, lost: true })
}

#[cfg(test)]
mod tests {
    use super::super::keys::{ProcessRecord, RegionOwner};
    use super::*;

    const R: RegionId = RegionId(1);
    const EPOCH: u64 = 7;

    fn standby_key(process: u64, before: Option<u64>) -> StandbyKey {
        StandbyKey { before, ..StandbyKey::complete(process, EPOCH) }
    }

    fn name(process: u64, before: Option<u64>) -> RegionAction {
        RegionAction::Name(R, standby_key(process, before))
    }

    fn snapshot(processes: &[u64], owner: Option<u64>, standby: Option<(u64, Option<u64>)>) -> WorldSnapshot {
        let record = || ProcessRecord {
            address: "127.0.0.1:1".parse().unwrap(),
            url: String::new(),
            memory: [].into(),
            settings: None,
            leaving: false,
        };
        let key = |(process, before)| (R, standby_key(process, before));
        WorldSnapshot {
            processes: processes.iter().map(|process| (*process, record())).collect(),
            owners: owner.into_iter().map(|owner| (R, (owner, EPOCH))).collect(),
            standbys: standby.into_iter().map(key).collect(),
            began: [R].into(),
            epochs: [(R, (EPOCH, 1))].into(),
            ..WorldSnapshot::default()
        }
    }

    fn local(process: u64) -> LocalState {
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
        LocalState { copies: [(R, EPOCH)].into(), ..local(process) }
    }

    #[test]
    fn previous_standby_remains_until_the_new_one_has_a_copy() {
        assert_eq!(plan(&snapshot(&[1, 2, 3], Some(1), None), &local(1)), [name(2, Some(0))]);
        let with_standby = snapshot(&[1, 2, 3], Some(1), Some((2, Some(0))));
        assert_eq!(plan(&with_standby, &local(1)), []);
        assert_eq!(plan(&with_standby, &local(2)), [RegionAction::Follow(R)]);
        assert_eq!(plan(&with_standby, &LocalState { begun_copies: vec![R], ..local(1) }), [name(2, None)]);
        // The standby has ended, and the owner names another one. Until the new standby has a copy, the old standby
        // would still take over.
        assert_eq!(plan(&snapshot(&[1, 3], Some(1), Some((2, None))), &local(1)), [name(3, Some(2))]);
    }

    #[test]
    fn owner_without_a_standby_invalidates_all_earlier_copies() {
        let alone = snapshot(&[1], Some(1), Some((2, None)));
        assert_eq!(plan(&alone, &local(1)), [RegionAction::Name(R, StandbyKey::empty(EPOCH))]);
        assert_eq!(
            plan(&snapshot(&[1], Some(1), None), &local(1)),
            [RegionAction::Name(R, StandbyKey::empty(EPOCH))]
        );
        let recorded = Some((0, None));
        assert_eq!(plan(&snapshot(&[1], Some(1), recorded), &local(1)), [], "it is said once");
        assert_eq!(plan(&snapshot(&[1, 2], Some(1), recorded), &local(1)), [name(2, Some(0))]);
        assert_eq!(plan(&snapshot(&[2], None, recorded), &with_copy(2)), [], "its copy is from before");
    }

    #[test]
    fn only_a_process_with_a_valid_copy_takes_over() {
        let free = |standby| snapshot(&[1, 2, 3], None, Some(standby));
        assert_eq!(plan(&free((2, None)), &with_copy(2)), [RegionAction::TakeOver(R)]);
        assert_eq!(plan(&free((2, None)), &local(2)), [], "it has none");
        assert_eq!(plan(&free((2, None)), &with_copy(3)), [], "it is an older one");
        let older = LocalState { copies: [(R, EPOCH - 1)].into(), ..local(2) };
        assert_eq!(plan(&free((2, None)), &older), [], "it is of an owner before the last");
        assert_eq!(plan(&free((2, Some(0))), &older), [], "who is named and has not begun");
        assert_eq!(plan(&free((2, Some(3))), &with_copy(2)), [], "its copy may lack what 3 was told");
        assert_eq!(plan(&free((2, Some(3))), &with_copy(3)), [RegionAction::TakeOver(R)]);
        let late = LocalState { free_ms: [(R, 101)].into(), ..local(1) };
        assert_eq!(plan(&free((2, None)), &late), [RegionAction::Begin { region: R, lost: true }]);
    }

    #[test]
    fn owner_of_two_regions_gives_one_of_them_to_a_standby() {
        let other = RegionId(2);
        let mut all = snapshot(&[1, 3], Some(1), Some((3, None)));
        all.owners.insert(other, (1, 8));
        all.standbys.insert(other, StandbyKey::complete(3, 8));
        let local = LocalState { regions: vec![R, other], ..local(1) };
        assert_eq!(plan(&all, &local), [RegionAction::Release(R)], "one at a time");
        all.owners.insert(R, (3, 9));
        let names = |action: &RegionAction| matches!(action, RegionAction::Release(_));
        assert!(!plan(&all, &local).iter().any(names), "now each has one");
    }

    #[test]
    fn process_gives_its_regions_to_others_before_it_leaves() {
        let leaving = LocalState { leaving: true, ..local(1) };
        assert_eq!(plan(&snapshot(&[1, 2, 3], Some(1), None), &leaving), [name(2, Some(0))]);
        let copying = snapshot(&[1, 2, 3], Some(1), Some((3, Some(0))));
        assert_eq!(plan(&copying, &leaving), [], "process 3 has no copy yet");
        let copied = LocalState { begun_copies: vec![R], ..leaving.clone() };
        assert_eq!(plan(&copying, &copied), [name(3, None)]);
        let mut ready = snapshot(&[1, 2, 3], Some(1), Some((3, None)));
        assert_eq!(plan(&ready, &leaving), [RegionAction::Release(R)], "process 3 has a copy");
        assert_eq!(plan(&ready, &local(1)), [], "process 1 stays");
        ready.processes.get_mut(&3).unwrap().leaving = true;
        assert_eq!(plan(&ready, &leaving), [name(2, Some(3))], "process 3 leaves, too");
        ready.processes.remove(&2);
        assert_eq!(plan(&ready, &leaving), [], "no process stays");
        let without = LocalState { standby: false, ..leaving };
        assert_eq!(plan(&snapshot(&[1, 2], Some(1), None), &without), [name(2, Some(0))]);
    }

    #[test]
    fn owner_replaces_a_standby_that_leaves() {
        let mut leaves = snapshot(&[1, 2, 3], Some(1), Some((3, None)));
        leaves.processes.get_mut(&3).unwrap().leaving = true;
        assert_eq!(plan(&leaves, &local(1)), [name(2, Some(3))]);
        leaves.processes.remove(&2);
        assert_eq!(plan(&leaves, &local(1)), [], "process 3 is the standby until it has ended");
        leaves.standbys = snapshot(&[], None, Some((3, Some(0)))).standbys;
        let alone = RegionAction::Name(R, StandbyKey::empty(EPOCH));
        assert_eq!(plan(&leaves, &local(1)), [alone], "process 3 has no copy");
    }

    #[test]
    fn owner_replaces_a_standby_that_cannot_connect() {
        let unreachable =
            |others: &[u64]| LocalState { unreachable: others.iter().copied().collect(), ..local(1) };
        let copying = snapshot(&[1, 2, 3], Some(1), Some((2, Some(0))));
        assert_eq!(plan(&copying, &unreachable(&[])), []);
        assert_eq!(plan(&copying, &unreachable(&[2])), [name(3, Some(0))]);
        assert_eq!(plan(&copying, &unreachable(&[2, 3])), [], "no process can connect");
        let complete = snapshot(&[1, 2, 3], Some(1), Some((2, None)));
        assert_eq!(plan(&complete, &unreachable(&[2])), [name(3, Some(2))], "the copy of process 2 counts");
        let replaced = snapshot(&[1, 2, 3], Some(1), Some((3, Some(2))));
        let copied = LocalState { begun_copies: vec![R], ..unreachable(&[2]) };
        assert_eq!(plan(&replaced, &copied), [name(3, None)]);
        assert_eq!(plan(&snapshot(&[1, 2], Some(1), Some((2, None))), &unreachable(&[2])), []);
    }

    /// Returns the keys of a world in which process 1 has released the region in `EPOCH`. If `is_claimed` is set,
    /// process 2 has then claimed the region in the next epoch.
    fn released(processes: &[u64], is_claimed: bool) -> WorldSnapshot {
        let mut snapshot = snapshot(processes, None, Some((2, None)));
        let former = RegionOwner { process: 1, epoch: EPOCH };
        snapshot.standbys.get_mut(&R).unwrap().released = Some(former);
        if is_claimed {
            snapshot.standbys.insert(R, StandbyKey::claimed(EPOCH + 1, former));
            snapshot.epochs.insert(R, (EPOCH + 1, 2));
        }
        snapshot
    }

    #[test]
    fn former_owner_continues_its_region_if_the_new_owner_is_lost() {
        let former = LocalState { released: [(R, EPOCH)].into(), ..local(1) };
        assert_eq!(plan(&released(&[1, 2], false), &former), [], "process 2 may claim it");
        assert_eq!(plan(&released(&[1, 2], false), &with_copy(2)), [RegionAction::TakeOver(R)]);
        assert_eq!(plan(&released(&[1, 3], false), &former), [RegionAction::TakeOver(R)]);
        let late = LocalState { free_ms: [(R, 51)].into(), ..former.clone() };
        assert_eq!(plan(&released(&[1, 2], false), &late), [RegionAction::TakeOver(R)]);
        assert_eq!(plan(&released(&[1, 3], true), &former), [RegionAction::TakeOver(R)]);
        assert_eq!(plan(&released(&[1, 3], true), &local(3)), []);
    }

    #[test]
    fn key_of_a_standby_names_the_former_owner_during_the_copy() {
        let mut claimed = released(&[1, 2, 3], true);
        claimed.owners.insert(R, (2, EPOCH + 1));
        let copying = StandbyKey { process: 3, ..claimed.standbys[&R] };
        assert_eq!(plan(&claimed, &local(2)), [RegionAction::Name(R, copying)]);
        claimed.standbys.insert(R, copying);
        let copied = LocalState { begun_copies: vec![R], ..local(2) };
        let complete = StandbyKey::complete(3, EPOCH + 1);
        assert_eq!(plan(&claimed, &copied), [RegionAction::Name(R, complete)]);
    }

    #[test]
    fn leaving_process_takes_over_only_regions_that_it_has_copied() {
        let leaving = |local: LocalState| LocalState { leaving: true, free_ms: [(R, 101)].into(), ..local };
        let free = |standby| snapshot(&[1, 2], None, Some(standby));
        assert_eq!(plan(&free((1, None)), &leaving(with_copy(1))), [RegionAction::TakeOver(R)]);
        assert_eq!(plan(&free((2, None)), &leaving(local(1))), []);
        let fresh = WorldSnapshot { began: [].into(), epochs: [].into(), ..snapshot(&[1, 2], None, None) };
        assert_eq!(plan(&fresh, &leaving(local(1))), []);
    }

    #[test]
    fn region_action_with_a_lost_response_is_planned_again() {
        let ours = snapshot(&[1, 2], Some(2), None);
        let in_doubt = |action| LocalState { in_doubt: [(R, action)].into(), ..with_copy(2) };
        assert_eq!(plan(&ours, &in_doubt(RegionAction::TakeOver(R))), [RegionAction::TakeOver(R)]);
        let begin = RegionAction::Begin { region: R, lost: false };
        assert_eq!(plan(&ours, &in_doubt(begin)), [begin]);
        let theirs = snapshot(&[1, 2], Some(1), Some((2, None)));
        assert_eq!(plan(&theirs, &in_doubt(begin)), [RegionAction::Follow(R)], "it was not done");
    }

    #[test]
    fn regions_begin_when_all_processes_have_joined() {
        let fresh = |processes: &[u64]| WorldSnapshot {
            began: [].into(),
            epochs: [].into(),
            ..snapshot(processes, None, None)
        };
        assert_eq!(plan(&fresh(&[1]), &local(1)), []);
        assert_eq!(plan(&fresh(&[1, 2]), &local(1)), [RegionAction::Begin { region: R, lost: false }]);
        let late = LocalState { free_ms: [(R, 101)].into(), ..local(1) };
        assert_eq!(plan(&fresh(&[1]), &late), [RegionAction::Begin { region: R, lost: false }]);
    }

    #[test]
    fn lost_region_begins_again_without_its_initial_entities() {
        let fresh = WorldSnapshot { began: [].into(), epochs: [].into(), ..snapshot(&[1, 2], None, None) };
        let known = |free_ms| LocalState { began: [R].into(), free_ms: [(R, free_ms)].into(), ..local(1) };
        assert_eq!(plan(&fresh, &known(0)), [], "a process with a copy may come back");
        assert_eq!(plan(&fresh, &known(101)), [RegionAction::Begin { region: R, lost: true }]);
    }

    #[test]
    fn region_does_not_begin_while_its_owner_still_runs() {
        let late = LocalState { free_ms: [(R, 101)].into(), ..local(2) };
        let waits = LocalState { awaited: [(R, 1)].into(), ..late.clone() };
        let lost = snapshot(&[2, 3], None, Some((1, None)));
        assert_eq!(plan(&lost, &late), [RegionAction::Begin { region: R, lost: true }]);
        assert_eq!(plan(&lost, &waits), []);
        let unrecorded = WorldSnapshot { began: [].into(), ..lost.clone() };
        assert_eq!(plan(&unrecorded, &late), [RegionAction::Begin { region: R, lost: false }]);
        assert_eq!(plan(&unrecorded, &waits), []);
        let copied = LocalState { copies: [(R, EPOCH)].into(), ..waits };
        let standby = snapshot(&[2, 3], None, Some((2, None)));
        assert_eq!(plan(&standby, &copied), [RegionAction::TakeOver(R)], "its standby continues it");
    }

    fn with_memory(process: u64, epoch: u64, owner: bool) -> LocalState {
        LocalState { memory: [(R, RegionMemory { epoch, owner })].into(), ..local(process) }
    }

    #[test]
    fn owner_reclaims_its_expired_regions_if_no_process_took_them() {
        let free = snapshot(&[1, 2], None, None);
        assert_eq!(plan(&free, &with_memory(1, EPOCH, true)), [RegionAction::TakeOver(R)]);
        assert_eq!(plan(&free, &with_memory(1, EPOCH - 1, true)), [], "another has owned it since");
        assert_eq!(plan(&free, &with_memory(1, EPOCH, false)), [], "no key says that its copy counts");
        let alone = snapshot(&[1], None, Some((0, None)));
        assert_eq!(plan(&alone, &with_memory(1, EPOCH, true)), [RegionAction::TakeOver(R)]);
        let others = snapshot(&[1, 2], Some(2), None);
        assert_eq!(plan(&others, &with_memory(1, EPOCH, true)), []);
    }

    #[test]
    fn invalid_region_key_delays_the_takeover_by_a_standby() {
        let mut invalid = snapshot(&[1, 2], None, Some((2, None)));
        invalid.invalid.insert(("region".to_owned(), R.0.into()), 9);
        assert_eq!(plan(&invalid, &with_copy(2)), []);
        let late = LocalState { free_ms: [(R, 101)].into(), ..with_copy(2) };
        assert_eq!(plan(&invalid, &late), [RegionAction::TakeOver(R)]);
        assert_eq!(plan(&invalid, &with_memory(1, EPOCH, true)), [RegionAction::TakeOver(R)]);
    }

    /// The keys after the cluster has lost them and these processes have registered again, each with its state in
    /// memory.
    fn without_keys(readded: &[(u64, Option<RegionMemory>)]) -> WorldSnapshot {
        let processes: Vec<u64> = readded.iter().map(|(process, _)| *process).collect();
        let mut snapshot =
            WorldSnapshot { began: [].into(), epochs: [].into(), ..snapshot(&processes, None, None) };
        for (process, memory) in readded {
            let record = snapshot.processes.get_mut(process).unwrap();
            record.memory = memory.iter().map(|memory| (R.0, *memory)).collect();
        }
        snapshot
    }

    #[test]
    fn newest_copy_of_a_region_is_used_if_its_keys_are_lost() {
        let memory = |epoch, owner| Some(RegionMemory { epoch, owner });
        let both = without_keys(&[(1, memory(EPOCH, false)), (2, memory(EPOCH, true))]);
        assert_eq!(plan(&both, &with_memory(1, EPOCH, false)), [], "its owner is there");
        assert_eq!(plan(&both, &with_memory(2, EPOCH, true)), [RegionAction::TakeOver(R)]);
        let newer = without_keys(&[(1, memory(EPOCH + 1, false)), (2, memory(EPOCH, true))]);
        assert_eq!(plan(&newer, &with_memory(1, EPOCH + 1, false)), [RegionAction::TakeOver(R)]);
        assert_eq!(plan(&newer, &with_memory(2, EPOCH, true)), []);
        let standby = without_keys(&[(1, memory(EPOCH, false)), (2, None)]);
        assert_eq!(plan(&standby, &local(2)), [], "a newcomer does not populate what another remembers");
        let alone = without_keys(&[(2, memory(EPOCH, true))]);
        assert_eq!(plan(&alone, &with_memory(2, EPOCH, true)), [], "others may come back with a later state");
        let late = LocalState { free_ms: [(R, 101)].into(), ..with_memory(2, EPOCH, true) };
        assert_eq!(plan(&alone, &late), [RegionAction::TakeOver(R)]);
    }

    /// Here, the process with the state has a longer `patience` than another process.
    #[test]
    fn process_waits_for_the_process_that_holds_the_region() {
        let readded = without_keys(&[(1, None), (2, Some(RegionMemory { epoch: EPOCH, owner: true }))]);
        let known = |process, free_ms| LocalState {
            began: [R].into(),
            free_ms: [(R, free_ms)].into(),
            expected: 3,
            ..local(process)
        };
        assert_eq!(plan(&readded, &known(1, 201)), []);
        let begins = [RegionAction::Begin { region: R, lost: true }];
        assert_eq!(plan(&readded, &known(1, 101 + HOLDER_WAIT_MS_MAX)), begins);
        assert_eq!(plan(&readded, &known(2, 101)), begins, "process 2 has lost the state since");
    }

    #[test]
    fn joining_process_gets_a_region_in_a_world_without_standbys() {
        let other = RegionId(2);
        let mut all = snapshot(&[1, 2], Some(1), None);
        all.owners.insert(other, (1, EPOCH));
        let local = |begun: &[RegionId]| LocalState {
            regions: vec![R, other],
            standby: false,
            begun_copies: begun.to_vec(),
            ..local(1)
        };
        let name = |region, before| RegionAction::Name(region, standby_key(2, before));
        assert_eq!(plan(&all, &local(&[])), [name(R, Some(0))]);
        all.standbys.insert(R, standby_key(2, Some(0)));
        assert_eq!(plan(&all, &local(&[])), [], "one at a time");
        assert_eq!(plan(&all, &local(&[R])), [name(R, None)]);
        all.standbys.insert(R, StandbyKey::complete(2, EPOCH));
        assert_eq!(plan(&all, &local(&[R])), [RegionAction::Release(R)]);
        all.owners.insert(R, (2, EPOCH + 1));
        all.standbys.remove(&R);
        assert_eq!(plan(&all, &local(&[])), [], "now each has one");
        assert_eq!(plan(&snapshot(&[1], Some(1), None), &local(&[])), [], "nobody is there to be given one");
    }

    #[test]
    fn process_without_region_or_standby_role_is_idle() {
        let idle = |process, snapshot: &WorldSnapshot| {
            is_idle(snapshot, &LocalState { standby: false, ..local(process) })
        };
        assert!(idle(2, &snapshot(&[1, 2], Some(1), None)));
        assert!(!idle(1, &snapshot(&[1, 2], Some(1), None)), "it owns the region");
        assert!(!idle(2, &snapshot(&[1, 2], Some(1), Some((2, None)))), "it stands by");
        assert!(!idle(2, &snapshot(&[1, 2], None, None)), "it may still be given the region");
    }
}
