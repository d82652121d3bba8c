//! `POST /v1/topics/{subject}` publishes one record. The body is the payload, and headers contain the record's other
//! fields.

use axum::body::Body;
use axum::http::{HeaderMap, Request, header};
use axum::{Extension, Json};
use dunlin::OwningTopic;
use dunlin::topic::frame::RecordMeta;
use dunlin::topic::{Position, ProducerMark, PublishError, Receipt, Subject, Topic};
use serde_json::{Value, json};

use super::body;
use super::context::Context;
use super::problem::Problem;
use super::query::time_ns;
use super::routes::PathName;
use crate::append::{AppendRequest, append};

/// Prefix of the request headers that become headers of the record.
const RECORD_HEADER: &str = "dunlin-header-";
/// The media type that `curl -d` sends by default. It says nothing about the payload, and is ignored.
const IGNORED_MEDIA_TYPE: &str = "application/x-www-form-urlencoded";

/// The options of a publish request, which apply to all of its records.
#[derive(Debug)]
pub(super) struct PublishOptions {
    pub(super) mark: Option<ProducerMark>,
    pub(super) expect_last: Option<u64>,
    /// The position of the publisher's last acknowledged record in the partition, if the request states one.
    pub(super) after: Option<Position>,
}

/// The topic to which a request publishes records. If the topic was created for this request and no record is accepted,
/// the topic is removed again.
#[derive(Debug)]
pub(super) struct PublishTarget {
    pub(super) topic: OwningTopic,
    pub(super) tail: String,
}

pub(super) async fn publish(
    Extension(context): Extension<Context>,
    PathName(subject): PathName,
    request: Request<Body>,
) -> Result<Json<Value>, Problem> {
    let (parts, body) = request.into_parts();
    let options = PublishOptions::read(&context, &parts.headers)?;
    let target =
        PublishTarget::find(&context, &subject, content_length(&parts.headers), options.after).await?;
    let record_bytes_max = target.topic.config().record_bytes_max as usize;
    let content = body::read(&context, body, record_bytes_max).await?;
    let headers = record_headers(&parts.headers);
    let headers: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let meta = RecordMeta {
        event_time_ns: time(&parts.headers, "dunlin-event-time")?,
        expires_ns: time(&parts.headers, "dunlin-expires")?,
        subject_tail: &target.tail,
        key: parts.headers.get("dunlin-key").map(|value| value.as_bytes()),
        reply: None,
        headers: &headers,
    };
    publish_record(&context, &subject, &target, &meta, &content.bytes, options).await.map(Json)
}

/// Appends one record, and returns its receipt. The topic may have been deleted after it was found, at this node or at
/// its owner. The record then goes to the topic that a later request would find or create.
pub(super) async fn publish_record(
    context: &Context,
    subject: &str,
    target: &PublishTarget,
    meta: &RecordMeta<'_>,
    payload: &[u8],
    options: PublishOptions,
) -> Result<Value, Problem> {
    let mut frame = Vec::new();
    encode(meta, payload, &mut frame)?;
    context.admit_publish(1, frame.len()).await?;
    match append_record(context, target, meta.key, &frame, &options).await {
        Err(PublishError::Closed) => {
            let next = PublishTarget::find(context, subject, payload.len(), options.after).await?;
            frame.clear();
            encode(&RecordMeta { subject_tail: &next.tail, ..*meta }, payload, &mut frame)?;
            Ok(append_record(context, &next, meta.key, &frame, &options).await?)
        }
        appended => Ok(appended?),
    }
}

async fn append_record(
    context: &Context,
    target: &PublishTarget,
    key: Option<&[u8]>,
    frame: &[u8],
    options: &PublishOptions,
) -> Result<Value, PublishError> {
    let partition = target.topic.partition_of(key);
    let PublishOptions { mark, expect_last, after } = *options;
    let (node, tail) = (context.node(), target.tail.as_str());
    let append_request =
        AppendRequest { frames: frame, count: 1, partition, mark, expect_last, after, node, tail };
    let receipt = append(&target.topic, append_request).await?;
    context.record_publish(&target.topic);
    Ok(receipt_json(&target.topic, &receipt))
}

impl PublishTarget {
    /// Finds the topic that owns the subject. If no topic owns it, the node may create one, but only if the new topic
    /// would accept a payload of `payload_bytes`. If `after` states the publisher's last record, a missing topic is an
    /// error, because a new topic would not have that record.
    pub(super) async fn find(
        context: &Context,
        subject: &str,
        payload_bytes: usize,
        after: Option<Position>,
    ) -> Result<PublishTarget, Problem> {
        let (node, parsed) = (context.node(), Subject::parse(subject)?);
        let topic = match after {
            Some(_) => node.existing_topic_async(parsed).await?,
            None => node.owning_topic_for_async(parsed, payload_bytes).await?,
        };
        let prefix = topic.logs()[0].name().subject_prefix.as_str();
        let tail = subject.strip_prefix(prefix).unwrap_or("").to_owned();
        Ok(PublishTarget { topic, tail })
    }
}

