//! Converts between messages of `dunlin.v1` and the types of the crate `dunlin`.

use std::time::Duration;

use bytes::Bytes;
use dunlin::Refused;
use dunlin::topic::{
    AckLevel, DurableOptions, Gap, LogName, OnFull, OnGap, Position, Receipt, Record, ReducerConfig,
    ReliableOptions, Topic, TopicConfig,
};
use dunlin::wire::ErrorCode;

use super::proto::dunlin as v1;

pub(super) fn position(log: &LogName, at: Position) -> v1::LogPosition {
    v1::LogPosition {
        topic: log.topic.clone(),
        partition: log.partition.into(),
        epoch: at.epoch,
        seq: at.seq,
    }
}

pub(super) fn gap(gap: &Gap) -> v1::Gap {
    v1::Gap {
        topic: gap.log.topic.clone(),
        partition: gap.log.partition.into(),
        epoch: gap.epoch,
        first: gap.first,
        last: gap.last,
    }
}

pub(super) fn receipt(topic: &Topic, receipt: &Receipt) -> v1::Receipt {
    v1::Receipt {
        topic: topic.name().to_owned(),
        partition: receipt.partition.into(),
        epoch: receipt.position.epoch,
        seq: receipt.position.seq,
        level: level(receipt.acknowledged).into(),
        duplicate: receipt.duplicate,
        new_epoch: receipt.new_epoch,
    }
}

pub(super) fn last_position(last: v1::LastPosition) -> Position {
    Position { epoch: last.epoch, seq: last.seq }
}

fn level(acknowledged: AckLevel) -> v1::Level {
    match acknowledged {
        AckLevel::Written => v1::Level::Written,
        AckLevel::Synced => v1::Level::Synced,
        AckLevel::Quorum => v1::Level::Quorum,
        // A level for which `dunlin.v1` has no value is reported as the lowest level.
        _ => v1::Level::Memory,
    }
}

pub(super) fn on_gap(on_gap: v1::OnGap) -> OnGap {
    match on_gap {
        v1::OnGap::Oldest => OnGap::Oldest,
        v1::OnGap::Newest => OnGap::Newest,
        v1::OnGap::Snapshot => OnGap::Snapshot,
        v1::OnGap::Fail => OnGap::Fail,
    }
}

/// Converts a topic's configuration. Fields that the client leaves out get the node's defaults.
pub(super) fn config_from(config: &v1::TopicConfig, defaults: &TopicConfig) -> Result<TopicConfig, Refused> {
    let mut converted = defaults.clone();
    converted.pattern = (!config.pattern.is_empty()).then(|| config.pattern.clone());
    converted.partitions = u16::try_from(config.partitions.max(1)).unwrap_or(u16::MAX);
    converted.durable = config.durable.map(durable_from).transpose()?;
    if config.retain_bytes > 0 {
        converted.retention.bytes = config.retain_bytes;
    } else if converted.durable.is_some() {
        converted.retention.bytes = DurableOptions::RETENTION_BYTES_DEFAULT;
    }
    if config.retain_records > 0 {
        converted.retention.records = Some(config.retain_records);
    }
    if config.retain_ms > 0 {
        converted.retention.age = Some(Duration::from_millis(config.retain_ms));
    }
    if config.record_bytes_max > 0 {
        converted.record_bytes_max = config.record_bytes_max;
    }
    converted.reliable = config.reliable.map(reliable_from);
    converted.reducer = config.reducer.as_ref().map(|reducer| ReducerConfig {
        kind: reducer.kind.clone(),
        options: reducer.options.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
    });
    Ok(converted)
}

fn reliable_from(reliable: v1::Reliable) -> ReliableOptions {
    let defaults = ReliableOptions::default();
    ReliableOptions {
        subscribers_max: match reliable.subscribers_max {
            0 => defaults.subscribers_max,
            // A number above 65,535 becomes 65,535. If this exceeds the limit, the later check of the configuration
            // refuses it.
            subscribers_max => u16::try_from(subscribers_max).unwrap_or(u16::MAX),
        },
        wait_max: match reliable.wait_ms_max {
            0 => defaults.wait_max,
            ms => Duration::from_millis(ms.into()),
        },
        on_full: if reliable.evict { OnFull::Evict } else { OnFull::Refuse },
    }
}

fn durable_from(durable: v1::Durable) -> Result<DurableOptions, Refused> {
    let defaults = DurableOptions::default();
    Ok(DurableOptions {
        acknowledge: match durable.acknowledge() {
            v1::Level::Unspecified => defaults.acknowledge,
            v1::Level::Memory => AckLevel::Memory,
            v1::Level::Written => AckLevel::Written,
            v1::Level::Synced => AckLevel::Synced,
            v1::Level::Quorum => {
                let why = "durable.acknowledge: expected MEMORY, WRITTEN or SYNCED";
                return Err(Refused::new(ErrorCode::TopicConfig, why));
            }
        },
        memory_bytes: match durable.memory_bytes {
            0 => defaults.memory_bytes,
            bytes => bytes,
        },
    })
}

pub(super) fn config_of(topic: &Topic) -> v1::TopicConfig {
    let config = topic.config();
    let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    v1::TopicConfig {
        pattern: topic.pattern().to_owned(),
        partitions: config.partitions.into(),
        retain_bytes: config.retention.bytes,
        retain_records: config.retention.records.unwrap_or(0),
        retain_ms: config.retention.age.map_or(0, ms),
        record_bytes_max: config.record_bytes_max,
        reliable: config.reliable.map(|reliable| v1::Reliable {
            subscribers_max: reliable.subscribers_max.into(),
            wait_ms_max: u32::try_from(ms(reliable.wait_max)).unwrap_or(u32::MAX),
            evict: reliable.on_full == OnFull::Evict,
        }),
        durable: config.durable.map(|durable| v1::Durable {
            acknowledge: level(durable.acknowledge).into(),
            memory_bytes: durable.memory_bytes,
        }),
        reducer: config.reducer.as_ref().map(|reducer| v1::Reducer {
            kind: reducer.kind.clone(),
            options: reducer.options.clone().into_iter().collect(),
        }),
    }
}

pub(super) fn record(record: &Record<'_>) -> v1::Record {
    let frame = &record.frame;
    v1::Record {
        seq: record.seq(),
        skipped: 0,
        subject: record.subject(),
        payload: Bytes::copy_from_slice(frame.payload()),
        append_time_ns: frame.append_time_ns(),
        event_time_ns: frame.event_time_ns(),
        expires_ns: frame.expires_ns(),
        key: frame.key().map(Bytes::copy_from_slice),
        reply: frame.reply().unwrap_or("").to_owned(),
        headers: frame
            .headers()
            .map(|(name, value)| v1::Header { name: name.to_owned(), value: Bytes::copy_from_slice(value) })
            .collect(),
    }
}
