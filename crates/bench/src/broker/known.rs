//! What the peers are known to do: figures measured on a machine like ours, with its floor.
//!
//! The floor is the raw TCP stream in 64 KiB writes, 6.03 GB/s then. Small messages are bound by instructions and not
//! by bytes: a machine that streams faster need not parse faster, so a faster floor asks no more of them. The figures of fan-out
//! were taken by a client that counted bytes and checked none, on the cores it shares with the broker, and are left out.

use crate::goal::Known;
use crate::row::RowPattern;

const FLOOR: RowPattern = RowPattern {
    target: "raw",
    case: "nats_door",
    params: &[("transport", "tcp"), ("bytes", "65536")],
    metric: "bytes_per_s",
};

type Pairs = &'static [(&'static str, &'static str)];

const fn small(target: &'static str, params: Pairs, metric: &'static str, figure: f64) -> Known {
    let peer = RowPattern { target, case: "nats_door", params, metric };
    Known { peer, figure, floor: FLOOR, floor_figure: 6.03e9, rises_with_the_floor: false }
}

const STREAM: Pairs = &[("pattern", "stream"), ("driver", "raw"), ("bytes", "64")];

/// The known figures.
pub const KNOWN: &[Known] =
    &[small("nats", STREAM, "msgs_per_s", 3.24e6), small("redis", STREAM, "msgs_per_s", 2.07e6)];
