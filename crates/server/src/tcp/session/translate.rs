//! Converts types of the wire protocol to types of topics, and back.

use std::time::Duration;

use dunlin::topic::{self, AckLevel, OnFull, ReliableOptions, TopicConfig};
use dunlin::wire::{self, AckKind, WhenFull};

pub(super) fn position_to_wire(position: topic::Position) -> wire::Position {
    wire::Position { epoch: position.epoch, seq: position.seq }
}

pub(super) fn position_from_wire(position: wire::Position) -> topic::Position {
    topic::Position { epoch: position.epoch, seq: position.seq }
}

pub(super) fn on_gap_from_wire(on_gap: wire::OnGap) -> topic::OnGap {
    match on_gap {
        wire::OnGap::Oldest => topic::OnGap::Oldest,
        wire::OnGap::Newest => topic::OnGap::Newest,
        wire::OnGap::Fail => topic::OnGap::Fail,
    }
}

pub(super) fn acknowledged_to_wire(acknowledged: AckLevel) -> AckKind {
    match acknowledged {
        AckLevel::Written => AckKind::Written,
        AckLevel::Synced => AckKind::Synced,
        AckLevel::Quorum => AckKind::Quorum,
        // The protocol has no code for other levels, so they are sent as the lowest level.
        _ => AckKind::Memory,
    }
}

/// Converts the configuration of a topic. A value of 0 selects the node's default.
pub(super) fn config_from_wire(config: &wire::TopicConfig<'_>, defaults: &TopicConfig) -> TopicConfig {
    let mut converted = defaults.clone();
    converted.pattern = (!config.pattern.is_empty()).then(|| config.pattern.to_owned());
    converted.partitions = config.partitions.max(1);
    if config.retain_bytes > 0 {
        converted.retention.bytes = config.retain_bytes;
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
    converted.reliable = (config.reliable_subscribers_max > 0).then(|| reliable_from_wire(config));
    converted
}

fn reliable_from_wire(config: &wire::TopicConfig<'_>) -> ReliableOptions {
    let defaults = ReliableOptions::default();
    ReliableOptions {
        // A number above 65,535 becomes 65,535. If 65,535 exceeds the limit, the check of the configuration refuses it.
        subscribers_max: u16::try_from(config.reliable_subscribers_max).unwrap_or(u16::MAX),
        wait_max: match config.wait_ms_max {
            0 => defaults.wait_max,
            ms => Duration::from_millis(ms.into()),
        },
        on_full: match config.when_full {
            WhenFull::Refuse => OnFull::Refuse,
            WhenFull::Evict => OnFull::Evict,
        },
    }
}

pub(super) fn config_to_wire<'a>(
    name: &'a str,
    pattern: &'a str,
    config: &TopicConfig,
) -> wire::TopicConfig<'a> {
    let ms = |duration: Duration| duration.as_millis().min(u64::MAX.into()) as u64;
    let reliable = config.reliable.as_ref();
    wire::TopicConfig {
        name,
        pattern: if pattern == name { "" } else { pattern },
        partitions: config.partitions,
        retain_bytes: config.retention.bytes,
        retain_records: config.retention.records.unwrap_or(0),
        retain_ms: config.retention.age.map_or(0, ms),
        record_bytes_max: config.record_bytes_max,
        reliable_subscribers_max: reliable.map_or(0, |reliable| reliable.subscribers_max.into()),
        wait_ms_max: reliable.map_or(0, |reliable| u32::try_from(ms(reliable.wait_max)).unwrap_or(u32::MAX)),
        when_full: match reliable.map(|reliable| reliable.on_full) {
            Some(OnFull::Evict) => WhenFull::Evict,
            _ => WhenFull::Refuse,
        },
    }
}
