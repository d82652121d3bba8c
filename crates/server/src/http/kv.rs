//! The requests for the cluster's keys (`/v1/kv`, `/v1/watch`), leases (`/v1/leases`) and locks (`/v1/locks`).

mod json;
mod leases;
mod txn;
mod watch;

use axum::body::Body;
use axum::extract::RawQuery;
use axum::http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use axum::response::Response;
use axum::{Extension, Json};
use dunlin::state::{
    ControlCommand, ControlQuery, ControlQueryResult, ControlReply, ControlState, FoundKeys, prefix_end,
};
use dunlin::wire::ErrorCode;
use dunlin::{Consistency, ControlError, Refused};
use serde_json::{Value, json};

use super::body;
use super::context::Context;
use super::problem::Problem;
use super::query::QueryParameters;
use super::routes::PathName;
pub(super) use leases::{acquire, grant, holder, keep_alive, lease, release, revoke};
pub(super) use txn::transact;
pub(super) use watch::watch;

const KEYS_DEFAULT: usize = 1_000;
/// Largest `limit` that a list of keys accepts. The cluster also has a limit of its own.
const KEYS_MAX: usize = 1_000_000;

/// Executes a command in the cluster, if the user has the permission.
async fn command(
    context: &Context,
    command: &ControlCommand<'_>,
    bytes: usize,
) -> Result<ControlReply, Problem> {
    context.admit_command(command, bytes).await?;
    Ok(context.node().execute(command).await?)
}

async fn run_query(
    context: &Context,
    query: &ControlQuery<'_>,
    stale: bool,
) -> Result<ControlQueryResult, Problem> {
    let consistency = if stale { Consistency::Stale } else { Consistency::Linearizable };
    Ok(context.node().query_keys(consistency, query).await?)
}

impl From<ControlError> for Problem {
    fn from(error: ControlError) -> Problem {
        Problem::from(Refused::from(&error))
    }
}

impl From<&ControlError> for Problem {
    fn from(error: &ControlError) -> Problem {
        Problem::from(Refused::from(error))
    }
}

fn key_not_found(key: &str) -> Problem {
    Problem::of(StatusCode::NOT_FOUND, ErrorCode::BadKey, format!("key {key:?} does not exist"))
}

/// The error for a reply of a kind that the command cannot have.
fn unexpected_reply() -> Problem {
    Problem::from(Refused::new(
        ErrorCode::Internal,
        "the cluster's reply does not fit the request; update all nodes to the same version",
    ))
}

pub(super) async fn get(
    Extension(context): Extension<Context>,
    PathName(key): PathName,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let query = QueryParameters::parse(query.as_deref(), &["stale"])?;
    let operation = ControlQuery::Get { key: key.as_bytes() };
    let ControlQueryResult::Found { found: FoundKeys { mut items, .. }, .. } =
        run_query(&context, &operation, query.switch("stale")?).await?
    else {
        return Err(unexpected_reply());
    };
    let item = items.pop().ok_or_else(|| key_not_found(&key))?.item;
    let mut response = Response::new(body::charged(&context, item.value.to_vec(), Refused::from)?);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Ok(tag) = HeaderValue::try_from(format!("\"{}\"", item.modified)) {
        headers.insert(header::ETAG, tag);
    }
    for (name, number) in
        [("dunlin-created", item.created), ("dunlin-version", item.version), ("dunlin-lease", item.lease)]
    {
        headers.insert(name, HeaderValue::from(number));
    }
    Ok(response)
}

/// The revision that the key must have according to `if-match`; 0 if it must not exist. `None` if the request has no
/// condition.
fn expected_revision(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let text =
        |name| headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap_or("").trim().to_owned());
    match (text(header::IF_MATCH), text(header::IF_NONE_MATCH)) {
        (None, None) => Ok(None),
        (None, Some(any)) if any == "*" => Ok(Some(0)),
        (Some(tag), None) => {
            let revision = tag.trim_matches('"').parse();
            let invalid =
                |_| Problem::bad_request(format!("If-Match: {tag}: expected a revision, like \"42\""));
            revision.map(Some).map_err(invalid)
        }
        _ => Err(Problem::bad_request("expected If-Match: \"REVISION\" or If-None-Match: *, not both")),
    }
}

