//! Computes the figures of one run of suite `feed`: the figures in the benchmark document of MDD-Sim (another system
//! for market data), and further figures for Dunlin's goals.

use anyhow::{Result, ensure};
use dunlin_feed::Instruments;

use crate::feed::scenario::FeedScenario;
use crate::feed::source::SourceTotals;
use crate::feed::tally::DeliveryTally;
use crate::point::RunSample;

/// The results of one run of suite `feed`: how many updates were due and how many were received, and their latencies.
#[derive(Clone, Debug)]
pub struct FeedFigures {
    /// The totals of all subscribers.
    pub tally: DeliveryTally,
    /// The number of updates that should be received, summed over all subscribers.
    pub due: u64,
    /// The number of records that were withheld to simulate losses, summed over all subscribers. The subscribers must
    /// detect and repair these losses.
    withheld: u64,
    sample: RunSample,
}

impl FeedFigures {
    /// Computes the figures from the totals of the source and of the subscribers.
    pub fn new(
        scenario: &FeedScenario,
        instruments: &Instruments,
        published: &SourceTotals,
        tallies: &[DeliveryTally],
        client_ns: Option<u64>,
    ) -> Self {
        let mut tally = DeliveryTally::default();
        tallies.iter().for_each(|other| tally.add(other));
        let read = match scenario.instruments.as_slice() {
            [] => instruments.list().len(),
            some => some.len(),
        };
        let due = due(published, scenario, instruments);
        let seconds = scenario.time.as_secs_f64();
        let sample = RunSample::new()
            .with("instruments", read as f64)
            .with("depth", scenario.depth as f64)
            .with("duration_ns", seconds * 1e9)
            .with("deliveries", tally.delivered as f64)
            .with("read_ns", tally.read_ns() as f64)
            .with("deliveries_per_s", tally.per_s(scenario.time));
        let sample = with_latencies(sample, &tally);
        let sample = sample
            .with("resyncs", tally.resyncs as f64)
            .with("errors", tally.errors as f64)
            .with("drops", due.saturating_sub(tally.delivered + tally.merged) as f64)
            .with("merged", tally.merged as f64)
            .with("source_per_s", published.due() as f64 * 1e9 / published.elapsed_ns.max(1) as f64)
            .with("slip_ns", published.slip_ns_max as f64)
            .with("node_cpu_s", published.processor_ns as f64 / 1e9)
            .with("holes", tally.holes as f64)
            .with("healed", tally.healed as f64)
            .with("divergent", tally.divergent as f64)
            .with("checked", tally.checked as f64);
        let sample = match client_ns {
            Some(client_ns) => sample.with("client_cpu_s", client_ns as f64 / 1e9),
            None => sample,
        };
        let withheld = withheld(published, scenario);
        Self { tally, due, withheld, sample }
    }

    /// Returns an error if a result is wrong regardless of the machine's speed, such as a wrong book.
    pub fn check(&self, scenario: &FeedScenario) -> Result<()> {
        let tally = &self.tally;
        ensure!(
            tally.divergent == 0,
            "{} books differ from the book of their topic's owner",
            tally.divergent
        );
        ensure!(tally.errors == 0, "replicas refused {} records or snapshots", tally.errors);
        if scenario.test_loss_every.is_some() && !scenario.conflate && scenario.delay.is_none() {
            // A subscriber that recovered with a snapshot has skipped records. Some of the skipped records may be
            // records that the test withheld; the subscriber cannot know which.
            let has_skipped = self.due > tally.delivered + tally.merged;
            ensure!(
                tally.holes == self.withheld || has_skipped && tally.holes < self.withheld,
                "{} records were dropped, but subscribers noticed {} gaps",
                self.withheld,
                tally.holes
            );
        }
        ensure!(
            tally.healed >= tally.holes,
            "subscribers noticed {} gaps, but repaired only {} books",
            tally.holes,
            tally.healed
        );
        Ok(())
    }

    /// Returns the figures as a sample of a measurement.
    pub fn sample(self) -> RunSample {
        self.sample
    }

    /// Whether every due update was delivered on its own, and none in a merged record or a snapshot.
    pub fn is_complete(&self) -> bool {
        self.tally.delivered == self.due
    }
}

fn due(published: &SourceTotals, scenario: &FeedScenario, instruments: &Instruments) -> u64 {
    let is_read = |topic: &str| {
        scenario.instruments.is_empty()
            || instruments.list().iter().any(|instrument| {
                instrument.topic() == topic && scenario.instruments.contains(&instrument.id)
            })
    };
    let due: u64 = published.lines.iter().filter(|line| is_read(&line.topic)).map(|line| line.due).sum();
    due * scenario.clients as u64
}

/// Returns the number of withheld records, summed over all clients.
fn withheld(published: &SourceTotals, scenario: &FeedScenario) -> u64 {
    let Some(every) = scenario.test_loss_every else { return 0 };
    let withheld: u64 = published.lines.iter().map(|line| line.last_seq / u64::from(every.get())).sum();
    withheld * scenario.clients as u64
}

fn with_latencies(sample: RunSample, tally: &DeliveryTally) -> RunSample {
    let sample = sample
        .with_time("sent_p50_ns", tally.sent.quantile_ns(0.50))
        .with_time("sent_p99_ns", tally.sent.quantile_ns(0.99))
        .with_time("sent_p999_ns", tally.sent.quantile_ns(0.999))
        .with_time("intended_p50_ns", tally.intended.quantile_ns(0.50))
        .with_time("intended_p99_ns", tally.intended.quantile_ns(0.99))
        .with_time("intended_p999_ns", tally.intended.quantile_ns(0.999));
    let sample = if tally.holes == 0 {
        sample
    } else {
        sample
            .with_time("direct_p50_ns", tally.direct.quantile_ns(0.50))
            .with_time("direct_p99_ns", tally.direct.quantile_ns(0.99))
            .with_time("direct_p999_ns", tally.direct.quantile_ns(0.999))
    };
    let by_processing = tally.stale_by_processing.quantile_ns(0.99);
    sample
        .with_time("stale_p50_ns", tally.stale.quantile_ns(0.50))
        .with_time("stale_p99_ns", tally.stale.quantile_ns(0.99))
        .with_optional("stale_p99_by_processing", by_processing.map(|thousandths| thousandths as f64 / 1e3))
}
