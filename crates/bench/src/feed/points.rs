//! Defines the measurements of suite `feed`. Some of them repeat measurements in the benchmark document of MDD-Sim,
//! another system for market data.

use std::num::NonZeroU32;
use std::time::Duration;

use dunlin_feed::{InstrumentsText, Notation, SCENARIOS};

use crate::cores::CorePinning;
use crate::feed::scenario::{FeedScenario, ReaderPlacement, WaitMode};
use crate::feed::{
    apply, durable as durability, join as joining, limits as limit, replay as replaying, run,
    running_node as reading_from_running_node,
};
use crate::options::BenchOptions;
use crate::params::Params;
use crate::point::{BenchContext, Measurement, MeasurementGroup, target};

/// The time that the slow client in MDD-Sim's document spends on each message.
const DELAY: Duration = Duration::from_millis(5);
/// The number of records that a topic retains for slow clients without conflation. The server in MDD-Sim's document
/// retains the same number of records.
const SLOW_HISTORY_RECORDS: u64 = 256;
/// The number of bytes that a topic retains for slow clients without conflation.
const SLOW_HISTORY_BYTES: u64 = 32 << 10;
/// The simulated loss in MDD-Sim's document: every 50th record is withheld from the subscribers.
const LOSS_EVERY: NonZeroU32 = NonZeroU32::new(50).expect("not zero");
/// The default retention of a topic in bytes. It holds some seconds of updates at the rates of MDD-Sim's document.
const HISTORY_BYTES: u64 = 4 << 20;
/// The rates for 100 instruments, in updates per second of each instrument. The first rate is the one in MDD-Sim's
/// document; with the last rate, subscribers cannot keep up.
const MULTI_RATES: [u32; 5] = [500, 750, 1_000, 2_000, 4_000];

/// Returns the measurements of the five scenarios in MDD-Sim's document. With `--config`, returns the measurements of
/// one scenario with the user's instruments instead.
pub fn scenarios(options: &BenchOptions) -> Vec<MeasurementGroup> {
    if let Some(config) = &options.feed.config {
        let base = scenario(config.clone(), options.feed.clients.unwrap_or(10), options);
        return placements(&base).map(|scenario| vec![point("custom", scenario)]).collect();
    }
    let mut groups = baseline(options);
    groups
        .extend(placements(&built_in(1, 100, options)).map(|scenario| vec![point(SCENARIOS[1].0, scenario)]));
    groups.extend(multi(options));
    groups.extend(slow(options));
    let mut loss = built_in(3, 10, options);
    loss.test_loss_every = loss.test_loss_every.or(Some(LOSS_EVERY));
    groups.extend(placements(&loss).map(|scenario| vec![point(SCENARIOS[3].0, scenario)]));
    groups
}

/// Returns the measurement in which subscribers read from a node that is already running (`--url`).
pub fn running_node(options: &BenchOptions) -> MeasurementGroup {
    let clients = options.feed.clients.unwrap_or(10);
    let params = Params::new().with("transport", "tcp").with("topology", "brokered").with("clients", clients);
    vec![Measurement::new("custom", target::DUNLIN, params, move |bench: &BenchContext| {
        reading_from_running_node::measure(&bench.options, clients)
    })]
}

fn baseline(options: &BenchOptions) -> Vec<MeasurementGroup> {
    let base = built_in(0, 1, options);
    let waits = [WaitMode::Spin, WaitMode::Default, WaitMode::Parked];
    let of = |placement: ReaderPlacement| {
        waits.map(|wait| point(SCENARIOS[0].0, FeedScenario { placement, wait, ..base.clone() }))
    };
    vec![of(ReaderPlacement::Inproc).into(), of(ReaderPlacement::Tcp).into()]
}

fn multi(options: &BenchOptions) -> Vec<MeasurementGroup> {
    let base = built_in(2, 10, options);
    let rates = if options.quick { &MULTI_RATES[..1] } else { &MULTI_RATES };
    let step = |rate: &u32| {
        point(
            SCENARIOS[2].0,
            FeedScenario { rate: Some(*rate), placement: ReaderPlacement::Tcp, ..base.clone() },
        )
    };
    let inproc = FeedScenario { rate: Some(MULTI_RATES[0]), ..base.clone() };
    let mut groups = vec![vec![point(SCENARIOS[2].0, inproc)]];
    groups.extend(rates.iter().map(|rate| vec![step(rate)]));
    groups
}

fn slow(options: &BenchOptions) -> Vec<MeasurementGroup> {
    let mut base = built_in(1, 10, options);
    base.delay = base.delay.or(Some(DELAY));
    let of = |conflate: bool| {
        let mut scenario = FeedScenario { conflate, ..base.clone() };
        if !conflate {
            (scenario.history_records, scenario.history_bytes) =
                (Some(SLOW_HISTORY_RECORDS), SLOW_HISTORY_BYTES);
            // There is no warm-up: this client is so slow that it would still read the updates of a warm-up during the
            // measurement.
            scenario.warmup = Duration::ZERO;
        }
        placements(&scenario).map(|scenario| point("slow_client", scenario)).collect::<MeasurementGroup>()
    };
    vec![of(true), of(false)]
}

fn built_in(nth: usize, clients: usize, options: &BenchOptions) -> FeedScenario {
    let config = InstrumentsText { text: SCENARIOS[nth].1.to_owned(), notation: Notation::Json };
    scenario(config, options.feed.clients.unwrap_or(clients), options)
}

