//! Tracks the regions of which this process is a standby, and the standbys of its own regions, called followers.

use std::collections::{BTreeMap, BTreeSet};

use dunlin::space::{RegionId, RegionSetup, RegionState, StandbyError, StandbyProgress, Standbys};

/// The regions of which this process is a standby, with their copies, and the followers of its own regions.
#[derive(Debug)]
pub(super) struct StandbyTracker<const D: usize> {
    /// The regions of which this process is a standby.
    followed: BTreeSet<RegionId>,
    copies: Standbys<D>,
    /// The copies that receive all changes over the present connection to the region's owner. A copy without such a
    /// source is kept, but must begin again.
    sources: BTreeMap<RegionId, CopySource>,
    /// The last states of regions that this process released to other processes, and copies that were set aside.
    released: BTreeMap<RegionId, RegionState<D>>,
    /// Progress of this process's copies that was not reported yet to the regions' owners.
    unreported: BTreeMap<RegionId, StandbyProgress>,
    /// For each region of this process, the follower whose confirmations the region's changes wait for.
    followers: BTreeMap<RegionId, RegionFollower>,
    /// Whether only processes that were named as standbys may follow a region.
    pub(super) named_only: bool,
    named: BTreeMap<RegionId, u64>,
    /// For each region, the standby that would take over. After it has reconnected, the region's changes wait for its
    /// confirmations again.
    promoted: BTreeMap<RegionId, u64>,
    /// For each region, the named standby, which may take over only after it has received a copy. It receives all
    /// changes. Once it has a copy, changes also wait for its confirmations, so that the copy lacks no change when the
    /// standby is promoted.
    candidates: BTreeMap<RegionId, RegionFollower>,
    /// Number of copies that had to begin again because a change was missing.
    pub(super) lost: u64,
}

/// The owner that sends the changes of a copy, and the number of the owner's records that the copy contains.
#[derive(Debug, Clone, Copy)]
struct CopySource {
    owner: u64,
    records: u64,
}

/// A process that receives all changes of a region.
#[derive(Debug)]
struct RegionFollower {
    process: u64,
    /// How far the follower has confirmed the changes; `None` until it has a copy.
    progress: Option<StandbyProgress>,
}

impl RegionFollower {
    fn new(process: u64) -> RegionFollower {
        RegionFollower { process, progress: None }
    }
}

impl<const D: usize> StandbyTracker<D> {
    pub(super) fn new(setup: RegionSetup<D>) -> StandbyTracker<D> {
        let (followed, copies) = (BTreeSet::new(), Standbys::new(setup));
        let (unreported, followers, named) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (named_only, promoted, candidates) = (false, BTreeMap::new(), BTreeMap::new());
        StandbyTracker {
            followed,
            copies,
            sources: BTreeMap::new(),
            released: BTreeMap::new(),
            unreported,
            followers,
            named_only,
            named,
            promoted,
            candidates,
            lost: 0,
        }
    }

    /// Names `process` as the standby of a region. With `may_take_over`, it is the only process that would take over,
    /// so the region's changes wait for no other process. Repeating a call changes nothing.
    pub(super) fn set_standby(&mut self, region: RegionId, process: u64, may_take_over: bool) {
        if self.named.insert(region, process) != Some(process) {
            self.promoted.remove(&region);
            self.candidates.remove(&region);
        }
        if !may_take_over || self.promoted.insert(region, process) == Some(process) {
            return;
        }
        let is_follower = self.followers.get(&region).is_some_and(|follower| follower.process == process);
        match self.candidates.remove(&region) {
            _ if is_follower => {}
            Some(candidate) => drop(self.followers.insert(region, candidate)),
            // The connection to the standby was lost. Until the standby follows again, changes wait for no process,
            // because no other process would take over.
            None => drop(self.followers.remove(&region)),
        }
    }

