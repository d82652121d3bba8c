//! Figures that peers (other systems) reached in an earlier run on another but similar machine, and the floors of that
//! run.
//!
//! The floor for throughput is a raw TCP stream in 64 KiB writes, which reached 6.03 GB/s. Within a process, the floor
//! is the ring `rtrb` with single records (100.6 M/s). The floor for round trips is a bare socket; its two sides park
//! and are pinned to separate cores (51 µs). Without pinning, this figure varies between 12 and 50 µs. Figures within a
//! process for 8 KiB and more are left out, because the receiver in that run did not read the payload.

use crate::goal::PeerFigure;
use crate::row::RowPattern;

const STREAM: RowPattern = RowPattern {
    target: "raw",
    case: "throughput",
    params: &[("transport", "tcp"), ("bytes", "65536"), ("length", "sustained")],
    metric: "bytes_per_s",
};
const RING: RowPattern = RowPattern {
    target: "rtrb",
    case: "throughput",
    params: &[("transport", "inproc"), ("bytes", "64"), ("batch", "1"), ("length", "sustained")],
    metric: "msgs_per_s",
};
const ROUND_TRIP: RowPattern = RowPattern {
    target: "raw",
    case: "latency",
    params: &[
        ("transport", "tcp"),
        ("wait", "parked"),
        ("bytes", "64"),
        ("topology", "embedded"),
        ("pin", "apart"),
    ],
    metric: "p50_ns",
};

const fn libzmq_tcp(params: &'static [(&'static str, &'static str)], figure: f64) -> PeerFigure {
    let peer = RowPattern { target: "libzmq", case: "throughput", params, metric: "msgs_per_s" };
    PeerFigure { peer, figure, floor: STREAM, floor_figure: 6.03e9, rises_with_the_floor: true }
}

const fn libzmq_inproc(params: &'static [(&'static str, &'static str)], figure: f64) -> PeerFigure {
    let peer = RowPattern { target: "libzmq", case: "throughput", params, metric: "msgs_per_s" };
    PeerFigure { peer, figure, floor: RING, floor_figure: 100.6e6, rises_with_the_floor: true }
}

const fn round_trip(
    target: &'static str,
    params: &'static [(&'static str, &'static str)],
    figure: f64,
) -> PeerFigure {
    let peer = RowPattern { target, case: "latency", params, metric: "p50_ns" };
    PeerFigure { peer, figure, floor: ROUND_TRIP, floor_figure: 51e3, rises_with_the_floor: true }
}

/// The figures that peers of suite `spot` reached in the earlier run.
pub const PEER_FIGURES: &[PeerFigure] = &[
    libzmq_tcp(&[("transport", "tcp"), ("pattern", "pub"), ("bytes", "64"), ("length", "sustained")], 4.48e6),
    libzmq_tcp(
        &[("transport", "tcp"), ("pattern", "pub"), ("bytes", "1024"), ("length", "sustained")],
        862e3,
    ),
    libzmq_tcp(&[("transport", "tcp"), ("pattern", "pub"), ("bytes", "8192"), ("length", "sustained")], 99e3),
    libzmq_tcp(
        &[("transport", "tcp"), ("pattern", "pub"), ("bytes", "65536"), ("length", "sustained")],
        34e3,
    ),
    libzmq_inproc(
        &[("transport", "inproc"), ("pattern", "pub"), ("bytes", "64"), ("length", "sustained")],
        6.05e6,
    ),
    libzmq_inproc(
        &[("transport", "inproc"), ("pattern", "pub"), ("bytes", "1024"), ("length", "sustained")],
        3.07e6,
    ),
    PeerFigure {
        peer: RowPattern {
            target: "nats",
            case: "throughput",
            params: &[("transport", "tcp"), ("driver", "raw"), ("bytes", "64"), ("length", "sustained")],
            metric: "msgs_per_s",
        },
        figure: 3.24e6,
        floor: STREAM,
        floor_figure: 6.03e9,
        rises_with_the_floor: true,
    },
    round_trip("nats", &[("transport", "tcp"), ("driver", "raw"), ("bytes", "64"), ("pin", "apart")], 108e3),
    round_trip(
        "libzmq",
        &[("transport", "tcp"), ("pattern", "pair"), ("bytes", "64"), ("pin", "free")],
        75e3,
    ),
    round_trip(
        "libzmq",
        &[("transport", "tcp"), ("pattern", "pair"), ("bytes", "1024"), ("pin", "free")],
        73e3,
    ),
    round_trip(
        "libzmq",
        &[("transport", "tcp"), ("pattern", "pair"), ("bytes", "8192"), ("pin", "free")],
        91e3,
    ),
    round_trip(
        "libzmq",
        &[("transport", "inproc"), ("pattern", "pair"), ("bytes", "64"), ("pin", "apart")],
        50e3,
    ),
];
