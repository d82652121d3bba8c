//! `POST /v1/kv` executes a transaction.
//!
//! Limit: each list of a transaction has at most [`OPERATIONS_MAX`] elements, because a decoded operation may take more
//! memory than its JSON.

use axum::Extension;
use axum::body::Body;
use axum::http::Request;
use axum::response::Response;
use dunlin::state::{
    Compare, ComparedProperty, Comparison, ControlCommand, ControlReply, KeyOperation, OperationOutcome,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{body, command, json as kv_json, unexpected_reply};
use crate::charging::result_dropped;
use crate::http::context::Context;
use crate::http::limited;
use crate::http::problem::Problem;

/// Maximum number of comparisons or operations in one list. The cluster's own limit (`operations_max`) is lower by
/// default.
const OPERATIONS_MAX: usize = 10_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTransaction {
    #[serde(default, deserialize_with = "limited::list::<OPERATIONS_MAX, _, _>")]
    compare: Vec<RawCompare>,
    #[serde(default, deserialize_with = "limited::list::<OPERATIONS_MAX, _, _>")]
    then: Vec<RawOperation>,
    #[serde(default, deserialize_with = "limited::list::<OPERATIONS_MAX, _, _>", rename = "else")]
    otherwise: Vec<RawOperation>,
}

#[derive(Debug, Deserialize)]
struct RawCompare {
    key: String,
    #[serde(default)]
    is: RawIs,
    #[serde(flatten)]
    target: RawTarget,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RawIs {
    #[default]
    Equal,
    NotEqual,
    Less,
    Greater,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RawTarget {
    Version(u64),
    Created(u64),
    Modified(u64),
    Lease(u64),
    Value(String),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum RawOperation {
    Put {
        key: String,
        value: String,
        #[serde(default)]
        lease: u64,
    },
    Delete {
        key: String,
    },
    DeleteRange {
        start: String,
        #[serde(default)]
        end: String,
    },
    Get {
        key: String,
    },
    Range {
        start: String,
        #[serde(default)]
        end: String,
        #[serde(default)]
        limit: u32,
    },
}

impl RawCompare {
    fn read(&self) -> Compare<'_> {
        let is = match self.is {
            RawIs::Equal => Comparison::Equal,
            RawIs::NotEqual => Comparison::NotEqual,
            RawIs::Less => Comparison::Less,
            RawIs::Greater => Comparison::Greater,
        };
        let target = match &self.target {
            RawTarget::Version(version) => ComparedProperty::Version { version: *version },
            RawTarget::Created(revision) => ComparedProperty::Created { revision: *revision },
            RawTarget::Modified(revision) => ComparedProperty::Modified { revision: *revision },
            RawTarget::Lease(lease) => ComparedProperty::Lease { lease: *lease },
            RawTarget::Value(value) => ComparedProperty::Value { value: value.as_bytes() },
        };
        Compare { key: self.key.as_bytes(), is, target }
    }
}

impl RawOperation {
    fn read(&self) -> KeyOperation<'_> {
        match self {
            RawOperation::Put { key, value, lease } => {
                KeyOperation::Put { key: key.as_bytes(), value: value.as_bytes(), lease: *lease }
            }
            RawOperation::Delete { key } => KeyOperation::Delete { key: key.as_bytes() },
            RawOperation::DeleteRange { start, end } => {
                KeyOperation::DeleteRange { start: start.as_bytes(), end: end.as_bytes() }
            }
            RawOperation::Get { key } => KeyOperation::Get { key: key.as_bytes() },
            RawOperation::Range { start, end, limit } => {
                KeyOperation::Range { start: start.as_bytes(), end: end.as_bytes(), limit: *limit }
            }
        }
    }
}

pub(in crate::http) async fn transact(
    Extension(context): Extension<Context>,
    request: Request<Body>,
) -> Result<Response, Problem> {
    let content = body::read_for_keys(&context, request.into_body()).await?;
    let raw: RawTransaction = serde_json::from_slice(&content.bytes)
        .map_err(|error| Problem::bad_request(format!("the transaction: {error}")))?;
    let operation = ControlCommand::Transaction {
        compare: raw.compare.iter().map(RawCompare::read).collect(),
        then: raw.then.iter().map(RawOperation::read).collect(),
        otherwise: raw.otherwise.iter().map(RawOperation::read).collect(),
    };
    let ControlReply::Transaction { revision, succeeded, results } =
        command(&context, &operation, content.bytes.len()).await?
    else {
        return Err(unexpected_reply());
    };
    let results = results.iter().map(|outcome| match outcome {
        OperationOutcome::Changed { keys } => json!({ "keys": keys }),
        OperationOutcome::Found { found } => {
            json!({"entries": found.items.iter().map(kv_json::pair).collect::<Vec<_>>(), "more": found.more})
        }
    });
    let results: Vec<Value> = results.collect();
    let done = json!({"revision": revision, "succeeded": succeeded, "results": results});
    body::charged_json(&context, &done, result_dropped)
}
