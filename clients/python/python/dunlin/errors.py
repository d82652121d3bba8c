"""The exceptions of this package.

`Error` is the base class. A refusal by the node is a `RefusedError`, with one class for each row
of the table that `dunlin errors` prints. `code` is the row's name, `retry` tells whether to try
again ("no", "later", "reconnect"), and `advice` gives the next step. Errors of the client have
no code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ._dunlin import CODES
from ._ids import id_of

if TYPE_CHECKING:
    from ._dunlin import EpochChanged, Gap

_ROWS = {name: (number, retry, advice) for number, name, retry, advice in CODES}
_NAMES = {number: name for number, name, _, _ in CODES}
_BY_CODE: dict[str, type[RefusedError]] = {}


class Error(Exception):
    """The base class of all exceptions, except `ValueError` and `TypeError` for invalid arguments."""

    code: str | None = None
    """The name in the table of errors; `None` for an error of the client."""
    number: int | None = None
    """The number in the table of errors."""
    retry: str = "no"
    """Whether to try again: "no", "later" or "reconnect"."""
    advice: str = ""
    """The next step for the program or its operator."""
    numbers: tuple[int, ...] = ()
    """Values such as a limit. The code's row in the table of errors describes them. They are 0 in errors of publishers,
    subscriptions and groups, whose texts name the values."""


class DisconnectedError(Error, ConnectionError):
    """The node cannot be reached. The next call tries again, and subscriptions continue at their positions."""

    retry = "reconnect"
    advice = "Call again: the next call reconnects and continues."


class UnknownOutcomeError(Error):
    """The response was lost: the node may have carried out the request, or may do so later.

    A `Publisher` keeps its records and sends them again under the same numbers; `flush` returns the result.
    """

    retry = "later"
    advice = "Flush the publisher. Repeat other requests if a repetition does no harm."


class RequestTimeoutError(Error, TimeoutError):
    """No reply arrived in time."""

    retry = "later"


class GapError(Error):
    """Records are missing; `notice` identifies them. The iterator continues after them."""

    def __init__(self, notice: Gap | EpochChanged) -> None:
        super().__init__(repr(notice))
        self.notice = notice


class HandleClosedError(Error):
    """The handle was closed by this program."""


class ForkedError(Error, RuntimeError):
    """The handle was made in the parent process. Connect again in the child process."""


class BusyError(Error, RuntimeError):
    """Another thread or task uses the handle.

    Subscriptions, members, replicas and locks serve one thread at a time. One task at a time can enter an object of
    `dunlin.aio` with `async with`.
    """


class RefusedError(Error):
    """The node refused the request. There is a subclass for each code."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.code is not None:
            cls.number, cls.retry, cls.advice = _ROWS[cls.code]
            _BY_CODE[cls.code] = cls


class EndedError(RefusedError):
    """No action needed: the client ended this itself."""

    code = "ENDED"


class VersionError(RefusedError):
    """Use a client that supports one of the node's protocol versions."""

    code = "VERSION"


class ProtocolError(RefusedError):
    """Correct the request: it violates the protocol. If a Dunlin client sent it, report a bug."""

    code = "PROTOCOL"


class UnauthenticatedError(RefusedError):
    """Send a token, password, certificate or nkey of a user of this node."""

    code = "UNAUTHENTICATED"


class ForbiddenError(RefusedError):
    """Ask an administrator for the permission, or use a subject that the user may access."""

    code = "FORBIDDEN"


class TenantUnknownError(RefusedError):
    """Use the tenant to which the user belongs, or leave it empty."""

    code = "TENANT_UNKNOWN"


class LimitError(RefusedError):
    """Stay below the named limit, or raise it."""

    code = "LIMIT"


class BudgetSpentError(RefusedError):
    """Try again later. If the error stays, keep less history in topics, or raise memory_bytes_max."""

    code = "BUDGET_SPENT"


class RateLimitError(RefusedError):
    """Wait for the given time, then send more slowly."""

    code = "RATE_LIMIT"


class OpeningError(RefusedError):
    """Reconnect with increasing delays: the node is starting and does not serve clients yet."""

    code = "OPENING"


class OtherClusterError(RefusedError):
    """The address belongs to another cluster. Find out why, then create a new client."""

    code = "OTHER_CLUSTER"


class ShuttingDownError(RefusedError):
    """Reconnect with increasing delays, then resume."""

    code = "SHUTTING_DOWN"


class HandshakeTimeoutError(RefusedError):
    """Send the preamble and HELLO immediately after connecting."""

    code = "HANDSHAKE_TIMEOUT"


class TlsRequiredError(RefusedError):
    """Connect with TLS: tls:// instead of dunlin://, https:// instead of http://."""

    code = "TLS_REQUIRED"


class SubjectError(RefusedError):
    """Correct the subject or pattern."""

    code = "SUBJECT"


