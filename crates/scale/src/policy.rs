//! What a user wants: bounds, targets, how long to look before doing anything.
//!
//! [`Policy::document`] has the numbers of the document that Dunlin is measured by (machines of a cloud, 45 s to a pod), [`Policy::local`]
//! those for processes of this machine.

use crate::limits::Limits;
use crate::trigger::Trigger;
use crate::windows::Window;

/// How many workers there are to be, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Never fewer.
    pub workers_min: u32,
    /// Never more.
    pub workers_max: u32,
    /// When there are too few.
    pub triggers: Triggers,
    /// How there come to be more.
    pub out: Out,
    /// How there come to be fewer.
    pub inward: Inward,
    /// Ahead of need, by a forecast; none for what is measured alone.
    pub predictive: Option<Predictive>,
    /// Ahead of need, by the hour.
    pub windows: Vec<Window>,
    /// Workers that are prepared and do not work.
    pub warm: Warm,
    /// Workers that may be taken away.
    pub spot: Spot,
}

/// Thresholds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Triggers {
    /// Beyond it there are too few workers; and where it is to be with the right number. A share, 0 to 1.
    pub cpu_target: f64,
    /// There are too many only below it.
    pub cpu_low: f64,
    /// Tasks that could start.
    pub queue_max: u64,
    /// P99 of the time from submission to start.
    pub latency_ms_max: u64,
    /// In how long a backlog is to be worked off.
    pub catch_up_ms: u64,
}

/// Scaling out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Out {
    /// A threshold is passed for so long before anything is decided.
    pub detect_ms: u64,
    /// Then each trigger is looked at for so long more: processors, queue, latency, forecast.
    pub decide_ms: [u64; 4],
    /// Within `step_ms` so many more at most, in percent of those there are, or as `step_workers` says, whichever is more.
    pub step_percent: u32,
    /// See `step_percent`.
    pub step_workers: u32,
    /// See `step_percent`.
    pub step_ms: u64,
}

/// Scaling in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inward {
    /// For so long fewer would have done, all the time.
    pub cooldown_ms: u64,
    /// Then all is looked at for so long more.
    pub decide_ms: u64,
    /// Workers that are to go have so long at least; the longest timeout of a task that is held, if that is longer.
    pub drain_ms: u64,
    /// So many at a time at most, in percent of those there are; one at least.
    pub step_percent: u32,
    /// Fewer by less than that, in percent, is not worth it.
    pub tolerance_percent: u32,
}

/// Scaling by a forecast: only out.
#[derive(Debug, Clone, PartialEq)]
pub struct Predictive {
    /// So far ahead; longer than it takes to decide and to get a worker.
    pub lead_ms: u64,
    /// The series is kept as means over so long.
    pub bucket_ms: u64,
    /// Seasons, in buckets; the shortest first.
    pub seasons: Vec<usize>,
    /// How sure it is to be that what is forecast suffices, 0.5 to 1.
    pub quantile: f64,
    /// A rise of less is not worth it, in percent.
    pub rise_percent: u32,
    /// The mean error of the last forecasts beyond which they are not gone by, a share.
    pub error_max: f64,
    /// And below which they are again.
    pub error_good: f64,
}

/// The warm pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Warm {
    /// So many are prepared.
    pub size: u32,
    /// They are woken when a threshold is passed for so long: to wake one in vain costs little.
    pub detect_ms: u64,
    /// Who has drained is prepared anew rather than ended, where the pool has room. Processes end when they have drained.
    pub takes_drained: bool,
}

/// Workers of the spot market.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spot {
    /// So many in a hundred of those beyond `base`.
    pub percent: u32,
    /// So many are always on demand.
    pub base: u32,
    /// So many refused or interrupted within `fallback_ms`, and the next are on demand, for as long.
    pub fallback_after: u32,
    /// See `fallback_after`.
    pub fallback_ms: u64,
}

/// What does not make a policy.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PolicyError {
    /// The bounds are the wrong way round, or beyond what there may be.
    #[error("from {workers_min} to {workers_max} workers: the lower first, and at most 1 to {most}")]
    Bounds {
        /// The lower.
        workers_min: u32,
        /// The upper.
        workers_max: u32,
        /// What there may be.
        most: u32,
    },
    /// A share that is none, or in the wrong order.
    #[error("{what} is {value}: it has to be more than {above} and at most {most}")]
    Share {
        /// Of what.
        what: &'static str,
        /// It.
        value: f64,
        /// It has to be more.
        above: f64,
        /// And at most this.
        most: f64,
    },
    /// A time that cannot be.
    #[error("{what} is {value_ms} ms: it has to be at least {least_ms} ms")]
    Time {
        /// Of what.
        what: &'static str,
        /// It.
        value_ms: u64,
        /// At least.
        least_ms: u64,
    },
    /// Too many of something.
    #[error("{count} {what}, and at most {most}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// So many.
        count: usize,
        /// At most.
        most: usize,
    },
}

/// A season is looked at in so many parts.
const SEASON_BUCKETS: usize = 24;
/// Processes of one machine are there well within it.
const LOCAL_LEAD_MS: u64 = 5_000;

impl Policy {
    /// The document's: thresholds, delays, bounds.
    pub fn document(workers_min: u32, workers_max: u32) -> Policy {
        Policy {
            workers_min,
            workers_max,
            triggers: Triggers {
                cpu_target: 0.70,
                cpu_low: 0.56,
                queue_max: 5_000,
                latency_ms_max: 2_000,
                catch_up_ms: 60_000,
            },
            out: Out {
                detect_ms: 60_000,
                decide_ms: [15_000, 10_000, 20_000, 10_000],
                step_percent: 25,
                step_workers: 20,
                step_ms: 60_000,
            },
            inward: Inward {
                cooldown_ms: 300_000,
                decide_ms: 60_000,
                drain_ms: 60_000,
                step_percent: 25,
                tolerance_percent: 10,
            },
            predictive: None,
            windows: Vec::new(),
            warm: Warm::default(),
            spot: Spot::default(),
        }
    }

