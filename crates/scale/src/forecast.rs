//! Forecasts how many tasks arrive, from the recurring patterns (seasons) and the trend of past arrivals.
//!
//! The past is divided into intervals of equal length, the buckets. The history has the mean arrival rate of each
//! bucket. After each bucket, MSTL (Bandara, Hyndman and Bergmeir 2021; the crate `augurs-mstl`) decomposes the history
//! into seasons. The forecast is the last value without its season, plus the season at the forecast time. The further
//! ahead the forecast is, the higher is its upper bound, as for a random walk. Each forecast is later compared with the
//! actual value. If the error exceeds `error_max`, the scaler ignores forecasts until the error is at most
//! `error_good`.
//!
//! Two alternatives were rejected. Exponential smoothing (`augurs-ets`) needs a linear algebra library, and supports
//! only one season. Prophet needs a compiled Stan model.

use std::collections::VecDeque;

use augurs_core::{Fit, Predict};
use augurs_mstl::MSTLModel;

use crate::policy::ForecastPolicy;

/// The number of recent forecasts that are compared with actual values.
const COMPARED: usize = 16;

/// A forecast of how many tasks arrive per second: the expected number, and an upper bound.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ArrivalForecast {
    /// The expected number of tasks per second.
    pub point: f64,
    /// An upper bound of the number of tasks per second: a quantile of the forecast. The field `quantile` of the policy
    /// states which one.
    pub upper: f64,
}

/// The latest forecast of a scaler, its recent error, and whether the scaler uses it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ForecastStatus {
    /// The highest forecast for the next `lead_ms`; `None` if the history is too short.
    pub ahead: Option<ArrivalForecast>,
    /// The number of workers that the forecast requires; 0 if there is no forecast, or if a worker's rate is unknown.
    pub workers: u32,
    /// Whether the scaler uses the forecast.
    pub is_trusted: bool,
    /// The mean error of all past forecasts, as a share of the actual values; `None` if no forecast was compared with
    /// an actual value yet.
    pub error: Option<f64>,
    /// How far the scaler looks ahead with forecasts, in ms.
    pub lead_ms: u64,
    /// The present length of the history, and the length that is necessary for the first forecast, both in ms.
    pub history_ms: (u64, u64),
}

/// Forecasts how many tasks arrive, and measures the errors of earlier forecasts.
#[derive(Debug, Clone)]
pub struct Forecaster {
    config: ForecastPolicy,
    buckets_max: usize,
    history: VecDeque<f64>,
    /// The sum and the number of the measurements in the present bucket.
    filling: (f64, u32),
    /// The number of the present bucket: the time divided by the length of a bucket.
    bucket: u64,
    /// The forecasts for the present bucket and the following ones.
    forecasts: Vec<ArrivalForecast>,
    /// The forecasts that were made one lead time ahead, for buckets that have not ended yet. Each has the bucket's
    /// number and the forecast value.
    predicted: VecDeque<(u64, f64)>,
    /// The recent comparisons of a forecast with the actual value. Each has the absolute error and the actual value.
    errors: VecDeque<(f64, f64)>,
    /// The sum of the absolute errors and the sum of the actual values, over all comparisons so far.
    compared: (f64, f64),
    is_trusted: bool,
}

impl Forecaster {
    /// Creates a forecaster with an empty history, which may grow to `buckets_max` buckets.
    pub fn new(config: ForecastPolicy, buckets_max: usize) -> Forecaster {
        Forecaster {
            config,
            buckets_max,
            history: VecDeque::new(),
            filling: (0.0, 0),
            bucket: 0,
            forecasts: Vec::new(),
            predicted: VecDeque::new(),
            errors: VecDeque::new(),
            compared: (0.0, 0.0),
            is_trusted: true,
        }
    }

    /// Appends past arrival rates to the history. Each of `means` is the mean rate in one bucket. The last mean belongs
    /// to the bucket before the one that contains `now_ms`.
    pub fn learn(&mut self, now_ms: u64, means: impl IntoIterator<Item = f64>) {
        means.into_iter().for_each(|mean| self.push_history(mean));
        self.bucket = now_ms / self.config.bucket_ms;
        self.fit();
    }

    /// Adds a measurement of the arrival rate: `per_s` tasks per second.
    pub fn record(&mut self, now_ms: u64, per_s: f64) {
        let bucket = now_ms / self.config.bucket_ms;
        if bucket > self.bucket {
            self.end_bucket();
            // A bucket without a measurement gets the value of the bucket before it. If `buckets_max` or more buckets
            // in a row have no measurement, the history is cleared instead.
            let missed = bucket - self.bucket - 1;
            if missed as usize >= self.buckets_max {
                self.history.clear();
            } else {
                let last = self.history.back().copied().unwrap_or(0.0);
                (0..missed).for_each(|_| self.push_history(last));
            }
            self.bucket = bucket;
            self.fit();
        }
        if per_s.is_finite() {
            self.filling = (self.filling.0 + per_s.max(0.0), self.filling.1 + 1);
        }
    }

    /// Returns the highest forecast from `now_ms` to `until_ms`; `None` if the history is too short, or if recent
    /// errors are too large.
    pub fn trusted_forecast(&self, now_ms: u64, until_ms: u64) -> Option<ArrivalForecast> {
        self.peak_forecast(now_ms, until_ms).filter(|_| self.is_trusted)
    }

