//! Converts a topic's configuration from and to JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use dunlin::topic::{AckLevel, DurableOptions, OnFull, ReducerConfig, ReliableOptions, TopicConfig};
use dunlin::wire::ErrorCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::problem::Problem;

/// The configuration that a request states for a new topic. Fields that the request leaves out get the node's defaults.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Settings {
    pattern: Option<String>,
    partitions: Option<u16>,
    retention: Retention,
    record_bytes_max: Option<u32>,
    reliable: Option<ReliableSettings>,
    durable: Option<DurableSettings>,
    reducer: Option<Reducer>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Retention {
    bytes: Option<u64>,
    records: Option<u64>,
    /// Maximum age of records, as a duration such as `10m`.
    age: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ReliableSettings {
    subscribers_max: Option<u16>,
    wait_ms_max: Option<u64>,
    /// How a full topic treats new records: `refuse` or `evict`.
    when_full: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct DurableSettings {
    /// The acknowledgement level: `memory`, `written` or `synced`.
    acknowledge: Option<String>,
    memory_bytes: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reducer {
    kind: String,
    #[serde(default)]
    options: BTreeMap<String, String>,
}

impl Settings {
    /// Parses a request's body. An empty body means default settings.
    pub(super) fn parse(body: &[u8]) -> Result<Settings, Problem> {
        // Refuses a JSON list, because serde would accept it and read its elements as the fields, in order.
        match body.trim_ascii() {
            [] => return Ok(Settings::default()),
            [b'{', ..] => {}
            _ => return Err(invalid_config("expected an object".to_owned())),
        }
        serde_json::from_slice(body).map_err(|error| invalid_config(error.to_string()))
    }

    /// Applies these settings to the node's default configuration.
    pub(super) fn apply_to(self, defaults: &TopicConfig) -> Result<TopicConfig, Problem> {
        let mut config = TopicConfig { pattern: self.pattern, ..defaults.clone() };
        config.partitions = self.partitions.unwrap_or(config.partitions);
        config.record_bytes_max = self.record_bytes_max.unwrap_or(config.record_bytes_max);
        if let Some(durable) = self.durable {
            config.retention.bytes = DurableOptions::RETENTION_BYTES_DEFAULT;
            config.durable = Some(durable.into_config()?);
        }
        config.reliable = self.reliable.map(ReliableSettings::into_config).transpose()?;
        self.retention.apply_to(&mut config)?;
        config.reducer = self.reducer.map(|Reducer { kind, options }| ReducerConfig { kind, options });
        Ok(config)
    }
}

impl Retention {
    fn apply_to(self, config: &mut TopicConfig) -> Result<(), Problem> {
        let retention = &mut config.retention;
        retention.bytes = self.bytes.unwrap_or(retention.bytes);
        retention.records = self.records.or(retention.records);
        if let Some(text) = self.age {
            let age = humantime::parse_duration(&text);
            retention.age = Some(age.map_err(|_| {
                invalid_config(format!("retention.age {text:?}: expected a duration like 10m"))
            })?);
        }
        Ok(())
    }
}

impl ReliableSettings {
    fn into_config(self) -> Result<ReliableOptions, Problem> {
        let defaults = ReliableOptions::default();
        let on_full = match self.when_full.as_deref() {
            None => defaults.on_full,
            Some("refuse") => OnFull::Refuse,
            Some("evict") => OnFull::Evict,
            Some(text) => {
                return Err(invalid_config(format!("when_full {text:?}: expected refuse or evict")));
            }
        };
        Ok(ReliableOptions {
            subscribers_max: self.subscribers_max.unwrap_or(defaults.subscribers_max),
            wait_max: self.wait_ms_max.map_or(defaults.wait_max, Duration::from_millis),
            on_full,
        })
    }
}

impl DurableSettings {
    fn into_config(self) -> Result<DurableOptions, Problem> {
        let defaults = DurableOptions::default();
        let parse = |text: String| text.parse::<AckLevel>().map_err(invalid_config);
        let acknowledge = self.acknowledge.map(parse).transpose()?.unwrap_or(defaults.acknowledge);
        Ok(DurableOptions { acknowledge, memory_bytes: self.memory_bytes.unwrap_or(defaults.memory_bytes) })
    }
}

fn invalid_config(text: String) -> Problem {
    Problem::from(dunlin::Refused::new(ErrorCode::TopicConfig, text))
}

/// Converts the configuration of an existing topic to JSON. A request with this JSON creates a topic with the same
/// configuration.
pub(super) fn settings_json(pattern: &str, config: &TopicConfig) -> Value {
    let reliable = config.reliable.map(|reliable| {
        json!({
            "subscribers_max": reliable.subscribers_max,
            "wait_ms_max": reliable.wait_max.as_millis() as u64,
            "when_full": match reliable.on_full {
                OnFull::Refuse => "refuse",
                OnFull::Evict => "evict",
            },
        })
    });
    let durable = config.durable.map(|durable| {
        json!({"acknowledge": durable.acknowledge.to_string(), "memory_bytes": durable.memory_bytes})
    });
    json!({
        "pattern": pattern,
        "partitions": config.partitions,
        "retention": {
            "bytes": config.retention.bytes,
            "records": config.retention.records,
            "age": config.retention.age.map(|age| humantime::format_duration(age).to_string()),
        },
        "record_bytes_max": config.record_bytes_max,
        "reliable": reliable,
        "durable": durable,
        "reducer": config.reducer.as_ref().map(|reducer| json!({"kind": reducer.kind, "options": reducer.options})),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<TopicConfig, Problem> {
        Settings::parse(text.as_bytes())?.apply_to(&TopicConfig::default())
    }

    #[test]
    fn topic_settings_survive_a_round_trip_through_json() {
        let text = r#"{"pattern": "a.>", "partitions": 4, "retention": {"records": 10, "age": "10m"},
                       "reliable": {"when_full": "evict"}}"#;
        let config = read(text).unwrap();
        let shown = settings_json("a.>", &config).to_string();
        assert_eq!(read(&shown).unwrap(), config);
        assert_eq!(read("").unwrap(), TopicConfig::default());
    }

    #[test]
    fn durable_topic_gets_the_durable_default_retention() {
        let config = read(r#"{"durable": {"acknowledge": "written"}}"#).unwrap();
        assert_eq!(config.retention.bytes, DurableOptions::RETENTION_BYTES_DEFAULT);
        assert_eq!(config.durable.unwrap().acknowledge, AckLevel::Written);
    }

    #[test]
    fn invalid_topic_settings_are_refused() {
        let cases = [
            "[]",
            "{",
            r#"{"partition": 4}"#,
            r#"{"partitions": -1}"#,
            r#"{"partitions": 70000}"#,
            r#"{"retention": {"age": "soon"}}"#,
            r#"{"durable": {"acknowledge": "quite"}}"#,
            r#"{"reliable": {"when_full": "panic"}}"#,
        ];
        for text in cases {
            assert_eq!(read(text).unwrap_err().status(), 400, "{text}");
        }
    }
}
