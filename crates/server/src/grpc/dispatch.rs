//! Routes gRPC calls to the services.

use std::convert::Infallible;
use std::fmt::Display;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use dunlin::Refused;
use dunlin::topic::{MemoryBudgetError, MemoryCharge};
use dunlin::wire::ErrorCode;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use prost::Message;
use tonic::body::Body;
use tonic::codec::Streaming;
use tonic::codegen::Service;
use tonic::{Code, Status};
use tonic_prost::ProstDecoder;
use tonic_reflection::server::Builder as Reflection;

use super::connection::GrpcConnection;
use super::delivery::SubscriptionBody;
use super::elements::{has_many_messages, request_shape};
use super::intake::{BoundedRequestBody, MessageCharge};
use super::kv::{self, KvService};
use super::proto::DESCRIPTORS;
use super::proto::dunlin::dunlin_server::DunlinServer;
use super::proto::dunlin::kv_server::KvServer;
use super::proto::dunlin::tasks_server::TasksServer;
use super::proto::dunlin::{SubscribeRequest, WatchRequest};
use super::proto::ratatoskr::message_broker_server::MessageBrokerServer;
use super::ratatoskr::{self, Ratatoskr};
use super::service::DunlinService;
use super::status::{status, with_protocol_code};
use super::subscribe;
use super::tasks::TasksService;
use super::writer::DunlinWriter;
use crate::access::Access;
use crate::charging::{charge_if_large, charged_bytes};
use crate::departures::{DepartureKind, describe_refusal};
use crate::spans::{self, TracedBody};

pub(super) const DUNLIN: &str = "dunlin.v1.Dunlin";
pub(super) const KV: &str = "dunlin.v1.Kv";
pub(super) const TASKS: &str = "dunlin.v1.Tasks";
pub(super) const RATATOSKR: &str = "ratatoskr.MessageBroker";

pub(super) type CallFuture = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

/// The memory charge of a large response, which the response carries in its extensions.
#[derive(Debug, Clone)]
struct ResponseCharge(Arc<MemoryCharge>);

/// Creates a response of the service for keys or the service for tasks. A large message is charged to the memory budget
/// until it is sent. If the budget has no room, `refuse` creates the error.
pub(super) fn charged_response<T: Message>(
    connection: &GrpcConnection,
    outcome: Result<T, Refused>,
    refuse: fn(MemoryBudgetError) -> Refused,
) -> Result<tonic::Response<T>, Status> {
    let message = outcome.map_err(|refused| status(&refused))?;
    let charge = charge_if_large(connection.node.connection_budget(), message.encoded_len(), 0);
    let charge = charge.map_err(|spent| status(&refuse(spent)))?;
    let mut response = tonic::Response::new(message);
    if let Some(charge) = charge {
        response.extensions_mut().insert(ResponseCharge(Arc::new(charge)));
    }
    Ok(response)
}

/// Moves the charge from the response's extensions into the response's body. Each part of the body holds the charge
/// until the part is sent.
fn charge_until_sent(mut response: Response<Body>) -> Response<Body> {
    match response.extensions_mut().remove::<ResponseCharge>() {
        Some(ResponseCharge(charge)) => hold_until_sent(response, charge),
        None => response,
    }
}

/// Replaces tonic's error for an unreadable message by Dunlin's error `PROTOCOL`.
fn with_code(response: Response<Body>) -> Response<Body> {
    match Status::from_header_map(response.headers()) {
        Some(error) if error.code() == Code::Internal => with_protocol_code(error).into_http(),
        _ => response,
    }
}

/// Keeps `held` until all parts of the response's body are sent or dropped.
fn hold_until_sent(response: Response<Body>, held: Arc<impl Send + Sync + 'static>) -> Response<Body> {
    let hold = move |part: Frame<Bytes>| {
        let held = Arc::clone(&held);
        part.map_data(|bytes| charged_bytes(bytes, held))
    };
    response.map(|body| Body::new(body.map_frame(hold)))
}

/// The limit that tonic applies to messages: none, because the request body (`intake`) refuses large messages before
/// they are decoded.
const MESSAGE_BYTES_MAX: usize = usize::MAX;

/// Passes each call of a gRPC connection to its service.
#[derive(Debug, Clone)]
pub(super) struct CallRouter {
    pub(super) connection: Arc<GrpcConnection>,
}

impl CallRouter {
    fn respond(&self, request: Request<Incoming>) -> CallFuture {
        if let Err(refusal) = check(request.headers()) {
            return Box::pin(std::future::ready(Ok(*refusal)));
        }
        if let Err(refused) = self.connection.begin_call() {
            return refuse(&status(&refused));
        }
        match &self.connection.shared.access {
            Some(access) if !is_open(request.uri().path()) => self.admit(Arc::clone(access), request),
            _ => self.route(request),
        }
    }

