//! Measures a region's load for rebalancing.

use super::Region;
use super::crossing::key;
use crate::balance::LoadReport;
use crate::behaviour::Behaviour;
use crate::partition::RegionLoad;

/// Number of quantiles in a load report.
const PARTS: usize = 64;
/// Maximum number of sampled rows. Rows are nearly in the curve's order, so taking every n-th row gives a
/// representative sample.
const SAMPLE_MAX: usize = 1_024;

impl<const D: usize, B: Behaviour<D>> Region<D, B> {
    /// Counts the entities inside and outside the region's stretch. The report contains keys that divide the entities
    /// inside the stretch evenly.
    pub fn load_report(&self) -> LoadReport {
        let (store, (first, end)) = (self.state.store(), self.stretch());
        let step = store.len().div_ceil(SAMPLE_MAX).max(1);
        let of = |row: usize| key(&self.setup.world, &store.position(row));
        let mut keys: Vec<u64> = (0..store.len()).step_by(step).map(of).collect();
        let (sampled, len) = (keys.len().max(1) as f64, store.len() as f64);
        keys.retain(|key| (first..end).contains(key));
        keys.sort_unstable();
        let amount = len * (keys.len() as f64 / sampled);
        let quantiles = (1..PARTS).filter_map(|part| keys.get(keys.len() * part / PARTS).copied()).collect();
        let load = RegionLoad { region: self.setup.region, amount, quantiles };
        LoadReport { load, version: self.partition.version(), strayed: len - amount }
    }
}
