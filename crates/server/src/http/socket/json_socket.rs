//! Serves a WebSocket whose messages are JSON.
//!
//! Invariants:
//! - Messages are handled in order. While the client does not read its responses, the node does not read the client's
//!   messages.
//! - Records that the client does not read stay in the log. All subscriptions of the client together hold one chunk in
//!   memory, but no segment of a log.
//! - When the user loses access or the node stops, the client receives the reason.
//!
//! Limits: a message has at most `ws.hello_bytes_max` bytes before the login and `ws.message_bytes_max` bytes after it.
//! A message of more than [`UNCHARGED_UNREAD_BYTES_MAX`] bytes is charged to the login share or to the client's tenant
//! until it is handled. A message may be incomplete for `ws.message_ms_max`. A client may have `ws.subscriptions_max`
//! subscriptions. A chunk is complete when it has `http.event_bytes` bytes; a much larger chunk, which may result from
//! a large record, is charged.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use axum::http::StatusCode;
use dunlin::Refused;
use dunlin::topic::frame::RecordMeta;
use dunlin::topic::{MemoryCharge, Waiter};
use dunlin::wire::ErrorCode;
use serde_json::{Value, json};
use tokio::time::{Instant, Sleep, timeout};

use super::client_message::{ClientMessage, Publish, SocketHello, Subscribe};
use super::subscription::SocketSubscription;
use crate::charging::UNCHARGED_UNREAD_BYTES_MAX;
use crate::departures::{ClientDeparture, DepartureKind, describe_refusal};
use crate::http::context::Context;
use crate::http::problem::Problem;
use crate::http::publish::{PublishOptions, PublishTarget, position, publish_record};
use crate::protocol::Protocol;
use crate::session::turn::{COMMAND_WORK, TurnWork};
use crate::stream::WebSocketStream;

const READ_BYTES: usize = 16 << 10;
/// Maximum number of subscriptions that start at the same time. Further ones start afterwards.
const STARTING_MAX: usize = 16;
/// How long a client has to read the reason why its connection ends.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// The status of the WebSocket close frame when the node stops.
const GOING_AWAY: u16 = 1_001;
/// The status of the WebSocket close frame when a text from the client is not UTF-8.
const NOT_UTF8: u16 = 1_007;
/// The status of the WebSocket close frame when the client violated the protocol, exceeded a limit or may not log in.
const NOT_ALLOWED: u16 = 1_008;

/// The reason why the connection ends.
#[derive(Debug)]
enum ConnectionEnd {
    /// The client has disconnected.
    Gone,
    /// The connection is closed after the client has received this reason.
    WithReason(Box<Problem>),
}

/// The result of starting a subscription: the subscription and its first messages, or its name and the reason why it
/// was refused.
type SubscribeOutcome = Result<(Box<SocketSubscription>, Vec<String>), (Option<String>, Box<Problem>)>;
/// A subscription that waits for the start positions of its logs.
type PendingSubscription = Pin<Box<dyn Future<Output = SubscribeOutcome> + Send>>;
/// A record that is being published. The result is the response, or the reason why the connection must end.
type PendingPublish = Pin<Box<dyn Future<Output = Result<String, Box<Problem>>> + Send>>;

enum SocketEvent {
    /// A client's message is complete.
    ClientMessage,
    /// A subscription has records to read, or has ended.
    Ready(u64, Result<(), Box<Problem>>),
    SubscribeOutcome(u64, SubscribeOutcome),
    Published(Result<String, Box<Problem>>),
    Heartbeat,
    /// The server may be stopping, or the users file may have changed.
    Recheck,
}