    /// Handles another process's request to follow a region. Returns whether the process may follow it.
    pub(super) fn add_follower(&mut self, region: RegionId, process: u64) -> bool {
        let is_follower = self.followers.get(&region).is_some_and(|follower| follower.process == process);
        if !self.named_only || is_follower || self.promoted.get(&region) == Some(&process) {
            self.followers.insert(region, RegionFollower::new(process));
            return true;
        }
        let named = self.named.get(&region) == Some(&process);
        if named {
            self.candidates.insert(region, RegionFollower::new(process));
        }
        named
    }

    /// Remembers how far a follower has confirmed the changes of a region. Returns the region's [confirmed
    /// progress](StandbyTracker::confirmed_progress).
    pub(super) fn record_progress(
        &mut self,
        region: RegionId,
        process: u64,
        progress: StandbyProgress,
    ) -> Option<StandbyProgress> {
        let listeners = [self.followers.get_mut(&region), self.candidates.get_mut(&region)];
        let matching = listeners.into_iter().flatten().filter(|follower| follower.process == process);
        matching.for_each(|follower| follower.progress = Some(progress));
        self.confirmed_progress(region)
    }

    /// How far all followers for which the region's changes wait have confirmed these changes. `None` if changes wait
    /// for no follower, or if the standby that would take over has no copy yet.
    pub(super) fn confirmed_progress(&self, region: RegionId) -> Option<StandbyProgress> {
        let progress = self.followers.get(&region)?.progress?;
        let candidate = self.candidates.get(&region).and_then(|candidate| candidate.progress);
        Some(candidate.map_or(progress, |other| progress.common(other)))
    }

    /// Whether the named standby has a complete copy: changes already wait for it, or it has confirmed all changes up
    /// to `acknowledged`.
    pub(super) fn has_candidate(&self, region: RegionId, acknowledged: StandbyProgress) -> bool {
        let named = self.named.get(&region).copied();
        let is_follower = self.followers.get(&region).is_some_and(|follower| Some(follower.process) == named);
        let candidate = self.candidates.get(&region).and_then(|candidate| candidate.progress);
        is_follower || candidate.is_some_and(|progress| progress.includes(acknowledged))
    }

    /// The numbers of all processes that follow a region.
    pub(super) fn followers_of(&self, region: RegionId) -> impl Iterator<Item = u64> {
        let follower = self.followers.get(&region).map(|follower| follower.process);
        let candidate = self.candidates.get(&region).map(|follower| follower.process);
        follower.into_iter().chain(candidate.filter(|process| Some(*process) != follower))
    }

    /// Forgets the followers of a region that no longer runs here, or runs alone.
    pub(super) fn remove_region(&mut self, region: RegionId) {
        self.followers.remove(&region);
        self.candidates.remove(&region);
        self.named.remove(&region);
        self.promoted.remove(&region);
    }

    pub(super) fn follow(&mut self, region: RegionId) {
        self.followed.insert(region);
    }

    pub(super) fn unfollow(&mut self, region: RegionId) {
        self.followed.remove(&region);
    }

    pub(super) fn is_followed(&self, region: RegionId) -> bool {
        self.followed.contains(&region)
    }

    /// Whether this process's copy of a region receives all changes over the present connection to the owner, as far as
    /// this process knows. The owner sends no notice when it stops sending changes.
    pub(super) fn is_fed(&self, region: RegionId) -> bool {
        self.sources.contains_key(&region)
    }

    /// Begins this process's copy of a region from the state that the owner has sent. The state contains the changes of
    /// this number of records. Returns `false` if the copy must begin again.
    pub(super) fn begin_copy(&mut self, region: RegionId, owner: u64, state: &[u8], records: u64) -> bool {
        let known = self.copies.start(region, state);
        self.record_copy(region, CopySource { owner, records }, known)
    }

    /// Applies a record to this process's copy. Returns `false` if the copy must begin again. Ignores the record if the
    /// copy must begin again already, because the copy may then lack an earlier record.
    pub(super) fn apply_record(&mut self, region: RegionId, record: &[u8]) -> bool {
        let Some(CopySource { owner, records }) = self.sources.get(&region).copied() else { return true };
        let known = self.copies.follow(region, record);
        self.record_copy(region, CopySource { owner, records: records + 1 }, known)
    }