class NoTopicError(RefusedError):
    """Correct the subject, or create a topic that owns it."""

    code = "NO_TOPIC"


class TopicExistsError(RefusedError):
    """Use the existing topic, or choose another name. With `exist_ok`, its configuration differs."""

    code = "TOPIC_EXISTS"


class PatternOverlapsError(RefusedError):
    """Choose a pattern that overlaps no other topic's, or delete that topic."""

    code = "PATTERN_OVERLAPS"


class TopicConfigError(RefusedError):
    """Correct the topic's configuration."""

    code = "TOPIC_CONFIG"


class ClosedError(RefusedError):
    """The topic was deleted, or the node is shutting down. To continue, create the topic if it is missing."""

    code = "CLOSED"


class RecordTooLargeError(RefusedError):
    """Split the record or the batch, or raise the topic's record_bytes_max for one large record."""

    code = "RECORD_TOO_LARGE"


class BadFrameError(RefusedError):
    """Correct the record's fields."""

    code = "BAD_FRAME"


class BatchError(RefusedError):
    """Correct the batch as the text says. For example, send fewer records, or records of one partition only."""

    code = "BATCH"


class SeqMovedError(RefusedError):
    """Read the records that were appended since, then decide again."""

    code = "SEQ_MOVED"


class DuplicateForgottenError(RefusedError):
    """Treat the record as published: the topic has newer records of this producer."""

    code = "DUPLICATE_FORGOTTEN"


class ProducerGapError(RefusedError):
    """Send the records after the last accepted one again."""

    code = "PRODUCER_GAP"


class ProducerFencedError(RefusedError):
    """Stop: another instance of this producer has taken over."""

    code = "PRODUCER_FENCED"


class FullError(RefusedError):
    """Try again when the named subscriber has caught up, or end this subscriber."""

    code = "FULL"


class NotOpenError(RefusedError):
    """Open the publisher or the subscription before using its number."""

    code = "NOT_OPEN"


class PartitionError(RefusedError):
    """Use a partition number below the topic's number of partitions."""

    code = "PARTITION"


class DiskBehindError(RefusedError):
    """Publish more slowly, or give the node a faster disk."""

    code = "DISK_BEHIND"


class DiskFullError(RefusedError):
    """Free space on the node's disk, or raise the quota or limit that the message names.

    Publishing then continues automatically.
    """

    code = "DISK_FULL"


class DiskFailedError(RefusedError):
    """If the disk failed, replace it: records acknowledged as synced can be read, others may be lost.

    If the message names a topic's files, restore them, or delete the topic.
    """

    code = "DISK_FAILED"


class OwnerBehindError(RefusedError):
    """Publish more slowly, or connect to the node that owns the topic."""

    code = "OWNER_BEHIND"


class OwnerAwayError(RefusedError):
    """Try again. A volatile topic gets another owner soon; a durable topic waits until its owner returns."""

    code = "OWNER_AWAY"


class ReducerError(RefusedError):
    """Correct the record: the topic's reducer rejects it."""

    code = "REDUCER"


class NoResponderError(RefusedError):
    """Start a responder for the subject. The request was not published."""

    code = "NO_RESPONDER"


class NoReplyError(RefusedError):
    """Send the request again if a repetition does no harm, or wait longer."""

    code = "NO_REPLY"


class OutcomeUnknownError(RefusedError):
    """The record may have been appended. Retry with the same producer and sequence, or read the topic."""

    code = "OUTCOME_UNKNOWN"


class ElsewhereError(RefusedError):
    """Connect to the topic's owner: no other node can serve this request."""

    code = "ELSEWHERE"


class ManyLogsError(RefusedError):
    """Start by time, or name a single log."""

    code = "MANY_LOGS"


class AheadError(RefusedError):
    """Start at a position that the node has delivered."""

    code = "AHEAD"


class LostError(RefusedError):
    """Subscribe again if reading can continue without the records that the last gap reported."""

    code = "LOST"


class EvictedError(RefusedError):
    """Subscribe again, and read faster: the reliable topic has stopped waiting for this subscriber."""

    code = "EVICTED"


class NoStateError(RefusedError):
    """Follow a state topic, and all of its subjects."""

    code = "NO_STATE"


class StateLostError(RefusedError):
    """The topic began a new epoch and lost acknowledged records. Publish the whole state, then continue."""

    code = "STATE_LOST"


class GroupKindError(RefusedError):
    """Join with the group's existing kind."""

    code = "GROUP_KIND"


class StaleClaimError(RefusedError):
    """Stop working on the record: the claim's deadline passed, and another member may have it."""

    code = "STALE_CLAIM"


class InternalError(RefusedError):
    """The node has a bug or a failing disk. Read its log, and report the error."""

    code = "INTERNAL"


class KeyMovedError(RefusedError):
    """Read the key, then decide again."""

    code = "KEY_MOVED"

    @property
    def modified(self) -> int:
        """The revision that last wrote the key; 0 if the key does not exist."""
        return self.numbers[0]


