//! The performance goals for feeds.

use crate::goal::{Goal, Threshold};
use crate::row::RowPattern;

type Pairs = &'static [(&'static str, &'static str)];

const fn goal(
    title: &'static str,
    case: &'static str,
    params: Pairs,
    metric: &'static str,
    threshold: Threshold,
) -> Goal {
    Goal { title, ours: RowPattern { target: "dunlin", case, params, metric }, threshold }
}

use Threshold::{AtLeast, AtMost, TimesAtLeast, TimesAtMost};

const DURABLE: Pairs = &[("transport", "inproc")];
const JOURNAL: RowPattern =
    RowPattern { target: "journal", case: "durable", params: &[], metric: "msgs_per_s" };

const BASELINE: &str = "baseline_1x1_10k";
const FANOUT: &str = "fanout_1x100_1k";
const MULTI: &str = "multi_100x10_500";
const SLOW: &str = "slow_client";
const LOSS: &str = "loss_1x10_1k";

const INPROC: Pairs = &[("transport", "inproc"), ("wait", "default")];
const TCP: Pairs = &[("transport", "tcp"), ("wait", "default")];
const TCP_SPIN: Pairs = &[("transport", "tcp"), ("wait", "spin")];
const TCP_500: Pairs = &[("transport", "tcp"), ("wait", "default"), ("rate", "500")];
const TCP_CONFLATED: Pairs = &[("transport", "tcp"), ("conflate", "yes")];
const INPROC_CONFLATED: Pairs = &[("transport", "inproc"), ("conflate", "yes")];

const MIB: f64 = 1_048_576.0;
/// The highest allowed age of an update at a slow client, divided by the client's processing time. The processing time
/// is measured, because a sleep of 5 ms takes longer than 5 ms.
const STALE_BY_PROCESSING_MAX: f64 = 2.2;

/// The goals of suite `feed`. Subscribers must receive all updates, at the rate at which the updates are published. A
/// delay of some ms is allowed.
pub const GOALS: &[Goal] = &[
    goal("baseline over TCP, default waiting, p50 from sending", BASELINE, TCP, "sent_p50_ns", AtMost(41e3)),
    goal("baseline over TCP, default waiting, p99 from sending", BASELINE, TCP, "sent_p99_ns", AtMost(83e3)),
    goal("baseline over TCP, spinning, p50", BASELINE, TCP_SPIN, "sent_p50_ns", AtMost(15e3)),
    goal("baseline in process (the document's own mode), p50", BASELINE, INPROC, "sent_p50_ns", AtMost(20e3)),
    goal("baseline in process, p99", BASELINE, INPROC, "sent_p99_ns", AtMost(43e3)),
    goal("fan-out in process, p50", FANOUT, INPROC, "sent_p50_ns", AtMost(0.5e6)),
    goal("fan-out in process, p99", FANOUT, INPROC, "sent_p99_ns", AtMost(2.5e6)),
    goal("loss in process, what came by itself, p50", LOSS, INPROC, "direct_p50_ns", AtMost(67e3)),
    goal("loss in process, what came by itself, p99", LOSS, INPROC, "direct_p99_ns", AtMost(234e3)),
    goal("fan-out to 100 clients over TCP, delivered", FANOUT, TCP, "deliveries_per_s", AtLeast(99_900.0)),
    goal("fan-out to 100 clients over TCP, p50", FANOUT, TCP, "sent_p50_ns", AtMost(0.5e6)),
    goal("fan-out to 100 clients over TCP, p99", FANOUT, TCP, "sent_p99_ns", AtMost(2.5e6)),
    goal(
        "100 instruments to 10 clients over TCP, delivered",
        MULTI,
        TCP_500,
        "deliveries_per_s",
        AtLeast(499_500.0),
    ),
    goal("100 instruments to 10 clients over TCP, drops", MULTI, TCP_500, "drops", AtMost(0.0)),
    goal(
        "100 instruments to 10 clients over TCP, p99 from the time it was due",
        MULTI,
        TCP_500,
        "intended_p99_ns",
        AtMost(10e6),
    ),
    goal(
        "most deliveries to 100 TCP clients that apply to books",
        "limits",
        &[("of", "deliveries")],
        "deliveries_per_s",
        AtLeast(5e6),
    ),
    goal(
        "slow client, conflated, over TCP, staleness p99 ÷ its processing time",
        SLOW,
        TCP_CONFLATED,
        "stale_p99_by_processing",
        AtMost(STALE_BY_PROCESSING_MAX),
    ),
    goal(
        "slow client, conflated, in process, staleness p99 ÷ its processing time",
        SLOW,
        INPROC_CONFLATED,
        "stale_p99_by_processing",
        AtMost(STALE_BY_PROCESSING_MAX),
    ),
    goal("loss of every 50th over TCP, books that differ at the end", LOSS, TCP, "divergent", AtMost(0.0)),
    goal(
        "loss of every 50th over TCP, updates that did not come in the end",
        LOSS,
        TCP,
        "drops",
        AtMost(0.0),
    ),
    goal("replay with L2 apply, one core", "replay", &[("book", "l2")], "events_per_s", AtLeast(12e6)),
    goal(
        "L2 apply on a real recording",
        "apply",
        &[("book", "l2"), ("recording", "SELF-1.181223994")],
        "event_ns",
        AtMost(60.0),
    ),
    goal("L3 apply on the real recording", "apply", &[("book", "l3")], "event_ns", AtMost(90.0)),
    goal(
        "durable publish, 256 B, 64 in flight, fdatasync, beside the journal",
        "durable",
        DURABLE,
        "msgs_per_s",
        TimesAtLeast(0.8, JOURNAL),
    ),
    goal(
        "durable publish, 256 B, 64 in flight, fdatasync",
        "durable",
        DURABLE,
        "msgs_per_s",
        AtLeast(300_000.0),
    ),
    goal(
        "1,000 subscribers join a book of 10,000 levels, all in sync",
        "join",
        &[("subscribers", "1000")],
        "sync_ns",
        AtMost(2e9),
    ),
    goal(
        "1,000 subscribers join a book of 10,000 levels, growth of the node",
        "join",
        &[("subscribers", "1000")],
        "rss_bytes",
        AtMost(64.0 * MIB),
    ),
    goal(
        "1,000 subscribers join a book of 10,000 levels, p99 of `send` against nobody joining",
        "join",
        &[("subscribers", "1000")],
        "p99_ns",
        TimesAtMost(
            2.0,
            RowPattern { target: "dunlin", case: "join", params: &[("subscribers", "0")], metric: "p99_ns" },
        ),
    ),
];
