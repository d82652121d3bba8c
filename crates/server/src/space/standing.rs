//! Standing by: which regions of others this process follows, and who follows its own.

use std::collections::{BTreeMap, BTreeSet};

use dunlin::space::{RegionId, RegionState, Setup, Standbys};

/// Both sides of standing by.
#[derive(Debug)]
pub(super) struct Standing<const D: usize> {
    /// Regions that this process is to follow, wherever they are.
    wanted: BTreeSet<RegionId>,
    copies: Standbys<D>,
    /// What was taken in and is to be told.
    fresh: BTreeMap<RegionId, Known>,
    /// Who follows ours, and is waited for.
    followers: BTreeMap<RegionId, Listener>,
    /// Whoever asks may follow; else who is named.
    pub(super) strict: bool,
    named: BTreeMap<RegionId, u64>,
    /// Who was promoted: where its connection breaks, it goes on as who is waited for.
    promoted: BTreeMap<RegionId, u64>,
    /// Who is named and is told everything. Once it has begun it is waited for as well, so that it knows whatever counts as known when
    /// it is promoted.
    candidates: BTreeMap<RegionId, Listener>,
    /// Copies that could not follow, and were begun anew.
    pub(super) lost: u64,
}

/// How many entries of hand-overs, and which tick.
pub(super) type Known = (u64, u64);

/// Who is told what changes in a region.
#[derive(Debug)]
struct Listener {
    process: u64,
    /// Nothing until it has begun.
    knows: Option<Known>,
}

impl Listener {
    fn new(process: u64) -> Listener {
        Listener { process, knows: None }
    }
}

impl<const D: usize> Standing<D> {
    pub(super) fn new(setup: Setup<D>) -> Standing<D> {
        let (wanted, copies) = (BTreeSet::new(), Standbys::new(setup));
        let (fresh, followers, named) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (strict, promoted, candidates) = (false, BTreeMap::new(), BTreeMap::new());
        Standing { wanted, copies, fresh, followers, strict, named, promoted, candidates, lost: 0 }
    }