    /// For processes of this machine, which are there within a second.
    pub fn local(workers_min: u32, workers_max: u32) -> Policy {
        let document = Policy::document(workers_min, workers_max);
        Policy {
            triggers: Triggers {
                queue_max: 100,
                latency_ms_max: 500,
                catch_up_ms: 5_000,
                ..document.triggers
            },
            out: Out {
                detect_ms: 1_000,
                decide_ms: [500, 500, 500, 500],
                step_percent: 100,
                step_workers: 4,
                step_ms: 1_000,
            },
            inward: Inward { cooldown_ms: 10_000, decide_ms: 2_000, drain_ms: 5_000, ..document.inward },
            ..document
        }
    }

    /// With so many processes of this machine that wait to be called, which they are at the second sample that asks for more.
    pub fn with_local_pool(self, size: u32) -> Policy {
        Policy { warm: Warm { size, detect_ms: 0, takes_drained: false }, ..self }
    }

    /// With forecasts by the document's delays: seasons in buckets of `bucket_ms`.
    pub fn with_forecast(self, bucket_ms: u64, seasons: Vec<usize>) -> Policy {
        let predictive = Predictive {
            lead_ms: 120_000,
            bucket_ms,
            seasons,
            quantile: 0.95,
            rise_percent: 2,
            error_max: 0.30,
            error_good: 0.15,
        };
        Policy { predictive: Some(predictive), ..self }
    }

    /// With forecasts of work that comes back every `season_ms`, for workers that are there within seconds.
    pub fn with_season(self, season_ms: u64) -> Policy {
        let bucket_ms = season_ms / SEASON_BUCKETS as u64;
        let Policy { predictive, .. } = self.clone().with_forecast(bucket_ms, vec![SEASON_BUCKETS]);
        let lead_ms = bucket_ms.max(LOCAL_LEAD_MS);
        Policy { predictive: predictive.map(|predictive| Predictive { lead_ms, ..predictive }), ..self }
    }

    /// How long a trigger is looked at once it is detected.
    pub(crate) fn decide_ms(&self, trigger: Trigger) -> u64 {
        match trigger {
            Trigger::Cpu => self.out.decide_ms[0],
            Trigger::Queue => self.out.decide_ms[1],
            Trigger::Latency => self.out.decide_ms[2],
            Trigger::Predictive => self.out.decide_ms[3],
            Trigger::Scheduled | Trigger::Bounds => 0,
        }
    }

    /// Whether it makes sense; a scaler takes no other.
    pub fn check(&self, limits: &Limits) -> Result<(), PolicyError> {
        let Policy { workers_min, workers_max, .. } = *self;
        if workers_min > workers_max || !(1..=limits.workers_max).contains(&workers_max) {
            return Err(PolicyError::Bounds { workers_min, workers_max, most: limits.workers_max });
        }
        let Triggers { cpu_target, cpu_low, .. } = self.triggers;
        share("the target of processors", cpu_target, 0.0, 1.0)?;
        share("the low mark of processors", cpu_low, 0.0, cpu_target)?;
        time("catch_up", self.triggers.catch_up_ms, 1)?;
        share("the step out, in percent,", f64::from(self.out.step_percent), 0.0, 10_000.0)?;
        share("the step in, in percent,", f64::from(self.inward.step_percent), 0.0, 100.0)?;
        share("the share of spot, in percent,", f64::from(self.spot.percent), -1.0, 100.0)?;
        let (count, most) = (self.windows.len(), limits.windows_max);
        if count > most {
            return Err(PolicyError::TooMany { what: "windows", count, most });
        }
        self.windows.iter().try_for_each(Window::check)?;
        self.predictive.as_ref().map_or(Ok(()), |predictive| predictive.check(limits))
    }
}

impl Predictive {
    fn check(&self, limits: &Limits) -> Result<(), PolicyError> {
        time("bucket", self.bucket_ms, 1)?;
        time("lead", self.lead_ms, 1)?;
        share("the quantile", self.quantile, 0.5, 0.9999)?;
        share("the error beyond which forecasts do not count", self.error_max, 0.0, 10.0)?;
        share("the error below which they do again", self.error_good, 0.0, self.error_max)?;
        share(
            "buckets of lead",
            (self.lead_ms / self.bucket_ms) as f64,
            -1.0,
            limits.buckets_max as f64 / 4.0,
        )?;
        let longest = self.seasons.iter().copied().max().unwrap_or(0);
        let shortest = self.seasons.iter().copied().min().unwrap_or(0);
        share("the shortest season, in buckets,", shortest as f64, 1.0, longest as f64)?;
        let (count, most) = (longest.saturating_mul(2), limits.buckets_max);
        if count > most {
            Err(PolicyError::TooMany { what: "buckets of history", count, most })
        } else {
            Ok(())
        }
    }
}

pub(crate) fn share(what: &'static str, value: f64, above: f64, most: f64) -> Result<(), PolicyError> {
    // What is no number is in no range.
    if value > above && value <= most { Ok(()) } else { Err(PolicyError::Share { what, value, above, most }) }
}

fn time(what: &'static str, value_ms: u64, least_ms: u64) -> Result<(), PolicyError> {
    if value_ms >= least_ms { Ok(()) } else { Err(PolicyError::Time { what, value_ms, least_ms }) }
}