    fn record_copy(
        &mut self,
        region: RegionId,
        source: CopySource,
        known: Result<(u64, u64), StandbyError>,
    ) -> bool {
        match known {
            Ok((entries, tick)) => {
                self.sources.insert(region, source);
                self.unreported.insert(region, StandbyProgress { entries, tick, records: source.records });
                true
            }
            Err(error) => {
                tracing::warn!("a standby's copy is dropped: {error}");
                self.sources.remove(&region);
                // The owner would take this report for the progress of the new copy.
                self.unreported.remove(&region);
                self.lost += 1;
                false
            }
        }
    }

    /// Takes the progress that was not reported yet, for each region.
    pub(super) fn take_progress(&mut self) -> BTreeMap<RegionId, StandbyProgress> {
        std::mem::take(&mut self.unreported)
    }

    /// Takes the copy of a region, so that the region can continue here; `None` if there is no copy.
    pub(super) fn take_copy(&mut self, region: RegionId) -> Option<RegionState<D>> {
        self.unreported.remove(&region);
        self.sources.remove(&region);
        self.copies.take(region)
    }

    /// Keeps, as a copy, the state of a region that this process owned until now.
    pub(super) fn store(&mut self, region: RegionId, state: RegionState<D>) {
        self.remove_region(region);
        self.copies.keep(region, state);
    }

    /// Takes the copy of a region out of use. In a world whose keys name the standbys, the keys may say that the copy
    /// is still needed. The copy is then kept like the state of a released region, unless there is such a state
    /// already.
    pub(super) fn set_copy_aside(&mut self, region: RegionId) {
        if let Some(state) = self.take_copy(region).filter(|_| self.named_only) {
            self.released.entry(region).or_insert(state);
        }
    }

    /// Keeps the last state of a region that this process released. If this process also gets a copy of the region as a
    /// standby, the copy is stored separately.
    pub(super) fn keep_released(&mut self, region: RegionId, state: RegionState<D>) {
        self.released.insert(region, state);
    }

    /// Takes the state of a region that this process released; `None` if it keeps none.
    pub(super) fn take_released(&mut self, region: RegionId) -> Option<RegionState<D>> {
        self.released.remove(&region)
    }

    /// The regions that this process released and whose state it keeps, each with the epoch of this state.
    pub(super) fn released(&self) -> impl Iterator<Item = (RegionId, u64)> + '_ {
        self.released.iter().map(|(region, state)| (*region, state.handover().epoch()))
    }

    /// [Sets the copy of a region aside](StandbyTracker::set_copy_aside) if it is from an earlier epoch than `epoch`.
    pub(super) fn set_older_copies_aside(&mut self, region: RegionId, epoch: u64) {
        if self.copies.get(region).is_some_and(|copy| copy.handover().epoch() < epoch) {
            self.set_copy_aside(region);
        }
    }

    pub(super) fn copy(&self, region: RegionId) -> Option<&RegionState<D>> {
        self.copies.get(region)
    }

    pub(super) fn follower(&self, region: RegionId) -> Option<u64> {
        self.followers.get(&region).map(|follower| follower.process)
    }

    /// Removes a process whose connection has ended. Returns the regions that the process followed. The copies of the
    /// regions that it owns must begin again.
    pub(super) fn remove_process(&mut self, process: u64) -> BTreeSet<RegionId> {
        let all = self.followers.iter().chain(&self.candidates);
        let regions =
            all.filter(|(_, follower)| follower.process == process).map(|(region, _)| *region).collect();
        self.followers.retain(|_, follower| follower.process != process);
        self.candidates.retain(|_, follower| follower.process != process);
        self.sources.retain(|_, source| source.owner != process);
        regions
    }
}

#[cfg(test)]
mod tests {
    use dunlin::space::{Host, Partition, RecordSection, RegionAuthority, WorldBox, behaviour::RandomWalk};

    use super::*;

    const R: RegionId = RegionId(1);
    const OLD: u64 = 5;
    const NEW: u64 = 6;
    const OWNER: u64 = 9;

