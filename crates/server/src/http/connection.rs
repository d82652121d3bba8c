//! Serves one HTTP/1.1 connection with the library hyper. All waits and buffers of the connection have limits.

use std::error::Error;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Context as TaskContext;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dunlin::Refused;
use dunlin::topic::Waiter;
use dunlin::wire::ErrorCode;
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::context::Context;
use super::head_reads::{HeadCharge, HeadReads};
use super::problem::Problem;
use super::{routes, socket};
use crate::config::ServerLimits;
use crate::departures::{ClientDeparture, DepartureKind, describe_refusal};
use crate::protocol::Protocol;
use crate::shared::SharedServer;
use crate::stream::Stream;
use crate::traffic::OpenConnection;

/// How long a client beyond the limit of connections has to send the head of a health probe.
const PROBE_WAIT_MAX: Duration = Duration::from_secs(1);
/// The first time that an HTTP date cannot express: the start of the year 10000, in seconds since the Unix epoch.
const DATE_END_S: u64 = 253_402_300_800;

/// Serves the connection until it ends. If it becomes a WebSocket, also serves the WebSocket. A connection beyond the
/// limit serves only one health probe.
pub(crate) async fn serve(shared: Arc<SharedServer>, stream: Stream, open_connection: OpenConnection) {
    let waiter = Waiter::new();
    let guard = shared.admit(shared.node.next_session(), &waiter);
    let probe_slot = if guard.is_none() { shared.reserve_probe_slot() } else { None };
    let refusal = guard.is_none().then(|| shared.admission_refusal());
    if let Some(refused) = &refusal
        && (probe_slot.is_none() || !sends_soon(&stream).await)
    {
        return refuse_connection(&shared, stream, refused.clone()).await;
    }
    if !has_http_date(SystemTime::now()) {
        let text = "the node's clock is before 1970 or after 9999; set the system's time";
        return refuse_connection(&shared, stream, Refused::new(ErrorCode::Internal, text)).await;
    }
    // The HTTP listener accepts only TCP connections, so there is always a socket.
    let Some(socket) = stream.socket() else { return };
    enable_keep_alive(socket, &shared.limits);
    let peer = socket.peer_addr().ok();
    let is_local = stream.local_address().is_some_and(|address| address.ip().to_canonical().is_loopback());
    let context = Context::new(Arc::clone(&shared), peer, is_local, refusal, stream.client_certificate());
    let request_context = context.clone();
    let head_charge = HeadCharge::new(&shared.login_budget, shared.limits.http.header_bytes_max as usize);
    let stream = TokioIo::new(HeadReads::new(stream, head_charge.clone()));
    let service = service_fn(move |request| {
        let handled_head = head_charge.begin_request();
        let response = routes::handle(request_context.clone(), request);
        async move {
            let response = response.await;
            drop(handled_head);
            response
        }
    });
    let connection =
        builder(&shared.limits, guard.is_some()).serve_connection(stream, service).with_upgrades();
    let mut connection = pin!(connection);
    let mut is_stopping = false;
    let served = poll_fn(|cx| {
        if !is_stopping && check_stopping(&shared, &waiter, cx) {
            is_stopping = true;
            connection.as_mut().graceful_shutdown();
        }
        connection.as_mut().poll(cx)
    });
    if let Err(error) = served.await {
        tracing::debug!(protocol = "http", peer = %peer_text(peer), %error, "an HTTP connection ended");
        if let Some((kind, why)) = departure_reason(&error, &shared.limits) {
            shared.departures.note(ClientDeparture::new(Protocol::Http, kind, &why).of("", peer));
        }
    }
    if let Some(upgrade) = context.take_upgrade() {
        drop(guard);
        let _open_connection = open_connection.switch_to(Protocol::Ws);
        // The future is boxed because it is large, and would enlarge the future of every connection.
        Box::pin(socket::serve(context, upgrade)).await;
    }
}

/// The reason why a connection ended; `None` if operators need not see it.
fn departure_reason(error: &hyper::Error, limits: &ServerLimits) -> Option<(DepartureKind, String)> {
    if error.is_parse() {
        return Some((DepartureKind::Refused, format!("not HTTP/1.1: {error}")));
    }
    let io = error.source().and_then(|source| source.downcast_ref::<std::io::Error>())?;
    match io.kind() {
        std::io::ErrorKind::TimedOut => {
            let text = format!("the client read nothing for {} ms", limits.http.stalled_ms_max);
            Some((DepartureKind::CutOff, text))
        }
        std::io::ErrorKind::OutOfMemory => {
            let text = format!("the login share has no memory for the head of a request: {io}");
            Some((DepartureKind::Refused, text))
        }
        _ => None,
    }
}

