//! Figures of the regions that this node runs.

use dunlin::Node;
use dunlin::space::RegionFigures;

use super::exposition::Exposition;
use super::exposition::MetricKind::{Counter, Gauge};
use super::exposition::seconds;

/// The name, help text and value of a metric.
type Figure = (&'static str, &'static str, fn(&RegionFigures) -> u64);

pub(super) fn write(node: &Node, out: &mut Exposition) {
    let regions = node.region_figures();
    if regions.is_empty() {
        return;
    }
    let labels = |one: &RegionFigures| [("world", one.world.clone()), ("region", one.region.0.to_string())];
    let gauges: [Figure; 3] = [
        ("dunlin_space_entities", "Entities of a region that this node runs.", |one| one.entities),
        ("dunlin_space_epoch", "The epoch in which this node runs a region.", |one| one.epoch),
        (
            "dunlin_space_standby_behind_ticks",
            "Ticks of a region that its standby has not received.",
            |one| one.standby_behind,
        ),
    ];
    for (name, help, value) in gauges {
        out.family(Gauge, name, help, regions.iter().map(|one| (labels(one), value(one))));
    }
    let counters: [Figure; 4] = [
        ("dunlin_space_ticks_total", "Ticks of a region.", |one| one.ticks),
        (
            "dunlin_space_ticks_missed_total",
            "Ticks that a region skipped, without a lease or too far ahead of its standby.",
            |one| one.ticks_missed,
        ),
        ("dunlin_space_handed_out_total", "Entities that a region handed over.", |one| one.departed),
        ("dunlin_space_handed_in_total", "Entities that were handed over to a region.", |one| one.admitted),
    ];
    for (name, help, value) in counters {
        out.family(Counter, name, help, regions.iter().map(|one| (labels(one), value(one))));
    }
    let took = regions.iter().map(|one| (labels(one), seconds(one.ticks_ns)));
    out.family(Counter, "dunlin_space_tick_seconds_total", "Total time of a region's ticks.", took);
}