class NoLeaseError(RefusedError):
    """The lease has ended, with all keys and locks that depend on it. Grant a new lease."""

    code = "NO_LEASE"

    @property
    def lease(self) -> int:
        """The lease's number."""
        return self.numbers[0]


class LockHeldError(RefusedError):
    """Wait for the lock, or do something else."""

    code = "LOCK_HELD"

    @property
    def holder(self) -> int:
        """The holder's lease."""
        return self.numbers[0]

    @property
    def token(self) -> int:
        """The holder's token."""
        return self.numbers[1]


class LockNotHeldError(RefusedError):
    """Stop: this lease does not hold the lock."""

    code = "LOCK_NOT_HELD"


class BadKeyError(RefusedError):
    """Correct the key, range or time to live."""

    code = "BAD_KEY"


class KeyTooLargeError(RefusedError):
    """Use a shorter key or value, or fewer operations at a time."""

    code = "KEY_TOO_LARGE"


class NoRoomError(RefusedError):
    """Delete keys, discard tasks or let them finish, or raise the limit. Deletions still work."""

    code = "NO_ROOM"


class NoLeaderError(RefusedError):
    """Nothing was changed. Try again once a majority of the nodes is up and connected."""

    code = "NO_LEADER"


class CommandUnknownError(RefusedError, UnknownOutcomeError):
    """The node may have executed the command, or may do so later.

    Repeat only a conditional write, or a task with an idempotency key.
    """

    code = "COMMAND_UNKNOWN"


class CompactedError(RefusedError):
    """Read the keys, then watch from the revision that the response names."""

    code = "COMPACTED"

    @property
    def oldest(self) -> int:
        """The oldest retained revision; if revisions have restarted, the first of the new epoch."""
        return self.numbers[0]


class NoControlError(RefusedError):
    """This node does not take part in its cluster. Read its log, and use another node."""

    code = "NO_CONTROL"


class NoClusterError(RefusedError):
    """To begin a cluster, run `dunlin cluster init` and start the node with --cluster-listen.

    See docs/operations.md. A single node needs no cluster.
    """

    code = "NO_CLUSTER"


class BadTaskError(RefusedError):
    """Correct the task, quota, schedule or worker."""

    code = "BAD_TASK"


class TaskTooLargeError(RefusedError):
    """Pass a reference to the content instead of the content."""

    code = "TASK_TOO_LARGE"


class NoTaskError(RefusedError):
    """Check the task's id: the task never existed, or ended too long ago."""

    code = "NO_TASK"

    @property
    def task(self) -> str:
        """The task."""
        return id_of(self.numbers[0])


class TaskOverError(RefusedError):
    """Look at the task: its state does not allow this operation."""

    code = "TASK_OVER"

    @property
    def task(self) -> str:
        """The task."""
        return id_of(self.numbers[0])


class StaleTokenError(RefusedError):
    """Stop working on the task: it timed out, was cancelled, or another worker has it."""

    code = "STALE_TOKEN"

    @property
    def task(self) -> str:
        """The task."""
        return id_of(self.numbers[0])


class NoWorkerError(RefusedError):
    """Attach again: the worker was silent for too long or left, and its tasks went to others."""

    code = "NO_WORKER"


class QueueFullError(RefusedError):
    """Wait for the given time, then submit more slowly, or raise the tenant's queued_max."""

    code = "QUEUE_FULL"

    @property
    def retry_after_ms(self) -> int:
        """Milliseconds to wait."""
        return self.numbers[0]


_LOCAL: dict[str, type[Error]] = {
    "unknown": UnknownOutcomeError,
    "away": DisconnectedError,
    "timed_out": RequestTimeoutError,
    "closed": HandleClosedError,
    "forked": ForkedError,
    "busy": BusyError,
}


def _make(kind: str, number: int, text: str, numbers: Sequence[int] = ()) -> BaseException:
    """The exception for a failure of the extension module."""
    if kind == "value":
        return ValueError(text)
    if kind in _LOCAL:
        return _LOCAL[kind](text)
    name = _NAMES.get(number, f"CODE_{number}")
    refused = _BY_CODE.get(name, RefusedError)
    error = refused(f"{name}: {text}" if text else name)
    error.code, error.number, error.numbers = name, number, tuple(numbers)
    return error


def _gap(notice: Gap | EpochChanged) -> GapError:
    return GapError(notice)


def _stale(tokens: tuple[int, ...]) -> StaleClaimError:
    which = "the claim has" if len(tokens) == 1 else f"{len(tokens)} claims have"
    tokens_text = ", ".join(map(str, tokens))
    return StaleClaimError(
        f"STALE_CLAIM: {which} ended: acknowledged, returned, or the deadline passed (tokens {tokens_text})"
    )