    /// Logs the caller in, and then routes the call.
    fn admit(&self, access: Arc<Access>, request: Request<Incoming>) -> CallFuture {
        let connection = Arc::clone(&self.connection);
        let mut values = request.headers().get_all(AUTHORIZATION).iter();
        let authorization = values.next().cloned();
        if values.next().is_some() {
            // Refuses a repeated `authorization` entry, because a proxy in front of the node might check a different
            // one than the node does.
            let text = "the call has more than one authorization entry";
            return refuse(&status(&Refused::new(ErrorCode::Unauthenticated, text)));
        }
        Box::pin(async move {
            let authorization = authorization.as_ref().map(HeaderValue::as_bytes);
            match connection.log_in(&access, authorization).await {
                Ok(connection) => CallRouter { connection }.route(request).await,
                Err(refused) => Ok(status(&refused).into_http()),
            }
        })
    }

    fn route(&self, request: Request<Incoming>) -> CallFuture {
        let path = request.uri().path();
        let (service, call) =
            path.strip_prefix('/').and_then(|path| path.rsplit_once('/')).unwrap_or(("", ""));
        let connection = Arc::clone(&self.connection);
        let is_open = is_open(path);
        let open_call = match is_open.then(|| self.connection.begin_open_call()).transpose() {
            Ok(open_call) => open_call,
            Err(refused) => return refuse(&status(&refused)),
        };
        let shape = request_shape(service, call);
        let has_many_messages = has_many_messages(service, call);
        // A command for keys or tasks may wait long for the cluster, so its message stays charged while it waits.
        let keeps_charge = matches!(service, KV | TASKS) && !has_many_messages;
        let charge = MessageCharge::default();
        let shared = &self.connection.shared;
        let budget = self.connection.node.connection_budget();
        let intake = |body| {
            let body = BoundedRequestBody::new(
                body,
                shared,
                budget,
                shape,
                has_many_messages,
                keeps_charge,
                &charge,
            );
            if is_open { body.for_open_call() } else { body }
        };
        let response: CallFuture = match (service, call) {
            (DUNLIN, "Subscribe") => {
                let request = request.map(intake);
                Box::pin(async move {
                    Ok(subscribe_to_topics(&connection, request).await.unwrap_or_else(|s| s.into_http()))
                })
            }
            (KV, "Watch") => {
                let request = request.map(intake);
                Box::pin(async move {
                    Ok(watch_keys(&connection, request).await.unwrap_or_else(|s| s.into_http()))
                })
            }
            (RATATOSKR, "Subscribe") => {
                let request = request.map(intake);
                Box::pin(async move {
                    Ok(subscribe_to_messages(&connection, request).await.unwrap_or_else(|s| s.into_http()))
                })
            }
            (DUNLIN, _) => {
                let service = DunlinServer::new(DunlinService(connection));
                service.max_decoding_message_size(MESSAGE_BYTES_MAX).call(request.map(intake))
            }
            (KV, _) => {
                let service = KvServer::new(KvService(connection));
                service.max_decoding_message_size(MESSAGE_BYTES_MAX).call(request.map(intake))
            }
            (TASKS, _) => {
                let service = TasksServer::new(TasksService(connection));
                service.max_decoding_message_size(MESSAGE_BYTES_MAX).call(request.map(intake))
            }
            (RATATOSKR, _) => {
                let service = MessageBrokerServer::new(Ratatoskr(connection));
                service.max_decoding_message_size(MESSAGE_BYTES_MAX).call(request.map(intake))
            }
            ("grpc.health.v1.Health", _) => {
                let request = request.map(intake);
                Box::pin(async move {
                    let shared = &connection.shared;
                    let mut health = shared.grpc.health(crate::http::missing(shared).is_empty()).await;
                    health.call(request).await
                })
            }
            ("grpc.reflection.v1.ServerReflection", _) => reflect(&REFLECTION_V1, request.map(intake)),
            ("grpc.reflection.v1alpha.ServerReflection", _) => {
                reflect(&REFLECTION_V1_ALPHA, request.map(intake))
            }
            _ => refuse(&Status::unimplemented(format!(
                "{path} is not a method of this node's services; list them by reflection"
            ))),
        };
        // The call holds the charge until it has handled the message; the request body is dropped earlier.
        Box::pin(async move {
            let _charge = charge;
            let response = charge_until_sent(with_code(response.await?));
            Ok(match open_call {
                Some(open_call) => hold_until_sent(response, Arc::new(open_call)),
                None => response,
            })
        })
    }
}

async fn subscribe_to_topics(
    connection: &Arc<GrpcConnection>,
    request: Request<BoundedRequestBody>,
) -> Result<Response<Body>, Status> {
    let message: SubscribeRequest = one_message(request).await?;
    let name = message.name.clone();
    let reader = subscribe::reader(connection, message).await.map_err(|refused| {
        connection.record_departure(DepartureKind::Refused, &name, &describe_refusal(&refused));
        status(&refused)
    })?;
    Ok(streaming(Body::new(SubscriptionBody::new(reader, DunlinWriter))))
}

