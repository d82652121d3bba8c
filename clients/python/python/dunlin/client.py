"""The client with blocking calls, and the function that connects it."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from . import _arguments, errors
from ._dunlin import Connection, Member, Position, Publisher, Receipt, Record, Subscription, _check_world
from .kv import Kv
from .live import Book, Region, Table, open_state
from .space import World
from .tasks import Tasks
from .topics import TopicInfo, TopicSummary, topic_info

if TYPE_CHECKING:
    from ._dunlin import Headers, Payload

Start: TypeAlias = Literal["earliest", "latest", "snapshot"] | Position | int
"""The start of a subscription: a word, the position of the last record read, or a time in ns since the Unix epoch."""
OnGap: TypeAlias = Literal["oldest", "newest", "snapshot", "fail"]
Wait: TypeAlias = Literal["default", "parked", "spin"]

_PUBLISHERS_MAX = 256


class Reply(NamedTuple):
    """The reply to a request."""

    payload: bytes
    headers: tuple[tuple[str, bytes], ...]


def connect(
    url: str | None = None,
    *,
    name: str = "",
    tenant: str = "",
    token: bytes | str = b"",
    user: str = "",
    password: bytes | str = b"",
    ca: str | os.PathLike[str] | None = None,
    client_cert: str | os.PathLike[str] | None = None,
    client_key: str | os.PathLike[str] | None = None,
    wait: Wait = "default",
) -> Client:
    """Connects to the node at `url`: `dunlin://HOST:PORT`, `tls://HOST:PORT` or `unix:///PATH`. Without `url`, uses the
    environment variable DUNLIN_URL, or else the node on this host. With several addresses
    (`dunlin://one:4220,two:4220`), the client uses one node, and changes to the next node when the connection is lost.
    A client that loses its connection reconnects.

    Operators see `name`. For a node with users, pass `token`, or `user` and `password`. Without them, the client reads
    the token from the file that DUNLIN_TOKEN_FILE names, or uses DUNLIN_USER and the password in the file that
    DUNLIN_PASSWORD_FILE names.

    Files for `tls://` are in PEM format. `ca` or DUNLIN_CA names a file with the trusted certificate authorities, by
    default those of the system. `client_cert` and `client_key`, or DUNLIN_CLIENT_CERT and DUNLIN_CLIENT_KEY, are for
    nodes that require a client certificate.
    """
    url = None if url is None else _arguments.text("url", url)
    url = url or os.environ.get("DUNLIN_URL", "dunlin://localhost")
    credentials = _credentials(token, user, password)
    tls = "tls://" in url
    connection = Connection(
        url,
        name=name,
        tenant=tenant,
        credentials=credentials,
        ca=_content(ca, "DUNLIN_CA") if tls else None,
        client_cert=_content(client_cert, "DUNLIN_CLIENT_CERT") if tls else None,
        client_key=_content(client_key, "DUNLIN_CLIENT_KEY") if tls else None,
        wait=wait,
    )
    return Client(connection, wait)


def _word(name: str, given: str | None) -> str | None:
    return None if given is None else _arguments.text(name, given)


def _options(given: Mapping[str, object] | None) -> dict[str, str]:
    """Converts a reducer's options to strings."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(f"reducer_options={given!r}: expected a mapping, not {type(given).__name__}")
    return dict(_arguments.labels("reducer_options", {option: str(value) for option, value in given.items()}))


def _content(path: str | os.PathLike[str] | None, variable: str) -> bytes | None:
    """The content of the file at `path`, or else of the file that the environment variable names."""
    path = path or os.environ.get(variable)
    return Path(path).read_bytes() if path else None


def _credentials(token: bytes | str, user: str, password: bytes | str) -> bytes:
    """The credentials as bytes for the message HELLO: the token, or the user, a zero byte and the password."""
    if not token and not user:
        user = os.environ.get("DUNLIN_USER", "")
        token_file, password_file = os.environ.get("DUNLIN_TOKEN_FILE"), os.environ.get("DUNLIN_PASSWORD_FILE")
        if token_file:
            token = _secret(token_file)
        elif user and password_file:
            password = _secret(password_file)
    encoded = _arguments.encoded("token", token, is_secret=True)
    if encoded or not user:
        return encoded
    secret = _arguments.encoded("password", password, is_secret=True)
    return _arguments.text("user", user).encode() + b"\0" + secret


