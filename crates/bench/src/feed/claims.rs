//! Figures of MDD-Sim, another system for market data: some from its benchmark document, and some that we measured.
//!
//! The document measured server, source and clients in one process. We measured an optimised build of MDD-Sim's newest
//! source in an earlier run, on a machine similar to the one on which Dunlin is measured (two virtual cores, Linux).
//! These figures therefore show only orders of magnitude. In our measurements over TCP, MDD-Sim's server ran in a
//! separate process.

use crate::goal::PeerClaim;
use crate::row::RowPattern;

type Pairs = &'static [(&'static str, &'static str)];

const fn claim(
    title: &'static str,
    figure: f64,
    case: &'static str,
    params: Pairs,
    metric: &'static str,
) -> PeerClaim {
    PeerClaim { title, figure, ours: RowPattern { target: "dunlin", case, params, metric } }
}

const BASELINE: &str = "baseline_1x1_10k";
const FANOUT: &str = "fanout_1x100_1k";
const MULTI: &str = "multi_100x10_500";
const SLOW: &str = "slow_client";
const LOSS: &str = "loss_1x10_1k";

const INPROC: Pairs = &[("transport", "inproc"), ("wait", "default")];
const TCP: Pairs = &[("transport", "tcp"), ("wait", "default")];
const INPROC_500: Pairs = &[("transport", "inproc"), ("rate", "500")];
const TCP_500: Pairs = &[("transport", "tcp"), ("rate", "500")];
const INPROC_CONFLATED: Pairs = &[("transport", "inproc"), ("conflate", "yes")];

/// The figures from MDD-Sim's document, and those that we measured with MDD-Sim.
pub const CLAIMS: &[PeerClaim] = &[
    claim("baseline, delivered", 9_999.74, BASELINE, INPROC, "deliveries_per_s"),
    claim("baseline, p50", 20_000.0, BASELINE, INPROC, "sent_p50_ns"),
    claim("baseline, p99", 43_000.0, BASELINE, INPROC, "sent_p99_ns"),
    claim("baseline, p999", 89_000.0, BASELINE, INPROC, "sent_p999_ns"),
    claim("fan-out, delivered", 99_966.8, FANOUT, INPROC, "deliveries_per_s"),
    claim("fan-out, p50", 501_000.0, FANOUT, INPROC, "sent_p50_ns"),
    claim("fan-out, p99", 2_575_000.0, FANOUT, INPROC, "sent_p99_ns"),
    claim("fan-out, p999", 21_520_000.0, FANOUT, INPROC, "sent_p999_ns"),
    claim("100 instruments, delivered", 46_048.3, MULTI, INPROC_500, "deliveries_per_s"),
    claim("100 instruments, p50", 361_942_000.0, MULTI, INPROC_500, "sent_p50_ns"),
    claim("100 instruments, p99", 971_871_000.0, MULTI, INPROC_500, "sent_p99_ns"),
    claim("100 instruments, p999", 1_147_150_000.0, MULTI, INPROC_500, "sent_p999_ns"),
    claim(
        "slow client, p50 (ours: staleness, conflated)",
        140_012_000.0,
        SLOW,
        INPROC_CONFLATED,
        "stale_p50_ns",
    ),
    claim(
        "slow client, p99 (ours: staleness, conflated)",
        266_779_000.0,
        SLOW,
        INPROC_CONFLATED,
        "stale_p99_ns",
    ),
    claim("loss, delivered", 9_601.12, LOSS, INPROC, "deliveries_per_s"),
    claim("loss, what came by itself, p50", 67_000.0, LOSS, INPROC, "direct_p50_ns"),
    claim("loss, what came by itself, p99", 234_000.0, LOSS, INPROC, "direct_p99_ns"),
    claim("loss, what came by itself, p999", 1_546_000.0, LOSS, INPROC, "direct_p999_ns"),
    claim("reference elsewhere, over TCP: baseline, p50", 41_000.0, BASELINE, TCP, "sent_p50_ns"),
    claim("reference elsewhere, over TCP: baseline, p99", 83_000.0, BASELINE, TCP, "sent_p99_ns"),
    claim("reference elsewhere, over TCP: fan-out, delivered", 97_611.0, FANOUT, TCP, "deliveries_per_s"),
    claim("reference elsewhere, over TCP: fan-out, p50", 238e6, FANOUT, TCP, "sent_p50_ns"),
    claim(
        "reference elsewhere, over TCP: 100 instruments, delivered",
        74_055.0,
        MULTI,
        TCP_500,
        "deliveries_per_s",
    ),
    claim("reference elsewhere, over TCP: 100 instruments, p50", 276e6, MULTI, TCP_500, "sent_p50_ns"),
    claim(
        "reference elsewhere, over TCP: 1 client, highest clean rate",
        60_000.0,
        "limits",
        &[("of", "rate"), ("clients", "1")],
        "source_per_s",
    ),
    claim("reference elsewhere: replay", 4.2e6, "replay", &[("book", "l2")], "events_per_s"),
    claim(
        "reference elsewhere: 100 clients, most deliveries",
        114_000.0,
        "limits",
        &[("of", "deliveries")],
        "deliveries_per_s",
    ),
];
