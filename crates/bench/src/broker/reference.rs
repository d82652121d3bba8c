//! Figures that peers are known to reach, measured on a machine like ours, with its floor. The floor is the
//! raw TCP stream in 64 KiB writes: 6.03 GB/s in that measurement. Small messages are bound by instructions
//! and not by bytes. For small messages a faster floor therefore requires no more of a peer. Fan-out figures
//! are left out: their client checked nothing and shared its cores with the broker.

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

/// The figures that peers of suite `broker` are known to reach.
pub const KNOWN: &[PeerFigure] =
    &[small("nats", STREAM, "msgs_per_s", 3.24e6), small("redis", STREAM, "msgs_per_s", 2.07e6)];
