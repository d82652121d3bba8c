//! Tracks the regions of which this process is a standby, and the standbys (followers) of its own regions.

use std::collections::{BTreeMap, BTreeSet};

use dunlin::space::{RegionId, RegionSetup, RegionState, Standbys};

/// The regions that this process follows, with their copies, and the followers of its own regions.
#[derive(Debug)]
pub(super) struct StandbyTracker<const D: usize> {
    /// The regions that this process follows.
    wanted: BTreeSet<RegionId>,
    copies: Standbys<D>,
    /// Progress of copies that was not yet reported to their owners.
    fresh: BTreeMap<RegionId, StandbyProgress>,
    /// By region, the follower for whose confirmations the owner waits.
    followers: BTreeMap<RegionId, RegionFollower>,
    /// Whether only processes that were named as standbys may follow.
    pub(super) strict: bool,
    named: BTreeMap<RegionId, u64>,
    /// By region, the standby that has been promoted. After its connection was lost and is restored, the owner waits
    /// for it again.
    promoted: BTreeMap<RegionId, u64>,
    /// By region, the named standby that does not count yet. It receives all changes. Once it has begun, the owner also
    /// waits for it, so that it has all changes when it is promoted.
    candidates: BTreeMap<RegionId, RegionFollower>,
    /// Number of copies that had to begin again because a change was missing.
    pub(super) lost: u64,
}

/// Progress of a copy: the number of handover entries, and the tick.
pub(super) type StandbyProgress = (u64, u64);

/// A process that receives the changes of a region.
#[derive(Debug)]
struct RegionFollower {
    process: u64,
    /// The follower's confirmed progress; `None` until it has begun.
    knows: Option<StandbyProgress>,
}

impl RegionFollower {
    fn new(process: u64) -> RegionFollower {
        RegionFollower { process, knows: None }
    }
}

impl<const D: usize> StandbyTracker<D> {
    pub(super) fn new(setup: RegionSetup<D>) -> StandbyTracker<D> {
        let (wanted, copies) = (BTreeSet::new(), Standbys::new(setup));
        let (fresh, followers, named) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (strict, promoted, candidates) = (false, BTreeMap::new(), BTreeMap::new());
        StandbyTracker { wanted, copies, fresh, followers, strict, named, promoted, candidates, lost: 0 }
    }

    /// Names the standby of a region; with `counts`, the owner waits only for this standby, because it would take over.
    /// Calling this again changes nothing.
    pub(super) fn name(&mut self, region: RegionId, process: u64, counts: bool) {
        if self.named.insert(region, process) != Some(process) {
            self.promoted.remove(&region);
            self.candidates.remove(&region);
        }
        if !counts || self.promoted.insert(region, process) == Some(process) {
            return;
        }
        let follows = self.followers.get(&region).is_some_and(|one| one.process == process);
        match self.candidates.remove(&region) {
            _ if follows => {}
            Some(candidate) => drop(self.followers.insert(region, candidate)),
            // The standby's connection was lost. The owner waits for no other process, because no other one would take
            // over.
            None => drop(self.followers.remove(&region)),
        }
    }

    /// Handles another process's request to follow a region. Returns whether it may.
    pub(super) fn begin(&mut self, region: RegionId, process: u64) -> bool {
        let follows = self.followers.get(&region).is_some_and(|one| one.process == process);
        if !self.strict || follows || self.promoted.get(&region) == Some(&process) {
            self.followers.insert(region, RegionFollower::new(process));
            return true;
        }
        let named = self.named.get(&region) == Some(&process);
        if named {
            self.candidates.insert(region, RegionFollower::new(process));
        }
        named
    }

    /// Records a follower's progress. Returns the progress that all followers for which the owner waits have confirmed.
    pub(super) fn hear(
        &mut self,
        region: RegionId,
        process: u64,
        knows: StandbyProgress,
    ) -> Option<StandbyProgress> {
        let listeners = [self.followers.get_mut(&region), self.candidates.get_mut(&region)];
        let said = listeners.into_iter().flatten().filter(|one| one.process == process);
        said.for_each(|one| one.knows = Some(knows));
        self.known(region)
    }

