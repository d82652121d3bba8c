//! The options of suite `feed`.

use std::num::NonZeroU32;
use std::time::Duration;

use anyhow::{Result, ensure};
use dunlin_feed::InstrumentsText;

/// The options of suite `feed` as the user typed them, before validation.
#[derive(Clone, Debug, Default)]
pub struct RawFeedOptions {
    /// `--config`: the contents of a file with the user's own instruments.
    pub config: Option<InstrumentsText>,
    /// `--clients`: the number of clients.
    pub clients: Option<usize>,
    /// `--instrument`: the instruments to which clients subscribe.
    pub instruments: Vec<String>,
    /// `--depth`: the number of price levels that a client shows.
    pub depth: Option<usize>,
    /// `--delay-ms`: the time that a client spends on each message, in ms.
    pub delay_ms: Option<u64>,
    /// `--test-loss-every`: withhold every nth update from the clients, to simulate losses.
    pub test_loss_every: Option<u32>,
    /// `--seed`: the seed of the random updates.
    pub seed: Option<u64>,
}

/// The validated options of suite `feed`.
#[derive(Clone, Debug)]
pub struct FeedOptions {
    /// The user's own instruments; `None` for the instruments of each scenario.
    pub config: Option<InstrumentsText>,
    /// The number of clients; `None` for the default of each scenario.
    pub clients: Option<usize>,
    /// The instruments to which clients subscribe; if there are none, all instruments.
    pub instruments: Vec<String>,
    /// The number of price levels that a client shows.
    pub depth: usize,
    /// The time that a client spends on each message; `None` for the default of each scenario.
    pub delay: Option<Duration>,
    /// Every nth update is withheld from the clients, to simulate losses; `None` for the default of each scenario.
    pub test_loss_every: Option<NonZeroU32>,
    /// The seed of the random updates.
    pub seed: u64,
    /// The duration of the warm-up at the start of each run. Updates that are due during the warm-up do not count.
    pub warmup: Duration,
    /// The duration of the part of each run in which updates count. This part follows the warm-up.
    pub time: Duration,
}

const CLIENTS_MAX: usize = 10_000;
const DEPTH_DEFAULT: usize = 10;
const SEED_DEFAULT: u64 = 123;

impl RawFeedOptions {
    /// Validates the options. `times` contains the durations of the warm-up and of the measurement, if the user gave
    /// them.
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
