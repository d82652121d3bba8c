//! The routes of the HTTP listener: which handler serves which path.

use std::convert::Infallible;
use std::sync::LazyLock;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, Request, Response, StatusCode, Uri, header};
use axum::response::IntoResponse;
use axum::routing::{MethodRouter, get, post, put};
use dunlin::Refused;
use dunlin::wire::ErrorCode;
use hyper::body::Incoming;
use tower_service::Service;

use super::context::Context;
use super::problem::Problem;
use super::{
    batch, events, gate, health, kv, metrics, node_report, page, paths, publish, report, socket,
    subscriptions, tasks, topics,
};
use crate::spans::{self, TracedBody};

/// The response at `/` for clients that are not browsers.
pub(super) const INDEX: &str = "\
Dunlin's HTTP listener. In a browser, this address shows the dashboard. Try:
  curl -N HERE/v1/topics/ticks/events                  read from now on
  curl HERE/v1/topics/ticks -d hello                   publish a record
  curl HERE/v1/topics                                  list the topics
  curl 'HERE/v1/subscriptions?sort=lag'                list subscriptions, the slowest first
  curl -X PUT HERE/v1/kv/a -d 1                        write a key; curl HERE/v1/kv/a reads it
  curl HERE/metrics                                    metrics for Prometheus
  curl HERE/healthz HERE/readyz HERE/startupz          health probes
";

/// Paths that need no login. On the WebSocket path, the client logs in with its first message.
const NO_LOGIN_PATHS: [&str; 5] = [paths::INDEX, paths::HEALTHZ, paths::READYZ, paths::STARTUPZ, paths::WS];

static ROUTES: LazyLock<Router> = LazyLock::new(|| {
    let only = |methods: MethodRouter| methods.fallback(method_not_allowed);
    Router::new()
        .route(paths::INDEX, only(get(socket::upgrade_or_index)))
        .route(paths::TOPICS, only(get(topics::list)))
        .route(
            paths::TOPIC,
            only(get(topics::describe).put(topics::create).delete(topics::delete).post(publish::publish)),
        )
        .route(paths::OWNER, only(put(topics::move_to)))
        .route(paths::BATCH, only(post(batch::publish)))
        .route(paths::EVENTS, only(get(events::events)))
        .route(paths::SUBSCRIPTIONS, only(get(subscriptions::subscriptions)))
        .route(paths::KV, only(get(kv::range).post(kv::transact)))
        .route(paths::KEY, only(get(kv::get).put(kv::put).delete(kv::delete)))
        .route(paths::WATCH, only(get(kv::watch)))
        .route(paths::LEASES, only(post(kv::grant)))
        .route(paths::LEASE, only(get(kv::lease).put(kv::keep_alive).delete(kv::revoke)))
        .route(paths::LOCK, only(get(kv::holder).put(kv::acquire).delete(kv::release)))
        .route(paths::NODE, only(get(node_report::about)))
        .route(paths::WS, only(get(socket::upgrade)))
        .route(paths::TASKS, only(get(tasks::list).post(tasks::submit)))
        .route(paths::TASK, only(get(tasks::describe).delete(tasks::cancel)))
        .route(paths::HEALTHZ, only(get(health::healthz)))
        .route(paths::READYZ, only(get(health::readyz)))
        .route(paths::STARTUPZ, only(get(health::startupz)))
        .route(paths::METRICS, only(get(metrics::metrics)))
        .route(paths::REPORT, only(get(report::report)))
        .fallback(not_found)
});

pub(super) async fn handle(
    context: Context,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let started = Instant::now();
    let span = spans::request_span(&request, paths::route_of(request.uri().path()), context.peer_address());
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let origin = request.headers().get(header::ORIGIN).cloned();
    let mut response = match gate::check(&context, &request) {
        Err(problem) => problem.into_response(),
        Ok(()) => {
            let mut response = match gate::preflight(&request) {
                Some(response) => response,
                None => admit(&context, request).await,
            };
            gate::allow_page(origin, &mut response);
            response
        }
    };
    response.headers_mut().insert("dunlin-node", node_number(&context));
    log_request(&context, &method, &uri, response.status(), started);
    if span.is_disabled() {
        return Ok(response);
    }
    spans::record_response(&span, &response);
    Ok(response.map(|body| Body::new(TracedBody::for_request(body, span))))
}

/// Logs the user in and handles the request. Health probes and the dashboard's files need no login.
async fn admit(context: &Context, request: Request<Incoming>) -> Response<Body> {
    if NO_LOGIN_PATHS.contains(&request.uri().path()) || page::is_file(request.uri().path()) {
        return route(context.clone(), request).await;
    }
    let mut values = request.headers().get_all(header::AUTHORIZATION).iter();
    let authorization = values.next().cloned();
    if values.next().is_some() {
        // Refuses a repeated `authorization` header, because a proxy in front of the node might check a different one
        // than the node does.
        return Problem::from(Refused::new(
            ErrorCode::Unauthenticated,
            "the request has more than one Authorization header",
        ))
        .into_response();
    }
    match context.log_in(authorization.as_ref().map(|value| value.as_bytes())).await {
        Ok(context) => route(context, request).await,
        Err(refused) => Problem::from(refused).into_response(),
    }
}

async fn route(context: Context, request: Request<Incoming>) -> Response<Body> {
    let mut request = request.map(Body::new);
    request.extensions_mut().insert(context);
    ROUTES.clone().call(request).await.into_response()
}

/// A number that identifies this run of the node's process. It changes with each restart.
fn node_number(context: &Context) -> axum::http::HeaderValue {
    let text = format!("{:016x}", context.node().id());
    axum::http::HeaderValue::try_from(text).expect("hexadecimal digits are valid in a header's value")
}

fn log_request(context: &Context, method: &Method, uri: &Uri, status: StatusCode, started: Instant) {
    let duration = started.elapsed();
    context.shared().traffic.count_response(method.as_str(), status.as_u16());
    let (status, us) = (status.as_u16(), duration.as_micros() as u64);
    tracing::debug!(protocol = "http", peer = %context.peer(), %method, path = uri.path(), status, us, "the node answered a request");
}

async fn not_found(method: Method, uri: Uri, headers: HeaderMap) -> Response<Body> {
    if let Some(file) = page::respond(&method, uri.path(), &headers) {
        return file;
    }
    let text = format!("{} does not exist; GET / shows examples", uri.path());
    Problem::of(StatusCode::NOT_FOUND, ErrorCode::Protocol, text).into_response()
}

async fn method_not_allowed(method: Method, uri: Uri) -> Problem {
    let text = format!("{} does not support {method}", uri.path());
    Problem::of(StatusCode::METHOD_NOT_ALLOWED, ErrorCode::Protocol, text)
}

/// The placeholder's value in a request's path, such as a name, subject or pattern.
#[derive(Debug)]
pub(super) struct PathName(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for PathName {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<PathName, Problem> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let Path(name) = path.map_err(|error| Problem::bad_request(error.body_text()))?;
        Ok(PathName(name))
    }
}
