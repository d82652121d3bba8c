//! Counters of a node's regions, for the node's metrics.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use dunlin_space::{Behaviour, RegionId, StandbyMode};

use super::Host;
use crate::node::Node;

/// The interval at which the counters for metrics are updated.
const FIGURES_EVERY: Duration = Duration::from_millis(200);

/// Counters of one region for metrics, since the region began on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionFigures {
    /// The region's world.
    pub world: String,
    /// The region's number in the world.
    pub region: RegionId,
    /// The epoch in which this node owns the region.
    pub epoch: u64,
    /// The number of entities.
    pub entities: u64,
    /// The number of ticks that were run.
    pub ticks: u64,
    /// The total duration of all ticks, ns.
    pub ticks_ns: u64,
    /// The number of ticks that were missed because the lease had expired or the standby was behind.
    pub ticks_missed: u64,
    /// The number of entities that were handed over to other regions.
    pub departed: u64,
    /// The number of entities that were received from other regions.
    pub admitted: u64,
    /// The number of ticks by which the standby is behind; 0 if the region needs no standby.
    pub standby_behind: u64,
}

/// The counters of the regions on this node, by the name of their world.
pub(crate) type Figures = Mutex<BTreeMap<String, Vec<RegionFigures>>>;

impl Node {
    /// The counters of the regions on this node, at most 250 ms old.
    pub fn region_figures(&self) -> Vec<RegionFigures> {
        let figures = self.0.figures.lock().unwrap_or_else(PoisonError::into_inner);
        figures.values().flatten().cloned().collect()
    }
}

impl<const D: usize, B> Drop for Host<D, B> {
    /// Removes the counters of this host's regions from the node's metrics.
    fn drop(&mut self) {
        if let Some(topics) = &self.topics {
            topics.node.0.figures.lock().unwrap_or_else(PoisonError::into_inner).remove(&topics.world);
        }
    }
}

impl<const D: usize, B: Behaviour<D> + Clone> Host<D, B> {
    /// Updates the counters of this host's regions for the node's metrics, at most once in [`FIGURES_EVERY`].
    pub(super) fn report_figures(&mut self) {
        if self.figures_reported_at.is_some_and(|last| last.elapsed() < FIGURES_EVERY) {
            return;
        }
        self.figures_reported_at = Some(Instant::now());
        let Some(topics) = &self.topics else { return };
        let needs_standby = self.setup.standby == StandbyMode::Required;
        let regions = self.regions.iter().map(|(id, hosted)| {
            let (region, counts) = (&hosted.region, hosted.region.handover().counts());
            let behind = region.tick_number().saturating_sub(region.known_tick());
            RegionFigures {
                world: topics.world.clone(),
                region: *id,
                epoch: hosted.epoch(),
                entities: region.store().len() as u64,
                ticks: hosted.ticks,
                ticks_ns: hosted.ticks_ns,
                ticks_missed: hosted.ticks_missed,
                departed: counts.departed,
                admitted: counts.admitted,
                standby_behind: if needs_standby { behind } else { 0 },
            }
        });
        let mut figures = topics.node.0.figures.lock().unwrap_or_else(PoisonError::into_inner);
        figures.insert(topics.world.clone(), regions.collect());
    }
}
