//! Reads the description of a cluster from YAML: the machines, the bounds for the number of workers, and the scaling
//! policy. The format extends the YAML format of Dunlin's requirements.
//!
//! ```yaml
//! coordinators: { count: 5, instanceType: m6i.2xlarge, cpu: 8, memory: 32Gi }
//! workers: { count: 95, instanceType: m6i.large, cpu: 2, memory: 8Gi, spotPercentage: 70% }
//! scaling:
//!   horizontal: { minWorkers: 50, maxWorkers: 200, targetCpuUtilization: 70% }
//!   vertical: { coordinators: manual, workers: auto }
//!   predictive: { enabled: true, leadTime: 10m }
//!   warmPool: { size: 10 }                                                                # extension
//!   schedule: [{ days: Mon-Fri, from: "07:00", to: "20:00", minWorkers: 100 }]            # extension, in UTC
//! ```

use serde::Deserialize;

use crate::limits::ScalerLimits;
use crate::policy::{Policy, PolicyError, SpotPolicy, WarmPoolPolicy};
use crate::windows::WeeklyWindow;

const BYTES_MAX: usize = 1 << 20;
/// The length of a bucket in ms: five minutes. A bucket is an interval for which the history of arrivals has one value.
const BUCKET_MS: u64 = 300_000;
const DAY_BUCKETS: usize = 288;

/// A description of a cluster, read from a file: its coordinators, its workers, and its scaling policy.
#[derive(Debug, Clone, PartialEq)]
pub struct ScalingDocument {
    /// The coordinators: the nodes that schedule tasks.
    pub coordinators: InstanceGroup,
    /// The workers. Their `count` is the number that the plan assumes; `policy` then changes it.
    pub workers: InstanceGroup,
    /// The policy by which the number of workers changes.
    pub policy: Policy,
    /// Whether another machine type may be chosen for the workers according to measurements.
    pub is_vertical: bool,
}

/// A group of equal nodes or workers.
#[derive(Debug, Clone, PartialEq)]
pub struct InstanceGroup {
    /// The number of nodes or workers in the group.
    pub count: u32,
    /// The name of the machine type that each node or worker has.
    pub machine: String,
    /// The number of processors of each node or worker.
    pub cpus: f64,
    /// The memory of each node or worker, in GiB.
    pub memory_gib: f64,
}

