//! Reads the limits of a node from the configuration.

use anyhow::Result;
use dunlin::scheduler::SHARDS_MAX;
use dunlin::{ControlLimits, NodeLimits, TasksLimits};
use dunlin_server::GrpcLimits;

use super::raw::RawConfig;
use super::{count, duration_or_zero, out_of_bounds, size};

pub(super) fn node(raw: &RawConfig) -> Result<NodeLimits> {
    let narrow = |name| count(raw, name).map(|count| u32::try_from(count).unwrap_or(u32::MAX));
    let defaults = NodeLimits::with_memory(memory(raw)?);
    Ok(NodeLimits {
        tenant_bytes_max: state(raw, "memory_of_tenant_max", defaults.tenant_bytes_max)?,
        topics_max: count(raw, "limits.topics")?,
        groups_max: count(raw, "limits.groups")?,
        group_idle_max: duration_or_zero(raw, "limits.group_idle")?,
        deleted_age_max: duration_or_zero(raw, "limits.deleted_age")?,
        control: ControlLimits {
            history_bytes: history(raw)?,
            state_bytes_max: state(raw, "kv.bytes_max", defaults.control.state_bytes_max)?,
            ..defaults.control
        },
        tasks: TasksLimits {
            shards: shards(raw)?,
            history_bytes: task_history(raw)?,
            state_bytes_max: state(raw, "tasks.bytes_max", defaults.tasks.state_bytes_max)?,
            ..defaults.tasks
        },
        topic: dunlin_topic::LogLimits {
            producers_max: narrow("limits.producers")?,
            group_members_max: narrow("limits.group_members")?,
            share_in_flight_max: narrow("limits.group_unconfirmed")?,
            work_claims_max: narrow("limits.group_claims")?,
            work_member_claims_max: narrow("limits.group_member_claims")?,
            work_look_ahead_max: narrow("limits.group_look_ahead")?,
            ..defaults.topic
        },
        ..defaults
    })
}

pub(super) fn grpc(raw: &RawConfig) -> Result<GrpcLimits> {
    let narrow = |name| count(raw, name).map(|count| u32::try_from(count).unwrap_or(u32::MAX));
    let bytes = |name| size(raw, name).map(|bytes| bytes as usize);
    // HTTP/2 allows no larger window than `i32::MAX` bytes.
    let window = |name| size(raw, name).map(|bytes| bytes.min(i32::MAX as u64) as u32);
    Ok(GrpcLimits {
        streams_max: narrow("grpc.streams_max")?,
        message_bytes_max: bytes("grpc.message_bytes_max")?,
        message_elements_max: count(raw, "grpc.message_elements_max")?,
        message_ms_max: narrow("grpc.message_ms_max")?,
        header_bytes_max: window("grpc.header_bytes_max")?,
        subjects_max: count(raw, "grpc.subjects_max")?,
        batch_bytes_max: bytes("grpc.batch_bytes_max")?,
        message_subscribers_max: count(raw, "grpc.message_subscribers_max")?,
        keep_alive_ms: narrow("grpc.keep_alive_ms")?,
        idle_ms_max: narrow("grpc.idle_ms_max")?,
        stream_window_bytes: window("grpc.stream_window_bytes")?,
        connection_window_bytes: window("grpc.connection_window_bytes")?,
    })
}

/// The smallest memory budget that the configuration accepts, in bytes. It suffices for the first records of one topic
/// and for a few clients.
const MEMORY_BYTES_MIN: u64 = 1 << 20;

fn memory(raw: &RawConfig) -> Result<u64> {
    match size(raw, "memory_bytes_max")? {
        bytes @ MEMORY_BYTES_MIN.. => Ok(bytes),
        _ => Err(out_of_bounds(raw, "memory_bytes_max", "1MiB at least")),
    }
}

/// The smallest amount of memory in bytes that the configuration accepts for keys, for tasks, or for a tenant. It
/// suffices for the small values of a few clients.
const STATE_BYTES_MIN: u64 = 64 << 10;

/// Reads `kv.bytes_max`, the limit for the size of all keys, `tasks.bytes_max`, the limit for all tasks, or
/// `memory_of_tenant_max`; `name` says which. Returns the number `auto` if the configured value is the word `auto`.
fn state(raw: &RawConfig, name: &str, auto: u64) -> Result<u64> {
    if raw.get(name).text == "auto" {
        return Ok(auto);
    }
    match size(raw, name)? {
        bytes @ STATE_BYTES_MIN.. => Ok(bytes),
        _ => Err(out_of_bounds(raw, name, "auto, or 64KiB at least")),
    }
}

/// The smallest history that the configuration accepts for task events or key changes, in bytes. It suffices for what a
/// few clients produce in a second.
const HISTORY_BYTES_MIN: u64 = 64 << 10;
/// The largest history that the configuration accepts for task events or key changes, in bytes.
const HISTORY_BYTES_MAX: u64 = 1 << 40;

/// Reads `tasks.history_bytes`. Returns 0 if the value is `off`.
fn task_history(raw: &RawConfig) -> Result<u64> {
    if raw.get("tasks.history_bytes").text == "off" {
        return Ok(0);
    }
    match size(raw, "tasks.history_bytes")? {
        bytes @ HISTORY_BYTES_MIN..=HISTORY_BYTES_MAX => Ok(bytes),
        _ => Err(out_of_bounds(raw, "tasks.history_bytes", "off, or 64KiB to 1TiB")),
    }
}

fn shards(raw: &RawConfig) -> Result<u8> {
    match count(raw, "tasks.shards")? {
        shards if shards <= usize::from(SHARDS_MAX) => Ok(shards as u8),
        _ => Err(out_of_bounds(raw, "tasks.shards", &format!("1 to {SHARDS_MAX}"))),
    }
}

fn history(raw: &RawConfig) -> Result<u64> {
    match size(raw, "kv.history_bytes")? {
        bytes @ HISTORY_BYTES_MIN..=HISTORY_BYTES_MAX => Ok(bytes),
        _ => Err(out_of_bounds(raw, "kv.history_bytes", "64KiB to 1TiB")),
    }
}
