"""The exceptions of this package.

`Error` is the base class. A refusal by the node is a `RefusedError`, with one class for each row of the table that
`dunlin errors` prints. `code` is the row's name, `retry` says whether to try again ("no", "later",
"reconnect"), and `advice` what to do. Errors of the client have no code.
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
    """What to do."""
    numbers: tuple[int, ...] = ()
    """The numbers that the code's row describes."""


class DisconnectedError(Error, ConnectionError):
    """The node cannot be reached. The next call tries again, and subscriptions continue at their positions."""

    retry = "reconnect"
    advice = "Call again: the next call reconnects and continues."


class UnknownOutcomeError(Error):
    """The response was lost: the request may have been carried out.

    A `Publisher` keeps its records and sends them again under the same numbers; `flush` returns the result.
    """

    retry = "later"
    advice = "Flush the publisher; otherwise check whether the request was carried out."


class RequestTimeoutError(Error, TimeoutError):
    """No reply arrived in time."""

    retry = "later"


class GapError(Error):
    """Records are missing; `notice` says which. The iterator continues after them."""

    def __init__(self, notice: Gap | EpochChanged) -> None:
        super().__init__(repr(notice))
        self.notice = notice


class HandleClosedError(Error):
    """The handle was closed by this program."""


class ForkedError(Error, RuntimeError):
    """The handle was made in the parent process. Connect again in the child process."""


class BusyError(Error, RuntimeError):
    """Another thread is waiting in the handle: subscriptions, members and replicas serve one thread at a time."""


class RefusedError(Error):
    """The node refused."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.code is not None:
            cls.number, cls.retry, cls.advice = _ROWS[cls.code]
            _BY_CODE[cls.code] = cls


class AsAskedError(RefusedError):
    """Nothing: this end was asked for."""

    code = "AS_ASKED"


class VersionError(RefusedError):
    """Use a client that speaks one of the node's versions."""

    code = "VERSION"


class ProtocolError(RefusedError):
    """The other side broke the protocol; report it."""

    code = "PROTOCOL"


class UnauthenticatedError(RefusedError):
    """Give credentials that the node knows."""

    code = "UNAUTHENTICATED"


class ForbiddenError(RefusedError):
    """Ask for the permission, or use another subject."""

    code = "FORBIDDEN"


class TenantUnknownError(RefusedError):
    """Name a tenant that exists."""

    code = "TENANT_UNKNOWN"


class LimitError(RefusedError):
    """Use fewer, or have the named limit raised."""

    code = "LIMIT"


class BudgetSpentError(RefusedError):
    """Wait until readers catch up, or raise the memory budget."""

    code = "BUDGET_SPENT"


class RateLimitError(RefusedError):
    """Wait as long as it says, then go on more slowly."""

    code = "RATE_LIMIT"


class OpeningError(RefusedError):
    """Connect again with back-off: the node has started, and is not open yet."""

    code = "OPENING"


class OtherClusterError(RefusedError):
    """The address belongs to another cluster now: find out why, then begin with a new client."""

    code = "OTHER_CLUSTER"


class ShuttingDownError(RefusedError):
    """Connect again with back-off and resume."""

    code = "SHUTTING_DOWN"


class HandshakeTimeoutError(RefusedError):
    """Send the preamble and HELLO at once after connecting."""

    code = "HANDSHAKE_TIMEOUT"


class TlsRequiredError(RefusedError):
    """Connect by TLS: tls:// instead of dunlin://, https:// instead of http://."""

    code = "TLS_REQUIRED"


class SubjectError(RefusedError):
    """Correct the subject or pattern."""

    code = "SUBJECT"


class NoTopicError(RefusedError):
    """Create a topic that owns the subject."""

    code = "NO_TOPIC"


class TopicExistsError(RefusedError):
    """Use the topic, or another name."""

    code = "TOPIC_EXISTS"


class PatternOverlapsError(RefusedError):
    """Choose a pattern that no other topic's meets."""

    code = "PATTERN_OVERLAPS"


class TopicConfigError(RefusedError):
    """Correct the topic's configuration."""

    code = "TOPIC_CONFIG"


class ClosedError(RefusedError):
    """The topic was deleted; create it again or stop."""

    code = "CLOSED"


class RecordTooLargeError(RefusedError):
    """Split the record, or raise the topic's record_bytes_max."""

    code = "RECORD_TOO_LARGE"


class BadFrameError(RefusedError):
    """Correct the record's fields."""

    code = "BAD_FRAME"


class BatchError(RefusedError):
    """Send a smaller batch, and one partition's records only."""

    code = "BATCH"


class SeqMovedError(RefusedError):
    """Read what was appended since, decide anew."""

    code = "SEQ_MOVED"


class DuplicateForgottenError(RefusedError):
    """Treat it as published: newer ones of this producer were."""

    code = "DUPLICATE_FORGOTTEN"


class ProducerGapError(RefusedError):
    """Send again from after the last accepted."""

    code = "PRODUCER_GAP"


class ProducerFencedError(RefusedError):
    """Stop: another instance of this producer has taken over."""

    code = "PRODUCER_FENCED"


class FullError(RefusedError):
    """Let the reader catch up, or evict it."""

    code = "FULL"


class NotOpenError(RefusedError):
    """Open the publisher, or subscribe, before using its number."""

    code = "NOT_OPEN"


class PartitionError(RefusedError):
    """Choose a partition below the topic's count."""

    code = "PARTITION"


