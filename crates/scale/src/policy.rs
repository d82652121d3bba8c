//! Scaling policies: bounds, targets and delays.
//! [`Policy::cloud`] has the numbers of Dunlin's requirements (cloud machines, 45 s to start a pod).
//! [`Policy::local`] has numbers for processes of this machine.

use crate::limits::ScalerLimits;
use crate::trigger::ScaleOutTrigger;
use crate::windows::WeeklyWindow;

/// The rules by which a scaler adds and removes workers.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Minimum number of workers.
    pub workers_min: u32,
    /// Maximum number of workers.
    pub workers_max: u32,
    /// Thresholds that trigger scaling.
    pub triggers: ScaleThresholds,
    /// The rules for scaling out.
    pub scale_out: ScaleOutPolicy,
    /// The rules for scaling in.
    pub scale_in: ScaleInPolicy,
    /// The rules for scaling by a forecast; `None` to scale by measurements alone.
    pub predictive: Option<ForecastPolicy>,
    /// The schedule's periods with a minimum of workers.
    pub windows: Vec<WeeklyWindow>,
    /// The pool of prepared workers.
    pub warm: WarmPoolPolicy,
    /// Workers of the spot market.
    pub spot: SpotPolicy,
}

/// The measurements above which a scaler adds workers: processor load, waiting tasks and latency.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScaleThresholds {
    /// Target load of processors, 0 to 1. The scaler aims at this load and adds workers above it.
    pub cpu_target: f64,
    /// Scaling in happens only below this load.
    pub cpu_low: f64,
    /// The number of startable waiting tasks above which the scaler adds workers.
    pub queue_max: u64,
    /// The P99 of the time from submission to start, in ms, above which the scaler adds workers.
    pub latency_ms_max: u64,
    /// The time within which the added workers should complete the waiting tasks, in ms.
    pub catch_up_ms: u64,
}

/// The rules for adding workers: when, and how many at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScaleOutPolicy {
    /// How long a measurement must exceed its threshold before the scaler reacts, in ms.
    pub detect_ms: u64,
    /// How long the scaler observes a detected excess before it decides, in ms: for processors, queue, latency and
    /// forecast.
    pub decide_ms: [u64; 4],
    /// How many workers may be added within `step_ms`, in percent of the present workers. If `step_workers` is more,
    /// that number is the limit instead.
    pub step_percent: u32,
    /// How many workers may be added within `step_ms` if `step_percent` allows fewer.
    pub step_workers: u32,
    /// The time in which `step_percent` and `step_workers` limit the added workers, ms.
    pub step_ms: u64,
}

/// The rules for removing workers: when, and how many at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScaleInPolicy {
    /// How long fewer workers must suffice without interruption before the scaler removes workers, in ms.
    pub cooldown_ms: u64,
    /// How long the scaler observes after the cooldown before it decides, in ms.
    pub decide_ms: u64,
    /// Minimum time to drain a worker, ms; the longest timeout of a held task applies if it is longer.
    pub drain_ms: u64,
    /// Maximum number of workers removed at a time, in percent of the present workers; at least one worker.
    pub step_percent: u32,
    /// The smallest reduction that the scaler makes, in percent of the present workers.
    pub tolerance_percent: u32,
}

/// The rules of a scaling policy for adding workers ahead of forecast load.
#[derive(Debug, Clone, PartialEq)]
pub struct ForecastPolicy {
    /// How far ahead the scaler uses forecasts, in ms. This time must be longer than the time to decide on a worker and
    /// to start it.
    pub lead_ms: u64,
    /// Length of a bucket of the series, ms.
    pub bucket_ms: u64,
    /// Lengths of the seasons, in buckets; the shortest first.
    pub seasons: Vec<usize>,
    /// The quantile of the forecast's upper bound, from 0.5 to 1.
    pub quantile: f64,
    /// The smallest predicted rise to which the scaler reacts, in percent.
    pub rise_percent: u32,
    /// The mean error of recent forecasts, as a share of the actual values, above which the scaler ignores forecasts.
    pub error_max: f64,
    /// The mean error, as a share, below which the scaler uses forecasts again.
    pub error_good: f64,
}

/// The rules of a scaling policy for the warm pool: prepared workers that do not take tasks yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WarmPoolPolicy {
    /// The number of prepared workers in the pool.
    pub size: u32,
    /// How long a measurement must exceed its threshold before the scaler takes workers from the pool, in ms. This time
    /// can be short, because it costs little to take a worker that turns out not to be needed.
    pub detect_ms: u64,
    /// Whether drained instances return to the pool if it has room. Local processes never return; they end.
    pub takes_drained: bool,
}

