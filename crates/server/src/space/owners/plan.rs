//! What a process does, from what it sees. Pure: it is told how long regions have been without an owner.

use std::collections::BTreeMap;

use dunlin::space::RegionId;

use super::keys::{Seen, StandbyKey};

/// What a process knows beside the keys.
#[derive(Debug, Clone, Default)]
pub(super) struct Own {
    pub(super) process: u64,
    /// All regions of the world.
    pub(super) regions: Vec<RegionId>,
    /// How many processes there are to be before regions are shared out.
    pub(super) expected: usize,
    /// Whether regions need a standby.
    pub(super) standby: bool,
    /// Regions of others of which it has a copy, and of which owner's epoch.
    pub(super) copies: BTreeMap<RegionId, u64>,
    /// Its own regions whose named standby has a copy.
    pub(super) begun_copies: Vec<RegionId>,
    /// What it was about to do when an answer was lost, and where that was done.
    pub(super) in_doubt: BTreeMap<RegionId, Deed>,
    /// For how long each region has had no owner, ms.
    pub(super) free_ms: BTreeMap<RegionId, u64>,
    /// How long regions wait for who has a copy before they are begun anew, ms.
    pub(super) patience_ms: u64,
}

/// One thing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deed {
    /// Go on from the copy.
    TakeOver(RegionId),
    /// Begin without a copy; `lost` where there was an owner before.
    Begin { region: RegionId, lost: bool },
    /// Name who stands by.
    Name(RegionId, StandbyKey),
    /// Follow another's region.
    Follow(RegionId),
    /// Do not follow it any more.
    Forget(RegionId),
    /// Let who stands by for it go on with it.
    Release(RegionId),
}

pub(super) fn plan(seen: &Seen, own: &Own) -> Vec<Deed> {
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
    // One region is begun or let go at a time, so that what follows from it is seen first.
    let (mut released, mut begun) = (false, false);
    deeds.retain(|deed| match deed {
        Deed::Release(_) => !std::mem::replace(&mut released, true),
        Deed::Begin { lost: false, .. } => !std::mem::replace(&mut begun, true),
        _ => true,
    });
    deeds
}

fn as_owner(seen: &Seen, own: &Own, region: RegionId, epoch: u64) -> Option<Deed> {
    if !own.standby {
        return None;
    }
    let named = seen.standbys.get(&region).copied();
    let is_there = |process: u64| process != own.process && seen.processes.contains_key(&process);
    if let Some(StandbyKey { process, before: Some(_), .. }) = named
        && is_there(process)
    {
        let has_copy = own.begun_copies.contains(&region);
        return has_copy.then_some(Deed::Name(region, StandbyKey { process, before: None, epoch }));
    }
    let best = seen.processes.keys().copied().filter(|process| *process != own.process);
    // The one with the least to do; of equals the next in line.
    let best = best.min_by_key(|process| (seen.count(*process), process.wrapping_sub(own.process)));
    let Some(best) = best else {
        let nobody = StandbyKey::nobody(epoch);
        return (named != Some(nobody)).then_some(Deed::Name(region, nobody));
    };
    let gains = seen.count(best) + 2 <= seen.count(own.process);
    // Whose copy counts until another has begun; 0 for nobody's.
    let counts = named.map_or(0, |named| named.before.unwrap_or(named.process));
    let current = named.filter(|named| named.before.is_none() && is_there(named.process));
    match current.map(|named| named.process) {
        Some(process) if process == best && gains => Some(Deed::Release(region)),
        Some(process) if process == best || !gains => None,
        _ => Some(Deed::Name(region, StandbyKey { process: best, before: Some(counts), epoch })),
    }
}

fn as_standby(seen: &Seen, own: &Own, region: RegionId) -> Option<Deed> {
    let named = seen.standbys.get(&region)?;
    if named.process == own.process {
        return Some(Deed::Follow(region));
    }
    let counts = named.before == Some(own.process);
    (!counts && own.copies.contains_key(&region)).then_some(Deed::Forget(region))
}

/// Nobody owns it.
fn as_heir(seen: &Seen, own: &Own, region: RegionId) -> Option<Deed> {
    let free_ms = own.free_ms.get(&region).copied().unwrap_or(0);
    if !seen.began.contains(&region) {
        let share = own.regions.len().div_ceil(own.expected.max(1));
        let enough = seen.processes.len() >= own.expected || free_ms > own.patience_ms;
        let is_ours = seen.count(own.process) < share || free_ms > 2 * own.patience_ms;
        return (enough && is_ours).then_some(Deed::Begin { region, lost: false });
    }
    let standby = seen.standbys.get(&region);
    let goes_on = standby.is_some_and(|standby| {
        standby.counts(own.process) && own.copies.get(&region) == Some(&standby.epoch)
    });
    if goes_on {
        return Some(Deed::TakeOver(region));
    }
    (free_ms > own.patience_ms).then_some(Deed::Begin { region, lost: true })
}

#[cfg(test)]
mod tests {
    use super::super::keys::Place;
    use super::*;

    const R: RegionId = RegionId(1);
    const EPOCH: u64 = 7;

    fn seen(processes: &[u64], owner: Option<u64>, standby: Option<(u64, Option<u64>)>) -> Seen {
        let place = || Place { address: "127.0.0.1:1".parse().unwrap(), url: String::new() };
        let key = |(process, before)| (R, StandbyKey { process, before, epoch: EPOCH });
        Seen {
            secret: None,
            processes: processes.iter().map(|process| (*process, place())).collect(),
            owners: owner.into_iter().map(|owner| (R, (owner, EPOCH))).collect(),
            standbys: standby.into_iter().map(key).collect(),
            began: [R].into(),
            hold: false,
            cut: None,
        }
    }

