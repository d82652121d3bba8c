//! `POST /v1/topics/{subject}/batch` publishes many records, one on each line of the body.
//!
//! The records of a partition are appended together, all or none. If the records' keys select several partitions, the
//! response has an outcome for each partition.
//!
//! Limits: the body has at most [`BATCH_BYTES_MAX`] bytes, and so have the encoded records of a partition. Above a
//! limit, nothing is published. The encoded records are charged to the client's tenant, because they may take several
//! times the memory of their lines.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::{Extension, Json};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dunlin::topic::frame::{FrameError, RecordMeta};
use dunlin::topic::{BATCH_BYTES_MAX, MemoryCharge, PublishError, Receipt};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::body::{self, media_type};
use super::context::Context;
use super::limited::{self, HEADERS_MAX};
use super::problem::Problem;
use super::publish::{PublishOptions, PublishTarget, encode, receipt_json};
use super::query::{time_ns, whole_number};
use super::routes::PathName;
use crate::append::{AppendRequest, append};

/// A line of a body in the format `application/x-ndjson`. The fields have the names that `dunlin sub --json` prints.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchLine<'a> {
    /// The payload: the text of a JSON string, or the source text of any other JSON value.
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
    payload_base64: Option<String>,
    key: Option<String>,
    key_base64: Option<String>,
    #[serde(default, deserialize_with = "whole_number")]
    event_time_ns: Option<u64>,
    event_time: Option<String>,
    #[serde(default, deserialize_with = "whole_number")]
    expires_ns: Option<u64>,
    #[serde(default, deserialize_with = "limited::list::<HEADERS_MAX, _, _>")]
    headers: Vec<Header>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    name: String,
    value: Option<String>,
    value_base64: Option<String>,
}

/// When the encoded lines have this many bytes, other connections of the thread run before the next line is encoded.
const TURN_BYTES: usize = 256 << 10;

/// The encoded records of a batch, by partition. Their bytes are charged to the memory budget.
#[derive(Debug)]
struct EncodedBatch {
    parts: BTreeMap<usize, PartitionFrames>,
    count: u32,
    bytes: usize,
    charge: MemoryCharge,
}

/// A function that encodes the record in a line and adds it to the batch.
type LineEncoder = fn(&PublishTarget, &[u8], &mut EncodedBatch) -> Result<(), Problem>;

/// The frames that are appended to one partition.
#[derive(Debug, Default)]
struct PartitionFrames {
    frames: Vec<u8>,
    count: u32,
}

pub(super) async fn publish(
    Extension(context): Extension<Context>,
    PathName(subject): PathName,
    request: Request<Body>,
) -> Result<(StatusCode, Json<Value>), Problem> {
    let (parts, body) = request.into_parts();
    let options = PublishOptions::read(&context, &parts.headers)?;
    let target = PublishTarget::find(&context, &subject, 0, options.after).await?;
    let content = body::read(&context, body, BATCH_BYTES_MAX).await?;
    let encoder: LineEncoder = match media_type(&parts.headers) {
        "application/x-ndjson" | "application/jsonl" | "application/json" => encode_json,
        "text/plain" => encode_plain,
        other => {
            let text = format!(
                "Content-Type: {other:?}; expected application/x-ndjson with an object on each line, or \
                 text/plain with a payload on each line"
            );
            let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return Err(Problem::of(status, dunlin::wire::ErrorCode::Protocol, text));
        }
    };
    let batch = encode_lines(&context, &target, &content.bytes, encoder).await?;
    drop(content);
    if batch.parts.len() > 1
        && (options.mark.is_some() || options.expect_last.is_some() || options.after.is_some())
    {
        let text = "a producer's number, an expected sequence and a last position need a single partition, but the keys \
                    select several";
        return Err(Problem::from(dunlin::Refused::new(dunlin::wire::ErrorCode::Batch, text)));
    }
    context.admit_publish(batch.count, batch.bytes).await?;
    append_all(&context, &subject, target, &options, batch.parts).await
}