impl PublishOptions {
    pub(super) fn read(context: &Context, headers: &HeaderMap) -> Result<PublishOptions, Problem> {
        let producer = number(headers, "dunlin-producer")?;
        let producer_seq = number(headers, "dunlin-producer-seq")?;
        let producer_epoch = number(headers, "dunlin-producer-epoch")?.unwrap_or(0);
        let producer_epoch = u32::try_from(producer_epoch);
        let producer_epoch = producer_epoch
            .map_err(|_| Problem::bad_request("Dunlin-Producer-Epoch: expected a 32-bit number"))?;
        let mark = match (producer, producer_seq) {
            (None, None) => None,
            (Some(id @ 1..), Some(producer_seq @ 1..)) => {
                let producer = context.login().map_or(id, |login| login.account().producer(id));
                Some(ProducerMark { producer, producer_epoch, producer_seq })
            }
            _ => {
                let text = "set both Dunlin-Producer and Dunlin-Producer-Seq, each from 1";
                return Err(Problem::bad_request(text));
            }
        };
        let after = headers.get("dunlin-last-position");
        let after = after.map(|value| position(value.to_str().unwrap_or_default())).transpose()?;
        Ok(PublishOptions { mark, expect_last: number(headers, "dunlin-expect-seq")?, after })
    }
}

/// Parses the position of a publisher's last record, in the format that receipts have.
pub(super) fn position(text: &str) -> Result<Position, Problem> {
    text.parse().map_err(|error| Problem::bad_request(format!("last position {text:?}: {error}")))
}

/// Encodes the record, and appends its frame to `frames`.
pub(super) fn encode(meta: &RecordMeta<'_>, payload: &[u8], frames: &mut Vec<u8>) -> Result<(), Problem> {
    let encoded =
        meta.measure(payload.len()).map_err(|error| Problem::from(dunlin::Refused::from(&error)))?;
    let start = frames.len();
    frames.resize(start + encoded.padded(), 0);
    meta.encode(encoded, 0, payload, &mut frames[start..]);
    Ok(())
}

/// Converts the receipt of a published record to JSON.
pub(super) fn receipt_json(topic: &Topic, receipt: &Receipt) -> Value {
    let Receipt { partition, position, duplicate, acknowledged, new_epoch } = receipt;
    json!({
        "topic": topic.name(),
        "partition": partition,
        "position": position.to_string(),
        "epoch": position.epoch,
        "seq": position.seq,
        "acknowledged": acknowledged.to_string(),
        "duplicate": duplicate,
        "new_epoch": new_epoch,
    })
}

/// The body's length according to `content-length`; 0 if the header is missing.
fn content_length(headers: &HeaderMap) -> usize {
    let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    length.and_then(|length| length.parse().ok()).unwrap_or(0)
}

fn record_headers(headers: &HeaderMap) -> Vec<(String, &[u8])> {
    let mut found = Vec::new();
    if let Some(kind) = headers.get(header::CONTENT_TYPE)
        && kind.as_bytes() != IGNORED_MEDIA_TYPE.as_bytes()
    {
        found.push(("content-type".to_owned(), kind.as_bytes()));
    }
    for (name, value) in headers {
        if let Some(name) = name.as_str().strip_prefix(RECORD_HEADER)
            && !name.is_empty()
        {
            found.push((name.to_owned(), value.as_bytes()));
        }
    }
    found
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>, Problem> {
    let value = headers.get(name).map(|value| value.to_str());
    value.transpose().map_err(|_| Problem::bad_request(format!("{name}: not plain text")))
}

fn number(headers: &HeaderMap, name: &str) -> Result<Option<u64>, Problem> {
    let wrong = |text| Problem::bad_request(format!("{name}: {text:?} is not a 64-bit whole number"));
    text(headers, name)?.map(|text| text.parse().map_err(|_| wrong(text))).transpose()
}

fn time(headers: &HeaderMap, name: &str) -> Result<Option<u64>, Problem> {
    let wrong = |text| {
        let expected = "expected nanoseconds since 1970, or a time like 2026-11-20T09:30:00Z";
        Problem::bad_request(format!("{name}: {text:?}: {expected}"))
    };
    text(headers, name)?.map(|text| time_ns(text).ok_or_else(|| wrong(text))).transpose()
}
