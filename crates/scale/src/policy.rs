//! Defines the policies by which a scaler decides: bounds, thresholds and delays. [`Policy::cloud`] has the numbers of
//! Dunlin's requirements for cloud machines, where a worker starts in 45 s. [`Policy::local`] has numbers for processes
//! on this machine.

use crate::limits::ScalerLimits;
use crate::trigger::ScaleOutTrigger;
use crate::windows::WeeklyWindow;

/// The rules by which a scaler adds and removes workers.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// The minimum number of workers.
    pub workers_min: u32,
    /// The maximum number of workers.
    pub workers_max: u32,
    /// The thresholds above which workers are added.
    pub triggers: ScaleThresholds,
    /// How workers are added.
    pub scale_out: ScaleOutPolicy,
    /// How workers are removed.
    pub scale_in: ScaleInPolicy,
    /// How workers are added because of forecasts; `None` if the scaler uses no forecasts.
    pub predictive: Option<ForecastPolicy>,
    /// The schedule: periods of the week in which a minimum number of workers run.
    pub windows: Vec<WeeklyWindow>,
    /// The warm pool, which contains prepared workers.
    pub warm: WarmPoolPolicy,
    /// How many of the workers are spot instances.
    pub spot: SpotPolicy,
}

/// The thresholds of a scaler. It adds workers when the load, the number of waiting tasks or their waiting time exceeds
/// a threshold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScaleThresholds {
    /// The scaler's target for the load of the workers, from 0 to 1. Above this load, the scaler adds workers.
    pub cpu_target: f64,
    /// If the load of the workers is below this, the scaler may remove workers.
    pub cpu_low: f64,
    /// The number of waiting tasks above which the scaler adds workers. Tasks count only if one more worker could start
    /// them now.
    pub queue_max: u64,
    /// The threshold for the time from a task's submission to its start, in ms. If the 99th percentile (P99) of this
    /// time is higher, the scaler adds workers.
    pub latency_ms_max: u64,
    /// How soon the waiting tasks should be completed once workers are added, in ms.
    pub catch_up_ms: u64,
}

/// When a scaler adds workers, and how many at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScaleOutPolicy {
    /// How long a measurement must exceed its threshold before the scaler detects a trigger, in ms.
    pub detect_ms: u64,
    /// How long the scaler goes on observing between the detection of a trigger and the decision, in ms. There is one
    /// time for each trigger: load, queue, latency and forecast.
    pub decide_ms: [u64; 4],
    /// How many workers may be added in any period of `step_ms`, in percent of the workers at its start. If
    /// `step_workers` is more, that number is allowed instead.
    pub step_percent: u32,
    /// How many workers may be added in any period of `step_ms`, even if `step_percent` allows fewer.
    pub step_workers: u32,
    /// The length of the periods for `step_percent` and `step_workers`, in ms.
    pub step_ms: u64,
}

/// When a scaler removes workers, and how many at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScaleInPolicy {
    /// How long fewer workers must be enough, without interruption, before workers are removed, in ms.
    pub cooldown_ms: u64,
    /// How long the scaler goes on observing after the cooldown before it decides, in ms.
    pub decide_ms: u64,
    /// How long a worker may take to finish its tasks, in ms. If one of these tasks has a longer timeout, the worker
    /// gets this longer time.
    pub drain_ms: u64,
    /// How many workers are removed at a time, in percent of the present workers, but at least one.
    pub step_percent: u32,
    /// Workers are removed only if the required number of workers is lower than the present number by at least this
    /// many percent.
    pub tolerance_percent: u32,
}

/// How a scaler adds workers before the tasks arrive that a forecast predicts.
#[derive(Debug, Clone, PartialEq)]
pub struct ForecastPolicy {
    /// How far ahead the scaler looks, in ms. This must be longer than the time that the decision to add a worker and
    /// the start of the worker take together.
    pub lead_ms: u64,
    /// The length of a bucket in ms. A bucket is an interval for which the history of arrivals has one mean value.
    pub bucket_ms: u64,
    /// The lengths of the seasons, which are the periods after which arrivals repeat, in buckets. The shortest comes
    /// first.
    pub seasons: Vec<usize>,
    /// The quantile of the forecast that is used as its upper bound, from 0.5 to 1.
    pub quantile: f64,
    /// The scaler adds workers because of a forecast only if the forecast requires more workers than the present
    /// number, by at least this many percent.
    pub rise_percent: u32,
    /// If the mean error of recent forecasts exceeds this share of the actual values, the scaler stops using forecasts.
    pub error_max: f64,
    /// If the mean error of recent forecasts is again at most this share of the actual values, the scaler uses
    /// forecasts again.
    pub error_good: f64,
}

/// How a scaler uses its warm pool, which contains prepared workers that do not take tasks yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WarmPoolPolicy {
    /// The number of workers in the pool.
    pub size: u32,
    /// How long a measurement must exceed its threshold before the scaler takes workers from the pool, in ms. This can
    /// be short, because an unnecessary worker from the pool costs little.
    pub detect_ms: u64,
    /// Whether a removed worker returns to the pool if the pool has room. Local processes end instead of returning.
    pub takes_drained: bool,
}

