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
    fresh: BTreeMap<RegionId, (u64, u64)>,
    /// Who follows ours, and is waited for.
    followers: BTreeMap<RegionId, u64>,
    /// Whoever asks may follow; else who is named.
    pub(super) strict: bool,
    named: BTreeMap<RegionId, u64>,
    /// Who was promoted: where its connection breaks, it goes on as who is waited for.
    promoted: BTreeMap<RegionId, u64>,
    /// Who is named and has begun, and what it knows: it is told everything, and not yet waited for.
    candidates: BTreeMap<RegionId, Candidate>,
    /// Copies that could not follow, and were begun anew.
    pub(super) lost: u64,
}

/// See [`Standing::candidates`].
#[derive(Debug)]
struct Candidate {
    process: u64,
    knows: Option<(u64, u64)>,
}

impl<const D: usize> Standing<D> {
    pub(super) fn new(setup: Setup<D>) -> Standing<D> {
        let (wanted, copies) = (BTreeSet::new(), Standbys::new(setup));
        let (fresh, followers, named) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (strict, promoted, candidates) = (false, BTreeMap::new(), BTreeMap::new());
        Standing { wanted, copies, fresh, followers, strict, named, promoted, candidates, lost: 0 }
    }

    /// This one may follow, and is not waited for before it is [promoted](Standing::promote).
    pub(super) fn name(&mut self, region: RegionId, process: u64) {
        self.named.insert(region, process);
        self.promoted.remove(&region);
        self.candidates.remove(&region);
    }

    /// Somebody asks to follow: whether it may.
    pub(super) fn begin(&mut self, region: RegionId, process: u64) -> bool {
        if !self.strict || self.promoted.get(&region) == Some(&process) {
            self.followers.insert(region, process);
            return true;
        }
        if self.followers.get(&region) == Some(&process) {
            return true;
        }
        let named = self.named.get(&region) == Some(&process);
        if named {
            self.candidates.insert(region, Candidate { process, knows: None });
        }
        named
    }

    /// Somebody has taken in so much; `true` where it is who is waited for.
    pub(super) fn hear(&mut self, region: RegionId, process: u64, entries: u64, tick: u64) -> bool {
        if let Some(candidate) = self.candidates.get_mut(&region).filter(|one| one.process == process) {
            candidate.knows = Some((entries, tick));
        }
        self.followers.get(&region) == Some(&process)
    }

    /// Whether who is named has begun.
    pub(super) fn has_candidate(&self, region: RegionId) -> bool {
        let follows = self.followers.get(&region).is_some_and(|who| self.named.get(&region) == Some(who));
        follows || self.candidates.get(&region).is_some_and(|candidate| candidate.knows.is_some())
    }

    /// It is waited for from here on, and what it knows.
    pub(super) fn promote(&mut self, region: RegionId, process: u64) -> Option<(u64, u64)> {
        let candidate = self.candidates.remove(&region).filter(|one| one.process == process)?;
        self.followers.insert(region, process);
        self.promoted.insert(region, process);
        candidate.knows
    }

    /// All who are told what changes in a region.
    pub(super) fn listeners(&self, region: RegionId) -> impl Iterator<Item = u64> {
        let follower = self.followers.get(&region).copied();
        let candidate = self.candidates.get(&region).map(|candidate| candidate.process);
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
    pub(super) fn take_fresh(&mut self) -> BTreeMap<RegionId, (u64, u64)> {
        std::mem::take(&mut self.fresh)
    }

    /// The copy of a region, to go on from.
    pub(super) fn take_copy(&mut self, region: RegionId) -> Option<RegionState<D>> {
        self.fresh.remove(&region);
        self.copies.take(region)
    }

    pub(super) fn copy(&self, region: RegionId) -> Option<&RegionState<D>> {
        self.copies.get(region)
    }

    pub(super) fn follower(&self, region: RegionId) -> Option<u64> {
        self.followers.get(&region).copied()
    }

    /// A process is away: the regions that it followed.
    pub(super) fn forget(&mut self, process: u64) -> Vec<RegionId> {
        self.candidates.retain(|_, candidate| candidate.process != process);
        let lost: Vec<RegionId> =
            self.followers.iter().filter(|(_, who)| **who == process).map(|(region, _)| *region).collect();
        self.followers.retain(|_, who| *who != process);
        lost
    }
}