    fn own(process: u64) -> Own {
        Own { process, regions: vec![R], expected: 2, standby: true, patience_ms: 100, ..Own::default() }
    }

    fn with_copy(process: u64) -> Own {
        Own { copies: [(R, EPOCH)].into(), ..own(process) }
    }

    #[test]
    fn a_standby_is_named_first_and_counts_once_it_has_begun() {
        let key = |process, before| Deed::Name(R, StandbyKey { process, before, epoch: EPOCH });
        assert_eq!(plan(&seen(&[1, 2, 3], Some(1), None), &own(1)), [key(2, Some(0))]);
        let named = seen(&[1, 2, 3], Some(1), Some((2, Some(0))));
        assert_eq!(plan(&named, &own(1)), []);
        assert_eq!(plan(&named, &own(2)), [Deed::Follow(R)]);
        assert_eq!(plan(&named, &Own { begun_copies: vec![R], ..own(1) }), [key(2, None)]);
        // Who stood by is gone: another, and until it has begun the one before counts.
        assert_eq!(plan(&seen(&[1, 3], Some(1), Some((2, None))), &own(1)), [key(3, Some(2))]);
    }

    #[test]
    fn a_region_goes_on_alone_where_nobody_can_stand_by_and_no_copy_of_it_counts_then() {
        let alone = seen(&[1], Some(1), Some((2, None)));
        assert_eq!(plan(&alone, &own(1)), [Deed::Name(R, StandbyKey::nobody(EPOCH))]);
        assert_eq!(plan(&seen(&[1], Some(1), None), &own(1)), [Deed::Name(R, StandbyKey::nobody(EPOCH))]);
        let said = Some((0, None));
        assert_eq!(plan(&seen(&[1], Some(1), said), &own(1)), [], "it is said once");
        let back = Deed::Name(R, StandbyKey { process: 2, before: Some(0), epoch: EPOCH });
        assert_eq!(plan(&seen(&[1, 2], Some(1), said), &own(1)), [back]);
        assert_eq!(plan(&seen(&[2], None, said), &with_copy(2)), [], "its copy is from before");
    }

    #[test]
    fn only_who_has_a_copy_that_counts_goes_on() {
        let free = |standby| seen(&[1, 2, 3], None, Some(standby));
        assert_eq!(plan(&free((2, None)), &with_copy(2)), [Deed::TakeOver(R)]);
        assert_eq!(plan(&free((2, None)), &own(2)), [], "it has none");
        assert_eq!(plan(&free((2, None)), &with_copy(3)), [], "it is an older one");
        let older = Own { copies: [(R, EPOCH - 1)].into(), ..own(2) };
        assert_eq!(plan(&free((2, None)), &older), [], "it is of an owner before the last");
        assert_eq!(plan(&free((2, Some(0))), &older), [], "who is named and has not begun");
        assert_eq!(plan(&free((2, Some(3))), &with_copy(2)), [], "its copy may lack what 3 was told");
        assert_eq!(plan(&free((2, Some(3))), &with_copy(3)), [Deed::TakeOver(R)]);
        let late = Own { free_ms: [(R, 101)].into(), ..own(1) };
        assert_eq!(plan(&free((2, None)), &late), [Deed::Begin { region: R, lost: true }]);
    }

    #[test]
    fn who_comes_back_is_given_a_region_by_way_of_standing_by() {
        let other = RegionId(2);
        let mut all = seen(&[1, 3], Some(1), Some((3, None)));
        all.owners.insert(other, (1, 8));
        all.standbys.insert(other, StandbyKey { process: 3, before: None, epoch: 8 });
        let own = Own { regions: vec![R, other], ..own(1) };
        assert_eq!(plan(&all, &own), [Deed::Release(R)], "one at a time");
        all.owners.insert(R, (3, 9));
        let names = |deed: &Deed| matches!(deed, Deed::Release(_));
        assert!(!plan(&all, &own).iter().any(names), "now each has one");
    }

    #[test]
    fn what_was_done_and_not_answered_is_gone_on_with() {
        let ours = seen(&[1, 2], Some(2), None);
        let in_doubt = |deed| Own { in_doubt: [(R, deed)].into(), ..with_copy(2) };
        assert_eq!(plan(&ours, &in_doubt(Deed::TakeOver(R))), [Deed::TakeOver(R)]);
        let begin = Deed::Begin { region: R, lost: false };
        assert_eq!(plan(&ours, &in_doubt(begin)), [begin]);
        let theirs = seen(&[1, 2], Some(1), Some((2, None)));
        assert_eq!(plan(&theirs, &in_doubt(begin)), [Deed::Follow(R)], "it was not done");
    }

    #[test]
    fn regions_are_shared_out_once_everybody_is_there() {
        let fresh = |processes: &[u64]| Seen { began: [].into(), ..seen(processes, None, None) };
        assert_eq!(plan(&fresh(&[1]), &own(1)), []);
        assert_eq!(plan(&fresh(&[1, 2]), &own(1)), [Deed::Begin { region: R, lost: false }]);
        let late = Own { free_ms: [(R, 101)].into(), ..own(1) };
        assert_eq!(plan(&fresh(&[1]), &late), [Deed::Begin { region: R, lost: false }]);
    }
}