/// How a scaler uses spot instances, which cost less but may be interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpotPolicy {
    /// The percentage of spot instances among the workers beyond `base`.
    pub percent: u32,
    /// The number of workers that are always on-demand instances.
    pub base: u32,
    /// If this many spot instances are refused or interrupted within `fallback_ms`, the scaler launches only on-demand
    /// instances for some time.
    pub fallback_after: u32,
    /// If `fallback_after` refusals and interruptions happen within this time, in ms, the scaler launches only
    /// on-demand instances for the same length of time.
    pub fallback_ms: u64,
}

/// Why a scaling policy is invalid.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PolicyError {
    /// The minimum number of workers exceeds the maximum number, or the maximum number is 0 or above the limit.
    #[error(
        "workers_min is {workers_min} and workers_max is {workers_max}: workers_max must be 1 to {most}, and workers_min not more than workers_max"
    )]
    Bounds {
        /// The minimum number of workers in the policy.
        workers_min: u32,
        /// The maximum number of workers in the policy.
        workers_max: u32,
        /// The highest maximum number that [`ScalerLimits`] allow.
        most: u32,
    },
    /// A number is out of its range, which may depend on another number of the policy.
    #[error("{what} is {value}: it must be greater than {above} and at most {most}")]
    Share {
        /// The name of the number.
        what: &'static str,
        /// The number in the policy.
        value: f64,
        /// The number must be greater than this bound.
        above: f64,
        /// The number must not be greater than this bound.
        most: f64,
    },
    /// A time is too short.
    #[error("{what} is {value_ms} ms: it must be at least {least_ms} ms")]
    Time {
        /// The name of the time.
        what: &'static str,
        /// The time in the policy, in ms.
        value_ms: u64,
        /// The shortest allowed time, in ms.
        least_ms: u64,
    },
    /// The policy has too many items of a kind, such as periods of the schedule.
    #[error("{count} {what} exceed the limit of {most}")]
    TooMany {
        /// The name of the items.
        what: &'static str,
        /// The number of items in the policy.
        count: usize,
        /// The largest allowed number of items.
        most: usize,
    },
}

const SEASON_BUCKETS: usize = 24;
/// How far ahead a scaler of local processes looks, in ms. The processes start in less time than this.
const LOCAL_LEAD_MS: u64 = 5_000;

impl Policy {
    /// Returns the policy of Dunlin's requirements for cloud machines.
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

    /// Returns a policy for processes on this machine, which start within a second.
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

    /// Returns this policy with a warm pool of local processes. A worker is taken from the pool when two samples in a
    /// row exceed a threshold.
    pub fn with_local_pool(self, size: u32) -> Policy {
        Policy { warm: WarmPoolPolicy { size, detect_ms: 0, takes_drained: false }, ..self }
    }

    /// Returns this policy with forecasts, and with the forecast delays of Dunlin's requirements. A bucket takes
    /// `bucket_ms`, and `seasons` are lengths in buckets.
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

    /// Returns this policy with forecasts for work that repeats every `season_ms`, and for workers that start within
    /// seconds.
    pub fn with_season(self, season_ms: u64) -> Policy {
        let bucket_ms = season_ms / SEASON_BUCKETS as u64;
        let Policy { predictive, .. } = self.clone().with_forecast(bucket_ms, vec![SEASON_BUCKETS]);
        let lead_ms = bucket_ms.max(LOCAL_LEAD_MS);
        Policy { predictive: predictive.map(|predictive| ForecastPolicy { lead_ms, ..predictive }), ..self }
    }

    /// Returns how long, in ms, the scaler goes on observing before it decides. `trigger` is the reason to add workers.
    pub(crate) fn decide_ms(&self, trigger: ScaleOutTrigger) -> u64 {
        match trigger {
            ScaleOutTrigger::Cpu => self.scale_out.decide_ms[0],
            ScaleOutTrigger::Queue => self.scale_out.decide_ms[1],
            ScaleOutTrigger::Latency => self.scale_out.decide_ms[2],
            ScaleOutTrigger::Predictive => self.scale_out.decide_ms[3],
            ScaleOutTrigger::Scheduled | ScaleOutTrigger::Bounds => 0,
        }
    }

    /// Checks all values of the policy.
    ///
    /// # Errors
    ///
    /// Returns the first invalid value that is found, as a [`PolicyError`].
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
    // NaN is refused, too, because all comparisons with NaN are false.
    if value > above && value <= most { Ok(()) } else { Err(PolicyError::Share { what, value, above, most }) }
}

fn check_min_time(what: &'static str, value_ms: u64, least_ms: u64) -> Result<(), PolicyError> {
    if value_ms >= least_ms { Ok(()) } else { Err(PolicyError::Time { what, value_ms, least_ms }) }
}
