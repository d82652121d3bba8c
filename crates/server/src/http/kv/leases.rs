//! The requests for leases (`/v1/leases`) and locks (`/v1/locks`).

use axum::body::Body;
use axum::extract::RawQuery;
use axum::http::{Request, StatusCode};
use axum::response::Response;
use axum::{Extension, Json};
use dunlin::Refused;
use dunlin::state::{ControlCommand, ControlQuery, ControlQueryResult, ControlReply, FoundKeys, LOCKS};
use dunlin::wire::ErrorCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{body, command, json as kv_json, number, run_query, unexpected_reply};
use crate::http::context::Context;
use crate::http::problem::Problem;
use crate::http::query::QueryParameters;
use crate::http::routes::PathName;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLease {
    ttl_ms: u64,
}

fn parse_lease(text: &str) -> Result<u64, Problem> {
    text.parse().map_err(|_| Problem::bad_request(format!("{text:?} is not a lease's number")))
}

pub(in crate::http) async fn grant(
    Extension(context): Extension<Context>,
    request: Request<Body>,
) -> Result<(StatusCode, Json<Value>), Problem> {
    let content = body::read_control(&context, request.into_body()).await?;
    let RawLease { ttl_ms } = serde_json::from_slice(&content.bytes).map_err(|error| {
        Problem::bad_request(format!("invalid lease: {error}; expected {{\"ttl_ms\": 10000}}"))
    })?;
    match command(&context, &ControlCommand::Grant { ttl_ms }, 0).await? {
        ControlReply::Granted { lease, ttl_ms } => {
            Ok((StatusCode::CREATED, Json(json!({"lease": lease, "ttl_ms": ttl_ms}))))
        }
        _ => Err(unexpected_reply()),
    }
}

pub(in crate::http) async fn lease(
    Extension(context): Extension<Context>,
    PathName(lease): PathName,
) -> Result<Json<Value>, Problem> {
    let lease = parse_lease(&lease)?;
    let ControlQueryResult::Leases { leases, .. } =
        run_query(&context, &ControlQuery::Lease { lease }, false).await?
    else {
        return Err(unexpected_reply());
    };
    let state = leases.first().ok_or_else(|| lease_not_found(lease))?;
    Ok(Json(json!({
        "lease": state.lease, "ttl_ms": state.ttl_ms, "left_ms": state.left_ms, "keys": state.keys,
        "waits": state.waits,
    })))
}

fn lease_not_found(lease: u64) -> Problem {
    Problem::from(Refused { numbers: [lease, 0, 0], ..Refused::new(ErrorCode::NoLease, "") })
}

pub(in crate::http) async fn keep_alive(
    Extension(context): Extension<Context>,
    PathName(lease): PathName,
) -> Result<StatusCode, Problem> {
    let lease = parse_lease(&lease)?;
    match command(&context, &ControlCommand::KeepAlive { leases: vec![lease] }, 0).await? {
        ControlReply::KeptAlive { ended } if ended.is_empty() => Ok(StatusCode::NO_CONTENT),
        ControlReply::KeptAlive { .. } => Err(lease_not_found(lease)),
        _ => Err(unexpected_reply()),
    }
}

pub(in crate::http) async fn revoke(
    Extension(context): Extension<Context>,
    PathName(lease): PathName,
) -> Result<StatusCode, Problem> {
    command(&context, &ControlCommand::Revoke { lease: parse_lease(&lease)? }, 0).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The query parameter `lease`, which every request to acquire or release a lock must have.
fn lease_parameter(query: &QueryParameters) -> Result<u64, Problem> {
    number(query, "lease")?.ok_or_else(|| {
        Problem::bad_request("lease is missing: expected lease=NUMBER, as returned by POST /v1/leases")
    })
}

/// Acquires the lock. With the parameter `wait`, waits until the lock is free or the request ends.
pub(in crate::http) async fn acquire(
    Extension(context): Extension<Context>,
    PathName(name): PathName,
    RawQuery(query): RawQuery,
    request: Request<Body>,
) -> Result<Json<Value>, Problem> {
    let query = QueryParameters::parse(query.as_deref(), &["lease", "wait"])?;
    let (lease, wait) = (lease_parameter(&query)?, query.switch("wait")?);
    let content = body::read_control(&context, request.into_body()).await?;
    let (name, value) = (name.as_bytes(), &content.bytes[..]);
    let operation = ControlCommand::Acquire { name, lease, value, wait };
    let bytes = name.len() + value.len();
    let token = if wait {
        context.admit_command(&operation, bytes).await?;
        context.run_while_valid(context.node().acquire(name, lease, value)).await?
    } else {
        match command(&context, &operation, bytes).await? {
            ControlReply::Held { token } => token,
            _ => return Err(unexpected_reply()),
        }
    };
    Ok(Json(json!({"token": token, "lease": lease})))
}

pub(in crate::http) async fn release(
    Extension(context): Extension<Context>,
    PathName(name): PathName,
    RawQuery(query): RawQuery,
) -> Result<StatusCode, Problem> {
    let lease = lease_parameter(&QueryParameters::parse(query.as_deref(), &["lease"])?)?;
    command(&context, &ControlCommand::Release { name: name.as_bytes(), lease }, 0).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Returns the lock's holder. The field `created` of the response is the fencing token.
pub(in crate::http) async fn holder(
    Extension(context): Extension<Context>,
    PathName(name): PathName,
) -> Result<Response, Problem> {
    let key = [LOCKS, name.as_bytes()].concat();
    let operation = ControlQuery::Get { key: &key };
    let ControlQueryResult::Found { found: FoundKeys { items, .. }, .. } =
        run_query(&context, &operation, false).await?
    else {
        return Err(unexpected_reply());
    };
    let not_held =
        || Problem::of(StatusCode::NOT_FOUND, ErrorCode::LockNotHeld, format!("lock {name:?} has no holder"));
    let pair = items.first().ok_or_else(not_held)?;
    body::charged_json(&context, &kv_json::pair(pair), Refused::from)
}
