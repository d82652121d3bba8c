//! Balances the loads of a world's regions. From the regions' load reports, this module decides when the space-filling
//! curve is cut into regions anew, and at which keys.
//!
//! Invariants:
//! - After a cut, the curve is not cut again until nearly all handovers that the cut caused are done. Until then, many
//!   entities still count for the region that they will leave.
//! - The curve is not cut again while the loads of the regions are about equal, or differ by only a few entities.
//!
//! ```text
//!  load report:  version of the encoding u8, region u32, version of the partition u64,
//!                load inside the region's stretch f64, load outside this stretch f64,
//!                quantiles: u32 count, then a key u64 for each
//!  partition:    version of the encoding u8, version of the partition u64,
//!                cuts: u32 count, then for each cut: first key u64, region u32
//! ```

use std::collections::BTreeMap;

use crate::handover::RegionId;
use crate::layout::{Fields, SpaceDecodeError, VERSION, put_u32, put_u64};
use crate::partition::{Partition, PartitionError, RegionLoad};

/// Rules that decide when the loads of a world's regions are balanced.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BalancePolicy {
    /// The curve is cut again only if the highest load of a region exceeds the mean load times this factor.
    pub tolerance: f64,
    /// The curve is cut again only if the highest load of a region exceeds the mean load by more than this amount.
    pub spare: f64,
    /// Ticks between two checks of the loads.
    pub every_ticks: u64,
    /// Age above which a region's load report is ignored, ns.
    pub fresh_ns: u64,
}

impl Default for BalancePolicy {
    fn default() -> BalancePolicy {
        BalancePolicy { tolerance: 1.1, spare: 100.0, every_ticks: 1, fresh_ns: 1_000_000_000 }
    }
}

/// The curve is not cut again while more than this fraction of the total load comes from entities outside the stretch
/// of their region.
const STRAYED_MAX: f64 = 0.02;

/// A region's load, inside and outside of its stretch of the curve, and the version of the partition for which the load
/// was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadReport {
    /// The load of the entities in the region's own stretch of the curve.
    pub load: RegionLoad,
    /// Version of the partition that the region used when it measured the load.
    pub version: u64,
    /// The load of the region's entities that are outside its stretch and still have to be handed over.
    pub strayed: f64,
}

impl LoadReport {
    /// Appends the encoded report to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        put_u32(out, self.load.region.0);
        put_u64(out, self.version);
        put_u64(out, self.load.amount.to_bits());
        put_u64(out, self.strayed.to_bits());
        put_u32(out, self.load.quantiles.len() as u32);
        self.load.quantiles.iter().for_each(|key| put_u64(out, *key));
    }

    /// Decodes a report.
    pub fn decode(bytes: &[u8]) -> Result<LoadReport, SpaceDecodeError> {
        let mut fields = Fields::versioned(bytes)?;
        let (region, version) = (RegionId(fields.u32()?), fields.u64()?);
        let (amount, strayed) = (f64::from_bits(fields.u64()?), f64::from_bits(fields.u64()?));
        let quantiles = fields.list(8, Fields::u64)?;
        fields.end()?;
        if !(amount.is_finite() && amount >= 0.0 && strayed.is_finite() && strayed >= 0.0) {
            return Err(SpaceDecodeError::NotFinite);
        }
        Ok(LoadReport { load: RegionLoad { region, amount, quantiles }, version, strayed })
    }
}

/// The last load report of each region of a world.
#[derive(Debug, Clone, Default)]
pub struct LoadReports(BTreeMap<RegionId, (u64, LoadReport)>);

impl LoadReports {
    /// Stores a region's report, which arrived at `now_ns`, in place of the region's earlier report.
    pub fn record(&mut self, report: LoadReport, now_ns: u64) {
        self.0.insert(report.load.region, (now_ns, report));
    }

    /// Returns a new partition with balanced loads. Returns `None` in three cases: the loads are even enough, too many
    /// entities still have to be handed over, or a region's report is missing or too old.
    pub fn next(&self, partition: &Partition, balance: &BalancePolicy, now_ns: u64) -> Option<Partition> {
        let known = |(_, region): &(u64, RegionId)| {
            let (received_ns, report) = self.0.get(region)?;
            let fresh = report.version == partition.version() && *received_ns + balance.fresh_ns > now_ns;
            fresh.then_some(report)
        };
        let reports: Vec<&LoadReport> = partition.regions().iter().map(known).collect::<Option<_>>()?;
        let total: f64 = reports.iter().map(|report| report.load.amount + report.strayed).sum();
        let strayed: f64 = reports.iter().map(|report| report.strayed).sum();
        let busiest = reports.iter().fold(0.0_f64, |most, report| most.max(report.load.amount));
        if strayed > total * STRAYED_MAX || busiest <= total / reports.len() as f64 + balance.spare {
            return None;
        }
        let loads: Vec<RegionLoad> = reports.into_iter().map(|report| report.load.clone()).collect();
        partition.rebalance(&loads, balance.tolerance)
    }
}

impl Partition {
    /// Appends the encoded partition to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        put_u64(out, self.version());
        put_u32(out, self.regions().len() as u32);
        for (first, region) in self.regions() {
            put_u64(out, *first);
            put_u32(out, region.0);
        }
    }

    /// Decodes a partition of a world with `dimensions` dimensions.
    pub fn decode(dimensions: usize, bytes: &[u8]) -> Result<Partition, PartitionError> {
        let read = || -> Result<(u64, Vec<(u64, RegionId)>), SpaceDecodeError> {
            let mut fields = Fields::versioned(bytes)?;
            let version = fields.u64()?;
            let cuts = fields.list(12, |fields| Ok((fields.u64()?, RegionId(fields.u32()?))))?;
            fields.end().map(|()| (version, cuts))
        };
        let (version, cuts) = read()?;
        Partition::of(dimensions, version, cuts)
    }
}