async fn append_all(
    context: &Context,
    subject: &str,
    mut target: PublishTarget,
    options: &PublishOptions,
    parts: BTreeMap<usize, PartitionFrames>,
) -> Result<(StatusCode, Json<Value>), Problem> {
    let (mut published, mut outcomes, mut first_refusal) = (0, Vec::new(), None);
    for (partition, PartitionFrames { frames, count }) in parts {
        let mut appended = append_part(context, &target, options, partition, &frames, count).await;
        if let Err(PublishError::Closed) = appended
            && let Some(next) = find_next(context, subject, &target, options).await
        {
            target = next;
            appended = append_part(context, &target, options, partition, &frames, count).await;
        }
        match appended {
            Ok(receipt) => {
                published += u64::from(count);
                context.record_publish(&target.topic);
                let mut outcome = receipt_json(&target.topic, &receipt);
                outcome["records"] = count.into();
                outcome["first_seq"] = first_seq(receipt.position.seq, count).into();
                outcomes.push(outcome);
            }
            Err(error) => {
                let problem = Problem::from(error);
                outcomes.push(json!({"partition": partition, "records": count, "error": problem.json()}));
                first_refusal.get_or_insert(problem);
            }
        }
    }
    match first_refusal {
        Some(problem) if published == 0 => Err(problem),
        Some(_) => {
            Ok((StatusCode::MULTI_STATUS, Json(json!({"published": published, "outcomes": outcomes}))))
        }
        None => Ok((StatusCode::OK, Json(json!({"published": published, "outcomes": outcomes})))),
    }
}

async fn append_part(
    context: &Context,
    target: &PublishTarget,
    options: &PublishOptions,
    partition: usize,
    frames: &[u8],
    count: u32,
) -> Result<Receipt, PublishError> {
    let PublishOptions { mark, expect_last, after } = *options;
    let (node, tail) = (context.node(), target.tail.as_str());
    let append_request = AppendRequest { frames, count, partition, mark, expect_last, after, node, tail };
    append(&target.topic, append_request).await
}

/// Finds the topic to which the records go now that the topic of this request is deleted: the one that a new request
/// would find or create. `None` if the encoded frames do not fit that topic.
async fn find_next(
    context: &Context,
    subject: &str,
    deleted: &PublishTarget,
    options: &PublishOptions,
) -> Option<PublishTarget> {
    let next = PublishTarget::find(context, subject, 0, options.after).await.ok()?;
    let partitions = |target: &PublishTarget| target.topic.config().partitions;
    (next.tail == deleted.tail && partitions(&next) == partitions(deleted)).then_some(next)
}

/// The sequence number of the first of `count` consecutive records, if the last record has the number `last`. `None` if
/// the first record belongs to an earlier epoch. This happens when a producer repeats records that the topic stored
/// partly in one epoch and partly in the next.
fn first_seq(last: u64, count: u32) -> Option<u64> {
    (last + 1).checked_sub(count.into()).filter(|first| *first > 0)
}

/// Encodes the frames of all lines, grouped by partition.
async fn encode_lines(
    context: &Context,
    target: &PublishTarget,
    content: &[u8],
    encode_line: LineEncoder,
) -> Result<EncodedBatch, Problem> {
    let charge = MemoryCharge::none(context.node().connection_budget());
    let mut batch = EncodedBatch { parts: BTreeMap::new(), count: 0, bytes: 0, charge };
    let mut turn_bytes = 0;
    let content = content.strip_suffix(b"\n").unwrap_or(content);
    for line in content.split(|&byte| byte == b'\n') {
        encode_line(target, line.strip_suffix(b"\r").unwrap_or(line), &mut batch)?;
        turn_bytes += line.len() + 1;
        if turn_bytes >= TURN_BYTES {
            turn_bytes = 0;
            tokio::task::yield_now().await;
        }
    }
    if batch.count == 0 {
        return Err(Problem::from(PublishError::Batch("a batch needs at least one record")));
    }
    Ok(batch)
}

fn encode_plain(target: &PublishTarget, line: &[u8], batch: &mut EncodedBatch) -> Result<(), Problem> {
    let meta = RecordMeta { subject_tail: &target.tail, ..RecordMeta::default() };
    batch.add_frame(target, &meta, line)
}

