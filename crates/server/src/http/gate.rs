//! Checks a request before its body is read.
//!
//! A browser lets any web page send requests to this machine. The browser sets two headers, which the page cannot
//! forge: `Origin` is the page's origin, and `Host` is the host name to which the page sends the request.
//! - An `Origin` other than the listener's own is refused, unless it is in the configuration or belongs to another node
//!   of the cluster. With TLS, only an `https` origin counts as the listener's own, because an attacker in the network
//!   can forge a page with `http`. Without TLS, `http` and `https` both count, because a proxy in front of the node may
//!   use TLS.
//! - For connections to a loopback address, a `Host` that is neither an IP address nor `localhost` is refused, unless
//!   it is the host of a configured origin.
//! - A request in which `Origin` or `Host` is repeated, or `Host` contradicts the request's address, is refused,
//!   because a proxy might use the other value.
//!
//! After these checks, `routes` logs the user in.

use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version, header};
use dunlin::Refused;
use dunlin::wire::ErrorCode;

use super::context::Context;
use super::problem::Problem;
use super::{connection, paths};

/// How long a browser may cache a preflight response, seconds.
const PREFLIGHT_CACHE_S: &str = "600";
/// The request headers that web pages may send. `*` includes headers of records (`dunlin-header-NAME`), but not
/// `authorization`, which must be listed.
const ALLOWED_REQUEST_HEADERS: &str = "authorization, content-type, if-match, if-none-match, last-event-id, dunlin-key, \
                             dunlin-event-time, dunlin-expires, dunlin-producer, dunlin-producer-epoch, \
                             dunlin-producer-seq, dunlin-expect-seq, dunlin-last-position, *";

const EXPOSED_RESPONSE_HEADERS: &str =
    "etag, retry-after, dunlin-node, dunlin-created, dunlin-version, dunlin-lease";

pub(super) fn check<B>(context: &Context, request: &Request<B>) -> Result<(), Problem> {
    if let Some(refused) = context.refusal()
        && !paths::PROBES.contains(&request.uri().path())
    {
        connection::note_refused(context.shared(), context.peer_address(), refused);
        return Err(Problem::from(refused.clone()));
    }
    check_head(context, request)?;
    let host = host(request)?;
    let origins = &context.shared().origins;
    if context.is_local()
        && !host.as_ref().is_none_or(|host| is_own_name(host.host()) || is_configured(origins, host))
    {
        return Err(forbidden(
            "the request's Host is not a known address of this node; if it is one, add it to http.origins",
        ));
    }
    if request.headers().get_all(header::ORIGIN).iter().nth(1).is_some() {
        return Err(Problem::bad_request("the request has more than one Origin header"));
    }
    if let Some(origin) = request.headers().get(header::ORIGIN)
        && !is_own(origin, host.as_ref(), context.shared().tls.is_some())
        && !origins.iter().any(|allowed| allowed.as_bytes() == origin.as_bytes())
        && !is_cluster_origin(context, origin)
    {
        return Err(forbidden(
            "pages of this origin have no access; to allow them, add the origin to http.origins",
        ));
    }
    check_encoding(request.headers())
}

fn forbidden(text: &str) -> Problem {
    Problem::of(StatusCode::FORBIDDEN, ErrorCode::Forbidden, text)
}

/// Refuses a request whose head is larger than the limit. hyper itself accepts heads up to the size of its buffer,
/// which may be larger.
fn check_head<B>(context: &Context, request: &Request<B>) -> Result<(), Problem> {
    const SEPARATOR_BYTES: usize = ": \r\n".len();
    let header_bytes = |(name, value): (&header::HeaderName, &HeaderValue)| {
        name.as_str().len() + value.len() + SEPARATOR_BYTES
    };
    let path = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    let bytes = path + request.headers().iter().map(header_bytes).sum::<usize>();
    let bytes_max = context.limits().http.header_bytes_max;
    if bytes <= bytes_max as usize {
        return Ok(());
    }
    let refused = Refused::limit("http.header_bytes_max", bytes_max.into());
    Err(Problem::from(refused).with_status(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE))
}

/// The host in the request's address or `Host` header; `None` if the request has neither, as with some old clients.
fn host<B>(request: &Request<B>) -> Result<Option<Authority>, Problem> {
    let mut values = request.headers().get_all(header::HOST).iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(Problem::bad_request("the request has more than one Host header"));
    }
    let parse = |value: &HeaderValue| Authority::try_from(value.as_bytes());
    let host = first.map(parse).transpose();
    let host = host.map_err(|_| Problem::bad_request("the Host header is invalid"))?;
    match (request.uri().authority(), host) {
        (None, None) if request.version() == Version::HTTP_11 => {
            Err(Problem::bad_request("the Host header is missing; HTTP/1.1 requires it"))
        }
        (Some(target), Some(host)) if !host.as_str().eq_ignore_ascii_case(target.as_str()) => {
            Err(Problem::bad_request("the request's address and its Host header differ"))
        }
        (target, host) => Ok(host.or_else(|| target.cloned())),
    }
}

/// Whether the host is an IP address, `localhost` or a name under `localhost`. Any other name may belong to an
/// attacker, who can let it point to this machine.
fn is_own_name(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.parse::<std::net::IpAddr>().is_ok()
        || bare.eq_ignore_ascii_case("localhost")
        || bare.to_ascii_lowercase().ends_with(".localhost")
}

fn is_configured(origins: &[String], host: &Authority) -> bool {
    let host_of = |origin: &String| origin.split_once("://").map(|(_, rest)| rest.to_owned());
    origins.iter().filter_map(host_of).any(|configured| configured.eq_ignore_ascii_case(host.as_str()))
}