struct JsonSocket {
    context: Context,
    framed: WebSocketStream,
    waiter: Arc<Waiter>,
    /// The name by which the client identifies itself.
    name: String,
    /// The received bytes of an incomplete message; `text_since` is the time at which its first bytes arrived.
    text: Vec<u8>,
    text_since: Option<Instant>,
    /// Maximum size of a message, bytes, and the name of this limit in the configuration.
    text_bytes_max: (usize, &'static str),
    charge: MemoryCharge,
    buffer: Box<[u8]>,
    subscriptions: BTreeMap<u64, SocketSubscription>,
    /// Subscriptions that are being started, each with the id that the client chose.
    pending_subscriptions: Vec<(u64, PendingSubscription)>,
    /// The record that is being published. No further message is read until its response is known.
    pending_publish: Option<PendingPublish>,
    /// The id of the subscription that was served last.
    last_served: u64,
    heartbeat: Pin<Box<Sleep>>,
    /// The status in the WebSocket close frame. If the node stops, [`GOING_AWAY`] is sent instead.
    close_status: u16,
}

pub(super) async fn serve(context: Context, framed: WebSocketStream) {
    let shared = Arc::clone(context.shared());
    let waiter = Waiter::new();
    let guard = shared.admit(shared.node.next_session(), &waiter);
    let heartbeat = Duration::from_millis(shared.limits.http.heartbeat_ms.into());
    let mut socket = JsonSocket {
        framed,
        waiter,
        name: String::new(),
        text: Vec::new(),
        text_since: None,
        text_bytes_max: (shared.limits.ws.hello_bytes_max, "ws.hello_bytes_max"),
        charge: MemoryCharge::none(&shared.login_budget),
        buffer: vec![0; READ_BYTES].into(),
        subscriptions: BTreeMap::new(),
        pending_subscriptions: Vec::new(),
        pending_publish: None,
        last_served: 0,
        heartbeat: Box::pin(tokio::time::sleep(heartbeat)),
        close_status: NOT_ALLOWED,
        context,
    };
    let ended = match guard {
        // Checked here because a connection that begins while the server stops may miss the notification.
        Some(_) if shared.is_stopping() => Err(end_reason(Refused::new(ErrorCode::ShuttingDown, ""))),
        Some(_) => socket.log_in_client().await,
        None => Err(end_reason(shared.admission_refusal())),
    };
    let ended = match ended {
        Ok(()) => socket.serve_messages().await,
        Err(end) => end,
    };
    if let ConnectionEnd::WithReason(why) = ended {
        // If the client does not read the reason in time, the connection is dropped.
        let _ = timeout(CLOSE_TIMEOUT, socket.close(&why)).await;
    }
    while let Some((_, subscription)) = socket.subscriptions.pop_first() {
        drop(subscription);
        // The subscription may have had many logs, so other sessions of the thread run first.
        tokio::task::yield_now().await;
    }
}

fn end_reason(refused: Refused) -> ConnectionEnd {
    ConnectionEnd::WithReason(Box::new(Problem::from(refused)))
}

fn disconnected(_: io::Error) -> ConnectionEnd {
    ConnectionEnd::Gone
}

impl JsonSocket {
    /// Reads the client's first message and logs the client in.
    async fn log_in_client(&mut self) -> Result<(), ConnectionEnd> {
        let ms_max = self.context.limits().handshake_ms_max;
        let hello = timeout(Duration::from_millis(ms_max.into()), self.hello()).await;
        let late = |_| {
            let numbers = [ms_max.into(), 0, 0];
            Err(end_reason(Refused { numbers, ..Refused::new(ErrorCode::Handshake, "") }))
        };
        hello.unwrap_or_else(late)
    }

    async fn hello(&mut self) -> Result<(), ConnectionEnd> {
        if !poll_fn(|cx| self.poll_text(cx)).await? {
            return Err(ConnectionEnd::Gone);
        }
        let text = self.take_message()?;
        let hello = match ClientMessage::read(&text) {
            Ok(ClientMessage::Hello(hello)) => hello,
            Ok(_) => {
                return Err(ConnectionEnd::WithReason(Box::new(Problem::bad_request(
                    "the first message must be hello",
                ))));
            }
            Err(problem) => return Err(ConnectionEnd::WithReason(Box::new(problem))),
        };
        self.charge.release();
        self.text_since = None;
        let SocketHello { name, .. } = &hello;
        self.name = name.chars().filter(|char| !char.is_control()).take(200).collect();
        let authorization = hello.authorization();
        self.context = self.context.log_in(authorization.as_deref()).await.map_err(end_reason)?;
        self.charge = MemoryCharge::none(self.context.node().connection_budget());
        self.text_bytes_max = (self.context.limits().ws.message_bytes_max, "ws.message_bytes_max");
        let (node, limits) = (&self.context.shared().node, self.context.limits());
        let welcome = json!({
            "op": "welcome",
            "node": format!("{:016x}", node.id()),
            "name": node.config().name,
            "cluster": self.context.shared().cluster_id(),
            "heartbeat_ms": limits.http.heartbeat_ms,
        });
        self.send(&[welcome.to_string()]).await
    }

