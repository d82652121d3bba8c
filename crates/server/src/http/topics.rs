//! Requests at `/v1/topics`: listing, describing, creating, moving and deleting topics.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::RawQuery;
use axum::http::{Request, StatusCode};
use axum::{Extension, Json};
use dunlin::state::ControlReply;
use dunlin::topic::{LogInfo, Position, SubscriberInfo, Topic};
use dunlin::wire::ErrorCode;
use dunlin::{GroupKind, Refused};
use serde::Deserialize;
use serde_json::{Value, json};

use super::body;
use super::context::Context;
use super::problem::Problem;
use super::query::{QueryParameters, format_time};
use super::routes::PathName;
use super::settings::{Settings, settings_json};
use super::topic_filter::{TopicFilter, state_of};
use crate::figures::{ClusterFigures, OwnerFigures, SUBSCRIBERS_SHOWN, TopicFigures};
use crate::session::turn::pause_after;

const LIMIT_DEFAULT: usize = 100;

pub(super) async fn list(
    Extension(context): Extension<Context>,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Problem> {
    let query =
        QueryParameters::parse(query.as_deref(), &["pattern", "contains", "state", "after", "limit"])?;
    let topic_filter = TopicFilter::of(&query)?;
    let limit = query.count("limit", LIMIT_DEFAULT, context.node().config().limits.page_topics_max)?;
    let page = topic_filter.page(&context, query.get("after").unwrap_or(""), limit).await;
    let figures = context.shared().figures_of(&page.topics).await;
    let mut topics = Vec::with_capacity(page.topics.len());
    for (described, topic) in page.topics.iter().enumerate() {
        topics.push(topic_json(&context, topic, &figures));
        pause_after(described).await;
    }
    if !page.more && topic_filter.accepts_all() {
        // The end of the list names the durable topics that could not be opened.
        let refused = context.node().refused_topics();
        topics.extend(refused.iter().map(|topic| json!({"name": topic.name, "refused": topic.why})));
    }
    Ok(Json(json!({"topics": topics, "more": page.more, "next": page.next})))
}

/// Describes a topic as an entry of the list. Figures from a node that does not respond are null.
fn topic_json(context: &Context, topic: &Arc<Topic>, figures: &ClusterFigures) -> Value {
    let TopicFigures { owner, clients } = figures.of(context.shared(), topic);
    let config = topic.config();
    json!({
        "name": topic.name(), "pattern": topic.pattern(), "partitions": config.partitions,
        "durable": config.durable.is_some(), "reliable": config.reliable.is_some(),
        "retained_records": owner.as_ref().map(OwnerFigures::records), "retained_bytes": owner.as_ref().map(OwnerFigures::bytes),
        "records": owner.as_ref().map(OwnerFigures::appended), "subscribers": clients.map(|clients| clients.subscribers_total),
        "owner": context.shared().owner_of(topic), "state": state_of(topic),
    })
}

pub(super) async fn describe(
    Extension(context): Extension<Context>,
    PathName(name): PathName,
) -> Result<Json<Value>, Problem> {
    let Some(topic) = context.node().topic(&name) else {
        return Err(Problem::from(context.node().missing_topic_error(&name)));
    };
    let figures = context.shared().figures_of(std::slice::from_ref(&topic)).await;
    let TopicFigures { owner, clients } = figures.of(context.shared(), &topic);
    let logs = owner.as_ref().map(|owner| {
        let log = |(partition, info): &(u16, LogInfo)| log_json(*partition, *info);
        owner.logs.iter().map(log).collect::<Vec<_>>()
    });
    let groups = owner.as_ref().map(|owner| owner.groups.iter().map(group_json).collect::<Vec<_>>());
    let subscribers = clients.as_ref().map(|clients| {
        let shown = clients.subscribers.iter().take(SUBSCRIBERS_SHOWN);
        shown.map(|(node, subscriber)| subscriber_json(*node, subscriber)).collect::<Vec<_>>()
    });
    Ok(Json(json!({
        "name": topic.name(),
        "config": settings_json(topic.pattern(), topic.config()),
        "owner": context.shared().owner_of(&topic),
        "publishers": clients.as_ref().map(|clients| clients.publishers),
        "subscribers_total": clients.as_ref().map(|clients| clients.subscribers_total),
        "logs": logs,
        "subscribers": subscribers,
        "groups": groups,
    })))
}

fn log_json(partition: u16, info: LogInfo) -> Value {
    let at = |seq| Position { epoch: info.epoch, seq }.to_string();
    json!({
        "partition": partition,
        "epoch": info.epoch,
        "first": (info.oldest_seq < info.next_seq).then(|| at(info.oldest_seq)),
        "last": (info.next_seq > 1).then(|| at(info.next_seq - 1)),
        "retained_records": info.next_seq - info.oldest_seq,
        "memory_bytes": info.bytes,
        "disk_bytes": info.stored.map(|stored| stored.bytes),
        "synced": info.stored.map(|stored| at(stored.synced_seq)),
        "last_append": (info.last_append_ns > 0).then(|| format_time(info.last_append_ns)),
    })
}

/// Converts a subscriber to JSON, with its position, its lag and the records that it lost.
pub(super) fn subscriber_json(node: Option<u64>, subscriber: &SubscriberInfo) -> Value {
    let time_if_set = |ns: u64| (ns > 0).then(|| format_time(ns));
    json!({
        "name": subscriber.name,
        "node": node,
        "protocol": if subscriber.protocol.is_empty() { "in process" } else { subscriber.protocol },
        "partition": subscriber.partition,
        "position": subscriber.position.to_string(),
        "lag": subscriber.lag,
        "missed": subscriber.missed,
        "lagging_at": time_if_set(subscriber.lagging_ns),
        "missed_at": time_if_set(subscriber.missed_ns),
        "registered": subscriber.registered,
    })
}

fn group_json(group: &dunlin::GroupInfo) -> Value {
    json!({
        "name": group.name,
        "kind": match group.kind {
            GroupKind::Share => "share",
            GroupKind::Work => "work",
        },
        "members": group.members.len(),
        "waiting": group.waiting,
        "claimed": group.claimed,
        "pending_dead_letters": group.pending_dead_letters,
        "dead_letter_error": group.dead_letter_error,
    })
}

/// Creates a topic. The request may be repeated: it succeeds if a topic with the same configuration exists.
pub(super) async fn create(
    Extension(context): Extension<Context>,
    PathName(name): PathName,
    request: Request<Body>,
) -> Result<(StatusCode, Json<Value>), Problem> {
    let content = body::read_control(&context, request.into_body()).await?;
    let config = Settings::parse(&content.bytes)?.apply_to(&context.node().config().topic)?;
    let existed = context.node().topic(&name).is_some();
    let topic = context.node().create_topic_async(&name, config, true).await?;
    let status = if existed { StatusCode::OK } else { StatusCode::CREATED };
    let body = json!({"name": topic.name(), "config": settings_json(topic.pattern(), topic.config())});
    Ok((status, Json(body)))
}

/// The body of a request to move a topic; `node` is the number of the new owner.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MoveRequest {
    node: u64,
}

pub(super) async fn move_to(
    Extension(context): Extension<Context>,
    PathName(name): PathName,
    request: Request<Body>,
) -> Result<Json<Value>, Problem> {
    let content = body::read_control(&context, request.into_body()).await?;
    let to: MoveRequest = serde_json::from_slice(&content.bytes)
        .map_err(|error| Problem::bad_request(format!("expected {{\"node\": NUMBER}}: {error}")))?;
    let command = context.node().command_to_move(&name, to.node)?;
    context.admit_command(&command, content.bytes.len()).await?;
    match context.node().control_async().await?.execute(&command).await? {
        ControlReply::Placed { owner, epoch, .. } => {
            Ok(Json(json!({"name": name, "node": owner, "epoch": epoch})))
        }
        _ => Err(Problem::from(Refused::new(ErrorCode::CommandUnknown, ""))),
    }
}

pub(super) async fn delete(
    Extension(context): Extension<Context>,
    PathName(name): PathName,
) -> Result<StatusCode, Problem> {
    context.node().delete_topic_async(&name).await?;
    Ok(StatusCode::NO_CONTENT)
}
