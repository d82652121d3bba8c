//! When the curve is cut anew: from what the regions say of their loads.
//!
//! Invariants:
//! - Nothing is moved before all that the last cut moved is where it belongs: what is on its way would be counted where it is not.
//! - Regions that are about even are left alone, and so are small differences in number.
//!
//! ```text
//!  weight:     version u8, region u32, of the partition u64, amount f64, strayed f64, quantiles: u32 count, u64 each
//!  partition:  version u8, its version u64, cuts: u32 count, (u64, u32) each
//! ```

use std::collections::BTreeMap;

use crate::handover::RegionId;
use crate::layout::{DecodeError, Fields, VERSION, put_u32, put_u64};
use crate::partition::{Load, Partition, PartitionError};

/// How much unevenness is left alone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Balance {
    /// The busiest region may have so many times the mean.
    pub tolerance: f64,
    /// It may have so much more than the mean, whatever that is.
    pub spare: f64,
    /// Loads are weighed every so many ticks.
    pub every_ticks: u64,
    /// What a region said counts for so long, ns.
    pub fresh_ns: u64,
}

impl Default for Balance {
    fn default() -> Balance {
        Balance { tolerance: 1.1, spare: 100.0, every_ticks: 1, fresh_ns: 1_000_000_000 }
    }
}

/// Of all entities so large a part may be on its way while the curve is cut anew.
const STRAYED_MAX: f64 = 0.02;

/// A region's load, and how far the last cut has come there.
#[derive(Debug, Clone, PartialEq)]
pub struct Weight {
    /// What it has to do in its own stretch.
    pub load: Load,
    /// The version of the partition that it goes by.
    pub version: u64,
    /// What it has to do beyond: who is there is another's before long.
    pub strayed: f64,
}

impl Weight {
    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        put_u32(out, self.load.region.0);
        put_u64(out, self.version);
        put_u64(out, self.load.amount.to_bits());
        put_u64(out, self.strayed.to_bits());
        put_u32(out, self.load.quantiles.len() as u32);
        self.load.quantiles.iter().for_each(|key| put_u64(out, *key));
    }

    /// Reads it again.
    pub fn decode(bytes: &[u8]) -> Result<Weight, DecodeError> {
        let mut fields = Fields::versioned(bytes)?;
        let (region, version) = (RegionId(fields.u32()?), fields.u64()?);
        let (amount, strayed) = (f64::from_bits(fields.u64()?), f64::from_bits(fields.u64()?));
        let quantiles = fields.list(8, Fields::u64)?;
        fields.end()?;
        if !(amount.is_finite() && amount >= 0.0 && strayed.is_finite() && strayed >= 0.0) {
            return Err(DecodeError::NotFinite);
        }
        Ok(Weight { load: Load { region, amount, quantiles }, version, strayed })
    }
}

/// What all regions said last.
#[derive(Debug, Clone, Default)]
pub struct Scales(BTreeMap<RegionId, (u64, Weight)>);

impl Scales {
    /// A region has said what it has to do.
    pub fn hear(&mut self, weight: Weight, now_ns: u64) {
        self.0.insert(weight.load.region, (now_ns, weight));
    }

    /// How the curve is to be cut from here on; nothing where all is well, or not all is known.
    pub fn next(&self, partition: &Partition, balance: &Balance, now_ns: u64) -> Option<Partition> {
        let known = |(_, region): &(u64, RegionId)| {
            let (heard_ns, weight) = self.0.get(region)?;
            let fresh = weight.version == partition.version() && *heard_ns + balance.fresh_ns > now_ns;
            fresh.then_some(weight)
        };
        let weights: Vec<&Weight> = partition.regions().iter().map(known).collect::<Option<_>>()?;
        let total: f64 = weights.iter().map(|weight| weight.load.amount + weight.strayed).sum();
        let strayed: f64 = weights.iter().map(|weight| weight.strayed).sum();
        let busiest = weights.iter().fold(0.0_f64, |most, weight| most.max(weight.load.amount));
        if strayed > total * STRAYED_MAX || busiest <= total / weights.len() as f64 + balance.spare {
            return None;
        }
        let loads: Vec<Load> = weights.into_iter().map(|weight| weight.load.clone()).collect();
        partition.rebalance(&loads, balance.tolerance)
    }
}

impl Partition {
    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        put_u64(out, self.version());
        put_u32(out, self.regions().len() as u32);
        for (first, region) in self.regions() {
            put_u64(out, *first);
            put_u32(out, region.0);
        }
    }

    /// Reads one of a world of so many dimensions.
    pub fn decode(dimensions: usize, bytes: &[u8]) -> Result<Partition, PartitionError> {
        let read = || -> Result<(u64, Vec<(u64, RegionId)>), DecodeError> {
            let mut fields = Fields::versioned(bytes)?;
            let version = fields.u64()?;
            let cuts = fields.list(12, |fields| Ok((fields.u64()?, RegionId(fields.u32()?))))?;
            fields.end().map(|()| (version, cuts))
        };
        let (version, cuts) = read()?;
        Partition::of(dimensions, version, cuts)
    }
}