    async fn serve_messages(&mut self) -> ConnectionEnd {
        let mut work = TurnWork::default();
        loop {
            work.add(COMMAND_WORK);
            if work.is_spent() {
                // Other sessions of the thread run, because the client may have sent many messages.
                tokio::task::yield_now().await;
                work.begin();
            }
            let step = match poll_fn(|cx| self.poll_next(cx)).await {
                Ok(next) => self.handle_event(next).await,
                Err(end) => Err(end),
            };
            if let Err(end) = step {
                return end;
            }
        }
    }

    fn poll_next(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<SocketEvent, ConnectionEnd>> {
        if !self.waiter.set_waker(cx.waker()) {
            self.waiter.take_ready(|_| ());
            return Poll::Ready(Ok(SocketEvent::Recheck));
        }
        if let Some(pending_publish) = &mut self.pending_publish
            && let Poll::Ready(response) = pending_publish.as_mut().poll(cx)
        {
            self.pending_publish = None;
            return Poll::Ready(Ok(SocketEvent::Published(response)));
        }
        for at in 0..self.pending_subscriptions.len().min(STARTING_MAX) {
            if let Poll::Ready(outcome) = self.pending_subscriptions[at].1.as_mut().poll(cx) {
                let (id, _) = self.pending_subscriptions.remove(at);
                return Poll::Ready(Ok(SocketEvent::SubscribeOutcome(id, outcome)));
            }
        }
        let text = if self.pending_publish.is_none() { self.poll_text(cx) } else { Poll::Pending };
        match text {
            Poll::Ready(Ok(true)) => return Poll::Ready(Ok(SocketEvent::ClientMessage)),
            Poll::Ready(Ok(false)) => return Poll::Ready(Err(ConnectionEnd::Gone)),
            Poll::Ready(Err(end)) => return Poll::Ready(Err(end)),
            Poll::Pending => {}
        }
        // The heartbeat is polled before the subscriptions. Otherwise a subscription that skips many records and sends
        // nothing could delay the heartbeat for a long time.
        if self.heartbeat.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Ok(SocketEvent::Heartbeat));
        }
        // Subscriptions are served in turn: first those with a higher id than the subscription that was served last.
        let last_served = self.last_served;
        let (before, behind): (Vec<_>, Vec<_>) =
            self.subscriptions.iter_mut().partition(|(id, _)| **id <= last_served);
        for (id, subscription) in behind.into_iter().chain(before) {
            if let Poll::Ready(ready) = subscription.poll_ready(cx) {
                self.last_served = *id;
                let ready = ready.map_err(|error| Box::new(Problem::from(error)));
                return Poll::Ready(Ok(SocketEvent::Ready(*id, ready)));
            }
        }
        // Sends buffered bytes, such as a pong that the socket did not take before.
        if let Poll::Ready(Err(_)) = self.framed.poll_flush_buffered(cx) {
            return Poll::Ready(Err(ConnectionEnd::Gone));
        }
        Poll::Pending
    }

