//! The command `dunlin topics create`, which creates a topic with its configuration.

use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use dunlin_client::{CallError, Client};
use dunlin_topic::{
    AckLevel, DurableOptions, OnFull, ReducerConfig, ReliableOptions, Retention, TopicConfig,
};
use dunlin_wire::ErrorCode;

use crate::commands::parse;
use crate::config::ByteSize;
use crate::console::Console;

pub const EXAMPLES: &str = "\
Examples:
  dunlin topics create ticks --retention-bytes 256MiB --retention-age 1h
  dunlin topics create orders --pattern 'orders.>' --partitions 4
  dunlin topics create trades --durable --retention-bytes 10GiB
  dunlin topics create prices --reducer last  keep the last value of each key; see it with `dunlin sub prices --from snapshot`
  dunlin topics create fills --reliable --subscribers-max 2 --wait-ms-max 500 --when-full evict

Options that are not given take the node's defaults; `dunlin config show` on the node prints them.";

/// Arguments of `dunlin topics create`, which creates a topic.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Name of the topic
    name: String,
    /// Subjects that the topic owns [default: its name only]
    #[arg(long, value_name = "PATTERN")]
    pattern: Option<String>,
    /// Number of partitions (logs); a record's key selects its partition [default: 1]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1024))]
    partitions: Option<u16>,
    /// Bytes of history that each log keeps, such as 256MiB [default: the node's setting; 1GiB with --durable]
    #[arg(long, value_name = "BYTES")]
    retention_bytes: Option<ByteSize>,
    /// Number of records that each log keeps [default: the node's setting]
    #[arg(long, value_name = "COUNT")]
    retention_records: Option<u64>,
    /// Maximum age of the records that each log keeps, such as 1h [default: the node's setting]
    #[arg(long, value_name = "DURATION", value_parser = parse::positive_duration)]
    retention_age: Option<Duration>,
    /// Maximum size of a record in bytes, such as 64KiB [default: the node's setting]
    #[arg(long, value_name = "BYTES")]
    record_bytes_max: Option<ByteSize>,
    /// Make publishers wait for the slowest registered subscriber while the history is full
    #[arg(long)]
    reliable: bool,
    /// Maximum number of registered subscribers [default: 64]
    #[arg(long, value_name = "COUNT", requires = "reliable")]
    subscribers_max: Option<u16>,
    /// Maximum time that a publisher waits for room, in milliseconds [default: 5000]
    #[arg(long, value_name = "MILLISECONDS", requires = "reliable")]
    wait_ms_max: Option<u32>,
    /// Action after --wait-ms-max: refuse the record, or evict the slowest subscriber, which then receives a gap
    /// [default: refuse]
    #[arg(long, value_enum, requires = "reliable")]
    when_full: Option<WhenFull>,
    /// Store the records on disk; needs a node with --data-dir
    #[arg(long, conflicts_with = "reliable")]
    durable: bool,
    /// Level at which a record is acknowledged: memory, written (handed to the operating system) or synced (safe on
    /// disk) [default: synced]
    #[arg(long, value_name = "LEVEL", requires = "durable", value_parser = ack_level)]
    ack: Option<AckLevel>,
    /// Reducer that keeps the topic's state: book or orders (order books), or last (the last value of each key)
    #[arg(long, value_name = "KIND")]
    reducer: Option<String>,
    /// Option of the reducer, such as price_decimals=2; see docs/feeds.md; may be given several times
    #[arg(long, value_name = "NAME=VALUE", requires = "reducer", value_parser = parse::header)]
    reducer_option: Vec<(String, String)>,
    /// Succeed if a topic with the same name and configuration exists
    #[arg(long)]
    or_same: bool,
}

fn ack_level(text: &str) -> Result<AckLevel, String> {
    text.parse()
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum WhenFull {
    Refuse,
    Evict,
}

pub fn run(arguments: &Arguments, client: &Client, console: &Console) -> Result<()> {
    let name = &arguments.name;
    let created = client.create_topic(name, &arguments.config(), arguments.or_same);
    if let Err(CallError::Refused(refused)) = &created
        && refused.code == ErrorCode::PatternOverlaps
        && !refused.text.is_empty()
    {
        let (other, pattern) = (&refused.text, arguments.pattern.as_deref().unwrap_or(name));
        let with_advice = format!(
            "cannot create topic {name}: topic {other} already owns subjects of {pattern}. Use another pattern, or delete that topic \
             with its records (`dunlin topics delete {other}`) and try again"
        );
        return created.context(with_advice);
    }
    created.with_context(|| format!("cannot create topic {name}"))?;
    super::print_done("created", name, console)
}

impl Arguments {
    /// Returns the configuration of the topic that the options describe. A field with the value 0 stands for the node's
    /// default.
    fn config(&self) -> TopicConfig {
        let narrow = |size: ByteSize| u32::try_from(size.0).unwrap_or(u32::MAX);
        TopicConfig {
            pattern: self.pattern.clone(),
            partitions: self.partitions.unwrap_or(0),
            retention: Retention {
                bytes: self.retention_bytes.map_or(0, |size| size.0),
                records: self.retention_records,
                age: self.retention_age,
            },
            record_bytes_max: self.record_bytes_max.map_or(0, narrow),
            reliable: self.reliable.then(|| self.reliable()),
            durable: self.durable.then(|| DurableOptions {
                acknowledge: self.ack.unwrap_or(AckLevel::Synced),
                ..DurableOptions::default()
            }),
            reducer: self
                .reducer
                .clone()
                .map(|kind| ReducerConfig { kind, options: self.reducer_option.iter().cloned().collect() }),
            ..TopicConfig::default()
        }
    }

    fn reliable(&self) -> ReliableOptions {
        let default = ReliableOptions::default();
        ReliableOptions {
            subscribers_max: self.subscribers_max.unwrap_or(default.subscribers_max),
            wait_max: self.wait_ms_max.map_or(default.wait_max, |ms| Duration::from_millis(ms.into())),
            on_full: match self.when_full {
                Some(WhenFull::Evict) => OnFull::Evict,
                Some(WhenFull::Refuse) | None => OnFull::Refuse,
            },
        }
    }
}
