"""Events, gaps and errors as Python has them, and their way to and from the Rust half."""

from __future__ import annotations

import enum
import math
import time as _time
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import (
    Any,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    NamedTuple,
    NoReturn,
    Optional,
    TypeVar,
    Union,
)

from ._native import NativeError

T = TypeVar("T")

#: Longest time until a condition expires, in seconds.
EXPIRES_MAX_S = (2**32 - 1) // 1000


class FtbError(Exception):
    """Everything that this package raises by itself."""


class ConfigError(FtbError, ValueError):
    """The client cannot be made: a name is too long, or the system gives no thread."""


class EventError(FtbError, ValueError):
    """The event breaks a rule or a bound; nothing was sent."""


class FilterError(FtbError, ValueError):
    """The filter cannot be read; the message names the column."""


class SubscribeError(FtbError):
    """The subscription cannot be."""


class Refused(FtbError):
    """The agent said no: the message has its words."""


class BufferFull(FtbError):
    """No room for the event, and nothing milder to give up."""


class Shed(FtbError):
    """The event was given up for worse ones while no agent took it."""


class NoAgent(FtbError):
    """No agent in time; the message says where it was looked for, and what was found."""


class Timeout(FtbError, TimeoutError):
    """Nothing happened in time."""


class Closed(FtbError):
    """The client or subscription is closed."""


class Forked(FtbError):
    """It belongs to the process that forked this one: make a new client here."""


class JobError(FtbError):
    """A wrong call of `ftb.job`, or the launch agent is gone."""


class StateError(JobError):
    """The saved state is damaged, or was made of other buffers.

    A program that ends with exit code 65 because of it starts again from an older set.
    """


_ERRORS: Mapping[str, type[FtbError]] = {
    "config": ConfigError,
    "event": EventError,
    "filter": FilterError,
    "subscribe": SubscribeError,
    "refused": Refused,
    "full": BufferFull,
    "shed": Shed,
    "no_agent": NoAgent,
    "timeout": Timeout,
    "closed": Closed,
    "forked": Forked,
    "job": JobError,
    "state": StateError,
}


def error_of(kind: str, message: str) -> FtbError:
    return _ERRORS.get(kind, FtbError)(message)


def call(function: Callable[..., T], *arguments: Any) -> T:
    """Calls into the Rust half; its errors become those of this package."""
    try:
        return function(*arguments)
    except NativeError as error:
        _reraise(error)


def _reraise(error: NativeError) -> NoReturn:
    raise error_of(*error.args) from None


class Severity(enum.IntEnum):
    """How bad an event is; comparable."""

    INFO = 1
    WARNING = 2
    ERROR = 3
    FATAL = 4

    @classmethod
    def of(cls, word: Union[str, int, "Severity"]) -> "Severity":
        """From a word in any case, a number, or itself."""
        try:
            return cls[word.upper()] if isinstance(word, str) else cls(word)
        except (KeyError, ValueError):
            expected = ", ".join(severity.name.lower() for severity in cls)
            raise EventError(f"unknown severity {word!r}: expected {expected}") from None


class Start(enum.Enum):
    """Where a subscription begins, besides moments and positions."""

    #: With the table of conditions; it continues with what changes, without a hole.
    CONDITIONS = "conditions"


class State(enum.Enum):
    """Whether a condition holds."""

    TRUE = "true"
    FALSE = "false"
    #: Its publisher is lost, or cannot say.
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Condition:
    """A lasting state of a subject: host, component and key."""

    key: str
    #: A `State`, its word, or a bool.
    state: Union[State, str, bool] = State.TRUE
    #: Empty: the publisher's host.
    host: str = ""
    #: Such as a sensor. Empty: the host itself.
    component: str = ""
    #: none, watch, reset-component, restart-process, migrate, reboot or replace.
    action: str = "none"
    #: `None`: that of the event.
    severity: Union["Severity", str, int, None] = None
    #: Since when, in Unix nanoseconds. 0: since the event.
    onset_ns: int = 0
    #: Seconds after the event when it becomes unknown. 0: never.
    expires: float = 0
    #: It outlives its publisher.
    kept: bool = False
    #: In a received event: the id, then space and name, of the event that stated it first.
    source: str = ""
    event: str = ""