pub(super) async fn put(
    Extension(context): Extension<Context>,
    PathName(key): PathName,
    RawQuery(query): RawQuery,
    request: Request<Body>,
) -> Result<Json<Value>, Problem> {
    let query = QueryParameters::parse(query.as_deref(), &["lease"])?;
    let lease = number(&query, "lease")?.unwrap_or(0);
    let expect = expected_revision(request.headers())?;
    let content = body::read_for_keys(&context, request.into_body()).await?;
    let (key, value) = (key.as_bytes(), &content.bytes[..]);
    let operation = match expect {
        Some(expect) => ControlCommand::PutIf { key, value, lease, expect },
        None => ControlCommand::Put { key, value, lease },
    };
    changed_json(&command(&context, &operation, key.len() + value.len()).await?)
}

pub(super) async fn delete(
    Extension(context): Extension<Context>,
    PathName(key): PathName,
    headers: HeaderMap,
) -> Result<Json<Value>, Problem> {
    let key = key.as_bytes();
    let operation = match expected_revision(&headers)? {
        Some(expect) => ControlCommand::DeleteIf { key, expect },
        None => ControlCommand::Delete { key },
    };
    changed_json(&command(&context, &operation, key.len()).await?)
}

fn changed_json(reply: &ControlReply) -> Result<Json<Value>, Problem> {
    match reply {
        ControlReply::Changed { revision, keys } => Ok(Json(json!({"revision": revision, "keys": keys}))),
        _ => Err(unexpected_reply()),
    }
}

pub(super) async fn range(
    Extension(context): Extension<Context>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let query =
        QueryParameters::parse(query.as_deref(), &["prefix", "start", "end", "after", "limit", "stale"])?;
    let prefix = query.get("prefix").unwrap_or("");
    if !prefix.is_empty() && (query.get("start").is_some() || query.get("end").is_some()) {
        return Err(Problem::bad_request("set prefix, or start and end, not both"));
    }
    let mut start = query.get("start").unwrap_or(prefix).as_bytes().to_vec();
    if let Some(after) = query.get("after") {
        start = start.max([after.as_bytes(), &[0]].concat());
    }
    let end = query.get("end").map_or_else(|| prefix_end(prefix.as_bytes()), |end| end.as_bytes().to_vec());
    let limit = query.count("limit", KEYS_DEFAULT, KEYS_MAX)? as u32;
    let operation = ControlQuery::Range { start: &start, end: &end, limit };
    context.node().may_query(&operation)?;
    let consistency = if query.switch("stale")? { Consistency::Stale } else { Consistency::Linearizable };
    // Reads the epoch and the entries from the same state, so that the revision belongs to this epoch. A client may
    // start a watch at this epoch and revision.
    let read_entries = |state: &ControlState| (state.epoch(), context.node().query_state(state, &operation));
    let (epoch, result) = context.node().control_async().await?.read(consistency, read_entries).await?;
    match result? {
        ControlQueryResult::Found { revision, found } => {
            let entries: Vec<Value> = found.items.iter().map(json::pair).collect();
            let more = found.more;
            let found = json!({"epoch": epoch, "revision": revision, "entries": entries, "more": more});
            body::charged_json(&context, &found, Refused::from)
        }
        _ => Err(unexpected_reply()),
    }
}

fn number(query: &QueryParameters, name: &str) -> Result<Option<u64>, Problem> {
    let read = |text: &str| {
        text.parse().map_err(|_| Problem::bad_request(format!("{name}={text}: expected a whole number")))
    };
    query.get(name).map(read).transpose()
}