fn encode_json(target: &PublishTarget, line: &[u8], batch: &mut EncodedBatch) -> Result<(), Problem> {
    if line.trim_ascii().is_empty() {
        return Ok(());
    }
    let number = batch.count + 1;
    let wrong = |fault: String| Problem::bad_request(format!("record {number} of the batch: {fault}"));
    // Refuses a JSON list, because serde would accept it and read its elements as the fields, in order.
    if !line.trim_ascii_start().starts_with(b"{") {
        return Err(wrong("expected an object".to_owned()));
    }
    let line: BatchLine<'_> = serde_json::from_slice(line).map_err(|error| wrong(error.to_string()))?;
    let payload = line.payload().map_err(wrong)?;
    let key = bytes_of("key", line.key, line.key_base64).map_err(wrong)?;
    let mut headers = Vec::with_capacity(line.headers.len());
    for Header { name, value, value_base64 } in line.headers {
        headers.push((name, bytes_of("value", value, value_base64).map_err(wrong)?.unwrap_or_default()));
    }
    let headers: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
    let event_time_ns = match (line.event_time_ns, line.event_time) {
        (ns, None) => ns,
        (None, Some(text)) => Some(time_ns(&text).ok_or_else(|| {
            wrong(format!("event_time {text:?}: expected a time like 2026-11-20T09:30:00Z"))
        })?),
        (Some(_), Some(_)) => return Err(wrong("set event_time or event_time_ns, not both".to_owned())),
    };
    let meta = RecordMeta {
        event_time_ns,
        expires_ns: line.expires_ns,
        subject_tail: &target.tail,
        key: key.as_deref(),
        reply: None,
        headers: &headers,
    };
    batch.add_frame(target, &meta, &payload)
}

impl BatchLine<'_> {
    fn payload(&self) -> Result<Vec<u8>, String> {
        match (self.payload, &self.payload_base64) {
            (Some(json), None) if json.get().starts_with('"') => {
                let text: String = serde_json::from_str(json.get()).map_err(|error| error.to_string())?;
                Ok(text.into_bytes())
            }
            (Some(json), None) => Ok(json.get().as_bytes().to_vec()),
            (None, Some(text)) => STANDARD.decode(text).map_err(|error| format!("payload_base64: {error}")),
            _ => Err("set payload or payload_base64".to_owned()),
        }
    }
}

/// The bytes of a field that the request states either as text or as base64.
fn bytes_of(name: &str, plain: Option<String>, base64: Option<String>) -> Result<Option<Vec<u8>>, String> {
    match (plain, base64) {
        (None, None) => Ok(None),
        (Some(text), None) => Ok(Some(text.into_bytes())),
        (None, Some(text)) => {
            STANDARD.decode(text).map(Some).map_err(|error| format!("{name}_base64: {error}"))
        }
        (Some(_), Some(_)) => Err(format!("set {name} or {name}_base64, not both")),
    }
}

impl EncodedBatch {
    fn add_frame(
        &mut self,
        target: &PublishTarget,
        meta: &RecordMeta<'_>,
        payload: &[u8],
    ) -> Result<(), Problem> {
        let part = self.parts.entry(target.topic.partition_of(meta.key)).or_default();
        let bytes_before = part.frames.len();
        encode(meta, payload, &mut part.frames)?;
        part.count += 1;
        self.count += 1;
        // A short line takes fewer bytes than its frame, so the frames may exceed the limit although the lines do not.
        // The append would also refuse too many bytes, but only after all lines were encoded.
        let bytes = part.frames.len();
        if part.count > 1 && bytes > BATCH_BYTES_MAX {
            let too_large = FrameError::TooLarge { bytes, bytes_max: BATCH_BYTES_MAX };
            return Err(Problem::from(dunlin::Refused::from(&too_large)));
        }
        self.bytes += bytes - bytes_before;
        self.charge.grow_to(self.bytes).map_err(PublishError::from)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_sequence_of_a_batch_that_spans_two_epochs_is_unknown() {
        assert_eq!((first_seq(5, 5), first_seq(7, 1)), (Some(1), Some(7)));
        assert_eq!((first_seq(4, 5), first_seq(1, 5)), (None, None));
    }
}