    /// Returns `Ready(true)` when a message is complete, and `Ready(false)` when the client has closed the connection.
    fn poll_text(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<bool, ConnectionEnd>> {
        let ms_max = self.context.limits().ws.message_ms_max;
        let JsonSocket {
            framed, text, text_since, text_bytes_max: (bytes_max, limit), charge, buffer, ..
        } = self;
        // The time is checked whenever the connection is polled, which happens at least once per heartbeat interval.
        if text_since.is_some_and(|since| since.elapsed() > Duration::from_millis(ms_max.into())) {
            return Poll::Ready(Err(end_reason(Refused::limit("ws.message_ms_max", ms_max.into()))));
        }
        let mut refused = None;
        let polled = framed.poll_text(cx, buffer, |part| {
            // The bytes that were read contained no text, but other frames such as a ping.
            if part.is_empty() {
                return Ok(());
            }
            let bytes = text.len() + part.len();
            if bytes > *bytes_max {
                refused = Some(Refused::limit(limit, *bytes_max as u64));
            } else if bytes > UNCHARGED_UNREAD_BYTES_MAX
                && let Err(spent) = charge.grow_to(bytes)
            {
                refused = Some(Refused::from(spent));
            }
            if refused.is_some() {
                return Err(io::ErrorKind::OutOfMemory.into());
            }
            text.extend_from_slice(part);
            text_since.get_or_insert_with(Instant::now);
            Ok(())
        });
        match (polled, refused) {
            (_, Some(refused)) => Poll::Ready(Err(end_reason(refused))),
            (polled, None) => polled.map_err(disconnected),
        }
    }

    async fn handle_event(&mut self, next: SocketEvent) -> Result<(), ConnectionEnd> {
        match next {
            SocketEvent::Recheck if self.context.shared().is_stopping() => {
                Err(end_reason(Refused::new(ErrorCode::ShuttingDown, "")))
            }
            SocketEvent::Recheck => self.check_user().await,
            SocketEvent::ClientMessage => {
                let text = self.take_message()?;
                self.text_since = None;
                let done = self.handle_message(&text).await;
                if self.pending_publish.is_none() {
                    self.charge.release();
                }
                done
            }
            SocketEvent::SubscribeOutcome(id, outcome) => self.finish_subscribe(id, outcome).await,
            SocketEvent::Published(Ok(response)) => {
                self.charge.release();
                self.send(&[response]).await
            }
            SocketEvent::Published(Err(why)) => Err(ConnectionEnd::WithReason(why)),
            SocketEvent::Ready(id, Err(why)) => self.end_subscription(id, &why).await,
            SocketEvent::Ready(id, Ok(())) => self.read(id).await,
            SocketEvent::Heartbeat => {
                let mut out = Vec::new();
                for subscription in self.subscriptions.values_mut() {
                    subscription.write_heartbeat(&mut out);
                    // The subscription may have many logs, so other sessions of the thread run first.
                    tokio::task::yield_now().await;
                }
                out.push(json!({"op": "heartbeat"}).to_string());
                self.send(&out).await
            }
        }
    }

    /// Ends the subscriptions for which the user has lost the permission, and sends the reasons.
    async fn check_user(&mut self) -> Result<(), ConnectionEnd> {
        let Some(login) = self.context.login() else { return Ok(()) };
        login.check_validity().map_err(end_reason)?;
        let revoked =
            |(id, subscription): (&u64, &mut SocketSubscription)| Some((*id, subscription.check().err()?));
        let ended: Vec<_> = self.subscriptions.iter_mut().filter_map(revoked).collect();
        for (id, refused) in ended {
            self.end_subscription(id, &Problem::from(refused)).await?;
        }
        Ok(())
    }

    fn take_message(&mut self) -> Result<String, ConnectionEnd> {
        String::from_utf8(std::mem::take(&mut self.text)).map_err(|error| {
            self.close_status = NOT_UTF8;
            ConnectionEnd::WithReason(Box::new(Problem::bad_request(format!(
                "not UTF-8: {}",
                error.utf8_error()
            ))))
        })
    }

    async fn read(&mut self, id: u64) -> Result<(), ConnectionEnd> {
        let bytes_max = self.context.limits().http.event_bytes as usize;
        let Some(subscription) = self.subscriptions.get_mut(&id) else { return Ok(()) };
        let mut out = Vec::new();
        let filled = subscription.fill(bytes_max, &mut out);
        if out.is_empty() {
            // The subscription may have skipped many records, so other connections of the thread run first.
            tokio::task::yield_now().await;
        } else {
            self.send(&out).await?;
        }
        match filled {
            Ok(()) => Ok(()),
            Err(why) => self.end_subscription(id, &why).await,
        }
    }

    async fn end_subscription(&mut self, id: u64, why: &Problem) -> Result<(), ConnectionEnd> {
        if let Some(subscription) = self.subscriptions.remove(&id)
            && !matches!(why.refused().code, ErrorCode::ShuttingDown | ErrorCode::Closed)
        {
            subscription.identity.record_departure(self.context.shared(), DepartureKind::CutOff, why);
        }
        self.send(&[response("end", "id", id, why.json())]).await
    }

    async fn handle_message(&mut self, text: &str) -> Result<(), ConnectionEnd> {
        if let Some(login) = self.context.login() {
            login.check_validity().map_err(end_reason)?;
        }
        match ClientMessage::read(text) {
            Ok(ClientMessage::Subscribe(message)) => self.subscribe(message).await,
            Ok(ClientMessage::Unsubscribe(message)) => {
                let was_pending =
                    self.pending_subscriptions.extract_if(.., |(id, _)| *id == message.id).count() > 0;
                let existed = self.subscriptions.remove(&message.id).is_some() || was_pending;
                let why = if existed {
                    Problem::of(StatusCode::OK, ErrorCode::Ended, "")
                } else {
                    Problem::from(Refused {
                        numbers: [message.id, 0, 0],
                        ..Refused::new(ErrorCode::NotOpen, "")
                    })
                };
                self.send(&[response("end", "id", message.id, why.json())]).await
            }
            Ok(ClientMessage::Publish(_)) => {
                let (context, text) = (self.context.clone(), text.to_owned());
                self.pending_publish = Some(Box::pin(async move { publish_text(&context, &text).await }));
                Ok(())
            }
            Ok(ClientMessage::Ping) => self.send(&[json!({"op": "pong"}).to_string()]).await,
            Ok(ClientMessage::Hello(_)) => {
                Err(ConnectionEnd::WithReason(Box::new(Problem::bad_request("hello was already sent"))))
            }
            Err(problem) => Err(ConnectionEnd::WithReason(Box::new(problem))),
        }
    }

    /// Begins a subscription. Another node may have to find the start position, so the client's other subscriptions
    /// continue meanwhile.
    async fn subscribe(&mut self, message: Subscribe) -> Result<(), ConnectionEnd> {
        let limits = self.context.limits();
        let subscriptions_max = limits.ws.subscriptions_max as usize;
        let is_known = self.subscriptions.contains_key(&message.id)
            || self.pending_subscriptions.iter().any(|(id, _)| *id == message.id);
        let refused = if is_known {
            Some(Problem::bad_request(format!("subscription {} exists already", message.id)))
        } else if self.subscriptions.len() + self.pending_subscriptions.len() >= subscriptions_max {
            Some(Problem::from(Refused::limit("ws.subscriptions_max", subscriptions_max as u64)))
        } else {
            None
        };
        if let Some(why) = refused {
            return self.finish_subscribe(message.id, Err((message.name, Box::new(why)))).await;
        }
        let (id, context, name) = (message.id, self.context.clone(), self.name.clone());
        let pending = async move {
            let mut out = Vec::new();
            let outcome = SocketSubscription::begin(&context, &message, &name, &mut out).await;
            outcome
                .map(|subscription| (Box::new(subscription), out))
                .map_err(|why| (message.name, Box::new(why)))
        };
        self.pending_subscriptions.push((id, Box::pin(pending)));
        Ok(())
    }

    /// Adds a subscription that was started, or reports its refusal.
    async fn finish_subscribe(&mut self, id: u64, outcome: SubscribeOutcome) -> Result<(), ConnectionEnd> {
        let mut out = Vec::new();
        // The user may have lost the permission while the subscription was started.
        let outcome = outcome.and_then(|(mut subscription, messages)| match subscription.check() {
            Ok(()) => Ok((subscription, messages)),
            Err(refused) => Err((Some(subscription.identity.name.clone()), Box::new(Problem::from(refused)))),
        });
        match outcome {
            Ok((subscription, messages)) => {
                self.subscriptions.insert(id, *subscription);
                out = messages;
            }
            Err((name, why)) => {
                let peer = self.context.peer_address();
                let name = name.as_deref().unwrap_or(&self.name);
                let departure = ClientDeparture::new(
                    Protocol::Ws,
                    DepartureKind::Refused,
                    &describe_refusal(why.refused()),
                );
                self.context.shared().departures.note(departure.of(name, peer));
                out.push(response("end", "id", id, why.json()));
            }
        }
        self.send(&out).await
    }

    /// Sends the messages, and waits until the socket has taken all bytes.
    async fn send(&mut self, texts: &[String]) -> Result<(), ConnectionEnd> {
        let limits = self.context.limits();
        self.heartbeat
            .as_mut()
            .reset(Instant::now() + Duration::from_millis(limits.http.heartbeat_ms.into()));
        let bytes: usize = texts.iter().map(String::len).sum();
        let budget = self.context.node().connection_budget();
        // Only the bytes beyond twice `http.event_bytes` are charged to the memory budget.
        let charged_bytes = bytes.saturating_sub(2 * limits.http.event_bytes as usize);
        let charge =
            MemoryCharge::of(budget, 2 * charged_bytes).map_err(|spent| end_reason(Refused::from(spent)));
        let _charge = charge?;
        texts.iter().for_each(|text| self.framed.put_text(text));
        poll_fn(|cx| self.framed.poll_flush_buffered(cx)).await.map_err(disconnected)
    }

    /// Sends the reason, closes the WebSocket, and waits until the client has closed its side.
    async fn close(&mut self, why: &Problem) -> Result<(), ConnectionEnd> {
        let code = why.refused().code;
        if code != ErrorCode::ShuttingDown {
            let departure =
                ClientDeparture::new(Protocol::Ws, DepartureKind::CutOff, &describe_refusal(why.refused()));
            let peer = self.context.peer_address();
            self.context.shared().departures.note(departure.of(&self.name, peer));
        }
        let mut last = why.json();
        last["op"] = "error".into();
        self.framed.put_text(&last.to_string());
        self.framed.put_close(if code == ErrorCode::ShuttingDown { GOING_AWAY } else { self.close_status });
        poll_fn(|cx| self.framed.poll_flush_buffered(cx)).await.map_err(disconnected)?;
        self.framed.shutdown_write().map_err(disconnected)?;
        let JsonSocket { framed, buffer, .. } = self;
        while poll_fn(|cx| framed.poll_text(cx, buffer, |_| Ok(()))).await.map_err(disconnected)? {}
        Ok(())
    }
}

/// Publishes the record in a client's message, and returns the response.
async fn publish_text(context: &Context, text: &str) -> Result<String, Box<Problem>> {
    match ClientMessage::read(text) {
        Ok(ClientMessage::Publish(message)) => Ok(match publish(context, &message).await {
            Ok(receipt) => response("published", "request", message.request, receipt),
            Err(why) => response("refused", "request", message.request, why.json()),
        }),
        Ok(_) => Err(Box::new(Problem::bad_request("internal error: expected a publish message"))),
        Err(problem) => Err(Box::new(problem)),
    }
}

async fn publish(context: &Context, message: &Publish<'_>) -> Result<Value, Problem> {
    let payload = message.payload()?;
    let after = message.last_position.as_deref().map(position).transpose()?;
    let target = PublishTarget::find(context, &message.subject, payload.len(), after).await?;
    let headers: Vec<_> =
        message.headers.iter().map(|header| (header.name.as_str(), header.value.as_bytes())).collect();
    let meta = RecordMeta {
        event_time_ns: message.event_time_ns,
        expires_ns: message.expires_ns,
        subject_tail: &target.tail,
        key: message.key.as_deref().map(str::as_bytes),
        reply: message.reply.as_deref(),
        headers: &headers,
    };
    let options = PublishOptions { mark: None, expect_last: message.expect_seq, after };
    publish_record(context, &message.subject, &target, &meta, &payload, options).await
}

/// Creates a message in response to the request with this number; `name` is the field that contains the number.
fn response(op: &str, name: &str, number: u64, mut object: Value) -> String {
    object["op"] = op.into();
    object[name] = number.into();
    object.to_string()
}
