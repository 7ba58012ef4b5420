"""The client for programs that wait by blocking."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Iterable, Iterator, Mapping, Optional, Union, overload

from . import _native
from ._base import Base, result, wait
from ._types import (
    Closed,
    Event,
    FtbError,
    Gap,
    Moment,
    Refused,
    Shed,
    Start,
    Timeout,
    all_said,
    begin,
    call,
    error_of,
    event_of,
    gap_of,
    said,
)

#: How long the end of a `with` block waits for what is not confirmed yet, in seconds.
CLOSE_S = 5.0


@contextmanager
def held(lock: threading.Lock, timeout: Optional[float]) -> Iterator[Optional[float]]:
    """Holds a lock that other threads hold while they wait; gives what is left of the timeout."""
    if timeout is None:
        with lock:
            yield None
        return
    deadline = time.monotonic() + timeout
    if not lock.acquire(timeout=min(max(0.0, timeout), threading.TIMEOUT_MAX)):
        raise Timeout("another thread waits here, and nothing happened in time")
    try:
        yield max(0.0, deadline - time.monotonic())
    finally:
        lock.release()


class Confirmation:
    """What becomes of something that was published, for threads that ask for it, as often as they like."""

    def __init__(self, native: Union[_native.Receipt, _native.Receipts]) -> None:
        self._native = native
        self._pending: Optional[_native.Pending] = None
        self._confirmed: Any = None
        self._failed: Optional[FtbError] = None
        self._waiting = threading.Lock()

    def wait(self, timeout: Optional[float]) -> Any:
        with held(self._waiting, timeout) as left:
            if self._failed is not None:
                raise self._failed
            if self._confirmed is None:
                if self._pending is None:
                    self._pending = call(self._native.confirmed)
                try:
                    (self._confirmed,) = wait(self._pending, self._pending.poll, left)
                except (Refused, Shed, Closed) as error:
                    self._failed = error
                    raise
            return self._confirmed


class Receipt:
    """What becomes of an event that was published."""

    def __init__(self, native: _native.Receipt) -> None:
        self._confirmation = Confirmation(native)

    def wait(self, timeout: Optional[float] = None) -> str:
        """The event's id, once the cluster holds it: from then on it will be delivered.

        Raises `Refused`, `Shed` or `Closed` where it will not be, `Timeout` where it is not known
        in time; then it can be asked again.
        """
        return str(self._confirmation.wait(timeout))


class Receipts(Sequence[Receipt]):
    """What becomes of events that were published together: the receipt of each, in their order."""

    def __init__(self, native: _native.Receipts) -> None:
        self._confirmation = Confirmation(native)
        self._native = native
        self._each: Optional[list[Receipt]] = None

    def wait(self, timeout: Optional[float] = None) -> list[str]:
        """The ids of all events, in their order, once the cluster holds all of them.

        Raises `Refused`, `Shed` or `Closed` as soon as one is known not to be held: the single
        receipts say which, and what became of the others. `Timeout` as in `Receipt.wait`.
        """
        return list(self._confirmation.wait(timeout))

    def __len__(self) -> int:
        return call(self._native.count)

    @overload
    def __getitem__(self, index: int) -> Receipt: ...
    @overload
    def __getitem__(self, index: slice) -> list[Receipt]: ...
    def __getitem__(self, index: Union[int, slice]) -> Union[Receipt, list[Receipt]]:
        # Single receipts are rarely asked for.
        if self._each is None:
            self._each = [Receipt(receipt) for receipt in call(self._native.each)]
        return self._each[index]


class Subscription:
    """An iterator of what matches: each `Event` once, in one order, and a `Gap` where something is
    missing. Active in the whole cluster since `Client.subscribe` gave it. Threads may share it."""

    def __init__(self, native: _native.Subscription, past_only: bool = False) -> None:
        self._native = native
        self._past_only = past_only
        self._ended = False
        self._reading = threading.Lock()

    def next(self, timeout: Optional[float] = None) -> Union[Event, Gap, None]:
        """The next event or gap; `None` when the subscription has ended.

        Raises `Timeout` when nothing came in time, and what ended the subscription if it did not
        end in peace.
        """
        with held(self._reading, timeout) as left:
            return self._take(wait(self._native, self._poll, left))

    def try_next(self) -> Union[Event, Gap, None]:
        """What has arrived already; `None` where nothing has."""
        try:
            return self.next(timeout=0)
        except Timeout:
            return None

    def _poll(self) -> Optional[tuple[str, Any]]:
        # Closed by another thread, perhaps while this one waited.
        return ("end", None) if self._ended else self._native.poll(self._past_only)

    def _take(self, found: tuple[str, Any]) -> Union[Event, Gap, None]:
        kind, parts = found
        if kind == "event":
            return event_of(parts)
        if kind == "gap":
            return gap_of(parts)
        self._ended = True
        if parts is not None and parts[0] != "closed":
            raise error_of(*parts)
        return None

    @property
    def position(self) -> str:
        """Where it stands: `subscribe(after=...)` goes on from here, in another program too."""
        return call(self._native.position)

    def close(self) -> None:
        """Unsubscribes."""
        self._ended = True
        call(self._native.close)

    def __iter__(self) -> Iterator[Union[Event, Gap]]:
        return self

    def __next__(self) -> Union[Event, Gap]:
        try:
            found = self.next()
        except Closed:
            found = None
        if found is None:
            raise StopIteration
        return found

    def __enter__(self) -> "Subscription":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Client(Base):
    """A client of this node's agent. Threads may share it; a forked child may not."""

    def wait_connected(self, timeout: Optional[float] = None) -> None:
        """Waits until an agent is attached; `NoAgent` says why none is."""
        self._wait(self._native.wait_connected, timeout)

    def publish(self, space: str, name: str, **facts: Any) -> Receipt:
        """Publishes an event; never waits. Keywords: `severity`, `payload` (bytes or text), `tags`
        (a mapping or pairs), `time`, `job_id`, `response_to` (an event or its id), `condition`.

        It is kept, and handed over again after failures, until the cluster holds it. When the
        buffer is full the mildest that no agent has been given yet is shed: its receipt says so.
        """
        return Receipt(call(self._native.publish, said(space, name, **facts)))

    def publish_wait(
        self, space: str, name: str, *, timeout: Optional[float] = None, **facts: Any
    ) -> Receipt:
        """As `publish`, but waits for room instead of shedding."""
        pending = call(self._native.publish_wait, said(space, name, **facts))
        return Receipt(result(pending, timeout))

    def publish_many(self, events: Iterable[Mapping[str, Any]]) -> Receipts:
        """Publishes many events together, which costs far less than a call for each: mappings with
        `space`, `name` and the keywords of `publish`, or anything that gives them one by one. Never waits.

        They keep their order, and nothing else makes them one: each is shed, refused or confirmed
        for itself. Where one of them is wrong (`EventError` names its index), or they are more than
        `buffer_bytes` (`BufferFull`), none is published.
        """
        return Receipts(call(self._native.publish_many, all_said(events)))

    def publish_many_wait(
        self, events: Iterable[Mapping[str, Any]], *, timeout: Optional[float] = None
    ) -> Receipts:
        """As `publish_many`, but waits until there is room for all of them instead of shedding. After a
        `Timeout` none is published."""
        pending = call(self._native.publish_many_wait, all_said(events))
        return Receipts(result(pending, timeout))

    def subscribe(
        self,
        filter: str = "",
        *,
        since: Union[Moment, Start, None] = None,
        after: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> Subscription:
        """A subscription that is active in the whole cluster: everything that matches and is
        published from now on is delivered, or reported as a gap. `since` (a datetime, seconds since 1970,
        or a timedelta: before now) or `after` (a position) begin in the past.
        `since=Start.CONDITIONS` begins with the table of conditions: use the filter `condition=*`."""
        return self._subscribe(filter, since, after, timeout, past_only=False)

    def history(
        self,
        filter: str = "",
        *,
        since: Union[Moment, Start, None] = None,
        after: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> Subscription:
        """As `subscribe`, but it ends with the past: all that the cluster still has of it (without
        `since` and `after`) comes, and then the end."""
        if since is None and after is None:
            since = 0
        return self._subscribe(filter, since, after, timeout, past_only=True)

    def _subscribe(
        self,
        filter: str,
        since: Union[Moment, Start, None],
        after: Optional[str],
        timeout: Optional[float],
        past_only: bool,
    ) -> Subscription:
        pending = call(self._native.subscribe, filter, *begin(since, after))
        return Subscription(result(pending, timeout), past_only)

    def flush(self, timeout: Optional[float] = None) -> None:
        """Waits until nothing is unconfirmed. Raises `NoAgent` or `Timeout`."""
        self._wait(self._native.flush, timeout)

    def close(self, timeout: Optional[float] = CLOSE_S) -> None:
        """Waits until everything is confirmed, says goodbye, and ends all subscriptions. Raises
        `NoAgent` or `Timeout` where not everything was confirmed; it is closed all the same."""
        self._wait(self._native.close, timeout)

    def _wait(self, begin: Any, timeout: Optional[float]) -> None:
        pending = call(begin, timeout)
        wait(pending, pending.poll, None)

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        _error: Optional[BaseException],
        _trace: Optional[TracebackType],
    ) -> None:
        if kind is None:
            return self.close()
        # Who leaves because of an error, Ctrl-C above all, does not want to wait as well, and that
        # error is the one to report.
        try:
            self.close(0.0)
        except FtbError:
            pass