    /// Returns the highest forecast from `now_ms` to `until_ms`, even if recent errors are too large. This is for
    /// display; the scaler uses [`Forecaster::trusted_forecast`].
    pub fn peak_forecast(&self, now_ms: u64, until_ms: u64) -> Option<ArrivalForecast> {
        if self.forecasts.is_empty() {
            return None;
        }
        let at = |ms: u64| self.interpolate(ms);
        let step = (self.config.bucket_ms / 4).max(1);
        let steps = (until_ms.saturating_sub(now_ms) / step).min(self.forecasts.len() as u64 * 4);
        let times = (0..=steps).map(|count| now_ms + count * step).chain([until_ms]);
        times
            .filter_map(at)
            .reduce(|a, b| ArrivalForecast { point: a.point.max(b.point), upper: a.upper.max(b.upper) })
    }

    /// Whether the scaler uses forecasts, because their recent errors are small enough.
    pub fn is_trusted(&self) -> bool {
        self.is_trusted
    }

    /// Returns the mean error of the forecasts that were made one lead time ahead, as a share of the actual values.
    /// Returns `None` if no forecast was compared with an actual value yet.
    pub fn error(&self) -> Option<f64> {
        (self.compared.1 > 0.0).then(|| self.compared.0 / self.compared.1)
    }

    /// Returns the present length of the history, and the length that is necessary for the first forecast, both in ms.
    /// The latter is twice the length of the shortest season.
    pub fn history_ms(&self) -> (u64, u64) {
        let needed = self.config.seasons.iter().copied().min().unwrap_or(0) * 2;
        let span = |buckets: usize| buckets as u64 * self.config.bucket_ms;
        (span(self.history.len()), span(needed))
    }

    /// Returns the forecast for the time `ms`. A bucket's forecast is for the middle of the bucket; between two
    /// middles, this function interpolates linearly.
    fn interpolate(&self, ms: u64) -> Option<ArrivalForecast> {
        let position = ms as f64 / self.config.bucket_ms as f64 - 0.5 - self.bucket as f64;
        let low = position.floor();
        let at =
            |position: f64| self.forecasts.get(position.max(0.0) as usize).or(self.forecasts.last()).copied();
        let (a, b, part) = (at(low)?, at(low + 1.0)?, (position - low).clamp(0.0, 1.0));
        let mix = |a: f64, b: f64| a + (b - a) * part;
        Some(ArrivalForecast { point: mix(a.point, b.point), upper: mix(a.upper, b.upper) })
    }

    fn push_history(&mut self, mean: f64) {
        if self.history.len() >= self.buckets_max {
            self.history.pop_front();
        }
        self.history.push_back(if mean.is_finite() { mean.max(0.0) } else { 0.0 });
    }

    fn end_bucket(&mut self) {
        let (sum, count) = std::mem::take(&mut self.filling);
        let mean = match count {
            0 => self.history.back().copied().unwrap_or(0.0),
            count => sum / f64::from(count),
        };
        while let Some(&(bucket, point)) =
            self.predicted.front().filter(|predicted| predicted.0 <= self.bucket)
        {
            self.predicted.pop_front();
            if bucket == self.bucket {
                self.compare(point, mean);
            }
        }
        self.push_history(mean);
    }

    /// Compares a forecast with the actual value. The mean error is the sum of all errors divided by the sum of all
    /// actual values, so buckets with few tasks have little weight.
    fn compare(&mut self, predicted: f64, actual: f64) {
        let error = (predicted - actual).abs();
        self.compared = (self.compared.0 + error, self.compared.1 + actual);
        if self.errors.len() >= COMPARED {
            self.errors.pop_front();
        }
        self.errors.push_back((error, actual));
        let (error_sum, actual_sum) =
            self.errors.iter().fold((0.0, 0.0), |(a, b), (error, actual)| (a + error, b + actual));
        let bound = if self.is_trusted { self.config.error_max } else { self.config.error_good };
        self.is_trusted = error_sum <= bound * actual_sum;
    }

    /// Computes new forecasts. Uses only seasons that fit into the history at least twice. If no season does, there are
    /// no forecasts.
    fn fit(&mut self) {
        self.forecasts.clear();
        let periods: Vec<usize> =
            self.config.seasons.iter().copied().filter(|season| season * 2 <= self.history.len()).collect();
        if periods.is_empty() {
            return;
        }
        let series: Vec<f64> = self.history.iter().copied().collect();
        let lead = (self.config.lead_ms / self.config.bucket_ms) as usize;
        let level = 2.0 * self.config.quantile - 1.0;
        let Ok(fitted) = MSTLModel::naive(periods).fit(&series) else { return };
        let Ok(forecast) = fitted.predict(lead + 3, level) else { return };
        let uppers = forecast.intervals.map_or_else(|| forecast.point.clone(), |intervals| intervals.upper);
        let values = forecast.point.iter().zip(uppers);
        let values = values.map(|(&point, upper)| ArrivalForecast {
            point: point.max(0.0),
            upper: upper.max(point.max(0.0)),
        });
        self.forecasts =
            values.take_while(|ahead| ahead.point.is_finite() && ahead.upper.is_finite()).collect();
        if let Some(far) = self.forecasts.get(lead) {
            self.predicted.push_back((self.bucket + lead as u64, far.point));
        }
    }
}
