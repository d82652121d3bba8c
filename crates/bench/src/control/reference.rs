//! Figures that etcd reached with its own Go client in an earlier run, on another but similar machine. In that run, the
//! disk made 6,960 synced writes of 4 KiB per second.
//!
//! With many requests in flight, etcd is limited by the processor. A faster disk therefore does not always make etcd
//! faster.

use crate::goal::PeerFigure;
use crate::row::RowPattern;

const FLOOR: RowPattern =
    RowPattern { target: "raw", case: "disk", params: &[("bytes", "4096")], metric: "ops_per_s" };

const fn etcd(
    case: &'static str,
    params: &'static [(&'static str, &'static str)],
    figure: f64,
) -> PeerFigure {
    let peer = RowPattern { target: "etcd", case, params, metric: "ops_per_s" };
    PeerFigure { peer, figure, floor: FLOOR, floor_figure: 6_960.0, rises_with_the_floor: false }
}

/// The figures that peers of suite `control` reached in the earlier run.
pub const PEER_FIGURES: &[PeerFigure] = &[
    etcd("put", &[("nodes", "1"), ("in_flight", "256")], 22_937.0),
    etcd("put", &[("nodes", "3"), ("in_flight", "256")], 11_781.0),
    etcd("put", &[("nodes", "5"), ("in_flight", "256")], 8_357.0),
    etcd("put", &[("nodes", "3"), ("in_flight", "1")], 1_279.0),
    etcd("range", &[("nodes", "3")], 812.0),
];
