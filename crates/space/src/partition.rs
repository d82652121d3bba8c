//! Assigns each region a stretch of the space-filling curve.
//!
//! Invariants: every key belongs to one region. Every region has one stretch, which is not empty. A partition itself
//! never changes: a change makes a new partition with a higher version.

use std::collections::HashSet;

use crate::curve::MortonCurve;
use crate::handover::RegionId;
use crate::layout::SpaceDecodeError;

/// The division of a world into regions: the keys of the space-filling curve at which regions begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    version: u64,
    end: u64,
    /// First key and region of each stretch, in the order of the curve. The first stretch begins at key 0.
    cuts: Vec<(u64, RegionId)>,
}

/// The measured load of a region, and keys of the curve that divide the region into equally loaded parts.
#[derive(Debug, Clone, PartialEq)]
pub struct RegionLoad {
    /// The region.
    pub region: RegionId,
    /// The load, in any unit, such as nanoseconds a tick or entities. All regions must use the same unit.
    pub amount: f64,
    /// Keys in ascending order that divide the region's stretch into parts of equal load.
    pub quantiles: Vec<u64>,
}

/// The reason why a partition, or a change of one, is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PartitionError {
    /// The region is not in the partition.
    #[error("region {} is not one of the world's regions", .0.0)]
    Unknown(RegionId),
    /// The region is already in the partition.
    #[error("region {} is already one of the world's regions", .0.0)]
    Known(RegionId),
    /// A region would have no key.
    #[error("a cut at key {at} of the space-filling curve leaves a region without keys")]
    Empty {
        /// Key of the cut.
        at: u64,
    },
    /// The encoded partition is malformed.
    #[error(transparent)]
    Decode(#[from] SpaceDecodeError),
    /// The two regions are not adjacent on the curve.
    #[error("regions {} and {} are not neighbours on the space-filling curve", .0.0, .1.0)]
    Apart(RegionId, RegionId),
}

impl Partition {
    /// Divides a world with `dimensions` dimensions into equally long stretches of the curve, one for each region.
    pub fn even(dimensions: usize, regions: &[RegionId]) -> Partition {
        let (end, count) = (MortonCurve::end(dimensions), regions.len() as u128);
        let cut = |at: usize| (u128::from(end) * at as u128 / count) as u64;
        let cuts = regions.iter().enumerate().map(|(at, region)| (cut(at), *region)).collect();
        Partition { version: 1, end, cuts }
    }

    /// Creates a partition from regions and their first keys, in the order of the curve.
    pub fn of(
        dimensions: usize,
        version: u64,
        cuts: Vec<(u64, RegionId)>,
    ) -> Result<Partition, PartitionError> {
        let end = MortonCurve::end(dimensions);
        let mut known = HashSet::with_capacity(cuts.len());
        for (at, (first, region)) in cuts.iter().enumerate() {
            if !known.insert(*region) {
                return Err(PartitionError::Known(*region));
            }
            let fits = if at == 0 { *first == 0 } else { *first > cuts[at - 1].0 };
            if !fits || *first >= end {
                return Err(PartitionError::Empty { at: *first });
            }
        }
        if cuts.is_empty() {
            Err(PartitionError::Empty { at: 0 })
        } else {
            Ok(Partition { version, end, cuts })
        }
    }

    /// Version, which grows with every change.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// First key and id of each region, in the order of the curve.
    pub fn regions(&self) -> &[(u64, RegionId)] {
        &self.cuts
    }

    /// The region that owns a key.
    #[inline]
    pub fn owner(&self, key: u64) -> RegionId {
        let at = self.cuts.partition_point(|(first, _)| *first <= key);
        self.cuts[at.max(1) - 1].1
    }

    /// The stretch of a region: its first key, and the first key after the stretch. `None` if the region is not in the
    /// partition.
    pub fn stretch(&self, region: RegionId) -> Option<(u64, u64)> {
        let at = self.position(region).ok()?;
        Some((self.cuts[at].0, self.end_of(at)))
    }