fn scenario(config: InstrumentsText, clients: usize, options: &BenchOptions) -> FeedScenario {
    let feed = &options.feed;
    FeedScenario {
        config,
        rate: None,
        placement: ReaderPlacement::Inproc,
        wait: WaitMode::Default,
        clients,
        instruments: feed.instruments.clone(),
        depth: feed.depth,
        warmup: feed.warmup,
        time: feed.time,
        delay: feed.delay,
        conflate: false,
        test_loss_every: feed.test_loss_every,
        every_record: false,
        history_records: None,
        history_bytes: HISTORY_BYTES,
        seed: feed.seed,
    }
}

fn placements(base: &FeedScenario) -> impl Iterator<Item = FeedScenario> {
    [ReaderPlacement::Inproc, ReaderPlacement::Tcp]
        .map(|placement| FeedScenario { placement, ..base.clone() })
        .into_iter()
}

fn point(case: &'static str, scenario: FeedScenario) -> Measurement {
    let mut params = Params::new()
        .with("transport", scenario.placement.name())
        .with("wait", scenario.wait.name())
        .with("clients", scenario.clients);
    if scenario.pin() == CorePinning::Apart {
        params = params.with("pin", scenario.pin().name());
    }
    if let Some(rate) = scenario.rate {
        params = params.with("rate", u64::from(rate));
    }
    if let Some(delay) = scenario.delay {
        params =
            params.with("delay_ms", delay.as_millis() as u64).with("conflate", yes_or_no(scenario.conflate));
    }
    if let Some(every) = scenario.test_loss_every {
        params = params.with("drop_every_n", u64::from(every.get()));
    }
    Measurement::new(case, target::DUNLIN, params, move |bench: &BenchContext| {
        let outcome = run::run(bench, &scenario)?;
        outcome.check(&scenario)?;
        Ok(outcome.sample())
    })
}

fn yes_or_no(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

/// Returns the measurements of the highest rate with which subscribers keep up, and of the highest delivery rate.
pub fn limits(options: &BenchOptions) -> MeasurementGroup {
    let sustained_rate = |clients: usize| {
        let base = FeedScenario { placement: ReaderPlacement::Tcp, ..built_in(0, clients, options) };
        let params = Params::new()
            .with("transport", "tcp")
            .with("wait", "default")
            .with("clients", clients)
            .with("of", "rate");
        Measurement::new("limits", target::DUNLIN, params, move |bench: &BenchContext| {
            limit::measure_sustained_rate(bench, &base)
        })
    };
    let clients = options.feed.clients.unwrap_or(if options.quick { 10 } else { 100 });
    let base = FeedScenario { placement: ReaderPlacement::Tcp, ..built_in(0, clients, options) };
    let params = Params::new()
        .with("transport", "tcp")
        .with("wait", "default")
        .with("clients", clients)
        .with("of", "deliveries");
    let max_deliveries = Measurement::new("limits", target::DUNLIN, params, move |bench: &BenchContext| {
        limit::measure_max_deliveries(bench, &base)
    });
    vec![sustained_rate(1), sustained_rate(clients), max_deliveries]
}

/// Returns the measurements of how long it takes to apply real recordings to order books.
pub fn apply() -> MeasurementGroup {
    let point = |(book, recording): (&'static str, &'static str)| {
        let params = Params::new().with("book", book).with("recording", recording);
        Measurement::new("apply", target::DUNLIN, params, move |_: &BenchContext| apply::measure(recording))
    };
    apply::RECORDINGS.map(point).into()
}

/// Returns the measurement of replaying a recording from files into a book.
pub fn replay(options: &BenchOptions) -> MeasurementGroup {
    let updates = options.count(4_000_000, 20_000);
    let params = Params::new().with("book", "l2").with("updates", updates);
    vec![Measurement::new("replay", target::DUNLIN, params, move |bench: &BenchContext| {
        replaying::measure(bench, updates)
    })]
}

/// Returns the measurements that compare a durable topic with a journal alone.
pub fn durable(options: &BenchOptions) -> MeasurementGroup {
    let commits = options.count(5_000, 50);
    let params = |transport: Option<&'static str>| {
        let params = Params::new();
        let params = transport.map_or(params.clone(), |transport| params.with("transport", transport));
        params.with("bytes", durability::BYTES).with("in_flight", durability::IN_FLIGHT)
    };
    let ours = |transport: &'static str| {
        Measurement::new("durable", target::DUNLIN, params(Some(transport)), move |_: &BenchContext| {
            durability::topic(transport, commits)
        })
    };
    let journal = move |_: &BenchContext| durability::journal(commits);
    vec![Measurement::new("durable", target::JOURNAL, params(None), journal), ours("inproc"), ours("tcp")]
}

/// Returns the measurements of many subscribers that join at the same time, and the comparison run.
pub fn join(options: &BenchOptions) -> MeasurementGroup {
    let subscribers = options.count(1_000, 20) as usize;
    let point = |subscribers: usize| {
        let params = Params::new().with("transport", "tcp").with("subscribers", subscribers);
        Measurement::new("join", target::DUNLIN, params, move |bench: &BenchContext| {
            joining::measure(bench, subscribers)
        })
    };
    vec![point(0), point(subscribers)]
}
