//! The command `dunlin topics describe`, which prints one topic as text or JSON.

use std::io::Write;

use anyhow::Result;
use dunlin_client::{LogDescription, SubscriptionDescription, TopicDescription};
use dunlin_topic::{AckLevel, OnFull};
use serde_json::json;

use crate::console::{Console, format_bytes, grouped};
use crate::format::rfc3339;
use crate::format::text::escaped;
use crate::table::TextTable;

use super::owner::Owner;
use super::unknown;

pub fn write(topic: &TopicDescription, console: &Console) -> Result<()> {
    let mut out = console.out();
    if console.json {
        writeln!(out, "{}", topic_object(topic))?;
    } else {
        write_head(topic, console, &mut out)?;
        write_logs(&topic.logs, console, &mut out)?;
        write_subscribers(topic, console, &mut out)?;
        write_groups(topic, console, &mut out)?;
    }
    Ok(out.flush()?)
}

fn write_head(topic: &TopicDescription, console: &Console, out: &mut impl Write) -> Result<()> {
    let config = &topic.config;
    let retention = &config.retention;
    let records =
        retention.records.map_or_else(String::new, |records| format!(", {} records", grouped(records)));
    let age = retention.age.map_or_else(String::new, |age| format!(", {}", humantime::format_duration(age)));
    writeln!(out, "{}", console.paint.strong(&topic.name))?;
    writeln!(out, "  subjects    {}", config.pattern.as_deref().unwrap_or(&topic.name))?;
    if let Some(owner) = Owner::of(&topic.settings) {
        writeln!(out, "  owner       {}", owner.full_text())?;
    }
    writeln!(out, "  retention   {}{records}{age}", format_bytes(retention.bytes))?;
    writeln!(out, "  record      {} at most", format_bytes(config.record_bytes_max.into()))?;
    if let Some(reliable) = &config.reliable {
        let then = if reliable.on_full == OnFull::Evict {
            "evicts the slowest subscriber"
        } else {
            "refuses records"
        };
        let wait = humantime::format_duration(reliable.wait_max);
        writeln!(
            out,
            "  reliable    {} subscribers at most; if full, publishers wait {wait}, then the topic {then}",
            reliable.subscribers_max
        )?;
    }
    if let Some(reducer) = &config.reducer {
        let options: Vec<String> =
            reducer.options.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let options = escaped(options.join(" ").as_bytes());
        writeln!(out, "  state       {} {options}", escaped(reducer.kind.as_bytes()))?;
        write_log_status(topic, "reducer/", out)?;
    }
    if let Some(every) = config.test_loss_every {
        writeln!(out, "  test loss   1 of {every} records, withheld once from each subscriber")?;
    }
    if let Some(durable) = &config.durable {
        writeln!(out, "  durable     a record is acknowledged when it is {}", ack_text(durable.acknowledge))?;
        write_log_status(topic, "durable/", out)?;
    }
    let count = |count: Option<u32>| count.map_or_else(unknown, |count| grouped(count.into()));
    writeln!(out, "  publishers  {}", count(topic.publishers))?;
    writeln!(out, "  subscribers {}", count(topic.subscribers_total))?;
    if topic.logs.is_empty() {
        writeln!(out, "  records     unknown: the node that owns the topic does not respond")?;
    }
    Ok(())
}

/// Prints the status of each log of the topic; each line begins with `prefix`.
fn write_log_status(topic: &TopicDescription, prefix: &str, out: &mut impl Write) -> Result<()> {
    for (name, value) in &topic.settings {
        if let Some(partition) = name.strip_prefix(prefix) {
            let line = format!("log {partition}: {value}");
            writeln!(out, "              {}", escaped(line.as_bytes()))?;
        }
    }
    Ok(())
}

fn setting<'t>(topic: &'t TopicDescription, name: &str) -> Option<&'t str> {
    topic.settings.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
}

fn write_logs(logs: &[LogDescription], console: &Console, out: &mut impl Write) -> Result<()> {
    if logs.is_empty() {
        return Ok(());
    }
    let mut table = TextTable::new(&["LOG", "FIRST", "LAST", "RECORDS", "RETAINED BYTES", "LAST APPENDED"]);
    for log in logs {
        table.row([
            log.partition.to_string(),
            log.first.to_string(),
            format!("{}-{}", log.first.epoch, log.last_seq),
            grouped(retained(log)),
            format_bytes(log.bytes),
            if log.last_append_ns == 0 { "never".to_owned() } else { rfc3339(log.last_append_ns) },
        ]);
    }
    writeln!(out)?;
    Ok(table.write(out, console.paint)?)
}