/// Whether the page with this origin came from the HTTP listener of another node of the cluster.
fn is_cluster_origin(context: &Context, origin: &HeaderValue) -> bool {
    let page_address = address_of(origin, context.shared().tls.is_some());
    let (Some(page_address), Some(seat)) = (page_address, context.shared().cluster.get()) else {
        return false;
    };
    seat.is_origin(|address| is_same_address(page_address, address))
}

/// Whether two addresses have the same host and port. All loopback addresses count as the same host.
fn is_same_address(a: &str, b: &str) -> bool {
    let parts = |text: &str| {
        let (host, port) = text.rsplit_once(':')?;
        let is_here = host.parse::<std::net::Ipv4Addr>().is_ok_and(|ip| ip.is_loopback())
            || host == "[::1]"
            || host.eq_ignore_ascii_case("localhost");
        Some((if is_here { "localhost".to_owned() } else { host.to_ascii_lowercase() }, port.to_owned()))
    };
    parts(a).is_some_and(|a| parts(b) == Some(a))
}

/// Whether the page with this origin came from this listener.
fn is_own(origin: &HeaderValue, host: Option<&Authority>, is_tls: bool) -> bool {
    let page_address = address_of(origin, is_tls);
    page_address
        .zip(host)
        .is_some_and(|(page_address, host)| page_address.eq_ignore_ascii_case(host.as_str()))
}

/// The host and port in an origin. `None` if a node's listener cannot have the origin's scheme.
fn address_of(origin: &HeaderValue, is_tls: bool) -> Option<&str> {
    let (scheme, page_address) = origin.to_str().ok()?.split_once("://")?;
    (scheme == "https" || scheme == "http" && !is_tls).then_some(page_address)
}

/// Refuses compressed bodies, because a small body could expand without limit. Other transfer encodings than `chunked`
/// are refused too, because hyper does not decode them.
fn check_encoding(headers: &HeaderMap) -> Result<(), Problem> {
    let transfer_encoded = headers
        .get_all(header::TRANSFER_ENCODING)
        .iter()
        .any(|value| !value.to_str().is_ok_and(|value| value.trim().eq_ignore_ascii_case("chunked")));
    if transfer_encoded {
        let text = "Transfer-Encoding: only chunked is supported; send the body uncompressed";
        return Err(Problem::of(StatusCode::NOT_IMPLEMENTED, ErrorCode::Protocol, text));
    }
    let compressed = headers.get_all(header::CONTENT_ENCODING).iter().any(|value| {
        !value
            .to_str()
            .is_ok_and(|value| value.trim().is_empty() || value.trim().eq_ignore_ascii_case("identity"))
    });
    if compressed {
        let problem = Problem::of(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            ErrorCode::Protocol,
            "Content-Encoding is not supported; send the body uncompressed",
        );
        return Err(problem.with_header(header::ACCEPT_ENCODING, "identity"));
    }
    Ok(())
}

/// Adds the headers with which a browser lets a page of this origin read the response.
pub(super) fn allow_page<B>(origin: Option<HeaderValue>, response: &mut Response<B>) {
    let Some(origin) = origin else { return };
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED_RESPONSE_HEADERS));
    headers.append(header::VARY, HeaderValue::from_static("origin"));
}

/// The response to a browser's preflight request; `None` for any other request.
pub(super) fn preflight<B>(request: &Request<B>) -> Option<Response<axum::body::Body>> {
    let is_preflight = request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    if request.method() != Method::OPTIONS || !is_preflight {
        return None;
    }
    let mut response = Response::new(axum::body::Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, PUT, DELETE"));
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(ALLOWED_REQUEST_HEADERS));
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(PREFLIGHT_CACHE_S));
    Some(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ip_addresses_and_localhost_are_accepted_host_names() {
        for host in ["127.0.0.1", "[::1]", "10.0.0.7", "localhost", "LOCALHOST", "a.localhost"] {
            assert!(is_own_name(host), "{host}");
        }
        for host in ["example.com", "localhost.example.com", "127.0.0.1.example.com", "notlocalhost"] {
            assert!(!is_own_name(host), "{host}");
        }
    }

    #[test]
    fn loopback_addresses_with_equal_ports_count_as_one_origin() {
        for other in ["localhost:8222", "127.0.0.1:8222", "[::1]:8222", "LOCALHOST:8222"] {
            assert!(is_same_address("127.0.0.1:8222", other), "{other}");
        }
        for other in ["localhost:8223", "10.0.0.1:8222", "evil.example:8222", "localhost", ""] {
            assert!(!is_same_address("127.0.0.1:8222", other), "{other}");
        }
        assert!(
            is_same_address("a.example:1", "A.example:1") && !is_same_address("a.example:1", "b.a.example:1")
        );
    }

    #[test]
    fn request_is_same_origin_only_if_its_origin_equals_its_host() {
        let host: Authority = "127.0.0.1:8222".parse().unwrap();
        let is_own =
            |origin: &'static str, is_tls| is_own(&HeaderValue::from_static(origin), Some(&host), is_tls);
        for is_tls in [false, true] {
            assert!(is_own("https://127.0.0.1:8222", is_tls));
            assert_eq!(is_own("http://127.0.0.1:8222", is_tls), !is_tls, "by TLS: {is_tls}");
            for other in ["http://127.0.0.1:3000", "https://127.0.0.1", "ftp://127.0.0.1:8222", "null", ""] {
                assert!(!is_own(other, is_tls), "{other}");
            }
        }
    }
}