/// Why the description of a cluster is invalid.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum DocumentError {
    /// The text is not YAML, or does not have the expected fields.
    #[error("the document cannot be read: {0}")]
    Unreadable(String),
    /// The text is too long.
    #[error("the document has {bytes} bytes; the limit is {bytes_max}")]
    TooLong {
        /// The length of the text in bytes.
        bytes: usize,
        /// The largest allowed length in bytes.
        bytes_max: usize,
    },
    /// A value is invalid.
    #[error("{key} is {value:?}, but must be {expected}")]
    Value {
        /// The key in the document.
        key: &'static str,
        /// The value of the key in the document.
        value: String,
        /// A description of the values that are allowed.
        expected: &'static str,
    },
    /// The scaling policy is invalid.
    #[error(transparent)]
    Policy(#[from] PolicyError),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDocument {
    coordinators: RawGroup,
    workers: RawGroup,
    scaling: RawScaling,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawGroup {
    count: u32,
    instance_type: String,
    cpu: f64,
    memory: String,
    spot_percentage: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawScaling {
    horizontal: RawHorizontal,
    vertical: Option<RawVertical>,
    predictive: Option<RawPredictive>,
    warm_pool: Option<RawWarm>,
    #[serde(default)]
    schedule: Vec<RawWindow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawHorizontal {
    min_workers: u32,
    max_workers: u32,
    target_cpu_utilization: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawVertical {
    coordinators: Option<Mode>,
    workers: Option<Mode>,
}

#[derive(Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Mode {
    Auto,
    Manual,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawPredictive {
    enabled: bool,
    lead_time: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawWarm {
    size: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawWindow {
    days: String,
    from: String,
    to: String,
    min_workers: u32,
}

impl ScalingDocument {
    /// Parses a document, and checks its values.
    pub fn parse(text: &str) -> Result<ScalingDocument, DocumentError> {
        let (bytes, bytes_max) = (text.len(), BYTES_MAX);
        if bytes > bytes_max {
            return Err(DocumentError::TooLong { bytes, bytes_max });
        }
        let raw: RawDocument =
            serde_saphyr::from_str(text).map_err(|error| DocumentError::unreadable(&error))?;
        raw.validate()
    }
}

impl DocumentError {
    /// Makes an error from the parser's message. Removes `error: ` at the start of this message.
    fn unreadable(error: &serde_saphyr::Error) -> DocumentError {
        let text = error.to_string();
        DocumentError::Unreadable(text.strip_prefix("error: ").unwrap_or(&text).to_owned())
    }
}

impl RawDocument {
    fn validate(self) -> Result<ScalingDocument, DocumentError> {
        let RawDocument { coordinators, workers, scaling } = self;
        if let Some(value) = coordinators.spot_percentage {
            let expected = "absent, because coordinators must not be interrupted";
            return Err(DocumentError::Value { key: "coordinators.spotPercentage", value, expected });
        }
        let vertical = scaling.vertical.as_ref();
        if vertical.is_some_and(|vertical| vertical.coordinators == Some(Mode::Auto)) {
            let expected = "manual, because people change coordinators one by one";
            let value = "auto".to_owned();
            return Err(DocumentError::Value { key: "scaling.vertical.coordinators", value, expected });
        }
        let is_vertical = vertical.is_some_and(|vertical| vertical.workers == Some(Mode::Auto));
        let percent = workers.spot_percentage.as_deref();
        let percent = percent.map(|text| percentage("workers.spotPercentage", text)).transpose()?;
        let policy = scaling.policy(percent.unwrap_or(0.0))?;
        policy.check(&ScalerLimits::default())?;
        Ok(ScalingDocument {
            coordinators: coordinators.validate("coordinators.memory")?,
            workers: workers.validate("workers.memory")?,
            policy,
            is_vertical,
        })
    }
}

impl RawGroup {
    fn validate(self, key: &'static str) -> Result<InstanceGroup, DocumentError> {
        let memory_gib = gib(key, &self.memory)?;
        if !(self.cpu.is_finite() && self.cpu > 0.0) {
            return Err(invalid_value("cpu", &self.cpu.to_string(), "a number above 0"));
        }
        Ok(InstanceGroup { count: self.count, machine: self.instance_type, cpus: self.cpu, memory_gib })
    }
}

impl RawScaling {
    fn policy(&self, spot_percent: f64) -> Result<Policy, DocumentError> {
        let horizontal = &self.horizontal;
        let mut policy = Policy::cloud(horizontal.min_workers, horizontal.max_workers);
        if let Some(text) = &horizontal.target_cpu_utilization {
            let target = percentage("scaling.horizontal.targetCpuUtilization", text)? / 100.0;
            (policy.triggers.cpu_target, policy.triggers.cpu_low) = (target, target * 0.8);
        }
        if spot_percent > 0.0 {
            let base = horizontal.min_workers / 2;
            policy.spot =
                SpotPolicy { percent: spot_percent as u32, base, fallback_after: 10, fallback_ms: 600_000 };
        }
        if let Some(predictive) = self.predictive.as_ref().filter(|predictive| predictive.enabled) {
            policy = policy.with_forecast(BUCKET_MS, vec![DAY_BUCKETS, 7 * DAY_BUCKETS]);
            if let (Some(config), Some(text)) = (&mut policy.predictive, &predictive.lead_time) {
                config.lead_ms = duration_ms("scaling.predictive.leadTime", text)?;
            }
        }
        if let Some(warm) = &self.warm_pool {
            policy.warm = WarmPoolPolicy { size: warm.size, detect_ms: 15_000, takes_drained: true };
        }
        policy.windows = self.schedule.iter().map(RawWindow::validate).collect::<Result<_, _>>()?;
        Ok(policy)
    }
}

impl RawWindow {
    fn validate(&self) -> Result<WeeklyWindow, DocumentError> {
        Ok(WeeklyWindow {
            days: days("scaling.schedule.days", &self.days)?,
            from_minute: minute("scaling.schedule.from", &self.from)?,
            to_minute: minute("scaling.schedule.to", &self.to)?,
            workers_min: self.min_workers,
        })
    }
}

fn invalid_value(key: &'static str, value: &str, expected: &'static str) -> DocumentError {
    DocumentError::Value { key, value: value.chars().take(40).collect(), expected }
}

/// Parses a percentage such as `70%` or `70`.
fn percentage(key: &'static str, text: &str) -> Result<f64, DocumentError> {
    let number = text.trim().trim_end_matches('%').trim_end().parse::<f64>();
    let number = number.ok().filter(|number| (0.0..=100.0).contains(number));
    number.ok_or_else(|| invalid_value(key, text, "a number from 0% to 100%"))
}

/// Parses a size such as `32Gi` or `512Mi`, and returns it in GiB.
fn gib(key: &'static str, text: &str) -> Result<f64, DocumentError> {
    let text = text.trim();
    let units = [("Ti", 1_024.0), ("Gi", 1.0), ("Mi", 1.0 / 1_024.0)];
    let found = units
        .iter()
        .find_map(|(unit, gib)| Some((text.strip_suffix(unit)?.trim().parse::<f64>().ok()?, gib)));
    let number = found.map(|(number, gib)| number * gib).filter(|gib| *gib > 0.0 && gib.is_finite());
    number.ok_or_else(|| invalid_value(key, text, "a number with Mi, Gi or Ti"))
}

/// Parses a duration such as `10m`, `90s`, `1h` or `500ms`, and returns it in ms.
fn duration_ms(key: &'static str, text: &str) -> Result<u64, DocumentError> {
    let text = text.trim();
    let units = [("ms", 1_u64), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];
    let found = units
        .iter()
        .find_map(|(unit, ms)| text.strip_suffix(unit)?.trim().parse::<u64>().ok()?.checked_mul(*ms));
    found.filter(|ms| *ms > 0).ok_or_else(|| invalid_value(key, text, "a whole number with ms, s, m or h"))
}

/// Parses a time of day such as `07:30`, and returns the number of minutes since midnight.
fn minute(key: &'static str, text: &str) -> Result<u32, DocumentError> {
    let parts =
        text.split_once(':').and_then(|(hour, minute)| Some((hour.parse().ok()?, minute.parse().ok()?)));
    let found = parts.filter(|(hour, minute): &(u32, u32)| *hour < 24 && *minute < 60);
    found
        .map(|(hour, minute)| hour * 60 + minute)
        .ok_or_else(|| invalid_value(key, text, "a time from 00:00 to 23:59, in quotes"))
}

/// Parses days such as `daily`, `Mon`, `Mon-Fri` or `Sat, Sun`. Returns a number with one bit for each day.
fn days(key: &'static str, text: &str) -> Result<u8, DocumentError> {
    const NAMES: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
    let lower = text.to_ascii_lowercase();
    if lower.trim() == "daily" {
        return Ok(WeeklyWindow::DAILY);
    }
    let day = |name: &str| NAMES.iter().position(|known| *known == name.trim());
    let part = |part: &str| -> Option<u8> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (day(first)?, day(last)?);
        let count = (last + 7 - first) % 7;
        Some((0..=count).fold(0, |days, step| days | 1 << ((first + step) % 7)))
    };
    let all = lower.split(',').map(part).try_fold(0, |all, days| Some(all | days?));
    all.ok_or_else(|| invalid_value(key, text, "daily, or days like Mon-Fri or Sat, Sun"))
}
