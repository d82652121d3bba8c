//! Metrics of the world regions that this node runs.

use dunlin::Node;
use dunlin::space::RegionFigures;

use super::exposition::Exposition;
use super::exposition::MetricKind::{Counter, Gauge};
use super::exposition::seconds;

/// A metric of a region: its name, its help text, and the function that reads its value.
type Figure = (&'static str, &'static str, fn(&RegionFigures) -> u64);

pub(super) fn write(node: &Node, out: &mut Exposition) {
    let regions = node.region_figures();
    if regions.is_empty() {
        return;
    }
    let labels =
        |region: &RegionFigures| [("world", region.world.clone()), ("region", region.region.0.to_string())];
    let gauges: [Figure; 3] = [
        ("dunlin_space_entities", "Entities of a region that this node runs.", |region| region.entities),
        ("dunlin_space_epoch", "The epoch in which this node runs a region.", |region| region.epoch),
        (
            "dunlin_space_standby_behind_ticks",
            "Ticks of a region that its standby has not received.",
            |region| region.standby_behind,
        ),
    ];
    for (name, help, value) in gauges {
        out.family(Gauge, name, help, regions.iter().map(|region| (labels(region), value(region))));
    }
    let counters: [Figure; 4] = [
        ("dunlin_space_ticks_total", "Ticks of a region.", |region| region.ticks),
        (
            "dunlin_space_ticks_missed_total",
            "Ticks that a region skipped, without a lease or too far ahead of its standby.",
            |region| region.ticks_missed,
        ),
        ("dunlin_space_handed_out_total", "Entities that a region handed over.", |region| region.departed),
        ("dunlin_space_handed_in_total", "Entities that were handed over to a region.", |region| {
            region.admitted
        }),
    ];
    for (name, help, value) in counters {
        out.family(Counter, name, help, regions.iter().map(|region| (labels(region), value(region))));
    }
    let duration = regions.iter().map(|region| (labels(region), seconds(region.ticks_ns)));
    out.family(Counter, "dunlin_space_tick_seconds_total", "Total time of a region's ticks.", duration);
}