def _secret(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read().removesuffix(b"\n").removesuffix(b"\r")


@dataclass(slots=True)
class _CachedPublisher:
    """A publisher that the client keeps for a subject, and the number of calls that use the publisher now."""

    publisher: Publisher
    users: int = 0


def _run_all(calls: Iterable[Callable[[], object]]) -> None:
    """Runs all calls, and then raises the first refusal. If the connection is lost, raises that error immediately."""
    refused: errors.Error | None = None
    for call in calls:
        try:
            call()
        except (errors.UnknownOutcomeError, errors.DisconnectedError):
            raise
        except errors.Error as error:
            refused = refused or error
    if refused is not None:
        raise refused


class Client:
    """A connection to a node, which all handles made from the client share. Threads may share a client. A forked
    process must make its own client.

    As a context manager, closes the connection and all handles made from the client.
    """

    def __init__(self, connection: Connection, wait: Wait = "default") -> None:
        self._connection = connection
        self._wait: Wait = wait
        self._publishers: dict[str, _CachedPublisher] = {}
        # The publishers that method `publisher` made. The caller owns them.
        self._own_publishers: weakref.WeakSet[Publisher] = weakref.WeakSet()
        self._publishers_lock = threading.Lock()
        # The first error of a publisher that was closed because the client keeps too many.
        self._unreported: errors.Error | None = None
        self._kv = Kv(connection)
        self._tasks = Tasks(connection)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Waits until the node has answered all sent records, including those of publishers that
        `publisher` made. Then closes the connection.

        Raises the first refusal of a record.
        """
        if self._connection.closed:
            return
        with self._publishers_lock:
            publishers = list(self._own_publishers)
        try:
            _run_all([self.flush, *(publisher.close for publisher in publishers)])
        finally:
            self._connection.close()

    @property
    def closed(self) -> bool:
        return self._connection.closed

    @property
    def is_up(self) -> bool:
        """Whether the client was connected when a thread last used the connection."""
        return self._connection.is_up

    @property
    def node_name(self) -> str:
        return self._connection.node_name

    @property
    def connections(self) -> int:
        """The number of connections that the client has made so far."""
        return self._connection.connections

    @property
    def kv(self) -> Kv:
        """Keys and values, leases, locks and elections of the node's cluster."""
        return self._kv

    @property
    def tasks(self) -> Tasks:
        """Tasks of the node's cluster. A `Worker` runs tasks."""
        return self._tasks

    # Methods that publish records.

    def publish(
        self,
        subject: str,
        payload: Payload,
        *,
        key: bytes | str | None = None,
        headers: Headers | None = None,
        reply: str | None = None,
        event_time_ns: int | None = None,
        expires_ns: int | None = None,
        expect_seq: int | None = None,
    ) -> Receipt:
        """Publishes one record and waits for the receipt, which shows whether the record is in
        memory or on disk."""
        cached = self._borrow(subject)
        try:
            return cached.publisher.publish(
                payload,
                key=key,
                headers=headers,
                reply=reply,
                event_time_ns=event_time_ns,
                expires_ns=expires_ns,
                expect_seq=expect_seq,
            )
        finally:
            self._give_back(cached)

    def send(
        self,
        subject: str,
        payload: Payload,
        *,
        key: bytes | str | None = None,
        headers: Headers | None = None,
        reply: str | None = None,
        event_time_ns: int | None = None,
        expires_ns: int | None = None,
    ) -> None:
        """Publishes without waiting. A later call for the same subject, or `flush`, reports errors."""
        cached = self._borrow(subject)
        try:
            cached.publisher.send(
                payload,
                key=key,
                headers=headers,
                reply=reply,
                event_time_ns=event_time_ns,
                expires_ns=expires_ns,
            )
        finally:
            self._give_back(cached)

    def flush(self) -> None:
        """Waits until the node has answered all records of `send`. Then raises the first refusal, if any."""
        with self._publishers_lock:
            all_cached = list(self._publishers.values())
            for cached in all_cached:
                cached.users += 1
        try:
            _run_all(cached.publisher.flush for cached in all_cached)
        finally:
            for cached in all_cached:
                self._give_back(cached)
        with self._publishers_lock:
            unreported, self._unreported = self._unreported, None
        if unreported is not None:
            raise unreported

    def publisher(self, subject: str, *, quiet: bool = False) -> Publisher:
        """Makes a publisher to a subject, or to a topic's pattern. With a pattern, each call must name the subject.

        Records of one publisher keep their order. A `quiet` publisher requests no acknowledgements.
        """
        publisher = self._connection.publisher(subject, quiet=quiet)
        with self._publishers_lock:
            self._own_publishers.add(publisher)
        return publisher

    def _borrow(self, subject: str) -> _CachedPublisher:
        """Returns the cached publisher to a subject. The client does not close it before `_give_back`."""
        with self._publishers_lock:
            cached = self._publishers.get(subject)
            if cached is not None:
                cached.users += 1
                return cached
        made = _CachedPublisher(self._connection.publisher(subject))
        with self._publishers_lock:
            cached = self._publishers.setdefault(subject, made)
            cached.users += 1
        return cached

    def _give_back(self, cached: _CachedPublisher) -> None:
        """Ends the use of a cached publisher. If there are too many, closes the oldest publisher that is not in use."""
        with self._publishers_lock:
            cached.users -= 1
            if len(self._publishers) <= _PUBLISHERS_MAX:
                return
            unused = next((subject for subject, other in self._publishers.items() if other.users == 0), None)
            if unused is None:
                return
            closing = self._publishers.pop(unused).publisher
        try:
            closing.close()
        except errors.Error as error:
            # The error concerns another subject than this call, so `flush` reports it.
            with self._publishers_lock:
                self._unreported = self._unreported or error

    # Methods that read records.

    def subscribe(
        self,
        pattern: str,
        *,
        start: Start = "latest",
        on_gap: OnGap = "oldest",
        name: str = "",
        registered: bool = False,
        conflate: bool = False,
        wait: Wait | None = None,
    ) -> Subscription:
        """Subscribes to all subjects that match `pattern`, including those of topics that are created later. In a
        pattern, `*` matches one token, and `>` matches all following tokens.

        Iterating the subscription returns records and notices: `Record`, `Gap`, `Lagging`, `EpochChanged`, `Snapshot`,
        `Publishers`, `Deleted`. `records()` returns only records, and raises `GapError` at a gap. `batches()` returns
        many records at once.
        """
        return self._connection.subscribe(
            pattern,
            name=name,
            start=start,
            on_gap=on_gap,
            registered=registered,
            conflate=conflate,
            wait=wait or self._wait,
        )

    def share(self, topic: str, group: str, *, name: str = "", start: Start = "latest") -> Member:
        """Joins a share group of a topic: each record goes to one member, at most once."""
        return self._join(topic, group, "share", name, start, None, 0, "", 0)

    def work(
        self,
        topic: str,
        group: str,
        *,
        name: str = "",
        start: Start = "earliest",
        claim: float | None = None,
        attempts_max: int = 0,
        dead_letter: str = "",
        drop_dead_letters: bool = False,
        prefetch: int = 1,
    ) -> Member:
        """Joins a work group of a topic: each record is delivered until a member acknowledges it.

        `claim` is the duration of a claim in seconds. After `attempts_max` attempts, a record becomes a dead letter;
        0 means no limit. The group publishes dead letters to the subject `dead_letter`, by default `dead.TOPIC`, for
        which the user needs the permission to publish. With `drop_dead_letters`, the group drops dead letters instead.
        The member requests `prefetch` records in advance.
        """
        drop_dead_letters = _arguments.flag("drop_dead_letters", drop_dead_letters)
        if dead_letter and drop_dead_letters:
            given = _arguments.shown(dead_letter)
            raise ValueError(f"dead_letter={given} and drop_dead_letters=True exclude each other")
        if claim is not None:
            claim = _arguments.seconds("claim", claim, most=_arguments.SPAN_SECONDS_MAX)
        attempts_max = _arguments.count("attempts_max", attempts_max, 0xFFFF_FFFF)
        prefetch = _arguments.count("prefetch", prefetch, _arguments.U64_MAX)
        letters = None if drop_dead_letters else _arguments.text("dead_letter", dead_letter)
        return self._join(topic, group, "work", name, start, claim, attempts_max, letters, prefetch)

    def _join(
        self,
        topic: str,
        group: str,
        kind: Literal["share", "work"],
        name: str,
        start: Start,
        claim: float | None,
        attempts_max: int,
        dead_letter: str | None,
        prefetch: int,
    ) -> Member:
        return self._connection.join(
            topic,
            group,
            kind=kind,
            member=name,
            start=start,
            claim=claim,
            attempts_max=attempts_max,
            dead_letter=dead_letter,
            prefetch=prefetch,
        )

    def book(self, topic: str, *, conflate: bool = False, name: str = "") -> Book:
        """Follows the order book of the topic with this name.

        With `conflate`, the node merges all changes since the last read into one change. Raises `ValueError` if the
        topic has several partitions, because each partition has its own book.
        """
        followed = self._connection.follow(topic, name=name, conflate=conflate, wait=self._wait)
        made: Book = open_state(topic, followed, Book)
        return made

    def table(self, topic: str, *, conflate: bool = False, name: str = "") -> Table:
        """Follows the last value of each key of the topic with this name."""
        followed = self._connection.follow(topic, name=name, conflate=conflate, wait=self._wait)
        made: Table = open_state(topic, followed, Table)
        return made

    def region(self, world: str, region: int, *, name: str = "") -> Region:
        """Follows all entities of a region.

        The client must be connected to the node of the region's owner, which `dunlin space owner` prints.
        """
        _check_world(world)
        region = _arguments.count("region", region, _arguments.U64_MAX)
        topic = f"space.{world}.region.{region}"
        followed = self._connection.follow(topic, name=name, conflate=False, wait=self._wait)
        made: Region = open_state(topic, followed, Region)
        return made

    def world(self, name: str = "world", *, dimensions: int = 3) -> World:
        """Returns an object for a world of moving entities, which has 2 or 3 dimensions."""
        return World(self._connection, name, dimensions)

    # Methods for requests and replies.

    def request(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        timeout: float = 5.0,
        headers: Headers | None = None,
    ) -> Reply:
        """Publishes a request and waits for the first reply."""
        timeout = _arguments.wait(timeout)
        return Reply(*self._connection.request(subject, payload, timeout=timeout, headers=headers))

    def reply(
        self,
        request: Record | str,
        payload: Payload = b"",
        *,
        headers: Headers | None = None,
        within: str | None = None,
    ) -> None:
        """Sends a reply to a request, or to a reply subject.

        A reply goes to an inbox only, or to a subject that matches the pattern `within`; otherwise, it is a
        `ForbiddenError`. A request could otherwise name any subject to which this client may publish.
        """
        if not isinstance(request, Record | str):
            raise TypeError(f"request={request!r}: expected a Record or a reply subject, not {type(request).__name__}")
        subject = request if isinstance(request, str) else request.reply
        if subject is None:
            raise ValueError(f"{request!r} has no reply subject")
        self._connection.reply(subject, payload, headers=headers, within=within)

    # Methods that manage topics.

    def create_topic(
        self,
        name: str,
        *,
        pattern: str | None = None,
        partitions: int = 1,
        retention_bytes: int | None = None,
        retention_records: int | None = None,
        retention_age: float | None = None,
        record_bytes_max: int | None = None,
        reliable: Literal["refuse", "evict"] | None = None,
        reliable_wait: float | None = None,
        subscribers_max: int | None = None,
        durable: bool | Literal["memory", "written", "synced"] = False,
        reducer: Literal["book", "orders", "last"] | None = None,
        reducer_options: Mapping[str, object] | None = None,
        exist_ok: bool = False,
    ) -> None:
        """Creates a topic, which owns the subjects of `pattern`, by default only the subject `name`.

        With `reliable`, publishers wait for registered subscribers. If a subscriber does not read in time, the node
        refuses the record ("refuse") or evicts the subscriber ("evict"). `durable` stores records on disk. With
        `reducer`, the topic keeps a state. With `exist_ok`, the call succeeds if the topic exists with the same
        configuration.
        """
        counts = {
            "partitions": (partitions, 0xFFFF),
            "retention_bytes": (retention_bytes, _arguments.U64_MAX),
            "retention_records": (retention_records, _arguments.U64_MAX),
            "record_bytes_max": (record_bytes_max, 0xFFFF_FFFF),
            "subscribers_max": (subscribers_max, 0xFFFF),
        }
        if partitions is None:
            raise TypeError("partitions=None: expected a whole number")
        if reliable is None:
            for option, given in (("reliable_wait", reliable_wait), ("subscribers_max", subscribers_max)):
                if given is not None:
                    raise ValueError(f"{option}={given!r} needs reliable=: only reliable topics wait for subscribers")
        options = _options(reducer_options)
        if reducer is None and options:
            raise ValueError(f"reducer_options={reducer_options!r} needs reducer=: the options configure a reducer")
        wanted: dict[str, object] = {
            **{
                option: None if count is None else _arguments.count(option, count, most, least=1)
                for option, (count, most) in counts.items()
            },
            "pattern": _word("pattern", pattern),
            "retention_age": None if retention_age is None else _arguments.seconds("retention_age", retention_age),
            "reliable": _word("reliable", reliable),
            "reliable_wait": (
                None
                if reliable_wait is None
                else _arguments.seconds("reliable_wait", reliable_wait, most=_arguments.SPAN_SECONDS_MAX)
            ),
            "durable": ("synced" if durable else None) if isinstance(durable, bool) else _word("durable", durable),
            "reducer": _word("reducer", reducer),
            "reducer_options": options,
        }
        self._connection.create_topic(name, wanted, exist_ok)

    def delete_topic(self, name: str) -> None:
        """Deletes a topic with all its records."""
        self._connection.delete_topic(name)

    def topics(self, pattern: str = "") -> list[TopicSummary]:
        """Lists the topics whose names match `pattern`, in order of name."""
        return [TopicSummary(*line) for line in self._connection.topics(pattern)]

    def describe(self, topic: str) -> TopicInfo:
        """Describes a topic."""
        return topic_info(self._connection.describe(topic))

    def __repr__(self) -> str:
        return "Client(closed)" if self.closed else f"Client({self.node_name!r})"