    /// The progress that all followers for which the owner waits have confirmed; `None` if there is no follower, or one
    /// has not begun.
    pub(super) fn known(&self, region: RegionId) -> Option<StandbyProgress> {
        let knows = self.followers.get(&region)?.knows?;
        let candidate = self.candidates.get(&region).and_then(|candidate| candidate.knows);
        Some(candidate.map_or(knows, |other| (knows.0.min(other.0), knows.1.min(other.1))))
    }

    /// Whether the named standby has begun, and has all changes that count as confirmed.
    pub(super) fn has_candidate(&self, region: RegionId, counted: StandbyProgress) -> bool {
        let named = self.named.get(&region).copied();
        let follows = self.followers.get(&region).is_some_and(|one| Some(one.process) == named);
        let candidate = self.candidates.get(&region).and_then(|candidate| candidate.knows);
        follows || candidate.is_some_and(|knows| knows.0 >= counted.0 && knows.1 >= counted.1)
    }

    /// All followers of a region.
    pub(super) fn listeners(&self, region: RegionId) -> impl Iterator<Item = u64> {
        let follower = self.followers.get(&region).map(|one| one.process);
        let candidate = self.candidates.get(&region).map(|one| one.process);
        follower.into_iter().chain(candidate.filter(|process| Some(*process) != follower))
    }

    /// Forgets the followers of a region that no longer runs here.
    pub(super) fn end(&mut self, region: RegionId) {
        self.followers.remove(&region);
        self.candidates.remove(&region);
        self.named.remove(&region);
        self.promoted.remove(&region);
    }

    pub(super) fn want(&mut self, region: RegionId) -> bool {
        self.wanted.insert(region)
    }

    pub(super) fn want_no_more(&mut self, region: RegionId) {
        self.wanted.remove(&region);
    }

    pub(super) fn wants(&self, region: RegionId) -> bool {
        self.wanted.contains(&region)
    }

    /// Begins or updates a copy. Returns `false` if the copy must begin again.
    pub(super) fn take_in(&mut self, region: RegionId, bytes: &[u8], whole: bool) -> bool {
        let known = if whole { self.copies.start(region, bytes) } else { self.copies.follow(region, bytes) };
        match known {
            Ok(known) => {
                self.fresh.insert(region, known);
                true
            }
            Err(error) => {
                tracing::warn!("a standby's copy is dropped: {error}");
                self.lost += 1;
                false
            }
        }
    }

    /// Takes the progress that was not yet reported: handover entries and tick of each region.
    pub(super) fn take_fresh(&mut self) -> BTreeMap<RegionId, StandbyProgress> {
        std::mem::take(&mut self.fresh)
    }

    /// Takes the copy of a region, from which the region continues here.
    pub(super) fn take_copy(&mut self, region: RegionId) -> Option<RegionState<D>> {
        self.fresh.remove(&region);
        self.copies.take(region)
    }

    /// Keeps, as a copy, the state of a region that this process owned.
    pub(super) fn keep(&mut self, region: RegionId, state: RegionState<D>) {
        self.end(region);
        self.copies.keep(region, state);
    }

    /// Drops the copy of a region if an earlier owner made it, before this epoch.
    pub(super) fn forget_older(&mut self, region: RegionId, epoch: u64) {
        if self.copies.get(region).is_some_and(|copy| copy.handover().epoch() < epoch) {
            drop(self.take_copy(region));
        }
    }

    pub(super) fn copy(&self, region: RegionId) -> Option<&RegionState<D>> {
        self.copies.get(region)
    }

    pub(super) fn follower(&self, region: RegionId) -> Option<u64> {
        self.followers.get(&region).map(|one| one.process)
    }

    /// Removes a disconnected process. Returns the regions that it followed.
    pub(super) fn forget(&mut self, process: u64) -> BTreeSet<RegionId> {
        let all = self.followers.iter().chain(&self.candidates);
        let told = all.filter(|(_, one)| one.process == process).map(|(region, _)| *region).collect();
        self.followers.retain(|_, one| one.process != process);
        self.candidates.retain(|_, one| one.process != process);
        told
    }
}

#[cfg(test)]
mod tests {
    use dunlin::space::{Host, Partition, RegionAuthority, WorldBox, behaviour::Walk};

    use super::*;

    const R: RegionId = RegionId(1);
    const OLD: u64 = 5;
    const NEW: u64 = 6;

    fn setup() -> RegionSetup<3> {
        RegionSetup::new(R, WorldBox::cube(100.0).unwrap(), 1.0)
    }