    fn setup() -> RegionSetup<3> {
        RegionSetup::new(R, WorldBox::cube(100.0).unwrap(), 1.0)
    }

    fn strict() -> StandbyTracker<3> {
        StandbyTracker { named_only: true, ..StandbyTracker::new(setup()) }
    }

    /// The progress of a copy that has one record for each tick.
    fn progress(entries: u64, tick: u64) -> StandbyProgress {
        StandbyProgress { entries, tick, records: tick }
    }

    /// A region's whole state in an epoch, encoded.
    fn encoded_region(epoch: u64) -> Vec<u8> {
        let walk = RandomWalk { speed_max: 1.0, turn: 1.0 };
        let mut host = Host::new(setup(), walk, Partition::even(3, &[R]), None);
        host.begin(R, RegionAuthority { epoch, until_ns: u64::MAX }).unwrap();
        host.add_standby(R).unwrap().0
    }

    #[test]
    fn only_the_named_standby_may_follow_a_region() {
        let mut standby_tracker = strict();
        assert!(!standby_tracker.add_follower(R, 7));
        standby_tracker.set_standby(R, 7, false);
        assert!(standby_tracker.add_follower(R, 7) && !standby_tracker.add_follower(R, 8));
    }

    #[test]
    fn region_waits_for_the_old_and_the_new_standby() {
        let mut standby_tracker = strict();
        standby_tracker.set_standby(R, 7, true);
        assert!(standby_tracker.add_follower(R, 7));
        assert_eq!(standby_tracker.record_progress(R, 7, progress(3, 30)), Some(progress(3, 30)));
        standby_tracker.set_standby(R, 8, false);
        assert!(standby_tracker.add_follower(R, 8));
        assert_eq!(
            standby_tracker.record_progress(R, 7, progress(4, 31)),
            Some(progress(4, 31)),
            "8 has yet to begin"
        );
        assert_eq!(standby_tracker.record_progress(R, 8, progress(3, 31)), Some(progress(3, 31)));
        assert!(!standby_tracker.has_candidate(R, progress(4, 31)), "it lacks what counts as known");
        standby_tracker.record_progress(R, 8, progress(5, 31));
        assert!(standby_tracker.has_candidate(R, progress(4, 31)));
        assert_eq!(
            standby_tracker.record_progress(R, 7, progress(6, 33)),
            Some(progress(5, 31)),
            "both are waited for"
        );
        standby_tracker.set_standby(R, 8, true);
        assert_eq!(standby_tracker.confirmed_progress(R), Some(progress(5, 31)));
        assert_eq!(standby_tracker.followers_of(R).collect::<Vec<_>>(), [8]);
        assert_eq!(
            standby_tracker.record_progress(R, 7, progress(9, 90)),
            Some(progress(5, 31)),
            "7 does not count any more"
        );
    }

    #[test]
    fn messages_of_a_replaced_standby_are_ignored() {
        let mut standby_tracker = strict();
        standby_tracker.set_standby(R, 7, true);
        assert!(standby_tracker.add_follower(R, 7));
        standby_tracker.record_progress(R, 7, progress(3, 30));
        standby_tracker.set_standby(R, 8, false);
        assert!(standby_tracker.add_follower(R, 8));
        standby_tracker.record_progress(R, 8, progress(3, 30));
        assert_eq!(standby_tracker.remove_process(8), [R].into());
        assert_eq!(standby_tracker.confirmed_progress(R), Some(progress(3, 30)));
        standby_tracker.set_standby(R, 8, true);
        assert_eq!(standby_tracker.record_progress(R, 7, progress(4, 40)), None);
        assert!(standby_tracker.add_follower(R, 8), "it begins again");
        assert_eq!(standby_tracker.record_progress(R, 8, progress(4, 41)), Some(progress(4, 41)));
    }