@dataclass(frozen=True)
class Event:
    """An event as it was delivered."""

    space: str
    name: str
    severity: Severity
    payload: bytes
    #: Of a key that occurs twice the first value; all of them are in `all_tags`.
    tags: dict[str, str]
    all_tags: tuple[tuple[str, str], ...] = field(repr=False)
    #: When it happened, as its publisher says, in Unix nanoseconds.
    time_ns: int
    #: Name of the client that published it, and the job that it belongs to.
    client: str
    job_id: str
    is_response: bool
    response_to: Optional[str]
    #: Where it was published and by whom: its agent vouches for these.
    host: str
    uid: int
    pid: int
    #: Unique in the cluster and over restarts.
    id: str
    #: Its place in the cluster's log; `subscribe(after=...)` goes on from there.
    position: str
    #: What it states about a condition.
    condition: Optional[Condition] = None

    @property
    def text(self) -> str:
        """The payload as text; what is none is replaced."""
        return self.payload.decode("utf-8", errors="replace")

    @property
    def time(self) -> datetime:
        """When it happened, in UTC, to the microsecond."""
        seconds, nanoseconds = divmod(self.time_ns, 1_000_000_000)
        moment = datetime.fromtimestamp(seconds, timezone.utc)
        return moment.replace(microsecond=nanoseconds // 1000)


@dataclass(frozen=True)
class Gap:
    """Events that a subscription does not get, where they are missing."""

    after: str
    until: str
    #: "shed", "retention", "log-lost" or "late".
    reason: str
    #: How many are missing; `None`: unknown.
    count: Optional[int]
    #: The worst of them, where that is known.
    severity_max: Optional[Severity]
    #: The event spaces of all that is missing; `None`: it may be any.
    spaces: Optional[tuple[str, ...]]


@dataclass(frozen=True)
class Agent:
    """The agent that a client is attached to."""

    cluster: str
    host: str
    payload_bytes_max: int


@dataclass(frozen=True)
class Stats:
    """What a client has done so far, and what it holds."""

    published: int
    confirmed: int
    refused: int
    shed: int
    #: Bytes of events that are not confirmed yet.
    unconfirmed_bytes: int
    delivered: int
    gaps: int
    #: How often a subscription was paused because its reader was slow.
    paused: int
    attachments: int


def event_of(parts: Any) -> Event:
    (position, id, host, uid, pid), said, stated = parts
    space, name, severity, payload, tags, time_ns, client, job_id, is_response, response_to = said
    first: dict[str, str] = {}
    for key, value in tags:
        first.setdefault(key, value)
    return Event(
        space=space,
        name=name,
        severity=Severity[severity],
        payload=payload,
        tags=first,
        all_tags=tuple(tags),
        time_ns=time_ns,
        client=client,
        job_id=job_id,
        is_response=is_response,
        response_to=response_to,
        host=host,
        uid=uid,
        pid=pid,
        id=id,
        position=position,
        condition=None if stated is None else condition_of(*stated),
    )


def condition_of(parts: Mapping[str, Any], source: str, event: str) -> Condition:
    facts = dict(parts)
    facts.update(
        state=State(facts["state"]),
        severity=Severity[facts["severity"]],
        expires=facts.pop("expires_ms") / 1000,
    )
    return Condition(**facts, source=source, event=event)


def gap_of(parts: Any) -> Gap:
    after, until, reason, count, worst, spaces = parts
    return Gap(
        after,
        until,
        reason,
        count,
        severity_max=None if worst is None else Severity[worst],
        spaces=None if spaces is None else tuple(spaces),
    )


class Stated(NamedTuple):
    """What the Rust half reads of a condition."""

    key: str
    state: str
    host: str
    component: str
    action: str
    severity: Optional[str]
    onset_ns: int
    expires_ms: int
    kept: bool

    @classmethod
    def of(cls, condition: Condition) -> "Stated":
        state, severity = condition.state, condition.severity
        if isinstance(state, bool):
            state = State.TRUE if state else State.FALSE
        if severity is not None:
            severity = Severity.of(severity).name.lower()
        return cls(
            key=condition.key,
            state=state.value if isinstance(state, State) else str(state).lower(),
            host=condition.host,
            component=condition.component,
            action=condition.action,
            severity=severity,
            onset_ns=condition.onset_ns,
            expires_ms=milliseconds(condition.expires),
            kept=condition.kept,
        )


def milliseconds(seconds: float) -> int:
    if not 0 <= seconds <= EXPIRES_MAX_S:
        raise EventError(f"expires={seconds}: expected 0 to {EXPIRES_MAX_S} seconds")
    # Not 0, which is never.
    return math.ceil(seconds * 1000)


class Said(NamedTuple):
    """What the Rust half reads of an event that is to be published."""

    space: str
    name: str
    severity: str
    payload: bytes
    tags: list[tuple[str, str]]
    time_ns: int
    job_id: str
    response_to: Optional[str]
    condition: Optional[Stated]


Tags = Union[Mapping[str, object], Iterable[tuple[str, object]]]
Moment = Union[datetime, timedelta, float, int]


def said(
    space: str,
    name: str,
    *,
    severity: Union[Severity, str, int] = Severity.INFO,
    payload: Union[bytes, str] = b"",
    tags: Optional[Tags] = None,
    time: Optional[Moment] = None,
    job_id: str = "",
    response_to: Union[Event, str, None] = None,
    condition: Optional[Condition] = None,
) -> Said:
    pairs = tags.items() if isinstance(tags, Mapping) else (tags or ())
    return Said(
        space=space,
        name=name,
        severity=Severity.of(severity).name.lower(),
        # Through a view: bytes(5) would be five zeros.
        payload=payload.encode() if isinstance(payload, str) else bytes(memoryview(payload)),
        tags=[(key, str(value)) for key, value in pairs],
        time_ns=0 if time is None else moment_ns(time),
        job_id=job_id,
        response_to=response_to.id if isinstance(response_to, Event) else response_to,
        condition=None if condition is None else Stated.of(condition),
    )


def all_said(events: Iterable[Mapping[str, Any]]) -> Iterator[Said]:
    """Of each event what `said` makes of it; an error names the event's index."""
    for index, event in enumerate(events):
        try:
            yield said(**event)
        except EventError as error:
            raise EventError(f"event {index}: {error}") from None


def begin(
    since: Union[Moment, Start, None], after: Optional[str]
) -> tuple[Optional[str], Optional[int], bool]:
    """Position, Unix nanoseconds, and whether to begin with the table of conditions."""
    if isinstance(since, Start):
        return after, None, since is Start.CONDITIONS
    return after, None if since is None else moment_ns(since), False


def moment_ns(moment: Moment) -> int:
    """Unix nanoseconds of a moment: a datetime (without zone: local time), seconds since 1970, or,
    as a timedelta before now."""
    if isinstance(moment, timedelta):
        return max(0, _time.time_ns() - moment // timedelta(microseconds=1) * 1000)
    if isinstance(moment, datetime):
        since = moment.astimezone(timezone.utc) - datetime(1970, 1, 1, tzinfo=timezone.utc)
        return max(0, since // timedelta(microseconds=1) * 1000)
    return max(0, int(moment * 1_000_000_000))