/// The rules of a scaling policy for spot instances, which are cheaper and may be interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpotPolicy {
    /// Percentage of spot instances among the workers beyond `base`.
    pub percent: u32,
    /// Number of workers that are always on demand.
    pub base: u32,
    /// The number of refusals and interruptions of spot instances within `fallback_ms` after which the scaler launches
    /// only on-demand instances, for `fallback_ms`.
    pub fallback_after: u32,
    /// The duration in ms over which `fallback_after` counts, and for which the scaler then launches only on-demand
    /// instances.
    pub fallback_ms: u64,
}

/// The reason why a scaling policy is invalid.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PolicyError {
    /// The bounds are in the wrong order, or too high.
    #[error(
        "workers_min is {workers_min} and workers_max is {workers_max}: workers_max must be 1 to {most}, and workers_min not more than workers_max"
    )]
    Bounds {
        /// The policy's minimum number of workers.
        workers_min: u32,
        /// The policy's maximum number of workers.
        workers_max: u32,
        /// The highest maximum that the limits allow.
        most: u32,
    },
    /// A number is outside of its range, or contradicts another number.
    #[error("{what} is {value}: it must be greater than {above} and at most {most}")]
    Share {
        /// The name of the invalid number.
        what: &'static str,
        /// The invalid number.
        value: f64,
        /// The bound that the value must exceed.
        above: f64,
        /// The greatest allowed value.
        most: f64,
    },
    /// A time is too short.
    #[error("{what} is {value_ms} ms: it must be at least {least_ms} ms")]
    Time {
        /// The name of the time that is too short.
        what: &'static str,
        /// The time that the policy has, in ms.
        value_ms: u64,
        /// The smallest allowed value, ms.
        least_ms: u64,
    },
    /// The number of the named items exceeds the limit.
    #[error("{count} {what} exceed the limit of {most}")]
    TooMany {
        /// The name of the counted items.
        what: &'static str,
        /// The number of these items in the policy.
        count: usize,
        /// The largest allowed number of these items.
        most: usize,
    },
}

const SEASON_BUCKETS: usize = 24;
/// How far ahead forecasts for local processes reach, in ms. The processes start in less time.
const LOCAL_LEAD_MS: u64 = 5_000;

impl Policy {
    /// The policy of Dunlin's requirements for cloud machines.
    pub fn cloud(workers_min: u32, workers_max: u32) -> Policy {
        Policy {
            workers_min,
            workers_max,
            triggers: ScaleThresholds {
                cpu_target: 0.70,
                cpu_low: 0.56,
                queue_max: 5_000,
                latency_ms_max: 2_000,
                catch_up_ms: 60_000,
            },
            scale_out: ScaleOutPolicy {
                detect_ms: 60_000,
                decide_ms: [15_000, 10_000, 20_000, 10_000],
                step_percent: 25,
                step_workers: 20,
                step_ms: 60_000,
            },
            scale_in: ScaleInPolicy {
                cooldown_ms: 300_000,
                decide_ms: 60_000,
                drain_ms: 60_000,
                step_percent: 25,
                tolerance_percent: 10,
            },
            predictive: None,
            windows: Vec::new(),
            warm: WarmPoolPolicy::default(),
            spot: SpotPolicy::default(),
        }
    }

    /// A policy for processes of this machine, which start within a second.
    pub fn local(workers_min: u32, workers_max: u32) -> Policy {
        let cloud = Policy::cloud(workers_min, workers_max);
        Policy {
            triggers: ScaleThresholds {
                queue_max: 100,
                latency_ms_max: 500,
                catch_up_ms: 5_000,
                ..cloud.triggers
            },
            scale_out: ScaleOutPolicy {
                detect_ms: 1_000,
                decide_ms: [500, 500, 500, 500],
                step_percent: 100,
                step_workers: 4,
                step_ms: 1_000,
            },
            scale_in: ScaleInPolicy {
                cooldown_ms: 10_000,
                decide_ms: 2_000,
                drain_ms: 5_000,
                ..cloud.scale_in
            },
            ..cloud
        }
    }

    /// Adds a warm pool of local processes. The pool is used when two consecutive samples exceed a threshold.
    pub fn with_local_pool(self, size: u32) -> Policy {
        Policy { warm: WarmPoolPolicy { size, detect_ms: 0, takes_drained: false }, ..self }
    }