/// Whether the server is stopping. If it is not, this task is woken when the server stops.
fn check_stopping(shared: &SharedServer, waiter: &Waiter, cx: &TaskContext<'_>) -> bool {
    while !shared.is_stopping() {
        if waiter.set_waker(cx.waker()) {
            return false;
        }
        waiter.take_ready(|_| ());
    }
    true
}

/// Whether the client sends anything within [`PROBE_WAIT_MAX`].
async fn sends_soon(stream: &Stream) -> bool {
    tokio::time::timeout(PROBE_WAIT_MAX, poll_fn(|cx| stream.poll_readable(cx))).await.is_ok()
}

fn builder(limits: &ServerLimits, is_admitted: bool) -> Builder {
    let mut builder = Builder::new();
    let head_max = Duration::from_millis(limits.http.header_ms_max.into());
    builder
        .timer(TokioTimer::new())
        // The time limit for a request's head also applies to the time between two requests.
        .header_read_timeout(if is_admitted { head_max } else { head_max.min(PROBE_WAIT_MAX) })
        .keep_alive(is_admitted)
        .max_headers(limits.http.headers_max as usize)
        // The size limit applies both to input that is not parsed yet and to output that is not sent yet.
        .max_buf_size(limits.http.header_bytes_max as usize)
        .half_close(false);
    builder
}

/// Makes the operating system detect clients that vanished. Enables TCP keep-alive, and limits how long sent bytes may
/// stay unacknowledged.
fn enable_keep_alive(stream: &TcpStream, limits: &ServerLimits) {
    let socket = SockRef::from(stream);
    let timeout = Duration::from_millis(limits.http.stalled_ms_max.into());
    let every = (timeout / 4).max(Duration::from_secs(1));
    let probes = TcpKeepalive::new().with_time(every).with_interval(every).with_retries(3);
    let result = socket.set_tcp_keepalive(&probes);
    #[cfg(target_os = "linux")]
    let result = result.and_then(|()| socket.set_tcp_user_timeout(Some(timeout)));
    if let Err(error) = result {
        tracing::debug!(protocol = "http", %error, "cannot set the connection's keep-alive");
    }
}

/// Whether an HTTP date can express this time. If it cannot, hyper panics when it reads the clock, even for responses
/// without a date.
fn has_http_date(now: SystemTime) -> bool {
    now.duration_since(UNIX_EPOCH).is_ok_and(|since| since.as_secs() < DATE_END_S)
}

/// Refuses a connection without reading a request.
async fn refuse_connection(shared: &SharedServer, mut stream: Stream, refused: Refused) {
    let peer = stream.socket().and_then(|socket| socket.peer_addr().ok());
    note_refused(shared, peer, &refused);
    let response = refusal(refused);
    let time_limit = Duration::from_millis(shared.limits.http.header_ms_max.into());
    // If the client does not read the response in time, the connection is dropped.
    let _ = tokio::time::timeout(time_limit, async {
        stream.write_all(response.as_bytes()).await?;
        stream.shutdown().await
    })
    .await;
}

/// Records a refused connection in the list of clients that operators see.
pub(super) fn note_refused(shared: &SharedServer, peer: Option<SocketAddr>, refused: &Refused) {
    let departure = ClientDeparture::new(Protocol::Http, DepartureKind::Refused, &describe_refusal(refused));
    shared.departures.note(departure.of("", peer));
}

/// The bytes of the response to a client whose request the server does not read.
pub(crate) fn refusal(refused: Refused) -> String {
    Problem::from(refused).to_http_response()
}

fn peer_text(peer: Option<SocketAddr>) -> String {
    peer.map_or_else(String::new, |peer| peer.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_outside_the_range_of_http_dates_is_detected() {
        assert!(has_http_date(SystemTime::now()));
        assert!(has_http_date(UNIX_EPOCH));
        assert!(!has_http_date(UNIX_EPOCH - Duration::from_nanos(1)));
        assert!(has_http_date(UNIX_EPOCH + Duration::from_secs(DATE_END_S - 1)));
        assert!(!has_http_date(UNIX_EPOCH + Duration::from_secs(DATE_END_S)));
    }
}