async fn watch_keys(
    connection: &Arc<GrpcConnection>,
    request: Request<BoundedRequestBody>,
) -> Result<Response<Body>, Status> {
    let message: WatchRequest = one_message(request).await?;
    let (reader, changes) = kv::watch(connection, message).await.map_err(|refused| status(&refused))?;
    Ok(streaming(Body::new(SubscriptionBody::new(reader, changes))))
}

async fn subscribe_to_messages(
    connection: &Arc<GrpcConnection>,
    request: Request<BoundedRequestBody>,
) -> Result<Response<Body>, Status> {
    let message = one_message(request).await?;
    let (delivery, reference) = ratatoskr::subscribe(connection, message).await?;
    let mut response = streaming(Body::new(delivery));
    if let Ok(reference) = HeaderValue::from_str(&reference) {
        response.headers_mut().insert(ratatoskr::REFERENCE, reference);
    }
    Ok(response)
}

impl hyper::service::Service<Request<Incoming>> for CallRouter {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = CallFuture;

    fn call(&self, request: Request<Incoming>) -> CallFuture {
        let span = spans::call_span(&request, self.connection.peer);
        let response = self.respond(request);
        if span.is_disabled() {
            return response;
        }
        Box::pin(async move {
            let (parts, body) = response.await?.into_parts();
            let body = TracedBody::for_call(body, span, &parts.headers);
            Ok(Response::from_parts(parts, Body::new(body)))
        })
    }
}

/// Whether the call needs no login. Only calls of the health and reflection services need none, because they reveal no
/// data.
fn is_open(path: &str) -> bool {
    path.starts_with("/grpc.health.") || path.starts_with("/grpc.reflection.")
}

/// Checks that the request is a gRPC request without compression.
fn check(headers: &HeaderMap) -> Result<(), Box<Response<Body>>> {
    let content_type = headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let is_grpc = content_type
        .strip_prefix(b"application/grpc")
        .is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')));
    if !is_grpc {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return Err(Box::new(response));
    }
    match headers.get("grpc-encoding") {
        Some(encoding) if encoding != "identity" => {
            let refused =
                Status::unimplemented("compressed messages are not supported; send identity encoding");
            let mut response: Response<Body> = refused.into_http();
            response.headers_mut().insert("grpc-accept-encoding", HeaderValue::from_static("identity"));
            Err(Box::new(response))
        }
        _ => Ok(()),
    }
}

fn refuse(status: &Status) -> CallFuture {
    Box::pin(std::future::ready(Ok(status.clone().into_http())))
}

fn streaming(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

/// Reads the only message of a call that takes one message.
async fn one_message<M: Message + Default + Send + 'static>(
    request: Request<BoundedRequestBody>,
) -> Result<M, Status> {
    let decoder = ProstDecoder::<M>::default();
    let mut messages = Streaming::new_request(decoder, request.into_body(), None, Some(MESSAGE_BYTES_MAX));
    let message = messages.message().await.map_err(with_protocol_code)?;
    message.ok_or_else(|| {
        let refused = Refused::new(ErrorCode::Protocol, "the call has no request message");
        status(&refused)
    })
}

/// A function that passes a call to a reflection service.
type ReflectionCall = Box<dyn Fn(Request<BoundedRequestBody>) -> CallFuture + Send + Sync>;

/// The reflection service of version 1. All calls share one service, because it holds a table of all messages and
/// fields.
static REFLECTION_V1: LazyLock<Result<ReflectionCall, String>> =
    LazyLock::new(|| reflection_call(reflection().build_v1()));
static REFLECTION_V1_ALPHA: LazyLock<Result<ReflectionCall, String>> =
    LazyLock::new(|| reflection_call(reflection().build_v1alpha()));

fn reflection_call<S>(built: Result<S, impl Display>) -> Result<ReflectionCall, String>
where
    S: Service<
            Request<BoundedRequestBody>,
            Response = Response<Body>,
            Error = Infallible,
            Future = CallFuture,
        > + Clone
        + Send
        + Sync
        + 'static,
{
    let service = built.map_err(|error| error.to_string())?;
    Ok(Box::new(move |request: Request<BoundedRequestBody>| service.clone().call(request)))
}

fn reflect(service: &Result<ReflectionCall, String>, request: Request<BoundedRequestBody>) -> CallFuture {
    match service {
        Ok(call) => call(request),
        Err(error) => refuse(&status(&Refused::new(ErrorCode::Internal, error.as_str()))),
    }
}

fn reflection() -> Reflection<'static> {
    Reflection::configure()
        .register_encoded_file_descriptor_set(DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}
