//! Converts between messages of `dunlin.v1.Kv` and the types of the crate `dunlin`.

use bytes::Bytes;
use dunlin::Refused;
use dunlin::state::{
    Compare, ComparedProperty, Comparison, ControlCommand, ControlQuery, FoundKey, FoundKeys, KeyItem,
    KeyOperation, OperationOutcome,
};
use dunlin::wire::ErrorCode;
use v1::compare::{Result as Compared, Target as CompareTarget};
use v1::request_op::Request as OperationRequest;
use v1::response_op::Response as OperationResponse;

use super::super::proto::dunlin as v1;

/// The keys that a request names.
pub(super) enum KeyRange<'a> {
    Key(&'a [u8]),
    /// The keys from the first up to the second, which is excluded. If the second is empty, the range has no end.
    Range(&'a [u8], &'a [u8]),
}

impl<'a> KeyRange<'a> {
    pub(super) fn of(key: &'a [u8], range_end: &'a [u8]) -> KeyRange<'a> {
        match range_end {
            [] => KeyRange::Key(key),
            [0] => KeyRange::Range(key, &[]),
            end => KeyRange::Range(key, end),
        }
    }

    pub(super) fn query(self, limit: u32) -> ControlQuery<'a> {
        match self {
            KeyRange::Key(key) => ControlQuery::Get { key },
            KeyRange::Range(start, end) => ControlQuery::Range { start, end, limit },
        }
    }
}

fn invalid(why: &str) -> Refused {
    Refused::new(ErrorCode::BadKey, why)
}

pub(super) fn query(request: &v1::RangeRequest) -> ControlQuery<'_> {
    KeyRange::of(&request.key, &request.range_end).query(request.limit)
}

pub(super) fn put(request: &v1::PutRequest) -> ControlCommand<'_> {
    let v1::PutRequest { key, value, lease, expect_mod_revision } = request;
    match *expect_mod_revision {
        Some(expect) => ControlCommand::PutIf { key, value, lease: *lease, expect },
        None => ControlCommand::Put { key, value, lease: *lease },
    }
}

pub(super) fn delete(request: &v1::DeleteRequest) -> Result<ControlCommand<'_>, Refused> {
    Ok(match (KeyRange::of(&request.key, &request.range_end), request.expect_mod_revision) {
        (KeyRange::Key(key), None) => ControlCommand::Delete { key },
        (KeyRange::Key(key), Some(expect)) => ControlCommand::DeleteIf { key, expect },
        (KeyRange::Range(start, end), None) => ControlCommand::DeleteRange { start, end },
        (KeyRange::Range(..), Some(_)) => {
            return Err(invalid("expect_mod_revision needs a single key, not a range"));
        }
    })
}

pub(super) fn transaction(request: &v1::TxnRequest) -> Result<ControlCommand<'_>, Refused> {
    Ok(ControlCommand::Transaction {
        compare: request.compare.iter().map(compare).collect::<Result<_, _>>()?,
        then: request.success.iter().map(operation).collect::<Result<_, _>>()?,
        otherwise: request.failure.iter().map(operation).collect::<Result<_, _>>()?,
    })
}

fn compare(compare: &v1::Compare) -> Result<Compare<'_>, Refused> {
    let is = match Compared::try_from(compare.result) {
        Ok(Compared::Equal) => Comparison::Equal,
        Ok(Compared::NotEqual) => Comparison::NotEqual,
        Ok(Compared::Less) => Comparison::Less,
        Ok(Compared::Greater) => Comparison::Greater,
        Err(_) => return Err(invalid("unknown comparison operator")),
    };
    let target = match compare.target.as_ref().ok_or_else(|| invalid("the comparison has no target"))? {
        CompareTarget::Version(version) => ComparedProperty::Version { version: *version },
        CompareTarget::CreateRevision(revision) => ComparedProperty::Created { revision: *revision },
        CompareTarget::ModRevision(revision) => ComparedProperty::Modified { revision: *revision },
        CompareTarget::Lease(lease) => ComparedProperty::Lease { lease: *lease },
        CompareTarget::Value(value) => ComparedProperty::Value { value },
    };
    Ok(Compare { key: &compare.key, is, target })
}

fn operation(request: &v1::RequestOp) -> Result<KeyOperation<'_>, Refused> {
    let expects = || invalid("use compare instead of expect_mod_revision within a transaction");
    Ok(match request.request.as_ref().ok_or_else(|| invalid("the operation is empty"))? {
        OperationRequest::Range(range) => match KeyRange::of(&range.key, &range.range_end) {
            KeyRange::Key(key) => KeyOperation::Get { key },
            KeyRange::Range(start, end) => KeyOperation::Range { start, end, limit: range.limit },
        },
        OperationRequest::Put(put) if put.expect_mod_revision.is_some() => return Err(expects()),
        OperationRequest::Put(put) => {
            KeyOperation::Put { key: &put.key, value: &put.value, lease: put.lease }
        }
        OperationRequest::Delete(delete) if delete.expect_mod_revision.is_some() => return Err(expects()),
        OperationRequest::Delete(delete) => match KeyRange::of(&delete.key, &delete.range_end) {
            KeyRange::Key(key) => KeyOperation::Delete { key },
            KeyRange::Range(start, end) => KeyOperation::DeleteRange { start, end },
        },
    })
}

pub(super) fn txn_response(
    request: &v1::TxnRequest,
    revision: u64,
    succeeded: bool,
    results: &[OperationOutcome],
) -> v1::TxnResponse {
    let operations = if succeeded { &request.success } else { &request.failure };
    let responses = operations.iter().zip(results).map(|(operation, outcome)| {
        let response = match (outcome, &operation.request) {
            (OperationOutcome::Found { found: read }, _) => {
                OperationResponse::Range(range_response(revision, read))
            }
            (OperationOutcome::Changed { .. }, Some(OperationRequest::Put(_))) => {
                OperationResponse::Put(v1::PutResponse { revision })
            }
            (OperationOutcome::Changed { keys }, _) => {
                OperationResponse::Delete(v1::DeleteResponse { revision, deleted: *keys })
            }
        };
        v1::ResponseOp { response: Some(response) }
    });
    v1::TxnResponse { revision, succeeded, responses: responses.collect() }
}

pub(super) fn range_response(revision: u64, found: &FoundKeys) -> v1::RangeResponse {
    v1::RangeResponse { revision, kvs: found.items.iter().map(pair).collect(), more: found.more }
}

pub(super) fn pair(pair: &FoundKey) -> v1::KeyValue {
    key_value(&pair.key, &pair.item)
}

pub(super) fn key_value(key: &[u8], item: &KeyItem) -> v1::KeyValue {
    v1::KeyValue {
        key: Bytes::copy_from_slice(key),
        create_revision: item.created,
        mod_revision: item.modified,
        version: item.version,
        value: Bytes::copy_from_slice(&item.value),
        lease: item.lease,
    }
}
