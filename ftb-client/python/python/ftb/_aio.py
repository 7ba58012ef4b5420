"""The client for asyncio: the same, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import (
    Any,
    AsyncIterator,
    Callable,
    Generator,
    Iterable,
    Mapping,
    Optional,
    Union,
    overload,
)

from . import _native
from ._base import Base
from ._client import CLOSE_S, Subscription
from ._types import Closed, Event, FtbError, Gap, Moment, Start, all_said, begin, call, said

#: After this number of queued events, a reader lets other tasks run.
BURST = 64


async def arrive(source: Any, poll: Callable[[], Optional[Any]]) -> Any:
    """What `poll` gives once it gives something. Cancelling loses nothing."""
    loop = asyncio.get_running_loop()
    while True:
        done = call(poll)
        if done is not None:
            return done
        ready: asyncio.Future[None] = loop.create_future()
        descriptor = source.fileno()
        loop.add_reader(descriptor, _ring, ready)
        try:
            await ready
        finally:
            loop.remove_reader(descriptor)


async def result(pending: _native.Pending) -> Any:
    """What comes of it. If the waiter is gone, the result is taken back at once: others may wait for it."""
    try:
        (found,) = await arrive(pending, pending.poll)
    except BaseException:
        pending.give_up()
        raise
    return found


def _ring(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


class Confirmation:
    """What becomes of something that was published, for tasks that await it, as often as they like."""

    def __init__(self, native: Union[_native.Receipt, _native.Receipts]) -> None:
        self._native = native
        self._task: Optional[asyncio.Task[Any]] = None

    def wait(self) -> "asyncio.Future[Any]":
        if self._task is None:
            self._task = asyncio.ensure_future(self._confirmed())
        # Who stops waiting does not stop the others who wait.
        return asyncio.shield(self._task)

    async def _confirmed(self) -> Any:
        pending = call(self._native.confirmed)
        (confirmed,) = await arrive(pending, pending.poll)
        return confirmed


class AsyncReceipt:
    """What becomes of an event that was published: `await` gives its id once the cluster holds it,
    or raises `Refused`, `Shed` or `Closed`. Awaiting it is optional."""

    def __init__(self, native: _native.Receipt) -> None:
        self._confirmation = Confirmation(native)

    def __await__(self) -> Generator[Any, None, str]:
        return self._confirmation.wait().__await__()


class AsyncReceipts(Sequence[AsyncReceipt]):
    """As `Receipts`: `await` gives the ids of all events, the single receipts are its items."""

    def __init__(self, native: _native.Receipts) -> None:
        self._confirmation = Confirmation(native)
        self._native = native
        self._each: Optional[list[AsyncReceipt]] = None

    def __await__(self) -> Generator[Any, None, list[str]]:
        return self._confirmation.wait().__await__()

    def __len__(self) -> int:
        return call(self._native.count)

    @overload
    def __getitem__(self, index: int) -> AsyncReceipt: ...
    @overload
    def __getitem__(self, index: slice) -> list[AsyncReceipt]: ...
    def __getitem__(self, index: Union[int, slice]) -> Union[AsyncReceipt, list[AsyncReceipt]]:
        # Single receipts are rarely asked for.
        if self._each is None:
            self._each = [AsyncReceipt(receipt) for receipt in call(self._native.each)]
        return self._each[index]


class AsyncSubscription:
    """As `Subscription`: `async for`, or `await next()`."""

    def __init__(self, native: _native.Subscription, past_only: bool) -> None:
        self._blocking = Subscription(native, past_only)
        self._reading = asyncio.Lock()
        self._burst = 0

    async def next(self) -> Union[Event, Gap, None]:
        """The next event or gap; `None` when the subscription has ended."""
        async with self._reading:
            self._burst = (self._burst + 1) % BURST
            if self._burst == 0:
                # Before anything is taken, so that cancelling here loses nothing either.
                await asyncio.sleep(0)
            inner = self._blocking
            return inner._take(await arrive(inner._native, inner._poll))

    def try_next(self) -> Union[Event, Gap, None]:
        """What has arrived already; `None` where nothing has, or where another task waits for it."""
        return None if self._reading.locked() else self._blocking.try_next()

    @property
    def position(self) -> str:
        """Where it stands."""
        return self._blocking.position

    def close(self) -> None:
        """Unsubscribes."""
        self._blocking.close()

    def __aiter__(self) -> AsyncIterator[Union[Event, Gap]]:
        return self

    async def __anext__(self) -> Union[Event, Gap]:
        try:
            found = await self.next()
        except Closed:
            found = None
        if found is None:
            raise StopAsyncIteration
        return found

    async def __aenter__(self) -> "AsyncSubscription":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


class AsyncClient(Base):
    """As `Client`, for asyncio. Timeouts are asyncio's: `asyncio.wait_for(client.flush(), 5)`."""

    async def wait_connected(self, timeout: Optional[float] = None) -> None:
        """Waits until an agent is attached; `NoAgent` says why none is."""
        await self._await(self._native.wait_connected, timeout)

    def publish(self, space: str, name: str, **facts: Any) -> AsyncReceipt:
        """As `Client.publish`: never waits; await the receipt to know that the cluster holds it."""
        return AsyncReceipt(call(self._native.publish, said(space, name, **facts)))

    async def publish_wait(self, space: str, name: str, **facts: Any) -> AsyncReceipt:
        """As `publish`, but waits for room instead of shedding."""
        pending = call(self._native.publish_wait, said(space, name, **facts))
        return AsyncReceipt(await result(pending))

    def publish_many(self, events: Iterable[Mapping[str, Any]]) -> AsyncReceipts:
        """As `Client.publish_many`: never waits."""
        return AsyncReceipts(call(self._native.publish_many, all_said(events)))

    async def publish_many_wait(self, events: Iterable[Mapping[str, Any]]) -> AsyncReceipts:
        """As `publish_many`, but waits until there is room for all of them instead of shedding."""
        pending = call(self._native.publish_many_wait, all_said(events))
        return AsyncReceipts(await result(pending))

    async def subscribe(
        self,
        filter: str = "",
        *,
        since: Union[Moment, Start, None] = None,
        after: Optional[str] = None,
    ) -> AsyncSubscription:
        """As `Client.subscribe`."""
        return await self._subscribe(filter, since, after, past_only=False)

    async def history(
        self,
        filter: str = "",
        *,
        since: Union[Moment, Start, None] = None,
        after: Optional[str] = None,
    ) -> AsyncSubscription:
        """As `Client.history`."""
        if since is None and after is None:
            since = 0
        return await self._subscribe(filter, since, after, past_only=True)

    async def _subscribe(
        self, filter: str, since: Union[Moment, Start, None], after: Optional[str], past_only: bool
    ) -> AsyncSubscription:
        pending = call(self._native.subscribe, filter, *begin(since, after))
        return AsyncSubscription(await result(pending), past_only)

    async def flush(self, timeout: Optional[float] = None) -> None:
        """Waits until nothing is unconfirmed. Raises `NoAgent` or `Timeout`."""
        await self._await(self._native.flush, timeout)

    async def close(self, timeout: Optional[float] = CLOSE_S) -> None:
        """As `Client.close`."""
        await self._await(self._native.close, timeout)

    async def _await(self, begin: Any, timeout: Optional[float]) -> None:
        pending = call(begin, timeout)
        await arrive(pending, pending.poll)

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, kind: Optional[type[BaseException]], *_: object) -> None:
        if kind is None:
            return await self.close()
        try:
            await self.close(0.0)
        except FtbError:
            pass  # the error that is under way is the one to report