    /// The regions that own at least one of the `count` keys from `first` on.
    pub fn owners(&self, first: u64, count: u64) -> impl Iterator<Item = RegionId> + '_ {
        let from = self.cuts.partition_point(|(cut, _)| *cut <= first).max(1) - 1;
        self.cuts[from..].iter().take_while(move |(cut, _)| *cut < first + count).map(|(_, region)| *region)
    }

    /// Splits a region: the region's keys from `at` on belong to the region `new`.
    pub fn split(&self, region: RegionId, at: u64, new: RegionId) -> Result<Partition, PartitionError> {
        let position = self.position(region)?;
        if self.position(new).is_ok() {
            return Err(PartitionError::Known(new));
        }
        if at <= self.cuts[position].0 || at >= self.end_of(position) {
            return Err(PartitionError::Empty { at });
        }
        let mut cuts = self.cuts.clone();
        cuts.insert(position + 1, (at, new));
        Ok(self.next(cuts))
    }

    /// Gives the stretch of region `from` to the adjacent region `into`, and removes region `from`.
    pub fn merge(&self, into: RegionId, from: RegionId) -> Result<Partition, PartitionError> {
        let (into_at, from_at) = (self.position(into)?, self.position(from)?);
        if into_at.abs_diff(from_at) != 1 {
            return Err(PartitionError::Apart(into, from));
        }
        let mut cuts = self.cuts.clone();
        let first = cuts[into_at].0.min(cuts[from_at].0);
        cuts[into_at].0 = first;
        cuts.remove(from_at);
        Ok(self.next(cuts))
    }

    /// Cuts the curve again for equal loads, if the highest load exceeds `tolerance` times the mean. Returns `None` if
    /// the loads are already balanced, or if one cell has so much load that no cut helps. The new partition is balanced
    /// for the loads in `loads`.
    pub fn rebalance(&self, loads: &[RegionLoad], tolerance: f64) -> Option<Partition> {
        let total: f64 = loads.iter().map(|load| load.amount).sum();
        let mean = total / self.cuts.len() as f64;
        let busiest = loads.iter().fold(0.0_f64, |most, load| most.max(load.amount));
        if !mean.is_finite() || mean <= 0.0 || busiest <= mean * tolerance {
            return None;
        }
        let pieces = self.pieces(loads);
        let mut cuts = vec![(0, self.cuts[0].1)];
        let (mut sum, mut target) = (0.0, mean);
        for (first, last, amount) in pieces {
            // One piece may contain several cuts.
            while cuts.len() < self.cuts.len() && sum + amount >= target && amount > 0.0 {
                let part = (target - sum) / amount;
                let at = first + ((last - first) as f64 * part) as u64;
                cuts.push((at.max(cuts[cuts.len() - 1].0 + 1), self.cuts[cuts.len()].1));
                target += mean;
            }
            sum += amount;
        }
        let fits = cuts.len() == self.cuts.len() && cuts.iter().all(|cut| cut.0 < self.end);
        (fits && cuts != self.cuts).then(|| self.next(cuts))
    }

    /// The load along the curve: pieces of the curve with an amount each. Within a piece, the load is assumed to be
    /// even.
    fn pieces(&self, loads: &[RegionLoad]) -> Vec<(u64, u64, f64)> {
        let mut pieces = Vec::new();
        for (at, (first, region)) in self.cuts.iter().enumerate() {
            let Some(load) = loads.iter().find(|load| load.region == *region) else { continue };
            let end = self.end_of(at);
            let inner = load.quantiles.iter().copied().filter(|key| (*first..end).contains(key));
            let mut ends: Vec<u64> = inner.chain([end]).collect();
            ends.sort_unstable();
            let (mut start, amount) = (*first, load.amount / ends.len() as f64);
            for end in ends {
                pieces.push((start, end, amount));
                start = end;
            }
        }
        pieces
    }

    fn next(&self, cuts: Vec<(u64, RegionId)>) -> Partition {
        Partition { version: self.version + 1, end: self.end, cuts }
    }

    fn position(&self, region: RegionId) -> Result<usize, PartitionError> {
        let found = self.cuts.iter().position(|(_, other)| *other == region);
        found.ok_or(PartitionError::Unknown(region))
    }

    fn end_of(&self, at: usize) -> u64 {
        self.cuts.get(at + 1).map_or(self.end, |cut| cut.0)
    }
}