fn write_subscribers(topic: &TopicDescription, console: &Console, out: &mut impl Write) -> Result<()> {
    if topic.subscribers.is_empty() {
        return Ok(());
    }
    let mut table = TextTable::new(&["SUBSCRIBER", "LOG", "POSITION", "LAG", "MISSED", "KIND"]);
    for subscriber in &topic.subscribers {
        table.row([
            subscriber.name.clone(),
            subscriber.partition.to_string(),
            subscriber.position.to_string(),
            grouped(subscriber.lag),
            grouped(subscriber.missed),
            if subscriber.registered { "registered".to_owned() } else { String::new() },
        ]);
    }
    writeln!(out)?;
    table.write(out, console.paint)?;
    let more = (topic.subscribers_total.unwrap_or(0) as usize).saturating_sub(topic.subscribers.len());
    if more > 0 {
        writeln!(out, "and {} more with less lag", grouped(more as u64))?;
    }
    Ok(())
}

fn write_groups(topic: &TopicDescription, console: &Console, out: &mut impl Write) -> Result<()> {
    if topic.groups.is_empty() {
        return Ok(());
    }
    let mut table = TextTable::new(&["GROUP", "KIND", "MEMBERS", "WAITING", "CLAIMED"]);
    for group in &topic.groups {
        table.row([
            group.name.clone(),
            kind(group.work).to_owned(),
            grouped(group.members.into()),
            grouped(group.waiting),
            grouped(group.claimed),
        ]);
    }
    writeln!(out)?;
    table.write(out, console.paint)?;
    for group in topic.groups.iter().filter(|group| group.pending_dead_letters > 0) {
        let (name, count) = (&group.name, grouped(group.pending_dead_letters));
        let error = group.dead_letter_error.as_deref().map(|error| escaped(error.as_bytes()));
        let error = error.map_or_else(String::new, |error| format!(": {error}"));
        writeln!(out, "group {name}: {count} dead letters are not stored yet{error}")?;
    }
    Ok(())
}

fn ack_text(level: AckLevel) -> &'static str {
    match level {
        AckLevel::Memory => "in memory",
        AckLevel::Written => "written",
        _ => "synced",
    }
}

fn kind(work: bool) -> &'static str {
    if work { "work" } else { "share" }
}

fn retained(log: &LogDescription) -> u64 {
    (log.last_seq + 1).saturating_sub(log.first.seq)
}

fn topic_object(topic: &TopicDescription) -> serde_json::Value {
    let config = &topic.config;
    let reliable = config.reliable.as_ref().map(|reliable| {
        let when_full = if reliable.on_full == OnFull::Evict { "evict" } else { "refuse" };
        json!({
            "subscribers_max": reliable.subscribers_max, "wait_ms_max": reliable.wait_max.as_millis() as u64,
            "when_full": when_full,
        })
    });
    let groups: Vec<_> = topic
        .groups
        .iter()
        .map(|group| {
            json!({
                "group": group.name, "kind": kind(group.work), "members": group.members,
                "waiting": group.waiting, "claimed": group.claimed,
                "pending_dead_letters": group.pending_dead_letters,
                "dead_letter_error": group.dead_letter_error,
            })
        })
        .collect();
    json!({
        "topic": topic.name,
        "pattern": config.pattern.as_deref().unwrap_or(&topic.name),
        "retention_bytes": config.retention.bytes,
        "retention_records": config.retention.records,
        "retention_ms": config.retention.age.map(|age| age.as_millis() as u64),
        "record_bytes_max": config.record_bytes_max,
        "reliable": reliable,
        "durable": config.durable.map(|durable| durable.acknowledge.to_string()),
        "reducer": setting(topic, "reducer"),
        "owner": Owner::of(&topic.settings).map(|owner| owner.object()),
        "settings": topic.settings.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
        "publishers": topic.publishers,
        "subscribers_total": topic.subscribers_total,
        "logs": topic.logs.iter().map(log_object).collect::<Vec<_>>(),
        "subscribers": topic.subscribers.iter().map(subscriber_object).collect::<Vec<_>>(),
        "groups": groups,
    })
}

fn log_object(log: &LogDescription) -> serde_json::Value {
    json!({
        "partition": log.partition, "epoch": log.first.epoch, "first_seq": log.first.seq, "last_seq": log.last_seq,
        "records": retained(log), "bytes": log.bytes, "last_append_time_ns": log.last_append_ns.to_string(),
    })
}

fn subscriber_object(subscriber: &SubscriptionDescription) -> serde_json::Value {
    json!({
        "subscriber": subscriber.name, "partition": subscriber.partition, "epoch": subscriber.position.epoch,
        "seq": subscriber.position.seq, "lag": subscriber.lag, "missed": subscriber.missed, "registered": subscriber.registered,
    })
}