    /// This one stands by for a region of ours: `counts` once it is who would go on with it, and alone is waited for. Said
    /// again, nothing changes.
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
            // Its connection broke: nobody is waited for in its place, for nobody else would go on.
            None => drop(self.followers.remove(&region)),
        }
    }

    /// Somebody asks to follow: whether it may.
    pub(super) fn begin(&mut self, region: RegionId, process: u64) -> bool {
        let follows = self.followers.get(&region).is_some_and(|one| one.process == process);
        if !self.strict || follows || self.promoted.get(&region) == Some(&process) {
            self.followers.insert(region, Listener::new(process));
            return true;
        }
        let named = self.named.get(&region) == Some(&process);
        if named {
            self.candidates.insert(region, Listener::new(process));
        }
        named
    }

    /// Somebody has taken in so much; what all who are waited for know then.
    pub(super) fn hear(&mut self, region: RegionId, process: u64, knows: Known) -> Option<Known> {
        let listeners = [self.followers.get_mut(&region), self.candidates.get_mut(&region)];
        let said = listeners.into_iter().flatten().filter(|one| one.process == process);
        said.for_each(|one| one.knows = Some(knows));
        self.known(region)
    }

    /// What all who are waited for know; nothing where nobody is, or has yet to begin.
    pub(super) fn known(&self, region: RegionId) -> Option<Known> {
        let knows = self.followers.get(&region)?.knows?;
        let candidate = self.candidates.get(&region).and_then(|candidate| candidate.knows);
        Some(candidate.map_or(knows, |other| (knows.0.min(other.0), knows.1.min(other.1))))
    }

    /// Whether who is named has begun, and knows whatever counts as known.
    pub(super) fn has_candidate(&self, region: RegionId, counted: Known) -> bool {
        let named = self.named.get(&region).copied();
        let follows = self.followers.get(&region).is_some_and(|one| Some(one.process) == named);
        let candidate = self.candidates.get(&region).and_then(|candidate| candidate.knows);
        follows || candidate.is_some_and(|knows| knows.0 >= counted.0 && knows.1 >= counted.1)
    }

    /// All who are told what changes in a region.
    pub(super) fn listeners(&self, region: RegionId) -> impl Iterator<Item = u64> {
        let follower = self.followers.get(&region).map(|one| one.process);
        let candidate = self.candidates.get(&region).map(|one| one.process);
        follower.into_iter().chain(candidate.filter(|process| Some(*process) != follower))
    }

    /// A region is not ours any more.
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

    /// Begins a copy, or goes on with it; `false` where it has to be begun anew.
    pub(super) fn take_in(&mut self, region: RegionId, bytes: &[u8], whole: bool) -> bool {
        let known = if whole { self.copies.start(region, bytes) } else { self.copies.follow(region, bytes) };
        match known {
            Ok(known) => {
                self.fresh.insert(region, known);
                true
            }
            Err(error) => {
                tracing::warn!("a standby's copy is given up: {error}");
                self.lost += 1;
                false
            }
        }
    }

    /// What copies know that was not told yet: region, entries, tick.
    pub(super) fn take_fresh(&mut self) -> BTreeMap<RegionId, Known> {
        std::mem::take(&mut self.fresh)
    }

    /// The copy of a region, to go on from.
    pub(super) fn take_copy(&mut self, region: RegionId) -> Option<RegionState<D>> {
        self.fresh.remove(&region);
        self.copies.take(region)
    }

    /// This process owned the region and may not act for it any more: what it has is a copy to go on from.
    pub(super) fn keep(&mut self, region: RegionId, state: RegionState<D>) {
        self.end(region);
        self.copies.keep(region, state);
    }

    /// What is known of an older owner's region, of which another goes on or has begun, is of no use.
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

    /// A process is away: the regions of ours that it was told of.
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
    use dunlin::space::{Authority, Host, Partition, World, behaviour::Walk};

    use super::*;

    const R: RegionId = RegionId(1);
    const OLD: u64 = 5;
    const NEW: u64 = 6;

    fn setup() -> Setup<3> {
        Setup::new(R, World::cube(100.0).unwrap(), 1.0)
    }

    fn strict() -> Standing<3> {
        Standing { strict: true, ..Standing::new(setup()) }
    }

    /// All there is of a region in some epoch.
    fn whole(epoch: u64) -> Vec<u8> {
        let walk = Walk { speed_max: 1.0, turn: 1.0 };
        let mut host = Host::new(setup(), walk, Partition::even(3, &[R]), None);
        host.begin(R, Authority { epoch, until_ns: u64::MAX }).unwrap();
        host.standby_starts(R).unwrap().0
    }

    #[test]
    fn unnamed_process_may_not_follow() {
        let mut standing = strict();
        assert!(!standing.begin(R, 7));
        standing.name(R, 7, false);
        assert!(standing.begin(R, 7) && !standing.begin(R, 8));
    }

    #[test]
    fn standby_to_be_promoted_is_waited_for_too() {
        let mut standing = strict();
        standing.name(R, 7, true);
        assert!(standing.begin(R, 7));
        assert_eq!(standing.hear(R, 7, (3, 30)), Some((3, 30)));
        standing.name(R, 8, false);
        assert!(standing.begin(R, 8));
        assert_eq!(standing.hear(R, 7, (4, 31)), Some((4, 31)), "8 has yet to begin");
        assert_eq!(standing.hear(R, 8, (3, 31)), Some((3, 31)));
        assert!(!standing.has_candidate(R, (4, 31)), "it lacks what counts as known");
        standing.hear(R, 8, (5, 31));
        assert!(standing.has_candidate(R, (4, 31)));
        assert_eq!(standing.hear(R, 7, (6, 33)), Some((5, 31)), "both are waited for");
        standing.name(R, 8, true);
        assert_eq!(standing.known(R), Some((5, 31)));
        assert_eq!(standing.listeners(R).collect::<Vec<_>>(), [8]);
        assert_eq!(standing.hear(R, 7, (9, 90)), Some((5, 31)), "7 does not count any more");
    }

    #[test]
    fn named_but_absent_standby_is_not_replaced_by_an_old_one() {
        let mut standing = strict();
        standing.name(R, 7, true);
        assert!(standing.begin(R, 7));
        standing.hear(R, 7, (3, 30));
        standing.name(R, 8, false);
        assert!(standing.begin(R, 8));
        standing.hear(R, 8, (3, 30));
        assert_eq!(standing.forget(8), [R].into());
        assert_eq!(standing.known(R), Some((3, 30)));
        standing.name(R, 8, true);
        assert_eq!(standing.hear(R, 7, (4, 40)), None);
        assert!(standing.begin(R, 8), "it begins again");
        assert_eq!(standing.hear(R, 8, (4, 41)), Some((4, 41)));
    }

    #[test]
    fn naming_the_same_standby_again_changes_nothing() {
        let mut standing = strict();
        standing.name(R, 7, false);
        assert!(standing.begin(R, 7));
        standing.hear(R, 7, (1, 2));
        standing.name(R, 7, false);
        assert!(standing.has_candidate(R, (1, 2)));
        for _ in 0..2 {
            standing.name(R, 7, true);
            assert_eq!(standing.known(R), Some((1, 2)));
        }
    }

    #[test]
    fn only_copies_of_an_older_owner_are_forgotten() {
        let mut standing = Standing::new(setup());
        standing.want(R);
        assert!(standing.take_in(R, &whole(OLD), true));
        standing.forget_older(R, OLD);
        assert!(standing.copy(R).is_some());
        standing.forget_older(R, NEW);
        assert!(standing.copy(R).is_none() && standing.take_fresh().is_empty());
        assert!(standing.wants(R), "it is asked for again");
    }
}
