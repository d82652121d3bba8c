//! `GET /report` returns a file that `dunlin report` has created. The dashboard shows this file.
//!
//! Every user of the node may read the file. It is read from disk for each request, and its content security policy
//! forbids scripts.

use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use axum::Extension;
use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use dunlin::wire::ErrorCode;

use super::context::Context;
use super::problem::Problem;
use crate::whole_file::check_is_file;

const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'; sandbox";

pub(super) async fn report(Extension(context): Extension<Context>) -> Result<Response<Body>, Problem> {
    let Some(path) = context.shared().report.clone() else {
        return Err(missing("set http.report to a file of dunlin report"));
    };
    let bytes_max = context.limits().http.report_bytes_max;
    let read = tokio::task::spawn_blocking(move || read(&path, bytes_max)).await;
    let bytes = read.unwrap_or_else(|_| Err(missing("the file could not be read")))?;
    let mut response = Response::new(Body::from(bytes));
    for (name, value) in [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-cache"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    Ok(response)
}

fn read(path: &PathBuf, bytes_max: u64) -> Result<Vec<u8>, Problem> {
    let mut bytes = Vec::new();
    check_is_file(path).map_err(|error| failed(path, &error))?;
    let file = std::fs::File::open(path).map_err(|error| failed(path, &error))?;
    file.take(bytes_max + 1).read_to_end(&mut bytes).map_err(|error| failed(path, &error))?;
    if bytes.len() as u64 > bytes_max {
        return Err(missing(format!("the file has more than {bytes_max} bytes")));
    }
    Ok(bytes)
}

fn failed(path: &Path, error: &std::io::Error) -> Problem {
    tracing::warn!(path = %path.display(), %error, "the report cannot be read");
    // The log contains the file's path; the response must not.
    missing(match error.kind() {
        ErrorKind::NotFound => "the file does not exist",
        _ => "the node cannot read the file; its log contains the reason",
    })
}

fn missing(why: impl std::fmt::Display) -> Problem {
    Problem::of(StatusCode::NOT_FOUND, ErrorCode::Protocol, format!("there is no report: {why}"))
}