    /// Adds forecasts with the delays of Dunlin's requirements. `seasons` are counted in buckets of `bucket_ms`.
    pub fn with_forecast(self, bucket_ms: u64, seasons: Vec<usize>) -> Policy {
        let predictive = ForecastPolicy {
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

    /// Adds forecasts of work that repeats every `season_ms`, for workers that start within seconds.
    pub fn with_season(self, season_ms: u64) -> Policy {
        let bucket_ms = season_ms / SEASON_BUCKETS as u64;
        let Policy { predictive, .. } = self.clone().with_forecast(bucket_ms, vec![SEASON_BUCKETS]);
        let lead_ms = bucket_ms.max(LOCAL_LEAD_MS);
        Policy { predictive: predictive.map(|predictive| ForecastPolicy { lead_ms, ..predictive }), ..self }
    }

    /// Returns how long the scaler observes a detected trigger before it decides, in ms.
    pub(crate) fn decide_ms(&self, trigger: ScaleOutTrigger) -> u64 {
        match trigger {
            ScaleOutTrigger::Cpu => self.scale_out.decide_ms[0],
            ScaleOutTrigger::Queue => self.scale_out.decide_ms[1],
            ScaleOutTrigger::Latency => self.scale_out.decide_ms[2],
            ScaleOutTrigger::Predictive => self.scale_out.decide_ms[3],
            ScaleOutTrigger::Scheduled | ScaleOutTrigger::Bounds => 0,
        }
    }

    /// Validates the policy.
    ///
    /// # Errors
    ///
    /// [`PolicyError`] for the first value that is out of its range.
    pub fn check(&self, limits: &ScalerLimits) -> Result<(), PolicyError> {
        let Policy { workers_min, workers_max, .. } = *self;
        if workers_min > workers_max || !(1..=limits.workers_max).contains(&workers_max) {
            return Err(PolicyError::Bounds { workers_min, workers_max, most: limits.workers_max });
        }
        let ScaleThresholds { cpu_target, cpu_low, .. } = self.triggers;
        check_range("the target of processors", cpu_target, 0.0, 1.0)?;
        check_range("the low mark of processors", cpu_low, 0.0, cpu_target)?;
        check_min_time("catch_up", self.triggers.catch_up_ms, 1)?;
        check_range("the step out, in percent,", f64::from(self.scale_out.step_percent), 0.0, 10_000.0)?;
        check_range("the step in, in percent,", f64::from(self.scale_in.step_percent), 0.0, 100.0)?;
        check_range("the share of spot, in percent,", f64::from(self.spot.percent), -1.0, 100.0)?;
        let (count, most) = (self.windows.len(), limits.windows_max);
        if count > most {
            return Err(PolicyError::TooMany { what: "windows", count, most });
        }
        self.windows.iter().try_for_each(WeeklyWindow::check)?;
        self.predictive.as_ref().map_or(Ok(()), |predictive| predictive.check(limits))
    }
}

impl ForecastPolicy {
    fn check(&self, limits: &ScalerLimits) -> Result<(), PolicyError> {
        check_min_time("bucket", self.bucket_ms, 1)?;
        check_min_time("lead", self.lead_ms, 1)?;
        check_range("the quantile", self.quantile, 0.5, 0.9999)?;
        check_range("the error beyond which forecasts do not count", self.error_max, 0.0, 10.0)?;
        check_range("the error below which they do again", self.error_good, 0.0, self.error_max)?;
        check_range(
            "buckets of lead",
            (self.lead_ms / self.bucket_ms) as f64,
            -1.0,
            limits.buckets_max as f64 / 4.0,
        )?;
        let longest = self.seasons.iter().copied().max().unwrap_or(0);
        let shortest = self.seasons.iter().copied().min().unwrap_or(0);
        check_range("the shortest season, in buckets,", shortest as f64, 1.0, longest as f64)?;
        let (count, most) = (longest.saturating_mul(2), limits.buckets_max);
        if count > most {
            Err(PolicyError::TooMany { what: "buckets of history", count, most })
        } else {
            Ok(())
        }
    }
}

pub(crate) fn check_range(what: &'static str, value: f64, above: f64, most: f64) -> Result<(), PolicyError> {
    // NaN is refused too, because its comparisons are false.
    if value > above && value <= most { Ok(()) } else { Err(PolicyError::Share { what, value, above, most }) }
}

fn check_min_time(what: &'static str, value_ms: u64, least_ms: u64) -> Result<(), PolicyError> {
    if value_ms >= least_ms { Ok(()) } else { Err(PolicyError::Time { what, value_ms, least_ms }) }
}
