//! Serves the dashboard (`docs/dashboard.md`). Its files are built into the program and need no login, because they
//! contain no data. Requests that the dashboard sends are checked like all others.
//!
//! The content security policy guarantees these invariants: only the scripts and styles of these files run, no other
//! page may embed the dashboard, and no displayed text can become a script.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use axum::response::IntoResponse;

use super::routes::INDEX;

struct File {
    path: &'static str,
    plain: &'static [u8],
    gzip: &'static [u8],
}

/// The dashboard's files. Empty if the dashboard was not built before this program.
static FILES: &[File] = include!(concat!(env!("OUT_DIR"), "/page.rs"));

const INDEX_FILE: &str = "/index.html";
/// Path prefix of files that browsers may cache forever, because the files' names contain a hash of their content.
const IMMUTABLE_PREFIX: &str = "/assets/";

/// The content security policy. It lets the page connect to other nodes of the cluster, which check the page's requests
/// themselves.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; \
                      connect-src *; worker-src 'self'; manifest-src 'self'; frame-src 'self'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

pub(crate) fn is_built_in() -> bool {
    find(INDEX_FILE).is_some()
}

/// The response at `/`: the dashboard for browsers, and a short text for other clients.
pub(super) fn index(headers: &HeaderMap) -> Response<Body> {
    let is_browser = headers
        .get_all(header::ACCEPT)
        .iter()
        .any(|accept| accept.to_str().is_ok_and(|text| text.contains("text/html")));
    let index_file = find(INDEX_FILE).filter(|_| is_browser);
    let mut response = index_file.map_or_else(|| INDEX.into_response(), |file| send(file, headers));
    response.headers_mut().append(header::VARY, HeaderValue::from_static("accept"));
    response
}

/// Whether the path is a file of the dashboard, which needs no login.
pub(super) fn is_file(path: &str) -> bool {
    find(path).is_some()
}

/// The response for the dashboard's file at this path; `None` if there is no such file.
pub(super) fn respond(method: &Method, path: &str, headers: &HeaderMap) -> Option<Response<Body>> {
    let file = find(path)?;
    let is_read = [Method::GET, Method::HEAD].contains(method);
    Some(if is_read { send(file, headers) } else { StatusCode::METHOD_NOT_ALLOWED.into_response() })
}

fn find(path: &str) -> Option<&'static File> {
    FILES.iter().find(|file| file.path == path)
}

fn send(file: &'static File, headers: &HeaderMap) -> Response<Body> {
    let compressed = accepts_gzip(headers);
    let bytes = if compressed { file.gzip } else { file.plain };
    let mut response = Response::new(Body::from(bytes));
    let cache = match file.path {
        INDEX_FILE => "no-store",
        path if path.starts_with(IMMUTABLE_PREFIX) => "public, max-age=31536000, immutable",
        _ => "no-cache",
    };
    let fields = [
        (header::CONTENT_TYPE, media_type_of(file.path)),
        (header::CACHE_CONTROL, cache),
        (header::VARY, "accept-encoding"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    for (name, value) in fields {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    if compressed {
        response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

fn media_type_of(path: &str) -> &'static str {
    match path.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("woff2") => "font/woff2",
        _ => "application/octet-stream",
    }
}

/// Whether the client accepts gzip. Without `accept-encoding`, or with `gzip;q=0`, it does not.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let mut codings = headers
        .get_all(header::ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(','));
    codings.any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.replace(' ', "");
        let is_none = matches!(weight.as_str(), "q=0" | "q=0.0" | "q=0.00" | "q=0.000");
        name.trim().eq_ignore_ascii_case("gzip") && !is_none
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_sent_only_to_clients_that_accept_it() {
        let accepts = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(text));
            accepts_gzip(&headers)
        };
        assert!(accepts("gzip") && accepts("br, GZIP;q=0.5") && accepts("deflate,gzip"));
        assert!(
            !accepts("gzip;q=0")
                && !accepts("gzip; q=0.000")
                && !accepts("br")
                && !accepts("")
                && !accepts("xgzip")
        );
        assert!(!accepts_gzip(&HeaderMap::new()));
    }

    #[test]
    fn every_page_file_has_a_media_type_and_a_gzip_form() {
        for file in FILES {
            assert_ne!(media_type_of(file.path), "application/octet-stream", "{}", file.path);
            assert!(file.gzip.starts_with(&[0x1f, 0x8b]), "{}", file.path);
        }
    }
}
