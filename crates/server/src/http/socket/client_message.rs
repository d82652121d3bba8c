//! The messages that a client may send over a WebSocket with JSON.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::http::limited::{self, HEADERS_MAX};
use crate::http::problem::Problem;
use crate::http::query::whole_number;

/// A message from a client of the JSON protocol over WebSocket.
#[derive(Debug)]
pub(super) enum ClientMessage<'a> {
    Hello(SocketHello),
    Subscribe(Subscribe),
    Unsubscribe(Unsubscribe),
    Publish(Box<Publish<'a>>),
    Ping,
}

#[derive(Debug, Deserialize)]
struct SocketMessageKind<'a> {
    #[serde(borrow)]
    op: Cow<'a, str>,
}

/// The client's first message: its credentials and name.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SocketHello {
    #[serde(rename = "op")]
    _op: String,
    pub(super) token: Option<String>,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    /// The client's name, which operators see.
    #[serde(default)]
    pub(super) name: String,
}

/// Starts a subscription. The parameters are the same as those of `GET /v1/topics/{pattern}/events`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Subscribe {
    #[serde(rename = "op")]
    _op: String,
    /// The number by which the client identifies the subscription.
    pub(super) id: u64,
    pub(super) pattern: String,
    pub(super) from: Option<String>,
    pub(super) on_gap: Option<String>,
    #[serde(default)]
    pub(super) conflate: bool,
    pub(super) name: Option<String>,
    /// The last position that the client received; the subscription continues after it.
    pub(super) resume: Option<String>,
}

/// Ends a subscription.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Unsubscribe {
    #[serde(rename = "op")]
    _op: String,
    pub(super) id: u64,
}

/// Publishes a record.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Publish<'a> {
    #[serde(rename = "op")]
    _op: String,
    /// The number that the response repeats, so that the client can match it to the request.
    pub(super) request: u64,
    pub(super) subject: String,
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
    payload_base64: Option<String>,
    pub(super) key: Option<String>,
    #[serde(default, deserialize_with = "limited::list::<HEADERS_MAX, _, _>")]
    pub(super) headers: Vec<Header>,
    pub(super) reply: Option<String>,
    #[serde(default, deserialize_with = "whole_number")]
    pub(super) event_time_ns: Option<u64>,
    #[serde(default, deserialize_with = "whole_number")]
    pub(super) expires_ns: Option<u64>,
    #[serde(default, deserialize_with = "whole_number")]
    pub(super) expect_seq: Option<u64>,
    pub(super) last_position: Option<String>,
}

/// A header of a record to publish.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Header {
    pub(super) name: String,
    pub(super) value: String,
}

impl<'a> ClientMessage<'a> {
    pub(super) fn read(text: &'a str) -> Result<ClientMessage<'a>, Problem> {
        let SocketMessageKind { op } = parse(text)?;
        Ok(match &*op {
            "hello" => ClientMessage::Hello(parse(text)?),
            "subscribe" => ClientMessage::Subscribe(parse(text)?),
            "unsubscribe" => ClientMessage::Unsubscribe(parse(text)?),
            "publish" => ClientMessage::Publish(Box::new(parse(text)?)),
            "ping" => ClientMessage::Ping,
            other => {
                let text = format!("op {other:?}: expected hello, subscribe, unsubscribe, publish or ping");
                return Err(Problem::bad_request(text));
            }
        })
    }
}

fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, Problem> {
    serde_json::from_str(text)
        .map_err(|error| Problem::bad_request(format!("the message is invalid: {error}")))
}

impl SocketHello {
    /// The credentials in the format of an `authorization` header; `None` if the client has sent none.
    pub(super) fn authorization(&self) -> Option<Vec<u8>> {
        match self {
            SocketHello { token: Some(token), .. } => Some(format!("Bearer {token}").into_bytes()),
            SocketHello { user: Some(user), password, .. } => {
                let password = password.as_deref().unwrap_or("");
                Some(format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))).into_bytes())
            }
            _ => None,
        }
    }
}

impl Publish<'_> {
    /// The payload's bytes: the text of a JSON string, or the source text of any other JSON value.
    pub(super) fn payload(&self) -> Result<Cow<'_, [u8]>, Problem> {
        let wrong = |text: &str| Problem::bad_request(text);
        match (self.payload, &self.payload_base64) {
            (Some(_), Some(_)) => Err(wrong("set payload or payload_base64, not both")),
            (None, None) => Ok(Cow::Borrowed(&[])),
            (None, Some(text)) => {
                let bytes = STANDARD.decode(text);
                bytes.map(Cow::Owned).map_err(|error| wrong(&format!("payload_base64: {error}")))
            }
            (Some(value), None) if value.get().starts_with('"') => {
                let text: Cow<'_, str> =
                    serde_json::from_str(value.get()).map_err(|error| wrong(&format!("payload: {error}")))?;
                Ok(match text {
                    Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
                    Cow::Owned(text) => Cow::Owned(text.into_bytes()),
                })
            }
            (Some(value), None) => Ok(Cow::Borrowed(value.get().as_bytes())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(rest: &str) -> Result<Vec<u8>, Problem> {
        let text = format!(r#"{{"op":"publish","request":1,"subject":"a"{rest}}}"#);
        let ClientMessage::Publish(publish) = ClientMessage::read(&text)? else { panic!("{text}") };
        publish.payload().map(Cow::into_owned)
    }

    #[test]
    fn websocket_payload_may_be_text_base64_or_json() {
        for (rest, expected) in [
            ("", &b""[..]),
            (r#","payload":"a\nb""#, b"a\nb"),
            (r#","payload":{"z":1, "a":[]}"#, br#"{"z":1, "a":[]}"#),
            (r#","payload_base64":"AP8=""#, &[0, 255]),
        ] {
            assert_eq!(payload(rest).unwrap(), expected);
        }
    }

    #[test]
    fn invalid_websocket_messages_are_refused() {
        for text in [
            "",
            "[]",
            "{}",
            r#"{"op":1}"#,
            r#"{"op":"cry"}"#,
            r#"{"op":"subscribe","pattern":"a"}"#,
            r#"{"op":"subscribe","id":1,"pattern":"a","form":"latest"}"#,
            r#"{"op":"hello","token":"\ud800"}"#,
        ] {
            assert!(ClientMessage::read(text).is_err(), "{text}");
        }
        for rest in
            [r#","payload":"a","payload_base64":"""#, r#","payload_base64":"?""#, r#","payload":1,"x":1"#]
        {
            assert!(payload(rest).is_err(), "{rest}");
        }
    }

    #[test]
    fn hello_credentials_are_parsed_like_http_authorization() {
        let header = |text: &str| match ClientMessage::read(text).unwrap() {
            ClientMessage::Hello(hello) => hello.authorization(),
            _ => panic!("{text}"),
        };
        assert_eq!(header(r#"{"op":"hello"}"#), None);
        assert_eq!(header(r#"{"op":"hello","token":"t"}"#).unwrap(), b"Bearer t");
        let basic = header(r#"{"op":"hello","user":"ana","password":"p:w"}"#).unwrap();
        assert_eq!(basic, b"Basic YW5hOnA6dw==");
    }
}
