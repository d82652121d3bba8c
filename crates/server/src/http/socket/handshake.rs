//! The WebSocket handshake, as section 4.2 of RFC 6455 defines it.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dunlin::wire::ErrorCode;
use tungstenite::handshake::derive_accept_key;

use crate::http::problem::Problem;

/// The version of the WebSocket protocol that the node supports.
const VERSION: &str = "13";
/// Length of the client's random key in the handshake, bytes.
const KEY_BYTES: usize = 16;

/// The protocol inside a WebSocket, which the client chooses in the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SubProtocol {
    /// Dunlin's own protocol, in binary messages.
    Bytes,
    /// Text messages, each a JSON object.
    Texts,
    /// The NATS client protocol in binary messages; used when the client names no sub-protocol.
    Nats,
}

impl SubProtocol {
    const NAMES: [(SubProtocol, &str); 2] =
        [(SubProtocol::Bytes, "dunlin.v1"), (SubProtocol::Texts, "dunlin.v1.json")];

    fn name(self) -> Option<&'static str> {
        SubProtocol::NAMES.into_iter().find(|(sub_protocol, _)| *sub_protocol == self).map(|(_, name)| name)
    }
}

/// Chooses the sub-protocol and creates the response. If the client names none, `default` is chosen.
pub(super) fn respond(
    headers: &HeaderMap,
    default: Option<SubProtocol>,
) -> Result<(SubProtocol, Response), Problem> {
    if !has_item(headers, &header::CONNECTION, "upgrade") || !has_item(headers, &header::UPGRADE, "websocket")
    {
        let text = "this path is for WebSockets: send Connection: Upgrade and Upgrade: websocket";
        let problem = Problem::of(StatusCode::UPGRADE_REQUIRED, ErrorCode::Protocol, text);
        return Err(problem.with_header(header::UPGRADE, "websocket"));
    }
    if single_value(headers, &header::SEC_WEBSOCKET_VERSION) != Some(VERSION) {
        let text = "Sec-WebSocket-Version: expected 13";
        let problem = Problem::of(StatusCode::UPGRADE_REQUIRED, ErrorCode::Protocol, text);
        return Err(problem.with_header(header::SEC_WEBSOCKET_VERSION, VERSION));
    }
    let key = single_value(headers, &header::SEC_WEBSOCKET_KEY).filter(|key| is_key(key));
    let key =
        key.ok_or_else(|| Problem::bad_request("Sec-WebSocket-Key: expected 16 bytes in base64, once"))?;
    let has_no_offer = !headers.contains_key(header::SEC_WEBSOCKET_PROTOCOL);
    let sub_protocol =
        offered_sub_protocol(headers).or(default.filter(|_| has_no_offer)).ok_or_else(|| {
            Problem::bad_request("Sec-WebSocket-Protocol: expected dunlin.v1 or dunlin.v1.json")
        })?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let accept = HeaderValue::try_from(derive_accept_key(key.as_bytes()));
    let accept = accept.map_err(|_| Problem::bad_request("Sec-WebSocket-Key: invalid"))?;
    let fields = response.headers_mut();
    fields.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    fields.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    fields.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    if let Some(name) = sub_protocol.name() {
        fields.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(name));
    }
    Ok((sub_protocol, response))
}

/// The items of a header that contains a list separated by commas.
fn items<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h str> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}

/// Whether the request asks to become a WebSocket.
pub(in crate::http) fn is_requested(headers: &HeaderMap) -> bool {
    has_item(headers, &header::UPGRADE, "websocket")
}

fn has_item(headers: &HeaderMap, name: &HeaderName, expected: &str) -> bool {
    items(headers, name).any(|item| item.eq_ignore_ascii_case(expected))
}

/// The value of a header; `None` if the header is missing or repeated.
fn single_value<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut values = headers.get_all(name).into_iter();
    let value = values.next().filter(|_| values.next().is_none())?;
    value.to_str().ok().map(str::trim)
}

fn is_key(key: &str) -> bool {
    STANDARD.decode(key).is_ok_and(|bytes| bytes.len() == KEY_BYTES)
}

/// The first sub-protocol in the client's list that the node supports; `None` if the node supports none of them.
fn offered_sub_protocol(headers: &HeaderMap) -> Option<SubProtocol> {
    items(headers, &header::SEC_WEBSOCKET_PROTOCOL).find_map(|item| {
        SubProtocol::NAMES.into_iter().find(|(_, name)| *name == item).map(|(sub_protocol, _)| sub_protocol)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: [(&str, &str); 5] = [
        ("connection", "keep-alive, Upgrade"),
        ("upgrade", "WebSocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("sec-websocket-protocol", "chat, dunlin.v1.json, dunlin.v1"),
    ];

    fn headers(changed: (&str, &str)) -> HeaderMap {
        let header = |(name, value): (&str, &str)| {
            let value = if name == changed.0 { changed.1 } else { value };
            (HeaderName::try_from(name).unwrap(), HeaderValue::try_from(value).unwrap())
        };
        VALID.map(header).into_iter().filter(|(_, value)| !value.is_empty()).collect()
    }

    #[test]
    fn websocket_handshake_chooses_the_first_known_sub_protocol() {
        let (sub_protocol, response) = respond(&headers(("", "")), None).unwrap();
        assert_eq!((sub_protocol, response.status().as_u16()), (SubProtocol::Texts, 101));
        // The expected value is the one in RFC 6455's own example.
        assert_eq!(response.headers()["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(response.headers()["sec-websocket-protocol"], "dunlin.v1.json");
    }

    #[test]
    fn invalid_websocket_handshake_gets_the_matching_http_status() {
        for (name, value, status) in [
            ("connection", "keep-alive", 426),
            ("upgrade", "h2c", 426),
            ("upgrade", "", 426),
            ("sec-websocket-version", "8", 426),
            ("sec-websocket-key", "", 400),
            ("sec-websocket-key", "dGhl", 400),
            ("sec-websocket-key", "!", 400),
            ("sec-websocket-protocol", "", 400),
            ("sec-websocket-protocol", "dunlin.v2", 400),
        ] {
            assert_eq!(
                respond(&headers((name, value)), None).unwrap_err().status(),
                status,
                "{name}: {value}"
            );
        }
        let mut twice = headers(("", ""));
        twice.append("sec-websocket-key", HeaderValue::from_static("AAAAAAAAAAAAAAAAAAAAAA=="));
        assert_eq!(respond(&twice, None).unwrap_err().status(), 400);
    }

    #[test]
    fn websocket_client_without_sub_protocol_gets_the_default() {
        let plain = headers(("sec-websocket-protocol", ""));
        let (sub_protocol, response) = respond(&plain, Some(SubProtocol::Nats)).unwrap();
        assert_eq!(sub_protocol, SubProtocol::Nats);
        assert!(!response.headers().contains_key(header::SEC_WEBSOCKET_PROTOCOL));
        let wrong = headers(("sec-websocket-protocol", "mqtt"));
        assert_eq!(respond(&wrong, Some(SubProtocol::Nats)).unwrap_err().status(), 400);
        let named = headers(("sec-websocket-protocol", "dunlin.v1"));
        assert_eq!(respond(&named, Some(SubProtocol::Nats)).unwrap().0, SubProtocol::Bytes);
    }
}