    #[test]
    fn naming_the_same_standby_again_changes_nothing() {
        let mut standby_tracker = strict();
        standby_tracker.set_standby(R, 7, false);
        assert!(standby_tracker.add_follower(R, 7));
        standby_tracker.record_progress(R, 7, progress(1, 2));
        standby_tracker.set_standby(R, 7, false);
        assert!(standby_tracker.has_candidate(R, progress(1, 2)));
        for _ in 0..2 {
            standby_tracker.set_standby(R, 7, true);
            assert_eq!(standby_tracker.confirmed_progress(R), Some(progress(1, 2)));
        }
    }

    #[test]
    fn standby_drops_its_copy_of_a_region_only_for_a_newer_owner() {
        let mut standby_tracker = StandbyTracker::new(setup());
        standby_tracker.follow(R);
        assert!(standby_tracker.begin_copy(R, OWNER, &encoded_region(OLD), 4));
        standby_tracker.set_older_copies_aside(R, OLD);
        assert!(standby_tracker.copy(R).is_some());
        standby_tracker.set_older_copies_aside(R, NEW);
        assert!(standby_tracker.copy(R).is_none() && standby_tracker.take_progress().is_empty());
        assert!(standby_tracker.is_followed(R), "it is asked for again");
    }

    #[test]
    fn state_of_a_released_region_is_kept_during_a_new_copy() {
        let mut standby_tracker = StandbyTracker::new(setup());
        assert!(standby_tracker.begin_copy(R, OWNER, &encoded_region(OLD), 4));
        let state = standby_tracker.take_copy(R).unwrap();
        standby_tracker.keep_released(R, state);
        assert!(standby_tracker.begin_copy(R, OWNER, &encoded_region(NEW), 4));
        standby_tracker.set_older_copies_aside(R, NEW);
        assert_eq!(standby_tracker.released().collect::<Vec<_>>(), [(R, OLD)]);
        assert!(standby_tracker.take_released(R).is_some() && standby_tracker.take_released(R).is_none());
    }

    #[test]
    fn standby_keeps_a_copy_from_an_earlier_region_owner() {
        let mut standby_tracker = strict();
        assert!(standby_tracker.begin_copy(R, OWNER, &encoded_region(OLD), 4));
        standby_tracker.set_older_copies_aside(R, NEW);
        assert!(standby_tracker.copy(R).is_none());
        assert_eq!(standby_tracker.released().collect::<Vec<_>>(), [(R, OLD)]);
        assert!(standby_tracker.begin_copy(R, OWNER, &encoded_region(NEW), 4));
        standby_tracker.set_copy_aside(R);
        assert_eq!(standby_tracker.released().collect::<Vec<_>>(), [(R, OLD)], "it may still be needed");
    }

    #[test]
    fn progress_of_a_dropped_copy_is_not_reported() {
        let mut standby_tracker = StandbyTracker::new(setup());
        assert!(standby_tracker.begin_copy(R, OWNER, &encoded_region(OLD), 4));
        assert!(!standby_tracker.apply_record(R, &[u8::MAX]) && !standby_tracker.is_fed(R));
        assert!(standby_tracker.copy(R).is_none() && standby_tracker.take_progress().is_empty());
    }

    #[test]
    fn copy_of_a_region_begins_again_after_a_lost_connection() {
        let mut standby_tracker = StandbyTracker::new(setup());
        let records =
            |tracker: &mut StandbyTracker<3>| tracker.take_progress().get(&R).map(|known| known.records);
        let mut record = Vec::new();
        RecordSection::Tick(1).encode(&mut record);
        for _ in 0..2 {
            assert!(standby_tracker.begin_copy(R, OWNER, &encoded_region(OLD), 4));
            assert_eq!(records(&mut standby_tracker), Some(4));
            assert!(standby_tracker.apply_record(R, &record) && standby_tracker.is_fed(R));
            assert_eq!(records(&mut standby_tracker), Some(5));
            standby_tracker.remove_process(OWNER);
            assert!(standby_tracker.copy(R).is_some() && !standby_tracker.is_fed(R));
            assert!(standby_tracker.apply_record(R, &record));
            assert_eq!(records(&mut standby_tracker), None, "the copy may lack earlier records");
        }
    }
}
