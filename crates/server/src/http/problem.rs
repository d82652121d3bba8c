//! Refusals as `application/problem+json` (RFC 9457). Their fields come from the error's entry in the table of errors.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use dunlin::topic::{PublishError, SubscribeError};
use dunlin::wire::{ErrorCode, RetryAdvice};
use dunlin::{Refused, TopicError};
use serde_json::{Map, Value, json};

/// The smallest value of the header `retry-after`, seconds. If the refusal states no time, the header has this value.
const RETRY_AFTER_S: u64 = 1;

const INVALID_REQUEST_ADVICE: &str = "Change the request as `detail` says.";

const MISSING_KEY_ADVICE: &str =
    "The key was never written, or was deleted. GET /v1/kv?prefix= lists all keys.";

/// The value of the header `www-authenticate`: the methods by which a client can log in.
const CHALLENGE: &str = "Bearer realm=\"dunlin\", Basic realm=\"dunlin\", charset=\"UTF-8\"";

/// A refusal and the HTTP status with which it is sent.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    refused: Refused,
    /// An additional header of the response, if this refusal has one.
    header: Option<(header::HeaderName, &'static str)>,
}

impl Problem {
    /// Creates a refusal with a status of its own, instead of the status that the table of errors has for `code`.
    pub(super) fn of(status: StatusCode, code: ErrorCode, text: impl Into<String>) -> Problem {
        Problem { status, ..Problem::from(Refused::new(code, text)) }
    }

    pub(super) fn bad_request(text: impl Into<String>) -> Problem {
        Problem::of(StatusCode::BAD_REQUEST, ErrorCode::Protocol, text)
    }

    /// The same refusal with another status.
    pub(super) fn with_status(self, status: StatusCode) -> Problem {
        Problem { status, ..self }
    }

    pub(super) fn with_header(mut self, name: header::HeaderName, value: &'static str) -> Problem {
        self.header = Some((name, value));
        self
    }

    pub(super) fn refused(&self) -> &Refused {
        &self.refused
    }

    #[cfg(test)]
    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    /// The value of the header `retry-after`, seconds. `None` if a client should not repeat the request by itself: the
    /// request would be refused again, it may already have had an effect, or it can succeed only after another client
    /// has acted.
    fn retry_after_s(&self) -> Option<u64> {
        let is_temporary = matches!(
            self.status,
            StatusCode::REQUEST_TIMEOUT
                | StatusCode::TOO_MANY_REQUESTS
                | StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::INSUFFICIENT_STORAGE
        );
        let Refused { code, numbers, .. } = &self.refused;
        let has_advice = code.row().is_some_and(|row| row.retry != RetryAdvice::No);
        let wait_ms =
            if matches!(code, ErrorCode::RateLimit | ErrorCode::QueueFull) { numbers[0] } else { 0 };
        (is_temporary && has_advice).then(|| wait_ms.div_ceil(1_000).max(RETRY_AFTER_S))
    }

    pub(super) fn json(&self) -> Value {
        let Refused { code, numbers, .. } = &self.refused;
        let mut body = json!({
            "type": format!("urn:dunlin:error:{code}"),
            "title": code.to_string(),
            "status": self.status.as_u16(),
            "code": code.number(),
        });
        let named = named_numbers(*code, numbers);
        let detail = self.refused.as_wire().detail();
        let detail = if detail.is_empty() { numbers_text(&named) } else { detail };
        let mut put = |name: &str, value: Value| body[name] = value;
        if !detail.is_empty() {
            put("detail", detail.into());
        }
        if *numbers != [0; 3] {
            put("numbers", named.into());
        }
        if let Some(row) = code.row() {
            put("retry", row.retry.to_string().into());
            // People often write HTTP requests by hand, so the advice explains how to change the request.
            let advice = match (*code, self.status) {
                (ErrorCode::Protocol, _) => INVALID_REQUEST_ADVICE,
                (ErrorCode::BadKey, StatusCode::NOT_FOUND) => MISSING_KEY_ADVICE,
                _ => row.advice,
            };
            put("advice", advice.into());
        }
        body
    }

    /// The bytes of the response to a client whose request the server does not read.
    pub(super) fn to_http_response(&self) -> String {
        let body = self.json().to_string();
        let status = self.status;
        let retry_after = self.retry_after_s().map(|seconds| format!("retry-after: {seconds}\r\n"));
        let retry_after = retry_after.unwrap_or_default();
        format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/problem+json\r\ncontent-length: {}\r\n\
             {retry_after}connection: close\r\n\r\n{body}",
            body.len()
        )
    }
}

