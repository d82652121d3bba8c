//! The options of suite `feed`.

use std::num::NonZeroU32;
use std::time::Duration;

use anyhow::{Result, ensure};
use dunlin_feed::InstrumentsText;

/// The options of suite `feed` as typed, before validation.
#[derive(Clone, Debug, Default)]
pub struct RawFeedOptions {
    /// `--config`: content of the instrument file.
    pub config: Option<InstrumentsText>,
    /// `--clients`: the number of clients.
    pub clients: Option<usize>,
    /// `--instrument`: the instruments to use.
    pub instruments: Vec<String>,
    /// `--depth`: the number of price levels in a view.
    pub depth: Option<usize>,
    /// `--delay-ms`: time that a client spends on each message.
    pub delay_ms: Option<u64>,
    /// `--test-loss-every`: withholds every nth update from the clients.
    pub test_loss_every: Option<u32>,
    /// `--seed`: the seed of random updates.
    pub seed: Option<u64>,
}

/// The validated options of suite `feed`.
#[derive(Clone, Debug)]
pub struct FeedOptions {
    /// The user's own instruments.
    pub config: Option<InstrumentsText>,
    /// The number of clients; `None` for the default of each scenario.
    pub clients: Option<usize>,
    /// The instruments to use; all if empty.
    pub instruments: Vec<String>,
    /// The number of price levels in a view.
    pub depth: usize,
    /// The time that a client spends on each message.
    pub delay: Option<Duration>,
    /// Withholds every nth update from the clients; `None` withholds no update.
    pub test_loss_every: Option<NonZeroU32>,
    /// The seed of the random updates.
    pub seed: u64,
    /// The duration of the warm-up at the start of each run, in which updates are not counted.
    pub warmup: Duration,
    /// The duration of the counted part of each run, after the warm-up.
    pub time: Duration,
}

const CLIENTS_MAX: usize = 10_000;
const DEPTH_DEFAULT: usize = 10;
const SEED_DEFAULT: u64 = 123;

impl RawFeedOptions {
    /// Validates the options. `times` are the requested warm-up and measuring time.
    pub(super) fn validate(
        self,
        times: (Option<Duration>, Option<Duration>),
        quick: bool,
    ) -> Result<FeedOptions> {
        let (warmup, time) = times;
        let (warmup_default, time_default) = if quick { (50, 200) } else { (500, 2_000) };
        ensure!(
            self.clients.is_none_or(|clients| (1..=CLIENTS_MAX).contains(&clients)),
            "--clients must be from 1 to {CLIENTS_MAX}"
        );
        ensure!(self.test_loss_every != Some(1), "--test-loss-every 1 drops every update: use 2 or more");
        if let Some(config) = &self.config {
            config.parse()?;
        }
        Ok(FeedOptions {
            config: self.config,
            clients: self.clients,
            instruments: self.instruments,
            depth: self.depth.unwrap_or(DEPTH_DEFAULT),
            delay: self.delay_ms.filter(|ms| *ms > 0).map(Duration::from_millis),
            test_loss_every: self.test_loss_every.and_then(NonZeroU32::new),
            seed: self.seed.unwrap_or(SEED_DEFAULT),
            warmup: warmup.unwrap_or(Duration::from_millis(warmup_default)),
            time: time.unwrap_or(Duration::from_millis(time_default)),
        })
    }
}
