//! Reads the bodies of requests, with limits on size and time, and creates large bodies of responses. The memory of
//! both is charged to the client's tenant.

use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use dunlin::Refused;
use dunlin::topic::{MemoryBudgetError, MemoryCharge};
use dunlin::wire::ErrorCode;
use http_body_util::BodyExt;
use serde_json::Value;

use super::context::Context;
use super::problem::Problem;
use crate::charging::{charge_if_large, charged_bytes};

/// A request's body. Its bytes are charged to the memory budget until it is dropped.
#[derive(Debug)]
pub(super) struct ChargedBody {
    pub(super) bytes: Bytes,
    _charge: MemoryCharge,
}

/// A function that creates the refusal of a body that is too large. Its parameters are the body's size and the limit,
/// bytes.
type TooLarge = fn(u64, usize) -> Problem;

/// Reads a body that contains one or more records.
pub(super) async fn read(context: &Context, body: Body, bytes_max: usize) -> Result<ChargedBody, Problem> {
    read_limited(context, body, bytes_max, record_too_large).await
}

/// Reads the body of a request without records, keys or tasks, such as a topic's configuration.
pub(super) async fn read_control(context: &Context, body: Body) -> Result<ChargedBody, Problem> {
    read_limited(context, body, context.limits().control_bytes_max as usize, body_too_large).await
}

pub(super) async fn read_for_keys(context: &Context, body: Body) -> Result<ChargedBody, Problem> {
    read_limited(context, body, context.limits().run_bytes_max as usize, keys_too_large).await
}

pub(super) async fn read_for_tasks(context: &Context, body: Body) -> Result<ChargedBody, Problem> {
    read_limited(context, body, context.limits().run_bytes_max as usize, tasks_too_large).await
}

/// Reads the whole body. If the body has more than `bytes_max` bytes, `too_large` creates the refusal.
async fn read_limited(
    context: &Context,
    body: Body,
    bytes_max: usize,
    too_large: TooLarge,
) -> Result<ChargedBody, Problem> {
    let announced = body.size_hint().lower();
    if announced > bytes_max as u64 {
        return Err(too_large(announced, bytes_max));
    }
    let ms_max = context.limits().http.body_ms_max;
    let reading = collect_frames(context, body, bytes_max, too_large);
    let timed_out = |_| {
        let text = format!("the body did not arrive within {ms_max} ms (http.body_ms_max)");
        Err(Problem::of(StatusCode::REQUEST_TIMEOUT, ErrorCode::Protocol, text))
    };
    tokio::time::timeout(Duration::from_millis(ms_max.into()), reading).await.unwrap_or_else(timed_out)
}

async fn collect_frames(
    context: &Context,
    mut body: Body,
    bytes_max: usize,
    too_large: TooLarge,
) -> Result<ChargedBody, Problem> {
    let mut charge = MemoryCharge::none(context.node().connection_budget());
    let mut first: Option<Bytes> = None;
    let mut all = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Problem::bad_request(format!("the body ended early: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        let bytes = first.as_ref().map_or(all.len(), Bytes::len) + data.len();
        if bytes > bytes_max {
            return Err(too_large(bytes as u64, bytes_max));
        }
        charge.grow_to(bytes).map_err(Refused::from)?;
        match first.take() {
            None if all.is_empty() => first = Some(data),
            before => {
                all.extend_from_slice(before.as_deref().unwrap_or_default());
                all.extend_from_slice(&data);
            }
        }
    }
    Ok(ChargedBody { bytes: first.unwrap_or_else(|| all.into()), _charge: charge })
}

/// Creates the body of a response. A large body is charged to the memory budget until it is sent. If the budget has no
/// room, `refuse` creates the error.
pub(super) fn charged(
    context: &Context,
    bytes: Vec<u8>,
    refuse: fn(MemoryBudgetError) -> Refused,
) -> Result<Body, Problem> {
    let charge = charge_if_large(context.node().connection_budget(), bytes.len(), 0);
    Ok(match charge.map_err(|spent| Problem::from(refuse(spent)))? {
        Some(charge) => Body::from(charged_bytes(bytes, charge)),
        None => Body::from(bytes),
    })
}

/// Creates a JSON response, whose body is [`charged`].
pub(super) fn charged_json(
    context: &Context,
    value: &Value,
    refuse: fn(MemoryBudgetError) -> Refused,
) -> Result<Response, Problem> {
    let mut response = Response::new(charged(context, value.to_string().into_bytes(), refuse)?);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

fn body_too_large(bytes: u64, bytes_max: usize) -> Problem {
    let text = format!("the body has {bytes} bytes or more, but at most {bytes_max} are allowed");
    Problem::of(StatusCode::PAYLOAD_TOO_LARGE, ErrorCode::Protocol, text)
}

fn record_too_large(bytes: u64, bytes_max: usize) -> Problem {
    let numbers = [bytes, bytes_max as u64, 0];
    Problem::from(Refused { numbers, ..Refused::new(ErrorCode::RecordTooLarge, "") })
}

fn keys_too_large(bytes: u64, bytes_max: usize) -> Problem {
    let numbers = [bytes, bytes_max as u64, 0];
    Problem::from(Refused { numbers, ..Refused::new(ErrorCode::KeyTooLarge, "run_bytes_max") })
}

fn tasks_too_large(bytes: u64, bytes_max: usize) -> Problem {
    let numbers = [bytes, bytes_max as u64, 0];
    Problem::from(Refused { numbers, ..Refused::new(ErrorCode::TaskTooLarge, "run_bytes_max") })
}

/// The media type in the header `content-type`, without its parameters. Empty if the header is missing.
pub(super) fn media_type(headers: &HeaderMap) -> &str {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    value.split(';').next().unwrap_or("").trim()
}
