//! Figures that peers (other systems) reached in an earlier run, on another but similar machine. In that run, the
//! floor (the throughput of a raw TCP stream in 64 KiB writes) was 6.03 GB/s.
//!
//! The throughput of small messages depends on the number of instructions, not on the number of bytes. A faster floor
//! therefore does not necessarily increase this throughput. Figures for several subscribers are left out: in that run,
//! the client with several subscribers checked nothing, and shared the broker's cores.

use crate::goal::PeerFigure;
use crate::row::RowPattern;

const FLOOR: RowPattern = RowPattern {
    target: "raw",
    case: "nats_listener",
    params: &[("transport", "tcp"), ("bytes", "65536")],
    metric: "bytes_per_s",
};

type Pairs = &'static [(&'static str, &'static str)];

const fn small(target: &'static str, params: Pairs, metric: &'static str, figure: f64) -> PeerFigure {
    let peer = RowPattern { target, case: "nats_listener", params, metric };
    PeerFigure { peer, figure, floor: FLOOR, floor_figure: 6.03e9, rises_with_the_floor: false }
}

const STREAM: Pairs = &[("pattern", "stream"), ("driver", "raw"), ("bytes", "64")];

/// The figures that peers of suite `broker` reached in the earlier run.
pub const PEER_FIGURES: &[PeerFigure] =
    &[small("nats", STREAM, "msgs_per_s", 3.24e6), small("redis", STREAM, "msgs_per_s", 2.07e6)];