class DiskBehindError(RefusedError):
    """Publish less, or give the node a faster disk."""

    code = "DISK_BEHIND"


class DiskFullError(RefusedError):
    """Make room on the node's disk; publishing goes on by itself then."""

    code = "DISK_FULL"


class DiskFailedError(RefusedError):
    """Replace the disk; what was acknowledged as synced can be read. Nothing without an answer is sure to be stored."""

    code = "DISK_FAILED"


class OwnerBehindError(RefusedError):
    """Publish less, or to the node that owns the topic."""

    code = "OWNER_BEHIND"


class OwnerAwayError(RefusedError):
    """Try again: a volatile topic gets another owner soon, a durable one waits for its own to return."""

    code = "OWNER_AWAY"


class FoldError(RefusedError):
    """Correct the record: the topic's state does not take it in."""

    code = "FOLD"


class NoResponderError(RefusedError):
    """Start somebody who answers; nothing was published."""

    code = "NO_RESPONDER"


class NoReplyError(RefusedError):
    """Ask again if asking twice does no harm, or wait longer."""

    code = "NO_REPLY"


class OutcomeUnknownError(RefusedError):
    """Whether it was appended is not known: try again under the same producer and number, which never appends twice, or read."""

    code = "OUTCOME_UNKNOWN"


class ElsewhereError(RefusedError):
    """Connect to the node that owns the topic: only there can this be had."""

    code = "ELSEWHERE"


class ManyLogsError(RefusedError):
    """Start by time, or name one log."""

    code = "MANY_LOGS"


class AheadError(RefusedError):
    """Start at a position that was handed out."""

    code = "AHEAD"


class LostError(RefusedError):
    """Subscribe again where going on makes sense: records were lost, as the gap before said."""

    code = "LOST"


class EvictedError(RefusedError):
    """Read faster: a reliable topic stopped waiting for this reader."""

    code = "EVICTED"


class NoStateError(RefusedError):
    """Follow a topic that keeps a state, and all of it."""

    code = "NO_STATE"


class StateLostError(RefusedError):
    """Publish the whole state, then go on: the topic began anew and has lost records that were acknowledged."""

    code = "STATE_LOST"


class GroupKindError(RefusedError):
    """Join with the group's own kind."""

    code = "GROUP_KIND"


class StaleClaimError(RefusedError):
    """Its deadline passed: the record went to somebody else."""

    code = "STALE_CLAIM"


class InternalError(RefusedError):
    """The node has a bug or a broken disk; report it."""

    code = "INTERNAL"


class KeyMovedError(RefusedError):
    """Read the key, decide anew."""

    code = "KEY_MOVED"

    @property
    def modified(self) -> int:
        """The revision that last wrote the key; 0 where there is none."""
        return self.numbers[0]


class NoLeaseError(RefusedError):
    """It has ended, with all that was tied to it: begin with a new one."""

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
    """Stop: the lock is not this lease's, or not any more."""

    code = "LOCK_NOT_HELD"


class BadKeyError(RefusedError):
    """Correct the key, range or time to live."""

    code = "BAD_KEY"


class KeyTooLargeError(RefusedError):
    """Use a shorter key or value, or fewer operations at a time."""

    code = "KEY_TOO_LARGE"


class NoRoomError(RefusedError):
    """Delete keys, or raise the limit; deleting works."""

    code = "NO_ROOM"


class NoLeaderError(RefusedError):
    """Nothing was done. Try again: a majority of the nodes has to be up and connected."""

    code = "NO_LEADER"


class CommandUnknownError(RefusedError, UnknownOutcomeError):
    """It may have been done or not: read what there is before asking again."""

    code = "COMMAND_UNKNOWN"


class CompactedError(RefusedError):
    """Read the keys, and watch on from the revision that the answer names."""

    code = "COMPACTED"

    @property
    def oldest(self) -> int:
        """The oldest revision that is held; where revisions have begun anew, the first of those."""
        return self.numbers[0]


class NoControlError(RefusedError):
    """This node takes no part in its cluster any more: see its log, and use another."""

    code = "NO_CONTROL"


class BadTaskError(RefusedError):
    """Correct the task, quota, schedule or worker."""

    code = "BAD_TASK"


class TaskTooLargeError(RefusedError):
    """Pass on less: where the content lies, not the content."""

    code = "TASK_TOO_LARGE"


class NoTaskError(RefusedError):
    """It was never there, or was over too long ago."""

    code = "NO_TASK"

    @property
    def task(self) -> str:
        """The task."""
        return id_of(self.numbers[0])


class TaskOverError(RefusedError):
    """Look at the task: it is not at the stage that this is for."""

    code = "TASK_OVER"

    @property
    def task(self) -> str:
        """The task."""
        return id_of(self.numbers[0])


class StaleTokenError(RefusedError):
    """Stop working on it: it timed out, was cancelled, or another worker has it."""

    code = "STALE_TOKEN"

    @property
    def task(self) -> str:
        """The task."""
        return id_of(self.numbers[0])


class NoWorkerError(RefusedError):
    """It was silent for too long or left, and what it held went to others: attach anew."""

    code = "NO_WORKER"


class QueueFullError(RefusedError):
    """Wait as long as it says, then submit more slowly, or raise the tenant's queued_max."""

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
    """The exception for what the extension module met."""
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
    return StaleClaimError(f"STALE_CLAIM: the deadline of {len(tokens)} had passed: {tokens}")
