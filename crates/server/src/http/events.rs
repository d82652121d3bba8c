//! `GET /v1/topics/{pattern}/events`: a subscription as server-sent events.

mod format;
mod request;
mod stands;
mod stream;
mod subscribe;

use axum::Extension;
use axum::body::Body;
use axum::extract::RawQuery;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;

use super::context::Context;
use super::problem::Problem;
use super::routes::Name;
use request::EventsRequest;
use stream::EventStream;

pub(super) async fn events(
    Extension(context): Extension<Context>,
    Name(pattern): Name,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let request = EventsRequest::read(query.as_deref(), &headers, &context.peer())?;
    let subscribed = subscribe::subscribe(context.shared(), &pattern, &request)?;
    let stream = EventStream::new(&context, subscribed, request.form);
    let mut response = Response::new(Body::new(stream));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // For proxies that would collect events before they pass them on.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}