/// The refusal's numbers, by the names that the table of errors has for them.
fn named_numbers(code: ErrorCode, numbers: &[u64; 3]) -> Map<String, Value> {
    let carries = code.row().map_or("", |row| row.carries);
    let before_text = carries.split("text:").next().unwrap_or("").trim_end_matches([';', ' ']);
    // Names in the table may end with an explanation in brackets, which is removed.
    let plain = |name: &'static str| name.split_once('(').map_or(name, |(name, _)| name).trim();
    let names = before_text.split(',').map(plain).filter(|name| !name.is_empty());
    names
        .zip(numbers)
        .map(|(name, number)| (name.replace(' ', "_").replace('\'', ""), (*number).into()))
        .collect()
}

fn numbers_text(named: &Map<String, Value>) -> String {
    let parts: Vec<_> =
        named.iter().map(|(name, number)| format!("{} {number}", name.replace('_', " "))).collect();
    parts.join(", ")
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Problem {
        let status = refused.code.row().and_then(|row| StatusCode::from_u16(row.http).ok());
        // A refusal must not have a success status, whatever the table says.
        let status =
            status.filter(|status| !status.is_success()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Problem { status, refused, header: None }
    }
}

macro_rules! from_refusals {
    ($($error:ty)*) => {$(
        impl From<$error> for Problem {
            fn from(error: $error) -> Problem {
                Problem::from(Refused::from(&error))
            }
        }
    )*};
}

from_refusals! { PublishError SubscribeError TopicError }

impl From<dunlin::topic::SubjectError> for Problem {
    fn from(error: dunlin::topic::SubjectError) -> Problem {
        Problem::from(Refused::new(ErrorCode::Subject, error.to_string()))
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.json().to_string()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after_s() {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(CHALLENGE));
        }
        if let Some((name, value)) = self.header {
            headers.insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_problem_has_status_title_detail_and_numbers() {
        let problem = Problem::from(PublishError::SeqMoved { expected: 4, last_seq: 9 });
        assert_eq!(problem.status(), 412);
        let body = problem.json();
        assert_eq!(body["title"], "SEQ_MOVED");
        assert_eq!(body["numbers"], json!({"expected_sequence": 4, "last_sequence": 9}));
        assert_eq!(body["detail"], "expected sequence 4, last sequence 9");
        let limit = Problem::from(Refused::limit("topics_max", 3)).json();
        assert_eq!(
            (&limit["detail"], &limit["numbers"]),
            (&json!("topics_max = 3"), &json!({"the_limits_value": 3}))
        );
    }

    #[test]
    fn retry_after_header_is_the_same_with_and_without_axum() {
        let wait = |code| Refused { numbers: [2_500, 10, 0], ..Refused::new(code, "publish_records_per_s") };
        for (refused, seconds) in [
            (wait(ErrorCode::RateLimit), Some("3")),
            (wait(ErrorCode::QueueFull), Some("3")),
            (Refused::new(ErrorCode::ShuttingDown, ""), Some("1")),
            (Refused::new(ErrorCode::DiskFull, ""), Some("1")),
            (Refused::new(ErrorCode::Handshake, ""), Some("1")),
            (Refused::new(ErrorCode::TlsRequired, ""), None),
            (Refused::new(ErrorCode::NoTopic, ""), None),
            (Refused::new(ErrorCode::OutcomeUnknown, ""), None),
        ] {
            let head = Problem::from(refused.clone()).to_http_response();
            let value = head.lines().find_map(|line| line.strip_prefix("retry-after: "));
            assert_eq!(value, seconds, "{refused:?}");
            let response = Problem::from(refused.clone()).into_response();
            let value = response.headers().get(header::RETRY_AFTER).map(|value| value.to_str().unwrap());
            assert_eq!(value, seconds, "{refused:?}");
        }
    }

    #[test]
    fn every_error_code_has_an_http_error_status() {
        for row in dunlin::wire::CODES {
            let problem = Problem::from(Refused::new(row.code, "x"));
            assert!(problem.status().is_client_error() || problem.status().is_server_error(), "{}", row.name);
        }
    }
}