    fn strict() -> StandbyTracker<3> {
        StandbyTracker { strict: true, ..StandbyTracker::new(setup()) }
    }

    /// The encoded whole state of a region in an epoch.
    fn whole(epoch: u64) -> Vec<u8> {
        let walk = Walk { speed_max: 1.0, turn: 1.0 };
        let mut host = Host::new(setup(), walk, Partition::even(3, &[R]), None);
        host.begin(R, RegionAuthority { epoch, until_ns: u64::MAX }).unwrap();
        host.standby_starts(R).unwrap().0
    }

    #[test]
    fn only_the_named_standby_may_follow_a_region() {
        let mut standby_tracker = strict();
        assert!(!standby_tracker.begin(R, 7));
        standby_tracker.name(R, 7, false);
        assert!(standby_tracker.begin(R, 7) && !standby_tracker.begin(R, 8));
    }

    #[test]
    fn region_waits_for_old_and_new_standby_until_the_new_is_valid() {
        let mut standby_tracker = strict();
        standby_tracker.name(R, 7, true);
        assert!(standby_tracker.begin(R, 7));
        assert_eq!(standby_tracker.hear(R, 7, (3, 30)), Some((3, 30)));
        standby_tracker.name(R, 8, false);
        assert!(standby_tracker.begin(R, 8));
        assert_eq!(standby_tracker.hear(R, 7, (4, 31)), Some((4, 31)), "8 has yet to begin");
        assert_eq!(standby_tracker.hear(R, 8, (3, 31)), Some((3, 31)));
        assert!(!standby_tracker.has_candidate(R, (4, 31)), "it lacks what counts as known");
        standby_tracker.hear(R, 8, (5, 31));
        assert!(standby_tracker.has_candidate(R, (4, 31)));
        assert_eq!(standby_tracker.hear(R, 7, (6, 33)), Some((5, 31)), "both are waited for");
        standby_tracker.name(R, 8, true);
        assert_eq!(standby_tracker.known(R), Some((5, 31)));
        assert_eq!(standby_tracker.listeners(R).collect::<Vec<_>>(), [8]);
        assert_eq!(standby_tracker.hear(R, 7, (9, 90)), Some((5, 31)), "7 does not count any more");
    }

    #[test]
    fn messages_of_a_replaced_standby_are_ignored() {
        let mut standby_tracker = strict();
        standby_tracker.name(R, 7, true);
        assert!(standby_tracker.begin(R, 7));
        standby_tracker.hear(R, 7, (3, 30));
        standby_tracker.name(R, 8, false);
        assert!(standby_tracker.begin(R, 8));
        standby_tracker.hear(R, 8, (3, 30));
        assert_eq!(standby_tracker.forget(8), [R].into());
        assert_eq!(standby_tracker.known(R), Some((3, 30)));
        standby_tracker.name(R, 8, true);
        assert_eq!(standby_tracker.hear(R, 7, (4, 40)), None);
        assert!(standby_tracker.begin(R, 8), "it begins again");
        assert_eq!(standby_tracker.hear(R, 8, (4, 41)), Some((4, 41)));
    }

    #[test]
    fn naming_the_same_standby_again_changes_nothing() {
        let mut standby_tracker = strict();
        standby_tracker.name(R, 7, false);
        assert!(standby_tracker.begin(R, 7));
        standby_tracker.hear(R, 7, (1, 2));
        standby_tracker.name(R, 7, false);
        assert!(standby_tracker.has_candidate(R, (1, 2)));
        for _ in 0..2 {
            standby_tracker.name(R, 7, true);
            assert_eq!(standby_tracker.known(R), Some((1, 2)));
        }
    }

    #[test]
    fn standby_forgets_only_region_copies_of_older_owners() {
        let mut standby_tracker = StandbyTracker::new(setup());
        standby_tracker.want(R);
        assert!(standby_tracker.take_in(R, &whole(OLD), true));
        standby_tracker.forget_older(R, OLD);
        assert!(standby_tracker.copy(R).is_some());
        standby_tracker.forget_older(R, NEW);
        assert!(standby_tracker.copy(R).is_none() && standby_tracker.take_fresh().is_empty());
        assert!(standby_tracker.wants(R), "it is asked for again");
    }
}
