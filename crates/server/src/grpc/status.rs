//! Converts refusals to gRPC statuses. The details of a status contain the error's entry in the table of errors.

use std::collections::HashMap;
use std::time::Duration;

use dunlin::Refused;
use dunlin::wire::{ErrorCode, RetryAdvice};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use super::proto::dunlin as v1;

/// The field `domain` of every `ErrorInfo`.
const DOMAIN: &str = "dunlin";

/// The status of a refusal, with an `ErrorInfo` in its details.
pub(super) fn status(refused: &Refused) -> Status {
    if refused.code == ErrorCode::Ended {
        return Status::ok("");
    }
    let row = refused.code.row();
    let numbers: Vec<_> = refused.numbers.iter().map(u64::to_string).collect();
    let metadata = HashMap::from([
        ("code".to_owned(), refused.code.number().to_string()),
        ("retry".to_owned(), row.map_or(RetryAdvice::No, |row| row.retry).to_string()),
        ("numbers".to_owned(), numbers.join(",")),
        ("text".to_owned(), refused.text.clone()),
    ]);
    let mut details = ErrorDetails::new();
    if refused.code == ErrorCode::RateLimit {
        details.set_retry_info(Some(Duration::from_millis(refused.numbers[0])));
    }
    details.set_error_info(refused.code.to_string(), DOMAIN, metadata);
    Status::with_error_details(code(refused.code), refused.as_wire().to_string(), details)
}

/// Replaces tonic's error for an unreadable message by the error `PROTOCOL`. The code of tonic's error, INTERNAL, would
/// blame the node for an error of the client. Other errors stay as they are.
pub(super) fn with_protocol_code(error: Status) -> Status {
    if error.code() != Code::Internal || !error.details().is_empty() {
        return error;
    }
    status(&Refused::new(ErrorCode::Protocol, error.message()))
}

/// Converts a refusal to a message, for responses that contain the outcomes of several records.
pub(super) fn refusal(refused: &Refused) -> v1::Refusal {
    let retry = match refused.code.row().map(|row| row.retry) {
        Some(RetryAdvice::Later) => v1::RetryAdvice::Later,
        Some(RetryAdvice::Reconnect) => v1::RetryAdvice::Reconnect,
        Some(RetryAdvice::No) | None => v1::RetryAdvice::No,
    };
    v1::Refusal {
        code: refused.code.number().into(),
        name: refused.code.to_string(),
        numbers: refused.numbers.to_vec(),
        text: refused.text.clone(),
        retry: retry.into(),
    }
}

/// The gRPC status code that the table of errors has for an error.
fn code(code: ErrorCode) -> Code {
    code.row().map_or(Code::Unknown, |row| Code::from_i32(row.grpc.number()))
}
